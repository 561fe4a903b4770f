"""The facts of every Node, kept by push: a change of a Node, its VM, its host or what is planned touches that Node's facts and no others.

Questions and answers:

Who hears of it?  Every listener, with the facts before and after, when they differ; `ranking` has the new ones by then.
How is the Node of a change found?  By indexes: a VM leads to Nodes by its uuid and its name, a host by the VMs that Nodes are on.
What does time do?  The end of a window makes another one the next, so one alarm rings at the earliest end. Hours that only grow less are
    counted by whoever shows them.
And if the facts of one cannot be made?  The log has the error, that Node is refused as FactsUnreadable, and all others go on.
What is `pending`?  Nodes whose VM's devices are being read, and since when. Until then nobody knows whether they have a GPU, so they are
    refused. Who has had no answer yet waits for them, but only while that is new: one that is never read keeps nobody from an answer.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial

from kubewright import Cache, Key, Object
from kubewright.builtin import Node
from kubewright.cache import Origin
from kubewright.log import Log
from kubewright.responses import UndecodableObject

from ...vsphere.index import Index
from ...vsphere.inventory import Change
from ...vsphere.model import AssignableHardware, Host, VirtualMachine
from ...vsphere.vcenter import VCenter
from .maintenance import CalendarEntry, Schedule
from .matching import match_node, parse_provider_id
from .node import NodeContext, Simulation, build_facts, find_warnings
from .ranking import Ranking
from .rules import Clock, NodeFacts, Rejection

_MAX_TIMER_SECONDS = 3600.0
"""A timer goes by a clock that stops while the machine sleeps; so it looks at the wall clock every hour."""
_PENDING_TIMEOUT = timedelta(seconds=10)
"""A look takes some tenths of a second for 100 VMs, also after a start."""
FactsListener = Callable[[NodeFacts | None, NodeFacts | None], None]
RecordWarning = Callable[[Object, str, str], None]
"""Says something about an object: reason and words."""


class NodeTracker:
    """All Nodes of the cluster."""

    def __init__(
        self,
        cache: Cache,
        vcenters: Mapping[str, VCenter],
        clock: Clock,
        complain: RecordWarning,
        *,
        log: Log,
        gpu_resource_globs: tuple[str, ...],
        simulation: Simulation | None = None,
    ) -> None:
        self.cache, self.vcenters, self.clock, self.record_warning, self.log = (
            cache,
            vcenters,
            clock,
            complain,
            log,
        )
        self.gpu_resource_globs, self.simulation = gpu_resource_globs, simulation
        self.schedule = Schedule()
        self.ranking = Ranking()
        self.version = 0
        """Grows with every change of any facts."""
        self.listeners: list[FactsListener] = []
        self.nodes_by_uuid, self.nodes_by_vm, self.nodes_by_host = Index(), Index(), Index()
        """Names of Nodes by uuid, by VM, by host."""
        self.node_locations: dict[str, tuple[str, str]] = {}
        self.devices_pending_since: dict[str, datetime] = {}
        self.reported_warnings: dict[str, tuple[tuple[str, str], ...]] = {}
        self._window_ends: list[tuple[datetime, str]] = []
        self.timer: asyncio.TimerHandle | None = None
        cache.store(Node).listeners.append(self.on_node_change)
        for vcenter in vcenters.values():
            vcenter.inventory.listeners.append(partial(self.on_inventory_change, vcenter))
            vcenter.passthrough_devices.listeners.append(partial(self._on_devices_change, vcenter))
            vcenter.scheduled_tasks.listeners.append(partial(self._on_host_change, vcenter))
            vcenter.assignable_hardware.listeners.append(partial(self._on_host_change, vcenter))
            vcenter.listeners.append(self.rebuild_all)

    def on_node_change(
        self,
        key: Key,
        old: Node | UndecodableObject | None,
        new: Node | UndecodableObject | None,
        via: Origin,
    ) -> None:
        """A Node came, changed or went."""
        for obj, change in ((old, self.nodes_by_uuid.drop), (new, self.nodes_by_uuid.add)):
            for uuid in parse_provider_id(obj.spec.providerID) if isinstance(obj, Node) else ():
                change(uuid, key.name)
        self._rebuild([key.name])

    def on_inventory_change(self, vcenter: VCenter, change: Change) -> None:
        """Something in a vCenter came, changed or went."""
        names = set[str]()
        for item in (change.old, change.new):
            if isinstance(item, VirtualMachine):
                names |= {
                    item.name,
                    *self.nodes_by_uuid.get(item.bios_uuid.lower()),
                    *self.nodes_by_vm.get(_qualify_ref(vcenter, item.ref)),
                }
            elif isinstance(item, Host):
                names |= self.nodes_by_host.get(_qualify_ref(vcenter, item.ref))
        if names:
            self._rebuild(names)

    def _on_devices_change(self, vcenter: VCenter, ref: str) -> None:
        """The devices of a VM are known, or are others."""
        self._rebuild(list(self.nodes_by_vm.get(_qualify_ref(vcenter, ref))))

    def _on_host_change(self, vcenter: VCenter, ref: str) -> None:
        """Something else is planned for a host, or it has other hardware to assign."""
        self._rebuild(list(self.nodes_by_host.get(_qualify_ref(vcenter, ref))))

    def set_calendar_entries(self, entries: Iterable[CalendarEntry]) -> None:
        """The calendar has these entries from now on; those that are over, which people leave standing, cost nobody a look."""
        now = self.clock()
        self.schedule = Schedule(entry for entry in entries if entry.next_window(now) is not None)
        self.rebuild_all()

    def rebuild_all(self) -> None:
        """Anything may be otherwise: a vCenter was loaded, was lost or is back, or there is another calendar."""
        self._rebuild({*self.ranking.facts, *(node.metadata.name for node in self.cache.all(Node))})

    def repeat_warnings(self) -> None:
        """Say anew what is wrong: what was said before this process led has reached nobody."""
        self.reported_warnings.clear()
        self.rebuild_all()

    def _rebuild(self, names: Iterable[str]) -> None:
        """The facts of these Nodes anew, and a word to the listeners where they differ."""
        now = self.clock()
        for name in names:
            old = self.ranking.facts.get(name)
            try:
                new = self._collect_facts(name, now)
            except Exception as error:
                new = self._build_unreadable_facts(name, old, error)
            if old != new:
                self._apply_facts(name, old, new, now)

    def _apply_facts(
        self, name: str, old: NodeFacts | None, new: NodeFacts | None, now: datetime
    ) -> None:
        """Other facts of one Node."""
        self.version += 1
        self.ranking.set_facts(name, new)
        if (
            new is not None
            and new.maintenance is not None
            and (old is None or old.maintenance != new.maintenance)
        ):
            heapq.heappush(self._window_ends, (new.maintenance.end, name))
            self._set_timer(now)
        for listener in self.listeners:
            listener(old, new)

    def _build_unreadable_facts(
        self, name: str, old: NodeFacts | None, error: Exception
    ) -> NodeFacts:
        """What stands for facts that cannot be made; said once, and not with every change of load."""
        if old is None or old.blocker is not Rejection.FACTS_UNREADABLE:
            self.log.error(
                "unexpected error, no job is sent to this node until it is mended",
                node=name,
                error=error,
            )
        return NodeFacts(name=name, blocker=Rejection.FACTS_UNREADABLE)

    def _collect_facts(self, name: str, now: datetime) -> NodeFacts | None:
        """How a Node is now; None for one that is not there."""
        node = self.cache.get(Node, Key("", name))
        around = self.build_node_context(node) if node is not None else NodeContext()
        if node is None:
            self._set_location(name, "", "")
            self.devices_pending_since.pop(name, None)
            self.reported_warnings.pop(name, None)
            self.schedule.forget_node(name)
            return None
        self._report_warnings(
            node, tuple(find_warnings(node, around.host, self.gpu_resource_globs))
        )
        return build_facts(node, around, self.gpu_resource_globs, self.simulation, now)

    def count_pending_reads(self) -> int:
        """How many Nodes' devices are being read, without those that have been for so long that nobody should wait for them."""
        now = self.clock()
        return sum(now - since < _PENDING_TIMEOUT for since in self.devices_pending_since.values())

    def _report_warnings(self, node: Node, found: tuple[tuple[str, str], ...]) -> None:
        """Say what is wrong with what people wrote, once, and not with every change of load."""
        name = node.metadata.name
        for reason, words in found:
            if (reason, words) not in self.reported_warnings.get(name, ()):
                self.record_warning(node, reason, words)
        self.reported_warnings[name] = found

    def build_node_context(self, node: Node) -> NodeContext:
        """Its VM and all that comes with it."""
        name, found = node.metadata.name, match_node(node, self.vcenters.values())
        vcenter, vm = found.vcenter, found.vm
        since = self.devices_pending_since.pop(name, None) or self.clock()
        if vcenter is None or vm is None:
            self._set_location(name, "", "")
            entries = self.schedule.find_entries(host="", node=name)
            return NodeContext(
                blocker=found.blocker, match_failure=found.match_failure, calendar_entries=entries
            )
        self._set_location(name, _qualify_ref(vcenter, vm.ref), _qualify_ref(vcenter, vm.host))
        devices = vcenter.passthrough_devices.get(vm.ref)
        away = not vcenter.loaded or vcenter.problem is not None
        unread = devices is None and self.simulation is None
        # A vCenter that is away keeps nobody waiting: its Nodes are refused, and others may be chosen.
        if unread and not away:
            self.devices_pending_since[name] = since
        host = vcenter.inventory.hosts.get(vm.host)
        return NodeContext(
            vcenter_name=vcenter.name,
            vm=vm,
            blocker=Rejection.VCENTER_UNREACHABLE
            if away
            else Rejection.DEVICES_UNREAD
            if unread
            else None,
            matched_by=found.matched_by,
            host=host,
            devices=devices or (),
            devices_hidden=vm.ref in vcenter.passthrough_devices.hidden,
            assignable_hardware=vcenter.assignable_hardware.get(vm.host)
            if vm.host
            else AssignableHardware(),
            scheduled_maintenance=vcenter.scheduled_tasks.get(vm.host) if vm.host else (),
            calendar_entries=self.schedule.find_entries(host=host.name if host else "", node=name),
        )

    def _set_location(self, name: str, machine: str, host: str) -> None:
        """A Node is on this VM and this host from now on."""
        before = self.node_locations.get(name, ("", ""))
        if before != (machine, host):
            self.nodes_by_vm.move(name, before[0], machine)
            self.nodes_by_host.move(name, before[1], host)
            self.node_locations[name] = (machine, host)
            if not machine:
                del self.node_locations[name]

    def _set_timer(self, now: datetime) -> None:
        """Ring at the earliest end of a window."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None
        if self._window_ends:
            seconds = min(
                max((self._window_ends[0][0] - now).total_seconds(), 0.0), _MAX_TIMER_SECONDS
            )
            self.timer = asyncio.get_running_loop().call_later(seconds, self.on_timer)

    def on_timer(self) -> None:
        """Some windows are over."""
        now, over = self.clock(), set[str]()
        while self._window_ends and self._window_ends[0][0] <= now:
            over.add(heapq.heappop(self._window_ends)[1])
        self._rebuild(over)
        self._set_timer(now)


def _qualify_ref(vcenter: VCenter, ref: str) -> str:
    """A reference that is unique over all vCenters; "" for none."""
    return f"{vcenter.name}/{ref}" if ref else ""
