"""`tree`: datacenters, clusters, hosts, VMs, Nodes and disks. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ..console import Style, apply_color, escape_control
from .rows import DiskRow, HostRow, Rows, VmRow

_UNKNOWN_LOCATION = "unknown"


# `-o json` prints the branches; scripts read the keys `tone` and `inside`.
class Branch(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={"style": "tone", "children": "inside"},
):
    kind: str
    name: str
    note: str = ""
    style: Style = ""
    children: tuple[Branch, ...] = ()


def build_tree(rows: Rows) -> list[Branch]:
    """The datacenters, then disks without a VM and Nodes without a VM."""
    names = {row.name for row in rows.hosts}
    # A VM may run on a host that has no row of its own.
    other_hosts = dict.fromkeys(row.host for row in rows.vms if row.host not in names)
    hosts = [*rows.hosts, *(HostRow(name=name) for name in other_hosts)]
    locations = {host.name: _location_of(host, rows.vms) for host in hosts}
    datacenters = sorted(
        {datacenter for datacenter, _ in locations.values()},
        key=lambda name: (name == _UNKNOWN_LOCATION, name),
    )
    branches = [
        _datacenter_branch(
            datacenter,
            [host for host in hosts if locations[host.name][0] == datacenter],
            locations,
            rows,
        )
        for datacenter in datacenters
    ]
    vm_names = {row.name for row in rows.vms}
    detached = [_disk_branch(disk) for disk in rows.disks if disk.attachedTo not in vm_names]
    if detached:
        branches.append(
            Branch(kind="disks", name="not attached to a VM shown here", children=tuple(detached))
        )
    if rows.unmatched:
        nodes = (Branch(kind="node", name=name, style="bad") for name in sorted(rows.unmatched))
        branches.append(Branch(kind="nodes", name="without a known VM", children=tuple(nodes)))
    return branches


def _location_of(host: HostRow, vms: Sequence[VmRow]) -> tuple[str, str]:
    """Datacenter and cluster, from the host or from a VM on it."""
    vms_on_host = [row for row in vms if row.host == host.name]
    datacenter = host.datacenter or next(
        (row.datacenter for row in vms_on_host if row.datacenter), ""
    )
    cluster = host.cluster or next((row.cluster for row in vms_on_host if row.cluster), "")
    return datacenter or _UNKNOWN_LOCATION, cluster


def _datacenter_branch(
    name: str, hosts: Sequence[HostRow], locations: dict[str, tuple[str, str]], rows: Rows
) -> Branch:
    """Its clusters, and the standalone hosts."""
    children: list[Branch] = []
    for cluster in sorted({locations[host.name][1] for host in hosts}):
        members = tuple(
            _host_branch(host, rows)
            for host in sorted(hosts, key=lambda row: row.name)
            if locations[host.name][1] == cluster
        )
        if cluster:
            children.append(Branch(kind="cluster", name=cluster, children=members))
        else:
            children += members
    return Branch(kind="datacenter", name=name, children=tuple(children))


def _host_branch(host: HostRow, rows: Rows) -> Branch:
    free = (
        ""
        if host.cpuUsedMHz is None or host.cpuTotalMHz is None
        else f"{host.cpuTotalMHz - host.cpuUsedMHz} of {host.cpuTotalMHz} MHz free"
    )
    problem = host.state if host.state not in ("", "connected") else ""
    vms = tuple(
        _vm_branch(row, rows.disks)
        for row in sorted(rows.vms, key=lambda row: row.name)
        if row.host == host.name
    )
    return Branch(
        kind="host",
        name=host.name or _UNKNOWN_LOCATION,
        note=", ".join(filter(None, (problem, free))),
        style="bad" if problem else "",
        children=vms,
    )


def _vm_branch(row: VmRow, disks: Sequence[DiskRow]) -> Branch:
    """A VM with its disks; the note names the Node that runs in it."""
    node = "" if not row.node else f"node {row.node}" if row.node != row.name else "node"
    ready = "" if row.nodeReady is None else "Ready" if row.nodeReady else "NotReady"
    not_running = row.power if row.power not in ("", "poweredOn") else ""
    group = f"group {row.group}" if row.group else ""
    # A Node usually has the name of its VM; then "node" alone is enough.
    note = ", ".join(filter(None, (not_running, f"{node} {ready}".strip(), group, row.address)))
    bad = bool(not_running) or row.nodeReady is False
    return Branch(
        kind="VM",
        name=row.name,
        note=note,
        style="bad" if bad else "good" if row.node else "",
        children=tuple(_disk_branch(disk) for disk in disks if disk.attachedTo == row.name),
    )


def _disk_branch(disk: DiskRow) -> Branch:
    size = f"{disk.sizeMB} MB" if disk.sizeMB is not None else "not found"
    return Branch(
        kind="disk",
        name=disk.name,
        note=", ".join(filter(None, (size, disk.datastore, disk.claim))),
    )


def render_tree(
    branches: Sequence[Branch], *, width: int = 0, color: bool = False
) -> Iterator[str]:
    """One line for each branch, cut at the width; a width of 0 cuts nothing."""
    for branch in branches:
        yield from _render_branch(branch, "", "", width, color)


def _render_branch(
    branch: Branch, prefix: str, child_prefix: str, width: int, color: bool
) -> Iterator[str]:
    # Deep in the tree a few characters of each name stay, even on a narrow terminal.
    room = max(width - len(prefix), 10) if width else 0
    note = f"  ({branch.note})" if branch.note else ""
    text = escape_control(f"{branch.kind} {branch.name}{note}")
    if room and len(text) > room:
        text = f"{text[: room - 1]}…"
    yield prefix + apply_color(text, branch.style, color=color)
    for index, child in enumerate(branch.children):
        last = index == len(branch.children) - 1
        yield from _render_branch(
            child,
            child_prefix + ("└─ " if last else "├─ "),
            child_prefix + ("   " if last else "│  "),
            width,
            color,
        )
