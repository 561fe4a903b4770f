"""`describe group NAME`: a VmGroup with its VMs, conditions and Events. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from kubewright.builtin import Event

from ..kinds.vmgroup.placement import placement_names
from ..kinds.vmgroup.types import ReplicaStatus, VmGroup
from ..terminal import Style
from .table import Cell, Table, render_field, render_table

PHASE_STYLES: dict[str, Style] = {"RUNNING": "good", "PENDING": "busy", "ERROR": "bad"}
_MAX_EVENTS = 10


def render_group(
    group: VmGroup, events: Sequence[Event], *, wide: bool, width: int, color: bool
) -> Iterator[str]:
    for name, value, style in _overview_fields(group):
        yield render_field(name, value, width=width, style=style, color=color)
    yield ""
    if group.status.replicas:
        table = _replica_table(group.status.replicas, wide=wide)
        yield render_table(table, width=width, color=color)
    else:
        yield "No VMs."
    if conditions := group.status.conditions:
        rows = tuple(
            tuple(map(Cell, (item.type, item.status, item.reason, item.message)))
            for item in conditions
        )
        columns = ("CONDITION", "STATUS", "REASON", "MESSAGE")
        table = Table(columns=columns, rows=rows, wrap_last_column=True)
        yield ""
        yield render_table(table, width=width, color=color)
    if events:
        yield ""
        yield render_table(_event_table(events), width=width, color=color)


def _overview_fields(group: VmGroup) -> Iterator[tuple[str, str, Style]]:
    spec, status = group.spec, group.status
    yield "Group", f"{group.metadata.namespace}/{group.metadata.name}", "head"
    yield "Phase", status.phase or "not reconciled yet", PHASE_STYLES.get(status.phase, "")
    yield "Message", status.lastMessage, ""
    # currentReplicas is optional in the contract: absent before the first reconcile.
    total = status.currentReplicas if status.currentReplicas is not None else "?"
    replicas = (
        f"{spec.replicas} desired | {status.updatedReplicas} updated | {total} total | "
        f"{status.readyReplicas} ready"
    )
    yield "Replicas", replicas, "good" if status.readyReplicas == spec.replicas else "busy"
    yield "Size", f"{spec.cpu} CPU, {spec.memory} GB", ""
    yield "Template", spec.template, ""
    yield "Power", spec.powerState, ""
    placement = (
        f"{field} {name}" for field, name in placement_names(spec.placement).items() if name
    )
    yield "Placement", ", ".join(placement) or "defaults of the vCenter", ""
    yield "Folder", status.folder.path if status.folder else "not created yet", ""
    yield "vCenter", status.vcenter or "unknown", ""
    if group.metadata.deletionTimestamp is not None:
        yield "Deleting", f"since {group.metadata.deletionTimestamp:%Y-%m-%d %H:%M:%S}", "bad"


def _replica_table(replicas: Sequence[ReplicaStatus], *, wide: bool) -> Table:
    columns = ("VM", "STATE", "POWER", "ADDRESS", "HOST")
    more = ("SLOT", "ATTEMPT", "MOREF", "INSTANCE UUID")
    rows = []
    for replica in sorted(replicas, key=lambda replica: replica.slot):
        progress = "" if replica.progress is None else f" {replica.progress} %"
        state = "terminating" if replica.leaving else f"{replica.state}{progress}"
        power: Style = "good" if replica.power == "poweredOn" else "bad" if replica.power else ""
        cells: tuple[Cell, ...] = (
            Cell(replica.name),
            Cell(state),
            Cell(replica.power, power),
            Cell(replica.ipAddress),
            Cell(replica.host),
        )
        if wide:
            cells += (
                Cell(str(replica.slot)),
                Cell(str(replica.attempt)),
                Cell(replica.moRef),
                Cell(replica.instanceUUID),
            )
        rows.append(cells)
    return Table(columns=columns + more if wide else columns, rows=tuple(rows))


def _event_table(events: Sequence[Event]) -> Table:
    """The newest Events, the last one at the end."""
    # Kubernetes keeps Events for an hour; a group in trouble may have hundreds.
    newest = sorted(events, key=_event_time)[-_MAX_EVENTS:]
    rows = tuple(
        (
            Cell(f"{_event_time(event):%H:%M:%S}"),
            Cell(event.type, "bad" if event.type == "Warning" else ""),
            Cell(event.reason),
            Cell(event.message),
        )
        for event in newest
    )
    return Table(
        columns=("LAST SEEN", "TYPE", "REASON", "MESSAGE"), rows=rows, wrap_last_column=True
    )


def _event_time(event: Event) -> datetime:
    return (
        event.lastTimestamp or event.metadata.creationTimestamp or datetime.min.replace(tzinfo=UTC)
    )
