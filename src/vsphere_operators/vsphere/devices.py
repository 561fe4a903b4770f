"""GPUs and PCI devices: what VMs have (passthrough devices), and what hosts can assign to VMs.

Why are they not in the inventory?  A VM has a dozen devices, and vCenter returns all or none: for
    2,500 VMs that adds 0.4 s of CPU time (50 %) to the load, and only the VMs of Nodes need it.
    Assignable hardware is not a property: only two methods of each host's
    HostAssignableHardwareManager return it.
When is assignable hardware read?  From the first call of `get` for a host on, every 5 minutes, and
    soon after the graphics devices of the host have changed.
What if that fails?  The last known hardware remains. It is only displayed and does not affect the
    selection, so no reconcile waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from .converters import find_pci_id, parse_int, require_items, to_ref, to_text, to_tuple
from .faults import RETRYABLE_ERRORS, VCenterError
from .inventory import Inventory, Signal
from .log import Log
from .model import AssignableDevice, AssignableHardware, GraphicsDevice, PassthroughDevice
from .parallel_calls import gather_limited
from .polling import PollSchedule
from .property_collector import retrieve_properties
from .session import Session
from .soap_request import VIM, ApiVersion
from .transport import SoapClient
from .updates import DISK_TYPE, TYPE_KEY, ObjectUpdate, Ref, Value, decode_results

DEVICES_PROPERTY = "config.hardware.device"
_INTERVAL_SECONDS = 300.0
_MANAGER_PROPERTY = "configManager.assignableHardwareManager"
# The first version with RetrieveVendorDeviceGroupInfo. An older vCenter rejects the call, and then
# there are no groups.
_DEVICE_GROUPS_API = ApiVersion("urn:vim25", "8.0.0.1")
_NO_HARDWARE = AssignableHardware()


def decode_passthrough_devices(properties: Mapping[str, Value]) -> tuple[PassthroughDevice, ...]:
    """The vGPUs and PCI devices of a VM, after updates.py dropped most other devices."""
    backings = [
        device.get("backing")
        for device in require_items(properties.get(DEVICES_PROPERTY))
        if device.get(TYPE_KEY) != DISK_TYPE
    ]
    return tuple(
        _decode_passthrough_device(backing) for backing in backings if isinstance(backing, dict)
    )


def _decode_passthrough_device(backing: Mapping[str, Value]) -> PassthroughDevice:
    # The backing's type: Vmiop is a vGPU, Device one certain device, Dynamic any of allowedDevice.
    allowed = [item for item in to_tuple(backing.get("allowedDevice")) if isinstance(item, dict)]
    # vendorId of a certain device is an xsd:short, so that 0x8086 arrives as a negative number.
    vendors = tuple(
        parse_int(item.get("vendorId")) & 0xFFFF
        for item in (backing, *allowed)
        if item.get("vendorId")
    )
    return PassthroughDevice(
        to_text(backing.get("vgpu")),
        to_text(backing.get("deviceName")),
        to_text(backing.get("id")),
        vendors,
    )


class AssignableHardwareCache:
    def __init__(
        self,
        soap: SoapClient,
        session: Session,
        inventory: Inventory,
        log: Log,
        *,
        poll_schedule: PollSchedule | None = None,
    ) -> None:
        self._soap, self._session, self._inventory, self._log = soap, session, inventory, log
        self.poll_schedule = poll_schedule or PollSchedule(_INTERVAL_SECONDS)
        self.by_host: dict[str, AssignableHardware] = {}
        # The graphics devices of each requested host at its last request.
        self._graphics_by_host: dict[str, tuple[GraphicsDevice, ...]] = {}
        # Hosts to read with the next poll. If it is empty, a poll reads all requested hosts.
        self.due_hosts: set[str] = set()
        # The reference of a host that has other assignable hardware.
        self.changed: Signal[str] = Signal(log)
        self._last_warning = ""

    def get(self, ref: str) -> AssignableHardware:
        """What is known of the host with this reference. A host is read after its first request."""
        host = self._inventory.hosts.get(ref)
        graphics = host.graphics if host else ()
        # The tracker of Nodes calls this after each change of a host, so no listener is needed.
        if self._graphics_by_host.get(ref) != graphics:
            self._graphics_by_host[ref] = graphics
            self.due_hosts.add(ref)
            self.poll_schedule.trigger()
        return self.by_host.get(ref, _NO_HARDWARE)

    async def run(self) -> NoReturn:
        await self.poll_schedule.run(self.poll)

    async def poll(self) -> None:
        """Read the hosts that are due. A failure is logged once, not raised."""
        current_hosts = self._inventory.hosts.keys()
        for ref in self._graphics_by_host.keys() - current_hosts:
            del self._graphics_by_host[ref]
            self.by_host.pop(ref, None)
        refs = sorted((self.due_hosts or self._graphics_by_host.keys()) & current_hosts)
        self.due_hosts = set()
        try:
            with self.poll_schedule.track_poll():
                updates = await self._read_managers(refs) if refs else []
                for update, hardware in zip(
                    updates, await gather_limited(updates, self._read_hardware), strict=True
                ):
                    self.apply(update.ref, hardware)
            self._last_warning = ""
        except VCenterError as error:
            self.due_hosts |= set(refs)
            if str(error) != self._last_warning:
                self._log.warning(
                    "assignable hardware of hosts cannot be read, keeping what was last known",
                    error=error,
                )
            self._last_warning = str(error)

    async def _read_managers(self, hosts: list[str]) -> list[ObjectUpdate]:
        return await retrieve_properties(
            self._soap, self._session, "HostSystem", hosts, [_MANAGER_PROPERTY]
        )

    async def _read_hardware(self, update: ObjectUpdate) -> AssignableHardware:
        if not (ref := to_ref(update.changes.get(_MANAGER_PROPERTY))):
            return _NO_HARDWARE
        devices = await self._read_list(VIM, ref, "RetrieveDynamicPassthroughInfo")
        groups = await self._read_list(_DEVICE_GROUPS_API, ref, "RetrieveVendorDeviceGroupInfo")
        return AssignableHardware(
            tuple(sorted(map(_decode_device_info, devices))),
            tuple(sorted(to_text(group.get("deviceGroupName")) for group in groups)),
        )

    async def _read_list(
        self, api: ApiVersion, manager: str, method: str
    ) -> list[dict[str, Value]]:
        """The data objects that a method of a host's manager returns; empty if the host or vCenter
        is too old or rejects the call.
        """
        target = Ref("HostAssignableHardwareManager", manager)
        report = self._soap.decode_errors.report
        try:
            body = await self._session.call(lambda: self._soap.invoke(target, method, {}, api=api))
        except RETRYABLE_ERRORS:
            raise
        except VCenterError as error:
            self._log.debug("a host does not return its assignable hardware", error=error)
            return []
        results = list[dict[str, Value]]()
        for result in decode_results(body, method, report):
            if isinstance(result, dict):
                results.append(result)
            else:
                report(method, "returnval", manager, TypeError(f"{type(result).__name__}"))
        return results

    def apply(self, host: str, hardware: AssignableHardware) -> None:
        if host in self._inventory.hosts and self.by_host.get(host, _NO_HARDWARE) != hardware:
            self.by_host[host] = hardware
            self.changed.emit(host)


def _decode_device_info(info: Mapping[str, Value]) -> AssignableDevice:
    """A VirtualMachineDynamicPassthroughInfo."""
    names = ("deviceName", "name", "vendorName", "customLabel")
    device_name, name, vendor, label = (to_text(info.get(field)) for field in names)
    return AssignableDevice(device_name or name, vendor, label, find_pci_id(name))
