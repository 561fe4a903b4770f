"""The vGPUs and passed-through PCI devices of VMs, of those that somebody asks about; `reading.py` says how.

Why not in the inventory?  A VM has a dozen devices, and vCenter tells all of them or none: for 2,500 VMs that is 0.4 s more of CPU at the
    load, half as much again, and for a cluster's 100 Nodes nearly all of it would be thrown away.
And where vCenter shows none of them?  Such a VM is in `hidden`: whether it has a GPU, nobody can tell.
"""

from __future__ import annotations

from collections.abc import Mapping

from .inventory import Inventory
from .model import PassthroughDevice
from .polling import PollSchedule
from .properties import parse_int, to_text, to_tuple
from .session import Session
from .transport import Log, SoapClient
from .updates import DISK_TYPE, TYPE_KEY, Value
from .vm_details import VmPropertyCache

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
