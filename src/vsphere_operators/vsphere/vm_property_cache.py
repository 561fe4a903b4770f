"""Large properties of VMs, read on demand and kept current: too much to read for all VMs.

When are they read?  `get` requests what is not known yet. One call reads all that is requested, and
    the signal `changed` reports each VM.
And when they change?  The inventory has `config.changeVersion`, which is new after every change of
    a VM's configuration. The properties are then read again.
What if vCenter does not return them?  The account lacks permission, the VM has no readable
    configuration, or they do not decode. Such a VM is in `unreadable`. It is requested again every
    minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, NoReturn, TypeVar

from .decode_errors import DECODE_ERRORS
from .faults import RETRYABLE_ERRORS, Busy, VCenterError
from .inventory import Change, Inventory, Signal
from .log import Log
from .model import VirtualMachine
from .polling import PollSchedule
from .property_collector import retrieve_properties
from .session import Session
from .transport import SoapClient
from .updates import ObjectUpdate, Value

# A poll without requests costs nothing. The interval is the longest wait after a failed read.
_INTERVAL_SECONDS, _DEBOUNCE_SECONDS, _MIN_INTERVAL_SECONDS = 15.0, 0.05, 0.25
_UNREADABLE_RETRY_SECONDS = 60.0
_VMS_PER_CALL = 100
CachedT = TypeVar("CachedT")


class VmPropertyCache(Generic[CachedT]):
    """Properties of VMs that are too large for the inventory, decoded, by MoRef."""

    def __init__(
        self,
        paths: Sequence[str],
        decode: Callable[[Mapping[str, Value]], CachedT],
        soap: SoapClient,
        session: Session,
        inventory: Inventory,
        log: Log,
        *,
        is_inventory_current: Callable[[], bool] = lambda: True,
        poll_schedule: PollSchedule | None = None,
    ) -> None:
        """`is_inventory_current` returns whether the inventory was read in the present session."""
        self._paths, self._decode, self._soap, self._session = list(paths), decode, soap, session
        self.inventory, self._log = inventory, log
        self._is_inventory_current = is_inventory_current
        self.poll_schedule = poll_schedule or PollSchedule(
            _INTERVAL_SECONDS,
            debounce_seconds=_DEBOUNCE_SECONDS,
            min_interval_seconds=_MIN_INTERVAL_SECONDS,
        )
        self.values: dict[str, CachedT] = {}
        # VMs of which vCenter does not return all properties.
        self.unreadable: set[str] = set()
        self.unreadable_retried_at = self.poll_schedule.clock()
        # VMs to read with the next poll.
        self.requested: set[str] = set()
        # The properties of the VM with this reference were read or changed.
        self.changed: Signal[str] = Signal(log)

    def get(self, ref: str) -> CachedT | None:
        """The value of a VM; None if it is not known yet, and then it is requested."""
        value = self.values.get(ref)
        if value is None:
            self.request_refresh(ref)
        return value

    def request_refresh(self, ref: str) -> None:
        if ref not in self.requested:
            self.requested.add(ref)
            self.poll_schedule.trigger()

    async def run(self) -> NoReturn:
        await self.poll_schedule.run(self.poll)

    def on_vm_change(self, change: Change[VirtualMachine]) -> None:
        old, new = change.old, change.new
        if old is not None and old.ref in self.values:
            # A restored vCenter, or another one at the same address, may use a reference for
            # another VM.
            is_other_vm = new is not None and new.instance_uuid not in ("", old.instance_uuid)
            if new is None or is_other_vm:
                self.values.pop(old.ref)
                self.unreadable.discard(old.ref)
            if new is not None and (is_other_vm or old.config_version != new.config_version):
                self.request_refresh(old.ref)

    async def poll(self) -> None:
        """Read the requested VMs. After a failure they remain requested."""
        now = self.poll_schedule.clock()
        if self.unreadable and now - self.unreadable_retried_at >= _UNREADABLE_RETRY_SECONDS:
            self.unreadable_retried_at = now
            self.requested |= self.unreadable
        refs, self.requested = [ref for ref in self.requested if ref in self.inventory.vms], set()
        unread = list(refs)
        try:
            with self.poll_schedule.track_poll():
                while unread:
                    await self._read_and_apply(unread[:_VMS_PER_CALL])
                    del unread[:_VMS_PER_CALL]
        except RETRYABLE_ERRORS as error:
            self.requested |= set(refs)
            self._log.debug(
                "properties of VMs cannot be read, retrying", properties=self._paths, error=error
            )
        except VCenterError as error:
            # vCenter rejected the call. Without a value, callers would wait for these VMs for ever.
            if not self.unreadable.issuperset(refs):
                self._log.warning(
                    "vCenter does not return properties of some VMs",
                    properties=self._paths,
                    error=error,
                    vms=len(refs),
                )
            self.apply(
                [
                    ObjectUpdate("modify", "VirtualMachine", ref)
                    for ref in refs
                    if ref not in self.values
                ]
            )
            self._mark_unreadable(unread)
        finally:
            # VMs that the response left out, or that an unexpected error cut off.
            self.requested |= {
                ref for ref in refs if ref not in self.values and ref in self.inventory.vms
            }

    def _mark_unreadable(self, refs: Iterable[str]) -> None:
        """The known values of these VMs may be outdated, and vCenter does not return newer ones."""
        for ref in sorted((self.values.keys() & set(refs)) - self.unreadable):
            self.unreadable.add(ref)
            self.changed.emit(ref)

    async def refresh(self, refs: list[str]) -> None:
        """Read these VMs now: the last change may not have been read yet."""
        await self._read_and_apply(refs)

    async def _read_and_apply(self, refs: list[str]) -> None:
        """Raises Busy if the answer may be of another session than the inventory.

        In a new session, vCenter may have been restored, or replaced by another one: the same
        references are then of other VMs.
        """
        login_count = self._session.login_count
        updates = await self.read_properties(refs)
        if self._session.login_count != login_count or not self._is_inventory_current():
            raise Busy("the inventory is being read again after a login")
        self.apply(updates)

    async def read_properties(self, refs: list[str]) -> list[ObjectUpdate]:
        return await retrieve_properties(
            self._soap, self._session, "VirtualMachine", refs, self._paths
        )

    def apply(self, updates: list[ObjectUpdate]) -> None:
        for update in updates:
            is_complete = all(path in update.changes for path in self._paths)
            try:
                value = self._decode(update.changes)
            except DECODE_ERRORS as error:
                # As if vCenter did not return it.
                value, is_complete = self._decode({}), False
                self._soap.decode_errors.report(
                    update.type, ", ".join(self._paths), update.ref, error
                )
            is_same = self.values.get(update.ref) == value and is_complete == (
                update.ref not in self.unreadable
            )
            if update.ref not in self.inventory.vms or is_same:
                continue
            self.values[update.ref] = value
            if is_complete:
                self.unreadable.discard(update.ref)
            else:
                self.unreadable.add(update.ref)
            self.changed.emit(update.ref)
