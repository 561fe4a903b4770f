"""`describe group NAME`: a VmGroup with its VMs, conditions and events. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from kubewright.builtin import Event

from ..kinds.vmgroup.types import ReplicaStatus, VmGroup
from .table import Cell, Style, Table, render_field, render_table

PHASE_STYLES: dict[str, Style] = {"RUNNING": "good", "PENDING": "busy", "ERROR": "bad"}
_MAX_EVENTS = 10


def render_group(
    group: VmGroup, events: Sequence[Event], *, wide: bool, width: int, color: bool
) -> Iterator[str]:
    """All of it, in lines."""
    for name, value, tone in _overview_fields(group):
        yield render_field(name, value, width=width, style=tone, color=color)
    yield ""
    if group.status.replicas:
        yield render_table(
            _replica_table(group.status.replicas, wide=wide), width=width, color=color
        )
    else:
        yield "It has no VMs."
    if conditions := group.status.conditions:
        yield ""
        rows = tuple(
            (Cell(each.type), Cell(each.status), Cell(each.reason), Cell(each.message))
            for each in conditions
        )
        yield render_table(
            Table(
                columns=("CONDITION", "STATUS", "REASON", "MESSAGE"),
                rows=rows,
                wrap_last_column=True,
            ),
            width=width,
            color=color,
        )
    if events:
        yield ""
        yield render_table(_event_table(events), width=width, color=color)


def _overview_fields(group: VmGroup) -> Iterator[tuple[str, str, Style]]:
    """What is asked for, and how it stands."""
    spec, status = group.spec, group.status
    yield "Group", f"{group.metadata.namespace}/{group.metadata.name}", "head"
    yield "Phase", status.phase or "not seen by a manager yet", PHASE_STYLES.get(status.phase, "")
    yield "Message", status.lastMessage, ""
    current = status.currentReplicas if status.currentReplicas is not None else "?"
    counts = f"{status.readyReplicas} ready, {status.updatedReplicas} up to date, {current} there, {spec.replicas} wanted"
    yield "Replicas", counts, "good" if status.readyReplicas == spec.replicas else "busy"
    yield (
        "Each",
        f"{spec.cpu} CPU, {spec.memory} GB, from template {spec.template}, kept {spec.powerState}",
        "",
    )
    yield (
        "Place",
        ", ".join(f"{field} {value}" for field, value in spec.requested_placement.items() if value)
        or "the vCenter's defaults",
        "",
    )
    yield "Folder", status.folder.path if status.folder else "none yet", ""
    yield "vCenter", status.vcenter or "not known", ""
    if group.deleting:
        yield "Deletion", f"since {group.metadata.deletionTimestamp:%Y-%m-%d %H:%M:%S}", "bad"


def _replica_table(found: Sequence[ReplicaStatus], *, wide: bool) -> Table:
    """The VMs."""
    columns = ("VM", "STATE", "POWER", "ADDRESS", "HOST")
    more = ("SLOT", "ATTEMPT", "MOREF", "INSTANCE UUID")
    rows = []
    for each in sorted(found, key=lambda replica: replica.slot):
        state = (
            "leaving"
            if each.leaving
            else each.state + (f" {each.progress} %" if each.progress is not None else "")
        )
        cells = (
            Cell(each.name),
            Cell(state),
            _power_cell(each.power),
            Cell(each.ipAddress),
            Cell(each.host),
        )
        extra = (
            Cell(str(each.slot)),
            Cell(str(each.attempt)),
            Cell(each.moRef),
            Cell(each.instanceUUID),
        )
        rows.append(cells + extra if wide else cells)
    return Table(columns=columns + more if wide else columns, rows=tuple(rows))


def _power_cell(state: str) -> Cell:
    """On is good."""
    return Cell(state, "good" if state == "poweredOn" else "bad" if state else "")


def _event_table(events: Sequence[Event]) -> Table:
    """The newest events, the last at the end."""
    newest = sorted(events, key=event_time)[-_MAX_EVENTS:]
    rows = tuple(
        (
            Cell(f"{event_time(each):%H:%M:%S}"),
            Cell(each.type, _event_style(each)),
            Cell(each.reason),
            Cell(each.message),
        )
        for each in newest
    )
    return Table(columns=("WHEN", "TYPE", "REASON", "MESSAGE"), rows=rows, wrap_last_column=True)


def event_time(event: Event) -> datetime:
    """When it was last seen."""
    return (
        event.lastTimestamp or event.metadata.creationTimestamp or datetime.min.replace(tzinfo=UTC)
    )


def _event_style(event: Event) -> Style:
    """Warnings stand out."""
    return "bad" if event.type == "Warning" else ""
