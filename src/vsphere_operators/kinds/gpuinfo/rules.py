"""Which nodes are suitable for a long job, and when one is better; ranking.py selects the node.

A node is suitable if it is ready and schedulable, its VM runs on a connected host, it has enough
time before its next maintenance, and it has a GPU exactly if one is required. Of those, the node
with the least CPU demand wins; ties go to more free memory, then to the first name. The previously
selected node is kept while it is suitable and no other node is better by more than the margin.

Everything here is pure: the current time is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from kubewright import Terminal

from ...vcenters.node_matching import MatchFailure
from .maintenance_windows import HOUR, Window
from .types import GPUInfoSpec, Reason

# Timers fire after the hour has passed: with exactly N hours left, a job of N hours still fits.
TIMER_SLACK_SECONDS = 0.001


class Rejection(StrEnum):
    """Why a node is not suitable; it is counted under the first that applies, in this order."""

    NOT_READY = "NotReady"
    UNSCHEDULABLE = "Unschedulable"
    VCENTER_UNREACHABLE = "VCenterUnreachable"
    DEVICES_UNREAD = "DevicesUnread"
    VM_NOT_FOUND = "VMNotFound"
    VM_AMBIGUOUS = "VMAmbiguous"
    VM_UNAVAILABLE = "VMUnavailable"
    POWERED_OFF = "PoweredOff"
    HOST_DISCONNECTED = "HostDisconnected"
    HOST_IN_MAINTENANCE = "HostInMaintenance"
    DEVICES_HIDDEN = "DevicesHidden"
    FACTS_UNREADABLE = "FactsUnreadable"
    TOO_LITTLE_TIME = "TooLittleTime"
    GPU_MISSING = "GPUMissing"
    GPU_PRESENT = "GPUPresent"


REJECTION_EXPLANATIONS: Mapping[str, str] = {
    Rejection.NOT_READY: "the kubelet does not report Ready",
    Rejection.UNSCHEDULABLE: "cordoned, part of the control plane, or tainted by Kubernetes",
    Rejection.VCENTER_UNREACHABLE: "its vCenter is unreachable",
    Rejection.DEVICES_UNREAD: "the devices of its VM have not been read yet",
    Rejection.VM_NOT_FOUND: "no VM with its UUID or name",
    Rejection.VM_AMBIGUOUS: "several VMs with its UUID or name",
    Rejection.VM_UNAVAILABLE: "vCenter cannot access its VM",
    Rejection.POWERED_OFF: "its VM is not running",
    Rejection.HOST_DISCONNECTED: "its host is disconnected from vCenter",
    Rejection.HOST_IN_MAINTENANCE: "its host is in maintenance mode",
    Rejection.DEVICES_HIDDEN: "the vCenter account cannot read the devices of its VM",
    Rejection.FACTS_UNREADABLE: "its data is invalid; see the log of the manager",
    Rejection.TOO_LITTLE_TIME: "its next maintenance starts too soon",
    Rejection.GPU_MISSING: "no GPU",
    Rejection.GPU_PRESENT: "it has a GPU, but a node without one is requested",
}


class VmUsage(Struct, frozen=True, gc=False):
    """The quickStats of a VM, which vCenter updates every 20 s; None if it does not report them."""

    cpu_demand_mhz: int | None = None
    guest_memory_mb: int | None = None


class NodeFacts(Struct, frozen=True, kw_only=True):
    """The current state of one Node, its VM and its host, as far as a selection depends on it."""

    name: str
    # Why the node is suitable for no GPUInfo; the first rejection that applies. Rejections that
    # depend on the requirement (time, GPU) are not here: see `Query.find_rejection`.
    rejection_for_all: Rejection | None = None
    # Only if it is certain. Set even if an earlier rejection applies, because status.unmatched
    # lists all of these.
    match_failure: MatchFailure | None = None
    vm_name: str = ""
    matched_by: str = ""
    vcenter_name: str = ""
    host_name: str = ""
    gpus: tuple[str, ...] = ()
    host_devices: tuple[str, ...] = ()
    cpus: int = 0
    memory_mb: int = 0
    usage: VmUsage = VmUsage()
    # The current maintenance window, or the next one.
    next_window: Window | None = None
    simulated_hours: int | None = None
    simulated_gpu: bool | None = None

    @property
    def has_gpu(self) -> bool:
        return bool(self.gpus) if self.simulated_gpu is None else self.simulated_gpu

    @property
    def free_memory_mb(self) -> int | None:
        used = self.usage.guest_memory_mb
        return None if used is None else max(self.memory_mb - used, 0)


class Requirement(Struct, frozen=True, gc=False):
    """What a job requires of a node."""

    hours: int
    gpu_required: bool


def parse_requirement(spec: GPUInfoSpec) -> Requirement:
    # Checked here, not by `minimum` in the CRD: that would reject manifests that the original
    # operator accepted.
    hours = spec.desAccTime or 0
    if hours < 0:
        raise Terminal(
            Reason.NEGATIVE_TIME,
            f"spec.desAccTime: Invalid value: {hours}: must be greater than or equal to 0",
        )
    return Requirement(hours, bool(spec.gpuRequired))


class SelectionRules(Struct, frozen=True, gc=False):
    """How nodes are compared; set by the manager's flags."""

    # Hours that a node has if no maintenance is planned for it.
    unplanned_hours: int = 8760
    # Another node must have less CPU demand than the selected one by this fraction of it...
    margin_fraction: float = 0.1
    # ...plus this much: the demand of an idle VM fluctuates by some ten MHz.
    margin_mhz: float = 100

    def available_hours(self, facts: NodeFacts, now: datetime) -> int:
        """Whole hours until the next maintenance; 0 during one."""
        if facts.simulated_hours is not None:
            return facts.simulated_hours
        if facts.next_window is None:
            return self.unplanned_hours
        return min(max((facts.next_window.start - now) // HOUR, 0), self.unplanned_hours)

    def seconds_until_hours_change(self, facts: NodeFacts, now: datetime) -> float | None:
        """When `available_hours` changes by time alone; None for never.

        The end of a window does not count: it changes the facts, and the tracker reports that.
        """
        if (
            facts.simulated_hours is not None
            or facts.next_window is None
            or (remaining := facts.next_window.start - now) < HOUR
        ):
            return None
        # More hours than `unplanned_hours` are reported as that many.
        until_reported = remaining - self.unplanned_hours * HOUR
        until_change = until_reported if until_reported >= timedelta() else remaining % HOUR
        return until_change.total_seconds() + TIMER_SLACK_SECONDS

    def is_better_by_margin(self, other: NodeFacts, current: NodeFacts) -> bool:
        """Whether to switch from the current node to another one."""
        other_mhz, current_mhz = other.usage.cpu_demand_mhz, current.usage.cpu_demand_mhz
        if other_mhz is None or current_mhz is None:
            return other_mhz is not None
        return current_mhz - other_mhz > self.margin_mhz + self.margin_fraction * current_mhz


class Query(Struct, frozen=True, gc=False):
    """Everything that a selection depends on, except the nodes."""

    requirement: Requirement
    rules: SelectionRules
    now: datetime

    @property
    def deadline(self) -> datetime:
        """When the job would end if it started now.

        Raises OverflowError for hours far above `unplanned_hours`.
        """
        return self.now + self.requirement.hours * HOUR

    def seconds_until_too_little_time(self, facts: NodeFacts) -> float | None:
        """When a suitable node will have too little time; None for never."""
        if (
            facts.simulated_hours is not None
            or facts.next_window is None
            or not 0 < self.requirement.hours <= self.rules.unplanned_hours
        ):
            return None
        remaining = facts.next_window.start - self.deadline
        return remaining.total_seconds() + TIMER_SLACK_SECONDS

    def has_enough_time(self, facts: NodeFacts) -> bool:
        hours = self.requirement.hours
        if facts.simulated_hours is not None:
            return facts.simulated_hours >= hours
        if hours > self.rules.unplanned_hours:
            return False
        # A job of 0 hours also fits into a maintenance window.
        return hours <= 0 or facts.next_window is None or facts.next_window.start >= self.deadline

    def find_rejection(self, facts: NodeFacts) -> Rejection | None:
        """The first reason why this node is not suitable; None if it is."""
        if facts.rejection_for_all is not None:
            return facts.rejection_for_all
        if not self.has_enough_time(facts):
            return Rejection.TOO_LITTLE_TIME
        if facts.has_gpu != self.requirement.gpu_required:
            return Rejection.GPU_PRESENT if facts.has_gpu else Rejection.GPU_MISSING
        return None
