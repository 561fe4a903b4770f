"""Nodes on VMs on hosts, in memory: what the tests of GPUInfo change and look at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from kubewright import Key, Manager, Object, Options
from kubewright.builtin import Node
from kubewright.log import Log
from vsphere_operators.kinds.gpuinfo.calendar import CalendarWatcher
from vsphere_operators.kinds.gpuinfo.controller import (
    NONE_AVAILABLE,
    GPUInfo,
    GPUInfoController,
    GPUInfoStatus,
)
from vsphere_operators.kinds.gpuinfo.labels import LabelCleanup, LabellingGPUInfoController
from vsphere_operators.kinds.gpuinfo.node import Simulation
from vsphere_operators.kinds.gpuinfo.rules import SelectionRules
from vsphere_operators.kinds.gpuinfo.tracker import NodeTracker
from vsphere_operators.vsphere.model import PassthroughDevice
from vsphere_operators.vsphere.updates import Ref, Value

from .fake_environment import FAKE_CONNECTION, FakeEnvironment

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
VGPU = PassthroughDevice(vgpu_profile="grid_a100-10c")
GPU_RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-*")
FIRST_VM_NUMBER = 422_000_000_000


def bios_uuid_of(number: int) -> str:
    """The bios uuid of a VM."""
    return f"42030000-0000-4000-8000-{FIRST_VM_NUMBER + number:012d}"


class FakeNodeCluster(FakeEnvironment):
    """A cluster of Nodes `node-N`, each on VM `vm-N` on some host `host-N`."""

    def __init__(self) -> None:
        super().__init__()
        self.warnings: list[tuple[str, str, str]] = []
        self.clock_offset = timedelta()

    @cached_property
    def started_at(self) -> float:
        """The first look at the clock: loops count from the start of the machine, which may be longer ago than a plan lasts."""
        return asyncio.get_running_loop().time()

    def clock(self) -> datetime:
        """NOW, and what the loop's time has gone since, so that looptime moves it."""
        return (
            NOW
            + timedelta(seconds=asyncio.get_running_loop().time() - self.started_at)
            + self.clock_offset
        )

    def monotonic_clock(self) -> float:
        """The same, for what only measures how long."""
        return asyncio.get_running_loop().time() + self.clock_offset.total_seconds()

    def record_warning(self, obj: Object, reason: str, words: str) -> None:
        """What would be an Event."""
        self.warnings.append((obj.metadata.name, reason, words))

    def mark_loaded(self) -> None:
        """The inventory is whole from now on, and nothing is scheduled."""
        self.vcenter.scheduled_tasks.finish_poll("")
        super().mark_loaded()

    def add_host(self, number: int, **other: Value) -> None:
        """A host that is there."""
        told: dict[str, Value] = {
            "name": f"esxi-{number}",
            "runtime__connectionState": "connected",
            "runtime__inMaintenanceMode": False,
        }
        self.enter("HostSystem", f"host-{number}", **{**told, **other})

    def add_vm(
        self,
        number: int,
        host: int,
        demand: int,
        *,
        devices: tuple[PassthroughDevice, ...] | None = (),
        **other: Value,
    ) -> None:
        """A VM that runs; devices of None are not read yet."""
        told: dict[str, Value] = {
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
        self.enter("VirtualMachine", f"vm-{number}", **{**told, **other})

    def set_cpu_demand(self, number: int, mhz: int) -> None:
        """Another load."""
        self.modify("VirtualMachine", f"vm-{number}", summary__quickStats__overallCpuDemand=mhz)

    def add_node(self, number: int, **other: Any) -> None:
        """A Node that is ready."""
        body = node_manifest(number, **other)
        made = self.api.create(Node.definition.path(""), body)
        self.api.update(
            Node.definition.path("", f"node-{number}"),
            {**made, "status": body["status"]},
            status=True,
        )

    async def patch_node(self, number: int, patch: dict[str, Any], subresource: str = "") -> None:
        """A person, or the kubelet, changes a Node."""
        await self.client.patch(Node, Key("", f"node-{number}"), patch, subresource=subresource)


def node_manifest(
    number: int, *, annotations: dict[str, str] | None = None, ready: str = "True", **spec: Any
) -> dict[str, Any]:
    """A Node as it is on the wire."""
    status = {
        "conditions": [{"type": "Ready", "status": ready}],
        "allocatable": spec.pop("allocatable", {}),
    }
    about = {"name": f"node-{number}", "annotations": annotations or {}}
    return {
        "metadata": about,
        "spec": {"providerID": f"vsphere://{bios_uuid_of(number)}", **spec},
        "status": status,
    }


def add_three_nodes(stage: FakeNodeCluster) -> None:
    """Two without and one with a GPU, on two hosts."""
    stage.add_host(1)
    stage.add_host(2)
    for number, host, demand, devices in ((1, 1, 500, ()), (2, 2, 900, ()), (3, 2, 700, (VGPU,))):
        stage.add_vm(number, host, demand, devices=devices)
        stage.add_node(number)
    stage.mark_loaded()


async def wait_for_node(stage: FakeNodeCluster, name: str, node: str) -> GPUInfoStatus:
    """The status, once it names this node."""
    reason = "NoneAvailable" if node == NONE_AVAILABLE else "NodeChosen"
    info, _ = await stage.wait_for_ready(
        GPUInfo, name, reason, lambda status: status.suitableNodeName == node, within=20
    )
    return info.status


@asynccontextmanager
async def run_gpuinfo_manager(
    stage: FakeNodeCluster,
    *,
    labels: bool = False,
    simulation: Simulation | None = None,
    rules: SelectionRules | None = None,
    interval_seconds: float = 60.0,
    calendar: Key | None = None,
) -> AsyncIterator[GPUInfoController]:
    """A manager with the controller of GPUInfo, until the block ends."""
    manager = Manager(FAKE_CONNECTION, Options(metrics_bind_address="0"), transport=stage.api)
    vcenters = {"vc-1": stage.vcenter}
    log = Log("nodes")
    nodes = NodeTracker(
        manager.cache,
        vcenters,
        stage.clock,
        stage.record_warning,
        log=log,
        gpu_resource_globs=GPU_RESOURCES,
        simulation=simulation,
    )
    make: Callable[..., GPUInfoController] = (
        LabellingGPUInfoController if labels else GPUInfoController
    )
    almanac = None
    if calendar is not None:
        almanac = CalendarWatcher(
            calendar,
            manager.client,
            manager.metrics,
            nodes.set_calendar_entries,
            stage.record_warning,
            Log("calendar"),
            clock=stage.monotonic_clock,
        )
        manager.add_runnable(almanac)
    options: dict[str, Any] = {
        "interval_seconds": interval_seconds,
        "change_fraction": 0.05,
        "calendar": almanac,
    }
    controller = make(
        nodes, vcenters, manager.cache, rules or SelectionRules(), manager.recorder, **options
    )
    if isinstance(controller, LabellingGPUInfoController):
        controller.with_client(manager.client)
    else:
        manager.add_runnable(
            LabelCleanup(manager.cache, manager.client, manager.recorder, Log("labels"))
        )
    manager.add_runnable(controller.subscriptions)
    manager.add(controller)
    stop = asyncio.Event()
    task = asyncio.create_task(manager.run(stop))
    try:
        yield controller
    finally:
        stop.set()
        await task
