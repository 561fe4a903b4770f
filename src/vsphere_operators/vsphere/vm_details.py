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

from .faults import RETRYABLE_ERRORS, VCenterError
from .inventory import Change, Inventory
from .model import VirtualMachine
from .polling import PollSchedule
from .retrieve import (
    retrieve_properties,
)
from .session import Session
from .signal import Signal
from .transport import Log, SoapClient
from .updates import ObjectUpdate, Value

PropertyCollector = vmodl.query.PropertyCollector
# A look without anybody who asks costs nothing; this is how long who could not be read waits at the most.
INTERVAL_SECONDS, DEBOUNCE_SECONDS, MIN_INTERVAL_SECONDS = 15.0, 0.05, 0.25
_HIDDEN_RETRY_SECONDS = 60.0
_VMS_PER_CALL = 100
CachedT = TypeVar("CachedT")


class VmPropertyCache(Generic[CachedT]):
    """What `decode` makes of the properties, by reference of the VM; `of` answers from memory."""

    def __init__(
        self,
        paths: Sequence[str],
        decode: Callable[[Mapping[str, Value]], CachedT],
        soap: SoapClient,
        session: Session,
        inventory: Inventory,
        log: Log,
        *,
        poll_schedule: PollSchedule | None = None,
    ) -> None:
        self.paths, self.decode, self.soap, self.session, self.inventory, self.log = (
            list(paths),
            decode,
            soap,
            session,
            inventory,
            log,
        )
        self.poll_schedule = poll_schedule or PollSchedule(
            INTERVAL_SECONDS,
            debounce_seconds=DEBOUNCE_SECONDS,
            min_interval_seconds=MIN_INTERVAL_SECONDS,
        )
        self.values: dict[str, CachedT] = {}
        self.hidden: set[str] = set()
        """Those of whom vCenter does not show all."""
        self.hidden_retried_at = self.poll_schedule.clock()
        self.requested: set[str] = set()
        """Those to read with the next look."""
        self.changed: Signal[str] = Signal(log)
        """The properties of a VM were read, or changed: its reference."""

    def get(self, ref: str) -> CachedT | None:
        """What a VM has; None while it is not known, and then it will be soon."""
        found = self.values.get(ref)
        if found is None:
            self.request_refresh(ref)
        return found

    def request_refresh(self, ref: str) -> None:
        """Read it soon."""
        if ref not in self.requested:
            self.requested.add(ref)
            self.poll_schedule.trigger()

    async def run(self) -> NoReturn:
        """Look whenever somebody asks, until cancelled."""
        await self.poll_schedule.run(self.poll)

    def on_vm_change(self, change: Change) -> None:
        """A VM that was asked about has another configuration, or is gone."""
        old, new = change.old, change.new
        if isinstance(old, VirtualMachine) and old.ref in self.values:
            if not isinstance(new, VirtualMachine):
                self.values.pop(old.ref)
                self.hidden.discard(old.ref)
            elif old.config_version != new.config_version:
                self.request_refresh(old.ref)

    async def poll(self) -> None:
        """Read those that are wanted; a failure is told, and they stay wanted."""
        if (
            self.hidden
            and self.poll_schedule.clock() - self.hidden_retried_at >= _HIDDEN_RETRY_SECONDS
        ):
            self.hidden_retried_at = self.poll_schedule.clock()
            self.requested |= self.hidden
        wanted, self.requested = [ref for ref in self.requested if ref in self.inventory.vms], set()
        unread = list(wanted)
        try:
            with self.poll_schedule.track_poll():
                while unread:
                    self.apply(await self.read_properties(unread[:_VMS_PER_CALL]))
                    del unread[:_VMS_PER_CALL]
        except RETRYABLE_ERRORS as error:
            self.requested |= set(wanted)
            self.log.debug(
                "properties of VMs cannot be read, trying again", properties=self.paths, error=error
            )
        except VCenterError as error:
            # vCenter answers, and says no. Without this nobody who waits for one of them would ever get an answer.
            if not self.hidden.issuperset(wanted):
                self.log.warning(
                    "vCenter does not show properties of some VMs",
                    properties=self.paths,
                    error=error,
                    vms=len(wanted),
                )
            self.apply(
                [
                    ObjectUpdate("modify", "VirtualMachine", ref)
                    for ref in wanted
                    if ref not in self.values
                ]
            )
            self._mark_hidden(unread)
        finally:
            # Those that the answer left out, or that an error of ours cut off.
            self.requested |= {
                ref for ref in wanted if ref not in self.values and ref in self.inventory.vms
            }

    def _mark_hidden(self, refs: Iterable[str]) -> None:
        """What is known of these may not be true any more, and vCenter does not show what is."""
        for ref in sorted((self.values.keys() & set(refs)) - self.hidden):
            self.hidden.add(ref)
            self.changed.emit(ref)

    async def refresh(self, refs: list[str]) -> None:
        """Read these now: what was pushed a moment ago may not have been read yet."""
        self.apply(await self.read_properties(refs))

    async def read_properties(self, refs: list[str]) -> list[ObjectUpdate]:
        """One call for some VMs."""
        return await retrieve_properties(
            self.soap, self.session, "VirtualMachine", refs, self.paths
        )

    def apply(self, updates: list[ObjectUpdate]) -> None:
        """Take what was read, and tell of whom it differs."""
        for update in updates:
            found, shown = (
                self.decode(update.changes),
                all(path in update.changes for path in self.paths),
            )
            same = self.values.get(update.ref) == found and shown == (update.ref not in self.hidden)
            if update.ref not in self.inventory.vms or same:
                continue
            self.values[update.ref] = found
            (self.hidden.discard if shown else self.hidden.add)(update.ref)
            self.changed.emit(update.ref)
