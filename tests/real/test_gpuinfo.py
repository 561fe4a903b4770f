"""GPUInfo on a real API server with real Nodes in front of a simulated vCenter, under the generated role."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import VCenter

from .managing import ManagerProcess, ready_of
from .vsphere import credentials_in, managing

GPUS = "/apis/topology.corinternal.com/v1/namespaces/{namespace}/gpuinfoes"
NEXT = "topology.corinternal.com/next-maintenance"
MERGE = {"Content-Type": "application/merge-patch+json"}
NODES = {f"worker-{number}": f"42030000-0000-4000-8000-00000000000{number}" for number in range(1, 5)}
NONE = "None available"


class Cluster:
    """Nodes and GPUInfos as people write and read them."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace

    async def call(self, verb: str, path: str, body: Any = None, headers: Any = None) -> Any:
        def work() -> Any:
            with self.plane.apiserver.https() as https:
                return https.call(verb, path, body, headers)

        return await asyncio.to_thread(work)

    async def add_node(self, name: str, provider_id: str) -> None:
        await self.call("POST", "/api/v1/nodes", {"metadata": {"name": name}, "spec": {"providerID": provider_id}})
        await self.node_status(name, ready="True")
        # A new Node is tainted not-ready by the API server; kube-controller-manager, which does not run here, would take that off.
        await self.patch_node(name, {"spec": {"taints": None}})

    async def node_status(self, name: str, ready: str, **other: Any) -> None:
        status = {"conditions": [{"type": "Ready", "status": ready}], **other}
        await self.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, MERGE)

    async def patch_node(self, name: str, patch: Any) -> None:
        await self.call("PATCH", f"/api/v1/nodes/{name}", patch, MERGE)

    async def remove_nodes(self) -> None:
        for name in NODES:
            await self.call("DELETE", f"/api/v1/nodes/{name}")

    async def ask(self, name: str, hours: int, gpu: bool) -> None:
        body = {"apiVersion": "topology.corinternal.com/v1", "kind": "GPUInfo", "metadata": {"name": name}}
        await self.call("POST", GPUS.format(namespace=self.namespace), {**body, "spec": {"desAccTime": hours, "gpuRequired": gpu}})

    async def status(self, name: str) -> Any:
        return (await self.call("GET", f"{GPUS.format(namespace=self.namespace)}/{name}")).get("status", {})

    async def answers(self, name: str, node: str, *, within: float = 20) -> Any:
        async def there() -> Any:
            found = await self.status(name)
            return found if found.get("suitableNodeName") == node else None

        try:
            return await eventually(there, within=within)
        except AssertionError:
            raise AssertionError(f"{name} did not become {node}: {await self.status(name)}") from None

    async def follows(self, name: str, node: str) -> Any:
        """The answer follows within a second."""
        began = time.monotonic()
        found = await self.answers(name, node, within=5)
        assert time.monotonic() - began < 1.0
        return found


