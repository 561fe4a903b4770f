"""The page of conditions, their reasons, and Events: from the calls in the code that say them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import replace

from kubewright.controller import Done
from kubewright.errors import Retry
from kubewright.outcome import READY
from vsphere_operators.kinds.gpuinfo.controller import PLANS_KNOWN
from vsphere_operators.kinds.gpuinfo.rules import Rejection
from vsphere_operators.kinds.vmgroup.failures import FAULT_ADVICE
from vsphere_operators.kinds.vmgroup.placement import PLACEMENT_FIELDS
from vsphere_operators.kinds.vminfo import UNAVAILABLE_STATES
from vsphere_operators.vcenters.registry import REASONS

from . import ROOT
from .page import code, page, table
from .said import Saying, Words, returned, said

APPLICATION, RUNTIME = "src/vsphere_operators", "packages/kubewright/src/kubewright"
GROUPS = ("vmgroup/", "kinds/vmgroup")
SHARED = "All kinds that need a vCenter"
ELSEWHERE = {"almanac": "GPUInfo", "vcenters": SHARED}
"""Modules beside those of the kinds that say something, and whose reasons these are."""
FORMS = {"Terminal": Words(0, 1), "Retry": Words("reason", 0), "Done": Words(0, 1)}
READY_IS = {"Terminal": "False", "Retry": "False", "Done": "True"}
AGAIN = {"Terminal": "when something changes", "Retry": "by itself, after a while", "Done": ""}
SIMPLE = re.compile(r"[A-Z][A-Za-z]+")
FILLED_IN = re.compile(r"\{[^}]*\}")
PASSED_ON = {
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
    (READY, "all", "the answer in the status is current. What it says when it is not: the tables below"),
    (PLANS_KNOWN, "GPUInfo", "all that is planned for hosts and nodes could be read"),
    ("Progressing", "VmGroup", "work is under way; `Working`, `Paused` or `Idle`"),
    ("Degraded", "VmGroup", "there are fewer ready replicas than asked for, and waiting does not help; `TooFewReady` or `NotInError`"),
)
INTRODUCTION = """
Every kind has `status.conditions` as Kubernetes has them (`type`, `status`, `reason`, `message`, `observedGeneration`), and
`status.observedGeneration`. Programs read the reason, people the message. What stands in braces below is filled in. `kubectl wait
--for=condition=Ready` works with all of them.
"""
EVENTS = """
An Event is made when Ready turns False, or is False for another reason (Warning), and when it is True again (Normal); its reason is
that of the condition. A first success is no news. Work under way of a VmGroup makes none. The same Event within ten minutes counts up
the one that is there; an object may say 25 new things at once, and one more every 5 minutes. These are made beside them:
"""
DYNAMIC = """
Any other error of Kubernetes has its own name as the reason, such as `Forbidden`: [errors](errors.md).
"""


def titles() -> dict[str, str]:
    """Whose reasons a module says; each kind of the project has a module of its own."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["kubewright"]
    paths = [each["path"].removeprefix("vsphere_operators.").replace(".", "/").partition(":") for each in project["resources"]]
    return {module: kind for module, _, kind in paths if module not in GROUPS} | ELSEWHERE


def check_places() -> None:
    """Refuse a reason that no table would show."""
    places = titles()
    for each in said(APPLICATION, FORMS):
        if SIMPLE.fullmatch(each.reason) and each.where not in places and not each.where.startswith(GROUPS):
            raise ValueError(f"{each.where} says {each.reason}, and no table shows it: name its kind in ELSEWHERE")


def expanded(each: Saying) -> list[Saying]:
    """A reason that is put together when it is said, as all that it can be."""
    if each.reason.startswith("{what}"):
        return [replace(each, reason=each.reason.replace("{what}", thing)) for thing in ("Host", "VM", "Disk")]
    if each.reason.startswith("VM{"):
        return [
            replace(each, reason=f"VM{how.capitalize()}", words=each.words.replace("{why}", why)) for how, why in UNAVAILABLE_STATES.items()
        ]
    if each.callee == "Obstacle" and each.reason.startswith("{...}"):
        end = "NotFound" if each.reason.endswith("NotFound") else "Ambiguous"
        places = [field for field in PLACEMENT_FIELDS if field != "folder"]
        return [replace(each, reason=f"{field[0].upper()}{field[1:]}{end}", words=each.words.replace("{field}", field)) for field in places]
    if " or " in each.reason:
        return [replace(each, reason=reason) for reason in each.reason.split(" or ")]
    return [each]


def meaning(each: Saying) -> Saying:
    """The same with words that mean something by themselves; a reason without any has to be explained here."""
    if len(FILLED_IN.sub("", each.words).split()) > 2:
        return each
    if each.reason not in PASSED_ON:
        raise ValueError(f"{each.where} says {each.reason} with words from elsewhere: explain it in PASSED_ON")
    return replace(each, words=PASSED_ON[each.reason])


