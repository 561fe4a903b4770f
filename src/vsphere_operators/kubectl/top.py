"""`top hosts` and `top vms`: who uses most, first. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from .rows import HostRow, VmRow
from .table import Cell, Table, Tone, short_host, short_hosts

HOT, WARM = 0.9, 0.7


def hosts(rows: Iterable[HostRow], *, wide: bool, short: bool = False) -> Table:
    """By share of CPU in use; with short names where columns are scarce."""
    ordered = sorted(rows, key=lambda row: (-(share(row.cpuUsedMHz, row.cpuTotalMHz) or 0.0), row.name))
    columns = ("HOST", "CPU", "MHZ", "MEMORY", "MB", "VMS", "STATE", "CLUSTER")
    more = ("DATACENTER", "VCENTER", "MODEL", "VERSION")
    shown = short_hosts(row.name for row in ordered)
    cells = (host_cells(row, shown[row.name] if short and not wide else row.name, wide=wide) for row in ordered)
    return Table(columns=columns + more if wide else columns, rows=tuple(cells))


def host_cells(row: HostRow, name: str, *, wide: bool) -> tuple[Cell, ...]:
    """One host under a name."""
    cells = (
        Cell(name),
        percent(row.cpuUsedMHz, row.cpuTotalMHz),
        part(row.cpuUsedMHz, row.cpuTotalMHz),
        percent(row.memoryUsedMB, row.memoryTotalMB),
        part(row.memoryUsedMB, row.memoryTotalMB),
        number(row.vms),
        Cell(row.state, "good" if row.state == "connected" else "bad"),
        Cell(row.cluster),
    )
    more = (Cell(row.datacenter), Cell(row.vcenter), Cell(row.model), Cell(row.version))
    return cells + more if wide else cells


def vms(rows: Iterable[VmRow], *, wide: bool) -> Table:
    """By CPU demand; those of which it is not known come last."""
    ordered = sorted(rows, key=lambda row: (row.cpuDemandMHz is None, -(row.cpuDemandMHz or 0), row.name))
    columns = ("VM", "CPU MHZ", "CPUS", "GUEST MB", "MB", "POWER", "ADDRESS", "HOST")
    more = ("NODE", "GROUP", "CLUSTER", "DATACENTER", "VCENTER")
    return Table(columns=columns + more if wide else columns, rows=tuple(vm_cells(row, wide=wide) for row in ordered))


def vm_cells(row: VmRow, *, wide: bool) -> tuple[Cell, ...]:
    """One VM."""
    cells = (
        Cell(row.name),
        number(row.cpuDemandMHz),
        number(row.cpus),
        number(row.guestMemoryMB),
        number(row.memoryMB),
        Cell(row.power, "good" if row.power == "poweredOn" else "bad"),
        Cell(row.address),
        Cell(row.host if wide else short_host(row.host)),
    )
    more = (Cell(row.node), Cell(row.group), Cell(row.cluster), Cell(row.datacenter), Cell(row.vcenter))
    return cells + more if wide else cells


def share(used: int | None, total: int | None) -> float | None:
    """Which part is in use; None where nobody knows."""
    return None if used is None or not total else used / total


def percent(used: int | None, total: int | None) -> Cell:
    """The same for people."""
    found = share(used, total)
    if found is None:
        return Cell("-")
    tone: Tone = "bad" if found >= HOT else "busy" if found >= WARM else "good"
    return Cell(f"{found:.0%}", tone)


def part(used: int | None, total: int | None) -> Cell:
    """So much of so much."""
    return Cell("-" if used is None or total is None else f"{used}/{total}")


def number(value: int | None) -> Cell:
    """A number, or that nobody knows."""
    return Cell("-" if value is None else str(value))
