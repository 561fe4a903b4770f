"""`top hosts` and `top vms`: who uses most, first. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from .rows import HostRow, VmRow
from .table import Cell, Style, Table, short_host, short_hosts

HIGH_USAGE, MEDIUM_USAGE = 0.9, 0.7


def host_table(rows: Iterable[HostRow], *, wide: bool, short_names: bool = False) -> Table:
    """By share of CPU in use; with short names where columns are scarce."""
    ordered = sorted(
        rows, key=lambda row: (-(_usage_share(row.cpuUsedMHz, row.cpuTotalMHz) or 0.0), row.name)
    )
    columns = ("HOST", "CPU", "MHZ", "MEMORY", "MB", "VMS", "STATE", "CLUSTER")
    more = ("DATACENTER", "VCENTER", "MODEL", "VERSION")
    shown = short_hosts(row.name for row in ordered)
    cells = (
        host_cells(row, shown[row.name] if short_names and not wide else row.name, wide=wide)
        for row in ordered
    )
    return Table(columns=columns + more if wide else columns, rows=tuple(cells))


def host_cells(row: HostRow, name: str, *, wide: bool) -> tuple[Cell, ...]:
    """One host under a name."""
    cells = (
        Cell(name),
        _percent_cell(row.cpuUsedMHz, row.cpuTotalMHz),
        _used_of_total_cell(row.cpuUsedMHz, row.cpuTotalMHz),
        _percent_cell(row.memoryUsedMB, row.memoryTotalMB),
        _used_of_total_cell(row.memoryUsedMB, row.memoryTotalMB),
        _number_cell(row.vms),
        Cell(row.state, "good" if row.state == "connected" else "bad"),
        Cell(row.cluster),
    )
    more = (Cell(row.datacenter), Cell(row.vcenter), Cell(row.model), Cell(row.version))
    return cells + more if wide else cells


def vm_table(rows: Iterable[VmRow], *, wide: bool) -> Table:
    """By CPU demand; those of which it is not known come last."""
    ordered = sorted(
        rows, key=lambda row: (row.cpuDemandMHz is None, -(row.cpuDemandMHz or 0), row.name)
    )
    columns = ("VM", "CPU MHZ", "CPUS", "GUEST MB", "MB", "POWER", "ADDRESS", "HOST")
    more = ("NODE", "GROUP", "CLUSTER", "DATACENTER", "VCENTER")
    return Table(
        columns=columns + more if wide else columns,
        rows=tuple(vm_cells(row, wide=wide) for row in ordered),
    )


def vm_cells(row: VmRow, *, wide: bool) -> tuple[Cell, ...]:
    """One VM."""
    cells = (
        Cell(row.name),
        _number_cell(row.cpuDemandMHz),
        _number_cell(row.cpus),
        _number_cell(row.guestMemoryMB),
        _number_cell(row.memoryMB),
        Cell(row.power, "good" if row.power == "poweredOn" else "bad"),
        Cell(row.address),
        Cell(row.host if wide else short_host(row.host)),
    )
    more = (
        Cell(row.node),
        Cell(row.group),
        Cell(row.cluster),
        Cell(row.datacenter),
        Cell(row.vcenter),
    )
    return cells + more if wide else cells


def _usage_share(used: int | None, total: int | None) -> float | None:
    """Which part is in use; None where nobody knows."""
    return None if used is None or not total else used / total


def _percent_cell(used: int | None, total: int | None) -> Cell:
    """The same for people."""
    found = _usage_share(used, total)
    if found is None:
        return Cell("-")
    tone: Style = "bad" if found >= HIGH_USAGE else "busy" if found >= MEDIUM_USAGE else "good"
    return Cell(f"{found:.0%}", tone)


def _used_of_total_cell(used: int | None, total: int | None) -> Cell:
    """So much of so much."""
    return Cell("-" if used is None or total is None else f"{used}/{total}")


def _number_cell(value: int | None) -> Cell:
    """A number, or that nobody knows."""
    return Cell("-" if value is None else str(value))
