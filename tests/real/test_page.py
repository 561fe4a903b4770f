"""The page in Chromium on a real manager, a real API server and a simulated vCenter."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from simulator import SimulatedVCenter
from support.info_client import run_vcenter_manager, write_credentials
from ui.browser import needs_chromium, run_browser

from .gpu_cluster import GpuCluster
from .test_topology import PAGE_FLAG, PageReader, page_role, read_address

# page_role is a fixture.
__all__ = ["page_role"]
pytestmark = needs_chromium


async def test_the_page_shows_a_real_manager_and_survives_its_restart(
    gpu_vcenter: SimulatedVCenter,
    log_file: Path,
    manager_kubeconfig: Path,
    tmp_path: Path,
    cluster: GpuCluster,
    namespace: str,
    page_role: None,
) -> None:
    credentials = write_credentials(tmp_path / "vc-creds", gpu_vcenter)
    arguments = (manager_kubeconfig, credentials, gpu_vcenter.certificate)
    await cluster.create_gpuinfo("train", 10, True)
    async with run_browser() as browser:
        page = await browser.new_page(viewport={"width": 1280, "height": 800})
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        panel, worker = page.locator("#panel"), "a.vm[aria-label^='worker-1,']"
        async with run_vcenter_manager(log_file, *arguments, PAGE_FLAG) as manager:
            address = await read_address(manager)
            await page.goto(address)
            await expect(page.locator(worker)).to_have_count(1, timeout=30_000)
            # The page shows a vMotion without a reload.
            reader = PageReader(address)
            vm = await reader.wait_for("vms", node="worker-1")
            hosts = {host["id"]: host["name"] for host in (await reader.get("/topology"))["hosts"]}
            target = next(host_id for host_id in sorted(hosts) if host_id != vm["host"])
            await gpu_vcenter.move_vm("worker-1", hosts[target])
            row = page.locator(f"[data-row='host/{target}']")
            await expect(row.locator(worker)).to_have_count(1)
            await row.get_by_role("link").first.click()
            await panel.get_by_role("link", name="What stops if this host goes?").click()
            await expect(panel.get_by_role("heading", name="VMs")).to_be_visible()
            await expect(panel).to_contain_text("worker-1")
            await page.get_by_role("link", name="GPUInfos").click()
            await page.get_by_role("link", name=f"{namespace}/train").click()
            await expect(panel).to_contain_text("GPUMissing", timeout=30_000)
            await expect(panel).to_contain_text("Ready True", timeout=30_000)
            await panel.get_by_text("YAML", exact=True).click()
            await expect(panel.locator("pre.yaml")).to_contain_text("desAccTime: 10")
            await page.evaluate("window.isSamePage = true")
        await expect(page.locator("#connection")).to_contain_text("Reconnecting")
        flag = f"-ui-bind-address={address.removeprefix('http://')}"
        async with run_vcenter_manager(tmp_path / "second.log", *arguments, flag):
            await expect(page.locator("#connection")).to_have_text("Live", timeout=30_000)
            await expect(panel.locator("h2")).to_have_text(f"{namespace}/train", timeout=30_000)
            assert await page.evaluate("window.isSamePage")
    assert errors == []
