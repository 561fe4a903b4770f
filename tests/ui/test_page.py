"""What holds for every view: live changes, faults, keys, deep links, names and weight."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, Page, expect

from kubewright.testing import eventually

from .browser import needs_chromium, uses_shared_loop
from .model import HOSTILE_NAMES, build_model
from .server import PAGE_FOLDER, PageServer, run_server
from .test_questions import open_page

pytestmark = [needs_chromium, uses_shared_loop]
MAX_PAGE_BYTES = 300_000


async def test_moves_a_vm_to_its_new_host(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    target = page.locator("[data-row='host/vc-1/host-2']")
    moved = target.locator("a.vm[aria-label^='node-0,']")
    await expect(moved).to_have_count(0)
    server.change({"vms": [{**server.find("vms", "vc-1/vm-0"), "host": "vc-1/host-2"}]})
    await expect(moved).to_have_count(1)
    await expect(page.locator("a.vm[aria-label^='node-0,']")).to_have_count(1)


async def test_removes_what_is_gone(page: Page, server: PageServer) -> None:
    await open_page(page, server, "#/hosts/host/vc-1%2Fhost-0")
    server.change(removed={"hosts": ["vc-1/host-0"]})
    await expect(page.locator("#panel")).to_contain_text("does not exist, or no longer")
    await expect(page.locator("[data-row='host/vc-1/host-0']")).to_have_count(0)


async def test_reconnects_after_a_restart_without_a_reload(page: Page, server: PageServer) -> None:
    await open_page(page, server, "#/hosts/host/vc-1%2Fhost-0")
    await page.evaluate("window.isSamePage = true")
    await server.stop()
    await expect(page.locator("#connection")).to_contain_text("Reconnecting")
    server.model["hosts"][0] = {**server.model["hosts"][0], "name": "renamed"}
    await server.restart()
    await expect(page.locator("#connection")).to_have_text("Live", timeout=30_000)
    await expect(page.locator("#panel h2")).to_have_text("renamed")
    assert await page.evaluate("window.isSamePage")
    server.change({"hosts": [{**server.find("hosts", "vc-1/host-0"), "name": "again"}]})
    await expect(page.locator("#panel h2")).to_have_text("again")


async def test_states_that_data_is_stale_after_30_seconds(page: Page, server: PageServer) -> None:
    await page.clock.install()
    await open_page(page, server)
    await server.stop()
    await page.clock.run_for(31_000)
    await expect(page.locator("#connection")).to_contain_text("Stale")
    await expect(page.locator("#banners")).to_contain_text("This data is stale.")
    await server.restart()
    await page.get_by_role("button", name="Reconnect now").click()

    async def is_live() -> bool:
        # The first attempt may fail while the server starts; the next one is due by the clock.
        await page.clock.run_for(1000)
        return await page.locator("#connection").inner_text() == "Live"

    await eventually(is_live, within=30)
    await expect(page.locator("#banners")).to_have_text("")


async def test_a_silent_connection_is_stale(page: Page, server: PageServer) -> None:
    server.sends_heartbeats = False
    await page.clock.install()
    await open_page(page, server)
    await page.clock.run_for(31_000)
    await expect(page.locator("#connection")).to_contain_text(re.compile("Stale|Live"))
    # The silent connection was given up for a new one.
    await page.clock.run_for(1000)
    await eventually(lambda: server.requests.count("/topology/events") >= 2)


async def test_names_a_vcenter_that_is_unavailable(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    server.change(
        {
            "vcenters": [
                {
                    "id": "vc-1",
                    "name": "vc-1",
                    "state": "Unavailable",
                    "message": "Login failed: the password has expired.",
                    "accurateUntil": "2026-11-18T06:00:00Z",
                }
            ]
        }
    )
    banner = page.locator("#banners")
    await expect(banner).to_contain_text("vCenter vc-1 is unavailable.")
    await expect(banner).to_contain_text("Login failed: the password has expired.")
    await expect(banner).to_contain_text("as of")


async def test_asks_for_a_token_and_explains_a_missing_role(page: Page, server: PageServer) -> None:
    server.token = "secret"
    await page.goto(server.url)
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("A token is required")
    await page.get_by_label("Bearer token").fill("wrong")
    await page.keyboard.press("Enter")
    await expect(dialog).to_contain_text("does not accept the token")
    server.is_forbidden = True
    await page.get_by_label("Bearer token").fill("secret")
    await page.keyboard.press("Enter")
    await expect(page.locator("#banners")).to_contain_text("You are not allowed")
    await expect(page.locator("#banners")).to_contain_text('user "eve" cannot get /topology')
    server.is_forbidden = False
    await expect(page.locator("#connection")).to_have_text("Live", timeout=30_000)
    assert await page.evaluate("sessionStorage.getItem('token')") == "secret"
    assert await page.evaluate("Object.values(localStorage).includes('secret')") is False


async def test_shows_hostile_names_as_text(browser: Browser, page: Page) -> None:
    model = build_model()
    for index, name in enumerate(HOSTILE_NAMES):
        model["vms"][index]["name"] = name
        model["hosts"][index]["name"] = name
        model["datastores"][index]["name"] = name
        model["disks"][index]["claim"] = name
        model["vmGroups"][0]["message"] = name
        model["vcenters"][0] = {"id": "vc-1", "name": name, "state": "Loading", "message": name}
    async with run_server(model) as server:
        server.changes["changes"][0]["name"] = HOSTILE_NAMES[0]
        await open_page(page, server)
        views = ("hosts", "datastores", "groups", "gpus", "hot", "what-if", "volumes", "changes")
        for view in views:
            await page.goto(f"{server.url}#/{view}")
            await expect(page.locator("#list .row").first).to_be_visible()
            assert await page.locator("img:not([src='assets/icon.svg'])").count() == 0
        for index in range(len(HOSTILE_NAMES)):
            await page.goto(f"{server.url}#/hosts/vm/vc-1%2Fvm-{index}")
            await expect(page.locator("#panel h2")).to_contain_text(re.compile(r"\S"))
        await page.goto(f"{server.url}#/hosts/vm/vc-1%2Fvm-0")
        await expect(page.locator("#panel h2")).to_have_text(HOSTILE_NAMES[0])
        await page.goto(f"{server.url}#/hosts/vm/vc-1%2Fvm-1")
        await expect(page.locator("#panel h2")).to_have_text("invoice[U+202E]gpj.exe")
        await page.locator("#search").fill("<img")
        await expect(page.get_by_role("option").first).to_contain_text("<img src=x")
        assert "broken" not in await page.title()
        # Long names are cut, not the layout.
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_keys_move_through_rows_and_vms(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    await page.locator("[data-row='host/vc-1/host-0'] a").first.focus()
    await page.keyboard.press("ArrowDown")
    await expect(page.locator("[data-row='host/vc-1/host-2'] a").first).to_be_focused()
    await page.keyboard.press("ArrowRight")
    await expect(page.locator("[data-row='host/vc-1/host-2'] a.vm").first).to_be_focused()
    # Enter opens the details, Esc returns to the same VM.
    await page.keyboard.press("Enter")
    await expect(page.locator("#panel h2")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.locator("[data-row='host/vc-1/host-2'] a.vm").first).to_be_focused()
    # The focus survives a change of the row.
    server.change({"hosts": [{**server.find("hosts", "vc-1/host-2"), "cpuUsageMHz": 82000}]})
    await expect(page.locator("[data-row='host/vc-1/host-2']")).to_contain_text("99 %")
    await expect(page.locator("[data-row='host/vc-1/host-2'] a.vm").first).to_be_focused()
    await page.keyboard.press("End")
    await expect(page.locator("[data-row='node/edge-1'] a")).to_be_focused()
    await page.keyboard.press("5")
    await expect(page.get_by_role("heading", level=2, name="Which host is hot?")).to_be_visible()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keyboard and colours")).to_be_visible()
    await page.get_by_label("Use single-key shortcuts").uncheck()
    await page.keyboard.press("Escape")
    await page.keyboard.press("1")
    await expect(page.get_by_role("heading", level=2, name="Which host is hot?")).to_be_visible()


async def test_a_deep_link_opens_the_same_object(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    await page.locator("#search").fill("10.0.0.14")
    await page.keyboard.press("Enter")
    await expect(page.locator("#panel h2")).to_have_text("db-13")
    address = page.url
    await page.goto("about:blank")
    await page.goto(address)
    await expect(page.locator("#panel h2")).to_have_text("db-13")
    await expect(page.locator("#list a.vm[aria-current]")).to_be_in_viewport()


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ({"vcenters": []}, "No vCenter is configured."),
        (
            {"vcenters": [{"id": "a", "name": "a", "state": "Loading", "message": ""}]},
            "The manager is reading the inventory of vCenter.",
        ),
    ],
)
async def test_empty_states(page: Page, model: dict[str, list[dict[str, str]]], text: str) -> None:
    async with run_server({"time": "2026-11-18T06:00:00Z", "nodes": [], **model}) as server:
        await open_page(page, server)
        await expect(page.locator("#empty")).to_contain_text(text)


async def test_the_theme_follows_the_system_and_the_switch(page: Page, server: PageServer) -> None:
    await page.emulate_media(color_scheme="dark")
    await open_page(page, server)
    background = "getComputedStyle(document.body).backgroundColor"
    dark = await page.evaluate(background)
    await page.keyboard.press("t")
    light = await page.evaluate(background)
    assert light != dark
    await page.reload()
    assert await page.evaluate(background) == light


async def test_the_page_is_small_and_complete(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    files = {
        path.relative_to(PAGE_FOLDER).as_posix()
        for path in PAGE_FOLDER.rglob("*")
        if path.is_file()
    }
    # Everything that exists is loaded, and nothing else.
    assert set(server.page_bytes) == files
    assert sum(server.page_bytes.values()) <= MAX_PAGE_BYTES
