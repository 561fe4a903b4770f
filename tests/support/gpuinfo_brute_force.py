"""The expected selection for a generated cluster, computed by brute force.

It shares no code with what it checks: it visits one node after the other, one source of maintenance
after the other, one day after the other.
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
class ExpectedSelection:
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


def compute_expected(cluster: ClusterCase) -> ExpectedSelection:
    expected, suitable = ExpectedSelection(), list[SuitableNode]()
    for node in cluster.nodes:
        vm, failure = match_vm(cluster, node)
        if failure in ("VMNotFound", "VMAmbiguous"):
            expected.unmatched[node.name] = failure
        reason, candidate = evaluate_node(cluster, node, vm, failure)
        if candidate is None:
            expected.rejection_counts[reason] += 1
        else:
            suitable.append(candidate)
    suitable.sort(
        key=lambda candidate: (
            candidate.cpu_demand_mhz,
            -candidate.free_memory_mb,
            candidate.node.name,
        )
    )
    expected.suitable_nodes = [candidate.node.name for candidate in suitable]
    if (selected := choose_node(suitable, cluster.current_node)) is not None:
        expected.node, expected.host, expected.hours = (
            selected.node.name,
            selected.host.name,
            selected.hours,
        )
        expected.cpu_demand_mhz, expected.guest_memory_mb = (
            selected.vm.cpu_demand_mhz,
            selected.vm.guest_memory_mb,
        )
    return expected


def choose_node(suitable: list[SuitableNode], current_node: str) -> SuitableNode | None:
    best = suitable[0] if suitable else None
    current = next(
        (candidate for candidate in suitable if candidate.node.name == current_node), None
    )
    if best is None or current is None or best is current:
        return best
    if best.cpu_demand_mhz == UNKNOWN_DEMAND:
        return current
    if current.cpu_demand_mhz == UNKNOWN_DEMAND:
        return best
    return (
        best
        if current.cpu_demand_mhz - best.cpu_demand_mhz > 100 + current.cpu_demand_mhz * 0.1
        else current
    )


def match_vm(cluster: ClusterCase, node: NodeCase) -> tuple[VirtualMachineCase | None, str]:
    """The VM, or the reason why it was not found."""
    runnable = [vm for vm in cluster.vms if not vm.template]
    uuid = node.provider_id.removeprefix("vsphere://").lower()
    if len(uuid) == 36:
        for variant in (uuid, swap_uuid_bytes(uuid)):
            matching = [vm for vm in runnable if vm.uuid.lower() == variant]
            if matching:
                return (matching[0], "") if len(matching) == 1 else (None, "VMAmbiguous")
    unreachable = any(state != "well" for state in cluster.vcenter_states.values())
    if node.provider_id and unreachable:
        return None, "VCenterUnreachable"
    matching = [vm for vm in runnable if vm.name == node.name]
    if not matching:
        return None, "VCenterUnreachable" if unreachable else "VMNotFound"
    return (matching[0], "") if len(matching) == 1 else (None, "VMAmbiguous")


def evaluate_node(
    cluster: ClusterCase, node: NodeCase, vm: VirtualMachineCase | None, failure: str
) -> tuple[str, SuitableNode | None]:
    """The first reason to reject a node, or the node with its hours."""
    if node.ready != "True":
        return "NotReady", None
    if node.cordoned or node.taint.startswith("node"):
        return "Unschedulable", None
    if vm is None:
        return failure, None
    if cluster.vcenter_states[vm.vcenter] != "well":
        return "VCenterUnreachable", None
    if vm.devices == "unread":
        return "DevicesUnread", None
    host = next(
        (host for host in cluster.hosts if (host.vcenter, host.ref) == (vm.vcenter, vm.host)), None
    )
    connected = host is not None and host.connection == "connected"
    if vm.connection != "connected":
        return ("VMUnavailable" if connected else "HostDisconnected"), None
    if vm.power != "poweredOn":
        return "PoweredOff", None
    if host is None or not connected:
        return "HostDisconnected", None
    if host.maintenance is None:
        return "MaintenanceUnknown", None
    if host.maintenance:
        return "HostInMaintenance", None
    return evaluate_requirement(cluster, node, vm, host)


def evaluate_requirement(
    cluster: ClusterCase, node: NodeCase, vm: VirtualMachineCase, host: HostCase
) -> tuple[str, SuitableNode | None]:
    has_gpu_resource = node.allocatable.get("nvidia.com/gpu") == "1"
    if vm.devices == "hidden" and not has_gpu_resource:
        return "DevicesHidden", None
    hours = hours_until_maintenance(cluster, node, host)
    if hours < cluster.required_hours:
        return "TooLittleTime", None
    gpu = has_gpu_resource or vm.devices in ("vgpu", "nvidia")
    if gpu and not cluster.gpu_required:
        return "GPUPresent", None
    if cluster.gpu_required and not gpu:
        return "GPUMissing", None
    return "", SuitableNode(node, vm, host, hours)


def hours_until_maintenance(cluster: ClusterCase, node: NodeCase, host: HostCase) -> int:
    """Whole hours until the first window that has not ended."""
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
    starts_ahead = [start for start, end in windows if end > NOW]
    if not starts_ahead:
        return HORIZON_HOURS
    seconds = (min(starts_ahead) - NOW).total_seconds()
    return min(max(int(seconds // 3600), 0), HORIZON_HOURS)


def list_windows(line: CalendarLine) -> list[tuple[datetime, datetime]]:
    """Every window of a line from its start until long after the horizon."""
    days = {"daily": 1, "weekly": 7}.get(line.repeats)
    starts = (
        [line.start]
        if days is None
        else [line.start + timedelta(days=n * days) for n in range(120 // days)]
    )
    return [(start, start + timedelta(hours=line.length_hours)) for start in starts]
