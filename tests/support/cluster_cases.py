"""Generated clusters as plain values, and how the real cache and inventories load them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from unittest.mock import Mock
from uuid import UUID

from hypothesis import strategies as st

from kubewright import Cache
from kubewright.builtin import Node
from kubewright.log import Log
from support.fake_environment import ADDRESS, NullMetrics
from vsphere_operators.build import connect_node_tracker
from vsphere_operators.kinds.gpuinfo.maintenance_windows import parse_calendar
from vsphere_operators.kinds.gpuinfo.node import NEXT_MAINTENANCE_KEY
from vsphere_operators.kinds.gpuinfo.tracker import NodeTracker
from vsphere_operators.vsphere.credentials import Credentials, FixedCredentials
from vsphere_operators.vsphere.faults import Unreachable
from vsphere_operators.vsphere.model import PassthroughDevice
from vsphere_operators.vsphere.scheduled_tasks import MaintenanceTask
from vsphere_operators.vsphere.updates import ObjectUpdate, Ref, Value
from vsphere_operators.vsphere.vcenter import VCenter

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
REQUIRED_HOURS = [0, 1, 24, 300, 900, 1000, 1001]
DEVICES = {
    "none": (),
    "vgpu": (PassthroughDevice(vgpu_profile="grid_a100-10c"),),
    "nvidia": (PassthroughDevice(name="A100", pci_id="0000:3b:00.0", vendor_ids=(0x10DE,)),),
    "network": (PassthroughDevice(name="X710", pci_id="0000:5e:00.0", vendor_ids=(0x8086,)),),
}


@dataclass
class HostCase:
    vcenter: str
    number: int
    connection: str
    maintenance: bool | None
    attribute: str
    scheduled_in_hours: int | None

    @property
    def ref(self) -> str:
        return f"host-{self.number}"

    @property
    def name(self) -> str:
        return f"esxi-{self.number}"


@dataclass
class VirtualMachineCase:
    vcenter: str
    number: int
    name: str
    uuid: str
    host: str
    power: str
    connection: str
    template: bool
    cpu_demand_mhz: int | None
    guest_memory_mb: int | None
    # A key of DEVICES, "hidden" or "unread".
    devices: str


@dataclass
class NodeCase:
    name: str
    provider_id: str
    ready: str
    cordoned: bool
    taint: str
    annotation: str
    allocatable: dict[str, str]


@dataclass
class CalendarLine:
    target: str
    glob: str
    starts_in_hours: int
    length_hours: int
    repeats: str

    @property
    def start(self) -> datetime:
        return NOW + timedelta(hours=self.starts_in_hours)

    @property
    def text(self) -> str:
        repeats = f" repeats={self.repeats}" if self.repeats else ""
        start, length = self.start.isoformat(), f"{self.length_hours}h"
        return f"{self.target}={self.glob} start={start} length={length}{repeats}"


@dataclass
class ClusterCase:
    # By name: "well", "loading" or "lost".
    vcenter_states: dict[str, str]
    hosts: list[HostCase]
    vms: list[VirtualMachineCase]
    nodes: list[NodeCase]
    calendar: list[CalendarLine]
    required_hours: int = 0
    gpu_required: bool = False
    current_node: str = ""
    seen: set[str] = field(default_factory=set)


def vm_uuid(number: int) -> str:
    return f"4203{number:04d}-1234-5678-9abc-{number:012d}"


def swap_uuid_bytes(text: str) -> str:
    return str(UUID(bytes_le=UUID(text).bytes))


# Hypothesis checks each new strategy, which takes longer than to draw from it. Typed, because 0
# equals False.
@lru_cache(maxsize=256, typed=True)
def mostly_usual(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """The usual value in most cases, so that some nodes match."""
    return st.sampled_from([usual] * (8 * len(others)) + list(others))


timestamps = st.integers(-60, 1300).map(lambda hours: (NOW + timedelta(hours=hours)).isoformat())
maintenance_texts = st.one_of(st.just(""), st.just(""), st.just("soon"), timestamps)
planned_hours = st.one_of(st.none(), st.none(), st.integers(-60, 1300))
cpu_demands = st.none() | st.integers(0, 12).map(lambda n: n * 100)
guest_memory_sizes = st.none() | st.sampled_from([0, 512, 4096, 9000])
device_keys = st.sampled_from(
    ["none", "none", "vgpu", "vgpu", "nvidia", "network", "hidden", "unread"]
)
gpu_resources = st.sampled_from(
    [{}] * 24 + [{"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "0"}, {"example.com/gpu": "1"}]
)


@st.composite
def host_cases(draw: st.DrawFn, vcenter: str, number: int) -> HostCase:
    state = draw(mostly_usual("connected", "disconnected", "notResponding"))
    planned = draw(planned_hours)
    return HostCase(
        vcenter,
        number,
        state,
        draw(mostly_usual(False, True, None)),
        draw(maintenance_texts),
        planned,
    )


@st.composite
def vm_cases(
    draw: st.DrawFn, number: int, vcenters: list[str], hosts: list[HostCase]
) -> VirtualMachineCase:
    vcenter = draw(st.sampled_from(vcenters))
    local_hosts = [host.ref for host in hosts if host.vcenter == vcenter]
    return VirtualMachineCase(
        vcenter=vcenter,
        number=number,
        name=f"node-{draw(mostly_usual(number, 0, 1))}",
        uuid=vm_uuid(draw(mostly_usual(number, 0))),
        host=draw(
            mostly_usual(draw(st.sampled_from(local_hosts)) if local_hosts else "", "host-99")
        ),
        power=draw(mostly_usual("poweredOn", "poweredOff", "suspended")),
        connection=draw(mostly_usual("connected", "inaccessible", "disconnected")),
        template=draw(mostly_usual(False, True)),
        cpu_demand_mhz=draw(cpu_demands),
        guest_memory_mb=draw(guest_memory_sizes),
        devices=draw(device_keys),
    )


@st.composite
def node_cases(draw: st.DrawFn, number: int) -> NodeCase:
    uuid = vm_uuid(number)
    ids = (
        "",
        f"vsphere://{uuid.upper()}",
        f"vsphere://{swap_uuid_bytes(uuid)}",
        f"vsphere://{vm_uuid(77)}",
        "vsphere://what",
    )
    return NodeCase(
        name=f"node-{number}",
        provider_id=draw(mostly_usual(f"vsphere://{uuid}", *ids)),
        ready=draw(mostly_usual("True", "False", "Unknown")),
        cordoned=draw(mostly_usual(False, True)),
        taint=draw(
            mostly_usual(
                "",
                "node-role.kubernetes.io/control-plane",
                "node.kubernetes.io/unreachable",
                "nvidia.com/gpu",
            )
        ),
        annotation=draw(maintenance_texts),
        allocatable=draw(gpu_resources),
    )


@st.composite
def calendar_lines(draw: st.DrawFn) -> CalendarLine:
    target, globs = draw(
        st.sampled_from(
            [("node", ["node-1", "node-?", "node-[2-4]"]), ("host", ["esxi-1", "*-2", "esxi-9"])]
        )
    )
    repeats = draw(st.sampled_from(["", "", "daily", "weekly"]))
    return CalendarLine(
        target,
        draw(st.sampled_from(globs)),
        draw(st.integers(-900, 1300)),
        draw(st.integers(1, 20)),
        repeats,
    )


@st.composite
def cluster_cases(draw: st.DrawFn) -> ClusterCase:
    vcenters = {
        name: draw(mostly_usual("well", "loading", "lost"))
        for name in ["vc-1", "vc-2"][: draw(st.integers(1, 2))]
    }
    hosts = [
        draw(host_cases(draw(st.sampled_from(sorted(vcenters))), number))
        for number in range(draw(st.integers(1, 4)))
    ]
    count = draw(mostly_usual(6, 0, 1))
    vms = [draw(vm_cases(number, sorted(vcenters), hosts)) for number in range(count)]
    nodes = [draw(node_cases(number)) for number in range(draw(mostly_usual(count + 1, 0)))]
    calendar = draw(st.lists(calendar_lines(), max_size=3))
    current_node = draw(st.sampled_from(["", "node-0", "node-2", "gone"]))
    return ClusterCase(
        vcenters,
        hosts,
        vms,
        nodes,
        calendar,
        draw(st.sampled_from(REQUIRED_HOURS)),
        draw(st.booleans()),
        current_node,
    )


class LoadedCluster:
    """A real NodeTracker, cache and inventories, after all of a cluster has arrived."""

    def __init__(self, cluster: ClusterCase, resources: tuple[str, ...]) -> None:
        self.cluster, self.revision = cluster, 0
        self.cache = Cache(Log("test"))
        account = FixedCredentials(Credentials("user", "secret"))
        self.vcenters = {
            name: VCenter(name, ADDRESS, account, Mock(), NullMetrics())
            for name in cluster.vcenter_states
        }
        self.tracker = NodeTracker(
            self.cache,
            self.vcenters,
            lambda: NOW,
            lambda *_: None,
            log=Log("nodes"),
            gpu_resource_globs=resources,
        )
        connect_node_tracker(self.tracker, self.cache, self.vcenters)
        # Half of the Nodes arrive before their VMs, and everything is first in another state.
        self.apply_nodes(cluster.nodes[::2], ready="False")
        self.apply_vms(cluster.vms, kind="enter", power="poweredOff", host="")
        self.apply_hosts(cluster.hosts)
        self.apply_vcenter_states()
        self.apply_vms(cluster.vms, kind="modify")
        self.apply_maintenance_plans()
        self.apply_nodes(cluster.nodes)

    def apply_nodes(self, nodes: list[NodeCase], **other: str) -> None:
        for node in nodes:
            self.revision += 1
            self.cache.store(Node).put(
                Node.decode(json.dumps(node_manifest(node, self.revision, **other)).encode())
            )

    def apply_vms(self, vms: list[VirtualMachineCase], *, kind: Any, **other: str) -> None:
        for vm in vms:
            vcenter, ref = self.vcenters[vm.vcenter], f"vm-{vm.number}"
            if vm.devices != "unread":
                vcenter.passthrough_devices.values[ref] = DEVICES.get(vm.devices, ())
            if vm.devices == "hidden":
                vcenter.passthrough_devices.unreadable.add(ref)
            vcenter.inventory.apply(
                [ObjectUpdate(kind, "VirtualMachine", ref, vm_properties(vm, **other))]
            )

    def apply_hosts(self, hosts: list[HostCase]) -> None:
        names: Value = ({"key": "7", "name": NEXT_MAINTENANCE_KEY},)
        for vcenter in self.vcenters.values():
            vcenter.inventory.apply(
                [ObjectUpdate("modify", "CustomFieldsManager", "fields", {"field": names})]
            )
        for host in hosts:
            properties: dict[str, Value] = {
                "name": host.name,
                "runtime.connectionState": host.connection,
                "runtime.inMaintenanceMode": host.maintenance,
                "customValue": ({"key": "7", "value": host.attribute},) if host.attribute else (),
            }
            self.vcenters[host.vcenter].inventory.apply(
                [ObjectUpdate("enter", "HostSystem", host.ref, properties)]
            )

    def apply_vcenter_states(self) -> None:
        for name, state in self.cluster.vcenter_states.items():
            if state != "loading":
                self.vcenters[name].on_response()
            if state == "lost":
                self.vcenters[name].inventory_watcher.last_response_at -= 60
                self.vcenters[name].on_failure(Unreachable("lost"))

    def apply_maintenance_plans(self) -> None:
        for name, vcenter in self.vcenters.items():
            scheduled = [
                host
                for host in self.cluster.hosts
                if host.vcenter == name and host.scheduled_in_hours is not None
            ]
            vcenter.scheduled_tasks.apply(
                [
                    MaintenanceTask(
                        host.ref, NOW + timedelta(hours=host.scheduled_in_hours or 0), "patch"
                    )
                    for host in scheduled
                ]
            )
            vcenter.scheduled_tasks._finish_poll("")
        entries, invalid_lines = parse_calendar(
            {"w": "\n".join(line.text for line in self.cluster.calendar)}
        )
        assert invalid_lines == []
        self.tracker.on_calendar_change(entries)


def node_manifest(node: NodeCase, revision: int, *, ready: str = "") -> dict[str, Any]:
    annotations = {NEXT_MAINTENANCE_KEY: node.annotation} if node.annotation else {}
    taints = [{"key": node.taint, "effect": "NoSchedule"}] if node.taint else []
    return {
        "metadata": {
            "name": node.name,
            "resourceVersion": str(revision),
            "annotations": annotations,
        },
        "spec": {"providerID": node.provider_id, "unschedulable": node.cordoned, "taints": taints},
        "status": {
            "conditions": [{"type": "Ready", "status": ready or node.ready}],
            "allocatable": node.allocatable,
        },
    }


def vm_properties(
    vm: VirtualMachineCase, *, power: str | None = None, host: str | None = None
) -> dict[str, Value]:
    host_ref = vm.host if host is None else host
    return {
        "name": vm.name,
        "config.uuid": vm.uuid,
        "config.template": vm.template,
        "runtime.host": Ref("HostSystem", host_ref) if host_ref else None,
        "runtime.connectionState": vm.connection,
        "runtime.powerState": power or vm.power,
        "summary.config.numCpu": 4,
        "summary.config.memorySizeMB": 8192,
        "summary.quickStats.overallCpuDemand": vm.cpu_demand_mhz,
        "summary.quickStats.guestMemoryUsage": vm.guest_memory_mb,
    }
