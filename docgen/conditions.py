"""The page of conditions, their reasons, and Events: from the calls in the code that say them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import replace

from kubewright.controller import Done
from kubewright.errors import Retry
from kubewright.outcome import READY_CONDITION
from vsphere_operators.kinds.gpuinfo.controller import PLANS_KNOWN
from vsphere_operators.kinds.gpuinfo.rules import Rejection
from vsphere_operators.kinds.vmgroup.failures import FAULT_ADVICE
from vsphere_operators.kinds.vmgroup.placement import PLACEMENT_FIELDS
from vsphere_operators.kinds.vminfo import UNAVAILABLE_STATES
from vsphere_operators.vcenters.registry import UNAVAILABLE_REASONS

from . import ROOT
from .page import code, page, table
from .said import CallSignature, ReasonMessage, find_messages, find_returned_messages

APPLICATION_PACKAGE, RUNTIME_PACKAGE = "src/vsphere_operators", "packages/kubewright/src/kubewright"
VMGROUP_MODULES = ("vmgroup/", "kinds/vmgroup")
SHARED_TITLE = "All kinds that need a vCenter"
OTHER_MODULE_TITLES = {"almanac": "GPUInfo", "vcenters": SHARED_TITLE}
"""Modules beside those of the kinds that say something, and whose reasons these are."""
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
    "VCenterChanged": "the VMs of the group are in another vCenter than the one that serves its namespace now; nothing is done in either",
    "PlacementNotAllowed": "the namespace may not use what spec.placement names, or what follows from it; the message has what is allowed",
    "TemplateAmbiguous": "several templates have that name; the message has all their paths",
    "TemplateNotFound": "there is no such template that the namespace may use; the message says where it looked, and which names are near",
    "FolderTaken": "the folder of that name belongs to another group; the message names it",
    "QuotaExceeded": "the groups of the namespace together ask for more than its quota; the message has the numbers",
    "NoneAvailable": "none of the nodes suits; the message counts them by why not",
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


def titles_by_module() -> dict[str, str]:
    """Whose reasons a module says; each kind of the project has a module of its own."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["kubewright"]
    paths = [
        each["path"].removeprefix("vsphere_operators.").replace(".", "/").partition(":")
        for each in project["resources"]
    ]
    return {
        module: kind for module, _, kind in paths if module not in VMGROUP_MODULES
    } | OTHER_MODULE_TITLES


def check_all_reasons_listed() -> None:
    """Refuse a reason that no table would show."""
    places = titles_by_module()
    for each in find_messages(APPLICATION_PACKAGE, CALL_SIGNATURES):
        if (
            REASON_PATTERN.fullmatch(each.reason)
            and each.module not in places
            and not each.module.startswith(VMGROUP_MODULES)
        ):
            raise ValueError(
                f"{each.module} says {each.reason}, and no table shows it: name its kind in ELSEWHERE"
            )


def expand_reasons(each: ReasonMessage) -> list[ReasonMessage]:
    """A reason that is put together when it is said, as all that it can be."""
    if each.reason.startswith("{what}"):
        return [
            replace(each, reason=each.reason.replace("{what}", thing))
            for thing in ("Host", "VM", "Disk")
        ]
    if each.reason.startswith("VM{"):
        return [
            replace(
                each, reason=f"VM{how.capitalize()}", message=each.message.replace("{why}", why)
            )
            for how, why in UNAVAILABLE_STATES.items()
        ]
    if each.callee == "Obstacle" and each.reason.startswith("{...}"):
        end = "NotFound" if each.reason.endswith("NotFound") else "Ambiguous"
        places = [field for field in PLACEMENT_FIELDS if field != "folder"]
        return [
            replace(
                each,
                reason=f"{field[0].upper()}{field[1:]}{end}",
                message=each.message.replace("{field}", field),
            )
            for field in places
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
    places = titles_by_module()
    found = [
        each
        for each in find_messages(APPLICATION_PACKAGE, CALL_SIGNATURES)
        if places.get(each.module) == title
    ]
    if title == "GPUInfo":
        found += [
            replace(each, callee="Done")
            for each in find_returned_messages(APPLICATION_PACKAGE, "kinds/gpuinfo.py", "words_for")
        ]
    for each in unique_messages(found):
        yield code(each.reason), READY_STATUS[each.callee], each.message, RETRY_TEXTS[each.callee]
    if title == SHARED_TITLE:
        for reason in (*UNAVAILABLE_REASONS.values(), "VCenterUnreachable"):
            yield (
                code(reason),
                "False",
                "the words of the error, and until when what is shown was true",
                RETRY_TEXTS["Retry"],
            )


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
        for each in find_messages(RUNTIME_PACKAGE, {"ready": CallSignature(1, 2)})
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
    """The reasons of a VmGroup in phase ERROR."""
    own = [
        each
        for each in find_messages(
            APPLICATION_PACKAGE, {"Obstacle": CallSignature(0, 1), **CALL_SIGNATURES}
        )
        if each.module.startswith(VMGROUP_MODULES)
    ]
    for each in unique_messages(own):
        yield code(each.reason), each.message
    cures = dict[str, list[str]]()
    for fault, (reason, cure) in FAULT_ADVICE.items():
        cures.setdefault(reason, []).append(f"{fault}: {cure}" if cure else fault)
    for reason, faults in cures.items():
        yield code(reason), f"vCenter refused an operation with this fault. {'. '.join(faults)}"
    yield (
        code("NeedsAttention"),
        "see the message: an operation failed in a way that has no reason of its own",
    )


def plans_known_rows() -> Iterator[tuple[str, ...]]:
    """The reasons of PlansKnown."""
    yield code("Simulated"), "True", "hours are simulated, nothing planned is read"
    for each in find_returned_messages(APPLICATION_PACKAGE, "kinds/gpuinfo.py", "unread_plans"):
        holds, words = (
            ("True", "")
            if each.reason == "AllRead"
            else ("False", "the words say what cannot be read, and why")
        )
        yield code(each.reason), holds, words


def event_rows() -> Iterator[tuple[str, ...]]:
    """Events that no condition goes with."""
    yield (
        code("NodeChosen"),
        "Normal",
        "GPUInfo",
        "the answer of a GPUInfo moved to another node; also `NoneAvailable`",
    )
    for each in find_messages(APPLICATION_PACKAGE, {"warn": CallSignature(0, 1)}):
        if REASON_PATTERN.fullmatch(each.reason):
            yield code(each.reason), "Warning", "VmGroup", each.message
    for each in find_messages(APPLICATION_PACKAGE, {"complain": CallSignature(1, 2)}):
        if REASON_PATTERN.fullmatch(each.reason):
            yield (
                code(each.reason),
                "Warning",
                "ConfigMap",
                "a line of the calendar cannot be used; the words name it. The others count",
            )
    for each in unique_messages(
        find_returned_messages(APPLICATION_PACKAGE, "facts.py", "complaints")
    ):
        yield code(each.reason), "Warning", "Node", each.message
    for each in unique_messages(
        find_returned_messages(APPLICATION_PACKAGE, "labelling.py", "words_for")
    ):
        yield (
            code(each.reason),
            "Warning",
            "Node" if each.reason == "LabelLeft" else "GPUInfo",
            each.message,
        )


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
    for title in dict.fromkeys(titles_by_module().values()):
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
