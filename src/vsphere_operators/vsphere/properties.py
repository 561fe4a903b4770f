"""Which properties we ask vCenter for, and what each becomes in the model. A field of the model that is to be new starts here.

Never a whole `summary` or `config`: four named properties of 1,000 hosts cost 0.15 s of CPU where their summaries cost 13 s, and a whole
`summary` is sent anew whenever anything in it moves.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, structs

from .model import (
    AssignedDevice,
    ComputeResource,
    Datacenter,
    Datastore,
    Folder,
    GraphicsDevice,
    Host,
    HostStats,
    ResourcePool,
    Task,
    VirtualMachine,
    VirtualMachineStats,
)
from .updates import TYPE_KEY, ObjectUpdate, Ref, Value

InventoryObject: TypeAlias = (
    Host | VirtualMachine | Datastore | ComputeResource | ResourcePool | Folder | Datacenter | Task
)
_ESCAPED_CHARACTER = re.compile("%(2f|5c|25)", re.IGNORECASE)
_PCI_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
CUSTOM_FIELDS_MANAGER = "CustomFieldsManager"
"""The type of the one object that knows the names of custom attributes."""


def to_text(value: Value) -> str:
    """A string."""
    return value if isinstance(value, str) else ""


def _to_interned_text(value: Value) -> str:
    """One of few strings: thousands of objects share each."""
    return sys.intern(value) if isinstance(value, str) else ""


def to_name(value: Value) -> str:
    """A name as vCenter shows it; on the wire it has slash, backslash and percent sign as %2f, %5c and %25."""
    shown = to_text(value)
    return (
        _ESCAPED_CHARACTER.sub(lambda found: chr(int(found[1], 16)), shown)
        if "%" in shown
        else shown
    )


def _to_int(value: Value) -> int | None:
    """A whole number, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def to_bool(value: Value) -> bool:
    """True only if it was told."""
    return value is True


def _to_time(value: Value) -> Value:
    """A time."""
    return value


def to_ref(value: Value) -> str:
    """The value of a reference; "" for anything else."""
    return sys.intern(value.value) if isinstance(value, Ref) else ""


def to_tuple(value: Value) -> tuple[Value, ...]:
    """A field that may occur once or several times."""
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _to_refs(value: Value) -> tuple[str, ...]:
    """The values of references."""
    return tuple([to_ref(each) for each in to_tuple(value)])


def _to_ip_addresses(value: Value) -> tuple[str, ...]:
    """All addresses in guest.net, each once, in the order of Tools."""
    cards = [card for card in to_tuple(value) if isinstance(card, dict)]
    return tuple(
        dict.fromkeys(to_text(each) for card in cards for each in to_tuple(card.get("ipAddress")))
    )


def _to_attributes(value: Value) -> dict[str, str]:
    """Custom attributes by key; the names are kept elsewhere."""
    return {
        to_text(each.get("key")): to_text(each.get("value"))
        for each in to_tuple(value)
        if isinstance(each, dict)
    }


def to_attribute_names(value: Value) -> dict[str, str]:
    """CustomFieldsManager.field: names by key."""
    return {
        to_text(each.get("key")): to_name(each.get("name"))
        for each in to_tuple(value)
        if isinstance(each, dict)
    }


def _to_fault_type(value: Value) -> str:
    """The name of the fault in a LocalizedMethodFault."""
    fault = value.get("fault") if isinstance(value, dict) else None
    return to_text(fault.get(TYPE_KEY)) if isinstance(fault, dict) else ""


def _to_fault_message(value: Value) -> str:
    """The words of a LocalizedMethodFault, with the privilege that it names."""
    if not isinstance(value, dict):
        return ""
    fault, words = value.get("fault"), to_text(value.get("localizedMessage"))
    privilege = to_text(fault.get("privilegeId")) if isinstance(fault, dict) else ""
    return f'{words} (the privilege "{privilege}" is missing)' if privilege else words


def _to_user(value: Value) -> str:
    """Who started a task, if it was a person."""
    return to_text(value.get("userName")) if isinstance(value, dict) else ""


def _to_texts(value: Value) -> tuple[str, ...]:
    """Some strings."""
    return tuple(to_text(each) for each in to_tuple(value))


def parse_int(value: Value) -> int:
    """A whole number inside a data object, where it is text."""
    return int(to_text(value) or 0)


def _to_graphics_devices(value: Value) -> tuple[GraphicsDevice, ...]:
    """config.graphicsInfo of a host."""
    return tuple(
        GraphicsDevice(
            to_text(each.get("deviceName")),
            to_text(each.get("pciId")),
            to_text(each.get("graphicsType")),
            parse_int(each.get("memorySizeInKB")),
            _to_refs(each.get("vm")),
        )
        for each in to_tuple(value)
        if isinstance(each, dict)
    )


