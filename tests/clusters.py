"""Generated clusters: Nodes, VMs, hosts, calendars and plans as plain values, and how they are fed into the real cache and inventories."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock
from uuid import UUID

from hypothesis import strategies as st

from kinds.rig import ADDRESS, Deaf
from kubewright import Cache
from kubewright.builtin import Node
from kubewright.log import Log
from vsphere_operators.kinds.gpuinfo.maintenance import parse_calendar
from vsphere_operators.kinds.gpuinfo.node import NEXT_MAINTENANCE_KEY
from vsphere_operators.kinds.gpuinfo.tracker import NodeTracker
from vsphere_operators.vsphere.credentials import Credentials, FixedCredentials
from vsphere_operators.vsphere.faults import Unreachable
from vsphere_operators.vsphere.model import PassthroughDevice
from vsphere_operators.vsphere.scheduled_tasks import PlannedMaintenance
from vsphere_operators.vsphere.updates import ObjectUpdate, Ref, Value
from vsphere_operators.vsphere.vcenter import VCenter

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
HOURS = [0, 1, 24, 300, 900, 1000, 1001]
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
    maintenance: bool
    attribute: str
    scheduled_in_hours: int | None

    @property
    def ref(self) -> str:
        return f"host-{self.number}"

    @property
    def name(self) -> str:
        return f"esxi-{self.number}"


@dataclass
class VMCase:
    vcenter: str
    number: int
    name: str
    uuid: str
    host: str
    power: str
    connection: str
    template: bool
    demand: int | None
    guest_mb: int | None
    devices: str
    """A key of DEVICES, `hidden` or `unread`."""


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
class Line:
    target: str
    glob: str
    in_hours: int
    length_hours: int
    repeats: str

    @property
    def start(self) -> datetime:
        return NOW + timedelta(hours=self.in_hours)

    @property
    def text(self) -> str:
        again = f" repeats={self.repeats}" if self.repeats else ""
        return f"{self.target}={self.glob} start={self.start.isoformat()} length={self.length_hours}h{again}"


@dataclass
class Cluster:
    vcenters: dict[str, str]
    """State by name: well, loading or lost."""
    hosts: list[HostCase]
    vms: list[VMCase]
    nodes: list[NodeCase]
    calendar: list[Line]
    hours: int = 0
    gpu: bool = False
    present: str = ""
    seen: set[str] = field(default_factory=set)


def uuid(number: int) -> str:
    return f"4203{number:04d}-1234-5678-9abc-{number:012d}"


def swapped(text: str) -> str:
    return str(UUID(bytes_le=UUID(text).bytes))


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """The usual in most cases, so that some nodes get through everything."""
    return st.sampled_from([usual] * (8 * len(others)) + list(others))


moments = st.integers(-60, 1300).map(lambda hours: (NOW + timedelta(hours=hours)).isoformat())
announced = st.one_of(st.just(""), st.just(""), st.just("soon"), moments)


@st.composite
def host_cases(draw: st.DrawFn, vcenter: str, number: int) -> HostCase:
    state = draw(mostly("connected", "disconnected", "notResponding"))
    planned = draw(st.one_of(st.none(), st.none(), st.integers(-60, 1300)))
    return HostCase(vcenter, number, state, draw(mostly(False, True)), draw(announced), planned)


@st.composite
def vm_cases(draw: st.DrawFn, number: int, vcenters: list[str], hosts: list[HostCase]) -> VMCase:
    vcenter = draw(st.sampled_from(vcenters))
    near = [host.ref for host in hosts if host.vcenter == vcenter]
    return VMCase(
        vcenter=vcenter,
        number=number,
        name=f"node-{draw(mostly(number, 0, 1))}",
        uuid=uuid(draw(mostly(number, 0))),
        host=draw(mostly(draw(st.sampled_from(near)) if near else "", "host-99")),
        power=draw(mostly("poweredOn", "poweredOff", "suspended")),
        connection=draw(mostly("connected", "inaccessible", "disconnected")),
        template=draw(mostly(False, True)),
        demand=draw(st.none() | st.integers(0, 12).map(lambda each: each * 100)),
        guest_mb=draw(st.none() | st.sampled_from([0, 512, 4096, 9000])),
        devices=draw(
            st.sampled_from(
                ["none", "none", "vgpu", "vgpu", "nvidia", "network", "hidden", "unread"]
            )
        ),
    )


@st.composite
def node_cases(draw: st.DrawFn, number: int) -> NodeCase:
    own = uuid(number)
    ids = (
        "",
        f"vsphere://{own.upper()}",
        f"vsphere://{swapped(own)}",
        f"vsphere://{uuid(77)}",
        "vsphere://what",
    )
    return NodeCase(
        name=f"node-{number}",
        provider_id=draw(mostly(f"vsphere://{own}", *ids)),
        ready=draw(mostly("True", "False", "Unknown")),
        cordoned=draw(mostly(False, True)),
        taint=draw(
            mostly(
                "",
                "node-role.kubernetes.io/control-plane",
                "node.kubernetes.io/unreachable",
                "nvidia.com/gpu",
            )
        ),
        annotation=draw(announced),
        allocatable=draw(
            mostly({}, {"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "0"}, {"example.com/gpu": "1"})
        ),
    )


@st.composite
def lines(draw: st.DrawFn) -> Line:
    target, globs = draw(
        st.sampled_from(
            [("node", ["node-1", "node-?", "node-[2-4]"]), ("host", ["esxi-1", "*-2", "esxi-9"])]
        )
    )
    repeats = draw(st.sampled_from(["", "", "daily", "weekly"]))
    return Line(
        target,
        draw(st.sampled_from(globs)),
        draw(st.integers(-900, 1300)),
        draw(st.integers(1, 20)),
        repeats,
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    vcenters = {
        name: draw(mostly("well", "loading", "lost"))
        for name in ["vc-1", "vc-2"][: draw(st.integers(1, 2))]
    }
    hosts = [
        draw(host_cases(draw(st.sampled_from(sorted(vcenters))), number))
        for number in range(draw(st.integers(1, 4)))
    ]
    count = draw(mostly(6, 0, 1))
    vms = [draw(vm_cases(number, sorted(vcenters), hosts)) for number in range(count)]
    nodes = [draw(node_cases(number)) for number in range(draw(mostly(count + 1, 0)))]
    calendar = draw(st.lists(lines(), max_size=3))
    present = draw(st.sampled_from(["", "node-0", "node-2", "gone"]))
    return Cluster(
        vcenters,
        hosts,
        vms,
        nodes,
        calendar,
        draw(st.sampled_from(HOURS)),
        draw(st.booleans()),
        present,
    )


class Fed:
    """The real Nodes, with the real cache and inventories, after everything of a cluster has arrived."""

    def __init__(self, cluster: Cluster, resources: tuple[str, ...]) -> None:
        self.cluster, self.revision = cluster, 0
        self.cache = Cache(Log("test"))
        account = FixedCredentials(Credentials("user", "secret"))
        self.vcenters = {
            name: VCenter(name, ADDRESS, account, Mock(), Deaf()) for name in cluster.vcenters
        }
        self.nodes = NodeTracker(
            self.cache,
            self.vcenters,
            lambda: NOW,
            lambda *_: None,
            log=Log("nodes"),
            gpu_resource_globs=resources,
        )
        # Half of it comes before, and half after what it depends on; and everything is otherwise at first.
        self.tell_nodes(cluster.nodes[::2], ready="False")
        self.tell_vms(cluster.vms, kind="enter", power="poweredOff", host="")
        self.tell_hosts(cluster.hosts)
        self.tell_states()
        self.tell_vms(cluster.vms, kind="modify")
        self.tell_plans()
        self.tell_nodes(cluster.nodes)

    def tell_nodes(self, nodes: list[NodeCase], **other: str) -> None:
        for each in nodes:
            self.revision += 1
            self.cache.store(Node).put(
                Node.decode(json.dumps(node_on_the_wire(each, self.revision, **other)).encode())
            )

    def tell_vms(self, vms: list[VMCase], *, kind: Any, **other: str) -> None:
        for vm in vms:
            vcenter, ref = self.vcenters[vm.vcenter], f"vm-{vm.number}"
            if vm.devices != "unread":
                vcenter.passthrough_devices.values[ref] = DEVICES.get(vm.devices, ())
            if vm.devices == "hidden":
                vcenter.passthrough_devices.hidden.add(ref)
            vcenter.inventory.apply(
                [ObjectUpdate(kind, "VirtualMachine", ref, vm_on_the_wire(vm, **other))]
            )

    def tell_hosts(self, hosts: list[HostCase]) -> None:
        names: Value = ({"key": "7", "name": NEXT_MAINTENANCE_KEY},)
        for vcenter in self.vcenters.values():
            vcenter.inventory.apply(
                [ObjectUpdate("modify", "CustomFieldsManager", "fields", {"field": names})]
            )
        for host in hosts:
            told: dict[str, Value] = {
                "name": host.name,
                "runtime.connectionState": host.connection,
                "runtime.inMaintenanceMode": host.maintenance,
                "customValue": ({"key": "7", "value": host.attribute},) if host.attribute else (),
            }
            self.vcenters[host.vcenter].inventory.apply(
                [ObjectUpdate("enter", "HostSystem", host.ref, told)]
            )

    def tell_states(self) -> None:
        for name, state in self.cluster.vcenters.items():
            if state != "loading":
                self.vcenters[name].on_answer()
            if state == "lost":
                self.vcenters[name].inventory_watcher.last_answer_at -= 60
                self.vcenters[name].on_failure(Unreachable("lost"))

    def tell_plans(self) -> None:
        for name, vcenter in self.vcenters.items():
            mine = [
                host
                for host in self.cluster.hosts
                if host.vcenter == name and host.scheduled_in_hours is not None
            ]
            vcenter.scheduled_tasks.apply(
                [
                    PlannedMaintenance(
                        each.ref, NOW + timedelta(hours=each.scheduled_in_hours or 0), "patch"
                    )
                    for each in mine
                ]
            )
            vcenter.scheduled_tasks.finish_poll("")
        entries, problems = parse_calendar(
            {"w": "\n".join(line.text for line in self.cluster.calendar)}
        )
        assert problems == []
        self.nodes.set_calendar_entries(entries)


def node_on_the_wire(each: NodeCase, revision: int, *, ready: str = "") -> dict[str, Any]:
    annotations = {NEXT_MAINTENANCE_KEY: each.annotation} if each.annotation else {}
    taints = [{"key": each.taint, "effect": "NoSchedule"}] if each.taint else []
    return {
        "metadata": {
            "name": each.name,
            "resourceVersion": str(revision),
            "annotations": annotations,
        },
        "spec": {"providerID": each.provider_id, "unschedulable": each.cordoned, "taints": taints},
        "status": {
            "conditions": [{"type": "Ready", "status": ready or each.ready}],
            "allocatable": each.allocatable,
        },
    }


def vm_on_the_wire(
    vm: VMCase, *, power: str | None = None, host: str | None = None
) -> dict[str, Value]:
    where = vm.host if host is None else host
    return {
        "name": vm.name,
        "config.uuid": vm.uuid,
        "config.template": vm.template,
        "runtime.host": Ref("HostSystem", where) if where else None,
        "runtime.connectionState": vm.connection,
        "runtime.powerState": power or vm.power,
        "summary.config.numCpu": 4,
        "summary.config.memorySizeMB": 8192,
        "summary.quickStats.overallCpuDemand": vm.demand,
        "summary.quickStats.guestMemoryUsage": vm.guest_mb,
    }
