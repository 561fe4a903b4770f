"""The vGPUs and passed-through PCI devices of VMs, of those that somebody asks about.

Why not in the inventory?  A VM has a dozen devices, and vCenter tells all of them or none: for 2,500 VMs that is 0.4 s more of CPU at the
    load, half as much again, and for a cluster's 100 Nodes nearly all of it would be thrown away.
Who asks?  `of` does, the first time: what is not known is read soon, in one call for all that are wanted, and its listeners hear of it.
And where vCenter shows none of them, since the account may not see them, or the VM has no configuration that could be read?  Such a VM
    is in `hidden`: whether it has a GPU, nobody can tell. It is asked for again every minute.
And when they change?  `config.changeVersion` is in the inventory and moves with every change of a VM's configuration: read again then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from pyVmomi import vmodl

from .faults import Busy, NotAuthenticated, Unreachable, VCenterError, WrongLogin
from .inventory import Change, Inventory
from .model import Machine, PassedDevice
from .properties import digits, many, text
from .rhythm import Rhythm
from .session import Session
from .transport import Log, Soap
from .updates import DISK, TYPE, ObjectUpdate, Value, decode_objects
from .watch import on, properties_of, reference

Query = vmodl.query.PropertyCollector
DEVICES = "config.hardware.device"
# A look without anybody who asks costs nothing; this is how long who could not be read waits at the most.
INTERVAL_SECONDS, SETTLE_SECONDS, PAUSE_SECONDS = 15.0, 0.05, 0.5
HIDDEN_SECONDS = 60.0
AT_ONCE = 100
Listener = Callable[[str], None]


class Devices:
    """Who has which; `of` answers from memory."""

    def __init__(self, soap: Soap, session: Session, inventory: Inventory, log: Log, *, rhythm: Rhythm | None = None) -> None:
        self.soap, self.session, self.inventory, self.log = soap, session, inventory, log
        self.rhythm = rhythm or Rhythm(INTERVAL_SECONDS, settle_seconds=SETTLE_SECONDS, pause_seconds=PAUSE_SECONDS)
        self.known: dict[str, tuple[PassedDevice, ...]] = {}
        self.hidden: set[str] = set()
        """Those whose devices vCenter does not show."""
        self.asked_hidden_at = self.rhythm.clock()
        self.wanted: set[str] = set()
        """Those to read with the next look."""
        self.listeners: list[Listener] = []

    def of(self, ref: str) -> tuple[PassedDevice, ...] | None:
        """The devices of a VM; None while they are not known, and then they will be soon."""
        found = self.known.get(ref)
        if found is None:
            self.want(ref)
        return found

    def want(self, ref: str) -> None:
        """Read them soon."""
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
        try:
            with self.rhythm.looking():
                for start in range(0, len(wanted), AT_ONCE):
                    self.learn(await self.read(wanted[start : start + AT_ONCE]))
        except (Unreachable, NotAuthenticated, WrongLogin, Busy) as error:
            self.wanted |= set(wanted)
            self.log.debug("the devices of VMs cannot be read, trying again", error=error)
        except VCenterError as error:
            # vCenter answers, and says no. Without this nobody who waits for one of them would ever get an answer.
            if not self.hidden.issuperset(wanted):
                self.log.warning("vCenter does not show the devices of some VMs", error=error, vms=len(wanted))
            self.learn([ObjectUpdate("modify", "VirtualMachine", ref) for ref in wanted if ref not in self.known])
        finally:
            # Those that the answer left out, or that an error of ours cut off.
            self.wanted |= {ref for ref in wanted if ref not in self.known and ref in self.inventory.machines}

    async def read(self, refs: list[str]) -> list[ObjectUpdate]:
        """One call for some VMs; what is gone meanwhile is left out."""
        objects = [on(reference("VirtualMachine", ref)) for ref in refs]
        spec = Query.FilterSpec(objectSet=objects, propSet=[properties_of("VirtualMachine", [DEVICES])], reportMissingObjectsInResults=True)

        async def call() -> Any:
            content = await self.soap.content()
            body = self.soap.envelope(content.propertyCollector, "RetrievePropertiesEx", [spec], Query.RetrieveOptions())
            return decode_objects(await self.soap.post(body, method="RetrievePropertiesEx"))

        return list((await self.session.call(call)).updates)

    def learn(self, updates: list[ObjectUpdate]) -> None:
        """Take what was read, and tell whose devices differ."""
        for update in updates:
            found, shown = passed_devices(update.changes.get(DEVICES)), DEVICES in update.changes
            same = self.known.get(update.ref) == found and shown == (update.ref not in self.hidden)
            if update.ref not in self.inventory.machines or same:
                continue
            self.known[update.ref] = found
            (self.hidden.discard if shown else self.hidden.add)(update.ref)
            for listener in self.listeners:
                listener(update.ref)


def passed_devices(value: Value) -> tuple[PassedDevice, ...]:
    """Of config.hardware.device, the vGPUs and passed-through PCI devices; the decoder has left out all others."""
    backings = [each.get("backing") for each in many(value) if isinstance(each, dict) and each.get(TYPE) != DISK]
    return tuple(passed_device(backing) for backing in backings if isinstance(backing, dict))


def passed_device(backing: Mapping[str, Value]) -> PassedDevice:
    """One of them, by its backing: Vmiop is a vGPU, Device a certain device, Dynamic any of a list."""
    allowed = [each for each in many(backing.get("allowedDevice")) if isinstance(each, dict)]
    # vendorId of a certain device is xsd:short, so that 8086 arrives as a negative number.
    vendors = tuple(digits(each.get("vendorId")) & 0xFFFF for each in (backing, *allowed) if each.get("vendorId"))
    return PassedDevice(text(backing.get("vgpu")), text(backing.get("deviceName")), text(backing.get("id")), vendors)
