"""Which properties are read from vCenter, and which field of the model each becomes.

To read another property, add the field in model.py first, then its property here. Never read a
whole `summary` or `config`: four named properties of 1,000 hosts take 0.15 s of CPU, their
summaries 13 s, and a whole `summary` is sent again whenever anything in it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, structs

from .converters import (
    require_assigned_devices,
    require_attributes,
    require_bool,
    require_graphics_devices,
    require_host_mounts,
    require_int,
    require_interned_text,
    require_ip_addresses,
    require_name,
    require_one_of,
    require_ref,
    require_refs,
    require_text,
    require_texts,
    require_time,
    to_fault_message,
    to_fault_type,
)
from .decode_errors import DECODE_ERRORS, ReportUndecodable, ignore_undecodable
from .model import (
    ComputeResource,
    ConnectionState,
    Datacenter,
    Datastore,
    Folder,
    Host,
    HostStats,
    PowerState,
    ResourcePool,
    Task,
    TaskState,
    VirtualMachine,
    VirtualMachineStats,
)
from .updates import ObjectUpdate, Value

InventoryObject: TypeAlias = (
    Host | VirtualMachine | Datastore | ComputeResource | ResourcePool | Folder | Datacenter | Task
)
# The type of the single object that has the names of custom attributes.
CUSTOM_FIELDS_MANAGER = "CustomFieldsManager"
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

    def has_only_stats(self, update: ObjectUpdate) -> bool:
        """Whether an update is of nothing but quickStats of a known object."""
        return (
            update.kind == "modify"
            and not update.missing
            and not update.partial
            and update.changes.keys() <= self.stats_fields.keys()
        )

    def create_empty(self, update: ObjectUpdate) -> InventoryObject:
        if self.model_type is ComputeResource:
            return ComputeResource(
                ref=update.ref, is_cluster=update.type == "ClusterComputeResource"
            )
        return self.model_type(ref=update.ref)

    def apply_update(
        self,
        old: InventoryObject,
        update: ObjectUpdate,
        report: ReportUndecodable = ignore_undecodable,
    ) -> InventoryObject:
        """The object after an update. Properties that were not requested are ignored."""
        fields: dict[str, Any] = {}
        stats: dict[str, int | None] = {}
        values = update.changes
        if update.missing:
            values = {**values, **dict.fromkeys(update.missing)}
        for path, value in values.items():
            try:
                for field, convert in self.fields.get(path, ()):
                    # First the default, which stays if the value does not decode.
                    fields[field] = self.defaults[field]
                    if value is not None:
                        fields[field] = convert(value)
                if path in self.stats_fields:
                    stats[self.stats_fields[path]] = None
                    if value is not None:
                        stats[self.stats_fields[path]] = require_int(value)
            except DECODE_ERRORS as error:
                report(update.type, path, update.ref, error)
        if stats and isinstance(old, (Host, VirtualMachine)):
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
    ("name", "name", require_name),
    ("parent", "parent", require_ref),
)

HOST_MAPPING = _map_type(
    Host,
    (
        *_ENTITY_FIELDS,
        ("runtime.connectionState", "connection", require_one_of(ConnectionState)),
        ("runtime.powerState", "power", require_one_of(PowerState)),
        ("runtime.inMaintenanceMode", "in_maintenance", require_bool),
        ("runtime.bootTime", "boot_time", require_time),
        ("summary.hardware.cpuMhz", "cpu_mhz", require_int),
        ("summary.hardware.numCpuCores", "cpu_cores", require_int),
        ("summary.hardware.memorySize", "memory_bytes", require_int),
        ("summary.hardware.vendor", "vendor", require_interned_text),
        ("summary.hardware.model", "model", require_interned_text),
        ("summary.config.product.version", "version", require_interned_text),
        ("summary.config.product.build", "build", require_interned_text),
        ("customValue", "attributes", require_attributes),
        ("config.graphicsInfo", "graphics", require_graphics_devices),
        ("config.sharedPassthruGpuTypes", "vgpu_profiles", require_texts),
        ("config.assignableHardwareBinding", "assigned_devices", require_assigned_devices),
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
        ("runtime.host", "host", require_ref),
        ("runtime.connectionState", "connection", require_interned_text),
        ("runtime.powerState", "power", require_one_of(PowerState)),
        ("config.template", "is_template", require_bool),
        ("config.uuid", "bios_uuid", require_text),
        ("config.instanceUuid", "instance_uuid", require_text),
        ("config.guestId", "configured_guest_id", require_interned_text),
        ("config.version", "hardware_version", require_interned_text),
        ("summary.config.numCpu", "cpus", require_int),
        ("config.hardware.numCoresPerSocket", "cores_per_socket", require_int),
        ("summary.config.memorySizeMB", "memory_mb", require_int),
        ("summary.config.cpuReservation", "cpu_reservation_mhz", require_int),
        ("summary.config.memoryReservation", "memory_reservation_mb", require_int),
        ("summary.config.vmPathName", "vmx_path", require_text),
        ("datastore", "datastores", require_refs),
        ("resourcePool", "resource_pool", require_ref),
        ("summary.guest.toolsRunningStatus", "tools_running", require_interned_text),
        ("summary.guest.toolsVersionStatus2", "tools_version", require_interned_text),
        ("summary.guest.guestId", "guest_id", require_interned_text),
        ("summary.guest.hwVersion", "guest_hardware_version", require_interned_text),
        ("summary.guest.ipAddress", "ip_address", require_text),
        ("guest.net", "ip_addresses", require_ip_addresses),
        ("customValue", "attributes", require_attributes),
        ("config.changeVersion", "config_version", require_text),
    ),
    {
        "summary.quickStats.overallCpuUsage": "cpu_usage_mhz",
        "summary.quickStats.overallCpuDemand": "cpu_demand_mhz",
        "summary.quickStats.guestMemoryUsage": "guest_memory_mb",
        "summary.quickStats.overallCpuReadiness": "cpu_readiness_percent",
        "summary.quickStats.balloonedMemory": "ballooned_memory_mb",
        "summary.quickStats.swappedMemory": "swapped_memory_mb",
    },
)
_DATASTORE_MAPPING = _map_type(
    Datastore,
    (
        *_ENTITY_FIELDS,
        ("summary.url", "url", require_text),
        ("summary.accessible", "accessible", require_bool),
        ("summary.type", "type", require_interned_text),
        ("summary.capacity", "capacity_bytes", require_int),
        ("summary.freeSpace", "free_bytes", require_int),
        ("summary.uncommitted", "uncommitted_bytes", require_int),
        ("summary.maintenanceMode", "maintenance_mode", require_interned_text),
        ("host", "hosts", require_host_mounts),
    ),
)
_CLUSTER_MAPPING = _map_type(
    ComputeResource,
    (
        *_ENTITY_FIELDS,
        ("configurationEx.drsConfig.enabled", "drs_enabled", require_bool),
        ("configurationEx.drsConfig.defaultVmBehavior", "drs_automation", require_interned_text),
        ("configurationEx.dasConfig.enabled", "ha_enabled", require_bool),
        ("configurationEx.dasConfig.admissionControlEnabled", "ha_admission_control", require_bool),
    ),
)
TASK_MAPPING = _map_type(
    Task,
    (
        ("info.state", "state", require_one_of(TaskState)),
        ("info.progress", "progress_percent", require_int),
        ("info.descriptionId", "description_id", require_interned_text),
        ("info.entity", "entity", require_ref),
        ("info.entityName", "entity_name", require_text),
        ("info.error", "fault", to_fault_type),
        ("info.error", "message", to_fault_message),
    ),
)
ENTITY_MAPPINGS: Mapping[str, TypeMapping] = {
    "VirtualMachine": VIRTUAL_MACHINE_MAPPING,
    "HostSystem": HOST_MAPPING,
    "Datastore": _DATASTORE_MAPPING,
    "ComputeResource": _map_type(ComputeResource, _ENTITY_FIELDS),
    # A property filter uses the most derived type, so this one repeats the fields of its base type.
    "ClusterComputeResource": _CLUSTER_MAPPING,
    "ResourcePool": _map_type(ResourcePool, (*_ENTITY_FIELDS, ("owner", "owner", require_ref))),
    "Folder": _map_type(Folder, _ENTITY_FIELDS),
    "Datacenter": _map_type(Datacenter, _ENTITY_FIELDS),
}
# By the type in an update, which is the most derived one.
TYPE_MAPPINGS: Mapping[str, TypeMapping] = {
    **ENTITY_MAPPINGS,
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


def differ_only_in_stats(old: InventoryObject, new: InventoryObject) -> bool:
    """Whether two versions of one object are equal apart from quickStats."""
    if isinstance(old, Host) and isinstance(new, Host):
        return old == structs.replace(new, stats=old.stats)
    if isinstance(old, VirtualMachine) and isinstance(new, VirtualMachine):
        return old == structs.replace(new, stats=old.stats)
    return old == new


def have_only_stats(updates: Iterable[ObjectUpdate]) -> bool:
    return all(
        update.type in TYPE_MAPPINGS and TYPE_MAPPINGS[update.type].has_only_stats(update)
        for update in updates
    )


def find_properties_to_reread(updates: Iterable[ObjectUpdate]) -> dict[tuple[str, str], set[str]]:
    """The properties of which updates have only a part, by type and reference."""
    paths_by_object = {}
    for update in updates:
        mapping = TYPE_MAPPINGS.get(update.type)
        if mapping and (paths := mapping._find_partial_properties(update)):
            paths_by_object[update.type, update.ref] = paths
    return paths_by_object
