"""`top hosts`, sorted by CPU usage, and `top vms`, sorted by CPU demand. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from ..console import Style
from .rows import HostRow, VmRow
from .table import Cell, Columns, Table, build_table, format_number, short_host, short_hosts

# Above these shares the percentage is red or yellow.
_HIGH_USAGE, _MEDIUM_USAGE = 0.9, 0.7


def host_table(rows: Iterable[HostRow], *, wide: bool, short_names: bool = False) -> Table:
    """Sorted by share of CPU in use; short names save columns on a terminal."""
    ordered = sorted(
        rows, key=lambda row: (-(_usage_share(row.cpuUsedMHz, row.cpuTotalMHz) or 0.0), row.name)
    )
    shortened = short_hosts(row.name for row in ordered) if short_names and not wide else {}
    columns: Columns[HostRow] = {
        "HOST": lambda row: shortened.get(row.name, row.name),
        "CPU": lambda row: _percent_cell(row.cpuUsedMHz, row.cpuTotalMHz),
        "MHZ": lambda row: _ratio_cell(row.cpuUsedMHz, row.cpuTotalMHz),
        "MEMORY": lambda row: _percent_cell(row.memoryUsedMB, row.memoryTotalMB),
        "MB": lambda row: _ratio_cell(row.memoryUsedMB, row.memoryTotalMB),
        "VMS": lambda row: format_number(row.vms),
        "STATE": lambda row: Cell(row.state, "good" if row.state == "connected" else "bad"),
        "CLUSTER": lambda row: row.cluster,
    }
    wide_columns: Columns[HostRow] = {
        "DATACENTER": lambda row: row.datacenter,
        "VCENTER": lambda row: row.vcenter,
        "MODEL": lambda row: row.model,
        "VERSION": lambda row: row.version,
    }
    return build_table(ordered, {**columns, **wide_columns} if wide else columns)


def vm_table(rows: Iterable[VmRow], *, wide: bool) -> Table:
    """Sorted by CPU demand; VMs without one come last."""
    ordered = sorted(
        rows, key=lambda row: (row.cpuDemandMHz is None, -(row.cpuDemandMHz or 0), row.name)
    )
    columns: Columns[VmRow] = {
        "VM": lambda row: row.name,
        "CPU MHZ": lambda row: format_number(row.cpuDemandMHz),
        "CPUS": lambda row: format_number(row.cpus),
        "GUEST MB": lambda row: format_number(row.guestMemoryMB),
        "MB": lambda row: format_number(row.memoryMB),
        "POWER": lambda row: Cell(row.power, "good" if row.power == "poweredOn" else "bad"),
        "ADDRESS": lambda row: row.address,
        "HOST": lambda row: row.host if wide else short_host(row.host),
    }
    wide_columns: Columns[VmRow] = {
        "NODE": lambda row: row.node,
        "GROUP": lambda row: row.group,
        "CLUSTER": lambda row: row.cluster,
        "DATACENTER": lambda row: row.datacenter,
        "VCENTER": lambda row: row.vcenter,
    }
    return build_table(ordered, {**columns, **wide_columns} if wide else columns)


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
