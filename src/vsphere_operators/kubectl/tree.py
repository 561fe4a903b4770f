"""`tree`: which Node is in which VM on which host, in which cluster of which datacenter, with the disks beside. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from .rows import DiskRow, HostRow, Rows, VmRow
from .table import Style, apply_color

_UNKNOWN_LOCATION = "not known"


class Branch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing with what is in it."""

    kind: str
    name: str
    note: str = ""
    tone: Style = ""
    inside: tuple[Branch, ...] = ()


def build_tree(rows: Rows) -> list[Branch]:
    """From datacenters down to disks; then what has no place that anybody knows."""
    known = {row.name: row for row in rows.hosts}
    hosts = [
        *rows.hosts,
        *(
            HostRow(name=name)
            for name in dict.fromkeys(row.host for row in rows.vms)
            if name not in known
        ),
    ]
    places = {host.name: _location_of(host, rows.vms) for host in hosts}
    top = [
        _datacenter_branch(
            name, [host for host in hosts if places[host.name][0] == name], places, rows
        )
        for name in _sort_unique_names(p for p, _ in places.values())
    ]
    attached = {disk.attachedTo for disk in rows.disks} & {row.name for row in rows.vms}
    loose = [_disk_branch(disk) for disk in rows.disks if disk.attachedTo not in attached]
    if loose:
        top.append(
            Branch(kind="disks", name="attached to no VM that is shown", inside=tuple(loose))
        )
    if rows.unmatched:
        strangers = tuple(
            Branch(kind="node", name=name, tone="bad") for name in sorted(rows.unmatched)
        )
        top.append(Branch(kind="nodes", name="whose VM nothing here tells", inside=strangers))
    return top


def _location_of(host: HostRow, vms: Sequence[VmRow]) -> tuple[str, str]:
    """Datacenter and cluster, from the host or from a VM on it."""
    on_it = [row for row in vms if row.host == host.name]
    datacenter_name = host.datacenter or next(
        (row.datacenter for row in on_it if row.datacenter), ""
    )
    return datacenter_name or _UNKNOWN_LOCATION, host.cluster or next(
        (row.cluster for row in on_it if row.cluster), ""
    )


def _sort_unique_names(names: Iterator[str]) -> list[str]:
    """Each once, what is not known last."""
    return sorted(set(names), key=lambda name: (name == _UNKNOWN_LOCATION, name))


def _datacenter_branch(
    name: str, hosts: Sequence[HostRow], places: dict[str, tuple[str, str]], rows: Rows
) -> Branch:
    """A datacenter: its clusters, and the hosts in none."""
    inside = list[Branch]()
    for cluster in sorted({places[host.name][1] for host in hosts}):
        members = tuple(
            _host_branch(host, rows)
            for host in sorted(hosts, key=lambda each: each.name)
            if places[host.name][1] == cluster
        )
        inside += [Branch(kind="cluster", name=cluster, inside=members)] if cluster else members
    return Branch(kind="datacenter", name=name, inside=tuple(inside))


def _host_branch(host: HostRow, rows: Rows) -> Branch:
    """A host with its VMs."""
    free = (
        ""
        if host.cpuUsedMHz is None or host.cpuTotalMHz is None
        else f"{host.cpuTotalMHz - host.cpuUsedMHz} of {host.cpuTotalMHz} MHz free"
    )
    odd = host.state if host.state not in ("", "connected") else ""
    vms = tuple(
        _vm_branch(row, rows.disks)
        for row in sorted(rows.vms, key=lambda each: each.name)
        if row.host == host.name
    )
    name = host.name or "(no host is told)"
    return Branch(
        kind="host",
        name=name,
        note=", ".join(filter(None, (odd, free))),
        tone="bad" if odd else "",
        inside=vms,
    )


def _vm_branch(row: VmRow, disks: Sequence[DiskRow]) -> Branch:
    """A VM with the Node that runs in it, and its disks."""
    node = "" if not row.node else f"node {row.node}" if row.node != row.name else "node"
    state = "" if row.nodeReady is None else "Ready" if row.nodeReady else "NotReady"
    off = row.power if row.power not in ("", "poweredOn") else ""
    group = f"group {row.group}" if row.group else ""
    note = ", ".join(filter(None, (off, f"{node} {state}".strip(), group, row.address)))
    bad = bool(off) or row.nodeReady is False
    inside = tuple(_disk_branch(disk) for disk in disks if disk.attachedTo == row.name)
    return Branch(
        kind="VM",
        name=row.name,
        note=note,
        tone="bad" if bad else "good" if row.node else "",
        inside=inside,
    )


def _disk_branch(disk: DiskRow) -> Branch:
    """A disk."""
    size = f"{disk.sizeMB} MB" if disk.sizeMB is not None else "not found"
    return Branch(
        kind="disk",
        name=disk.name,
        note=", ".join(filter(None, (size, disk.datastore, disk.claim))),
    )


def render_tree(
    branches: Sequence[Branch], *, width: int = 0, color: bool = False
) -> Iterator[str]:
    """The lines, cut at the width."""
    for branch in branches:
        yield from _render_branch(branch, "", "", width, color)


def _render_branch(
    branch: Branch, first: str, rest: str, width: int, colour: bool
) -> Iterator[str]:
    """One branch under the strokes that lead to it."""
    room = max(width - len(first), 10) if width else 0
    text = f"{branch.kind} {branch.name}" + (f"  ({branch.note})" if branch.note else "")
    shown = text if not room or len(text) <= room else f"{text[: room - 1]}…"
    yield first + apply_color(shown, branch.tone, color=colour)
    for index, each in enumerate(branch.inside):
        last = index == len(branch.inside) - 1
        yield from _render_branch(
            each,
            rest + ("└─ " if last else "├─ "),
            rest + ("   " if last else "│  "),
            width,
            colour,
        )
