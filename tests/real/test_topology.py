"""The topology of a real API server and a simulated vCenter: access, content, and the plugin."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.info_client import run_vcenter_manager, write_credentials
from support.manager_process import ManagerProcess, fetch_url, run_ready_manager

from .gpu_cluster import MERGE_PATCH_HEADERS, NODE_UUIDS, GpuCluster

PAGE_FLAG = "-ui-bind-address=127.0.0.1:0"


async def read_address(manager: ManagerProcess) -> str:
    """The address of the page, from the log."""

    def find_line() -> dict[str, Any] | None:
        lines = (line for line in manager.log_records if line["msg"] == "serving the page")
        return next(lines, None)

    line: Any = await eventually(find_line, within=60)
    return f"{'https' if line['tls'] else 'http'}://127.0.0.1:{line['port']}"


class PageReader:
    def __init__(self, address: str) -> None:
        self.address = address

    async def get(self, path: str) -> Any:
        status, body = await asyncio.to_thread(fetch_url, self.address + path)
        assert status == 200, body
        return json.loads(body)

    async def wait_for(self, collection: str, **fields: object) -> dict[str, Any]:
        async def find_item() -> dict[str, Any] | None:
            for item in (await self.get("/topology"))[collection]:
                if all(item.get(name) == value for name, value in fields.items()):
                    return dict(item)
            return None

        item: dict[str, Any] | None = await eventually(find_item, within=30, every=0.2)
        assert item is not None
        return item


@pytest.fixture
def page_role(installed: ControlPlane, config: Path) -> Iterator[None]:
    role = str(config / "components/page/role.yaml")
    installed.kubectl("apply", "-f", role)
    yield
    # Other tests compare the roles of the manager with what it uses.
    installed.kubectl("delete", "-f", role)


@pytest.fixture
async def page(
    gpu_vcenter: SimulatedVCenter,
    log_file: Path,
    manager_kubeconfig: Path,
    tmp_path: Path,
    cluster: GpuCluster,
    page_role: None,
) -> AsyncIterator[PageReader]:
    """The page of a manager, with only the permissions that the component grants."""
    credentials = write_credentials(tmp_path / "vc-creds", gpu_vcenter)
    async with run_vcenter_manager(
        log_file, manager_kubeconfig, credentials, gpu_vcenter.certificate, PAGE_FLAG
    ) as manager:
        reader = PageReader(await read_address(manager))
        await reader.wait_for("nodes", id="worker-4", pods=0)
        yield reader


async def test_remote_page_requires_authentication_and_authorization(
    installed: ControlPlane,
    namespace: str,
    manager_kubeconfig: Path,
    log_file: Path,
    config: Path,
    page_role: None,
) -> None:
    installed.kubectl("-n", namespace, "create", "serviceaccount", "reader")
    token = installed.create_service_account_token(namespace, "reader")
    async with run_ready_manager(
        log_file, manager_kubeconfig, "-ui-bind-address=0.0.0.0:0"
    ) as manager:
        address = await read_address(manager)
        assert address.startswith("https://")

        async def fetch(path: str, bearer: str = "") -> tuple[int, str]:
            return await asyncio.to_thread(fetch_url, address + path, bearer)

        for path in ("/topology", "/topology/events", "/topology/changes"):
            assert (await fetch(path))[0] == 401
            assert (await fetch(path, "invalid"))[0] == 401
            code, body = await fetch(path, token)
            assert code == 403
            assert f"nonResourceURLs {path}" in body
        role = str(config / "optional/topology-reader.yaml")
        await asyncio.to_thread(installed.kubectl, "apply", "-f", role)
        await asyncio.to_thread(
            installed.kubectl,
            "create",
            "clusterrolebinding",
            f"topology-{namespace}",
            "--clusterrole=vsphere-operators-topology-reader",
            f"--serviceaccount={namespace}:reader",
        )

        async def is_allowed() -> bool:
            codes = [(await fetch(path, token))[0] for path in ("/topology", "/topology/changes")]
            return codes == [200, 200]

        await eventually(is_allowed, within=60, every=0.5)
        # The static files need no token, and other paths do not exist.
        assert (await fetch("/topology/"))[0] == 404


def make_pod(name: str, node: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "none"}],
        },
    }


async def test_page_shows_what_stops_if_a_host_goes(
    page: PageReader, cluster: GpuCluster, gpu_vcenter: SimulatedVCenter, namespace: str
) -> None:
    vm = await page.wait_for("vms", node="worker-1")
    host = vm["host"]
    on_host = [
        item["node"] for item in (await page.get("/topology"))["vms"] if item["host"] == host
    ]
    pods_path = f"/api/v1/namespaces/{namespace}/pods"
    await cluster.call("POST", pods_path, make_pod("web-0", "worker-1"))
    # No kubelet runs here.
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await cluster.call(
        "PATCH", f"{pods_path}/web-0/status", {"status": status}, MERGE_PATCH_HEADERS
    )
    budget = {
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    budgets_path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    await cluster.call("POST", budgets_path, budget)
    await page.wait_for("nodes", id="worker-1", pods=1)

    async def find_result() -> dict[str, Any] | None:
        result = await page.get(f"/topology/what-if/hosts/{host}")
        # The disks are listed soon after the start.
        is_complete = result["podDisruptionBudgets"] and "problems" not in result
        return dict(result) if is_complete else None

    result = await eventually(find_result, within=60)
    assert result is not None
    assert result["nodes"] == sorted(on_host)
    assert result["pods"] == [
        {
            "namespace": namespace,
            "name": "web-0",
            "node": "worker-1",
            "controller": "",
            "ready": True,
            "hasReadyReplicaElsewhere": False,
        }
    ]
    assert result["podDisruptionBudgets"][0]["podsOnHost"] == 1
    pods = await page.get("/topology/nodes/worker-1/pods")
    assert [pod["name"] for pod in pods["pods"]] == ["web-0"]
    assert (await page.get("/topology/pods?search=web-"))["pods"] == pods["pods"]
    # With the permissions of the component `page`.
    for path, types in ((f"pods/{namespace}/web-0", ["Ready"]), ("nodes/worker-1", ["Ready"])):
        details = await page.get(f"/topology/objects/{path}")
        assert "problems" not in details
        assert [condition["type"] for condition in details["conditions"]] == types
    await cluster.call("DELETE", f"{pods_path}/web-0?gracePeriodSeconds=0")
    await page.wait_for("nodes", id="worker-1", pods=0)


async def test_page_follows_a_vmotion(page: PageReader, gpu_vcenter: SimulatedVCenter) -> None:
    vm = await page.wait_for("vms", node="worker-1")
    hosts = {host["id"]: host["name"] for host in (await page.get("/topology"))["hosts"]}
    target = next(host_id for host_id in sorted(hosts) if host_id != vm["host"])
    await gpu_vcenter.move_vm("worker-1", hosts[target])
    await page.wait_for("vms", node="worker-1", host=target)
    change = (await page.get("/topology/changes"))["changes"][0]
    assert (change["type"], change["name"]) == ("Moved", "worker-1")
    assert change["message"] == f"from {hosts[vm['host']]} to {hosts[target]}"


async def test_page_shows_an_object_with_its_events(
    page: PageReader, cluster: GpuCluster, namespace: str
) -> None:
    await cluster.create_gpuinfo("train", 10, True)
    info = await page.wait_for("gpuInfos", id=f"{namespace}/train", ready=True)
    assert info["node"] in ("worker-3", "worker-4")
    reasons = {rejection["node"]: rejection["reason"] for rejection in info["rejections"]}
    assert reasons == {"worker-1": "GPUMissing", "worker-2": "GPUMissing"}
    path = f"/topology/objects/gpuinfoes/{namespace}/train"

    async def has_events() -> dict[str, Any] | None:
        details = await page.get(path)
        return dict(details) if details["events"] else None

    details = await eventually(has_events, within=60)
    assert details is not None
    assert "problems" not in details
    assert "desAccTime: 10" in details["yaml"]
    assert "Ready" in [condition["type"] for condition in details["conditions"]]


async def test_plugin_gives_the_same_result_with_and_without_the_manager(
    page: PageReader,
    gpu_vcenter: SimulatedVCenter,
    installed: ControlPlane,
) -> None:
    environ = {
        **os.environ,
        "KUBECONFIG": str(installed.admin_kubeconfig),
        "GOVMOMI_URL": gpu_vcenter.url,
        "GOVMOMI_USERNAME": gpu_vcenter.user,
        "GOVMOMI_PASSWORD": gpu_vcenter.password,
    }

    async def run(*arguments: str) -> Any:
        command = [sys.executable, "-m", "vsphere_operators.kubectl", *arguments]
        done = await asyncio.to_thread(
            subprocess.run, command, env=environ, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    async def are_disks_listed() -> bool:
        datastores = (await page.get("/topology"))["datastores"]
        return bool(datastores) and not any("disksMessage" in item for item in datastores)

    await eventually(are_disks_listed, within=30)
    from_page = ("-o", "json", "--page", page.address)
    from_vcenter = ("-o", "json", "--vcenter", "--vcenter-ca-file", str(gpu_vcenter.certificate))
    assert await run("datastores", *from_page) == await run("datastores", *from_vcenter)
    assert await run("orphans", *from_page) == await run("orphans", *from_vcenter)
    host = (await page.wait_for("vms", node="worker-1"))["host"]
    first, second = [
        {**await run("what-if", "host", host, *source), "time": ""}
        for source in (from_page, from_vcenter)
    ]
    assert first == {**second, "host": {**second["host"], "id": host}}
    assert first["nodes"]
    tree = json.dumps(await run("tree", *from_page))
    assert all(name in tree for name in NODE_UUIDS)
    assert (await run("events", *from_page))["limit"] == 2000
