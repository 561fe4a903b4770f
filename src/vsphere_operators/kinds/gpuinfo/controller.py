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
    NotYet,
    Resource,
    Retry,
    Spec,
    Status,
    Stream,
    Terminal,
    kind,
)
from kubewright.builtin import Node
from kubewright.recorder import Recorder

from ...vcenters.registry import HOW_TO_CONFIGURE, NOT_LOADED_SECONDS, answers_now, unavailable
from ...vsphere.stats_throttle import SLOTS, slot_of
from ...vsphere.vcenter import VCenter
from .calendar import Almanac
from .maintenance import in_utc
from .rules import NodeFacts, Question, Rules
from .subscriptions import Questions
from .tracker import Nodes

NONE_AVAILABLE = "None available"
MOST_CANDIDATES = 5
MOST_UNMATCHED = 5
PENDING_SECONDS = 0.5
MOVE_SPREAD_SECONDS, SHOW_SPREAD_SECONDS = 0.5, 30.0
"""Windows begin at full hours for hundreds of nodes and thousands of objects: they look again each at its own moment within this time."""
LONGEST_WAIT_SECONDS = 86400.0
PLANS_KNOWN = "PlansKnown"


class GPUInfoSpec(Spec):
    """What the job needs."""

    desAccTime: Annotated[Int64 | None, Doc("For how many hours the job needs the node.")] = None
    gpuRequired: Annotated[bool | None, Doc("True: only nodes with a GPU. False: only nodes without.")] = None