def to_assigned_devices(value: Value) -> tuple[AssignedDevice, ...]:
    """config.assignableHardwareBinding of a host: who has which device; its id stands inside `instanceId`."""
    bindings = [each for each in to_tuple(value) if isinstance(each, dict)]
    return tuple(
        sorted(
            AssignedDevice(to_ref(each.get("vm")), find_pci_id(to_text(each.get("instanceId"))))
            for each in bindings
        )
    )


def find_pci_id(called: str) -> str:
    """The id of a PCI device in whatever it is called by, "" for none."""
    found = _PCI_ID.search(called)
    return found[0].lower() if found else ""


Converter: TypeAlias = Callable[[Value], object]
FieldMapping: TypeAlias = tuple[str, str, Converter]


class TypeMapping(Struct, frozen=True):
    """How objects of one managed type are asked for and become values."""

    model_type: type[InventoryObject]
    fields: Mapping[str, Sequence[tuple[str, Converter]]]
    """Which fields a property fills."""
    stats_fields: Mapping[str, str]
    """Those of `stats`, where there are some."""
    defaults: Mapping[str, object]
    """What a field is when its property is not set."""

    @property
    def paths(self) -> list[str]:
        """The properties to ask for."""
        return [*self.fields, *self.stats_fields]

    def create_empty(self, update: ObjectUpdate) -> InventoryObject:
        """An object of which nothing is known yet."""
        if self.model_type is ComputeResource:
            return ComputeResource(
                ref=update.ref, is_cluster=update.type == "ClusterComputeResource"
            )
        return self.model_type(ref=update.ref)

    def apply_update(self, old: InventoryObject, update: ObjectUpdate) -> InventoryObject:
        """The object after an update; properties that we did not ask for count for nothing."""
        changed, told = dict[str, Any](), update.changes
        if update.missing:
            told = {**told, **dict.fromkeys(update.missing)}
        for path, value in told.items():
            for field, convert in self.fields.get(path, ()):
                changed[field] = self.defaults[field] if value is None else convert(value)
        if (moved := self.stats_fields.keys() & told.keys()) and isinstance(
            old, Host | VirtualMachine
        ):
            changed["stats"] = structs.replace(
                old.stats, **{self.stats_fields[path]: _to_int(told[path]) for path in moved}
            )
        return structs.replace(old, **changed) if changed else old

    def _find_partial_properties(self, update: ObjectUpdate) -> set[str]:
        """Properties of which the update tells a part only, so that they must be read again."""
        told = set(update.partial) | {
            path
            for path in update.changes
            if path not in self.fields and path not in self.stats_fields
        }
        return {
            asked
            for path in told
            for asked in self.fields
            if path == asked or path.startswith((f"{asked}.", f"{asked}["))
        }


def _map_type(
    item: type[InventoryObject],
    rows: Iterable[FieldMapping],
    stats: Mapping[str, str] | None = None,
) -> TypeMapping:
    """A sort from rows of property, field and how the one becomes the other; what is not set has the default of the model."""
    fields = dict[str, list[tuple[str, Converter]]]()
    for path, field, convert in rows:
        fields.setdefault(path, []).append((field, convert))
    blank = item(ref="")
    return TypeMapping(
        item,
        fields,
        stats or {},
        {field: getattr(blank, field) for field in item.__struct_fields__},
    )


_ENTITY_FIELDS: tuple[FieldMapping, ...] = (("name", "name", to_name), ("parent", "parent", to_ref))

