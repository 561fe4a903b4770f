"""Which properties are read from vCenter, and which field of the model each becomes.

To add a field to the model, start here. Never read a whole `summary` or `config`: four named
properties of 1,000 hosts take 0.15 s of CPU, their summaries 13 s, and a whole `summary` is sent
again whenever anything in it changes.
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
# The type of the single object that has the names of custom attributes.
CUSTOM_FIELDS_MANAGER = "CustomFieldsManager"


def to_text(value: Value) -> str:
    return value if isinstance(value, str) else ""


def _to_interned_text(value: Value) -> str:
    # Few distinct values, shared by thousands of objects.
    return sys.intern(value) if isinstance(value, str) else ""


def to_name(value: Value) -> str:
    """A name as vCenter displays it."""
    # On the wire slash, backslash and percent sign are %2f, %5c and %25.
    text = to_text(value)
    if "%" not in text:
        return text
    return _ESCAPED_CHARACTER.sub(lambda match: chr(int(match[1], 16)), text)


def _to_int(value: Value) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def to_bool(value: Value) -> bool:
    return value is True


def to_ref(value: Value) -> str:
    return sys.intern(value.value) if isinstance(value, Ref) else ""


def to_tuple(value: Value) -> tuple[Value, ...]:
    """The items of a field that may occur several times."""
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _to_refs(value: Value) -> tuple[str, ...]:
    return tuple([to_ref(item) for item in to_tuple(value)])


def _to_ip_addresses(value: Value) -> tuple[str, ...]:
    """All addresses in guest.net without duplicates, in the order that VMware Tools reports."""
    nics = [nic for nic in to_tuple(value) if isinstance(nic, dict)]
    addresses = (to_text(item) for nic in nics for item in to_tuple(nic.get("ipAddress")))
    return tuple(dict.fromkeys(addresses))


def _to_attributes(value: Value) -> dict[str, str]:
    """Custom attributes by key; CustomFieldsManager has their names."""
    return {
        to_text(item.get("key")): to_text(item.get("value"))
        for item in to_tuple(value)
        if isinstance(item, dict)
    }


def to_attribute_names(value: Value) -> dict[str, str]:
    """CustomFieldsManager.field: the names of custom attributes by key."""
    return {
        to_text(item.get("key")): to_name(item.get("name"))
        for item in to_tuple(value)
        if isinstance(item, dict)
    }


def _to_fault_type(value: Value) -> str:
    """The type of the fault in a LocalizedMethodFault."""
    fault = value.get("fault") if isinstance(value, dict) else None
    return to_text(fault.get(TYPE_KEY)) if isinstance(fault, dict) else ""


def _to_fault_message(value: Value) -> str:
    """The message of a LocalizedMethodFault, with the missing privilege if it names one."""
    if not isinstance(value, dict):
        return ""
    fault, message = value.get("fault"), to_text(value.get("localizedMessage"))
    privilege = to_text(fault.get("privilegeId")) if isinstance(fault, dict) else ""
    return f'{message} (the privilege "{privilege}" is missing)' if privilege else message


def _to_texts(value: Value) -> tuple[str, ...]:
    return tuple(to_text(item) for item in to_tuple(value))


def parse_int(value: Value) -> int:
    """An integer inside a data object, where it is text."""
    return int(to_text(value) or 0)


def _to_graphics_devices(value: Value) -> tuple[GraphicsDevice, ...]:
    """config.graphicsInfo of a host."""
    return tuple(
        GraphicsDevice(
            to_text(item.get("deviceName")),
            to_text(item.get("pciId")),
            to_text(item.get("graphicsType")),
            parse_int(item.get("memorySizeInKB")),
            _to_refs(item.get("vm")),
        )
        for item in to_tuple(value)
        if isinstance(item, dict)
    )


def _to_assigned_devices(value: Value) -> tuple[AssignedDevice, ...]:
    """config.assignableHardwareBinding of a host; `instanceId` contains the PCI id."""
    bindings = [item for item in to_tuple(value) if isinstance(item, dict)]
    return tuple(
        sorted(
            AssignedDevice(to_ref(item.get("vm")), find_pci_id(to_text(item.get("instanceId"))))
            for item in bindings
        )
    )


def find_pci_id(text: str) -> str:
    """The PCI id inside a text, or ""."""
    match = _PCI_ID.search(text)
    return match[0].lower() if match else ""


Converter: TypeAlias = Callable[[Value], object]
_FieldMapping: TypeAlias = tuple[str, str, Converter]


class TypeMapping(Struct, frozen=True):
    """How objects of one managed type become values of the model."""

    model_type: type[InventoryObject]
    # The fields that each property fills.
    fields: Mapping[str, Sequence[tuple[str, Converter]]]
    # The field of `stats` that each property of quickStats fills.
    stats_fields: Mapping[str, str]
    # The value of each field if its property is not set.
    defaults: Mapping[str, object]

    @property
    def paths(self) -> list[str]:
        return [*self.fields, *self.stats_fields]

    def create_empty(self, update: ObjectUpdate) -> InventoryObject:
        if self.model_type is ComputeResource:
            return ComputeResource(
                ref=update.ref, is_cluster=update.type == "ClusterComputeResource"
            )
        return self.model_type(ref=update.ref)

    def apply_update(self, old: InventoryObject, update: ObjectUpdate) -> InventoryObject:
        """The object after an update. Properties that were not requested are ignored."""
        fields: dict[str, Any] = {}
        values, stats_fields = update.changes, self.stats_fields
        if update.missing:
            values = {**values, **dict.fromkeys(update.missing)}
        for path, value in values.items():
            for field, convert in self.fields.get(path, ()):
                fields[field] = self.defaults[field] if value is None else convert(value)
        if stats_fields and isinstance(old, (Host, VirtualMachine)):
            stats = {
                field: _to_int(values[path])
                for path, field in stats_fields.items()
                if path in values
            }
            if stats:
                fields["stats"] = structs.replace(old.stats, **stats)
        return structs.replace(old, **fields) if fields else old

    def _find_partial_properties(self, update: ObjectUpdate) -> set[str]:
        """Requested properties of which the update has only a part."""
        received = set(update.partial) | {
            path
            for path in update.changes
            if path not in self.fields and path not in self.stats_fields
        }
        return {
            requested
            for path in received
            for requested in self.fields
            if path == requested or path.startswith((f"{requested}.", f"{requested}["))
        }


def _map_type(
    model_type: type[InventoryObject],
    rows: Iterable[_FieldMapping],
    stats: Mapping[str, str] | None = None,
) -> TypeMapping:
    """A mapping from rows of property, field and converter, with the defaults of the model."""
    fields = dict[str, list[tuple[str, Converter]]]()
    for path, field, convert in rows:
        fields.setdefault(path, []).append((field, convert))
    empty = model_type(ref="")
    return TypeMapping(
        model_type,
        fields,
        stats or {},
        {field: getattr(empty, field) for field in model_type.__struct_fields__},
    )


_ENTITY_FIELDS: tuple[_FieldMapping, ...] = (
    ("name", "name", to_name),
    ("parent", "parent", to_ref),
)

HOST_MAPPING = _map_type(
    Host,
    (
        *_ENTITY_FIELDS,
        ("runtime.connectionState", "connection", _to_interned_text),
        ("runtime.powerState", "power", _to_interned_text),
        ("runtime.inMaintenanceMode", "in_maintenance", to_bool),
        ("runtime.bootTime", "boot_time", lambda value: value),
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
        ("config.assignableHardwareBinding", "assigned_devices", _to_assigned_devices),
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
        ("info.descriptionId", "description_id", _to_interned_text),
        ("info.entity", "entity", to_ref),
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
# By the type in an update, which is the most derived one.
TYPE_MAPPINGS: Mapping[str, TypeMapping] = {
    **ENTITY_MAPPINGS,
    "ClusterComputeResource": ENTITY_MAPPINGS["ComputeResource"],
    "VirtualApp": ENTITY_MAPPINGS["ResourcePool"],
    "StoragePod": ENTITY_MAPPINGS["Folder"],
    "Task": TASK_MAPPING,
}


def without_stale_stats(item: InventoryObject) -> InventoryObject:
    """Without the quickStats of a disconnected host or VM: vCenter keeps its last numbers."""
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
    """The properties of which updates have only a part, by type and reference."""
    paths_by_object = {}
    for update in updates:
        mapping = TYPE_MAPPINGS.get(update.type)
        if mapping and (paths := mapping._find_partial_properties(update)):
            paths_by_object[update.type, update.ref] = paths
    return paths_by_object
