"""Devices that a host can give to a VM when that starts: its assignable hardware, of the hosts that somebody asks about.

Why not in the inventory?  Which there are is told by two methods of each host's HostAssignableHardwareManager alone. Which are taken is a
    property, and there: `Host.assigned`.
When?  From when somebody asks for a host, every 5 minutes, and soon after its graphics devices have changed.
What if it fails?  The last known ones stay. They are shown beside an answer and decide nothing, so nobody waits for them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from pyVmomi import vim, vmodl

from .concurrency import at_once
from .faults import PASSING, VCenterError
from .inventory import Change, Inventory
from .model import AssignableDevice, AssignableHardware, Host
from .polling import Rhythm
from .properties import pci_id_in, ref
from .retrieve import all_selected
from .server_view import on, properties_of, reference
from .session import Session
from .transport import Log, Soap, SoapStub
from .updates import ObjectUpdate

Query = vmodl.query.PropertyCollector
MANAGER = "configManager.assignableHardwareManager"
GROUPS_VERSION = "vim.version.v8_0_0_1"
"""The first that has RetrieveVendorDeviceGroupInfo; an older vCenter refuses the call, and then there are no groups."""
INTERVAL_SECONDS = 300.0
NOTHING = AssignableHardware()


class Assignable:
    """What each host has; `of` answers from memory."""

    def __init__(self, soap: Soap, session: Session, inventory: Inventory, log: Log, *, rhythm: Rhythm | None = None) -> None:
        self.soap, self.session, self.inventory, self.log = soap, session, inventory, log
        self.rhythm = rhythm or Rhythm(INTERVAL_SECONDS)
        self.known: dict[str, AssignableHardware] = {}
        self.asked: set[str] = set()
        """The hosts that somebody asked about."""
        self.due: set[str] = set()
        """Those to read with the next look; a look without any reads all."""
        self.listeners: list[Callable[[str], None]] = []
        self.said = ""

    def of(self, host: str) -> AssignableHardware:
        """What is known of the host of this reference; the first who asks has it read."""
        if host not in self.asked:
            self.asked.add(host)
            self.want(host)
        return self.known.get(host, NOTHING)

    def want(self, host: str) -> None:
        """Read it soon."""
        self.due.add(host)
        self.rhythm.soon()

    async def run(self) -> NoReturn:
        """Look again and again, until cancelled."""
        with self.inventory.heard_by(self.heard):
            await self.rhythm.keep(self.look)

    def heard(self, change: Change) -> None:
        """A host has other graphics devices, or is gone."""
        old, new = change.old, change.new
        if not isinstance(old, Host) or old.ref not in self.asked:
            return
        if not isinstance(new, Host):
            self.asked.discard(old.ref)
            self.due.discard(old.ref)
            self.known.pop(old.ref, None)
        elif old.graphics != new.graphics:
            self.want(old.ref)

    async def look(self) -> None:
        """Read what is due; a failure is told once, and never raised."""
        hosts, self.due = sorted((self.due or self.asked) & self.inventory.hosts.keys()), set()
        try:
            with self.rhythm.looking():
                updates = await self.session.call(lambda: self.read(hosts)) if hosts else []
                for update, hardware in zip(updates, await at_once(updates, self.hardware_of), strict=True):
                    self.learn(update.ref, hardware)
            self.said = ""
        except VCenterError as error:
            self.due |= set(hosts)
            if str(error) != self.said:
                self.log.warning("the assignable hardware of hosts cannot be read, what was known last stays", error=error)
            self.said = str(error)

    async def read(self, hosts: list[str]) -> list[ObjectUpdate]:
        """Who knows the devices of each host; what is gone meanwhile is left out."""
        objects = [on(reference("HostSystem", host)) for host in hosts]
        wanted = [properties_of("HostSystem", [MANAGER])]
        spec = Query.FilterSpec(objectSet=objects, propSet=wanted, reportMissingObjectsInResults=True)
        return await all_selected(self.soap, spec)

    async def hardware_of(self, update: ObjectUpdate) -> AssignableHardware:
        """One host's lists of devices; none where it has nobody who knows them."""
        if not (manager := ref(update.changes.get(MANAGER))):
            return NOTHING
        devices = await self.listed(vim.host.AssignableHardwareManager(manager, self.soap.stub).RetrieveDynamicPassthroughInfo)
        newer = vim.host.AssignableHardwareManager(manager, SoapStub(self.soap, GROUPS_VERSION))
        groups = await self.listed(newer.RetrieveVendorDeviceGroupInfo)
        return AssignableHardware(tuple(sorted(map(device_of, devices))), tuple(sorted(str(each.deviceGroupName) for each in groups)))

    async def listed(self, method: Callable[[], Awaitable[Any]]) -> list[Any]:
        """The answer of a method; none from a host or vCenter that is too old for it, or will not tell."""
        try:
            return list(await self.session.call(method) or ())
        except PASSING:
            raise
        except VCenterError as error:
            self.log.debug("a host does not tell its assignable hardware", error=error)
            return []

    def learn(self, host: str, hardware: AssignableHardware) -> None:
        """Take what was read, and tell if it differs."""
        if host in self.inventory.hosts and self.known.get(host, NOTHING) != hardware:
            self.known[host] = hardware
            for listener in self.listeners:
                listener(host)


def device_of(info: Any) -> AssignableDevice:
    """One VirtualMachineDynamicPassthroughInfo."""
    name, vendor, label = (str(each or "") for each in (info.deviceName or info.name, info.vendorName, info.customLabel))
    return AssignableDevice(name, vendor, label, pci_id_in(str(info.name or "")))
