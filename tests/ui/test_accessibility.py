"""axe-core finds nothing serious in any view, in both themes and on a phone."""

from __future__ import annotations

from importlib.resources import files

import pytest
from playwright.async_api import Browser, ViewportSize

from .browser import needs_chromium, uses_shared_loop
from .server import PageServer

pytestmark = [needs_chromium, uses_shared_loop]

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
VIEWS = (
    "#/hosts",
    "#/hosts/host/vc-1%2Fhost-3",
    "#/what-if/host/vc-1%2Fhost-4/what-if",
    "#/hosts/vm/vc-1%2Fvm-4",
    "#/why-not/node/node-2",
    "#/datastores/datastore/vc-1%2Fdatastore-1",
    "#/groups/vmgroup/default%2Fweb",
    "#/gpus/gpuinfo/default%2Ftrain",
    "#/hosts/pod/kube-system%2Fledger-node-4-0",
    "#/hosts/object/hostinfoes%2Fdefault%2Fesxi-3",
    "#/hot",
    "#/volumes",
    "#/changes",
)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
async def test_axe_finds_nothing_serious(
    browser: Browser, server: PageServer, theme: str, size: tuple[int, int]
) -> None:
    context = await browser.new_context(
        viewport=ViewportSize(width=size[0], height=size[1]),
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
    )
    page = await context.new_page()
    findings = []
    await page.goto(server.url)
    # A change of the fragment loads no new document, so axe-core stays.
    await page.evaluate(AXE)
    for view in VIEWS:
        await page.goto(server.url + view)
        await page.locator("#connection[data-state='live']").wait_for()
        if "/" in view[2:]:
            await page.locator("#panel h2").wait_for()
        result = await page.evaluate("axe.run({resultTypes: ['violations']})")
        findings += [
            f"{view}: {violation['id']}: {violation['nodes'][0]['html']}"
            for violation in result["violations"]
            if violation["impact"] in ("serious", "critical")
        ]
    await context.close()
    assert findings == []


async def test_axe_checks_the_dialogs(browser: Browser, server: PageServer) -> None:
    server.token = "secret"
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(server.url)
    await page.get_by_label("Bearer token").wait_for()
    await page.evaluate(AXE)
    result = await page.evaluate("axe.run()")
    await page.get_by_label("Bearer token").fill("secret")
    await page.keyboard.press("Enter")
    await page.locator("#connection[data-state='live']").wait_for()
    await page.keyboard.press("?")
    await page.locator("#help[open]").wait_for()
    second = await page.evaluate("axe.run()")
    violations = [*result["violations"], *second["violations"]]
    await context.close()
    assert [item["id"] for item in violations if item["impact"] in ("serious", "critical")] == []
