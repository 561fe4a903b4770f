"""The answer to one question about a generated cluster, by the words of the contract and of nothing else.

It shares no line with the code that it judges: one node after the other, one source after the other, one day after the other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from support.cluster_cases import (
    NOW,
    CalendarLine,
    ClusterCase,
    HostCase,
    NodeCase,
    VirtualMachineCase,
    swap_uuid_bytes,
)

HORIZON_HOURS = 1000
UNKNOWN_DEMAND = 1e12


@dataclass
class ExpectedAnswer:
    node: str = ""
    host: str = ""
    hours: int = 0
    cpu_demand_mhz: int | None = 0
    guest_memory_mb: int | None = 0
    suitable_nodes: list[str] = field(default_factory=list)
    rejection_counts: Counter[str] = field(default_factory=Counter)
    unmatched: dict[str, str] = field(default_factory=dict)


@dataclass
class SuitableNode:
    node: NodeCase
    vm: VirtualMachineCase
    host: HostCase
    hours: int

    @property
    def cpu_demand_mhz(self) -> float:
        return (
            UNKNOWN_DEMAND
            if self.vm.cpu_demand_mhz is None or self.is_disconnected
            else self.vm.cpu_demand_mhz
        )

    @property
    def is_disconnected(self) -> bool:
        return self.vm.connection != "connected"

    @property
    def free_memory_mb(self) -> int:
        return 0 if self.vm.guest_memory_mb is None else max(8192 - self.vm.guest_memory_mb, 0)


def compute_expected(cluster: ClusterCase) -> ExpectedAnswer:
    found, suiting = ExpectedAnswer(), list[SuitableNode]()
    for node in cluster.nodes:
        vm, why = match_vm(cluster, node)
        if why in ("VMNotFound", "VMAmbiguous"):
            found.unmatched[node.name] = why
        reason, suits = evaluate_node(cluster, node, vm, why)
        if suits is None:
            found.rejection_counts[reason] += 1
        else:
            suiting.append(suits)
    suiting.sort(key=lambda each: (each.cpu_demand_mhz, -each.free_memory_mb, each.node.name))
    found.suitable_nodes = [each.node.name for each in suiting]
    if (answer := choose_node(suiting, cluster.current_node)) is not None:
        found.node, found.host, found.hours = answer.node.name, answer.host.name, answer.hours
        found.cpu_demand_mhz, found.guest_memory_mb = (
            answer.vm.cpu_demand_mhz,
            answer.vm.guest_memory_mb,
        )
    return found


def choose_node(suiting: list[SuitableNode], present: str) -> SuitableNode | None:
    best = suiting[0] if suiting else None
    held = next((each for each in suiting if each.node.name == present), None)
    if best is None or held is None or best is held:
        return best
    if best.cpu_demand_mhz == UNKNOWN_DEMAND:
        return held
    if held.cpu_demand_mhz == UNKNOWN_DEMAND:
        return best
    return (
        best
        if held.cpu_demand_mhz - best.cpu_demand_mhz > 100 + held.cpu_demand_mhz * 0.1
        else held
    )


def match_vm(cluster: ClusterCase, node: NodeCase) -> tuple[VirtualMachineCase | None, str]:
    """The VM, or why there is none."""
    real = [vm for vm in cluster.vms if not vm.template]
    own = node.provider_id.removeprefix("vsphere://").lower()
    if len(own) == 36:
        for wanted in (own, swap_uuid_bytes(own)):
            fitting = [vm for vm in real if vm.uuid.lower() == wanted]
            if fitting:
                return (fitting[0], "") if len(fitting) == 1 else (None, "VMAmbiguous")
    away = any(state != "well" for state in cluster.vcenter_states.values())
    if node.provider_id and away:
        return None, "VCenterUnreachable"
    fitting = [vm for vm in real if vm.name == node.name]
    if not fitting:
        return None, "VCenterUnreachable" if away else "VMNotFound"
    return (fitting[0], "") if len(fitting) == 1 else (None, "VMAmbiguous")


def evaluate_node(
    cluster: ClusterCase, node: NodeCase, vm: VirtualMachineCase | None, why: str
) -> tuple[str, SuitableNode | None]:
    """The first reason against a node, or the node with its hours."""
    if node.ready != "True":
        return "NotReady", None
    if node.cordoned or node.taint.startswith("node"):
        return "Unschedulable", None
    if vm is None:
        return why, None
    if cluster.vcenter_states[vm.vcenter] != "well":
        return "VCenterUnreachable", None
    if vm.devices == "unread":
        return "DevicesUnread", None
    host = next(
        (each for each in cluster.hosts if (each.vcenter, each.ref) == (vm.vcenter, vm.host)), None
    )
    there = host is not None and host.connection == "connected"
    if vm.connection != "connected":
        return ("VMUnavailable" if there else "HostDisconnected"), None
    if vm.power != "poweredOn":
        return "PoweredOff", None
    if host is None or not there:
        return "HostDisconnected", None
    if host.maintenance:
        return "HostInMaintenance", None
    return evaluate_requirement(cluster, node, vm, host)


def evaluate_requirement(
    cluster: ClusterCase, node: NodeCase, vm: VirtualMachineCase, host: HostCase
) -> tuple[str, SuitableNode | None]:
    """The same of what depends on the question."""
    by_node = node.allocatable.get("nvidia.com/gpu") == "1"
    if vm.devices == "hidden" and not by_node:
        return "DevicesHidden", None
    hours = hours_until_maintenance(cluster, node, host)
    if hours < cluster.required_hours:
        return "TooLittleTime", None
    gpu = by_node or vm.devices in ("vgpu", "nvidia")
    if gpu and not cluster.gpu_required:
        return "GPUPresent", None
    if cluster.gpu_required and not gpu:
        return "GPUMissing", None
    return "", SuitableNode(node, vm, host, hours)


def hours_until_maintenance(cluster: ClusterCase, node: NodeCase, host: HostCase) -> int:
    """Whole hours until the first of all windows that are not over."""
    windows = list[tuple[datetime, datetime]]()
    for text in (node.annotation, host.attribute):
        if text and text != "soon":
            start = datetime.fromisoformat(text)
            windows.append((start, start + timedelta(hours=24)))
    if host.scheduled_in_hours is not None:
        start = NOW + timedelta(hours=host.scheduled_in_hours)
        windows.append((start, start + timedelta(hours=24)))
    for line in cluster.calendar:
        if fnmatchcase(node.name if line.target == "node" else host.name, line.glob):
            windows += list_windows(line)
    ahead = [start for start, end in windows if end > NOW]
    if not ahead:
        return HORIZON_HOURS
    seconds = (min(ahead) - NOW).total_seconds()
    return min(max(int(seconds // 3600), 0), HORIZON_HOURS)


def list_windows(line: CalendarLine) -> list[tuple[datetime, datetime]]:
    """Every window of a line from its start until long after the horizon."""
    days = {"daily": 1, "weekly": 7}.get(line.repeats)
    starts = (
        [line.start]
        if days is None
        else [line.start + timedelta(days=each * days) for each in range(120 // days)]
    )
    return [(start, start + timedelta(hours=line.length_hours)) for start in starts]
