"""The page of conditions, their reasons, and Events: from the calls in the code that say them."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from itertools import pairwise

from kubewright.controller import Done
from kubewright.errors import Retry
from kubewright.status import READY_CONDITION
from vsphere_operators.kinds.gpuinfo.rules import Rejection
from vsphere_operators.kinds.gpuinfo.types import PLANS_KNOWN
from vsphere_operators.kinds.vmgroup.messages import FAULT_ADVICE
from vsphere_operators.vcenters.registry import UNAVAILABLE_REASONS

from . import ROOT
from .page import code, page, table
from .source_messages import CallSignature, ReasonMessage, find_messages

APPLICATION_PACKAGE, RUNTIME_PACKAGE = "src/vsphere_operators", "packages/kubewright/src/kubewright"
SHARED_TITLE = "All kinds that need a vCenter"
OTHER_PREFIXES = {"vcenters/": SHARED_TITLE}
"""Packages in addition to those of the kinds that raise reasons."""
CALL_SIGNATURES = {
    "Terminal": CallSignature(0, 1),
    "Retry": CallSignature("reason", 0),
    "Done": CallSignature(0, 1),
}
READY_STATUS = {"Terminal": "False", "Retry": "False", "Done": "True"}
RETRY_TEXTS = {
    "Terminal": "when something changes",
    "Retry": "by itself, after a while",
    "Done": "",
}
# Reasons that a function or a table chooses, with the call that reports them.
COMPUTED_REASONS = {
    "NodeChosen": "Done",
    "NoneAvailable": "Done",
    "VMDisconnected": "Terminal",
    "VMInaccessible": "Terminal",
    "VMInvalid": "Terminal",
    "VMOrphaned": "Terminal",
}
# How docstrings of reasons begin that are not of the Ready condition.
OTHER_REASON_PREFIXES = (f"{PLANS_KNOWN}: ", "Progressing: ", "Degraded: ", "Event on ")
REASON_PATTERN = re.compile(r"[A-Z][A-Za-z]+")
PLACEHOLDER_PATTERN = re.compile(r"\{[^}]*\}")
REASON_EXPLANATIONS = {
    "HostNotFound": "vCenter has no host of that name; the message has the names that are near it",
    "VMNotFound": "vCenter has no VM of that name; the message has the names that are near it",
    "DiskNotFound": "there is no such First Class Disk; the message says where nobody could look",
    "HostAmbiguous": "several hosts have that name; the message has all their inventory paths",
    "VMAmbiguous": "several VMs have that name; the message has all their inventory paths",
    "DiskAmbiguous": "several disks have that name; the message has all of them",
    "VCenterAmbiguous": "two vCenters claim the namespace in the same way; the message names both",
    "TimedOut": "the reconcile took longer than it may, or a call in it did",
    "Error": "an exception that nobody meant to raise; the log has its trace",
}
"""What is meant where the words come from elsewhere."""
CONDITIONS = (
    (
        READY_CONDITION,
        "all",
        "the answer in the status is current. What it says when it is not: the tables below",
    ),
    (PLANS_KNOWN, "GPUInfo", "all that is planned for hosts and nodes could be read"),
    ("Progressing", "VmGroup", "work is under way; `Working`, `Paused` or `Idle`"),
    (
        "Degraded",
        "VmGroup",
        "there are fewer ready replicas than asked for, and waiting does not help; `TooFewReady` or `NotInError`",
    ),
)
INTRODUCTION = """
Every kind has `status.conditions` as Kubernetes has them (`type`, `status`, `reason`, `message`, `observedGeneration`), and
`status.observedGeneration`. Programs read the reason, people the message. What stands in braces below is filled in. `kubectl wait
--for=condition=Ready` works with all of them.
"""
EVENTS_TEXT = """
An Event is made when Ready turns False, or is False for another reason (Warning), and when it is True again (Normal); its reason is
that of the condition. A first success is no news. Work under way of a VmGroup makes none. The same Event within ten minutes counts up
the one that is there; an object may say 25 new things at once, and one more every 5 minutes. These are made beside them:
"""
API_ERRORS_TEXT = """
Any other error of Kubernetes has its own name as the reason, such as `Forbidden`: [errors](errors.md).
"""


def titles_by_prefix() -> dict[str, str]:
    """The kind whose reasons a module or package raises, by the beginning of the module's path."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["kubewright"]
    kinds = [resource["path"].split(".")[2].split(":")[0] for resource in project["resources"]]
    names = [resource["kind"] for resource in project["resources"]]
    return {
        f"kinds/{module}": kind for module, kind in zip(kinds, names, strict=True)
    } | OTHER_PREFIXES


