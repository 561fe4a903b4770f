"""The objects of each kind as a table of few columns. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from vsphere_operators.kubectl.table import COLUMN_GAP, Cell, Table
from vsphere_operators.kubectl.vmgroup import PHASE_STYLES

from .expected import ready_condition
from .snapshot import KIND_PATHS, Object, Snapshot


def build_tables(snapshot: Snapshot) -> dict[str, Table]:
    """One table for each kind that has objects."""
    objects = sorted(snapshot.objects.items())
    tables = {
        kind: _build_table(kind, [obj for (object_kind, _), obj in objects if object_kind == kind])
        for kind in KIND_PATHS
    }
    return {kind: table for kind, table in tables.items() if table.rows}


def _build_table(kind: str, objects: Iterable[Object]) -> Table:
    """The title of the first column is the kind."""
    columns, cells = TABLE_LAYOUTS[kind]
    rows = tuple(
        (Cell(obj["metadata"]["name"]), *cells(obj, obj.get("status", {}))) for obj in objects
    )
    return Table(columns=(kind.upper(), *columns), rows=rows)


def join_side_by_side(left: Table, right: Table) -> Table:
    rows = (
        (*(left_row or _empty_row(left)), *(right_row or _empty_row(right)))
        for left_row, right_row in zip_longest(left.rows, right.rows)
    )
    return Table(columns=(*left.columns, *right.columns), rows=tuple(rows))


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


def _host_cells(obj: Object, status: Mapping[str, Any]) -> tuple[Cell, ...]:
    return (
        _field_cell(_spec_of(obj), "hostname"),
        _ratio_cell(status, "freeCPU", "totalCPU"),
        _ratio_cell(status, "freeMemoryMB", "totalMemoryMB"),
        _ready_cell(obj),
    )


def _vm_cells(obj: Object, status: Mapping[str, Any]) -> tuple[Cell, ...]:
    power = str(status.get("powerState", ""))
    return (
        _field_cell(_spec_of(obj), "nodename"),
        Cell(power, "good" if power == "poweredOn" else "bad"),
        _field_cell(status, "ipAddress"),
        _field_cell(status, "host"),
    )


def _disk_cells(obj: Object, status: Mapping[str, Any]) -> tuple[Cell, ...]:
    return (
        _field_cell(_spec_of(obj), "pvId"),
        _field_cell(status, "sizeMB"),
        _field_cell(status, "datastore"),
        _field_cell(status, "provisioningType"),
    )


def _gpu_cells(obj: Object, status: Mapping[str, Any]) -> tuple[Cell, ...]:
    return (
        _field_cell(_spec_of(obj), "desAccTime"),
        _field_cell(status, "availableAcceleratorTime"),
        _field_cell(status, "nodeCPUUsage"),
        Cell(str(status.get("suitableHostName", "")).partition(".")[0]),
        _field_cell(status, "suitableNodeName"),
    )


def _group_cells(obj: Object, status: Mapping[str, Any]) -> tuple[Cell, ...]:
    phase = str(status.get("phase", ""))
    count = f"{status.get('readyReplicas', 0)}/{_spec_of(obj).get('replicas', 0)}"
    return (
        Cell(phase, PHASE_STYLES.get(phase, "")),
        Cell(count),
        _field_cell(_spec_of(obj), "template"),
        _field_cell(status, "lastMessage"),
    )


def _custom_resource_cells(obj: Object, status: Mapping[str, Any]) -> tuple[Cell, ...]:
    healthy = status.get("Healthy")
    return (
        _field_cell(_spec_of(obj), "name"),
        Cell(str(healthy).lower() if healthy is not None else "", "good" if healthy else "bad"),
    )


def _spec_of(obj: Object) -> Mapping[str, Any]:
    # `spec: {}` and no spec at all are valid for every kind but VmGroup.
    spec: Mapping[str, Any] = obj.get("spec") or {}
    return spec


def _field_cell(fields: Mapping[str, Any], name: str) -> Cell:
    return Cell(str(fields.get(name, "")))


def _ratio_cell(status: Mapping[str, Any], part: str, total: str) -> Cell:
    return Cell(f"{status[part]}/{status[total]}" if part in status and total in status else "")


def _ready_cell(obj: Object) -> Cell:
    condition = ready_condition(obj)
    return Cell(
        str(condition.get("reason", "")), "good" if condition.get("status") == "True" else "bad"
    )


TableLayout = tuple[tuple[str, ...], Callable[[Object, Mapping[str, Any]], tuple[Cell, ...]]]
TABLE_LAYOUTS: Mapping[str, TableLayout] = {
    "HostInfo": (("HOST", "FREE MHZ", "FREE MB", "READY"), _host_cells),
    "VMInfo": (("VM", "POWER", "ADDRESS", "HOST"), _vm_cells),
    "FCDInfo": (("DISK", "MB", "DATASTORE", "TYPE"), _disk_cells),
    "GPUInfo": (("NEEDS H", "HAS H", "MHZ", "HOST", "NODE"), _gpu_cells),
    "VmGroup": (("PHASE", "READY", "TEMPLATE", "LAST MESSAGE"), _group_cells),
    "MyCustomResource": (("FRIEND", "HEALTHY"), _custom_resource_cells),
}
