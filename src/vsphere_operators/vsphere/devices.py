"""The vGPUs and passed-through PCI devices of VMs, of those that somebody asks about; `reading.py` says how.

Why not in the inventory?  A VM has a dozen devices, and vCenter tells all of them or none: for 2,500 VMs that is 0.4 s more of CPU at the
    load, half as much again, and for a cluster's 100 Nodes nearly all of it would be thrown away.
And where vCenter shows none of them?  Such a VM is in `hidden`: whether it has a GPU, nobody can tell.
"""

from __future__ import annotations

from collections.abc import Mapping

from .inventory import Inventory
from .model import PassedDevice
from .polling import Rhythm
from .properties import digits, many, text
from .session import Session
from .transport import Log, Soap
from .updates import DISK, TYPE, Value
from .vm_details import Reading

DEVICES = "config.hardware.device"


class Devices(Reading[tuple[PassedDevice, ...]]):
    """Who has which; `of` answers from memory."""

    def __init__(self, soap: Soap, session: Session, inventory: Inventory, log: Log, *, rhythm: Rhythm | None = None) -> None:
        super().__init__([DEVICES], lambda found: passed_devices(found.get(DEVICES)), soap, session, inventory, log, rhythm=rhythm)


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