HOST_MAPPING = _map_type(
    Host,
    (
        *_ENTITY_FIELDS,
        ("runtime.connectionState", "connection", _to_interned_text),
        ("runtime.powerState", "power", _to_interned_text),
        ("runtime.inMaintenanceMode", "in_maintenance", to_bool),
        ("runtime.bootTime", "boot_time", _to_time),
        ("summary.hardware.cpuMhz", "cpu_mhz", _to_int),
        ("summary.hardware.numCpuCores", "cpu_cores", _to_int),
        ("summary.hardware.memorySize", "memory_bytes", _to_int),
        ("summary.hardware.vendor", "vendor", _to_interned_text),
        ("summary.hardware.model", "model", _to_interned_text),
        ("summary.config.product.version", "version", _to_interned_text),
        ("summary.config.product.build", "build", _to_interned_text),
        ("customValue", "attributes", _to_attributes),
        ("config.graphicsInfo", "graphics", _to_graphics_devices),
        ("config.sharedPassthruGpuTypes", "vgpu_profiles", _to_texts),
        ("config.assignableHardwareBinding", "assigned_devices", to_assigned_devices),
    ),
    {
        "summary.quickStats.overallCpuUsage": "cpu_usage_mhz",
        "summary.quickStats.overallMemoryUsage": "memory_usage_mb",
    },
)
VIRTUAL_MACHINE_MAPPING = _map_type(
    VirtualMachine,
    (
        *_ENTITY_FIELDS,
        ("runtime.host", "host", to_ref),
        ("runtime.connectionState", "connection", _to_interned_text),
        ("runtime.powerState", "power", _to_interned_text),
        ("config.template", "is_template", to_bool),
        ("config.uuid", "bios_uuid", to_text),
        ("config.instanceUuid", "instance_uuid", to_text),
        ("config.guestId", "configured_guest_id", _to_interned_text),
        ("config.version", "hardware_version", _to_interned_text),
        ("summary.config.numCpu", "cpus", _to_int),
        ("summary.config.memorySizeMB", "memory_mb", _to_int),
        ("summary.config.cpuReservation", "cpu_reservation_mhz", _to_int),
        ("summary.config.memoryReservation", "memory_reservation_mb", _to_int),
        ("summary.config.vmPathName", "vmx_path", to_text),
        ("datastore", "datastores", _to_refs),
        ("resourcePool", "resource_pool", to_ref),
        ("summary.guest.toolsRunningStatus", "tools_running", _to_interned_text),
        ("summary.guest.toolsVersionStatus2", "tools_version", _to_interned_text),
        ("summary.guest.guestId", "guest_id", _to_interned_text),
        ("summary.guest.hwVersion", "guest_hardware_version", _to_interned_text),
        ("summary.guest.ipAddress", "ip_address", to_text),
        ("guest.net", "ip_addresses", _to_ip_addresses),
        ("customValue", "attributes", _to_attributes),
        ("config.changeVersion", "config_version", to_text),
    ),
    {
        "summary.quickStats.overallCpuUsage": "cpu_usage_mhz",
        "summary.quickStats.overallCpuDemand": "cpu_demand_mhz",
        "summary.quickStats.guestMemoryUsage": "guest_memory_mb",
    },
)
_DATASTORE_MAPPING = _map_type(
    Datastore,
    (
        *_ENTITY_FIELDS,
        ("summary.url", "url", to_text),
        ("summary.accessible", "accessible", to_bool),
    ),
)
TASK_MAPPING = _map_type(
    Task,
    (
        ("info.state", "state", _to_interned_text),
        ("info.progress", "progress_percent", _to_int),
        ("info.descriptionId", "description", _to_interned_text),
        ("info.entity", "entity", to_ref),
        ("info.reason", "user", _to_user),
        ("info.result", "result", to_ref),
        ("info.error", "fault", _to_fault_type),
        ("info.error", "message", _to_fault_message),
    ),
)
ENTITY_MAPPINGS: Mapping[str, TypeMapping] = {
    "VirtualMachine": VIRTUAL_MACHINE_MAPPING,
    "HostSystem": HOST_MAPPING,
    "Datastore": _DATASTORE_MAPPING,
    "ComputeResource": _map_type(ComputeResource, _ENTITY_FIELDS),
    "ResourcePool": _map_type(ResourcePool, (*_ENTITY_FIELDS, ("owner", "owner", to_ref))),
    "Folder": _map_type(Folder, _ENTITY_FIELDS),
    "Datacenter": _map_type(Datacenter, _ENTITY_FIELDS),
}
TYPE_MAPPINGS: Mapping[str, TypeMapping] = {
    **ENTITY_MAPPINGS,
    "ClusterComputeResource": ENTITY_MAPPINGS["ComputeResource"],
    "VirtualApp": ENTITY_MAPPINGS["ResourcePool"],
    "StoragePod": ENTITY_MAPPINGS["Folder"],
    "Task": TASK_MAPPING,
}
"""By the type that an update names, which is the most special one."""


def without_stale_stats(item: InventoryObject) -> InventoryObject:
    """A host or VM that does not report keeps its last load in vCenter; here it has none, as the load of now is not known."""
    if isinstance(item, Host) and item.connection != "connected" and item.stats != HostStats():
        return structs.replace(item, stats=HostStats())
    if (
        isinstance(item, VirtualMachine)
        and item.connection not in ("connected", "")
        and item.stats != VirtualMachineStats()
    ):
        return structs.replace(item, stats=VirtualMachineStats())
    return item


def find_properties_to_reread(updates: Iterable[ObjectUpdate]) -> dict[tuple[str, str], set[str]]:
    """The properties that updates tell in part only, by type and reference."""
    found = {}
    for update in updates:
        if (known := TYPE_MAPPINGS.get(update.type)) and (
            paths := known._find_partial_properties(update)
        ):
            found[update.type, update.ref] = paths
    return found
