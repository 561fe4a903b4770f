"""A fake cluster for the tests of GPUInfo: Nodes on VMs on hosts, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from kubewright import Key, Manager, Object, Options
from kubewright.builtin import Node
from kubewright.log import Log
from vsphere_operators.build import connect_gpuinfo
from vsphere_operators.kinds.gpuinfo.calendar_watcher import CalendarWatcher
from vsphere_operators.kinds.gpuinfo.controller import GPUInfoController
from vsphere_operators.kinds.gpuinfo.label_slots import LabelLimits
from vsphere_operators.kinds.gpuinfo.labels import LabelCleanup, NodeLabeler
from vsphere_operators.kinds.gpuinfo.node import Simulation
from vsphere_operators.kinds.gpuinfo.rules import SelectionRules
from vsphere_operators.kinds.gpuinfo.tracker import NodeTracker
from vsphere_operators.kinds.gpuinfo.types import NONE_AVAILABLE, GPUInfo, GPUInfoStatus
from vsphere_operators.vsphere.model import PassthroughDevice
from vsphere_operators.vsphere.updates import Ref, Value

from .fake_environment import FAKE_CONNECTION, FakeEnvironment

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
VGPU = PassthroughDevice(vgpu_profile="grid_a100-10c")
GPU_RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-*")
FIRST_VM_NUMBER = 422_000_000_000


def bios_uuid_of(number: int) -> str:
    return f"42030000-0000-4000-8000-{FIRST_VM_NUMBER + number:012d}"


class FakeNodeCluster(FakeEnvironment):
    """A cluster of Nodes `node-N`, each on VM `vm-N` on some host `host-N`."""

    def __init__(self) -> None:
        super().__init__()
        self.warnings: list[tuple[str, str, str]] = []
        self.clock_offset = timedelta()

    @cached_property
    def started_at(self) -> float:
        # A loop counts from the start of the machine, which may be longer ago than a window lasts.
        return asyncio.get_running_loop().time()

    def clock(self) -> datetime:
        """NOW plus the time that has passed in the loop, so that looptime advances it."""
        return (
            NOW
            + timedelta(seconds=asyncio.get_running_loop().time() - self.started_at)
            + self.clock_offset
        )

    def monotonic_clock(self) -> float:
        return asyncio.get_running_loop().time() + self.clock_offset.total_seconds()

    def record_warning(self, obj: Object, reason: str, message: str) -> None:
        """Stands for the EventRecorder."""
        self.warnings.append((obj.metadata.name, reason, message))

    def mark_loaded(self) -> None:
        """The inventory is loaded, and no tasks are scheduled."""
        self.vcenter.scheduled_tasks._finish_poll("")
        super().mark_loaded()

    def add_host(self, number: int, **other: Value) -> None:
        properties: dict[str, Value] = {
            "name": f"esxi-{number}",
            "runtime__connectionState": "connected",
            "runtime__inMaintenanceMode": False,
        }
        self.enter("HostSystem", f"host-{number}", **{**properties, **other})

    def add_vm(
        self,
        number: int,
        host: int,
        demand: int,
        *,
        devices: tuple[PassthroughDevice, ...] | None = (),
        **other: Value,
    ) -> None:
        """Add a running VM; `devices=None` means that they are not read yet."""
        properties: dict[str, Value] = {
            "name": f"node-{number}",
            "config__uuid": bios_uuid_of(number).upper(),
            "runtime__host": Ref("HostSystem", f"host-{host}"),
            "runtime__connectionState": "connected",
            "runtime__powerState": "poweredOn",
            "summary__config__numCpu": 4,
            "summary__config__memorySizeMB": 8192,
            "summary__quickStats__overallCpuDemand": demand,
            "summary__quickStats__guestMemoryUsage": 1024,
        }
        if devices is not None:
            self.vcenter.passthrough_devices.values[f"vm-{number}"] = devices
        self.enter("VirtualMachine", f"vm-{number}", **{**properties, **other})

    def set_cpu_demand(self, number: int, mhz: int) -> None:
        self.modify("VirtualMachine", f"vm-{number}", summary__quickStats__overallCpuDemand=mhz)

    def add_node(self, number: int, **other: Any) -> None:
        body = node_manifest(number, **other)
        created = self.api.create(Node.definition.path(""), body)
        self.api.update(
            Node.definition.path("", f"node-{number}"),
            {**created, "status": body["status"]},
            status=True,
        )

    async def patch_node(self, number: int, patch: dict[str, Any], subresource: str = "") -> None:
        await self.client.patch(Node, Key("", f"node-{number}"), patch, subresource=subresource)


def node_manifest(
    number: int, *, annotations: dict[str, str] | None = None, ready: str = "True", **spec: Any
) -> dict[str, Any]:
    status = {
        "conditions": [{"type": "Ready", "status": ready}],
        "allocatable": spec.pop("allocatable", {}),
    }
    metadata = {"name": f"node-{number}", "annotations": annotations or {}}
    return {
        "metadata": metadata,
        "spec": {"providerID": f"vsphere://{bios_uuid_of(number)}", **spec},
        "status": status,
    }


def add_three_nodes(cluster: FakeNodeCluster) -> None:
    """Two nodes without a GPU and one with a GPU, on two hosts."""
    cluster.add_host(1)
    cluster.add_host(2)
    for number, host, demand, devices in ((1, 1, 500, ()), (2, 2, 900, ()), (3, 2, 700, (VGPU,))):
        cluster.add_vm(number, host, demand, devices=devices)
        cluster.add_node(number)
    cluster.mark_loaded()


async def wait_for_node(cluster: FakeNodeCluster, name: str, node: str) -> GPUInfoStatus:
    """Wait until the status names this node."""
    reason = "NoneAvailable" if node == NONE_AVAILABLE else "NodeChosen"
    info, _ = await cluster.wait_for_ready(
        GPUInfo, name, reason, lambda status: status.suitableNodeName == node, within=20
    )
    return info.status


@asynccontextmanager
async def run_gpuinfo_manager(
    cluster: FakeNodeCluster,
    *,
    labels: bool = False,
    label_limits: LabelLimits | None = None,
    simulation: Simulation | None = None,
    rules: SelectionRules | None = None,
    interval_seconds: float = 60.0,
    calendar: Key | None = None,
) -> AsyncIterator[GPUInfoController]:
    """Run a manager with the controller of GPUInfo until the block ends."""
    manager = Manager(FAKE_CONNECTION, Options(metrics_bind_address="0"), transport=cluster.api)
    vcenters = {"vc-1": cluster.vcenter}
    tracker = NodeTracker(
        manager.cache,
        vcenters,
        cluster.clock,
        cluster.record_warning,
        log=Log("nodes"),
        gpu_resource_globs=GPU_RESOURCES,
        simulation=simulation,
    )
    calendar_watcher = None
    if calendar is not None:
        calendar_watcher = CalendarWatcher(
            calendar,
            manager.client,
            manager.metrics,
            cluster.record_warning,
            Log("calendar"),
            clock=cluster.monotonic_clock,
        )
        manager.add_runnable(calendar_watcher)
    labeler = None
    if labels:
        limits = label_limits or LabelLimits(interval_seconds=0.0)
        labeler = NodeLabeler(manager.client, manager.cache, limits)
    else:
        manager.add_runnable(
            LabelCleanup(
                manager.cache, manager.client, manager.recorder, manager.shards, Log("labels")
            )
        )
    controller = GPUInfoController(
        tracker,
        vcenters,
        rules or SelectionRules(),
        manager.recorder,
        interval_seconds=interval_seconds,
        change_fraction=0.05,
        calendar=calendar_watcher,
        labeler=labeler,
    )
    connect_gpuinfo(controller, manager.cache)
    manager.add_runnable(controller.selections)
    manager.add(controller)
    stop = asyncio.Event()
    task = asyncio.create_task(manager.run(stop))
    try:
        yield controller
    finally:
        stop.set()
        await task