@pytest.fixture
async def vcenter(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[VCenter]:
    nodes = [f"--node={name}={uuid}" for name, uuid in NODES.items()]
    flags = ("--clusters=1", "--hosts=3", "--vms=0", "--gpu-vm=worker-3=vgpu", "--gpu-vm=worker-4=passthrough", *nodes)
    vcenter = VCenter(pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim", *flags)
    try:
        await vcenter.start()
        for number, name in enumerate(NODES, 1):
            await vcenter.stats(name, overallCpuDemand=number * 1000, guestMemoryUsage=512)
        yield vcenter
    finally:
        await vcenter.stop()


@pytest.fixture
async def cluster(installed: ControlPlane, namespace: str) -> AsyncIterator[Cluster]:
    cluster = Cluster(installed, namespace)
    try:
        for name, uuid in NODES.items():
            await cluster.add_node(name, "" if name == "worker-2" else f"vsphere://{uuid.upper()}")
        yield cluster
    finally:
        await cluster.remove_nodes()


@pytest.fixture
async def manager(vcenter: VCenter, log: Path, service_account: Path, tmp_path: Path, cluster: Cluster) -> AsyncIterator[ManagerProcess]:
    credentials = credentials_in(tmp_path / "vc-creds", vcenter)
    async with managing(log, service_account, credentials, vcenter.certificate, "--stats-interval=2s") as manager:
        yield manager


async def test_the_samples_and_everything_that_moves_an_answer(
    manager: ManagerProcess, vcenter: VCenter, cluster: Cluster, config: Path
) -> None:
    for sample in sorted((config / "samples").glob("topology_v1_gpuinfo*.yaml")):
        cluster.plane.kubectl("apply", "-n", cluster.namespace, "-f", str(sample))
    await cluster.ask("plain", 100, False)
    for name in ("gpuinfo-sample", "gpu1", "gpu2", "gpu3", "gpu4"):
        found = await cluster.answers(name, "worker-3")
        assert (found["nodeCPUUsage"], found["nodeMemoryUsage"], found["availableAcceleratorTime"]) == (3000, 512, 8760)
        assert found["refused"] == {"GPUMissing": 2}
        assert [each["node"] for each in found["candidates"]] == ["worker-3", "worker-4"]
        assert found["candidates"][0]["gpus"] == ["vm: vGPU grid_a100-10c"]
    table = cluster.plane.kubectl("get", "gpu", "-n", cluster.namespace)
    assert table.split("\n")[0].startswith("NAME             DESIRED ACCESS TIME (HRS)   GPU REQUIRED")
    first = await cluster.answers("plain", "worker-1")
    await cluster.patch_node("worker-1", {"spec": {"unschedulable": True}})
    await cluster.follows("plain", "worker-2")
    await cluster.patch_node("worker-1", {"spec": {"unschedulable": None}})
    await cluster.follows("plain", "worker-1")
    await cluster.node_status("worker-1", ready="False")
    await cluster.follows("plain", "worker-2")
    await cluster.node_status("worker-1", ready="True")
    await cluster.follows("plain", "worker-1")
    await vcenter.power("worker-1", on=False)
    await cluster.follows("plain", "worker-2")
    await vcenter.power("worker-1", on=True)
    await vcenter.stats("worker-1", overallCpuDemand=1000)
    await cluster.follows("plain", "worker-1")
    hosts = [each["name"] for each in await vcenter.entities() if each["type"] == "HostSystem"]
    other = next(host for host in hosts if host != first["suitableHostName"])
    await vcenter.move("worker-1", other)
    await eventually(lambda: on_host(cluster, other), within=1)
    await vcenter.maintenance(other)
    assert (await cluster.follows("plain", "worker-2"))["suitableHostName"] != other
    await vcenter.maintenance(other, on=False)
    await cluster.follows("plain", "worker-1")
    await cluster.patch_node("worker-1", {"metadata": {"annotations": {NEXT: "2026-01-01T00:00:00Z"}}})
    await vcenter.attribute(other, NEXT, "2000-99-99")
    await eventually(lambda: said(cluster, "MaintenanceUnreadable"), within=10)
    await cluster.patch_node("worker-1", {"metadata": {"annotations": {NEXT: soon(50)}}})
    assert (await cluster.follows("plain", "worker-2"))["refused"]["TooLittleTime"] == 1
    await vcenter.give_gpu("worker-2")
    assert (await cluster.answers("plain", NONE))["refused"] == {"TooLittleTime": 1, "GPUPresent": 3}
    assert "events" in cluster.plane.kubectl("describe", "gpu", "plain", "-n", cluster.namespace).lower()


def soon(hours: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + hours * 3600))


async def on_host(cluster: Cluster, host: str) -> bool:
    return bool((await cluster.status("plain")).get("suitableHostName") == host)


async def said(cluster: Cluster, reason: str) -> bool:
    events = await cluster.call("GET", "/api/v1/namespaces/default/events")
    return any(event["reason"] == reason for event in events["items"])


async def test_a_calendar_and_labels_with_the_rights_that_are_given_for_them(
    vcenter: VCenter, log: Path, service_account: Path, tmp_path: Path, cluster: Cluster, config: Path
) -> None:
    cluster.plane.kubectl("apply", "-f", str(config / "optional/label-suitable-nodes.yaml"))
    cluster.plane.kubectl("apply", "-f", str(config / "optional/maintenance-calendar.yaml"))
    credentials = credentials_in(tmp_path / "vc-creds", vcenter)
    maps = "/api/v1/namespaces/vsphere-operators-system/configmaps"
    text = f"node=worker-1 start={soon(5)} length=4h\nnode=worker-2 start=never length=4h"
    await cluster.call("POST", maps, {"metadata": {"name": "maintenance"}, "data": {"windows": text}})
    flags = ("--label-suitable-nodes", "--maintenance-calendar=vsphere-operators-system/maintenance")
    label = f"gpuinfo.topology.corinternal.com/{cluster.namespace}.plain"

    async def labelled(*names: str) -> bool:
        return cluster.plane.kubectl("get", "nodes", "-l", label, "-o", "name").split() == [f"node/{name}" for name in names]

    try:
        async with managing(log, service_account, credentials, vcenter.certificate, *flags):
            await cluster.ask("plain", 100, False)
            await cluster.answers("plain", "worker-2")
            await eventually(lambda: labelled("worker-2"))
            await cluster.call("PATCH", f"{maps}/maintenance", {"data": {"windows": ""}}, MERGE)
            await cluster.follows("plain", "worker-1")
            await eventually(lambda: labelled("worker-1"))
            await cluster.call("DELETE", f"{GPUS.format(namespace=cluster.namespace)}/plain")
            await eventually(labelled)
            events = await cluster.call("GET", "/api/v1/namespaces/vsphere-operators-system/events")
            assert any("calendar windows line 2 cannot be used" in event["message"] for event in events["items"])
    finally:
        await cluster.call("DELETE", f"{maps}/maintenance")
        cluster.plane.kubectl("delete", "-f", str(config / "optional"))


async def test_negative_hours_are_refused_in_words_and_an_empty_spec_is_answered(manager: ManagerProcess, cluster: Cluster) -> None:
    await cluster.ask("wrong", -5, True)
    path = GPUS.format(namespace=cluster.namespace)
    await cluster.call("POST", path, {"apiVersion": "topology.corinternal.com/v1", "kind": "GPUInfo", "metadata": {"name": "empty"}})
    await cluster.answers("empty", "worker-1")
    ready = await eventually(lambda: ready_reason(cluster, "wrong"))
    assert ready == "NegativeTime"


async def ready_reason(cluster: Cluster, name: str) -> str:
    return str(ready_of({"status": await cluster.status(name)}).get("reason", ""))