class Candidate(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A node that suits, with its facts. What is not known is absent."""

    node: Annotated[str, Doc("Name of the Node.")]
    host: Annotated[str | None, Doc("The ESXi host that its VM is on.")] = None
    vm: Annotated[str | None, Doc("Its VM.")] = None
    matchedBy: Annotated[str | None, Doc("By what the VM was found: providerID or name.")] = None
    vcenter: Annotated[str | None, Doc("The vCenter of the VM, by its name in the manager's configuration.")] = None
    availableHours: Annotated[Int64 | None, Doc("Whole hours until the next maintenance.")] = None
    nextMaintenance: Annotated[datetime | None, Doc("When that begins; absent while none is known.")] = None
    maintenanceSource: Annotated[str | None, Doc("Who says so.")] = None
    cpuDemandMHz: Annotated[Int64 | None, Doc("What the VM asks of the CPUs.")] = None
    guestMemoryMB: Annotated[Int64 | None, Doc("What the guest uses.")] = None
    freeMemoryMB: Annotated[Int64 | None, Doc("What the VM has and the guest does not use.")] = None
    gpus: Annotated[list[str] | None, ListType("atomic"), Doc("What makes it a node with a GPU, each with its source.")] = None
    hostDevices: Annotated[list[str] | None, ListType("atomic"), Doc("Graphics devices of the host, whoever uses them.")] = None


class UnmatchedNode(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A Node without a VM of its own."""

    node: Annotated[str, Doc("Name of the Node.")]
    reason: Annotated[str, Doc("VMNotFound or VMAmbiguous.")]
    message: Annotated[str, Doc("The same in words.")]


class Unmatched(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The Nodes without a VM of their own."""

    nodes: Annotated[list[UnmatchedNode], ListType("atomic"), Doc("The first of them by name.")]
    more: Annotated[Int64, Doc("How many there are beside these.")] = 0


class GPUInfoStatus(Status):
    """The answer, and why it is the answer."""

    suitableNodeName: Annotated[str | None, Doc("The best node, or `None available`.")] = None
    suitableHostName: Annotated[str | None, Doc("The ESXi host that it is on, or `None available`.")] = None
    nodeMemoryUsage: Annotated[Int64 | None, Doc("Guest memory in use, in MB.")] = None
    nodeCPUUsage: Annotated[Int64 | None, Doc("CPU demand, in MHz.")] = None
    availableAcceleratorTime: Annotated[Int64 | None, Doc("Whole hours until the next planned maintenance there.")] = None
    candidates: Annotated[list[Candidate] | None, ListType("atomic"), Doc("The chosen node, and the best of the others that suit.")] = None
    refused: Annotated[dict[str, Int64] | None, Doc("How many nodes do not suit, by the first reason for it.")] = None
    unmatched: Annotated[Unmatched | None, Doc("The Nodes that no VM, or more than one, could be found for; absent without any.")] = None
    simulated: Annotated[bool | None, Doc("True where hours and GPUs are random numbers: -accelerator-source=simulated.")] = None


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


class Answer(Struct, frozen=True, kw_only=True):
    """Everything that was found for one question."""

    question: Question
    chosen: NodeFacts | None = None
    best: Sequence[NodeFacts] = ()
    """The first of those that suit, the best first."""
    suiting: int = 0
    """How many suit."""
    one_less_in_seconds: float | None = None
    """When the next of them will have too little time."""
    refused: Mapping[str, int] = {}
    unmatched: Sequence[NodeFacts] = ()
    """The first of the Nodes without a VM of their own."""
    unmatched_more: int = 0

    @property
    def shown(self) -> list[NodeFacts]:
        """The chosen one, and the best of the others."""
        if self.chosen is None:
            return []
        others = (each for each in self.best if each.name != self.chosen.name)
        return [self.chosen, *islice(others, MOST_CANDIDATES - 1)]

    def again_after_seconds(self, rules: Rules, now: datetime, interval_seconds: float, spread: float) -> float | None:
        """When the answer changes by time alone; a little later, when its hours do; and not more often than once an interval, the rest.

        `spread` is the object's own part, 0 to 1, of the time over which all that have to look again at one moment do so.
        """
        if self.chosen is None:
            return None
        moves = rules.seconds_to_too_little(self.chosen, self.question, now)
        hour = rules.seconds_to_next_hour(self.chosen, now)
        beside = [rules.seconds_to_next_hour(each, now) for each in self.shown[1:]]
        later = [max(seconds, interval_seconds) for seconds in (*beside, self.one_less_in_seconds) if seconds is not None]
        due = [seconds + spread * SHOW_SPREAD_SECONDS for seconds in (hour, *later) if seconds is not None]
        due += [] if moves is None else [moves + spread * MOVE_SPREAD_SECONDS]
        return min(*due, LONGEST_WAIT_SECONDS + spread * SHOW_SPREAD_SECONDS) if due else None


def status_of(answer: Answer, rules: Rules, now: datetime, *, simulated: bool) -> GPUInfoStatus:
    """All of the answer."""
    chosen = answer.chosen
    return GPUInfoStatus(
        suitableNodeName=chosen.name if chosen else NONE_AVAILABLE,
        suitableHostName=chosen.host if chosen else NONE_AVAILABLE,
        nodeMemoryUsage=chosen.load.guest_memory_mb if chosen else 0,
        nodeCPUUsage=chosen.load.cpu_demand_mhz if chosen else 0,
        availableAcceleratorTime=rules.hours(chosen, now) if chosen else 0,
        candidates=[candidate_of(each, rules, now) for each in answer.shown] or None,
        refused=dict(answer.refused) or None,
        unmatched=unmatched_of(answer),
        simulated=simulated or None,
    )


def unmatched_of(answer: Answer) -> Unmatched | None:
    """The Nodes without a VM of their own, as they are shown."""
    found = [(each.name, each.unmatched) for each in answer.unmatched]
    nodes = [UnmatchedNode(node=name, reason=why.reason.value, message=why.words) for name, why in found if why is not None]
    return Unmatched(nodes=nodes, more=answer.unmatched_more) if nodes else None


def candidate_of(facts: NodeFacts, rules: Rules, now: datetime) -> Candidate:
    """One node as it is shown."""
    window = facts.maintenance
    return Candidate(
        node=facts.name,
        host=facts.host or None,
        vm=facts.vm or None,
        matchedBy=facts.matched_by or None,
        vcenter=facts.vcenter or None,
        availableHours=rules.hours(facts, now),
        nextMaintenance=in_utc(window.start) if window else None,
        maintenanceSource=window.source if window else None,
        cpuDemandMHz=facts.load.cpu_demand_mhz,
        guestMemoryMB=facts.load.guest_memory_mb,
        freeMemoryMB=facts.free_memory_mb,
        gpus=list(facts.gpus) or (["simulated"] if facts.simulated_gpu else None),
        hostDevices=list(facts.host_devices) or None,
    )


def words_for(spec: GPUInfoSpec, answer: Answer, *, simulated: bool) -> tuple[str, str]:
    """Reason and message for the Ready condition."""
    total = answer.suiting + sum(answer.refused.values())
    missing = [name for name, value in (("desAccTime", spec.desAccTime), ("gpuRequired", spec.gpuRequired)) if value is None]
    notes = f" spec.{' and spec.'.join(missing)} is not set; it counts as 0 hours, or as no GPU." if missing else ""
    if simulated:
        notes += " Hours and GPUs are simulated (-accelerator-source=simulated): place no real job by them."
    if answer.chosen is not None:
        if answer.suiting == 1:
            return "NodeChosen", f'"{answer.chosen.name}" is the only node that suits, of {total}.{notes}'
        return "NodeChosen", f'"{answer.chosen.name}" is the best of {answer.suiting} nodes that suit, of {total}.{notes}'
    counts = ", ".join(f"{count} {reason}" for reason, count in answer.refused.items())
    few = "the cluster has no nodes." if not total else f"the only node does not suit: {counts}."
    words = f"none of {total} nodes suits: {counts}." if total > 1 else few
    return "NoneAvailable", f"{words}{notes}"


def question_of(spec: GPUInfoSpec) -> Question:
    """What is asked; negative hours are refused in words, since a schema that refuses them would refuse manifests that people have."""
    hours = spec.desAccTime or 0
    if hours < 0:
        raise Terminal("NegativeTime", f"spec.desAccTime is {hours}; set it to the hours that the job needs, 0 or more")
    return Question(hours, bool(spec.gpuRequired))


def unread_tasks(vcenter: VCenter) -> str:
    """A vCenter whose scheduled tasks cannot be read, in words."""
    what = f'The scheduled tasks of vCenter "{vcenter.name}" cannot be read, so a maintenance that is planned by one may be missing here'
    mend = "If it is a matter of rights, let its account see scheduled tasks (System.View on the root folder)."
    return f"{what}: {vcenter.scheduled.problem.rstrip('.')}. {mend}"


def never(old: Any, new: Any) -> bool:
    """Nothing is woken by the change itself, but through the facts that it changes."""
    return False


class GPUInfoController(Controller[GPUInfo]):
    """Answers from the facts in memory; a change of a node wakes the resources whose answer it changes."""

    concurrency = 16  # Its answers are work for the one loop; more at once make nobody faster, and the loop stall for longer.

    def __init__(
        self,
        nodes: Nodes,
        vcenters: Mapping[str, VCenter],
        cache: Cache,
        rules: Rules,
        recorder: Recorder,
        *,
        interval_seconds: float,
        share: float,
        calendar: Almanac | None = None,
    ) -> None:
        self.nodes, self.vcenters, self.cache, self.rules, self.recorder = nodes, vcenters, cache, rules, recorder
        self.interval_seconds, self.calendar = interval_seconds, calendar
        self.simulated = nodes.simulation is not None
        self.told: set[Key] = set()
        """Who has had an answer of this process."""
        self.stream = Stream()
        wake = lambda key: self.stream.publish(str(key))  # noqa: E731
        self.questions = Questions(nodes, rules, wake, interval_seconds=interval_seconds, share=share)
        self.wake_on(self.stream, by=lambda info: str(info.key))
        self.wake_on(Node, by=lambda info: None, when=never)
        cache.store(GPUInfo).listeners.append(lambda key, old, new, via: self.forget(key) if new is None else None)
        for vcenter in vcenters.values():
            vcenter.listeners.append(self.stream.publish_all)
            vcenter.scheduled.turned.append(self.stream.publish_all)
        if calendar is not None:
            calendar.turned.append(self.stream.publish_all)

    def forget(self, key: Key) -> None:
        """An object is gone."""
        self.questions.forget(key)
        self.told.discard(key)

    async def reconcile(self, info: GPUInfo) -> Done:
        """Choose, and tell why."""
        self.questions.forget(info.key)
        try:
            question = question_of(info.spec)
            self.refuse_without_facts(info)
        except Terminal:
            info.status = GPUInfoStatus(simulated=self.simulated or None)
            raise
        now, before = self.nodes.clock(), info.status.suitableNodeName or ""
        answer = self.answer(question, before, now)
        info.status = status_of(answer, self.rules, now, simulated=self.simulated)
        info.status.conditions = [self.plans_known(info.metadata.generation)]
        self.questions.answered(info.key, question, answer.chosen)
        self.told.add(info.key)
        reason, message = words_for(info.spec, answer, simulated=self.simulated)
        if info.status.suitableNodeName != before:
            self.recorder.event(info, GPUInfo.definition, "Normal", reason, f"{message} Before: {before or 'no answer'}.")
        await self.label(info.key, answer.chosen.name if answer.chosen else "")
        spread = slot_of(str(info.key)) / SLOTS
        return Done(reason, message, answer.again_after_seconds(self.rules, now, self.interval_seconds, spread))

    def answer(self, question: Question, present: str, now: datetime) -> Answer:
        """The answer of this moment."""
        ranking, rules = self.nodes.ranking, self.rules
        return Answer(
            question=question,
            chosen=ranking.choose(question, present, rules, now),
            best=list(islice(ranking.suitable(question, rules, now), MOST_CANDIDATES)),
            suiting=ranking.count(question, rules, now),
            one_less_in_seconds=ranking.sides[question.gpu_required].seconds_to_one_less(question, rules, now),
            refused=ranking.refused(question, rules, now),
            unmatched=[ranking.facts[name] for name in ranking.unmatched[:MOST_UNMATCHED]],
            unmatched_more=max(len(ranking.unmatched) - MOST_UNMATCHED, 0),
        )

    def plans_known(self, generation: int) -> Condition:
        """Whether all that is planned could be read."""
        reason, message = ("Simulated", "hours are simulated, nothing planned is read") if self.simulated else self.unread_plans()
        status: Literal["True", "False"] = "True" if reason in ("Simulated", "AllRead") else "False"
        return Condition(type=PLANS_KNOWN, status=status, reason=reason, message=message, observedGeneration=generation)

    def unread_plans(self) -> tuple[str, str]:
        """What of it could not, as reason and words."""
        unread = [unread_tasks(each) for each in self.vcenters.values() if each.scheduled.problem and each.problem is None]
        if self.calendar is not None and self.calendar.stale:
            return "CalendarStale", " ".join([f"{self.calendar.stale}.", *unread])
        return ("ScheduledTasksUnreadable" if unread else "AllRead"), " ".join(unread)

    def refuse_without_facts(self, info: GPUInfo) -> None:
        """Raise while nobody can tell: no vCenter, none that answers, or one that is being loaded."""
        if not self.vcenters:
            raise Terminal("NoVCenter", f"no vCenter is configured, so nothing is known of the nodes' VMs. {HOW_TO_CONFIGURE}.")
        lost = [each for each in self.vcenters.values() if each.problem is not None]
        for vcenter in lost if len(lost) == len(self.vcenters) else ():
            assert vcenter.problem is not None
            raise unavailable(vcenter, vcenter.problem, info)
        loading = [each.name for each in self.vcenters.values() if not each.loaded and each.problem is None]
        if loading:
            raise NotYet(f"the inventory of vCenter {', '.join(loading)} is being loaded", after=NOT_LOADED_SECONDS)
        if info.key not in self.told and (unread := self.nodes.read_soon()):
            raise NotYet(f"the devices of {unread} VMs are being read", after=PENDING_SECONDS)
        if not self.simulated:
            self.refuse_without_plans(info)

    def refuse_without_plans(self, info: GPUInfo) -> None:
        """Raise while nobody can tell what is planned: a node that goes down tomorrow must not be named for a long job."""
        try:
            if self.calendar is not None:
                self.calendar.require()
        except Retry:
            if not answers_now(info):
                info.status = GPUInfoStatus()
            raise
        for vcenter in self.vcenters.values():
            if vcenter.scheduled.wanted.is_set() and not vcenter.scheduled.looked and vcenter.problem is None:
                words = f"the scheduled tasks of vCenter {vcenter.name} are being read"
                raise NotYet(f"{words}: {vcenter.scheduled.problem}".removesuffix(": "), after=NOT_LOADED_SECONDS)

    async def label(self, key: Key, node: str) -> None:
        """Nothing, unless asked for."""
