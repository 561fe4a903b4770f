"""GPUInfo: the best node for a long job, with or without a GPU, from facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Literal

from msgspec import Struct

from kubewright import (
    Cache,
    Column,
    Condition,
    Controller,
    Doc,
    Done,
    Int64,
    Key,
    ListType,
    NotSynced,
    Resource,
    Retry,
    Spec,
    Status,
    Stream,
    Terminal,
    kind,
)
from kubewright.builtin import Node
from kubewright.recorder import EventRecorder

from ...vcenters.registry import (
    CONFIGURATION_HINT,
    NOT_LOADED_RETRY_SECONDS,
    is_status_current,
    unavailable_error,
)
from ...vsphere.stats_throttle import SLOT_COUNT, slot_of
from ...vsphere.vcenter import VCenter
from .calendar import CalendarWatcher
from .maintenance import to_utc
from .rules import NodeFacts, Requirement, SelectionRules
from .subscriptions import Subscriptions
from .tracker import NodeTracker

NONE_AVAILABLE = "None available"
MAX_CANDIDATES = 5
MAX_UNMATCHED = 5
_DEVICES_PENDING_RETRY_SECONDS = 0.5
RESELECT_SPREAD_SECONDS, REFRESH_SPREAD_SECONDS = 0.5, 30.0
"""Windows begin at full hours for hundreds of nodes and thousands of objects: they look again each at its own moment within this time."""
_MAX_REQUEUE_SECONDS = 86400.0
PLANS_KNOWN = "PlansKnown"


class GPUInfoSpec(Spec):
    """What the job needs."""

    desAccTime: Annotated[Int64 | None, Doc("For how many hours the job needs the node.")] = None
    gpuRequired: Annotated[
        bool | None, Doc("True: only nodes with a GPU. False: only nodes without.")
    ] = None


class Candidate(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A node that suits, with its facts. What is not known is absent."""

    node: Annotated[str, Doc("Name of the Node.")]
    host: Annotated[str | None, Doc("The ESXi host that its VM is on.")] = None
    vm: Annotated[str | None, Doc("Its VM.")] = None
    matchedBy: Annotated[str | None, Doc("By what the VM was found: providerID or name.")] = None
    vcenter: Annotated[
        str | None, Doc("The vCenter of the VM, by its name in the manager's configuration.")
    ] = None
    availableHours: Annotated[Int64 | None, Doc("Whole hours until the next maintenance.")] = None
    nextMaintenance: Annotated[
        datetime | None, Doc("When that begins; absent while none is known.")
    ] = None
    maintenanceSource: Annotated[str | None, Doc("Who says so.")] = None
    cpuDemandMHz: Annotated[Int64 | None, Doc("What the VM asks of the CPUs.")] = None
    guestMemoryMB: Annotated[Int64 | None, Doc("What the guest uses.")] = None
    freeMemoryMB: Annotated[Int64 | None, Doc("What the VM has and the guest does not use.")] = None
    gpus: Annotated[
        list[str] | None,
        ListType("atomic"),
        Doc("What makes it a node with a GPU, each with its source."),
    ] = None
    hostDevices: Annotated[
        list[str] | None,
        ListType("atomic"),
        Doc("Graphics devices of the host, whoever uses them."),
    ] = None


