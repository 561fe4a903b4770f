"""All First Class Disks of one vCenter, in memory.

How do we hear of a change?  No collector tells of disks. So they are looked at by interval (60 s), and soon after something that concerns
    them was seen in the inventory: the end of a task, a datastore that came, went, was renamed or can be reached again, a VM that left.
    `refresh_soon` asks for a look too; crowds of such words become one look (rhythm.py).
How much does a look read?  As little as its reason allows (Depth in diskcatalog.py); all of it every 10 minutes, whatever was heard.
Which road?  The global catalog. When it is missing or refuses, the one by datastores, until the next look at all.
What if a look fails?  The last known disks stay, `problem` says why, and one warning does. The next look that works clears it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import NoReturn

from .disk_catalog import DatastoreCatalog, DiskCatalog, DiskListing, GlobalCatalog, RefreshScope
from .faults import Ambiguous, Busy, CertificateRefused, NotFound, VCenterError, WrongLogin
from .inventory import Change, Inventory
from .model import Datastore, Disk, Task, VirtualMachine
from .polling import PollSchedule
from .session import Session
from .signal import Signal
from .transport import Log, SoapClient

INTERVAL_SECONDS = 60.0
FULL_REFRESH_SECONDS = 600.0
_STALE_INTERVALS = 3

# Words in the descriptionId of tasks, lower-case. Disks by themselves: vslm.vcenter.VStorageObjectManager.createDisk,
# com.vmware.cns.tasks.createvolume, VirtualMachine.attachDisk; by their VM: VirtualMachine.reconfigure and the like.
_CREATE_OR_DELETE_TASKS = (
    "createdisk",
    "registerdisk",
    "deletedisk",
    "deletevstorageobject",
    "createvolume",
    "deletevolume",
)
_DISK_TASKS = ("disk", "vstorageobject", "vslm", ".cns.", "volume")
_ATTACH_TASKS = ("attachdisk", "detachdisk", "attachvolume", "detachvolume")
_VIRTUAL_MACHINE_TASKS = tuple(
    f"virtualmachine.{verb}"
    for verb in (
        "reconfigure",
        "destroy",
        "unregister",
        "clone",
        "relocate",
        "revert",
        "removesnapshot",
    )
)


class Disks:
    """What disks there are; answers come from memory. The first look comes when the inventory knows datastores."""

    def __init__(
        self,
        soap: SoapClient,
        session: Session,
        inventory: Inventory,
        log: Log,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
        poll_schedule: PollSchedule | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inventory, self.log, self.clock = inventory, log, clock
        self.global_catalog, self.datastore_catalog = (
            GlobalCatalog(soap, session, inventory),
            DatastoreCatalog(soap, session, inventory),
        )
        self.catalog: DiskCatalog = self.global_catalog
        self.poll_schedule = poll_schedule or PollSchedule(interval_seconds)
        self.changed: Signal[Disk | None, Disk | None] = Signal(log)
        """A disk before and after a change."""
        self.loaded = False
        self._last_success_at = -math.inf
        self.problem: VCenterError | None = None
        self.disks: dict[str, Disk] = {}
        self.disks_by_name: dict[str, list[Disk]] = {}
        self.disks_by_consumer: dict[str, list[Disk]] = {}
        """By the uuid of the VM that uses them, in lower case."""
        self.unreadable_datastores: dict[str, str] = {}
        self._requested_scope = RefreshScope.NEW
        self._read_at = {
            RefreshScope.ASSOCIATIONS: -FULL_REFRESH_SECONDS,
            RefreshScope.ALL: -FULL_REFRESH_SECONDS,
        }
        self._fallback_reason = ""

    def find_by_name(self, name: str) -> Disk:
        """The disk of that name."""
        found = self.disks_by_name.get(name, [])
        if len(found) > 1:
            raise self.ambiguous_error(name, found)
        return found[0] if found else self._raise_not_found(f'named "{name}"')

    def find_by_id(self, id: str) -> Disk:
        """The disk of that id."""
        return self.disks.get(id) or self._raise_not_found(f'with the id "{id}"')

    @property
    def is_stale(self) -> bool:
        """Whether several looks in a row have failed: then what is known may be wrong, and `problem` says why."""
        return (
            self.problem is not None
            and self.clock() - self._last_success_at
            > _STALE_INTERVALS * self.poll_schedule.interval_seconds
        )

    def request_refresh(self) -> None:
        """Ask for a fresh list: a disk may be so new that no look has seen it. Cheap enough for every reconcile that misses one."""
        self.request_scope(RefreshScope.NEW)

    async def run(self) -> NoReturn:
        """Look again and again, until cancelled."""
        if not self.inventory.datastores:
            await self.poll_schedule.wait_for_next()
        await self.poll_schedule.run(self.poll)

    def on_inventory_change(self, change: Change) -> None:
        """Ask for a look when something in the inventory concerns disks."""
        if depth := select_scope(change):
            self.request_scope(depth)

    def request_scope(self, depth: RefreshScope) -> None:
        """The next look comes soon, and is at least that deep."""
        self._requested_scope = max(self._requested_scope, depth)
        self.poll_schedule.trigger()

    async def poll(self) -> None:
        """Look once; a failure is told and remembered, never raised."""
        depth, self._requested_scope = self._next_scope(), RefreshScope.NEW
        started_at = self.clock()
        try:
            with self.poll_schedule.track_poll():
                found = await self.list_disks(depth)
        except VCenterError as error:
            self._requested_scope = max(self._requested_scope, depth)
            self.on_poll_failure(error)
            return
        self._read_at |= {reached: started_at for reached in self._read_at if reached <= depth}
        self.apply(found)

    def _next_scope(self) -> RefreshScope:
        """What was asked for, or more where the last look of that depth is long ago."""
        ages = {depth: self.clock() - read_at for depth, read_at in self._read_at.items()}
        if ages[RefreshScope.ALL] >= FULL_REFRESH_SECONDS:
            return RefreshScope.ALL
        # A look by interval comes a moment early when the clock is coarse.
        return (
            max(self._requested_scope, RefreshScope.ASSOCIATIONS)
            if ages[RefreshScope.ASSOCIATIONS] >= 0.9 * self.poll_schedule.interval_seconds
            else self._requested_scope
        )

    async def list_disks(self, depth: RefreshScope) -> DiskListing:
        """Look along the road that works; the first one is tried again with each look at all."""
        if self.catalog is self.datastore_catalog and depth is not RefreshScope.ALL:
            return await self.datastore_catalog.list_disks(self.disks, depth)
        try:
            found = await self.global_catalog.list_disks(self.disks, depth)
        except (WrongLogin, CertificateRefused):
            raise
        except VCenterError as error:
            return await self._list_by_datastore(error)
        self.catalog, self._fallback_reason = self.global_catalog, ""
        return found

    async def _list_by_datastore(self, error: VCenterError) -> DiskListing:
        """The first road is closed: if the second is open, keep to it."""
        found = await self.datastore_catalog.list_disks(self.disks, RefreshScope.ALL)
        if self._fallback_reason != str(error):
            self.log.info(
                f"the global catalog of disks is not available, each datastore is asked instead: {error}"
            )
        self.catalog, self._fallback_reason = self.datastore_catalog, str(error)
        return found

    def on_poll_failure(self, error: VCenterError) -> None:
        """Keep what is known, and say once why it may be old."""
        if str(error) != str(self.problem):
            self.log.warning(f"First Class Disks cannot be read, the last known ones stay: {error}")
        self.problem = error

    def apply(self, found: DiskListing) -> None:
        """Take what was found, and tell what differs."""
        old, self.disks = self.disks, found.disks
        self.disks_by_name = _group_by_name(found.disks.values())
        self._log_unreadable(found.unreadable_datastores)
        self.problem, self.loaded, self._last_success_at = None, True, self.clock()
        self.disks_by_consumer = _group_by_consumer(found.disks.values())
        for id in {**old, **found.disks}:
            if old.get(id) != found.disks.get(id):
                self.changed.emit(old.get(id), found.disks.get(id))

    def _log_unreadable(self, unread: dict[str, str]) -> None:
        """One warning for each datastore that has become unreadable, one line when it is back."""
        for ref in unread.keys() - self.unreadable_datastores.keys():
            self.log.warning(
                f"the First Class Disks of datastore {self._datastore_path(ref)} cannot be read and count as gone: {unread[ref]}"
            )
        for ref in self.unreadable_datastores.keys() - unread.keys():
            self.log.info(
                f"the First Class Disks of datastore {self._datastore_path(ref)} can be read again"
            )
        self.unreadable_datastores = unread

    def _datastore_path(self, ref: str) -> str:
        """A datastore's path for people."""
        return self.inventory.path(ref) if ref in self.inventory.datastores else ref or "(unknown)"

    def _raise_not_found(self, which: str) -> NoReturn:
        """Say that there is no such disk, and where nobody could look."""
        where = f'vCenter "{self.inventory.name}"'
        if not self.loaded:
            raise Busy(
                f"the First Class Disks of {where} have not been read yet{f': {self.problem}' if self.problem else ''}"
            )
        words = f"{where} has no First Class Disk {which}; check the name or id, or wait until the disk is made: it is then found by itself"
        if self.unreadable_datastores:
            words += ". These datastores could not be read: " + "; ".join(
                f"{self._datastore_path(ref)} ({why})"
                for ref, why in self.unreadable_datastores.items()
            )
        raise NotFound(words)

    def ambiguous_error(self, name: str, found: list[Disk]) -> Ambiguous:
        """Say which disks share a name."""
        paths = [
            f"{self._datastore_path(disk.datastore)} (id {disk.id})"
            for disk in sorted(found, key=lambda disk: (disk.datastore, disk.id))
        ]
        return Ambiguous(
            f'vCenter "{self.inventory.name}" has {len(found)} First Class Disks named "{name}": {", ".join(paths)}; '
            "rename one, or name the PersistentVolume that it backs",
            paths,
        )


