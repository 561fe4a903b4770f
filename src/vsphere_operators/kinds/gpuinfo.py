"""GPUInfo: the best node for a long job, with or without a GPU, from facts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Annotated, Any

from msgspec import Struct

from kubewright import (
    Cache,
    Client,
    Column,
    Controller,
    Doc,
    Done,
    Int64,
    Key,
    ListType,
    NotYet,
    Resource,
    Spec,
    Status,
    Stream,
    Terminal,
    kind,
)
from kubewright.builtin import Node
from kubewright.recorder import Recorder

from ..choosing import NodeFacts, Question, Rules
from ..maintenance import in_utc
from ..nodes import Nodes
from ..questions import Questions
from ..vcenter.vcenter import VCenter
from ..vcenters import HOW_TO_CONFIGURE, NOT_LOADED_SECONDS, unavailable

NONE_AVAILABLE = "None available"
MOST_CANDIDATES = 5
PENDING_SECONDS = 0.5
LABEL_PREFIX = "gpuinfo.topology.corinternal.com/"
LONGEST_LABEL = 63
BY_LABEL = "gpuinfo-label"


class GPUInfoSpec(Spec):
    """What the job needs."""

    desAccTime: Annotated[Int64 | None, Doc("For how many hours the job needs the node.")] = None
    gpuRequired: Annotated[bool | None, Doc("True: only nodes with a GPU. False: only nodes without.")] = None


class Candidate(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A node that suits, with its facts. What is not known is absent."""

    node: Annotated[str, Doc("Name of the Node.")]
    host: Annotated[str | None, Doc("The ESXi host that its VM is on.")] = None
    vm: Annotated[str | None, Doc("Its VM.")] = None
    vcenter: Annotated[str | None, Doc("The vCenter of the VM, by its name in the manager's configuration.")] = None
    availableHours: Annotated[Int64 | None, Doc("Whole hours until the next maintenance.")] = None
    nextMaintenance: Annotated[datetime | None, Doc("When that begins; absent while none is known.")] = None
    maintenanceSource: Annotated[str | None, Doc("Who says so.")] = None
    cpuDemandMHz: Annotated[Int64 | None, Doc("What the VM asks of the CPUs.")] = None
    guestMemoryMB: Annotated[Int64 | None, Doc("What the guest uses.")] = None
    freeMemoryMB: Annotated[Int64 | None, Doc("What the VM has and the guest does not use.")] = None
    gpus: Annotated[list[str] | None, ListType("atomic"), Doc("What makes it a node with a GPU, each with its source.")] = None
    hostDevices: Annotated[list[str] | None, ListType("atomic"), Doc("Graphics devices of the host, whoever uses them.")] = None


class GPUInfoStatus(Status):
    """The answer, and why it is the answer."""

    suitableNodeName: Annotated[str | None, Doc("The best node, or `None available`.")] = None
    suitableHostName: Annotated[str | None, Doc("The ESXi host that it is on, or `None available`.")] = None
    nodeMemoryUsage: Annotated[Int64 | None, Doc("Guest memory in use, in MB.")] = None
    nodeCPUUsage: Annotated[Int64 | None, Doc("CPU demand, in MHz.")] = None
    availableAcceleratorTime: Annotated[Int64 | None, Doc("Whole hours until the next planned maintenance there.")] = None
    candidates: Annotated[list[Candidate] | None, ListType("atomic"), Doc("The chosen node, and the best of the others that suit.")] = None
    refused: Annotated[dict[str, Int64] | None, Doc("How many nodes do not suit, by the first reason for it.")] = None
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


class Answer(Struct, frozen=True):
    """Everything that was found for one question."""

    question: Question
    chosen: NodeFacts | None
    suitable: Sequence[NodeFacts]
    """The best first."""
    refused: Mapping[str, int]

    @property
    def shown(self) -> list[NodeFacts]:
        """The chosen one, and the best of the others."""
        if self.chosen is None:
            return []
        others = (each for each in self.suitable if each.name != self.chosen.name)
        return [self.chosen, *islice(others, MOST_CANDIDATES - 1)]

    def again_after_seconds(self, rules: Rules, now: datetime, interval_seconds: float) -> float | None:
        """When the answer or its hours change by time alone, or, not more often than once an interval, what is shown beside it."""
        shown = self.shown
        exact = rules.seconds_to_next_hour(self.chosen, now) if self.chosen else None
        beside = [rules.seconds_to_next_hour(each, now) for each in shown[1:]]
        beside += [rules.seconds_to_too_little(each, self.question, now) for each in self.suitable]
        later = [max(seconds, interval_seconds) for seconds in beside if seconds is not None]
        return min((*later, *(() if exact is None else (exact,))), default=None)


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
        simulated=simulated or None,
    )


