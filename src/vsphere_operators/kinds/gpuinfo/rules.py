"""The best node for a long job: facts, refusals, and when one node beats another. Pure: no clock, no I/O; the time of now is an argument.

A node that suits is ready, schedulable and running on a host that is there, has time enough before its next maintenance, and has a GPU, or
has none, as asked. Of those, the least CPU demand wins; of equals the one with more free memory, then the first by name. The answer stays
with the node that it named before, while that one suits and no other is better by more than the margin.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from .maintenance import HOUR, Window


class Rejection(StrEnum):
    """Why a node is not suitable; one that has several is counted under the first of them, in this order."""

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


class Load(Struct, frozen=True, gc=False):
    """What moves every 20 s; None where vCenter does not tell."""

    cpu_demand_mhz: int | None = None
    guest_memory_mb: int | None = None


class MatchFailure(Struct, frozen=True, gc=False):
    """A Node without a VM of its own."""

    reason: Rejection
    message: str


class NodeFacts(Struct, frozen=True, kw_only=True):
    """One Node with its VM and its host, as they are now."""

    name: str
    blocker: Rejection | None = None
    """The first reason that no question can lift."""
    match_failure: MatchFailure | None = None
    """Told also of a node that is refused for another reason before."""
    vm_name: str = ""
    matched_by: str = ""
    vcenter_name: str = ""
    host_name: str = ""
    gpus: tuple[str, ...] = ()
    """What makes it a node with a GPU, each with its source."""
    host_devices: tuple[str, ...] = ()
    """The graphics devices of the host, whoever uses them."""
    cpus: int = 0
    memory_mb: int = 0
    load: Load = Load()
    maintenance: Window | None = None
    """The one that it is in, or the next one."""
    simulated_hours: int | None = None
    simulated_gpu: bool | None = None

    @property
    def has_gpu(self) -> bool:
        """Whether a job finds a GPU there."""
        return bool(self.gpus) if self.simulated_gpu is None else self.simulated_gpu

    @property
    def free_memory_mb(self) -> int | None:
        """What the guest does not use."""
        used = self.load.guest_memory_mb
        return None if used is None else max(self.memory_mb - used, 0)


class Requirement(Struct, frozen=True, gc=False):
    """What a job needs."""

    hours: int
    gpu_required: bool


class SelectionRules(Struct, frozen=True, gc=False):
    """How answers are found; from the manager's flags."""

    horizon_hours: int = 8760
    """How far anybody looks ahead: what a node has for which no maintenance is known."""
    margin_fraction: float = 0.1
    """By which part of the present node's demand another one has to be better."""
    margin_mhz: float = 100
    """And by how much beside that: demand moves by some ten MHz on an idle VM, so less than this is no difference."""

    def available_hours(self, facts: NodeFacts, now: datetime) -> int:
        """Whole hours until the next maintenance; 0 in one."""
        if facts.simulated_hours is not None:
            return facts.simulated_hours
        if facts.maintenance is None:
            return self.horizon_hours
        return min(max((facts.maintenance.start - now) // HOUR, 0), self.horizon_hours)

    def seconds_until_hours_change(self, facts: NodeFacts, now: datetime) -> float | None:
        """When `hours` will be another number; None for never. The end of a window is another fact, and not told here."""
        if (
            facts.simulated_hours is not None
            or facts.maintenance is None
            or (left := facts.maintenance.start - now) < HOUR
        ):
            return None
        beyond = left - self.horizon_hours * HOUR
        return (beyond if beyond >= timedelta() else left % HOUR).total_seconds() + 0.001

    def seconds_until_too_little_time(
        self, facts: NodeFacts, question: Requirement, now: datetime
    ) -> float | None:
        """When a node that suits will have too little time; None for never."""
        if (
            facts.simulated_hours is not None
            or facts.maintenance is None
            or not 0 < question.hours <= self.horizon_hours
        ):
            return None
        return (facts.maintenance.start - now - question.hours * HOUR).total_seconds() + 0.001

    def has_enough_time(self, facts: NodeFacts, question: Requirement, now: datetime) -> bool:
        """Whether `hours` are enough, without counting them."""
        if facts.simulated_hours is not None:
            return facts.simulated_hours >= question.hours
        if question.hours <= 0 or facts.maintenance is None:
            return question.hours <= self.horizon_hours
        return (
            question.hours <= self.horizon_hours
            and facts.maintenance.start - now >= question.hours * HOUR
        )

    def find_rejection(
        self, facts: NodeFacts, question: Requirement, now: datetime
    ) -> Rejection | None:
        """Why this node does not suit; None if it does."""
        if facts.blocker is not None:
            return facts.blocker
        if not self.has_enough_time(facts, question, now):
            return Rejection.TOO_LITTLE_TIME
        if facts.has_gpu != question.gpu_required:
            return Rejection.GPU_MISSING if question.gpu_required else Rejection.GPU_PRESENT
        return None

    def is_better_by_margin(self, other: NodeFacts, present: NodeFacts) -> bool:
        """Whether the answer moves from the present node to another one that is better by more than the margin."""
        theirs, ours = other.load.cpu_demand_mhz, present.load.cpu_demand_mhz
        if theirs is None or ours is None:
            return theirs is not None
        return ours - theirs > self.margin_mhz + self.margin_fraction * ours


Clock = Callable[[], datetime]
