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

from .disk_catalog import Catalog, DatastoreCatalog, Depth, GlobalCatalog, Look
from .faults import Ambiguous, Busy, CertificateRefused, NotFound, VCenterError, WrongLogin
from .inventory import Change, Inventory
from .model import Datastore, Disk, Machine, Task
from .polling import Rhythm
from .session import Session
from .transport import Log, Soap

INTERVAL_SECONDS = 60.0
ALL_SECONDS = 600.0
OUTDATED_INTERVALS = 3
Listener = Callable[[Disk | None, Disk | None], None]

# Words in the descriptionId of tasks, lower-case. Disks by themselves: vslm.vcenter.VStorageObjectManager.createDisk,
# com.vmware.cns.tasks.createvolume, VirtualMachine.attachDisk; by their VM: VirtualMachine.reconfigure and the like.
MAKES_OR_DELETES = ("createdisk", "registerdisk", "deletedisk", "deletevstorageobject", "createvolume", "deletevolume")
DISK_WORDS = ("disk", "vstorageobject", "vslm", ".cns.", "volume")
ATTACHES = ("attachdisk", "detachdisk", "attachvolume", "detachvolume")
MACHINE_WORDS = tuple(
    f"virtualmachine.{verb}" for verb in ("reconfigure", "destroy", "unregister", "clone", "relocate", "revert", "removesnapshot")
)