def all_of(found: Iterable[Saying]) -> Iterator[Saying]:
    """Each reason once for each wording, without those that only pass on a reason."""
    seen = set[tuple[str, str]]()
    for each in (meaning(one) for saying in found for one in expanded(saying) if SIMPLE.fullmatch(one.reason)):
        if (each.reason, each.words) not in seen:
            seen.add((each.reason, each.words))
            yield each


def ready_rows(title: str) -> Iterator[tuple[str, ...]]:
    """The reasons of one kind."""
    places = titles()
    found = [each for each in said(APPLICATION, FORMS) if places.get(each.where) == title]
    if title == "GPUInfo":
        found += [replace(each, callee="Done") for each in returned(APPLICATION, "kinds/gpuinfo.py", "words_for")]
    for each in all_of(found):
        yield code(each.reason), READY_IS[each.callee], each.words, AGAIN[each.callee]
    if title == SHARED:
        for reason in (*REASONS.values(), "VCenterUnreachable"):
            yield code(reason), "False", "the words of the error, and until when what is shown was true", AGAIN["Retry"]


def runtime_rows() -> Iterator[tuple[str, ...]]:
    """The reasons that every kind can have."""
    yield code(Done().reason), "True", "", ""
    yield code(Retry("", after=0).reason), "False", "what passes by itself, where the kind gives no reason of its own", AGAIN["Retry"]
    found = (each for each in said(RUNTIME, {"ready": Words(1, 2)}) if each.reason != Done().reason)
    for each in all_of(found):
        yield code(each.reason), "False", each.words, "when the object changes" if each.where == "status" else "with back-off"


def group_rows() -> Iterator[tuple[str, ...]]:
    """The reasons of a VmGroup in phase ERROR."""
    own = [each for each in said(APPLICATION, {"Obstacle": Words(0, 1), **FORMS}) if each.where.startswith(GROUPS)]
    for each in all_of(own):
        yield code(each.reason), each.words
    cures = dict[str, list[str]]()
    for fault, (reason, cure) in FAULT_ADVICE.items():
        cures.setdefault(reason, []).append(f"{fault}: {cure}" if cure else fault)
    for reason, faults in cures.items():
        yield code(reason), f"vCenter refused an operation with this fault. {'. '.join(faults)}"
    yield code("NeedsAttention"), "see the message: an operation failed in a way that has no reason of its own"


def plan_rows() -> Iterator[tuple[str, ...]]:
    """The reasons of PlansKnown."""
    yield code("Simulated"), "True", "hours are simulated, nothing planned is read"
    for each in returned(APPLICATION, "kinds/gpuinfo.py", "unread_plans"):
        holds, words = ("True", "") if each.reason == "AllRead" else ("False", "the words say what cannot be read, and why")
        yield code(each.reason), holds, words


def event_rows() -> Iterator[tuple[str, ...]]:
    """Events that no condition goes with."""
    yield code("NodeChosen"), "Normal", "GPUInfo", "the answer of a GPUInfo moved to another node; also `NoneAvailable`"
    for each in said(APPLICATION, {"warn": Words(0, 1)}):
        if SIMPLE.fullmatch(each.reason):
            yield code(each.reason), "Warning", "VmGroup", each.words
    for each in said(APPLICATION, {"complain": Words(1, 2)}):
        if SIMPLE.fullmatch(each.reason):
            yield code(each.reason), "Warning", "ConfigMap", "a line of the calendar cannot be used; the words name it. The others count"
    for each in all_of(returned(APPLICATION, "facts.py", "complaints")):
        yield code(each.reason), "Warning", "Node", each.words
    for each in all_of(returned(APPLICATION, "labelling.py", "words_for")):
        yield code(each.reason), "Warning", "Node" if each.reason == "LabelLeft" else "GPUInfo", each.words


def made() -> str:
    """The page."""
    check_places()
    head = ("reason", "Ready", "message", "tried again")
    parts = [
        INTRODUCTION,
        "## Conditions",
        table(("type", "kinds", "True means that"), ((code(name), *rest) for name, *rest in CONDITIONS)),
    ]
    parts += ["## Reasons of Ready that every kind has", table(head, runtime_rows()), DYNAMIC]
    for title in dict.fromkeys(titles().values()):
        parts += [f"## {title}", table(head, ready_rows(title))]
    parts += [
        "## VmGroup",
        "Ready is False and the phase ERROR; the message is also `status.lastMessage`. In phase PENDING the reason is `Progressing`.",
    ]
    parts += [
        table(("reason", "message"), group_rows()),
        f"## {PLANS_KNOWN} of GPUInfo",
        table(("reason", "status", "message"), plan_rows()),
    ]
    refusals = ", ".join(code(each.value) for each in Rejection)
    parts += [
        "## Why a node is refused, in `status.refused` of GPUInfo",
        f"A node is counted under the first of these that holds: {refusals}.",
    ]
    parts += ["## Events", EVENTS, table(("reason", "type", "on", "words"), event_rows())]
    return page("Conditions, reasons and Events", *parts)
