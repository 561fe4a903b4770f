"""The vGPUs and passed-through PCI devices of VMs, of those that somebody asks about; `reading.py` says how.

Why not in the inventory?  A VM has a dozen devices, and vCenter tells all of them or none: for 2,500 VMs that is 0.4 s more of CPU at the
    load, half as much again, and for a cluster's 100 Nodes nearly all of it would be thrown away.
And where vCenter shows none of them?  Such a VM is in `hidden`: whether it has a GPU, nobody can tell.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn

from pyVmomi import vim, vmodl

from .concurrency import gather_limited
from .faults import RETRYABLE_ERRORS, VCenterError
from .inventory import Inventory
from .model import AssignableDevice, AssignableHardware, GraphicsDevice, PassthroughDevice
from .polling import PollSchedule
from .properties import find_pci_id, parse_int, to_ref, to_text, to_tuple
from .retrieve import build_object_spec, build_property_spec, managed_object, retrieve_selected
from .session import Session
from .signal import Signal
from .transport import Log, SoapClient, SoapStub
from .updates import DISK_TYPE, TYPE_KEY, ObjectUpdate, Value
from .vm_details import VmPropertyCache

PropertyCollector = vmodl.query.PropertyCollector
DEVICES_PROPERTY = "config.hardware.device"


class PassthroughDevices(VmPropertyCache[tuple[PassthroughDevice, ...]]):
    """Who has which; `of` answers from memory."""

    def __init__(
        self,
        soap: SoapClient,
        session: Session,
        inventory: Inventory,
        log: Log,
        *,
        poll_schedule: PollSchedule | None = None,
    ) -> None:
        super().__init__(
            [DEVICES_PROPERTY],
            lambda found: decode_passthrough_devices(found.get(DEVICES_PROPERTY)),
            soap,
            session,
            inventory,
            log,
            poll_schedule=poll_schedule,
        )


def decode_passthrough_devices(value: Value) -> tuple[PassthroughDevice, ...]:
    """Of config.hardware.device, the vGPUs and passed-through PCI devices; the decoder has left out all others."""
    backings = [
        each.get("backing")
        for each in to_tuple(value)
        if isinstance(each, dict) and each.get(TYPE_KEY) != DISK_TYPE
    ]
    return tuple(
        _decode_passthrough_device(backing) for backing in backings if isinstance(backing, dict)
    )


def _decode_passthrough_device(backing: Mapping[str, Value]) -> PassthroughDevice:
    """One of them, by its backing: Vmiop is a vGPU, Device a certain device, Dynamic any of a list."""
    allowed = [each for each in to_tuple(backing.get("allowedDevice")) if isinstance(each, dict)]
    # vendorId of a certain device is xsd:short, so that 8086 arrives as a negative number.
    vendors = tuple(
        parse_int(each.get("vendorId")) & 0xFFFF
        for each in (backing, *allowed)
        if each.get("vendorId")
    )
    return PassthroughDevice(
        to_text(backing.get("vgpu")),
        to_text(backing.get("deviceName")),
        to_text(backing.get("id")),
        vendors,
    )


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
        self._graphics_by_host: dict[str, tuple[GraphicsDevice, ...]] = {}
        """The graphics devices of each requested host when it was last requested."""
        self.due_hosts: set[str] = set()
        """Those to read with the next look; a look without any reads all."""
        self.changed: Signal[str] = Signal(log)
        """A host has other assignable hardware: its reference."""
        self._last_warning = ""

    def get(self, host: str) -> AssignableHardware:
        """What is known of the host of this reference; the first who asks has it read."""
        found = self.inventory.hosts.get(host)
        graphics = found.graphics if found else ()
        # Read again when the graphics devices of the host change. The tracker of Nodes asks after
        # each change of a host, so that this needs no listener of its own.
        if self._graphics_by_host.get(host) != graphics:
            self._graphics_by_host[host] = graphics
            self.request_refresh(host)
        return self.by_host.get(host, _NO_HARDWARE)

    def request_refresh(self, host: str) -> None:
        """Read it soon."""
        self.due_hosts.add(host)
        self.poll_schedule.trigger()

    async def run(self) -> NoReturn:
        """Look again and again, until cancelled."""
        await self.poll_schedule.run(self.poll)

    async def poll(self) -> None:
        """Read what is due; a failure is told once, and never raised."""
        for gone in self._graphics_by_host.keys() - self.inventory.hosts.keys():
            del self._graphics_by_host[gone]
            self.by_host.pop(gone, None)
        hosts, self.due_hosts = (
            sorted((self.due_hosts or self._graphics_by_host.keys()) & self.inventory.hosts.keys()),
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
            self.changed.emit(host)


def convert_device_info(info: Any) -> AssignableDevice:
    """One VirtualMachineDynamicPassthroughInfo."""
    name, vendor, label = (
        str(each or "")
        for each in (info.deviceName or info.name, info.vendorName, info.customLabel)
    )
    return AssignableDevice(name, vendor, label, find_pci_id(str(info.name or "")))
