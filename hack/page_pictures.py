"""Draws the pictures of the page in docs/pictures: three sizes, light and dark.

`make page-pictures` runs it, on the synthetic topology of tests/ui. Fonts differ between machines.
So the pictures are not among the generated files that `make verify` compares.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from pathlib import Path
from typing import Literal

from playwright.async_api import Browser, ViewportSize, expect

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from ui.browser import run_browser
from ui.model import build_model
from ui.server import PageServer, run_server

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs/pictures"
MAX_BYTES = 150_000
Theme = Literal["light", "dark"]
# Name, width, height, address, text that is there when the picture is complete.
VIEWS = (
    ("page-lanes", 1280, 800, "#/hosts/host/vc-1%2Fhost-3", "waited for a CPU 14% of the time"),
    ("page-what-if", 1920, 1080, "#/hosts/host/vc-1%2Fhost-4/what-if", "StatefulSet ledger"),
    ("page-phone", 390, 844, "#/hot", "esxi-3"),
)


async def draw(
    browser: Browser, server: PageServer, theme: Theme, view: tuple[str, int, int, str, str]
) -> None:
    name, width, height, address, text = view
    context = await browser.new_context(
        viewport=ViewportSize(width=width, height=height),
        color_scheme=theme,
        reduced_motion="reduce",
    )
    page = await context.new_page()
    await page.goto(server.url + address)
    await expect(page.locator("#connection")).to_have_text("Live")
    await expect(page.locator("body")).to_contain_text(text)
    # The focus ring of the heading is not of interest.
    await page.evaluate("document.activeElement.blur()")
    # Playwright writes PNG, which is twice as large.
    session = await context.new_cdp_session(page)
    shot = await session.send("Page.captureScreenshot", {"format": "webp", "quality": 60})
    content = base64.b64decode(shot["data"])
    await context.close()
    picture = PICTURES / f"{name}-{theme}.webp"
    picture.write_bytes(content)
    print(f"{picture.relative_to(ROOT)}: {len(content):,} bytes")
    if len(content) > MAX_BYTES:
        raise SystemExit(f"{picture.name} has more than {MAX_BYTES:,} bytes.")


async def main() -> None:
    themes: tuple[Theme, ...] = ("light", "dark")
    async with run_server(build_model(hosts=26, vms=230)) as server, run_browser() as browser:
        for theme in themes:
            for view in VIEWS:
                await draw(browser, server, theme, view)


if __name__ == "__main__":
    asyncio.run(main())
