"""`describe group NAME`: a VmGroup with its VMs, conditions and Events. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from kubewright import Condition
from kubewright.builtin import Event

from ..console import Style
from ..kinds.vmgroup.placement import placement_names
from ..kinds.vmgroup.types import ReplicaStatus, VmGroup
from .table import Cell, Columns, Table, build_table, render_field, render_table

PHASE_STYLES: dict[str, Style] = {"RUNNING": "good", "PENDING": "busy", "ERROR": "bad"}
_POWER_STYLES: dict[str, Style] = {"poweredOn": "good", "": ""}
_MAX_EVENTS = 20


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
        columns: Columns[Condition] = {
            "CONDITION": lambda condition: condition.type,
            "STATUS": lambda condition: condition.status,
            "REASON": lambda condition: condition.reason,
            "MESSAGE": lambda condition: condition.message,
        }
        table = build_table(conditions, columns, wrap_last_column=True)
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
    # Optional in the original operator's CRD: absent before the first reconcile.
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
    columns: Columns[ReplicaStatus] = {
        "VM": lambda replica: replica.name,
        "STATE": _describe_state,
        "POWER": lambda replica: Cell(replica.power, _POWER_STYLES.get(replica.power, "bad")),
        "ADDRESS": lambda replica: replica.ipAddress,
        "HOST": lambda replica: replica.host,
    }
    wide_columns: Columns[ReplicaStatus] = {
        "SLOT": lambda replica: str(replica.slot),
        "ATTEMPT": lambda replica: str(replica.attempt),
        "MOREF": lambda replica: replica.moRef,
        "INSTANCE UUID": lambda replica: replica.instanceUUID,
    }
    ordered = sorted(replicas, key=lambda replica: replica.slot)
    return build_table(ordered, {**columns, **wide_columns} if wide else columns)


def _describe_state(replica: ReplicaStatus) -> str:
    progress = "" if replica.progress is None else f" {replica.progress} %"
    return "terminating" if replica.leaving else f"{replica.state}{progress}"


def _event_table(events: Sequence[Event]) -> Table:
    """The newest Events, the last one at the end."""
    columns: Columns[Event] = {
        "LAST SEEN": lambda event: f"{_event_time(event):%H:%M:%S}",
        "COUNT": lambda event: str(max(1, event.count)),
        "TYPE": lambda event: Cell(event.type, "bad" if event.type == "Warning" else ""),
        "REASON": lambda event: event.reason,
        "MESSAGE": lambda event: event.message,
    }
    # Kubernetes keeps Events for an hour; a group in trouble may have hundreds. Their times are in
    # seconds: within one, the revision is the order in which they were written.
    newest = sorted(events, key=lambda event: (_event_time(event), event.metadata.revision))
    newest = newest[-_MAX_EVENTS:]
    return build_table(newest, columns, wrap_last_column=True)


def _event_time(event: Event) -> datetime:
    return (
        event.lastTimestamp or event.metadata.creationTimestamp or datetime.min.replace(tzinfo=UTC)
    )
