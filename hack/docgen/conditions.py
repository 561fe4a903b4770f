"""The page of conditions, their reasons, and Events."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache

from kubewright.condition import READY_CONDITION, STALLED_CONDITION
from kubewright.outcome import Done
from vsphere_operators.kinds.gpuinfo.rules import Rejection
from vsphere_operators.kinds.gpuinfo.types import PLANS_KNOWN
from vsphere_operators.kinds.vmgroup.messages import FAULT_ADVICE
from vsphere_operators.node_labels.condition import HOST_PRESSURE

from . import ROOT
from .page import code, page, table
from .reasons import ReasonUse, read_reasons

APPLICATION_PACKAGE, RUNTIME_PACKAGE = "src/vsphere_operators", "packages/kubewright/src/kubewright"
_SHARED_TITLE = "All kinds that need a vCenter"
_NODE_TITLE = f"{HOST_PRESSURE} of Nodes"
# The docstring of a reason begins with one of these if it is not a reason of Ready.
_EVENT_PREFIXES = {"Normal": "Normal Event on ", "Warning": "Event on "}
_PLANS_PREFIX = f"{PLANS_KNOWN}: "
_PRESSURE_PREFIX = f"{HOST_PRESSURE}: "
_OTHER_PREFIXES = (
    *_EVENT_PREFIXES.values(),
    _PLANS_PREFIX,
    _PRESSURE_PREFIX,
    "Progressing: ",
    "Degraded: ",
)
_CONDITIONS = (
    (
        READY_CONDITION,
        "all",
        "the status is current; the tables below list the reasons if it is not",
    ),
    (
        STALLED_CONDITION,
        "all",
        "the object is not ready until a user or an administrator acts; absent otherwise, reason "
        "and message are those of Ready",
    ),
    (PLANS_KNOWN, "GPUInfo", "every source of planned maintenance could be read"),
    ("Progressing", "VmGroup", "work is in progress; `Working`, `Paused` or `Idle`"),
    (
        "Degraded",
        "VmGroup",
        "the phase is ERROR: waiting does not help; `TooFewReady` or `InError`, otherwise "
        "`NotInError`",
    ),
    (
        HOST_PRESSURE,
        "Node",
        "the ESXi host is short of CPU or memory for the Node, or leaves for maintenance",
    ),
)
_INTRODUCTION = """
Every kind has `status.conditions` in the format of Kubernetes (`type`, `status`, `reason`,
`message`, `observedGeneration`), and `status.observedGeneration`. Programs read the reason, people
the message. `<name>` in a message below stands for a value. `kubectl wait --for=condition=Ready`
works with all kinds.
"""
_EVENTS_TEXT = """
The manager creates an Event when Ready becomes False or is False for another reason (Warning), and
when it becomes True again (Normal). The reason of the Event is the reason of the condition. The
first success, the progress of a VmGroup and `NoneAvailable` of a GPUInfo create no such Event, but
`VMMissing` and `VMUnavailable` do (Warning). An equal Event within ten minutes increases the count
of the first one. Of Events that differ only in their messages, nine are written within ten minutes;
a tenth one counts the others, and its message begins with `(combined from similar events)`. Each
object may create 25 Events at once, and one more every 5 minutes. These Events are independent of a
condition:
"""
_API_ERRORS_TEXT = """
Any other error of Kubernetes has its own name as the reason, such as `Forbidden`:
[errors](errors.md).
"""
_VMGROUP_TEXT = """
Ready is False and the phase is ERROR; `status.lastMessage` has the same message, and
`status.summary` the beginning of it, for the column LAST_MESSAGE of `kubectl get`. In phase PENDING
the reason is `Progressing`, `VMMissing`, `VMUnavailable`, or a reason of the vCenter, such as
`VCenterUnreachable`.
"""
_NODE_TEXT = """
[Node labels](../howto/node-labels.md) describes this condition, which `-label-nodes` switches on.
"""
# Reasons that a function or a table chooses, with the call that reports them.
_COMPUTED_REASONS = {
    "NodeChosen": "Done",
    "NoneAvailable": "Waiting",
    "VMDisconnected": "Terminal",
    "VMInaccessible": "Terminal",
    "VMInvalid": "Terminal",
    "VMOrphaned": "Terminal",
}


@cache
def _titles_by_prefix() -> dict[str, str]:
    """The heading of a module's reasons, by the beginning of the module's path."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["kubewright"]
    titles = {}
    for resource in project["resources"]:
        # vsphere_operators.kinds.gpuinfo.types:GPUInfo -> kinds/gpuinfo
        module = resource["path"].partition(":")[0].split(".")
        titles["/".join(module[1:3])] = resource["kind"]
    return titles | {
        "vcenters/": _SHARED_TITLE,
        "node_labels/": _NODE_TITLE,
        "vsphere/pressure": _NODE_TITLE,
    }


def title_of(module: str) -> str:
    """Raises ValueError for a module without a heading: its reasons would be missing."""
    for prefix, title in _titles_by_prefix().items():
        if module.startswith(prefix):
            return title
    raise ValueError(f"{module} has reasons, but no table lists them: add it to _titles_by_prefix")