class Disks:
    """What disks there are; answers come from memory. The first look comes when the inventory knows datastores."""

    def __init__(
        self,
        soap: Soap,
        session: Session,
        inventory: Inventory,
        log: Log,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
        rhythm: Rhythm | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inventory, self.log, self.clock = inventory, log, clock
        self.first_road, self.second_road = GlobalCatalog(soap, session, inventory), DatastoreCatalog(soap, session, inventory)
        self.road: Catalog = self.first_road
        self.rhythm = rhythm or Rhythm(interval_seconds)
        self.listeners: list[Listener] = []
        self.loaded = False
        self.read_well_at = -math.inf
        self.problem: VCenterError | None = None
        self.disks: dict[str, Disk] = {}
        self.names: dict[str, list[Disk]] = {}
        self.by_user: dict[str, list[Disk]] = {}
        """By the uuid of the VM that uses them, in lower case."""
        self.unread: dict[str, str] = {}
        self.wanted = Depth.NEW
        self.read_at = {Depth.USES: -ALL_SECONDS, Depth.ALL: -ALL_SECONDS}
        self.detour = ""

    def by_name(self, name: str) -> Disk:
        """The disk of that name."""
        found = self.names.get(name, [])
        if len(found) > 1:
            raise self.ambiguous(name, found)
        return found[0] if found else self.missing(f'named "{name}"')

    def by_id(self, id: str) -> Disk:
        """The disk of that id."""
        return self.disks.get(id) or self.missing(f'with the id "{id}"')

    @property
    def outdated(self) -> bool:
        """Whether several looks in a row have failed: then what is known may be wrong, and `problem` says why."""
        return self.problem is not None and self.clock() - self.read_well_at > OUTDATED_INTERVALS * self.rhythm.interval_seconds

    def refresh_soon(self) -> None:
        """Ask for a fresh list: a disk may be so new that no look has seen it. Cheap enough for every reconcile that misses one."""
        self.want(Depth.NEW)

    async def run(self) -> NoReturn:
        """Look again and again, until cancelled."""
        with self.inventory.heard_by(self.heard):
            if not self.inventory.datastores:
                await self.rhythm.next()
            await self.rhythm.keep(self.look)

    def heard(self, change: Change) -> None:
        """Ask for a look when something in the inventory concerns disks."""
        if depth := concern(change):
            self.want(depth)

    def want(self, depth: Depth) -> None:
        """The next look comes soon, and is at least that deep."""
        self.wanted = max(self.wanted, depth)
        self.rhythm.soon()

    async def look(self) -> None:
        """Look once; a failure is told and remembered, never raised."""
        depth, self.wanted = self.depth_now(), Depth.NEW
        started_at = self.clock()
        try:
            with self.rhythm.looking():
                found = await self.along_a_road(depth)
        except VCenterError as error:
            self.wanted = max(self.wanted, depth)
            self.fail(error)
            return
        self.read_at |= {reached: started_at for reached in self.read_at if reached <= depth}
        self.learn(found)

    def depth_now(self) -> Depth:
        """What was asked for, or more where the last look of that depth is long ago."""
        ages = {depth: self.clock() - read_at for depth, read_at in self.read_at.items()}
        if ages[Depth.ALL] >= ALL_SECONDS:
            return Depth.ALL
        # A look by interval comes a moment early when the clock is coarse.
        return max(self.wanted, Depth.USES) if ages[Depth.USES] >= 0.9 * self.rhythm.interval_seconds else self.wanted

    async def along_a_road(self, depth: Depth) -> Look:
        """Look along the road that works; the first one is tried again with each look at all."""
        if self.road is self.second_road and depth is not Depth.ALL:
            return await self.second_road.look(self.disks, depth)
        try:
            found = await self.first_road.look(self.disks, depth)
        except (WrongLogin, CertificateRefused):
            raise
        except VCenterError as error:
            return await self.along_the_second(error)
        self.road, self.detour = self.first_road, ""
        return found

    async def along_the_second(self, error: VCenterError) -> Look:
        """The first road is closed: if the second is open, keep to it."""
        found = await self.second_road.look(self.disks, Depth.ALL)
        if self.detour != str(error):
            self.log.info(f"the global catalog of disks is not available, each datastore is asked instead: {error}")
        self.road, self.detour = self.second_road, str(error)
        return found

    def fail(self, error: VCenterError) -> None:
        """Keep what is known, and say once why it may be old."""
        if str(error) != str(self.problem):
            self.log.warning(f"First Class Disks cannot be read, the last known ones stay: {error}")
        self.problem = error

    def learn(self, found: Look) -> None:
        """Take what was found, and tell what differs."""
        old, self.disks = self.disks, found.disks
        self.names = by_names(found.disks.values())
        self.say_unread(found.unread)
        self.problem, self.loaded, self.read_well_at = None, True, self.clock()
        self.by_user = by_users(found.disks.values())
        for id in {**old, **found.disks}:
            if old.get(id) != found.disks.get(id):
                for listener in self.listeners:
                    listener(old.get(id), found.disks.get(id))

    def say_unread(self, unread: dict[str, str]) -> None:
        """One warning for each datastore that has become unreadable, one line when it is back."""
        for ref in unread.keys() - self.unread.keys():
            self.log.warning(f"the First Class Disks of datastore {self.store(ref)} cannot be read and count as gone: {unread[ref]}")
        for ref in self.unread.keys() - unread.keys():
            self.log.info(f"the First Class Disks of datastore {self.store(ref)} can be read again")
        self.unread = unread

    def store(self, ref: str) -> str:
        """A datastore's path for people."""
        return self.inventory.path(ref) if ref in self.inventory.datastores else ref or "(unknown)"

    def missing(self, which: str) -> NoReturn:
        """Say that there is no such disk, and where nobody could look."""
        where = f'vCenter "{self.inventory.name}"'
        if not self.loaded:
            raise Busy(f"the First Class Disks of {where} have not been read yet{f': {self.problem}' if self.problem else ''}")
        words = f"{where} has no First Class Disk {which}; check the name or id, or wait until the disk is made: it is then found by itself"
        if self.unread:
            words += ". These datastores could not be read: " + "; ".join(f"{self.store(ref)} ({why})" for ref, why in self.unread.items())
        raise NotFound(words)

    def ambiguous(self, name: str, found: list[Disk]) -> Ambiguous:
        """Say which disks share a name."""
        paths = [f"{self.store(disk.datastore)} (id {disk.id})" for disk in sorted(found, key=lambda disk: (disk.datastore, disk.id))]
        return Ambiguous(
            f'vCenter "{self.inventory.name}" has {len(found)} First Class Disks named "{name}": {", ".join(paths)}; '
            "rename one, or name the PersistentVolume that it backs",
            paths,
        )


def by_users(disks: Iterable[Disk]) -> dict[str, list[Disk]]:
    """Disks by who uses them."""
    users: dict[str, list[Disk]] = {}
    for disk in disks:
        for user in disk.consumers:
            users.setdefault(user.lower(), []).append(disk)
    return users


def by_names(disks: Iterable[Disk]) -> dict[str, list[Disk]]:
    """Disks by their name."""
    names: dict[str, list[Disk]] = {}
    for disk in disks:
        names.setdefault(disk.name, []).append(disk)
    return names


def concern(change: Change) -> Depth | None:
    """How deep to look for a change in the inventory; None when it does not concern disks."""
    old, new = change.old, change.new
    if isinstance(new, Task):
        ended = new.state in ("success", "error") and not (isinstance(old, Task) and old.state == new.state)
        return task_concern(new.description.lower()) if ended else None
    if isinstance(old, Datastore) and isinstance(new, Datastore):
        return Depth.ALL if (old.name, old.accessible) != (new.name, new.accessible) else None
    if isinstance(old or new, Datastore):
        return Depth.NEW
    return Depth.USES if isinstance(old, Machine) and new is None else None


def task_concern(description: str) -> Depth | None:
    """The same for a task that has ended, by its descriptionId in lower case."""
    if any(word in description for word in MAKES_OR_DELETES):
        return Depth.NEW
    if description.startswith(MACHINE_WORDS) or any(word in description for word in ATTACHES):
        return Depth.USES
    return Depth.ALL if any(word in description for word in DISK_WORDS) else None
