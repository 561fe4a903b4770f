"""Large properties of VMs, read for those that somebody asks about and kept true: what is too much for the inventory of all.

Who asks?  `of` does, the first time: what is not known is read soon, in one call for all that are wanted, and the listeners hear of it.
And when it changes?  `config.changeVersion` is in the inventory and moves with every change of a VM's configuration: read again then.
And what vCenter does not show, since the account may not see it, or the VM has no configuration that could be read?  Such a VM is in
    `hidden`: what it has, nobody can tell. It is asked for again every minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, NoReturn, TypeVar

from pyVmomi import vmodl

from .faults import PASSING, VCenterError
from .inventory import Change, Inventory
from .model import Machine
from .polling import Rhythm
from .retrieve import all_selected
from .server_view import on, properties_of, reference
from .session import Session
from .transport import Log, Soap
from .updates import ObjectUpdate, Value

Query = vmodl.query.PropertyCollector
# A look without anybody who asks costs nothing; this is how long who could not be read waits at the most.
INTERVAL_SECONDS, SETTLE_SECONDS, PAUSE_SECONDS = 15.0, 0.05, 0.25
HIDDEN_SECONDS = 60.0
AT_ONCE = 100
Listener = Callable[[str], None]
Found = TypeVar("Found")


class Reading(Generic[Found]):
    """What `decode` makes of the properties, by reference of the VM; `of` answers from memory."""

    def __init__(
        self,
        paths: Sequence[str],
        decode: Callable[[Mapping[str, Value]], Found],
        soap: Soap,
        session: Session,
        inventory: Inventory,
        log: Log,
        *,
        rhythm: Rhythm | None = None,
    ) -> None:
        self.paths, self.decode, self.soap, self.session, self.inventory, self.log = list(paths), decode, soap, session, inventory, log
        self.rhythm = rhythm or Rhythm(INTERVAL_SECONDS, settle_seconds=SETTLE_SECONDS, pause_seconds=PAUSE_SECONDS)
        self.known: dict[str, Found] = {}
        self.hidden: set[str] = set()
        """Those of whom vCenter does not show all."""
        self.asked_hidden_at = self.rhythm.clock()
        self.wanted: set[str] = set()
        """Those to read with the next look."""
        self.listeners: list[Listener] = []

    def of(self, ref: str) -> Found | None:
        """What a VM has; None while it is not known, and then it will be soon."""
        found = self.known.get(ref)
        if found is None:
            self.want(ref)
        return found

    def want(self, ref: str) -> None:
        """Read it soon."""
        if ref not in self.wanted:
            self.wanted.add(ref)
            self.rhythm.soon()

    async def run(self) -> NoReturn:
        """Look whenever somebody asks, until cancelled."""
        with self.inventory.heard_by(self.heard):
            await self.rhythm.keep(self.look)

    def heard(self, change: Change) -> None:
        """A VM that was asked about has another configuration, or is gone."""
        old, new = change.old, change.new
        if isinstance(old, Machine) and old.ref in self.known:
            if not isinstance(new, Machine):
                self.known.pop(old.ref)
                self.hidden.discard(old.ref)
            elif old.config_version != new.config_version:
                self.want(old.ref)

    async def look(self) -> None:
        """Read those that are wanted; a failure is told, and they stay wanted."""
        if self.hidden and self.rhythm.clock() - self.asked_hidden_at >= HIDDEN_SECONDS:
            self.asked_hidden_at = self.rhythm.clock()
            self.wanted |= self.hidden
        wanted, self.wanted = [ref for ref in self.wanted if ref in self.inventory.machines], set()
        unread = list(wanted)
        try:
            with self.rhythm.looking():
                while unread:
                    self.learn(await self.read(unread[:AT_ONCE]))
                    del unread[:AT_ONCE]
        except PASSING as error:
            self.wanted |= set(wanted)
            self.log.debug("properties of VMs cannot be read, trying again", properties=self.paths, error=error)
        except VCenterError as error:
            # vCenter answers, and says no. Without this nobody who waits for one of them would ever get an answer.
            if not self.hidden.issuperset(wanted):
                self.log.warning("vCenter does not show properties of some VMs", properties=self.paths, error=error, vms=len(wanted))
            self.learn([ObjectUpdate("modify", "VirtualMachine", ref) for ref in wanted if ref not in self.known])
            self.hide(unread)
        finally:
            # Those that the answer left out, or that an error of ours cut off.
            self.wanted |= {ref for ref in wanted if ref not in self.known and ref in self.inventory.machines}

    def hide(self, refs: Iterable[str]) -> None:
        """What is known of these may not be true any more, and vCenter does not show what is."""
        for ref in sorted((self.known.keys() & set(refs)) - self.hidden):
            self.hidden.add(ref)
            for listener in self.listeners:
                listener(ref)

    async def refresh(self, refs: list[str]) -> None:
        """Read these now: what was pushed a moment ago may not have been read yet."""
        self.learn(await self.read(refs))

    async def read(self, refs: list[str]) -> list[ObjectUpdate]:
        """One call for some VMs."""
        return await retrieved(self.soap, self.session, "VirtualMachine", refs, self.paths)

    def learn(self, updates: list[ObjectUpdate]) -> None:
        """Take what was read, and tell of whom it differs."""
        for update in updates:
            found, shown = self.decode(update.changes), all(path in update.changes for path in self.paths)
            same = self.known.get(update.ref) == found and shown == (update.ref not in self.hidden)
            if update.ref not in self.inventory.machines or same:
                continue
            self.known[update.ref] = found
            (self.hidden.discard if shown else self.hidden.add)(update.ref)
            for listener in self.listeners:
                listener(update.ref)


async def retrieved(soap: Soap, session: Session, kind: str, refs: Sequence[str], paths: Sequence[str]) -> list[ObjectUpdate]:
    """Properties of objects of one type as vCenter has them now; what is gone is left out."""
    objects = [on(reference(kind, ref)) for ref in refs]
    spec = Query.FilterSpec(objectSet=objects, propSet=[properties_of(kind, paths)], reportMissingObjectsInResults=True)
    return await session.call(lambda: all_selected(soap, spec))