def reasons_by_title() -> dict[str, list[ReasonUse]]:
    by_title: dict[str, list[ReasonUse]] = {title: [] for title in _titles_by_prefix().values()}
    for reason in read_reasons(APPLICATION_PACKAGE):
        by_title[title_of(reason.module)].append(reason)
    return by_title


def _ready_rows(reasons: list[ReasonUse]) -> Iterator[tuple[str, ...]]:
    for reason in reasons:
        if reason.meaning.startswith(_OTHER_PREFIXES):
            continue
        callees = [*reason.callees, _COMPUTED_REASONS.get(reason.value, "")]
        ready = "Done" in callees
        terminal = any("terminal" in callee.lower() or callee == "Waiting" for callee in callees)
        retry = "" if ready else "on a change" if terminal else "automatically"
        yield code(reason.value), str(ready), reason.description, retry


def _runtime_rows() -> Iterator[tuple[str, ...]]:
    yield code(Done().reason), "True", "The status is current.", ""
    for reason in read_reasons(RUNTIME_PACKAGE):
        if "ready_condition" not in reason.callees or reason.value == Done().reason:
            continue
        retry = "when the object changes" if reason.module == "status" else "with back-off"
        yield code(reason.value), "False", reason.description, retry


def _vmgroup_rows(reasons: list[ReasonUse]) -> Iterator[tuple[str, ...]]:
    """Each reason with the advice for the vSphere faults that it stands for."""
    faults: dict[str, list[str]] = {}
    for fault, (fault_reason, advice) in FAULT_ADVICE.items():
        faults.setdefault(fault_reason, []).append(
            f"{code(fault)}: {advice}." if advice else code(fault)
        )
    for reason in reasons:
        if not reason.meaning.startswith(_OTHER_PREFIXES):
            yield code(reason.value), " ".join([reason.description, *faults.get(reason.value, ())])


def _plans_known_rows(reasons: list[ReasonUse]) -> Iterator[tuple[str, ...]]:
    for reason in reasons:
        if reason.meaning.startswith(_PLANS_PREFIX):
            status = "True" if reason.value in ("AllRead", "Simulated") else "False"
            yield code(reason.value), status, _capitalize(reason.meaning, _PLANS_PREFIX)


def _host_pressure_rows(reasons: list[ReasonUse]) -> Iterator[tuple[str, ...]]:
    for reason in reasons:
        if not reason.meaning.startswith(_OTHER_PREFIXES):
            yield code(reason.value), "True", reason.description
        elif reason.meaning.startswith(_PRESSURE_PREFIX):
            status, _, meaning = reason.meaning.removeprefix(_PRESSURE_PREFIX).partition(", ")
            yield code(reason.value), status, _capitalize(meaning)


def _event_rows(by_title: dict[str, list[ReasonUse]]) -> Iterator[tuple[str, ...]]:
    yield (
        code("NodeChosen"),
        "Normal",
        "GPUInfo",
        "Another node is selected, or none (`NoneAvailable`).",
    )
    for reason in (reason for reasons in by_title.values() for reason in reasons):
        for type, prefix in _EVENT_PREFIXES.items():
            if reason.meaning.startswith(prefix):
                subject, _, meaning = reason.meaning.removeprefix(prefix).partition(": ")
                kind = subject.rpartition(" ")[2]
                yield code(reason.value), type, kind, _capitalize(meaning)


def _capitalize(text: str, prefix: str = "") -> str:
    text = text.removeprefix(prefix)
    return text[:1].upper() + text[1:]


def render() -> str:
    by_title = reasons_by_title()
    columns = ("reason", "Ready", "meaning", "retried")
    parts = [
        _INTRODUCTION,
        "## Conditions",
        table(
            ("type", "kinds", "True means that"),
            ((code(name), kinds, meaning) for name, kinds, meaning in _CONDITIONS),
        ),
        "## Reasons of Ready that every kind has",
        table(columns, _runtime_rows()),
        _API_ERRORS_TEXT,
    ]
    for title, reasons in by_title.items():
        if title not in ("VmGroup", _NODE_TITLE):
            parts += [f"## {title}", table(columns, _ready_rows(reasons))]
    rejections = ", ".join(code(rejection.value) for rejection in Rejection)
    parts += [
        "## VmGroup",
        _VMGROUP_TEXT,
        table(("reason", "meaning"), _vmgroup_rows(by_title["VmGroup"])),
        f"## {PLANS_KNOWN} of GPUInfo",
        table(("reason", "status", "meaning"), _plans_known_rows(by_title["GPUInfo"])),
        f"## {_NODE_TITLE}",
        _NODE_TEXT,
        table(("reason", "status", "meaning"), _host_pressure_rows(by_title[_NODE_TITLE])),
        "## Why a node is rejected, in `status.refused` of GPUInfo",
        f"A node is counted under the first of these that applies: {rejections}.",
        "## Events",
        _EVENTS_TEXT,
        table(("reason", "type", "object", "meaning"), _event_rows(by_title)),
    ]
    return page("Conditions, reasons and Events", *parts)