def candidate_of(facts: NodeFacts, rules: Rules, now: datetime) -> Candidate:
    """One node as it is shown."""
    window = facts.maintenance
    return Candidate(
        node=facts.name,
        host=facts.host or None,
        vm=facts.vm or None,
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
    total = len(answer.suitable) + sum(answer.refused.values())
    missing = [name for name, value in (("desAccTime", spec.desAccTime), ("gpuRequired", spec.gpuRequired)) if value is None]
    notes = f" spec.{' and spec.'.join(missing)} is not set; it counts as 0 hours, or as no GPU." if missing else ""
    if simulated:
        notes += " Hours and GPUs are simulated (-accelerator-source=simulated): place no real job by them."
    if answer.chosen is not None:
        return "NodeChosen", f'"{answer.chosen.name}" is the best of {len(answer.suitable)} nodes that suit, of {total}.{notes}'
    counts = ", ".join(f"{count} {reason}" for reason, count in answer.refused.items())
    words = f"none of {total} nodes suits: {counts}." if total else "the cluster has no nodes."
    return "NoneAvailable", f"{words}{notes}"


def question_of(spec: GPUInfoSpec) -> Question:
    """What is asked; negative hours are refused in words, since a schema that refuses them would refuse manifests that people have."""
    hours = spec.desAccTime or 0
    if hours < 0:
        raise Terminal("NegativeTime", f"spec.desAccTime is {hours}; set it to the hours that the job needs, 0 or more")
    return Question(hours, bool(spec.gpuRequired))


def never(old: Any, new: Any) -> bool:
    """Nothing is woken by the change itself, but through the facts that it changes."""
    return False


class GPUInfoController(Controller[GPUInfo]):
    """Answers from the facts in memory; a change of a node wakes the resources whose answer it changes."""

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
    ) -> None:
        self.nodes, self.vcenters, self.cache, self.rules, self.recorder = nodes, vcenters, cache, rules, recorder
        self.interval_seconds = interval_seconds
        self.simulated = nodes.simulation is not None
        self.stream = Stream()
        wake = lambda key: self.stream.publish(str(key))  # noqa: E731
        self.questions = Questions(nodes, rules, wake, interval_seconds=interval_seconds, share=share)
        self.wake_on(self.stream, by=lambda info: str(info.key))
        self.wake_on(Node, by=lambda info: None, when=never)
        cache.store(GPUInfo).listeners.append(lambda key, old, new, via: self.questions.forget(key) if new is None else None)
        for vcenter in vcenters.values():
            vcenter.listeners.append(self.stream.publish_all)

    async def reconcile(self, info: GPUInfo) -> Done:
        """Choose, and tell why."""
        self.questions.forget(info.key)
        question = question_of(info.spec)
        self.refuse_without_facts(info)
        now, before = self.nodes.clock(), info.status.suitableNodeName or ""
        answer = self.answer(question, before, now)
        info.status = status_of(answer, self.rules, now, simulated=self.simulated)
        self.questions.answered(info.key, question, answer.chosen)
        reason, message = words_for(info.spec, answer, simulated=self.simulated)
        if info.status.suitableNodeName != before:
            self.recorder.event(info, GPUInfo.definition, "Normal", reason, f"{message} Before: {before or 'no answer'}.")
        await self.label(info.key, answer.chosen.name if answer.chosen else "")
        return Done(reason, message, answer.again_after_seconds(self.rules, now, self.interval_seconds))

    def answer(self, question: Question, present: str, now: datetime) -> Answer:
        """The answer of this moment."""
        ranking = self.nodes.ranking
        chosen = ranking.choose(question, present, self.rules, now)
        return Answer(question, chosen, list(ranking.suitable(question, self.rules, now)), ranking.refused(question, self.rules, now))

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
        if self.nodes.pending:
            raise NotYet(f"the devices of {len(self.nodes.pending)} VMs are being read", after=PENDING_SECONDS)

    async def label(self, key: Key, node: str) -> None:
        """Nothing, unless asked for."""


class LabellingGPUInfoController(GPUInfoController):
    """The same, with a label on the chosen Node that a Job can select."""

    finalizer = "gpuinfo.topology.corinternal.com/label"

    def use(self, client: Client) -> LabellingGPUInfoController:
        """Write labels with this client."""
        self.client = client
        self.needs(Node, "patch")
        self.cache.store(Node).add_index(BY_LABEL, labels_of)
        return self

    async def reconcile(self, info: GPUInfo) -> Done:
        """The same; an object without an answer has no label either."""
        try:
            return await super().reconcile(info)
        except Terminal:
            await self.label(info.key, "")
            raise

    async def label(self, key: Key, node: str) -> None:
        """The label stands on this Node and on no other; "" is on none."""
        name = label_of(key)
        labelled = {each.metadata.name for each in self.cache.by(Node, BY_LABEL, name)}
        for other in sorted(labelled - {node}):
            await self.client.patch(Node, Key("", other), {"metadata": {"labels": {name: None}}})
        if node and node not in labelled:
            await self.client.patch(Node, Key("", node), {"metadata": {"labels": {name: "true"}}})

    async def finalize(self, info: GPUInfo) -> None:
        """The label goes with the object."""
        await self.label(info.key, "")


def labels_of(node: Node) -> Iterable[str]:
    """The labels of ours on a Node."""
    return [label for label in node.metadata.labels if label.startswith(LABEL_PREFIX)]


def label_of(key: Key) -> str:
    """The label that names a GPUInfo; a namespace has no dot, so no two are the same. What is too long is cut, with a digest at its end."""
    name = f"{key.namespace}.{key.name}"
    if len(name) > LONGEST_LABEL:
        name = f"{name[: LONGEST_LABEL - 11].rstrip('.-')}-{hashlib.sha256(name.encode()).hexdigest()[:10]}"
    return LABEL_PREFIX + name
