"""`why gpu NAME`: who was chosen, who could have been, and who was refused for what. Pure.

The object itself has the numbers of those refused, and no names. What Kubernetes alone tells (a Node that is not ready, or takes no Pods)
is told by name always; the rest with the vCenter's facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from kubewright.builtin import Node

from ..kinds.gpuinfo.node import is_ready, is_schedulable, list_unschedulable_reasons
from ..kinds.gpuinfo.rules import NodeFacts, Rejection, SelectionRules, parse_requirement
from ..kinds.gpuinfo.types import Candidate, GPUInfo
from .table import Cell, Table, render_field, render_table, short_host

REJECTION_EXPLANATIONS: Mapping[str, str] = {
    Rejection.NOT_READY: "its kubelet does not say that it is ready",
    Rejection.UNSCHEDULABLE: "it is cordoned, of the control plane, or tainted by Kubernetes",
    Rejection.VCENTER_UNREACHABLE: "its vCenter cannot be asked",
    Rejection.DEVICES_UNREAD: "vCenter has not told yet which devices its VM has",
    Rejection.VM_NOT_FOUND: "no VM has its uuid or its name",
    Rejection.VM_AMBIGUOUS: "several VMs have its uuid or its name",
    Rejection.VM_UNAVAILABLE: "vCenter has lost its VM",
    Rejection.POWERED_OFF: "its VM does not run",
    Rejection.HOST_DISCONNECTED: "vCenter does not hear from its host",
    Rejection.HOST_IN_MAINTENANCE: "its host is in maintenance mode",
    Rejection.DEVICES_HIDDEN: "vCenter does not show the devices of its VM to the manager's account",
    Rejection.FACTS_UNREADABLE: "its facts cannot be understood; the manager's log has more",
    Rejection.TOO_LITTLE_TIME: "its next maintenance comes too soon",
    Rejection.GPU_MISSING: "it has no GPU",
    Rejection.GPU_PRESENT: "it has a GPU, and none is wanted",
}


class NodeResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One Node and what became of it."""

    node: str
    result: str
    """chosen, suits, or the reason of its refusal."""
    why: str = ""


