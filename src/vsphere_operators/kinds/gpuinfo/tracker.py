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
from kubewright.cache import Via
from kubewright.log import Log
from kubewright.responses import Undecoded

from ...vsphere.index import Index
from ...vsphere.inventory import Change
from ...vsphere.model import AssignableHardware, Host, Machine
from ...vsphere.vcenter import VCenter
from .maintenance import Calendar, Entry
from .matching import match, uuids_of
from .node import Simulation, Surroundings, complaints, facts_of
from .ranking import Ranking
from .rules import Clock, NodeFacts, Refusal

LONGEST_ALARM_SECONDS = 3600.0
"""A timer goes by a clock that stops while the machine sleeps; so it looks at the wall clock every hour."""
PENDING_PATIENCE = timedelta(seconds=10)
"""A look takes some tenths of a second for 100 VMs, also after a start."""
Listener = Callable[[NodeFacts | None, NodeFacts | None], None]
Complain = Callable[[Object, str, str], None]
"""Says something about an object: reason and words."""


class Nodes:
    """All Nodes of the cluster."""

    def __init__(
        self,
        cache: Cache,
        vcenters: Mapping[str, VCenter],
        clock: Clock,
        complain: Complain,
        *,
        log: Log,
        resources: tuple[str, ...],
        simulation: Simulation | None = None,
    ) -> None:
        self.cache, self.vcenters, self.clock, self.complain, self.log = cache, vcenters, clock, complain, log
        self.resources, self.simulation = resources, simulation
        self.calendar = Calendar()
        self.ranking = Ranking()
        self.version = 0
        """Grows with every change of any facts."""
        self.listeners: list[Listener] = []
        self.uuids, self.on_machine, self.on_host = Index(), Index(), Index()
        """Names of Nodes by uuid, by VM, by host."""
        self.places: dict[str, tuple[str, str]] = {}
        self.pending: dict[str, datetime] = {}
        self.said: dict[str, tuple[tuple[str, str], ...]] = {}
        self.ends: list[tuple[datetime, str]] = []
        self.alarm: asyncio.TimerHandle | None = None
        cache.store(Node).listeners.append(self.hear_node)
        for vcenter in vcenters.values():
            vcenter.inventory.listeners.append(partial(self.hear_change, vcenter))
            vcenter.devices.listeners.append(partial(self.hear_devices, vcenter))
            vcenter.scheduled.listeners.append(partial(self.hear_host, vcenter))
            vcenter.assignable.listeners.append(partial(self.hear_host, vcenter))
            vcenter.listeners.append(self.rebuild_all)

    def hear_node(self, key: Key, old: Node | Undecoded | None, new: Node | Undecoded | None, via: Via) -> None:
        """A Node came, changed or went."""
        for obj, change in ((old, self.uuids.drop), (new, self.uuids.add)):
            for uuid in uuids_of(obj.spec.providerID) if isinstance(obj, Node) else ():
                change(uuid, key.name)
        self.rebuild([key.name])

    def hear_change(self, vcenter: VCenter, change: Change) -> None:
        """Something in a vCenter came, changed or went."""
        names = set[str]()
        for item in (change.old, change.new):
            if isinstance(item, Machine):
                names |= {item.name, *self.uuids.of(item.bios_uuid.lower()), *self.on_machine.of(place_of(vcenter, item.ref))}
            elif isinstance(item, Host):
                names |= self.on_host.of(place_of(vcenter, item.ref))
        if names:
            self.rebuild(names)

    def hear_devices(self, vcenter: VCenter, ref: str) -> None:
        """The devices of a VM are known, or are others."""
        self.rebuild(list(self.on_machine.of(place_of(vcenter, ref))))

    def hear_host(self, vcenter: VCenter, ref: str) -> None:
        """Something else is planned for a host, or it has other hardware to assign."""
        self.rebuild(list(self.on_host.of(place_of(vcenter, ref))))

    def plan(self, entries: Iterable[Entry]) -> None:
        """The calendar has these entries from now on; those that are over, which people leave standing, cost nobody a look."""
        now = self.clock()
        self.calendar = Calendar(entry for entry in entries if entry.next(now) is not None)
        self.rebuild_all()

    def rebuild_all(self) -> None:
        """Anything may be otherwise: a vCenter was loaded, was lost or is back, or there is another calendar."""
        self.rebuild({*self.ranking.facts, *(node.metadata.name for node in self.cache.all(Node))})

    def say_again(self) -> None:
        """Say anew what is wrong: what was said before this process led has reached nobody."""
        self.said.clear()
        self.rebuild_all()

    def rebuild(self, names: Iterable[str]) -> None:
        """The facts of these Nodes anew, and a word to the listeners where they differ."""
        now = self.clock()
        for name in names:
            old = self.ranking.facts.get(name)
            try:
                new = self.facts(name, now)
            except Exception as error:
                new = self.unreadable(name, old, error)
            if old != new:
                self.take(name, old, new, now)

    def take(self, name: str, old: NodeFacts | None, new: NodeFacts | None, now: datetime) -> None:
        """Other facts of one Node."""
        self.version += 1
        self.ranking.put(name, new)
        if new is not None and new.maintenance is not None and (old is None or old.maintenance != new.maintenance):
            heapq.heappush(self.ends, (new.maintenance.end, name))
            self.set_alarm(now)
        for listener in self.listeners:
            listener(old, new)

    def unreadable(self, name: str, old: NodeFacts | None, error: Exception) -> NodeFacts:
        """What stands for facts that cannot be made; said once, and not with every change of load."""
        if old is None or old.obstacle is not Refusal.FACTS_UNREADABLE:
            self.log.error("unexpected error, no job is sent to this node until it is mended", node=name, error=error)
        return NodeFacts(name=name, obstacle=Refusal.FACTS_UNREADABLE)

    def facts(self, name: str, now: datetime) -> NodeFacts | None:
        """How a Node is now; None for one that is not there."""
        node = self.cache.get(Node, Key("", name))
        around = self.around(node) if node is not None else Surroundings()
        if node is None:
            self.settle(name, "", "")
            self.pending.pop(name, None)
            self.said.pop(name, None)
            self.calendar.forget(name)
            return None
        self.tell_complaints(node, tuple(complaints(node, around.host, self.resources)))
        return facts_of(node, around, self.resources, self.simulation, now)

    def read_soon(self) -> int:
        """How many Nodes' devices are being read, without those that have been for so long that nobody should wait for them."""
        now = self.clock()
        return sum(now - since < PENDING_PATIENCE for since in self.pending.values())

    def tell_complaints(self, node: Node, found: tuple[tuple[str, str], ...]) -> None:
        """Say what is wrong with what people wrote, once, and not with every change of load."""
        name = node.metadata.name
        for reason, words in found:
            if (reason, words) not in self.said.get(name, ()):
                self.complain(node, reason, words)
        self.said[name] = found

    def around(self, node: Node) -> Surroundings:
        """Its VM and all that comes with it."""
        name, found = node.metadata.name, match(node, self.vcenters.values())
        vcenter, vm = found.vcenter, found.machine
        since = self.pending.pop(name, None) or self.clock()
        if vcenter is None or vm is None:
            self.settle(name, "", "")
            entries = self.calendar.about(host="", node=name)
            return Surroundings(obstacle=found.obstacle, unmatched=found.unmatched, entries=entries)
        self.settle(name, place_of(vcenter, vm.ref), place_of(vcenter, vm.host))
        devices = vcenter.devices.of(vm.ref)
        away = not vcenter.loaded or vcenter.problem is not None
        unread = devices is None and self.simulation is None
        # A vCenter that is away keeps nobody waiting: its Nodes are refused, and others may be chosen.
        if unread and not away:
            self.pending[name] = since
        host = vcenter.inventory.hosts.get(vm.host)
        return Surroundings(
            vcenter=vcenter.name,
            machine=vm,
            obstacle=Refusal.VCENTER_UNREACHABLE if away else Refusal.DEVICES_UNREAD if unread else None,
            matched_by=found.by,
            host=host,
            devices=devices or (),
            devices_hidden=vm.ref in vcenter.devices.hidden,
            hardware=vcenter.assignable.of(vm.host) if vm.host else AssignableHardware(),
            planned=vcenter.scheduled.of(vm.host) if vm.host else (),
            entries=self.calendar.about(host=host.name if host else "", node=name),
        )

    def settle(self, name: str, machine: str, host: str) -> None:
        """A Node is on this VM and this host from now on."""
        before = self.places.get(name, ("", ""))
        if before != (machine, host):
            self.on_machine.move(name, before[0], machine)
            self.on_host.move(name, before[1], host)
            self.places[name] = (machine, host)
            if not machine:
                del self.places[name]

    def set_alarm(self, now: datetime) -> None:
        """Ring at the earliest end of a window."""
        if self.alarm is not None:
            self.alarm.cancel()
        self.alarm = None
        if self.ends:
            seconds = min(max((self.ends[0][0] - now).total_seconds(), 0.0), LONGEST_ALARM_SECONDS)
            self.alarm = asyncio.get_running_loop().call_later(seconds, self.ring)

    def ring(self) -> None:
        """Some windows are over."""
        now, over = self.clock(), set[str]()
        while self.ends and self.ends[0][0] <= now:
            over.add(heapq.heappop(self.ends)[1])
        self.rebuild(over)
        self.set_alarm(now)


def place_of(vcenter: VCenter, ref: str) -> str:
    """A reference that is unique over all vCenters; "" for none."""
    return f"{vcenter.name}/{ref}" if ref else ""
