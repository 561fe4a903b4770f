"""The Chromium that the tests of the page share."""

from __future__ import annotations

import pytest
from playwright.async_api import Error

from kubewright.testing import eventually

from .browser import SharedBrowser, needs_chromium, uses_shared_loop

pytestmark = [needs_chromium, uses_shared_loop]


async def test_crash_of_chromium_does_not_fail_the_next_test(shared_browser: SharedBrowser) -> None:
    browser = await shared_browser.get()
    assert await shared_browser.get() is browser
    session = await browser.new_browser_cdp_session()
    with pytest.raises(Error):
        await session.send("Browser.crash")
    await eventually(lambda: not browser.is_connected())
    next_browser = await shared_browser.get()
    context = await next_browser.new_context()
    assert await (await context.new_page()).evaluate("1 + 1") == 2
    await context.close()
