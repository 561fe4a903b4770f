"""`describe group NAME`: a VmGroup with its VMs, conditions and events. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from kubewright.builtin import Event

from ..kinds.vmgroup.controller import VmGroup
from ..kinds.vmgroup.types import ReplicaStatus
from .table import Cell, Table, Tone, drawn, field

PHASES: dict[str, Tone] = {"RUNNING": "good", "PENDING": "busy", "ERROR": "bad"}
NEWEST = 10


def description(group: VmGroup, events: Sequence[Event], *, wide: bool, width: int, colour: bool) -> Iterator[str]:
    """All of it, in lines."""
    for name, value, tone in facts(group):
        yield field(name, value, width=width, tone=tone, colour=colour)
    yield ""
    if group.status.replicas:
        yield drawn(replicas(group.status.replicas, wide=wide), width=width, colour=colour)
    else:
        yield "It has no VMs."
    if conditions := group.status.conditions:
        yield ""
        rows = tuple((Cell(each.type), Cell(each.status), Cell(each.reason), Cell(each.message)) for each in conditions)
        yield drawn(Table(columns=("CONDITION", "STATUS", "REASON", "MESSAGE"), rows=rows, wraps=True), width=width, colour=colour)
    if events:
        yield ""
        yield drawn(history(events), width=width, colour=colour)


def facts(group: VmGroup) -> Iterator[tuple[str, str, Tone]]:
    """What is asked for, and how it stands."""
    spec, status = group.spec, group.status
    yield "Group", f"{group.metadata.namespace}/{group.metadata.name}", "head"
    yield "Phase", status.phase or "not seen by a manager yet", PHASES.get(status.phase, "")
    yield "Message", status.lastMessage, ""
    current = status.currentReplicas if status.currentReplicas is not None else "?"
    counts = f"{status.readyReplicas} ready, {status.updatedReplicas} up to date, {current} there, {spec.replicas} wanted"
    yield "Replicas", counts, "good" if status.readyReplicas == spec.replicas else "busy"
    yield "Each", f"{spec.cpu} CPU, {spec.memory} GB, from template {spec.template}, kept {spec.powerState}", ""
    yield (
        "Place",
        ", ".join(f"{field} {value}" for field, value in spec.requested_placement.items() if value) or "the vCenter's defaults",
        "",
    )
    yield "Folder", status.folder.path if status.folder else "none yet", ""
    yield "vCenter", status.vcenter or "not known", ""
    if group.deleting:
        yield "Deletion", f"since {group.metadata.deletionTimestamp:%Y-%m-%d %H:%M:%S}", "bad"


def replicas(found: Sequence[ReplicaStatus], *, wide: bool) -> Table:
    """The VMs."""
    columns = ("VM", "STATE", "POWER", "ADDRESS", "HOST")
    more = ("SLOT", "ATTEMPT", "MOREF", "INSTANCE UUID")
    rows = []
    for each in sorted(found, key=lambda replica: replica.slot):
        state = "leaving" if each.leaving else each.state + (f" {each.progress} %" if each.progress is not None else "")
        cells = (Cell(each.name), Cell(state), power(each.power), Cell(each.ipAddress), Cell(each.host))
        extra = (Cell(str(each.slot)), Cell(str(each.attempt)), Cell(each.moRef), Cell(each.instanceUUID))
        rows.append(cells + extra if wide else cells)
    return Table(columns=columns + more if wide else columns, rows=tuple(rows))


def power(state: str) -> Cell:
    """On is good."""
    return Cell(state, "good" if state == "poweredOn" else "bad" if state else "")


def history(events: Sequence[Event]) -> Table:
    """The newest events, the last at the end."""
    newest = sorted(events, key=moment)[-NEWEST:]
    rows = tuple(
        (Cell(f"{moment(each):%H:%M:%S}"), Cell(each.type, tone_of(each)), Cell(each.reason), Cell(each.message)) for each in newest
    )
    return Table(columns=("WHEN", "TYPE", "REASON", "MESSAGE"), rows=rows, wraps=True)


def moment(event: Event) -> datetime:
    """When it was last seen."""
    return event.lastTimestamp or event.metadata.creationTimestamp or datetime.min.replace(tzinfo=UTC)


def tone_of(event: Event) -> Tone:
    """Warnings stand out."""
    return "bad" if event.type == "Warning" else ""