def title_of(module: str) -> str:
    """The heading under which a module's reasons stand, "" for none."""
    return next(
        (title for prefix, title in titles_by_prefix().items() if module.startswith(prefix)), ""
    )


def check_all_reasons_listed() -> None:
    """Refuse a reason that no table would show."""
    for each in find_messages(APPLICATION_PACKAGE, CALL_SIGNATURES):
        if REASON_PATTERN.fullmatch(each.reason) and not title_of(each.module):
            raise ValueError(
                f"{each.module} says {each.reason}, and no table shows it: "
                "name its kind in OTHER_PREFIXES"
            )


def expand_reasons(each: ReasonMessage) -> list[ReasonMessage]:
    """A reason that is put together when it is said, as all that it can be."""
    if each.reason.startswith("{what}"):
        return [
            replace(each, reason=each.reason.replace("{what}", thing))
            for thing in ("Host", "VM", "Disk")
        ]
    if " or " in each.reason:
        return [replace(each, reason=reason) for reason in each.reason.split(" or ")]
    return [each]


def with_explanation(each: ReasonMessage) -> ReasonMessage:
    """The same with words that mean something by themselves; a reason without any has to be explained here."""
    if len(PLACEHOLDER_PATTERN.sub("", each.message).split()) > 2:
        return each
    if each.reason not in REASON_EXPLANATIONS:
        raise ValueError(
            f"{each.module} says {each.reason} with words from elsewhere: explain it in PASSED_ON"
        )
    return replace(each, message=REASON_EXPLANATIONS[each.reason])


def unique_messages(found: Iterable[ReasonMessage]) -> Iterator[ReasonMessage]:
    """Each reason once for each wording, without those that only pass on a reason."""
    seen = set[tuple[str, str]]()
    for each in (
        with_explanation(one)
        for saying in found
        for one in expand_reasons(saying)
        if REASON_PATTERN.fullmatch(one.reason)
    ):
        if (each.reason, each.message) not in seen:
            seen.add((each.reason, each.message))
            yield each


def ready_rows(title: str) -> Iterator[tuple[str, ...]]:
    """The reasons of one kind."""
    found = [
        each
        for each in find_messages(APPLICATION_PACKAGE, CALL_SIGNATURES)
        if title_of(each.module) == title
    ]
    callees = {each.reason: each.callee for each in found}
    docstrings = reason_docstrings(title)
    for reason, docstring in docstrings.items():
        if not docstring.startswith(OTHER_REASON_PREFIXES):
            callee = callees.get(reason) or COMPUTED_REASONS[reason]
            yield code(reason), READY_STATUS[callee], docstring, RETRY_TEXTS[callee]
    for each in unique_messages(each for each in found if each.reason not in docstrings):
        yield code(each.reason), READY_STATUS[each.callee], each.message, RETRY_TEXTS[each.callee]
    if title == SHARED_TITLE:
        for reason in (*UNAVAILABLE_REASONS.values(), "VCenterUnreachable"):
            yield (
                code(reason),
                "False",
                "the words of the error, and until when what is shown was true",
                RETRY_TEXTS["Retry"],
            )


