"""The objects of each kind as a table: what a person wants to see, in few columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from vsphere_operators.kubectl.table import COLUMN_GAP, Cell, Table
from vsphere_operators.terminal import Style

from .expected import ready_condition
from .snapshot import KIND_PATHS, Object, Snapshot

PHASE_STYLES: Mapping[str, Style] = {"RUNNING": "good", "ERROR": "bad", "PENDING": "busy"}


def build_tables(snapshot: Snapshot) -> dict[str, Table]:
    """One for each kind that has objects."""
    made = {
        kind: build_table(
            kind, [obj for (each, _), obj in sorted(snapshot.objects.items()) if each == kind]
        )
        for kind in KIND_PATHS
    }
    return {kind: each for kind, each in made.items() if each.rows}


def build_table(kind: str, objects: Iterable[Object]) -> Table:
    """The table of one kind, which is the title of its first column."""
    columns, cells = TABLE_LAYOUTS[kind]
    rows = tuple(
        (Cell(obj["metadata"]["name"]), *cells(obj, obj.get("status", {}))) for obj in objects
    )
    return Table(columns=(kind.upper(), *columns), rows=rows)


def join_side_by_side(left: Table, right: Table) -> Table:
    """Two tables as one, the second to the right of the first."""
    pairs = zip_longest(left.rows, right.rows)
    rows = ((*(one or empty_row(left)), *(other or empty_row(right))) for one, other in pairs)
    return Table(columns=(*left.columns, *right.columns), rows=tuple(rows))


def limit_rows(table: Table, count: int) -> Table:
    """At most so many rows, the last of which tells how many more there are."""
    if len(table.rows) <= count:
        return table
    kept = table.rows[: max(count - 1, 0)]
    more = (Cell(f"... {len(table.rows) - len(kept)} more"), *empty_row(table)[1:])
    return Table(columns=table.columns, rows=(*kept, more))


def empty_row(table: Table) -> tuple[Cell, ...]:
    """A row of nothing."""
    return (Cell(""),) * len(table.columns)


def drop_columns(table: Table, width: int, spare: Sequence[str]) -> Table:
    """Without the columns that can be spared, as far as the width asks for it, in the order given."""
    for title in spare:
        if (
            sum(len(cell.text) + COLUMN_GAP for cell in table.lines()[0]) - COLUMN_GAP > width
            and title in table.columns
        ):
            kept = [index for index, each in enumerate(table.columns) if each != title]
            picked = tuple(tuple(row[index] for index in kept) for row in table.rows)
            table = Table(columns=tuple(table.columns[index] for index in kept), rows=picked)
    return table


def host_cells(obj: Object, status: Mapping[str, Any]) -> tuple[Cell, ...]:
    """HostInfo."""
    return (
        field_cell(spec_of(obj), "hostname"),
        ratio_cell(status, "freeCPU", "totalCPU"),
        ratio_cell(status, "freeMemoryMB", "totalMemoryMB"),
        ready_cell(obj),
    )


def vm_cells(obj: Object, status: Mapping[str, Any]) -> tuple[Cell, ...]:
    """VMInfo."""
    power = str(status.get("powerState", ""))
    return (
        field_cell(spec_of(obj), "nodename"),
        Cell(power, "good" if power == "poweredOn" else "bad"),
        field_cell(status, "ipAddress"),
        field_cell(status, "host"),
    )


def disk_cells(obj: Object, status: Mapping[str, Any]) -> tuple[Cell, ...]:
    """FCDInfo."""
    return (
        field_cell(spec_of(obj), "pvId"),
        field_cell(status, "sizeMB"),
        field_cell(status, "datastore"),
        field_cell(status, "provisioningType"),
    )


def gpu_cells(obj: Object, status: Mapping[str, Any]) -> tuple[Cell, ...]:
    """GPUInfo."""
    hours, host_name = (
        field_cell(status, "availableAcceleratorTime"),
        str(status.get("suitableHostName", "")),
    )
    return (
        field_cell(spec_of(obj), "desAccTime"),
        hours,
        field_cell(status, "nodeCPUUsage"),
        Cell(host_name.partition(".")[0]),
        field_cell(status, "suitableNodeName"),
    )


def group_cells(obj: Object, status: Mapping[str, Any]) -> tuple[Cell, ...]:
    """VmGroup."""
    phase = str(status.get("phase", ""))
    count = f"{status.get('readyReplicas', 0)}/{spec_of(obj).get('replicas', 0)}"
    return (
        Cell(phase, PHASE_STYLES.get(phase, "")),
        Cell(count),
        field_cell(spec_of(obj), "template"),
        field_cell(status, "lastMessage"),
    )


def custom_resource_cells(obj: Object, status: Mapping[str, Any]) -> tuple[Cell, ...]:
    """MyCustomResource."""
    healthy = status.get("Healthy")
    return (
        field_cell(spec_of(obj), "name"),
        Cell(str(healthy).lower() if healthy is not None else "", "good" if healthy else "bad"),
    )


def spec_of(obj: Object) -> Mapping[str, Any]:
    """Its spec; somebody who tries things may apply an object without one."""
    spec: Mapping[str, Any] = obj.get("spec") or {}
    return spec


def field_cell(of: Mapping[str, Any], field: str) -> Cell:
    """A field as it is."""
    return Cell(str(of.get(field, "")))


def ratio_cell(status: Mapping[str, Any], some: str, all_of_it: str) -> Cell:
    """So much of so much."""
    return Cell(
        f"{status[some]}/{status[all_of_it]}" if some in status and all_of_it in status else ""
    )


def ready_cell(obj: Object) -> Cell:
    """Why it is ready, or why not."""
    condition = ready_condition(obj)
    return Cell(
        str(condition.get("reason", "")), "good" if condition.get("status") == "True" else "bad"
    )


TableLayout = tuple[tuple[str, ...], Callable[[Object, Mapping[str, Any]], tuple[Cell, ...]]]
TABLE_LAYOUTS: Mapping[str, TableLayout] = {
    "HostInfo": (("HOST", "FREE MHZ", "FREE MB", "READY"), host_cells),
    "VMInfo": (("VM", "POWER", "ADDRESS", "HOST"), vm_cells),
    "FCDInfo": (("DISK", "MB", "DATASTORE", "TYPE"), disk_cells),
    "GPUInfo": (("WANTS H", "HAS H", "MHZ", "HOST", "NODE"), gpu_cells),
    "VmGroup": (("PHASE", "READY", "TEMPLATE", "LAST MESSAGE"), group_cells),
    "MyCustomResource": (("FRIEND", "HEALTHY"), custom_resource_cells),
}
