"""Measures the page in Chromium with a large topology: first picture, updates and scrolling.

    python -m bench.page [--hosts 500] [--vms 5000]

All times are taken in the browser. The first picture is the frame after the first host is in the
document, counted from the start of the navigation. An update is counted from the moment at which
the server sends the event to the frame that shows it; both have the clock of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path

from playwright.async_api import Browser, Page

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from ui.browser import run_browser
from ui.model import build_model
from ui.server import PageServer, run_server

SIZES = ((1280, 800), (390, 844))
STARTS = 5
UPDATES = 30
UPDATE_SECONDS = 0.25
SCROLL_SECONDS = 5
CHURN_VMS = 50
WATCH_FIRST_HOST = """
window.firstPicture = new Promise((resolve) => {
  new MutationObserver((_, observer) => {
    if (!document.querySelector("#list .host")) return;
    observer.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now())));
  }).observe(document, {childList: true, subtree: true});
});
"""
# Resolves with the time of the frame after the text is in the row.
WAIT_FOR_TEXT = """([key, text]) => new Promise((resolve) => {
  const check = () => {
    const row = document.querySelector(`[data-row="${key}"]`);
    if (!row || !row.textContent.includes(text)) return false;
    requestAnimationFrame(() => resolve(performance.timeOrigin + performance.now()));
    return true;
  };
  if (check()) return;
  const observer = new MutationObserver(() => { if (check()) observer.disconnect(); });
  observer.observe(document.getElementById("list"), {childList: true, subtree: true});
})"""
SCROLL = """(seconds) => new Promise((resolve) => {
  const list = document.getElementById("list");
  const times = [];
  let direction = 1;
  const frame = (now) => {
    times.push(now);
    if (now - times[0] >= seconds * 1000) return resolve(times);
    if (list.scrollTop + list.clientHeight >= list.scrollHeight - 1) direction = -1;
    if (list.scrollTop <= 0) direction = 1;
    list.scrollTop += direction * 60;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})"""


async def open_page(browser: Browser, server: PageServer, size: tuple[int, int]) -> Page:
    page = await browser.new_page(viewport={"width": size[0], "height": size[1]})
    await page.add_init_script(WATCH_FIRST_HOST)
    await page.goto(server.url)
    await page.evaluate("window.firstPicture")
    await page.locator("#connection[data-state='live']").wait_for()
    return page


async def measure_first_picture(
    browser: Browser, server: PageServer, size: tuple[int, int]
) -> list[float]:
    times = []
    for _ in range(STARTS):
        page = await open_page(browser, server, size)
        times.append(float(await page.evaluate("window.firstPicture")))
        await page.close()
    return times


async def measure_updates(page: Page, server: PageServer) -> list[float]:
    times = []
    host = server.model["hosts"][0]
    for number in range(UPDATES):
        name = f"{host['name']}-{number}"
        shown = asyncio.create_task(page.evaluate(WAIT_FOR_TEXT, [f"host/{host['id']}", name]))
        # So that the observer is there before the event.
        await asyncio.sleep(UPDATE_SECONDS)
        sent = time.time() * 1000
        server.change({"hosts": [{**host, "name": name}]})
        times.append(float(await shown) - sent)
    return times


async def measure_scrolling(page: Page) -> list[float]:
    times = await page.evaluate(SCROLL, SCROLL_SECONDS)
    return [after - before for before, after in pairwise(times)]


async def churn(server: PageServer) -> None:
    number = 0
    while True:
        vms = server.model["vms"]
        some = [vms[(number * CHURN_VMS + i) % len(vms)] for i in range(CHURN_VMS)]
        server.change({"vms": [{**vm, "cpuReadinessPercent": number % 12} for vm in some]})
        number += 1
        await asyncio.sleep(0.2)


def describe_frames(label: str, frames: list[float]) -> str:
    slowest = statistics.quantiles(frames, n=100)[-1]
    rate = 1000 * len(frames) / sum(frames)
    return f"{label}: {rate:.0f} frames/s, slowest 1 % of frames {slowest:.0f} ms"


async def measure(hosts: int, vms: int) -> None:
    model = build_model(hosts, vms)
    async with run_server(model) as server, run_browser() as browser:
        print(f"{hosts} hosts, {vms} VMs, Chromium {browser.version}")
        for size in SIZES:
            print(f"{size[0]}x{size[1]}")
            first = await measure_first_picture(browser, server, size)
            print(
                f"  first picture: median {statistics.median(first):.0f} ms, max {max(first):.0f}"
            )
            page = await open_page(browser, server, size)
            updates = await measure_updates(page, server)
            print(f"  update: median {statistics.median(updates):.0f} ms, max {max(updates):.0f}")
            print(describe_frames("  scrolling", await measure_scrolling(page)))
            changes = asyncio.create_task(churn(server))
            label = f"  scrolling, 5 changes/s of {CHURN_VMS} VMs"
            print(describe_frames(label, await measure_scrolling(page)))
            changes.cancel()
            await page.close()
        print(f"page weight: {sum(server.page_bytes.values()):,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=500)
    parser.add_argument("--vms", type=int, default=5000)
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.hosts, arguments.vms))


if __name__ == "__main__":
    main()
