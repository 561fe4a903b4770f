"""The answer to one question about a generated cluster, by the words of the contract and of nothing else.

It shares no line with the code that it judges: one node after the other, one source after the other, one day after the other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from clusters import NOW, Cluster, HostCase, Line, NodeCase, VMCase, swapped

HORIZON = 1000
FOREVER = 1e12


@dataclass
class Expected:
    node: str = ""
    host: str = ""
    hours: int = 0
    demand: int | None = 0
    memory: int | None = 0
    suiting: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    unmatched: dict[str, str] = field(default_factory=dict)


@dataclass
class Suiting:
    node: NodeCase
    vm: VMCase
    host: HostCase
    hours: int

    @property
    def demand(self) -> float:
        return FOREVER if self.vm.demand is None or self.lost else self.vm.demand

    @property
    def lost(self) -> bool:
        return self.vm.connection != "connected"

    @property
    def free(self) -> int:
        return 0 if self.vm.guest_mb is None else max(8192 - self.vm.guest_mb, 0)


def expected(cluster: Cluster) -> Expected:
    found, suiting = Expected(), list[Suiting]()
    for node in cluster.nodes:
        vm, why = vm_of(cluster, node)
        if why in ("VMNotFound", "VMAmbiguous"):
            found.unmatched[node.name] = why
        reason, suits = judged(cluster, node, vm, why)
        if suits is None:
            found.refused[reason] += 1
        else:
            suiting.append(suits)
    suiting.sort(key=lambda each: (each.demand, -each.free, each.node.name))
    found.suiting = [each.node.name for each in suiting]
    if (answer := answer_of(suiting, cluster.present)) is not None:
        found.node, found.host, found.hours = answer.node.name, answer.host.name, answer.hours
        found.demand, found.memory = answer.vm.demand, answer.vm.guest_mb
    return found


def answer_of(suiting: list[Suiting], present: str) -> Suiting | None:
    best = suiting[0] if suiting else None
    held = next((each for each in suiting if each.node.name == present), None)
    if best is None or held is None or best is held:
        return best
    if best.demand == FOREVER:
        return held
    if held.demand == FOREVER:
        return best
    return best if held.demand - best.demand > 100 + held.demand * 0.1 else held


def vm_of(cluster: Cluster, node: NodeCase) -> tuple[VMCase | None, str]:
    """The VM, or why there is none."""
    real = [vm for vm in cluster.vms if not vm.template]
    own = node.provider_id.removeprefix("vsphere://").lower()
    if len(own) == 36:
        for wanted in (own, swapped(own)):
            fitting = [vm for vm in real if vm.uuid.lower() == wanted]
            if fitting:
                return (fitting[0], "") if len(fitting) == 1 else (None, "VMAmbiguous")
    away = any(state != "well" for state in cluster.vcenters.values())
    if node.provider_id and away:
        return None, "VCenterUnreachable"
    fitting = [vm for vm in real if vm.name == node.name]
    if not fitting:
        return None, "VCenterUnreachable" if away else "VMNotFound"
    return (fitting[0], "") if len(fitting) == 1 else (None, "VMAmbiguous")


def judged(
    cluster: Cluster, node: NodeCase, vm: VMCase | None, why: str
) -> tuple[str, Suiting | None]:
    """The first reason against a node, or the node with its hours."""
    if node.ready != "True":
        return "NotReady", None
    if node.cordoned or node.taint.startswith("node"):
        return "Unschedulable", None
    if vm is None:
        return why, None
    if cluster.vcenters[vm.vcenter] != "well":
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
    return by_question(cluster, node, vm, host)


def by_question(
    cluster: Cluster, node: NodeCase, vm: VMCase, host: HostCase
) -> tuple[str, Suiting | None]:
    """The same of what depends on the question."""
    by_node = node.allocatable.get("nvidia.com/gpu") == "1"
    if vm.devices == "hidden" and not by_node:
        return "DevicesHidden", None
    hours = hours_left(cluster, node, host)
    if hours < cluster.hours:
        return "TooLittleTime", None
    gpu = by_node or vm.devices in ("vgpu", "nvidia")
    if gpu and not cluster.gpu:
        return "GPUPresent", None
    if cluster.gpu and not gpu:
        return "GPUMissing", None
    return "", Suiting(node, vm, host, hours)


def hours_left(cluster: Cluster, node: NodeCase, host: HostCase) -> int:
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
            windows += occurrences(line)
    ahead = [start for start, end in windows if end > NOW]
    if not ahead:
        return HORIZON
    seconds = (min(ahead) - NOW).total_seconds()
    return min(max(int(seconds // 3600), 0), HORIZON)


def occurrences(line: Line) -> list[tuple[datetime, datetime]]:
    """Every window of a line from its start until long after the horizon."""
    days = {"daily": 1, "weekly": 7}.get(line.repeats)
    starts = (
        [line.start]
        if days is None
        else [line.start + timedelta(days=each * days) for each in range(120 // days)]
    )
    return [(start, start + timedelta(hours=line.length_hours)) for start in starts]
