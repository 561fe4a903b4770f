"""All First Class Disks of one vCenter, in memory.

How is a change noticed?  No property collector covers disks. They are listed by interval (60 s),
    and soon after the inventory shows something that may affect them: a task that ended, a
    datastore that was added, removed, renamed or is accessible again, or a VM that was removed.
How much does a poll read?  As little as its cause allows (RefreshScope); every 10 minutes, all.
From where?  From the global catalog. If it is missing or rejects the call, from each datastore,
    until the next poll of everything.
What if a poll fails?  The last known disks remain, `problem` has the cause, and one warning is
    logged. The next successful poll clears it.
What if only one datastore hangs?  Its last known disks remain, and `explain_stale` has the cause
    after several polls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from typing import NoReturn

from .disk_catalog import DatastoreCatalog, DiskCatalog, DiskListing, GlobalCatalog, RefreshScope
from .faults import Ambiguous, Busy, CertificateRefused, NotFound, VCenterError, WrongLogin
from .inventory import Change, Inventory, Signal
from .log import Log
from .lookup import quote
from .model import FINAL_TASK_STATES, Datastore, Disk, Task, VirtualMachine
from .polling import PollSchedule, changed_keys
from .session import Session
from .transport import SoapClient

_INTERVAL_SECONDS = 60.0
FULL_REFRESH_SECONDS = 600.0
_STALE_INTERVALS = 3

# Parts of the descriptionId of tasks, in lower case. On disks themselves:
# vslm.vcenter.VStorageObjectManager.createDisk, com.vmware.cns.tasks.createvolume,
# VirtualMachine.attachDisk. Through their VM: VirtualMachine.reconfigure and similar ones.
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
_VM_TASKS = tuple(
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
# _DISK_TASKS has a part of each description in _CREATE_OR_DELETE_TASKS and _ATTACH_TASKS.
RELEVANT_TASKS = (*_DISK_TASKS, *_VM_TASKS)


class Disks:
    """All First Class Disks. The first poll waits until the inventory has datastores."""

    def __init__(
        self,
        soap: SoapClient,
        session: Session,
        inventory: Inventory,
        log: Log,
        *,
        interval_seconds: float = _INTERVAL_SECONDS,
        poll_schedule: PollSchedule | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inventory, self._log, self.clock = inventory, log, clock
        self.global_catalog = GlobalCatalog(soap, session, inventory)
        self.datastore_catalog = DatastoreCatalog(soap, session, inventory)
        self.catalog: DiskCatalog = self.global_catalog
        self.poll_schedule = poll_schedule or PollSchedule(interval_seconds)
        # A disk before and after a change.
        self.changed: Signal[Disk | None, Disk | None] = Signal(log)
        self.loaded = False
        self._last_success_at = -math.inf
        self.problem: VCenterError | None = None
        self.disks: dict[str, Disk] = {}
        self.disks_by_name: dict[str, list[Disk]] = {}
        # By the uuid of the VM that they are attached to, in lower case.
        self.disks_by_vm_uuid: dict[str, list[Disk]] = {}
        self.disks_by_datastore: dict[str, list[Disk]] = {}
        # The reference of a datastore with disks that can no longer or again be read.
        self.readability_changed: Signal[str] = Signal(log)
        self._reported_unreadable: frozenset[str] = frozenset()
        self.unreadable_datastores: dict[str, str] = {}
        # Those that the last listing covers. A datastore that was added later may have disks.
        self.listed_datastores: frozenset[str] = frozenset()
        # When the first of several polls in a row found that a datastore hangs.
        self._hanging_since: dict[str, float] = {}
        self._requested_scope = RefreshScope.NEW
        # When each of these was last read; NEW is read by every poll.
        self._scope_read_at = {
            RefreshScope.ATTACHMENTS: -FULL_REFRESH_SECONDS,
            RefreshScope.ALL: -FULL_REFRESH_SECONDS,
        }
        self._fallback_reason = ""

    def find_by_name(self, name: str) -> Disk:
        disks = self.disks_by_name.get(name, [])
        if not disks:
            raise self._not_found_error(f"named {quote(name)}")
        if len(disks) > 1:
            raise self._ambiguous_error(name, disks)
        return disks[0]

    def find_by_id(self, disk_id: str) -> Disk:
        if disk_id not in self.disks:
            raise self._not_found_error(f"with the id {quote(disk_id)}")
        return self.disks[disk_id]

    @property
    def is_stale(self) -> bool:
        """Whether several polls in a row have failed, so that the known disks may be wrong."""
        return (
            self.problem is not None
            and self.clock() - self._last_success_at > self._stale_after_seconds
        )

    def explain_stale(self, disk: Disk) -> str:
        """Why the disk may be wrong: its datastore has not responded for several polls."""
        hanging_since = self._hanging_since.get(disk.datastore, math.inf)
        if self.clock() - hanging_since <= self._stale_after_seconds:
            return ""
        return (
            f"{self._datastore_path(disk.datastore)} ({self.unreadable_datastores[disk.datastore]})"
        )

    def explain_unreadable(self, datastore: str) -> str:
        """Why the known disks of a datastore may be wrong or incomplete; "" if they are not."""
        if self.problem is not None and (self.is_stale or not self.loaded):
            return str(self.problem)
        # A datastore that hangs keeps its disks; those of any other unreadable one are left out.
        hanging_since = self._hanging_since.get(datastore)
        if hanging_since is not None and self.clock() - hanging_since <= self._stale_after_seconds:
            return ""
        return self.unreadable_datastores.get(datastore, "")

    def _report_readability(self, newly_listed: Collection[str] = ()) -> None:
        unreadable = frozenset(
            ref for ref in self.inventory.datastores if self.explain_unreadable(ref)
        )
        changed = (unreadable ^ self._reported_unreadable).union(newly_listed)
        self._reported_unreadable = unreadable
        for ref in changed:
            self.readability_changed.emit(ref)

    @property
    def _stale_after_seconds(self) -> float:
        return _STALE_INTERVALS * self.poll_schedule.interval_seconds

    def request_refresh(self) -> None:
        """List the disks again soon. Cheap enough for every reconcile that misses a disk."""
        self._request_scope(RefreshScope.NEW)

    async def run(self) -> NoReturn:
        if not self.inventory.datastores:
            await self.poll_schedule.wait_for_next()
        await self.poll_schedule.run(self.poll)

    def on_task_change(self, change: Change[Task]) -> None:
        old, new = change.old, change.new
        if new is None or new.state not in FINAL_TASK_STATES:
            return
        if old is not None and old.state in FINAL_TASK_STATES:
            return
        if scope := _select_task_scope(new.description_id.lower()):
            self._request_scope(scope)

    def on_datastore_change(self, change: Change[Datastore]) -> None:
        old, new = change.old, change.new
        if old is None or new is None:
            self._request_scope(RefreshScope.NEW)
        elif (old.name, old.accessible) != (new.name, new.accessible):
            self._request_scope(RefreshScope.ALL)

    def on_vm_change(self, change: Change[VirtualMachine]) -> None:
        if change.new is None:
            self._request_scope(RefreshScope.ATTACHMENTS)

    def _request_scope(self, scope: RefreshScope) -> None:
        """Poll soon, and read at least this scope."""
        self._requested_scope = max(self._requested_scope, scope)
        self.poll_schedule.trigger()

    async def poll(self) -> None:
        """Read once. A failure is logged and kept in `problem`, not raised."""
        scope, self._requested_scope = self._next_scope(), RefreshScope.NEW
        started_at = self.clock()
        # Of a datastore that is added or becomes accessible later, disks may be missing.
        datastores = [
            ref
            for ref, datastore in self.inventory.datastores.items()
            if datastore.accessible is not False
        ]
        try:
            with self.poll_schedule.track_poll():
                listing = await self._list_disks(scope)
        except VCenterError as error:
            self._requested_scope = max(self._requested_scope, scope)
            if str(error) != str(self.problem):
                self._log.warning(
                    f"First Class Disks cannot be read, keeping the last known ones: {error}"
                )
            self.problem = error
            self._report_readability()
            return
        self._scope_read_at |= {
            covered: started_at for covered in self._scope_read_at if covered <= scope
        }
        self.apply(listing, datastores)

    def _next_scope(self) -> RefreshScope:
        ages = {scope: self.clock() - read_at for scope, read_at in self._scope_read_at.items()}
        if ages[RefreshScope.ALL] >= FULL_REFRESH_SECONDS:
            return RefreshScope.ALL
        # With a coarse clock a poll by interval may come slightly early.
        if ages[RefreshScope.ATTACHMENTS] >= 0.9 * self.poll_schedule.interval_seconds:
            return max(self._requested_scope, RefreshScope.ATTACHMENTS)
        return self._requested_scope

    async def _list_disks(self, scope: RefreshScope) -> DiskListing:
        """Use the catalog that works. Each poll of everything tries the global one again."""
        if self.catalog is self.datastore_catalog and scope is not RefreshScope.ALL:
            return await self.datastore_catalog.list_disks(self.disks, scope)
        try:
            listing = await self.global_catalog.list_disks(self.disks, scope)
        except (WrongLogin, CertificateRefused):
            raise
        except VCenterError as error:
            listing = await self.datastore_catalog.list_disks(self.disks, RefreshScope.ALL)
            if self._fallback_reason != str(error):
                self._log.info(
                    f"the global disk catalog is unavailable, listing each datastore: {error}"
                )
            self.catalog, self._fallback_reason = self.datastore_catalog, str(error)
            return listing
        self.catalog, self._fallback_reason = self.global_catalog, ""
        return listing

    def apply(self, listing: DiskListing, datastores: Collection[str] | None = None) -> None:
        """`datastores` are those that the listing covers, by default all of the inventory."""
        previously_listed = self.listed_datastores
        self.listed_datastores = frozenset(
            self.inventory.datastores if datastores is None else datastores
        )
        old, self.disks = self.disks, listing.disks
        self.disks_by_name, self.disks_by_vm_uuid, self.disks_by_datastore = {}, {}, {}
        for disk in listing.disks.values():
            self.disks_by_name.setdefault(disk.name, []).append(disk)
            self.disks_by_datastore.setdefault(disk.datastore, []).append(disk)
            for uuid in disk.attached_vm_uuids:
                self.disks_by_vm_uuid.setdefault(uuid.lower(), []).append(disk)
        self._log_unreadable(listing)
        self._hanging_since = {
            ref: self._hanging_since.get(ref, self.clock()) for ref in listing.hanging_datastores
        }
        self.problem, self.loaded, self._last_success_at = None, True, self.clock()
        for disk_id in changed_keys(old, listing.disks):
            self.changed.emit(old.get(disk_id), listing.disks.get(disk_id))
        self._report_readability(newly_listed=self.listed_datastores - previously_listed)

    def _log_unreadable(self, listing: DiskListing) -> None:
        """Log each datastore once when it becomes unreadable, and once when it recovers."""
        unreadable = listing.unreadable_datastores
        for ref in unreadable.keys() - self.unreadable_datastores.keys():
            is_hanging = ref in listing.hanging_datastores
            consequence = "stay as last read" if is_hanging else "count as deleted"
            self._log.warning(
                f"the First Class Disks of datastore {self._datastore_path(ref)} cannot be read "
                f"and {consequence}: {unreadable[ref]}"
            )
        for ref in self.unreadable_datastores.keys() - unreadable.keys():
            self._log.info(
                f"the First Class Disks of datastore {self._datastore_path(ref)} can be read again"
            )
        self.unreadable_datastores = unreadable

    def _datastore_path(self, ref: str) -> str:
        return self.inventory.path(ref) if ref in self.inventory.datastores else ref or "(unknown)"

    def _not_found_error(self, key_phrase: str) -> VCenterError:
        vcenter = f'vCenter "{self.inventory.name}"'
        if not self.loaded:
            cause = f": {self.problem}" if self.problem else ""
            return Busy(f"the First Class Disks of {vcenter} have not been read yet{cause}")
        message = (
            f"{vcenter} has no First Class Disk {key_phrase}. Check the name or id. The status is "
            "updated as soon as vCenter has the disk."
        )
        if self.unreadable_datastores:
            datastores = "; ".join(
                f"{self._datastore_path(ref)} ({cause})"
                for ref, cause in self.unreadable_datastores.items()
            )
            message += f" These datastores could not be read: {datastores}"
        return NotFound(message)

    def _ambiguous_error(self, name: str, disks: list[Disk]) -> Ambiguous:
        paths = [
            f"{self._datastore_path(disk.datastore)} (id {disk.id})"
            for disk in sorted(disks, key=lambda disk: (disk.datastore, disk.id))
        ]
        return Ambiguous(
            f'vCenter "{self.inventory.name}" has {len(disks)} First Class Disks named '
            f"{quote(name)}: {', '.join(paths)}. Rename one, or use the name of the "
            "PersistentVolume that it backs"
        )


def _select_task_scope(description_id: str) -> RefreshScope | None:
    if any(part in description_id for part in _CREATE_OR_DELETE_TASKS):
        return RefreshScope.NEW
    if description_id.startswith(_VM_TASKS) or any(
        part in description_id for part in _ATTACH_TASKS
    ):
        return RefreshScope.ATTACHMENTS
    return RefreshScope.ALL if any(part in description_id for part in _DISK_TASKS) else None
