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

from .concurrency import gather_limited
from .faults import RETRYABLE_ERRORS, VCenterError
from .inventory import Change, Inventory
from .model import AssignableDevice, AssignableHardware, Host
from .polling import PollSchedule
from .properties import find_pci_id, to_ref
from .retrieve import retrieve_selected
from .server_view import build_object_spec, build_property_spec, managed_object
from .session import Session
from .transport import Log, SoapClient, SoapStub
from .updates import ObjectUpdate

PropertyCollector = vmodl.query.PropertyCollector
_MANAGER_PROPERTY = "configManager.assignableHardwareManager"
_DEVICE_GROUPS_API_VERSION = "vim.version.v8_0_0_1"
"""The first that has RetrieveVendorDeviceGroupInfo; an older vCenter refuses the call, and then there are no groups."""
INTERVAL_SECONDS = 300.0
_NO_HARDWARE = AssignableHardware()


class AssignableHardwareCache:
    """What each host has; `of` answers from memory."""

    def __init__(
        self,
        soap: SoapClient,
        session: Session,
        inventory: Inventory,
        log: Log,
        *,
        poll_schedule: PollSchedule | None = None,
    ) -> None:
        self.soap, self.session, self.inventory, self.log = soap, session, inventory, log
        self.poll_schedule = poll_schedule or PollSchedule(INTERVAL_SECONDS)
        self.by_host: dict[str, AssignableHardware] = {}
        self.requested_hosts: set[str] = set()
        """The hosts that somebody asked about."""
        self.due_hosts: set[str] = set()
        """Those to read with the next look; a look without any reads all."""
        self.listeners: list[Callable[[str], None]] = []
        self._last_warning = ""

    def get(self, host: str) -> AssignableHardware:
        """What is known of the host of this reference; the first who asks has it read."""
        if host not in self.requested_hosts:
            self.requested_hosts.add(host)
            self.request_refresh(host)
        return self.by_host.get(host, _NO_HARDWARE)

    def request_refresh(self, host: str) -> None:
        """Read it soon."""
        self.due_hosts.add(host)
        self.poll_schedule.trigger()

    async def run(self) -> NoReturn:
        """Look again and again, until cancelled."""
        with self.inventory.subscribe(self.on_inventory_change):
            await self.poll_schedule.run(self.poll)

    def on_inventory_change(self, change: Change) -> None:
        """A host has other graphics devices, or is gone."""
        old, new = change.old, change.new
        if not isinstance(old, Host) or old.ref not in self.requested_hosts:
            return
        if not isinstance(new, Host):
            self.requested_hosts.discard(old.ref)
            self.due_hosts.discard(old.ref)
            self.by_host.pop(old.ref, None)
        elif old.graphics != new.graphics:
            self.request_refresh(old.ref)

    async def poll(self) -> None:
        """Read what is due; a failure is told once, and never raised."""
        hosts, self.due_hosts = (
            sorted((self.due_hosts or self.requested_hosts) & self.inventory.hosts.keys()),
            set(),
        )
        try:
            with self.poll_schedule.track_poll():
                updates = (
                    await self.session.call(lambda: self.read_managers(hosts)) if hosts else []
                )
                for update, hardware in zip(
                    updates, await gather_limited(updates, self._read_hardware), strict=True
                ):
                    self.apply(update.ref, hardware)
            self._last_warning = ""
        except VCenterError as error:
            self.due_hosts |= set(hosts)
            if str(error) != self._last_warning:
                self.log.warning(
                    "the assignable hardware of hosts cannot be read, what was known last stays",
                    error=error,
                )
            self._last_warning = str(error)

    async def read_managers(self, hosts: list[str]) -> list[ObjectUpdate]:
        """Who knows the devices of each host; what is gone meanwhile is left out."""
        objects = [build_object_spec(managed_object("HostSystem", host)) for host in hosts]
        wanted = [build_property_spec("HostSystem", [_MANAGER_PROPERTY])]
        spec = PropertyCollector.FilterSpec(
            objectSet=objects, propSet=wanted, reportMissingObjectsInResults=True
        )
        return await retrieve_selected(self.soap, spec)

    async def _read_hardware(self, update: ObjectUpdate) -> AssignableHardware:
        """One host's lists of devices; none where it has nobody who knows them."""
        if not (manager := to_ref(update.changes.get(_MANAGER_PROPERTY))):
            return _NO_HARDWARE
        devices = await self._call_or_empty(
            vim.host.AssignableHardwareManager(
                manager, self.soap.stub
            ).RetrieveDynamicPassthroughInfo
        )
        newer = vim.host.AssignableHardwareManager(
            manager, SoapStub(self.soap, _DEVICE_GROUPS_API_VERSION)
        )
        groups = await self._call_or_empty(newer.RetrieveVendorDeviceGroupInfo)
        return AssignableHardware(
            tuple(sorted(map(convert_device_info, devices))),
            tuple(sorted(str(each.deviceGroupName) for each in groups)),
        )

    async def _call_or_empty(self, method: Callable[[], Awaitable[Any]]) -> list[Any]:
        """The answer of a method; none from a host or vCenter that is too old for it, or will not tell."""
        try:
            return list(await self.session.call(method) or ())
        except RETRYABLE_ERRORS:
            raise
        except VCenterError as error:
            self.log.debug("a host does not tell its assignable hardware", error=error)
            return []

    def apply(self, host: str, hardware: AssignableHardware) -> None:
        """Take what was read, and tell if it differs."""
        if host in self.inventory.hosts and self.by_host.get(host, _NO_HARDWARE) != hardware:
            self.by_host[host] = hardware
            for listener in self.listeners:
                listener(host)


def convert_device_info(info: Any) -> AssignableDevice:
    """One VirtualMachineDynamicPassthroughInfo."""
    name, vendor, label = (
        str(each or "")
        for each in (info.deviceName or info.name, info.vendorName, info.customLabel)
    )
    return AssignableDevice(name, vendor, label, find_pci_id(str(info.name or "")))
