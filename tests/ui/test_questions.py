"""Each question that the page answers, by clicks and keys only."""

from __future__ import annotations

from playwright.async_api import Page, expect

from .browser import needs_chromium, uses_shared_loop
from .server import PageServer

pytestmark = [needs_chromium, uses_shared_loop]


async def open_page(page: Page, server: PageServer, fragment: str = "") -> None:
    await page.goto(server.url + fragment)
    await expect(page.locator("#connection")).to_have_text("Live")


async def test_which_host_is_hot(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    await page.get_by_role("link", name="Which host is hot?").click()
    first = page.locator("#list [aria-posinset='1']")
    await expect(first.get_by_role("link")).to_have_text("esxi-3")
    await expect(first).to_contain_text("hot")
    await expect(first).to_contain_text("95 %")
    await expect(first).to_contain_text("CPU wait 14 % (limit 10 %); 6 of 7 VMs contended")


async def test_maintenance_is_not_heat(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    await page.get_by_role("link", name="Which host is hot?").click()
    row = page.locator("#list .entry").filter(has_text="esxi-5")
    await expect(row).to_contain_text("entering maintenance")
    await expect(row).not_to_contain_text("warm")


async def test_what_stops_if_a_host_goes_in_two_clicks(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    await page.get_by_role("link", name="What stops if a host goes?").click()
    await page.locator("#list").get_by_role("link", name="esxi-4", exact=True).click()
    panel = page.locator("#panel")
    await expect(panel.locator(".figures")).to_contain_text("without a ready replica elsewhere")
    await expect(panel.locator(".problem")).to_contain_text('Node "edge-1" has no known VM')
    ledger = panel.get_by_role("listitem").filter(has_text="ledger-node-4-0")
    await expect(ledger).to_contain_text("no ready replica elsewhere")
    proxy = panel.get_by_role("listitem").filter(has_text="web-node-4-1")
    await expect(proxy).to_contain_text("DaemonSet or static Pod: stays on this Node")
    await expect(proxy).not_to_contain_text("no ready replica elsewhere")
    await expect(panel).to_contain_text("ledger-node-4-0")
    await expect(panel).to_contain_text("StatefulSet ledger")
    await expect(panel).to_contain_text("allows 0 disruptions, 2 Pods on this host")
    await expect(panel.get_by_role("heading", name="Volumes")).to_be_visible()
    await panel.get_by_role("link", name="Back to the host").click()
    await expect(panel.get_by_role("link", name="What stops if this host goes?")).to_be_visible()


async def test_what_stops_by_keys_only(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    await page.keyboard.press("/")
    await page.keyboard.type("esxi-4")
    await expect(page.get_by_role("option").first).to_contain_text("esxi-4")
    await page.keyboard.press("Enter")
    await expect(page.locator("#panel h2")).to_be_focused()
    await expect(page.locator("#panel h2")).to_have_text("esxi-4")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.locator("#panel")).to_contain_text("ledger-node-4-0")
    await page.keyboard.press("Escape")
    await expect(page.locator("#panel")).to_be_hidden()
    await expect(page.locator("[data-row='host/vc-1/host-4'] a").first).to_be_focused()


async def test_where_is_this_volume(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    await page.get_by_role("link", name="Where is this volume?").click()
    await page.keyboard.press("f")
    await page.keyboard.type("data-9")
    rows = page.locator("#list .row")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("on nfs-1")
    await expect(rows).to_contain_text("attached to node-18")
    await rows.get_by_role("link", name="nfs-1").click()
    await expect(page.locator("#panel")).to_contain_text("default/data-9")
    await expect(page.locator("#panel")).to_contain_text("94 %, 7.5 TB of 8 TB")


async def test_a_disk_without_a_persistent_volume_is_marked(page: Page, server: PageServer) -> None:
    await open_page(page, server, "#/volumes?q=pvc-6")
    await expect(page.locator("#list .row")).to_contain_text("no PersistentVolume")
    await expect(page.locator("#list .row")).to_contain_text("not attached")


async def test_which_disks_no_persistent_volume_names(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    await page.get_by_role("link", name="Where is this volume?").click()
    await page.get_by_role("link", name="Show the 3 disks that no PersistentVolume names").click()
    rows = page.locator("#list .row")
    await expect(rows).to_have_count(3)
    for row in await rows.all():
        await expect(row).to_contain_text("no PersistentVolume")
    await page.get_by_role("link", name="Show all volumes").click()
    await expect(rows).not_to_have_count(3)
    # The datastores count them too.
    await page.get_by_role("link", name="Datastores").click()
    datastore = page.locator("[data-row='datastore/vc-1/datastore-2']")
    await expect(datastore).to_contain_text("1 without a PersistentVolume")


async def test_figures_of_what_stops_lead_to_their_lists(page: Page, server: PageServer) -> None:
    await open_page(page, server, "#/what-if/host/vc-1%2Fhost-4/what-if")
    panel = page.locator("#panel")
    for figure, title in (("disruption budget", "PodDisruptionBudgets"), ("volume", "Volumes")):
        await panel.locator(".figures").get_by_role("button", name=figure).click()
        heading = panel.get_by_role("heading", name=title)
        await expect(heading).to_be_focused()
        await expect(heading).to_be_in_viewport()


async def test_why_not_this_node(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    await page.get_by_role("link", name="Why not this Node?").click()
    await page.locator("#list").get_by_role("link", name="node-2", exact=True).click()
    panel = page.locator("#panel")
    await expect(panel).to_contain_text("GPUMissing")
    await expect(panel).to_contain_text("The host has no GPU.")
    await expect(panel).to_contain_text("TooShort")


async def test_gpuinfo_shows_candidates_and_rejections(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    await page.get_by_role("link", name="GPUInfos").click()
    await page.locator("#list").get_by_role("link", name="default/train").click()
    panel = page.locator("#panel")
    await expect(panel.get_by_role("heading", name="Candidates (2)")).to_be_visible()
    await expect(panel).to_contain_text("nvidia-a100, available for 10 days")
    await expect(panel).to_contain_text("MaintenanceTooSoon")
    await expect(panel).to_contain_text("28 more rejections not listed.")


async def test_what_changed_states_that_it_is_bounded(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    await page.get_by_role("link", name="What changed?").click()
    await expect(page.locator("#list .row")).to_have_count(6)
    await expect(page.locator("#list .row").first).to_contain_text("from esxi-2 to esxi-4")
    await expect(page.locator("#view-description")).to_contain_text("Complete since")
    await expect(page.locator("#view-description")).to_contain_text("at most 2,000 changes")
    # An object that is gone has no link.
    await expect(page.locator("#list .row").last.get_by_role("link")).to_have_count(0)
    server.changes["changes"].insert(
        0, {**server.changes["changes"][0], "type": "PoweredOn", "message": "newest"}
    )
    server.change({"vms": [server.find("vms", "vc-1/vm-4")]})
    await expect(page.locator("#list .row").first).to_contain_text("newest")


async def test_pods_of_a_node_on_demand(page: Page, server: PageServer) -> None:
    await open_page(page, server, "#/hosts/node/node-6")
    assert not any(path.endswith("/pods") for path in server.requests)
    await page.get_by_role("button", name="Show the Pods").click()
    await expect(page.locator("#panel")).to_contain_text("ledger-node-6-0")


async def test_vmgroup_with_tasks_conditions_events_and_yaml(
    page: Page, server: PageServer
) -> None:
    await open_page(page, server)
    await page.get_by_role("link", name="VmGroups").click()
    row = page.locator("[data-row='vmgroup/default/web']")
    await expect(row).to_contain_text("2/4 ready")
    await expect(row).to_contain_text("40 %")
    group = server.find("vmGroups", "default/web")
    group["tasks"] = [{"name": "clone", "vm": "web-2", "percent": 75}]
    server.change({"vmGroups": [group]})
    await expect(row).to_contain_text("75 %")
    await row.get_by_role("link").click()
    panel = page.locator("#panel")
    await expect(panel).to_contain_text("Ready False")
    await expect(panel).to_contain_text("CloneStarted")
    await panel.get_by_text("YAML", exact=True).click()
    await expect(panel.locator("pre.yaml")).to_contain_text("kind: VmGroup")