def _group_by_consumer(disks: Iterable[Disk]) -> dict[str, list[Disk]]:
    """Disks by who uses them."""
    users: dict[str, list[Disk]] = {}
    for disk in disks:
        for user in disk.consumers:
            users.setdefault(user.lower(), []).append(disk)
    return users


def _group_by_name(disks: Iterable[Disk]) -> dict[str, list[Disk]]:
    """Disks by their name."""
    names: dict[str, list[Disk]] = {}
    for disk in disks:
        names.setdefault(disk.name, []).append(disk)
    return names


def select_scope(change: Change) -> RefreshScope | None:
    """How deep to look for a change in the inventory; None when it does not concern disks."""
    old, new = change.old, change.new
    if isinstance(new, Task):
        ended = new.state in ("success", "error") and not (
            isinstance(old, Task) and old.state == new.state
        )
        return _select_task_scope(new.description.lower()) if ended else None
    if isinstance(old, Datastore) and isinstance(new, Datastore):
        return (
            RefreshScope.ALL if (old.name, old.accessible) != (new.name, new.accessible) else None
        )
    if isinstance(old or new, Datastore):
        return RefreshScope.NEW
    return RefreshScope.ASSOCIATIONS if isinstance(old, VirtualMachine) and new is None else None


def _select_task_scope(description: str) -> RefreshScope | None:
    """The same for a task that has ended, by its descriptionId in lower case."""
    if any(word in description for word in _CREATE_OR_DELETE_TASKS):
        return RefreshScope.NEW
    if description.startswith(_VIRTUAL_MACHINE_TASKS) or any(
        word in description for word in _ATTACH_TASKS
    ):
        return RefreshScope.ASSOCIATIONS
    return RefreshScope.ALL if any(word in description for word in _DISK_TASKS) else None
