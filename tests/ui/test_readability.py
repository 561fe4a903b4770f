"""Long names, hot hosts and open details: what answers the question stays readable."""

from __future__ import annotations

import pytest
from playwright.async_api import Locator, Page, expect

from kubewright.testing import eventually

from .browser import needs_chromium, uses_shared_loop
from .model import Json, build_model
from .server import PageServer, run_server
from .test_questions import open_page

pytestmark = [needs_chromium, uses_shared_loop]
LONG_NODE = "tkg-workload-production-md-0-7f9c8d54bb-x0004"
IS_CUT = "element => element.scrollWidth > element.clientWidth"


def build_hot_model() -> Json:
    """Host 3 balloons and its VMs wait for CPU; its name and that of a Node are long."""
    model = build_model()
    host = model["hosts"][3]
    host["name"] = "esxi-dell-f.rack-12.production.example.com"
    host["memoryMB"] = 51200
    host["pressure"] = [
        {"type": "MemoryBallooning", "message": "ballooning"},
        {"type": "CPUReady", "message": "waiting"},
    ]
    for vm in model["vms"]:
        if vm["host"] == host["id"]:
            vm.update(memoryMB=10_000, cpuReadinessPercent=26, balloonedMemoryMB=2300)
    model["nodes"][2]["id"] = LONG_NODE
    model["gpuInfos"][0]["rejections"][2]["node"] = LONG_NODE
    return model


async def is_cut(locator: Locator) -> bool:
    return bool(await locator.evaluate(IS_CUT))


@pytest.mark.parametrize("details", ["", "/host/vc-1%2Fhost-3"])
async def test_hot_host_leads_with_the_cause(page: Page, details: str) -> None:
    async with run_server(build_hot_model()) as server:
        await open_page(page, server, f"#/hot{details}")
        row = page.locator("[data-row='host/vc-1/host-3']")
        await expect(row.locator(".why")).to_contain_text(
            "ballooning 23 % (limit 5 %), CPU wait 26 % (limit 10 %)"
        )
        await expect(row.locator(".why")).not_to_contain_text("esxi")
        # The domain is cut, not the name or the badge.
        assert not await is_cut(row.locator(".name-start"))
        assert await row.locator(".badge").all_inner_texts() == ["hot"]
        assert not await is_cut(row.locator(".badge"))
        await page.goto(f"{server.url}#/hosts{details}?q=esxi-dell")
        row = page.locator("[data-row='host/vc-1/host-3']")
        await expect(row.locator(".causes")).to_contain_text("ballooning 23 %, CPU wait 26 %")
        await expect(row.locator(".causes")).to_contain_text("VMs 58.6 GB on 50 GB")
        assert not await is_cut(row.locator(".head .name-start"))
        assert not await is_cut(row.locator(".head .badge"))


async def test_no_host_is_hot(page: Page, server: PageServer) -> None:
    await open_page(page, server, "#/hot")
    description = page.locator("#view-description")
    await expect(description).to_contain_text("1 host is hot.")
    server.change({"hosts": [{**server.find("hosts", "vc-1/host-3"), "pressure": []}]})
    await expect(description).to_contain_text("No host is hot.")


async def test_bars_have_the_level_of_the_host(page: Page, server: PageServer) -> None:
    host = server.find("hosts", "vc-1/host-0")
    await open_page(page, server, "#/hot")
    fill = page.locator("[data-row='host/vc-1/host-0'] .fill").first
    for usage, level in ((0.8, "calm"), (0.91, "warm"), (1.0, "warm")):
        server.change({"hosts": [{**host, "cpuUsageMHz": int(host["cpuMHz"] * usage)}]})
        await expect(fill).to_have_class(f"fill {level}")


@pytest.mark.parametrize("details", ["", "/gpuinfo/default%2Ftrain"])
async def test_why_not_shows_each_verdict_with_its_reason(page: Page, details: str) -> None:
    async with run_server(build_hot_model()) as server:
        await open_page(page, server, f"#/why-not{details}?q=x0004")
        row = page.locator("#list .row")
        await expect(row).to_have_count(1)
        assert not await is_cut(row.locator(".cell.main .name-end"))
        train = row.locator(".verdict").first
        await expect(train).to_contain_text("train")
        await expect(train).to_contain_text("GPUMissing")
        await expect(train).to_contain_text("The host has no GPU.")
        for part in (".name", ".badge"):
            assert not await is_cut(train.locator(part))


async def test_rows_keep_their_place_when_the_details_open(page: Page, server: PageServer) -> None:
    await open_page(page, server)
    for view, row in (("hosts", "host/vc-1/host-0"), ("volumes", "disk/vc-1/6000C2900001")):
        await page.goto(f"{server.url}#/{view}")
        row_element = page.locator(f"[data-row='{row}']")
        before = await row_element.bounding_box()
        # Anywhere in the row: the mouse opens what the first link opens.
        await row_element.click(position={"x": 8, "y": 8})
        await expect(page.locator("#panel")).to_be_visible()
        after = await row_element.bounding_box()
        assert before is not None
        assert after is not None
        assert (before["y"], before["height"]) == (after["y"], after["height"])


