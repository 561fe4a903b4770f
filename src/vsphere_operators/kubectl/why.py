"""`why gpu NAME`: the selected node, the other candidates, and why each node was rejected.

The status of a GPUInfo counts rejected nodes but does not name them. Nodes that are not ready or
not schedulable are named from Kubernetes alone; the others need vCenter's data. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from kubewright.builtin import Node

from ..console import escape_control
from ..kinds.gpuinfo.node import is_ready, is_schedulable, list_unschedulable_reasons
from ..kinds.gpuinfo.rules import (
    REJECTION_EXPLANATIONS,
    NodeFacts,
    Query,
    Rejection,
    Requirement,
    SelectionRules,
)
from ..kinds.gpuinfo.types import Candidate, GPUInfo
from .table import (
    Cell,
    Columns,
    Table,
    build_table,
    format_number,
    render_field,
    render_table,
    short_host,
)


class NodeResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`result` is "chosen", "suits" or the reason of the rejection."""

    node: str
    result: str
    why: str = ""


# The keys of `-o json`, which scripts read. `uncounted` is a name of an older release: the nodes
# in it are counted in the status, but not named in `verdicts`.
class Explanation(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={
        "requirement": "question",
        "selected": "answer",
        "nodes": "verdicts",
        "unnamed": "uncounted",
    },
):
    """`unnamed` counts, by reason, rejected nodes that are not in `nodes`."""

    requirement: str
    selected: str
    message: str = ""
    nodes: list[NodeResult] = []
    unnamed: dict[str, int] = {}
    candidates: list[Candidate] = []


def explain_selection(
    info: GPUInfo,
    nodes: Sequence[Node],
    facts: Mapping[str, NodeFacts] | None,
    rules: SelectionRules,
    now: datetime,
) -> Explanation:
    """With the `facts` of the Nodes the explanation names every Node."""
    # The controller rejects negative hours; here no node has too little time for them.
    requirement = Requirement(info.spec.desAccTime or 0, bool(info.spec.gpuRequired))
    query = Query(requirement, rules, now)
    results = [
        result
        for node in sorted(nodes, key=lambda node: node.metadata.name)
        if (result := _explain_node(node, info, facts, query)) is not None
    ]
    unnamed: dict[str, int] = {}
    if facts is None:
        named = [result.result for result in results]
        for reason, count in (info.status.refused or {}).items():
            if count > named.count(reason):
                unnamed[reason] = count - named.count(reason)
    conditions = info.status.conditions or ()
    messages = (condition.message for condition in conditions if condition.type == "Ready")
    gpu = "with a GPU" if requirement.gpu_required else "without a GPU"
    return Explanation(
        requirement=f"a node {gpu} for {requirement.hours} h",
        selected=info.status.suitableNodeName or "not reconciled yet",
        message=next(messages, ""),
        nodes=results,
        unnamed=unnamed,
        candidates=info.status.candidates or [],
    )


def _explain_node(
    node: Node, info: GPUInfo, facts: Mapping[str, NodeFacts] | None, query: Query
) -> NodeResult | None:
    """None if the result cannot be known without vCenter."""
    name = node.metadata.name
    if name == info.status.suitableNodeName:
        margin = f"{query.rules.margin_fraction:.0%} + {query.rules.margin_mhz:.0f} MHz"
        return NodeResult(
            node=name,
            result="chosen",
            why=f"no suitable node has less CPU demand by more than the margin ({margin})",
        )
    rejection: Rejection | None = None
    if facts is not None:
        rejection = query.find_rejection(facts[name])
    elif not is_ready(node):
        # The same order as in Rejection: a node has the first reason that applies.
        rejection = Rejection.NOT_READY
    elif not is_schedulable(node):
        rejection = Rejection.UNSCHEDULABLE
    if rejection is not None:
        why = _explain_rejection(rejection, node, facts[name] if facts else None, query)
        return NodeResult(node=name, result=rejection.value, why=why)
    candidates = {candidate.node for candidate in info.status.candidates or ()}
    if name in candidates or facts is not None:
        # Its demand may be equal, unknown, or lower within the margin.
        return NodeResult(node=name, result="suits", why="suitable, but not better by the margin")
    return None


def _explain_rejection(
    rejection: Rejection, node: Node, facts: NodeFacts | None, query: Query
) -> str:
    explanation = REJECTION_EXPLANATIONS[rejection]
    if rejection is Rejection.UNSCHEDULABLE:
        # Two taints may have the same meaning.
        reasons = dict.fromkeys(list_unschedulable_reasons(node))
        return ", and ".join(reasons) or explanation
    if facts is None:
        return explanation
    if rejection is Rejection.TOO_LITTLE_TIME:
        source = f" (from {facts.next_window.source})" if facts.next_window else ""
        hours = query.rules.available_hours(facts, query.now)
        return f"{explanation}: in {hours} h{source}, but {query.requirement.hours} h are requested"
    if rejection in (Rejection.HOST_DISCONNECTED, Rejection.HOST_IN_MAINTENANCE):
        return f"{explanation} ({facts.host_name})" if facts.host_name else explanation
    return explanation


def render_explanation(explanation: Explanation, *, width: int, color: bool) -> Iterator[str]:
    yield render_field("Requested", explanation.requirement, width=width)
    yield render_field("Selected", explanation.selected, width=width)
    if explanation.message:
        yield render_field("Message", explanation.message, width=width)
    yield ""
    columns: Columns[NodeResult] = {
        "NODE": lambda result: result.node,
        "RESULT": lambda result: Cell(
            result.result, "good" if result.result in ("chosen", "suits") else "bad"
        ),
        "WHY": lambda result: result.why,
    }
    table = build_table(explanation.nodes, columns, wrap_last_column=True)
    yield render_table(table, width=width, color=color)
    for reason, count in explanation.unnamed.items():
        nodes = "node" if count == 1 else "nodes"
        # A newer manager may write reasons that this version does not have.
        text = REJECTION_EXPLANATIONS.get(reason)
        cause = f"{reason} ({text})" if text else reason
        yield escape_control(f"{count} more {nodes} rejected: {cause}.")
    if explanation.unnamed:
        yield "Run with --vcenter to list them."
    if explanation.candidates:
        yield ""
        yield render_table(_candidate_table(explanation.candidates), width=width, color=color)


def _candidate_table(candidates: Sequence[Candidate]) -> Table:
    columns: Columns[Candidate] = {
        "CANDIDATE": lambda candidate: candidate.node,
        "HOURS": lambda candidate: format_number(candidate.availableHours),
        "CPU MHZ": lambda candidate: format_number(candidate.cpuDemandMHz),
        "FREE MB": lambda candidate: format_number(candidate.freeMemoryMB),
        "HOST": lambda candidate: short_host(candidate.host or ""),
        "GPU": lambda candidate: "; ".join(candidate.gpus or ()),
    }
    return build_table(candidates, columns, wrap_last_column=True)