def reason_docstrings(title: str) -> dict[str, str]:
    """The members of a kind's Reason, each with the docstring below it."""
    module = next((module for module, kind in titles_by_prefix().items() if kind == title), "")
    if not module.startswith("kinds/"):
        return {}
    enum = getattr(import_module(f"vsphere_operators.{module.replace('/', '.')}"), "Reason", None)
    if enum is None:
        return {}
    body = ast.parse(inspect.getsource(enum)).body[0].body  # type: ignore[attr-defined]
    docstrings = dict[str, str]()
    for pair in pairwise(body):
        match pair:
            case (
                ast.Assign(value=ast.Constant(value=reason)),
                ast.Expr(value=ast.Constant(value=str() as docstring)),
            ):
                docstrings[str(reason)] = " ".join(docstring.split())
    return docstrings


def runtime_rows() -> Iterator[tuple[str, ...]]:
    """The reasons that every kind can have."""
    yield code(Done().reason), "True", "", ""
    yield (
        code(Retry("", after=0).reason),
        "False",
        "what passes by itself, where the kind gives no reason of its own",
        RETRY_TEXTS["Retry"],
    )
    found = (
        each
        for each in find_messages(RUNTIME_PACKAGE, {"ready_condition": CallSignature(1, 2)})
        if each.reason != Done().reason
    )
    for each in unique_messages(found):
        yield (
            code(each.reason),
            "False",
            each.message,
            "when the object changes" if each.module == "status" else "with back-off",
        )


def group_rows() -> Iterator[tuple[str, ...]]:
    """The reasons of Ready of a VmGroup, with the advice for each fault of vCenter."""
    advice: dict[str, list[str]] = {}
    for fault, (fault_reason, text) in FAULT_ADVICE.items():
        advice.setdefault(fault_reason, []).append(
            f"{code(fault)}: {text}." if text else code(fault)
        )
    for reason, docstring in reason_docstrings("VmGroup").items():
        if not docstring.startswith(OTHER_REASON_PREFIXES):
            yield code(reason), " ".join([docstring, *advice.get(reason, [])])


def plans_known_rows() -> Iterator[tuple[str, ...]]:
    """The reasons of PlansKnown."""
    prefix = f"{PLANS_KNOWN}: "
    for reason, docstring in reason_docstrings("GPUInfo").items():
        if docstring.startswith(prefix):
            status = "True" if reason in ("AllRead", "Simulated") else "False"
            yield code(reason), status, docstring.removeprefix(prefix)


def event_rows() -> Iterator[tuple[str, ...]]:
    """Events that no condition goes with."""
    yield (
        code("NodeChosen"),
        "Normal",
        "GPUInfo",
        "another node, or none (`NoneAvailable`), was selected",
    )
    docstrings = reason_docstrings("VmGroup") | reason_docstrings("GPUInfo")
    for reason, docstring in docstrings.items():
        if event := re.fullmatch(r"Event on [^:]*?(\w+): (.*)", docstring, re.DOTALL):
            yield code(reason), "Warning", event[1], event[2]


def render() -> str:
    """The page."""
    check_all_reasons_listed()
    head = ("reason", "Ready", "message", "tried again")
    parts = [
        INTRODUCTION,
        "## Conditions",
        table(
            ("type", "kinds", "True means that"),
            ((code(name), *rest) for name, *rest in CONDITIONS),
        ),
    ]
    parts += [
        "## Reasons of Ready that every kind has",
        table(head, runtime_rows()),
        API_ERRORS_TEXT,
    ]
    for title in dict.fromkeys(titles_by_prefix().values()):
        if title == "VmGroup":
            continue
        parts += [f"## {title}", table(head, ready_rows(title))]
    parts += [
        "## VmGroup",
        "Ready is False and the phase ERROR; the message is also `status.lastMessage`. In phase PENDING the reason is `Progressing`.",
    ]
    parts += [
        table(("reason", "message"), group_rows()),
        f"## {PLANS_KNOWN} of GPUInfo",
        table(("reason", "status", "message"), plans_known_rows()),
    ]
    refusals = ", ".join(code(each.value) for each in Rejection)
    parts += [
        "## Why a node is refused, in `status.refused` of GPUInfo",
        f"A node is counted under the first of these that holds: {refusals}.",
    ]
    parts += ["## Events", EVENTS_TEXT, table(("reason", "type", "on", "words"), event_rows())]
    return page("Conditions, reasons and Events", *parts)
