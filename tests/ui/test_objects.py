"""Pods by search, and the objects of Kubernetes that the page reads on demand."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from kubewright.testing import eventually

from .browser import needs_chromium, uses_shared_loop
from .server import PageServer
from .test_questions import open_page

pytestmark = [needs_chromium, uses_shared_loop]


async def test_finds_a_pod_by_keys_and_by_its_link(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    await page.keyboard.press("/")
    await expect(page.locator("#search")).to_be_focused()
    # All letters in one task of the page: on a slow machine keys would arrive with pauses.
    await page.locator("#search").evaluate(
        """(input, text) => {
          for (const letter of text) {
            input.value += letter;
            input.dispatchEvent(new Event("input", { bubbles: true }));
          }
        }""",
        "ledger-node-4-0",
    )
    option = page.get_by_role("option").first
    await expect(option).to_contain_text("kube-system/ledger-node-4-0")
    await expect(option).to_contain_text("on node-4")
    # One search, not one for each letter.
    assert server.searches == ["ledger-node-4-0"]
    await page.keyboard.press("Enter")
    panel = page.locator("#panel")
    await expect(panel.locator("h2")).to_be_focused()
    await expect(panel.locator("h2")).to_have_text("kube-system/ledger-node-4-0")
    await expect(panel).to_contain_text("StatefulSet ledger")
    await expect(panel.get_by_role("link", name="esxi-4")).to_be_visible()
    await expect(panel).to_contain_text("CloneStarted")
    await expect(panel).to_contain_text("3 older Events not listed.")
    await panel.get_by_text("YAML", exact=True).click()
    await expect(panel.locator("pre.yaml")).to_contain_text("kind: Pod")
    await expect(panel).to_contain_text("Only the fields that the manager reads.")
    address = page.url
    await page.goto("about:blank")
    await page.goto(address)
    await expect(panel.locator("h2")).to_have_text("kube-system/ledger-node-4-0")
    await panel.get_by_role("link", name="node-4", exact=True).first.click()
    await expect(panel.locator("h2")).to_have_text("node-4")


async def test_enter_before_the_pods_arrive_opens_the_first(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    await page.locator("#search").fill("ledger-node-6-0")
    await expect(page.locator("#results")).to_contain_text("Searching Pods")
    await page.keyboard.press("Enter")
    await expect(page.locator("#panel h2")).to_have_text("kube-system/ledger-node-6-0")


async def test_search_of_pods_is_bounded_and_states_what_is_missing(
    page: Page, server: PageServer
) -> None:
    await open_page(page, server)
    await page.locator("#search").fill("web-node")
    await expect(page.get_by_role("option")).to_have_count(50)
    await expect(page.locator("#results")).to_contain_text("more Pods. Type more of the name.")
    # One letter matches too much to be useful.
    searches = len(server.searches)
    await page.locator("#search").fill("w")
    await expect(page.get_by_role("option").first).to_be_visible()
    server.is_forbidden = True
    await page.locator("#search").fill("nothing-like-this")
    await expect(page.locator("#results")).to_contain_text("Searching the Pods failed: Forbidden")
    assert len(server.searches) == searches


async def test_an_exact_name_comes_before_a_part_of_another(page: Page, server: PageServer) -> None:
    disk = {**server.find("disks", "vc-1/6000C2900001"), "claim": "default/data-ledger-node-4-0"}
    server.change({"disks": [disk]})
    await open_page(page, server)
    await page.locator("#search").fill("ledger-node-4-0")
    # The volume is there at once, the Pod arrives later.
    await expect(page.get_by_role("option").first).to_contain_text("data-ledger-node-4-0")
    await page.keyboard.press("Enter")
    await expect(page.locator("#panel h2")).to_have_text("kube-system/ledger-node-4-0")
    # What the user has selected stays selected.
    await page.locator("#search").fill("ledger-node-4-")
    await page.keyboard.press("ArrowDown")
    selected = page.locator("#results [aria-selected='true']")
    await expect(selected).to_contain_text("data-ledger-node-4-0")
    await page.locator("#search").press("0")
    await page.keyboard.press("ArrowDown")
    await expect(page.get_by_role("option")).to_have_count(2)
    await expect(page.get_by_role("option").first).to_contain_text("kube-system/ledger-node-4-0")
    await expect(selected).to_contain_text("data-ledger-node-4-0")


async def test_enter_does_not_wait_for_pods_for_long(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    await page.locator("#search").fill("esxi-1")
    await page.keyboard.press("Enter")
    await expect(page.locator("#panel h2")).to_have_text("esxi-1")
    server.hangs = True
    await page.locator("#search").fill("vmfs-")
    await page.keyboard.press("Enter")
    await expect(page.locator("#panel h2")).to_have_text("vmfs-0")


async def test_pod_that_is_gone(page: Page, server: PageServer) -> None:
    await open_page(page, server, "#/hosts/pod/default%2Fgone")
    await expect(page.locator("#panel")).to_contain_text("No Pod has this name now.")


@pytest.mark.parametrize(
    ("link", "kind", "name"),
    [
        ("host/vc-1%2Fhost-3", "HostInfo", "default/esxi-3"),
        ("vm/vc-1%2Fvm-4", "VMInfo", "default/node-4"),
        ("datastore/vc-1%2Fdatastore-1", "DatastoreInfo", "default/datastore-1"),
        ("cluster/vc-1%2Fdomain-c0", "ClusterInfo", "default/cluster-0"),
    ],
)
async def test_object_of_vsphere_links_to_its_custom_resource(
    page: Page, server: PageServer, link: str, kind: str, name: str
) -> None:
    await open_page(page, server, f"#/hosts/{link}")
    panel = page.locator("#panel")
    await panel.get_by_role("link", name=f"{kind} {name}").click()
    await expect(panel.locator("h2")).to_have_text(name)
    await expect(panel.locator(".kind").first).to_have_text(kind)
    await expect(panel).to_contain_text("Ready False")
    await panel.get_by_text("YAML", exact=True).click()
    await expect(panel.locator("pre.yaml")).to_contain_text(f"kind: {kind}")


async def test_object_without_a_custom_resource_is_explained(
    page: Page, server: PageServer
) -> None:
    await open_page(page, server, "#/hosts/host/vc-1%2Fhost-4")
    await expect(page.locator("#panel")).to_contain_text("No HostInfo reports this Host yet.")


async def test_node_has_conditions_events_and_yaml(page: Page, server: PageServer) -> None:
    await open_page(page, server, "#/hosts/node/node-6")
    panel = page.locator("#panel")
    await expect(panel).to_contain_text("Ready False")
    await panel.get_by_text("YAML", exact=True).click()
    await expect(panel.locator("pre.yaml")).to_contain_text("kind: Node")
    await eventually(lambda: "/topology/objects/nodes/node-6" in server.requests)


async def test_a_vm_is_hot_at_the_limits_of_the_model(page: Page, server: PageServer) -> None:
    """They are those of the Node condition VSphereHostPressure."""
    vm = {**server.find("vms", "vc-1/vm-4"), "cpuReadinessPercent": 0, "balloonedMemoryMB": 0}
    await open_page(page, server)
    block = page.locator("a.vm[aria-label^='node-4,']")

    for figures, level in (
        ({"cpuReadinessPercent": 4}, "calm"),
        ({"cpuReadinessPercent": 5}, "warm"),
        ({"cpuReadinessPercent": 10}, "hot"),
        ({"balloonedMemoryMB": 100}, "calm"),
        ({"balloonedMemoryMB": 200}, "warm"),
        ({"balloonedMemoryMB": 500}, "hot"),
        ({"swappedMemoryMB": 400}, "calm"),
        ({"swappedMemoryMB": 1000}, "hot"),
    ):
        server.change({"vms": [{**vm, "memoryMB": 10_000, **figures}]})
        await expect(block).to_have_class(f"vm {level} node")


async def test_usage_alone_makes_a_host_warm_and_pressure_hot(
    page: Page, server: PageServer
) -> None:
    host = {**server.find("hosts", "vc-1/host-0"), "memoryUsageMB": 520_000}
    await open_page(page, server)
    row = page.locator("[data-row='host/vc-1/host-0']")
    server.change({"hosts": [host]})
    await expect(row).to_contain_class("host warm")
    server.change({"hosts": [{**host, "pressure": [{"type": "MemorySwapping", "message": "x"}]}]})
    await expect(row).to_contain_class("host hot")
