"""Each state of the connection: connecting, live, silent, reconnecting, 401 and 403."""

from __future__ import annotations

import re

from playwright.async_api import Page, expect

from kubewright.testing import eventually

from .browser import needs_chromium, uses_shared_loop
from .server import PageServer
from .test_questions import open_page

pytestmark = [needs_chromium, uses_shared_loop]


async def run_clock_until(page: Page, text: str, selector: str = "#connection") -> None:
    async def has_text() -> bool:
        await page.clock.run_for(1000)
        return text in await page.locator(selector).inner_text()

    await eventually(has_text, within=60)


async def test_first_request_without_an_answer_is_given_up(page: Page, server: PageServer) -> None:
    server.hangs = True
    await page.clock.install()
    await page.goto(server.url)
    await expect(page.locator("#connection")).to_have_text("Connecting")
    await page.clock.run_for(61_000)
    await run_clock_until(page, "Reconnecting")
    await expect(page.locator("#banners")).to_contain_text(
        "The manager has not sent the topology within 60 s."
    )
    server.hangs = False
    await run_clock_until(page, "Live")
    await expect(page.locator("#banners")).to_have_text("")


async def test_reconnect_without_an_answer_is_given_up(page: Page, server: PageServer) -> None:
    await page.clock.install()
    await open_page(page, server)
    await server.stop()
    await expect(page.locator("#connection")).to_contain_text("Reconnecting")
    server.hangs = True
    await server.restart()
    await run_clock_until(page, "Stale")
    attempts = server.requests.count("/topology/events")
    await eventually(lambda: _passes(page, server, attempts), within=60)
    server.hangs = False
    await run_clock_until(page, "Live")


async def _passes(page: Page, server: PageServer, attempts: int) -> bool:
    await page.clock.run_for(10_000)
    return server.requests.count("/topology/events") >= attempts + 2


async def test_silence_is_shown_after_15_seconds(page: Page, server: PageServer) -> None:
    server.sends_heartbeats = False
    await page.clock.install()
    await open_page(page, server)
    await page.clock.run_for(13_000)
    await expect(page.locator("#connection")).to_have_text("Live")
    await page.clock.run_for(5_000)
    await expect(page.locator("#connection")).to_have_text(re.compile(r"No answer for 1\d s"))
    server.change({"hosts": [server.find("hosts", "vc-1/host-0")]})
    await run_clock_until(page, "Live")


async def test_cut_connection_has_a_banner_within_5_seconds(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    await server.stop()
    banner = page.locator("#banners")
    # Before the 15 s after which silence is shown, also on a busy machine.
    await expect(banner).to_contain_text("The page tries again automatically.", timeout=14_000)
    await expect(banner).to_contain_text("This data is as of")
    await server.restart()
    await expect(banner).to_have_text("", timeout=30_000)


async def test_heartbeats_show_the_leader_and_how_current_the_data_is(
    page: Page, server: PageServer
) -> None:
    server.heartbeat_seconds = 0.05
    await open_page(page, server)
    await expect(page.locator("#as-of")).to_have_text(re.compile(r"^as of \d\d:\d\d:\d\d$"))
    await expect(page.locator("#nav .manager")).to_contain_text("manager-0, leader")
    server.model["manager"] = {**server.model["manager"], "isLeader": False}
    server.model["time"] = "2026-11-18T23:59:58Z"
    await expect(page.locator("#nav .manager")).to_contain_text("manager-0, standby")
    shown = await page.evaluate(
        "new Date('2026-11-18T23:59:58Z').toLocaleTimeString('en-GB')",
    )
    await expect(page.locator("#as-of")).to_have_text(f"as of {shown}")


async def test_heartbeat_of_another_process_reads_the_model_again(
    page: Page, server: PageServer
) -> None:
    """A proxy may pass the connection on to a manager that has restarted."""
    server.heartbeat_seconds = 0.05
    await open_page(page, server, "#/hosts/host/vc-1%2Fhost-0")
    server.model["hosts"][0] = {**server.model["hosts"][0], "name": "renamed"}
    server.switch_epoch()
    await expect(page.locator("#panel h2")).to_have_text("renamed", timeout=30_000)
    await expect(page.locator("#connection")).to_have_text("Live", timeout=30_000)


async def test_end_of_a_long_stream_is_no_failure(page: Page, server: PageServer) -> None:
    await page.clock.install()
    await open_page(page, server)
    await page.clock.run_for(11_000)
    states = """
      window.states = [];
      new MutationObserver(() => states.push(document.querySelector("#connection").innerText))
        .observe(document.querySelector("#connection"), {childList: true, subtree: true});
    """
    await page.evaluate(states)
    server.end_streams()
    await eventually(lambda: server.requests.count("/topology/events") >= 2)
    server.change({"hosts": [{**server.find("hosts", "vc-1/host-0"), "name": "renamed"}]})
    await page.clock.run_for(1000)
    await expect(page.locator("[data-row='host/vc-1/host-0']")).to_contain_text("renamed")
    assert await page.evaluate("window.states") == []


async def test_names_a_newer_version_of_the_manager(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    server.model["manager"] = {**server.model["manager"], "version": "9.0.0"}
    await server.restart()
    banner = page.locator("#banners")
    await expect(banner).to_contain_text("The manager is now version 9.0.0", timeout=30_000)
    await banner.get_by_role("button", name="Reload the page").click()
    await expect(page.locator("#nav .manager")).to_contain_text("manager 9.0.0")
    await expect(banner).to_have_text("")


async def test_token_that_expires_is_asked_for_and_data_stays(
    page: Page, server: PageServer
) -> None:
    await open_page(page, server)
    server.token = "second"
    server.end_streams()
    await expect(page.get_by_role("dialog")).to_contain_text("A token is required")
    await expect(page.locator("#connection")).to_contain_text("Token required, data of")
    await page.get_by_label("Bearer token").fill("second")
    await page.keyboard.press("Enter")
    await expect(page.locator("#connection")).to_have_text("Live")


async def test_role_that_is_revoked_is_explained_and_tried_again(
    page: Page, server: PageServer
) -> None:
    await open_page(page, server)
    server.is_forbidden = True
    server.end_streams()
    await expect(page.locator("#connection")).to_contain_text("Not allowed, data of")
    await expect(page.locator("#banners")).to_contain_text("You are not allowed")
    # The manager stops in this state, and returns.
    await server.stop()
    await expect(page.locator("#connection")).to_contain_text("Reconnecting", timeout=30_000)
    server.is_forbidden = False
    await server.restart()
    await expect(page.locator("#connection")).to_have_text("Live", timeout=30_000)


async def test_address_with_a_name_of_the_language_is_no_object(
    page: Page, server: PageServer
) -> None:
    for kind in ("constructor", "__proto__", "toString", "nothing"):
        await page.goto(f"{server.url}#/hosts/{kind}/x")
        await expect(page.locator("#panel")).to_contain_text("This object does not exist")
