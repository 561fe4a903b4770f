"""Keeps the facts of every Node current: a change updates the facts of the Nodes that it concerns.

When are listeners notified?  When the facts of a Node differ; `ranking` has the new ones by then.
How are the Nodes of a change found?  By indexes: a VM leads to Nodes by its uuid and its name, a
    host by the VMs that Nodes run on.
What does time change?  When a maintenance window ends, another one becomes the next, so a timer
    fires at the earliest end. Hours that merely decrease are computed when they are shown.
What if the facts of a Node cannot be built?  The error is logged, that Node is rejected with
    FactsUnreadable, and all others stay current.
What is `devices_pending_since`?  Nodes with a VM that has unread devices. Whether they have a GPU
    is unknown, so they are rejected. A GPUInfo without a selection waits for them, but only for a
    while: a VM that is never read must not hold it up for ever.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Mapping, Set
from datetime import datetime, timedelta

from kubewright import Cache, Key, Object
from kubewright.builtin import Node
from kubewright.cache import Origin
from kubewright.log import Log
from kubewright.responses import UndecodableObject

from ...vcenters.node_matching import match_node, parse_provider_id
from ...vsphere.index import Index
from ...vsphere.inventory import Change, Signal
from ...vsphere.model import Host, VirtualMachine
from ...vsphere.vcenter import VCenter
from .maintenance_windows import Calendar, CalendarEntry
from .node import NodeContext, Simulation, build_facts, build_node_context, find_warnings
from .ranking import Ranking
from .rules import NodeFacts, Rejection

# asyncio timers use a clock that stops while the machine sleeps; check the wall clock every hour.
_MAX_TIMER_SECONDS = 3600.0
# Reading the devices of 100 VMs takes some tenths of a second, also after a start.
_PENDING_TIMEOUT = timedelta(seconds=10)
RecordWarning = Callable[[Object, str, str], None]
"""Records a Warning Event: object, reason, message."""


class NodeTracker:
    """The facts of all Nodes of the cluster; build.py connects its handlers."""

    def __init__(
        self,
        cache: Cache,
        vcenters: Mapping[str, VCenter],
        clock: Callable[[], datetime],
        record_warning: RecordWarning,
        *,
        log: Log,
        gpu_resource_globs: tuple[str, ...],
        simulation: Simulation | None = None,
    ) -> None:
        self._cache, self._vcenters, self.clock = cache, vcenters, clock
        self._record_warning, self._log = record_warning, log
        self._gpu_resource_globs, self.simulation = gpu_resource_globs, simulation
        self._calendar = Calendar()
        self.ranking = Ranking()
        # Incremented by every change of any facts.
        self.version = 0
        # With the old and the new facts of one Node.
        self.facts_changed: Signal[NodeFacts | None, NodeFacts | None] = Signal(log)
        # The host of a Node's VM before and after, as vcenter/ref, or "".
        self.host_changed: Signal[str, str] = Signal(log)
        # Names of Nodes; VMs and hosts as vcenter/ref.
        self._nodes_by_uuid, self._nodes_by_vm, self._nodes_by_host = Index(), Index(), Index()
        # The same, to remove a Node from the two indexes.
        self._vm_and_host_by_node: dict[str, tuple[str, str]] = {}
        self.devices_pending_since: dict[str, datetime] = {}
        self._reported_warnings: dict[str, tuple[tuple[str, str], ...]] = {}
        self._window_ends: list[tuple[datetime, str]] = []
        self._timer: asyncio.TimerHandle | None = None

    def on_node_change(
        self,
        key: Key,
        old: Node | UndecodableObject | None,
        new: Node | UndecodableObject | None,
        origin: Origin,
    ) -> None:
        for node, update in ((old, self._nodes_by_uuid.drop), (new, self._nodes_by_uuid.add)):
            for uuid in parse_provider_id(node.spec.providerID) if isinstance(node, Node) else ():
                update(uuid, key.name)
        self._rebuild([key.name])

    def on_inventory_change(self, vcenter: VCenter, change: Change[Host | VirtualMachine]) -> None:
        names = set[str]()
        for entity in (change.old, change.new):
            if isinstance(entity, VirtualMachine):
                names |= self._nodes_by_uuid.get(entity.bios_uuid.lower())
                names |= self._nodes_by_vm.get(_qualify_ref(vcenter, entity.ref))
                # Every Node has facts. Most VMs are not Nodes, and are done here.
                if entity.name in self.ranking.facts:
                    names.add(entity.name)
            elif isinstance(entity, Host):
                names |= self._nodes_by_host.get(_qualify_ref(vcenter, entity.ref))
        if names:
            self._rebuild(names)

    def on_devices_change(self, vcenter: VCenter, vm_ref: str) -> None:
        self._rebuild(list(self._nodes_by_vm.get(_qualify_ref(vcenter, vm_ref))))

    def on_host_details_change(self, vcenter: VCenter, host_ref: str) -> None:
        """The scheduled tasks or the assignable hardware of a host changed."""
        self._rebuild(list(self._nodes_by_host.get(_qualify_ref(vcenter, host_ref))))

    def on_calendar_change(self, entries: Iterable[CalendarEntry]) -> None:
        now = self.clock()
        # Expired lines often stay in a calendar; dropped here, they cost nothing per Node.
        self._calendar = Calendar(entry for entry in entries if entry.next_window(now) is not None)
        self.rebuild_all()

    def rebuild_all(self) -> None:
        """Anything may have changed: a vCenter was loaded, lost or reconnected."""
        nodes = self._cache.all(Node)
        self._rebuild({*self.ranking.facts, *(node.metadata.name for node in nodes)})

    def repeat_warnings(self) -> None:
        # Events are not written before this process leads, so the first warnings were lost.
        self._reported_warnings.clear()
        self.rebuild_all()

    def nodes_by_vm(self, vcenter: str) -> dict[str, str]:
        """The Nodes that run on VMs of the vCenter, by the reference of their VM."""
        prefix = f"{vcenter}/"
        return {
            vm.removeprefix(prefix): node
            for node, (vm, _) in self._vm_and_host_by_node.items()
            if vm.startswith(prefix)
        }

    def count_pending_reads(self) -> int:
        """How many Nodes have devices that are being read, without those that take too long."""
        now = self.clock()
        return sum(now - since < _PENDING_TIMEOUT for since in self.devices_pending_since.values())

    def _rebuild(self, names: Iterable[str]) -> None:
        now = self.clock()
        for name in names:
            old = self.ranking.facts.get(name)
            try:
                new = self._collect_facts(name, now)
            except Exception as error:
                # Logged once, not with every change of load.
                if old is None or old.rejection_for_all is not Rejection.FACTS_UNREADABLE:
                    self._log.error(
                        "the facts of a node could not be built; the node is rejected "
                        "(FactsUnreadable) until they can",
                        node=name,
                        error=error,
                    )
                new = NodeFacts(name=name, rejection_for_all=Rejection.FACTS_UNREADABLE)
            if old != new:
                self._apply_facts(name, old, new, now)

    def _apply_facts(
        self, name: str, old: NodeFacts | None, new: NodeFacts | None, now: datetime
    ) -> None:
        self.version += 1
        self.ranking.set_facts(name, new)
        if (
            new is not None
            and new.next_window is not None
            and (old is None or old.next_window != new.next_window)
        ):
            heapq.heappush(self._window_ends, (new.next_window.end, name))
            self._set_timer(now)
        self.facts_changed.emit(old, new)

    def _collect_facts(self, name: str, now: datetime) -> NodeFacts | None:
        """The current facts of a Node; None if it does not exist."""
        node = self._cache.get(Node, Key("", name))
        if node is None:
            self._set_location(name, "", "")
            self.devices_pending_since.pop(name, None)
            self._reported_warnings.pop(name, None)
            self._calendar.forget_node(name)
            return None
        context = self._build_node_context(node, now)
        self._report_warnings(
            node, tuple(find_warnings(node, context.host, self._gpu_resource_globs))
        )
        return build_facts(node, context, self._gpu_resource_globs, self.simulation, now)

    def _report_warnings(self, node: Node, warnings: tuple[tuple[str, str], ...]) -> None:
        name = node.metadata.name
        for reason, message in warnings:
            # Recorded once, not with every change of load.
            if (reason, message) not in self._reported_warnings.get(name, ()):
                self._record_warning(node, reason, message)
        self._reported_warnings[name] = warnings

    def _build_node_context(self, node: Node, now: datetime) -> NodeContext:
        name, match = node.metadata.name, match_node(node, self._vcenters.values())
        vcenter, vm = match.vcenter, match.vm
        if vcenter is None or vm is None:
            self._set_location(name, "", "")
        else:
            self._set_location(name, _qualify_ref(vcenter, vm.ref), _qualify_ref(vcenter, vm.host))
        context = build_node_context(
            name, match, self._calendar, needs_devices=self.simulation is None
        )
        since = self.devices_pending_since.pop(name, now)
        if context.rejection_for_all is Rejection.DEVICES_UNREAD:
            self.devices_pending_since[name] = since
        return context

    def _set_location(self, name: str, vm: str, host: str) -> None:
        old_vm, old_host = self._vm_and_host_by_node.pop(name, ("", ""))
        if (old_vm, old_host) != (vm, host):
            self._nodes_by_vm.move(name, old_vm, vm)
            self._nodes_by_host.move(name, old_host, host)
        if vm:
            self._vm_and_host_by_node[name] = (vm, host)
        if old_host != host:
            self.host_changed.emit(old_host, host)

    def nodes_on(self, vcenter: str, host: str) -> Set[str]:
        """The names of the Nodes with a VM on this host."""
        return self._nodes_by_host.get(f"{vcenter}/{host}")

    def _set_timer(self, now: datetime) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._window_ends:
            seconds = max((self._window_ends[0][0] - now).total_seconds(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(
                min(seconds, _MAX_TIMER_SECONDS), self._on_timer
            )

    def _on_timer(self) -> None:
        now, names = self.clock(), set[str]()
        while self._window_ends and self._window_ends[0][0] <= now:
            names.add(heapq.heappop(self._window_ends)[1])
        self._rebuild(names)
        self._set_timer(now)


def _qualify_ref(vcenter: VCenter, ref: str) -> str:
    """A reference that is unique across vCenters; "" for none."""
    return f"{vcenter.name}/{ref}" if ref else ""