class Explanation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of it."""

    question: str
    answer: str
    message: str = ""
    verdicts: list[NodeResult] = []
    uncounted: dict[str, int] = {}
    """How many more were refused, of whom the names are not known here."""
    candidates: list[Candidate] = []


def explain_selection(
    info: GPUInfo,
    nodes: Sequence[Node],
    facts: Mapping[str, NodeFacts] | None,
    rules: SelectionRules,
    now: datetime,
) -> Explanation:
    """Who was refused and why; `facts` of the Nodes make it complete."""
    found = [
        _explain_node(node, info, facts, rules, now)
        for node in sorted(nodes, key=lambda each: each.metadata.name)
    ]
    verdicts = [each for each in found if each is not None]
    named = [each.result for each in verdicts]
    left = {
        reason: count - named.count(reason) for reason, count in (info.status.refused or {}).items()
    }
    ready = next((each for each in info.status.conditions or () if each.type == "Ready"), None)
    hours, gpu = (
        info.spec.desAccTime or 0,
        "with a GPU" if info.spec.gpuRequired else "without a GPU",
    )
    return Explanation(
        question=f"a node {gpu}, for {hours} h",
        answer=info.status.suitableNodeName or "no answer yet",
        message=ready.message if ready else "",
        verdicts=verdicts,
        uncounted={reason: count for reason, count in left.items() if count > 0}
        if facts is None
        else {},
        candidates=info.status.candidates or [],
    )


def _explain_node(
    node: Node,
    info: GPUInfo,
    facts: Mapping[str, NodeFacts] | None,
    rules: SelectionRules,
    now: datetime,
) -> NodeResult | None:
    """What became of one Node; None where nothing here tells."""
    name, suitable = node.metadata.name, [each.node for each in info.status.candidates or ()]
    if name == info.status.suitableNodeName:
        return NodeResult(
            node=name,
            result="chosen",
            why="the least CPU demand, or not so much more that it pays to move",
        )
    refusal = (
        _kubernetes_rejection(node)
        if facts is None
        else rules.find_rejection(facts[name], parse_requirement(info.spec), now)
    )
    if refusal is not None:
        known = facts.get(name) if facts else None
        why = (
            _unschedulable_explanation(node)
            if refusal is Rejection.UNSCHEDULABLE
            else _rejection_explanation(refusal, known, info, rules, now)
        )
        return NodeResult(node=name, result=refusal.value, why=why)
    if name in suitable or facts is not None:
        return NodeResult(node=name, result="suits", why="but has more CPU demand")
    return None


def _kubernetes_rejection(node: Node) -> Rejection | None:
    """What Kubernetes alone tells."""
    if not is_ready(node):
        return Rejection.NOT_READY
    return None if is_schedulable(node) else Rejection.UNSCHEDULABLE


def _unschedulable_explanation(node: Node) -> str:
    """What keeps Pods off a Node, by its own words."""
    return (
        ", and ".join(dict.fromkeys(list_unschedulable_reasons(node)))
        or REJECTION_EXPLANATIONS[Rejection.UNSCHEDULABLE]
    )


def _rejection_explanation(
    refusal: Rejection, facts: NodeFacts | None, info: GPUInfo, rules: SelectionRules, now: datetime
) -> str:
    """The reason in words, with the numbers where they are known."""
    words = REJECTION_EXPLANATIONS[refusal]
    if facts is None or refusal is not Rejection.TOO_LITTLE_TIME:
        return words + (
            f" ({facts.host_name})" if facts and facts.host_name and "host" in words else ""
        )
    source = f", says {facts.maintenance.source}" if facts.maintenance else ""
    return f"{words}: in {rules.available_hours(facts, now)} h, and {info.spec.desAccTime} h are wanted{source}"


def explanation_suffix(reason: str) -> str:
    """A reason as a status has it, in words; "" for one that only a newer manager knows."""
    return f", {REJECTION_EXPLANATIONS[reason]}" if reason in REJECTION_EXPLANATIONS else ""


def render_explanation(answer: Explanation, *, width: int, color: bool) -> Iterator[str]:
    """For people."""
    yield render_field("Asked for", answer.question, width=width)
    yield render_field("Answer", answer.answer, width=width)
    if answer.message:
        yield render_field("Because", answer.message, width=width)
    yield ""
    rows = tuple(
        (
            Cell(each.node),
            Cell(each.result, "good" if each.result in ("chosen", "suits") else "bad"),
            Cell(each.why),
        )
        for each in answer.verdicts
    )
    yield render_table(
        Table(columns=("NODE", "RESULT", "WHY"), rows=rows, wrap_last_column=True),
        width=width,
        color=color,
    )
    for reason, count in answer.uncounted.items():
        yield f"{count} more refused: {reason}{explanation_suffix(reason)}. Which ones, --vcenter tells."
    if answer.candidates:
        yield ""
        yield render_table(_candidate_table(answer.candidates), width=width, color=color)


def _candidate_table(found: Sequence[Candidate]) -> Table:
    """Those that suit, as the manager saw them."""
    rows = tuple(
        (
            Cell(each.node),
            Cell(_format_number(each.availableHours)),
            Cell(_format_number(each.cpuDemandMHz)),
            Cell(_format_number(each.freeMemoryMB)),
            Cell(short_host(each.host or "")),
            Cell("; ".join(each.gpus or ())),
        )
        for each in found
    )
    return Table(
        columns=("SUITS", "HOURS", "CPU MHZ", "FREE MB", "HOST", "GPU"),
        rows=rows,
        wrap_last_column=True,
    )


def _format_number(number: int | None) -> str:
    """A number, or that nobody knows."""
    return "-" if number is None else str(number)
