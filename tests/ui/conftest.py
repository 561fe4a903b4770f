"""The page in Chromium, on a server with a synthetic topology."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page

from .browser import ADVICE, REQUIRED, find_chromium, run_browser
from .server import PageServer, run_server

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without Chromium, leave out the tests that need it, with the reason in the summary.

    CI sets REQUIRE_CHROMIUM, so that there they fail instead.
    """
    if find_chromium() is not None or os.environ.get(REQUIRED):
        return
    reason = f"the page is not tested: Chromium was not found on PATH. {ADVICE}"
    for item in items:
        if item.path.is_relative_to(FOLDER) and "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.skip(reason=reason))


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
