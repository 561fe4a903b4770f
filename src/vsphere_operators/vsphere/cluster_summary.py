"""The capacity and usage of clusters: sums over their hosts, kept current in memory.

When is a sum computed again?  Once per cluster after a batch of updates, not once per host. If only
    quickStats changed, up to 2 s later: in a large vCenter, hosts report them all the time.
Which hosts count?  The available ones: connected, powered on, and not in maintenance mode. No other
    host can run VMs of the cluster.
What if one of them has no stats yet?  Then the sum is unknown, because it would be too small.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from .inventory import Change, Inventory
from .model import ComputeResource, Entity, Host, HostStats
from .properties import differ_only_in_stats

_STATS_DELAY_SECONDS = 2.0


class ClusterSummary(Entity, frozen=True, kw_only=True, gc=False):
    cluster: ComputeResource
    hosts: int = 0
    # None if vCenter does not report it for a host.
    hosts_in_maintenance: int | None = 0
    # The following count each host once. Powered off, or in standby:
    powered_down_hosts: int = 0
    # Disconnected or not responding, but not powered down.
    disconnected_hosts: int = 0
    # Hosts for which vCenter does not report the connection or the maintenance mode.
    unknown_hosts: int = 0
    # The following are of the available hosts. None if one of them does not report it.
    available_hosts: int = 0
    cpu_mhz: int | None = None
    memory_mb: int | None = None
    # The most that one host has: it is missing if that host fails.
    largest_cpu_mhz: int | None = None
    largest_memory_mb: int | None = None
    stats: HostStats = HostStats()


def summarize_cluster(cluster: ComputeResource, hosts: Sequence[Host]) -> ClusterSummary:
    available = [host for host in hosts if _is_available(host)]
    cpus = [_read_cpu_mhz(host) for host in available]
    memories = [host.memory_bytes // 2**20 if host.memory_bytes else None for host in available]
    return ClusterSummary(
        ref=cluster.ref,
        name=cluster.name,
        parent=cluster.parent,
        cluster=cluster,
        hosts=len(hosts),
        hosts_in_maintenance=None
        if any(host.in_maintenance is None for host in hosts)
        else sum(host.in_maintenance is True for host in hosts),
        powered_down_hosts=sum(_is_powered_down(host) for host in hosts),
        disconnected_hosts=sum(_is_disconnected(host) for host in hosts),
        unknown_hosts=sum(_is_unknown(host) for host in hosts),
        available_hosts=len(available),
        cpu_mhz=_sum(cpus),
        memory_mb=_sum(memories),
        largest_cpu_mhz=_max(cpus),
        largest_memory_mb=_max(memories),
        stats=HostStats(
            cpu_usage_mhz=_sum([host.stats.cpu_usage_mhz for host in available]),
            memory_usage_mb=_sum([host.stats.memory_usage_mb for host in available]),
        ),
    )


def _is_available(host: Host) -> bool:
    return (
        host.connection == "connected"
        and not _is_powered_down(host)
        and host.in_maintenance is False
    )


def _is_powered_down(host: Host) -> bool:
    # vCenter reports a host in standby as not responding.
    return host.power in ("standBy", "poweredOff")


def _is_disconnected(host: Host) -> bool:
    return host.connection not in ("connected", "") and not _is_powered_down(host)


def _is_unknown(host: Host) -> bool:
    if _is_powered_down(host) or _is_disconnected(host) or host.in_maintenance:
        return False
    return not host.connection or host.in_maintenance is None


def _read_cpu_mhz(host: Host) -> int | None:
    return host.cpu_mhz * host.cpu_cores if host.cpu_mhz and host.cpu_cores else None


def _sum(values: Sequence[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _max(values: Sequence[int | None]) -> int | None:
    numbers = [value for value in values if value is not None]
    return max(numbers) if numbers and len(numbers) == len(values) else None


class ClusterSummaries:
    """The summaries of all clusters of one vCenter, by reference."""

    def __init__(
        self, inventory: Inventory, on_change: Callable[[Change[ClusterSummary]], None]
    ) -> None:
        self._inventory, self._on_change = inventory, on_change
        self.by_ref: dict[str, ClusterSummary] = {}
        # References of the clusters to compute again. True if the name of an object above changed.
        self._outdated: dict[str, bool] = {}
        # The next update, soon or after the delay for stats.
        self._handle: asyncio.Handle | None = None

    def on_host_change(self, change: Change[Host]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and differ_only_in_stats(old, new):
            self._outdated.setdefault(new.parent, False)
            if self._handle is None:
                loop = asyncio.get_running_loop()
                self._handle = loop.call_later(_STATS_DELAY_SECONDS, self._update_outdated)
            return
        for host in (old, new):
            if host is not None:
                self._mark_outdated(host.parent, path_changed=False)

    def on_cluster_change(self, change: Change[ComputeResource]) -> None:
        cluster = change.new or change.old
        if cluster is not None:
            self._mark_outdated(cluster.ref, path_changed=change.related_object_changed)

    def _mark_outdated(self, ref: str, *, path_changed: bool) -> None:
        self._outdated[ref] = self._outdated.get(ref, False) or path_changed
        if self._handle is None or isinstance(self._handle, asyncio.TimerHandle):
            self._cancel_update()
            # After the batch of updates, of which this is one.
            self._handle = asyncio.get_running_loop().call_soon(self._update_outdated)

    def _cancel_update(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _update_outdated(self) -> None:
        self._cancel_update()
        outdated, self._outdated = self._outdated, {}
        for ref, path_changed in outdated.items():
            old, new = self.by_ref.pop(ref, None), self._summarize(ref)
            if new is not None:
                self.by_ref[ref] = new
            if old != new or (new is not None and path_changed):
                self._on_change(Change(old, new, path_changed))

    def get(self, cluster: ComputeResource) -> ClusterSummary:
        if self._outdated:
            self._update_outdated()
        return self.by_ref.get(cluster.ref) or summarize_cluster(
            cluster, self._find_hosts(cluster.ref)
        )

    def _summarize(self, ref: str) -> ClusterSummary | None:
        cluster = self._inventory.compute_resources.get(ref)
        if cluster is None or not cluster.is_cluster:
            return None
        return summarize_cluster(cluster, self._find_hosts(ref))

    def _find_hosts(self, ref: str) -> list[Host]:
        return [child for child in self._inventory.children(ref) if isinstance(child, Host)]