async def test_document_has_the_order_of_the_list(page: Page, server: PageServer) -> None:
    await open_page(page, server, "#/hot")
    await page.locator("[data-row='host/vc-1/host-0'] a").focus()
    host = server.find("hosts", "vc-1/host-0")
    pressure = [{"type": "MemorySwapping", "message": "swapping"}]
    server.change({"hosts": [{**host, "pressure": pressure}]})

    async def positions() -> list[int]:
        rows = page.locator("#list [aria-posinset]")
        return [int(await row.get_attribute("aria-posinset") or 0) for row in await rows.all()]

    await expect(page.locator("[data-row='host/vc-1/host-0']")).to_contain_text("swapping")
    assert await positions() == sorted(await positions())
    await expect(page.locator("[data-row='host/vc-1/host-0'] a")).to_be_focused()


async def test_what_stops_follows_the_model(page: Page, server: PageServer) -> None:
    await open_page(page, server, "#/what-if/host/vc-1%2Fhost-4/what-if")
    panel = page.locator("#panel")
    await expect(panel.get_by_role("heading", name="Pods")).to_be_visible()
    await panel.locator(".figures").get_by_role("button", name="volume").click()
    top = await panel.evaluate("element => element.scrollTop")
    vm = server.find("vms", "vc-1/vm-4")
    server.change({"vms": [{**vm, "host": "vc-1/host-2"}]})
    await expect(panel.get_by_role("link", name="node-4", exact=True)).to_have_count(0)
    # The focus and the place stay.
    await expect(panel.get_by_role("heading", name="Volumes")).to_be_focused()
    assert top > 0
    assert await panel.evaluate("element => element.scrollTop") > 0
    # Several changes are one request.
    reads = server.requests.count("/topology/what-if/hosts/vc-1/host-4")
    for number in range(10):
        server.change({"vms": [{**vm, "cpuUsageMHz": number}]})
    await expect(panel.get_by_role("link", name="node-4", exact=True)).to_have_count(1)
    assert server.requests.count("/topology/what-if/hosts/vc-1/host-4") <= reads + 2


async def test_list_of_hosts_shows_the_pods_that_would_stop(page: Page, server: PageServer) -> None:
    await open_page(page, server, "#/what-if")
    nodes = {vm["node"] for vm in server.model["vms"] if vm["host"] == "vc-1/host-4"}
    pods = sum(node["pods"] for node in server.model["nodes"] if node["id"] in nodes)
    row = page.locator("[data-row='host/vc-1/host-4']")
    await expect(row).to_contain_text(f"{len(nodes)} Nodes, {pods} Pods")


async def test_replicas_of_a_vmgroup_show_their_host(page: Page, server: PageServer) -> None:
    await open_page(page, server, "#/groups/vmgroup/default%2Fweb")
    replica = page.locator("#panel li").filter(has_text="web-0")
    await expect(replica).to_contain_text("on esxi-11")
    await replica.get_by_role("link", name="esxi-11").click()
    await expect(page.locator("#panel h2")).to_have_text("esxi-11")


async def test_candidate_that_is_not_selected_has_a_reason(page: Page, server: PageServer) -> None:
    await open_page(page, server, "#/gpus/gpuinfo/default%2Ftrain")
    candidate = page.locator("#panel li").filter(has_text="Not selected")
    await expect(candidate).to_contain_text("more CPU demand than node-6 (2.1 GHz).")
    info = server.find("gpuInfos", "default/train")
    for demand, text in (
        (2100, "same CPU demand as node-6"),
        (2000, "not better by the margin for a change than node-6"),
    ):
        changed = {**info["candidates"][1], "cpuDemandMHz": demand}
        server.change({"gpuInfos": [{**info, "candidates": [info["candidates"][0], changed]}]})
        await expect(candidate).to_contain_text(text)


async def test_filter_of_changes_by_two_parts(page: Page, server: PageServer) -> None:
    await open_page(page, server, "#/changes")
    await expect(page.locator("#list .row")).to_have_count(6)
    await expect(page.locator("#view-description")).to_contain_text("Nodes that GPUInfos select")
    for text, rows in (("moved node-4", 1), ("node-4 esxi-2", 1), ("node-4 Suspended", 0)):
        await page.locator("#filter").fill(text)
        await expect(page.locator("#list .row")).to_have_count(rows)
    # Of a host and its VM.
    await page.goto(f"{server.url}#/hosts?q=esxi-4+node-4")
    await eventually(lambda: _shows_hosts(page, ["host/vc-1/host-4"]))


async def _shows_hosts(page: Page, keys: list[str]) -> bool:
    rows = await page.locator("#list .row.host").all()
    return [await row.get_attribute("data-row") for row in rows] == keys
