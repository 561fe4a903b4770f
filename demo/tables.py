"""The objects of each kind as a table: what a person wants to see, in few columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from vsphere_operators.kubectl.table import GAP, Cell, Table, Tone

from .expected import ready_of
from .snapshot import KINDS, Object, Snapshot

PHASES: Mapping[str, Tone] = {"RUNNING": "good", "ERROR": "bad", "PENDING": "busy"}


def tables(snapshot: Snapshot) -> dict[str, Table]:
    """One for each kind that has objects."""
    made = {kind: table(kind, [obj for (each, _), obj in sorted(snapshot.objects.items()) if each == kind]) for kind in KINDS}
    return {kind: each for kind, each in made.items() if each.rows}


def table(kind: str, objects: Iterable[Object]) -> Table:
    """The table of one kind, which is the title of its first column."""
    columns, cells = SHAPES[kind]
    rows = tuple((Cell(obj["metadata"]["name"]), *cells(obj, obj.get("status", {}))) for obj in objects)
    return Table(columns=(kind.upper(), *columns), rows=rows)


def beside(left: Table, right: Table) -> Table:
    """Two tables as one, the second to the right of the first."""
    pairs = zip_longest(left.rows, right.rows)
    rows = ((*(one or blank(left)), *(other or blank(right))) for one, other in pairs)
    return Table(columns=(*left.columns, *right.columns), rows=tuple(rows))


def capped(table: Table, count: int) -> Table:
    """At most so many rows, the last of which tells how many more there are."""
    if len(table.rows) <= count:
        return table
    kept = table.rows[: max(count - 1, 0)]
    more = (Cell(f"... {len(table.rows) - len(kept)} more"), *blank(table)[1:])
    return Table(columns=table.columns, rows=(*kept, more))


def blank(table: Table) -> tuple[Cell, ...]:
    """A row of nothing."""
    return (Cell(""),) * len(table.columns)


def narrowed(table: Table, width: int, spare: Sequence[str]) -> Table:
    """Without the columns that can be spared, as far as the width asks for it, in the order given."""
    for title in spare:
        if sum(len(cell.text) + GAP for cell in table.lines()[0]) - GAP > width and title in table.columns:
            kept = [index for index, each in enumerate(table.columns) if each != title]
            picked = tuple(tuple(row[index] for index in kept) for row in table.rows)
            table = Table(columns=tuple(table.columns[index] for index in kept), rows=picked)
    return table


def host(obj: Object, status: Mapping[str, Any]) -> tuple[Cell, ...]:
    """HostInfo."""
    return (value(asked(obj), "hostname"), part(status, "freeCPU", "totalCPU"), part(status, "freeMemoryMB", "totalMemoryMB"), ready(obj))


def machine(obj: Object, status: Mapping[str, Any]) -> tuple[Cell, ...]:
    """VMInfo."""
    power = str(status.get("powerState", ""))
    return (
        value(asked(obj), "nodename"),
        Cell(power, "good" if power == "poweredOn" else "bad"),
        value(status, "ipAddress"),
        value(status, "host"),
    )


def disk(obj: Object, status: Mapping[str, Any]) -> tuple[Cell, ...]:
    """FCDInfo."""
    return (value(asked(obj), "pvId"), value(status, "sizeMB"), value(status, "datastore"), value(status, "provisioningType"))


def place(obj: Object, status: Mapping[str, Any]) -> tuple[Cell, ...]:
    """GPUInfo."""
    hours, host_name = value(status, "availableAcceleratorTime"), str(status.get("suitableHostName", ""))
    return (
        value(asked(obj), "desAccTime"),
        hours,
        value(status, "nodeCPUUsage"),
        Cell(host_name.partition(".")[0]),
        value(status, "suitableNodeName"),
    )


def group(obj: Object, status: Mapping[str, Any]) -> tuple[Cell, ...]:
    """VmGroup."""
    phase = str(status.get("phase", ""))
    count = f"{status.get('readyReplicas', 0)}/{asked(obj).get('replicas', 0)}"
    return (Cell(phase, PHASES.get(phase, "")), Cell(count), value(asked(obj), "template"), value(status, "lastMessage"))


def friend(obj: Object, status: Mapping[str, Any]) -> tuple[Cell, ...]:
    """MyCustomResource."""
    healthy = status.get("Healthy")
    return (value(asked(obj), "name"), Cell(str(healthy).lower() if healthy is not None else "", "good" if healthy else "bad"))


def asked(obj: Object) -> Mapping[str, Any]:
    """Its spec; somebody who tries things may apply an object without one."""
    spec: Mapping[str, Any] = obj.get("spec") or {}
    return spec


def value(of: Mapping[str, Any], field: str) -> Cell:
    """A field as it is."""
    return Cell(str(of.get(field, "")))


def part(status: Mapping[str, Any], some: str, all_of_it: str) -> Cell:
    """So much of so much."""
    return Cell(f"{status[some]}/{status[all_of_it]}" if some in status and all_of_it in status else "")


def ready(obj: Object) -> Cell:
    """Why it is ready, or why not."""
    condition = ready_of(obj)
    return Cell(str(condition.get("reason", "")), "good" if condition.get("status") == "True" else "bad")


Shape = tuple[tuple[str, ...], Callable[[Object, Mapping[str, Any]], tuple[Cell, ...]]]
SHAPES: Mapping[str, Shape] = {
    "HostInfo": (("HOST", "FREE MHZ", "FREE MB", "READY"), host),
    "VMInfo": (("VM", "POWER", "ADDRESS", "HOST"), machine),
    "FCDInfo": (("DISK", "MB", "DATASTORE", "TYPE"), disk),
    "GPUInfo": (("WANTS H", "HAS H", "MHZ", "HOST", "NODE"), place),
    "VmGroup": (("PHASE", "READY", "TEMPLATE", "LAST MESSAGE"), group),
    "MyCustomResource": (("FRIEND", "HEALTHY"), friend),
}
