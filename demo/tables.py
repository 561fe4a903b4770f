"""The objects of each kind as a table of few columns. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from vsphere_operators.kubectl.table import COLUMN_GAP, Cell, Columns, Table, build_table
from vsphere_operators.kubectl.vmgroup import PHASE_STYLES

from .expected import ready_condition
from .snapshot import KIND_PATHS, Object, Snapshot


def build_tables(snapshot: Snapshot) -> dict[str, Table]:
    """One table for each kind that has objects."""
    objects_by_kind: dict[str, list[Object]] = {kind: [] for kind in KIND_PATHS}
    for (kind, _), obj in sorted(snapshot.objects.items()):
        if kind in objects_by_kind:
            objects_by_kind[kind].append(obj)
    tables: dict[str, Table] = {}
    for kind, objects in objects_by_kind.items():
        if objects:
            name_column: Columns[Object] = {kind.upper(): lambda obj: str(obj["metadata"]["name"])}
            tables[kind] = build_table(objects, {**name_column, **TABLE_COLUMNS[kind]})
    return tables


def limit_rows(table: Table, count: int) -> Table:
    """At most `count` rows; the last one counts the rows that are left out."""
    if len(table.rows) <= count:
        return table
    kept = table.rows[: max(count - 1, 0)]
    more = (Cell(f"... {len(table.rows) - len(kept)} more"), *_empty_row(table)[1:])
    return Table(columns=table.columns, rows=(*kept, more))


def _empty_row(table: Table) -> tuple[Cell, ...]:
    return (Cell(""),) * len(table.columns)


def drop_columns(table: Table, width: int, optional: Sequence[str]) -> Table:
    """Drops optional columns, in their order, until the table fits the width."""
    for title in optional:
        if (
            sum(len(cell.text) + COLUMN_GAP for cell in table.lines()[0]) - COLUMN_GAP > width
            and title in table.columns
        ):
            kept = [index for index, column in enumerate(table.columns) if column != title]
            rows = tuple(tuple(row[index] for index in kept) for row in table.rows)
            table = Table(columns=tuple(table.columns[index] for index in kept), rows=rows)
    return table


def _spec_field(name: str) -> Callable[[Object], str]:
    # `spec: {}` and no spec at all are valid for every kind but VmGroup.
    return lambda obj: str((obj.get("spec") or {}).get(name, ""))


def _status_field(name: str) -> Callable[[Object], str]:
    return lambda obj: str(obj.get("status", {}).get(name, ""))


def _status_ratio(part: str, total: str) -> Callable[[Object], str]:
    def format_ratio(obj: Object) -> str:
        status = obj.get("status", {})
        return f"{status[part]}/{status[total]}" if part in status and total in status else ""

    return format_ratio


def _status_count(name: str) -> Callable[[Object], str]:
    return lambda obj: str(obj.get("status", {}).get(name, {}).get("count", ""))


def _ready_cell(obj: Object) -> Cell:
    """The reason; if Ready is True, other reasons than "Reconciled" follow "True"."""
    condition = ready_condition(obj)
    reason = str(condition.get("reason", ""))
    if condition.get("status") != "True":
        return Cell(reason, "bad")
    return Cell(reason if reason in ("", "Reconciled") else f"True ({reason})", "good")


def _power_cell(obj: Object) -> Cell:
    power = _status_field("powerState")(obj)
    return Cell(power, "good" if power == "poweredOn" else "bad")


def _phase_cell(obj: Object) -> Cell:
    phase = _status_field("phase")(obj)
    return Cell(phase, PHASE_STYLES.get(phase, ""))


def _format_replicas(obj: Object) -> str:
    ready = _status_field("readyReplicas")(obj) or 0
    return f"{ready}/{_spec_field('replicas')(obj) or 0}"


def _healthy_cell(obj: Object) -> Cell:
    healthy = _status_field("Healthy")(obj).lower()
    return Cell(healthy, "good" if healthy == "true" else "bad")


# The columns after the name.
TABLE_COLUMNS: Mapping[str, Columns[Object]] = {
    "HostInfo": {
        "HOST": _spec_field("hostname"),
        "FREE MHZ": _status_ratio("freeCPU", "totalCPU"),
        "FREE MB": _status_ratio("freeMemoryMB", "totalMemoryMB"),
        "READY": _ready_cell,
    },
    "VMInfo": {
        "VM": _spec_field("nodename"),
        "POWER": _power_cell,
        "ADDRESS": _status_field("ipAddress"),
        "HOST": _status_field("host"),
    },
    "FCDInfo": {
        "DISK": _spec_field("pvId"),
        "MB": _status_field("sizeMB"),
        "DATASTORE": _status_field("datastore"),
        "TYPE": _status_field("provisioningType"),
    },
    "DatastoreInfo": {
        "DATASTORE": _spec_field("datastore"),
        "FREE MB": _status_ratio("freeMB", "capacityMB"),
        "VOLUMES": _status_count("persistentVolumes"),
        "ORPHANED": _status_count("orphanedDisks"),
        "READY": _ready_cell,
    },
    "ClusterInfo": {
        "CLUSTER": _spec_field("cluster"),
        "FREE MHZ": _status_ratio("freeCPUMHz", "totalCPUMHz"),
        "HEADROOM MB": _status_field("headroomMemoryMB"),
        "NODES": _status_count("nodes"),
        "READY": _ready_cell,
    },
    "GPUInfo": {
        "NEEDS H": _spec_field("desAccTime"),
        "HAS H": _status_field("availableAcceleratorTime"),
        "MHZ": _status_field("nodeCPUUsage"),
        "HOST": lambda obj: _status_field("suitableHostName")(obj).partition(".")[0],
        "NODE": _status_field("suitableNodeName"),
    },
    "VmGroup": {
        "PHASE": _phase_cell,
        "READY": _format_replicas,
        "TEMPLATE": _spec_field("template"),
        "LAST MESSAGE": _status_field("lastMessage"),
    },
    "MyCustomResource": {"FRIEND": _spec_field("name"), "HEALTHY": _healthy_cell},
}
