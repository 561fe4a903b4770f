"""`top hosts` and `top vms`: sorted by CPU usage. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from ..terminal import Style
from .rows import HostRow, VmRow
from .table import Cell, Table, format_number, short_host, short_hosts

# Above these shares the percentage is red or yellow.
_HIGH_USAGE, _MEDIUM_USAGE = 0.9, 0.7


def host_table(rows: Iterable[HostRow], *, wide: bool, short_names: bool = False) -> Table:
    """Sorted by share of CPU in use; short names save columns on a terminal."""
    ordered = sorted(
        rows, key=lambda row: (-(_usage_share(row.cpuUsedMHz, row.cpuTotalMHz) or 0.0), row.name)
    )
    columns = ("HOST", "CPU", "MHZ", "MEMORY", "MB", "VMS", "STATE", "CLUSTER")
    more = ("DATACENTER", "VCENTER", "MODEL", "VERSION")
    shortened = short_hosts(row.name for row in ordered)
    cells = (
        _host_cells(row, shortened[row.name] if short_names and not wide else row.name, wide=wide)
        for row in ordered
    )
    return Table(columns=columns + more if wide else columns, rows=tuple(cells))


def _host_cells(row: HostRow, name: str, *, wide: bool) -> tuple[Cell, ...]:
    cells = (
        Cell(name),
        _percent_cell(row.cpuUsedMHz, row.cpuTotalMHz),
        _ratio_cell(row.cpuUsedMHz, row.cpuTotalMHz),
        _percent_cell(row.memoryUsedMB, row.memoryTotalMB),
        _ratio_cell(row.memoryUsedMB, row.memoryTotalMB),
        Cell(format_number(row.vms)),
        Cell(row.state, "good" if row.state == "connected" else "bad"),
        Cell(row.cluster),
    )
    more = (Cell(row.datacenter), Cell(row.vcenter), Cell(row.model), Cell(row.version))
    return cells + more if wide else cells


def vm_table(rows: Iterable[VmRow], *, wide: bool) -> Table:
    """Sorted by CPU demand; VMs without one come last."""
    ordered = sorted(
        rows, key=lambda row: (row.cpuDemandMHz is None, -(row.cpuDemandMHz or 0), row.name)
    )
    columns = ("VM", "CPU MHZ", "CPUS", "GUEST MB", "MB", "POWER", "ADDRESS", "HOST")
    more = ("NODE", "GROUP", "CLUSTER", "DATACENTER", "VCENTER")
    return Table(
        columns=columns + more if wide else columns,
        rows=tuple(_vm_cells(row, wide=wide) for row in ordered),
    )


def _vm_cells(row: VmRow, *, wide: bool) -> tuple[Cell, ...]:
    cells = (
        Cell(row.name),
        Cell(format_number(row.cpuDemandMHz)),
        Cell(format_number(row.cpus)),
        Cell(format_number(row.guestMemoryMB)),
        Cell(format_number(row.memoryMB)),
        Cell(row.power, "good" if row.power == "poweredOn" else "bad"),
        Cell(row.address),
        Cell(row.host if wide else short_host(row.host)),
    )
    more = tuple(map(Cell, (row.node, row.group, row.cluster, row.datacenter, row.vcenter)))
    return cells + more if wide else cells


def _usage_share(used: int | None, total: int | None) -> float | None:
    return None if used is None or not total else used / total


def _percent_cell(used: int | None, total: int | None) -> Cell:
    share = _usage_share(used, total)
    if share is None:
        return Cell("-")
    style: Style = "bad" if share >= _HIGH_USAGE else "busy" if share >= _MEDIUM_USAGE else "good"
    return Cell(f"{share:.0%}", style)


def _ratio_cell(used: int | None, total: int | None) -> Cell:
    return Cell("-" if used is None or total is None else f"{used}/{total}")
