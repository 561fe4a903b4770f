"""The page in Chromium, on a server with a synthetic topology."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page

from .browser import run_browser
from .server import PageServer, run_server


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with run_browser() as browser:
        yield browser


@pytest.fixture
async def server() -> AsyncIterator[PageServer]:
    async with run_server() as server:
        yield server


@pytest.fixture
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
