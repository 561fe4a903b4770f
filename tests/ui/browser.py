"""Chromium from the distribution's packages, driven by Playwright without a download."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, async_playwright, expect

ADVICE = "Install it with: apt-get install chromium"
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--force-color-profile=srgb",
)


def find_chromium() -> Path | None:
    """$CHROMIUM, or the first browser on PATH."""
    names = (os.environ["CHROMIUM"],) if os.environ.get("CHROMIUM") else _NAMES
    paths = (shutil.which(name) for name in names)
    return next((Path(path) for path in paths if path), None)


# CI sets REQUIRE_CHROMIUM, so that there the tests fail instead.
needs_chromium = pytest.mark.skipif(
    find_chromium() is None and not os.environ.get("REQUIRE_CHROMIUM"),
    reason=f"the page is not tested: Chromium was not found on PATH. {ADVICE}",
)

# A connection to Chromium belongs to one event loop, so the tests that share it share the loop.
uses_shared_loop = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def run_browser() -> AsyncIterator[Browser]:
    path = find_chromium()
    if path is None:
        raise FileNotFoundError(f"Chromium was not found on PATH. {ADVICE}")
    # The default of 5 s is too short for a busy machine.
    expect.set_options(timeout=30_000)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path, args=list(_ARGUMENTS), chromium_sandbox=False
        )
        try:
            yield browser
        finally:
            await browser.close()


class SharedBrowser:
    """One Chromium for many tests: a start takes longer than most of them.

    Each test uses a context of its own, which has no cookies, storage or cache of another test.
    """

    def __init__(self) -> None:
        self._resources = AsyncExitStack()
        self._browser: Browser | None = None

    async def get(self) -> Browser:
        """Starts Chromium at first use, and again if it has crashed."""
        if self._browser is None or not self._browser.is_connected():
            await self.close()
            self._browser = await self._resources.enter_async_context(run_browser())
        return self._browser

    async def close(self) -> None:
        self._browser = None
        await self._resources.aclose()
