"""The page in Chromium, on a server with a synthetic topology."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser, Page

from .browser import SharedBrowser
from .server import PageServer, run_server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_browser() -> AsyncIterator[SharedBrowser]:
    browser = SharedBrowser()
    yield browser
    await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def browser(shared_browser: SharedBrowser) -> Browser:
    return await shared_browser.get()


@pytest_asyncio.fixture(loop_scope="session")
async def server() -> AsyncIterator[PageServer]:
    async with run_server() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser) -> AsyncIterator[Page]:
    """Fails the test if the page logs an error, such as a violation of its security policy."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    page = await context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console",
        # The browser logs failed requests on its own; tests of faults cause them.
        lambda message: (
            errors.append(message.text)
            if message.type == "error" and not message.text.startswith("Failed to load resource")
            else None
        ),
    )
    yield page
    await context.close()
    assert errors == []
