"""The Chromium that the tests of the page share."""

from __future__ import annotations

import os
import signal

from kubewright.testing import eventually

from .browser import SharedBrowser, needs_chromium, uses_shared_loop

pytestmark = [needs_chromium, uses_shared_loop]


async def test_crash_of_chromium_does_not_fail_the_next_test(shared_browser: SharedBrowser) -> None:
    browser = await shared_browser.get()
    assert await shared_browser.get() is browser
    session = await browser.new_browser_cdp_session()
    processes = (await session.send("SystemInfo.getProcessInfo"))["processInfo"]
    [process_id] = [process["id"] for process in processes if process["type"] == "browser"]
    # Not by `Browser.crash`, which takes 5 s more of CPU time.
    os.kill(process_id, signal.SIGKILL)
    await eventually(lambda: not browser.is_connected())
    next_browser = await shared_browser.get()
    context = await next_browser.new_context()
    assert await (await context.new_page()).evaluate("1 + 1") == 2
    await context.close()