class UnmatchedNode(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A Node without a VM of its own."""

    node: Annotated[str, Doc("Name of the Node.")]
    reason: Annotated[str, Doc("VMNotFound or VMAmbiguous.")]
    message: Annotated[str, Doc("The same in words.")]


class UnmatchedNodes(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The Nodes without a VM of their own."""

    nodes: Annotated[list[UnmatchedNode], ListType("atomic"), Doc("The first of them by name.")]
    more: Annotated[Int64, Doc("How many there are beside these.")] = 0


class GPUInfoStatus(Status):
    """The answer, and why it is the answer."""

    suitableNodeName: Annotated[str | None, Doc("The best node, or `None available`.")] = None
    suitableHostName: Annotated[
        str | None, Doc("The ESXi host that it is on, or `None available`.")
    ] = None
    nodeMemoryUsage: Annotated[Int64 | None, Doc("Guest memory in use, in MB.")] = None
    nodeCPUUsage: Annotated[Int64 | None, Doc("CPU demand, in MHz.")] = None
    availableAcceleratorTime: Annotated[
        Int64 | None, Doc("Whole hours until the next planned maintenance there.")
    ] = None
    candidates: Annotated[
        list[Candidate] | None,
        ListType("atomic"),
        Doc("The chosen node, and the best of the others that suit."),
    ] = None
    refused: Annotated[
        dict[str, Int64] | None, Doc("How many nodes do not suit, by the first reason for it.")
    ] = None
    unmatched: Annotated[
        UnmatchedNodes | None,
        Doc("The Nodes that no VM, or more than one, could be found for; absent without any."),
    ] = None
    simulated: Annotated[
        bool | None,
        Doc("True where hours and GPUs are random numbers: -accelerator-source=simulated."),
    ] = None


@kind(
    "topology.corinternal.com/v1",
    plural="gpuinfoes",
    short=("gpu",),
    columns=[
        Column("Desired Access Time (Hrs)", ".spec.desAccTime"),
        Column("GPU Required", ".spec.gpuRequired"),
        Column("Node", ".status.suitableNodeName"),
        Column("Host", ".status.suitableHostName", priority=1),
        Column("Hours", ".status.availableAcceleratorTime", priority=1),
        Column("CPU", ".status.nodeCPUUsage", priority=1),
        Column("Memory", ".status.nodeMemoryUsage", priority=1),
    ],
)
class GPUInfo(Resource[GPUInfoSpec, GPUInfoStatus]):
    """The best Kubernetes node for a long running job."""


class Selection(Struct, frozen=True, kw_only=True):
    """Everything that was found for one question."""

    requirement: Requirement
    chosen: NodeFacts | None = None
    best_nodes: Sequence[NodeFacts] = ()
    """The first of those that suit, the best first."""
    suitable_count: int = 0
    """How many suit."""
    seconds_until_fewer_suitable: float | None = None
    """When the next of them will have too little time."""
    rejection_counts: Mapping[str, int] = {}
    unmatched_nodes: Sequence[NodeFacts] = ()
    """The first of the Nodes without a VM of their own."""
    omitted_unmatched_count: int = 0

    @property
    def candidates(self) -> list[NodeFacts]:
        """The chosen one, and the best of the others."""
        if self.chosen is None:
            return []
        others = (each for each in self.best_nodes if each.name != self.chosen.name)
        return [self.chosen, *islice(others, MAX_CANDIDATES - 1)]

    def requeue_after_seconds(
        self, rules: SelectionRules, now: datetime, interval_seconds: float, spread: float
    ) -> float | None:
        """When the answer changes by time alone; a little later, when its hours do; and not more often than once an interval, the rest.

        `spread` is the object's own part, 0 to 1, of the time over which all that have to look again at one moment do so.
        """
        if self.chosen is None:
            return None
        moves = rules.seconds_until_too_little_time(self.chosen, self.requirement, now)
        hour = rules.seconds_until_hours_change(self.chosen, now)
        beside = [rules.seconds_until_hours_change(each, now) for each in self.candidates[1:]]
        later = [
            max(seconds, interval_seconds)
            for seconds in (*beside, self.seconds_until_fewer_suitable)
            if seconds is not None
        ]
        due = [
            seconds + spread * REFRESH_SPREAD_SECONDS
            for seconds in (hour, *later)
            if seconds is not None
        ]
        due += [] if moves is None else [moves + spread * RESELECT_SPREAD_SECONDS]
        return min(*due, _MAX_REQUEUE_SECONDS + spread * REFRESH_SPREAD_SECONDS) if due else None


def status_of(
    answer: Selection, rules: SelectionRules, now: datetime, *, simulated: bool
) -> GPUInfoStatus:
    """All of the answer."""
    chosen = answer.chosen
    return GPUInfoStatus(
        suitableNodeName=chosen.name if chosen else NONE_AVAILABLE,
        suitableHostName=chosen.host_name if chosen else NONE_AVAILABLE,
        nodeMemoryUsage=chosen.load.guest_memory_mb if chosen else 0,
        nodeCPUUsage=chosen.load.cpu_demand_mhz if chosen else 0,
        availableAcceleratorTime=rules.available_hours(chosen, now) if chosen else 0,
        candidates=[_build_candidate(each, rules, now) for each in answer.candidates] or None,
        refused=dict(answer.rejection_counts) or None,
        unmatched=_build_unmatched_nodes(answer),
        simulated=simulated or None,
    )


def _build_unmatched_nodes(answer: Selection) -> UnmatchedNodes | None:
    """The Nodes without a VM of their own, as they are shown."""
    found = [(each.name, each.match_failure) for each in answer.unmatched_nodes]
    nodes = [
        UnmatchedNode(node=name, reason=why.reason.value, message=why.message)
        for name, why in found
        if why is not None
    ]
    return UnmatchedNodes(nodes=nodes, more=answer.omitted_unmatched_count) if nodes else None


def _build_candidate(facts: NodeFacts, rules: SelectionRules, now: datetime) -> Candidate:
    """One node as it is shown."""
    window = facts.maintenance
    return Candidate(
        node=facts.name,
        host=facts.host_name or None,
        vm=facts.vm_name or None,
        matchedBy=facts.matched_by or None,
        vcenter=facts.vcenter_name or None,
        availableHours=rules.available_hours(facts, now),
        nextMaintenance=to_utc(window.start) if window else None,
        maintenanceSource=window.source if window else None,
        cpuDemandMHz=facts.load.cpu_demand_mhz,
        guestMemoryMB=facts.load.guest_memory_mb,
        freeMemoryMB=facts.free_memory_mb,
        gpus=list(facts.gpus) or (["simulated"] if facts.simulated_gpu else None),
        hostDevices=list(facts.host_devices) or None,
    )


def ready_reason(spec: GPUInfoSpec, answer: Selection, *, simulated: bool) -> tuple[str, str]:
    """Reason and message for the Ready condition."""
    total = answer.suitable_count + sum(answer.rejection_counts.values())
    missing = [
        name
        for name, value in (("desAccTime", spec.desAccTime), ("gpuRequired", spec.gpuRequired))
        if value is None
    ]
    notes = (
        f" spec.{' and spec.'.join(missing)} is not set; it counts as 0 hours, or as no GPU."
        if missing
        else ""
    )
    if simulated:
        notes += " Hours and GPUs are simulated (-accelerator-source=simulated): place no real job by them."
    if answer.chosen is not None:
        if answer.suitable_count == 1:
            return (
                "NodeChosen",
                f'"{answer.chosen.name}" is the only node that suits, of {total}.{notes}',
            )
        return (
            "NodeChosen",
            f'"{answer.chosen.name}" is the best of {answer.suitable_count} nodes that suit, of {total}.{notes}',
        )
    counts = ", ".join(f"{count} {reason}" for reason, count in answer.rejection_counts.items())
    few = "the cluster has no nodes." if not total else f"the only node does not suit: {counts}."
    words = f"none of {total} nodes suits: {counts}." if total > 1 else few
    return "NoneAvailable", f"{words}{notes}"


def parse_requirement(spec: GPUInfoSpec) -> Requirement:
    """What is asked; negative hours are refused in words, since a schema that refuses them would refuse manifests that people have."""
    hours = spec.desAccTime or 0
    if hours < 0:
        raise Terminal(
            "NegativeTime",
            f"spec.desAccTime is {hours}; set it to the hours that the job needs, 0 or more",
        )
    return Requirement(hours, bool(spec.gpuRequired))


def _describe_unreadable_tasks(vcenter: VCenter) -> str:
    """A vCenter whose scheduled tasks cannot be read, in words."""
    what = f'The scheduled tasks of vCenter "{vcenter.name}" cannot be read, so a maintenance that is planned by one may be missing here'
    mend = "If it is a matter of rights, let its account see scheduled tasks (System.View on the root folder)."
    return f"{what}: {vcenter.scheduled_tasks.problem.rstrip('.')}. {mend}"


def never(old: Any, new: Any) -> bool:
    """Nothing is woken by the change itself, but through the facts that it changes."""
    return False


class GPUInfoController(Controller[GPUInfo]):
    """Answers from the facts in memory; a change of a node wakes the resources whose answer it changes."""

    concurrency = 16  # Its answers are work for the one loop; more at once make nobody faster, and the loop stall for longer.

    def __init__(
        self,
        nodes: NodeTracker,
        vcenters: Mapping[str, VCenter],
        cache: Cache,
        rules: SelectionRules,
        recorder: EventRecorder,
        *,
        interval_seconds: float,
        change_fraction: float,
        calendar: CalendarWatcher | None = None,
    ) -> None:
        self.tracker, self.vcenters, self.cache, self.rules, self.recorder = (
            nodes,
            vcenters,
            cache,
            rules,
            recorder,
        )
        self.interval_seconds, self.calendar = interval_seconds, calendar
        self.simulated = nodes.simulation is not None
        self._published_keys: set[Key] = set()
        """Who has had an answer of this process."""
        self.stream = Stream()
        wake = lambda key: self.stream.publish(str(key))  # noqa: E731
        self.subscriptions = Subscriptions(
            nodes, rules, wake, interval_seconds=interval_seconds, change_fraction=change_fraction
        )
        self.wake_on(self.stream, by=lambda info: str(info.key))
        self.wake_on(Node, by=lambda info: None, when=never)
        cache.store(GPUInfo).listeners.append(
            lambda key, old, new, via: self.forget(key) if new is None else None
        )
        for vcenter in vcenters.values():
            vcenter.listeners.append(self.stream.publish_all)
            vcenter.scheduled_tasks.state_listeners.append(self.stream.publish_all)
        if calendar is not None:
            calendar.state_changed.append(self.stream.publish_all)

    def forget(self, key: Key) -> None:
        """An object is gone."""
        self.subscriptions.unsubscribe(key)
        self._published_keys.discard(key)

    async def reconcile(self, info: GPUInfo) -> Done:
        """Choose, and tell why."""
        self.subscriptions.unsubscribe(info.key)
        try:
            question = parse_requirement(info.spec)
            self._require_facts(info)
        except Terminal:
            info.status = GPUInfoStatus(simulated=self.simulated or None)
            raise
        now, before = self.tracker.clock(), info.status.suitableNodeName or ""
        answer = self.select_node(question, before, now)
        info.status = status_of(answer, self.rules, now, simulated=self.simulated)
        info.status.conditions = [self._build_plans_known_condition(info.metadata.generation)]
        self.subscriptions.subscribe(info.key, question, answer.chosen)
        self._published_keys.add(info.key)
        reason, message = ready_reason(info.spec, answer, simulated=self.simulated)
        if info.status.suitableNodeName != before:
            self.recorder.event(
                info,
                GPUInfo.definition,
                "Normal",
                reason,
                f"{message} Before: {before or 'no answer'}.",
            )
        await self.update_label(info.key, answer.chosen.name if answer.chosen else "")
        spread = slot_of(str(info.key)) / SLOT_COUNT
        return Done(
            reason,
            message,
            answer.requeue_after_seconds(self.rules, now, self.interval_seconds, spread),
        )

    def select_node(self, question: Requirement, present: str, now: datetime) -> Selection:
        """The answer of this moment."""
        ranking, rules = self.tracker.ranking, self.rules
        return Selection(
            requirement=question,
            chosen=ranking.choose(question, present, rules, now),
            best_nodes=list(islice(ranking.iter_suitable(question, rules, now), MAX_CANDIDATES)),
            suitable_count=ranking.count_suitable(question, rules, now),
            seconds_until_fewer_suitable=ranking.pools[
                question.gpu_required
            ].seconds_until_fewer_suitable(question, rules, now),
            rejection_counts=ranking.count_rejections(question, rules, now),
            unmatched_nodes=[
                ranking.facts[name] for name in ranking.unmatched_names[:MAX_UNMATCHED]
            ],
            omitted_unmatched_count=max(len(ranking.unmatched_names) - MAX_UNMATCHED, 0),
        )

    def _build_plans_known_condition(self, generation: int) -> Condition:
        """Whether all that is planned could be read."""
        reason, message = (
            ("Simulated", "hours are simulated, nothing planned is read")
            if self.simulated
            else self._describe_unreadable_plans()
        )
        status: Literal["True", "False"] = "True" if reason in ("Simulated", "AllRead") else "False"
        return Condition(
            type=PLANS_KNOWN,
            status=status,
            reason=reason,
            message=message,
            observedGeneration=generation,
        )

    def _describe_unreadable_plans(self) -> tuple[str, str]:
        """What of it could not, as reason and words."""
        unread = [
            _describe_unreadable_tasks(each)
            for each in self.vcenters.values()
            if each.scheduled_tasks.problem and each.problem is None
        ]
        if self.calendar is not None and self.calendar.stale_message:
            return "CalendarStale", " ".join([f"{self.calendar.stale_message}.", *unread])
        return ("ScheduledTasksUnreadable" if unread else "AllRead"), " ".join(unread)

    def _require_facts(self, info: GPUInfo) -> None:
        """Raise while nobody can tell: no vCenter, none that answers, or one that is being loaded."""
        if not self.vcenters:
            raise Terminal(
                "NoVCenter",
                f"no vCenter is configured, so nothing is known of the nodes' VMs. {CONFIGURATION_HINT}.",
            )
        lost = [each for each in self.vcenters.values() if each.problem is not None]
        for vcenter in lost if len(lost) == len(self.vcenters) else ():
            assert vcenter.problem is not None
            raise unavailable_error(vcenter, vcenter.problem, info)
        loading = [
            each.name for each in self.vcenters.values() if not each.loaded and each.problem is None
        ]
        if loading:
            raise NotSynced(
                f"the inventory of vCenter {', '.join(loading)} is being loaded",
                after=NOT_LOADED_RETRY_SECONDS,
            )
        if info.key not in self._published_keys and (unread := self.tracker.count_pending_reads()):
            raise NotSynced(
                f"the devices of {unread} VMs are being read", after=_DEVICES_PENDING_RETRY_SECONDS
            )
        if not self.simulated:
            self._require_maintenance_plans(info)

    def _require_maintenance_plans(self, info: GPUInfo) -> None:
        """Raise while nobody can tell what is planned: a node that goes down tomorrow must not be named for a long job."""
        try:
            if self.calendar is not None:
                self.calendar.require_loaded()
        except Retry:
            if not is_status_current(info):
                info.status = GPUInfoStatus()
            raise
        for vcenter in self.vcenters.values():
            if (
                vcenter.scheduled_tasks.requested.is_set()
                and not vcenter.scheduled_tasks.has_polled
                and vcenter.problem is None
            ):
                words = f"the scheduled tasks of vCenter {vcenter.name} are being read"
                raise NotSynced(
                    f"{words}: {vcenter.scheduled_tasks.problem}".removesuffix(": "),
                    after=NOT_LOADED_RETRY_SECONDS,
                )

    async def update_label(self, key: Key, node: str) -> None:
        """Nothing, unless asked for."""
