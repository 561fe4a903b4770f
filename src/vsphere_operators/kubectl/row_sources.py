"""Where the rows of `top` and `tree` come from, and what each source leaves out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from ..vsphere.vcenter import VCenter
from .rows import Rows, rows_from_objects
from .sources import ClusterReader, rows_from_vcenters

RowType = Literal["hosts", "vms"]
OpenVCenters = Callable[[], AbstractAsyncContextManager[list[VCenter]]]


class RowSource(Protocol):
    async def read(self) -> Rows: ...

    def describe(self, rows: Rows, what: RowType) -> str:
        """What the rows are from, and what is left out: a sentence for `top`."""
        ...


def choose_source(
    cluster: ClusterReader,
    open_vcenters: OpenVCenters,
    read_topology_rows: Callable[[], Awaitable[Rows | None]],
    *,
    use_vcenter: bool,
) -> RowSource:
    """`read_topology_rows` returns None if the manager does not serve the topology."""
    if use_vcenter:
        return _VCenterSource(cluster, open_vcenters)
    return _ManagerSource(read_topology_rows, _ObjectSource(cluster))


class _ObjectSource:
    """The objects that the manager wrote: only what has one."""

    def __init__(self, cluster: ClusterReader) -> None:
        self._cluster = cluster

    async def read(self) -> Rows:
        return rows_from_objects(await self._cluster.read_objects())

    def describe(self, rows: Rows, what: RowType) -> str:
        namespace = self._cluster.namespace
        where = f"in namespace {namespace}" if namespace else "in all namespaces"
        more = "Use --vcenter to see all." if not namespace else "Use -A or --vcenter to see more."
        if what == "hosts":
            verb = "has" if len(rows.hosts) == 1 else "have"
            return f"{_count(rows.hosts, 'host')} {verb} a HostInfo {where}. {more}"
        verb = "is" if len(rows.vms) == 1 else "are"
        return (
            f"{_count(rows.vms, 'VM')} {verb} named by a VMInfo, a VmGroup or a GPUInfo {where}. "
            f"{more}"
        )


class _ManagerSource:
    """All that the manager knows; the objects if it does not serve its topology."""

    def __init__(
        self, read_topology_rows: Callable[[], Awaitable[Rows | None]], fallback: _ObjectSource
    ) -> None:
        self._read_topology_rows, self._fallback = read_topology_rows, fallback
        self._is_served = False

    async def read(self) -> Rows:
        rows = await self._read_topology_rows()
        self._is_served = rows is not None
        return await self._fallback.read() if rows is None else rows

    def describe(self, rows: Rows, what: RowType) -> str:
        if not self._is_served:
            return self._fallback.describe(rows, what)
        if what == "hosts":
            return f"{_count(rows.hosts, 'host')} that the manager knows."
        return f"{_count(rows.vms, 'VM')} that the manager knows, without templates."


class _VCenterSource:
    """The whole inventory, without templates; VmGroups and claims are from the objects."""

    def __init__(self, cluster: ClusterReader, open_vcenters: OpenVCenters) -> None:
        self._cluster, self._open_vcenters = cluster, open_vcenters
        self._names: list[str] = []

    async def read(self) -> Rows:
        objects = await self._cluster.read_objects()
        async with self._open_vcenters() as vcenters:
            self._names = [vcenter.name for vcenter in vcenters]
            return await rows_from_vcenters(vcenters, objects.nodes, rows_from_objects(objects))

    def describe(self, rows: Rows, what: RowType) -> str:
        names = ", ".join(self._names)
        if what == "hosts":
            return f"{_count(rows.hosts, 'host')} of vCenter {names} that the account can see."
        return (
            f"{_count(rows.vms, 'VM')} of vCenter {names} that the account can see, without "
            "templates."
        )


def _count(rows: Sequence[object], noun: str) -> str:
    return f"{len(rows)} {noun}{'' if len(rows) == 1 else 's'}"
