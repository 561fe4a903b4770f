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
    Assigned,
    Compute,
    Datacenter,
    Datastore,
    Folder,
    GraphicsDevice,
    Host,
    HostStats,
    Machine,
    MachineStats,
    ResourcePool,
    Task,
)
from .updates import TYPE, ObjectUpdate, Ref, Value

Item: TypeAlias = Host | Machine | Datastore | Compute | ResourcePool | Folder | Datacenter | Task
ESCAPED = re.compile("%(2f|5c|25)", re.IGNORECASE)
PCI_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
ATTRIBUTES = "CustomFieldsManager"
"""The type of the one object that knows the names of custom attributes."""


def text(value: Value) -> str:
    """A string."""
    return value if isinstance(value, str) else ""


def word(value: Value) -> str:
    """One of few strings: thousands of objects share each."""
    return sys.intern(value) if isinstance(value, str) else ""


def name(value: Value) -> str:
    """A name as vCenter shows it; on the wire it has slash, backslash and percent sign as %2f, %5c and %25."""
    shown = text(value)
    return ESCAPED.sub(lambda found: chr(int(found[1], 16)), shown) if "%" in shown else shown


def number(value: Value) -> int | None:
    """A whole number, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def flag(value: Value) -> bool:
    """True only if it was told."""
    return value is True


def moment(value: Value) -> Value:
    """A time."""
    return value


def ref(value: Value) -> str:
    """The value of a reference; "" for anything else."""
    return sys.intern(value.value) if isinstance(value, Ref) else ""


def many(value: Value) -> tuple[Value, ...]:
    """A field that may occur once or several times."""
    return value if isinstance(value, tuple) else () if value is None else (value,)


def refs(value: Value) -> tuple[str, ...]:
    """The values of references."""
    return tuple([ref(each) for each in many(value)])


def addresses(value: Value) -> tuple[str, ...]:
    """All addresses in guest.net, each once, in the order of Tools."""
    cards = [card for card in many(value) if isinstance(card, dict)]
    return tuple(dict.fromkeys(text(each) for card in cards for each in many(card.get("ipAddress"))))


def attributes(value: Value) -> dict[str, str]:
    """Custom attributes by key; the names are kept elsewhere."""
    return {text(each.get("key")): text(each.get("value")) for each in many(value) if isinstance(each, dict)}


def attribute_names(value: Value) -> dict[str, str]:
    """CustomFieldsManager.field: names by key."""
    return {text(each.get("key")): name(each.get("name")) for each in many(value) if isinstance(each, dict)}


def fault_type(value: Value) -> str:
    """The name of the fault in a LocalizedMethodFault."""
    fault = value.get("fault") if isinstance(value, dict) else None
    return text(fault.get(TYPE)) if isinstance(fault, dict) else ""


def fault_message(value: Value) -> str:
    """The words of a LocalizedMethodFault, with the privilege that it names."""
    if not isinstance(value, dict):
        return ""
    fault, words = value.get("fault"), text(value.get("localizedMessage"))
    privilege = text(fault.get("privilegeId")) if isinstance(fault, dict) else ""
    return f'{words} (the privilege "{privilege}" is missing)' if privilege else words


def user(value: Value) -> str:
    """Who started a task, if it was a person."""
    return text(value.get("userName")) if isinstance(value, dict) else ""


def words(value: Value) -> tuple[str, ...]:
    """Some strings."""
    return tuple(text(each) for each in many(value))


def digits(value: Value) -> int:
    """A whole number inside a data object, where it is text."""
    return int(text(value) or 0)


def graphics(value: Value) -> tuple[GraphicsDevice, ...]:
    """config.graphicsInfo of a host."""
    return tuple(
        GraphicsDevice(
            text(each.get("deviceName")),
            text(each.get("pciId")),
            text(each.get("graphicsType")),
            digits(each.get("memorySizeInKB")),
            refs(each.get("vm")),
        )
        for each in many(value)
        if isinstance(each, dict)
    )


def assigned(value: Value) -> tuple[Assigned, ...]:
    """config.assignableHardwareBinding of a host: who has which device; its id stands inside `instanceId`."""
    bindings = [each for each in many(value) if isinstance(each, dict)]
    return tuple(sorted(Assigned(ref(each.get("vm")), pci_id_in(text(each.get("instanceId")))) for each in bindings))


def pci_id_in(called: str) -> str:
    """The id of a PCI device in whatever it is called by, "" for none."""
    found = PCI_ID.search(called)
    return found[0].lower() if found else ""


Convert: TypeAlias = Callable[[Value], object]
Row: TypeAlias = tuple[str, str, Convert]


class Sort(Struct, frozen=True):
    """How objects of one managed type are asked for and become values."""

    item: type[Item]
    fields: Mapping[str, Sequence[tuple[str, Convert]]]
    """Which fields a property fills."""
    stats: Mapping[str, str]
    """Those of `stats`, where there are some."""
    unset: Mapping[str, object]
    """What a field is when its property is not set."""

    @property
    def paths(self) -> list[str]:
        """The properties to ask for."""
        return [*self.fields, *self.stats]

    def blank(self, update: ObjectUpdate) -> Item:
        """An object of which nothing is known yet."""
        if self.item is Compute:
            return Compute(ref=update.ref, is_cluster=update.type == "ClusterComputeResource")
        return self.item(ref=update.ref)

    def updated(self, old: Item, update: ObjectUpdate) -> Item:
        """The object after an update; properties that we did not ask for count for nothing."""
        changed, told = dict[str, Any](), update.changes
        if update.missing:
            told = {**told, **dict.fromkeys(update.missing)}
        for path, value in told.items():
            for field, convert in self.fields.get(path, ()):
                changed[field] = self.unset[field] if value is None else convert(value)
        if (moved := self.stats.keys() & told.keys()) and isinstance(old, Host | Machine):
            changed["stats"] = structs.replace(old.stats, **{self.stats[path]: number(told[path]) for path in moved})
        return structs.replace(old, **changed) if changed else old

    def unmerged(self, update: ObjectUpdate) -> set[str]:
        """Properties of which the update tells a part only, so that they must be read again."""
        told = set(update.partial) | {path for path in update.changes if path not in self.fields and path not in self.stats}
        return {asked for path in told for asked in self.fields if path == asked or path.startswith((f"{asked}.", f"{asked}["))}


def sort(item: type[Item], rows: Iterable[Row], stats: Mapping[str, str] | None = None) -> Sort:
    """A sort from rows of property, field and how the one becomes the other; what is not set has the default of the model."""
    fields = dict[str, list[tuple[str, Convert]]]()
    for path, field, convert in rows:
        fields.setdefault(path, []).append((field, convert))
    blank = item(ref="")
    return Sort(item, fields, stats or {}, {field: getattr(blank, field) for field in item.__struct_fields__})


PLACE: tuple[Row, ...] = (("name", "name", name), ("parent", "parent", ref))

HOST = sort(
    Host,
    (
        *PLACE,
        ("runtime.connectionState", "connection", word),
        ("runtime.powerState", "power", word),
        ("runtime.inMaintenanceMode", "in_maintenance", flag),
        ("runtime.bootTime", "boot_time", moment),
        ("summary.hardware.cpuMhz", "cpu_mhz", number),
        ("summary.hardware.numCpuCores", "cpu_cores", number),
        ("summary.hardware.memorySize", "memory_bytes", number),
        ("summary.hardware.vendor", "vendor", word),
        ("summary.hardware.model", "model", word),
        ("summary.config.product.version", "version", word),
        ("summary.config.product.build", "build", word),
        ("customValue", "attributes", attributes),
        ("config.graphicsInfo", "graphics", graphics),
        ("config.sharedPassthruGpuTypes", "vgpu_types", words),
        ("config.assignableHardwareBinding", "assigned", assigned),
    ),
    {"summary.quickStats.overallCpuUsage": "cpu_usage_mhz", "summary.quickStats.overallMemoryUsage": "memory_usage_mb"},
)
MACHINE = sort(
    Machine,
    (
        *PLACE,
        ("runtime.host", "host", ref),
        ("runtime.connectionState", "connection", word),
        ("runtime.powerState", "power", word),
        ("config.template", "is_template", flag),
        ("config.uuid", "bios_uuid", text),
        ("config.instanceUuid", "instance_uuid", text),
        ("config.guestId", "configured_guest", word),
        ("config.version", "hardware_version", word),
        ("summary.config.numCpu", "cpus", number),
        ("summary.config.memorySizeMB", "memory_mb", number),
        ("summary.config.cpuReservation", "cpu_reservation_mhz", number),
        ("summary.config.memoryReservation", "memory_reservation_mb", number),
        ("summary.config.vmPathName", "path", text),
        ("datastore", "datastores", refs),
        ("resourcePool", "resource_pool", ref),
        ("summary.guest.toolsRunningStatus", "tools_running", word),
        ("summary.guest.toolsVersionStatus2", "tools_version", word),
        ("summary.guest.guestId", "guest_id", word),
        ("summary.guest.hwVersion", "guest_hardware_version", word),
        ("summary.guest.ipAddress", "ip_address", text),
        ("guest.net", "ip_addresses", addresses),
        ("customValue", "attributes", attributes),
        ("config.changeVersion", "config_version", text),
    ),
    {
        "summary.quickStats.overallCpuUsage": "cpu_usage_mhz",
        "summary.quickStats.overallCpuDemand": "cpu_demand_mhz",
        "summary.quickStats.guestMemoryUsage": "guest_memory_mb",
    },
)
DATASTORE = sort(
    Datastore,
    (
        *PLACE,
        ("summary.url", "url", text),
        ("summary.accessible", "accessible", flag),
    ),
)
TASK = sort(
    Task,
    (
        ("info.state", "state", word),
        ("info.progress", "progress_percent", number),
        ("info.descriptionId", "description", word),
        ("info.entity", "entity", ref),
        ("info.reason", "user", user),
        ("info.result", "result", ref),
        ("info.error", "fault", fault_type),
        ("info.error", "message", fault_message),
    ),
)
ENTITIES: Mapping[str, Sort] = {
    "VirtualMachine": MACHINE,
    "HostSystem": HOST,
    "Datastore": DATASTORE,
    "ComputeResource": sort(Compute, PLACE),
    "ResourcePool": sort(ResourcePool, (*PLACE, ("owner", "owner", ref))),
    "Folder": sort(Folder, PLACE),
    "Datacenter": sort(Datacenter, PLACE),
}
SORTS: Mapping[str, Sort] = {
    **ENTITIES,
    "ClusterComputeResource": ENTITIES["ComputeResource"],
    "VirtualApp": ENTITIES["ResourcePool"],
    "StoragePod": ENTITIES["Folder"],
    "Task": TASK,
}
"""By the type that an update names, which is the most special one."""


def without_stale_stats(item: Item) -> Item:
    """A host or VM that does not report keeps its last load in vCenter; here it has none, as the load of now is not known."""
    if isinstance(item, Host) and item.connection != "connected" and item.stats != HostStats():
        return structs.replace(item, stats=HostStats())
    if isinstance(item, Machine) and item.connection not in ("connected", "") and item.stats != MachineStats():
        return structs.replace(item, stats=MachineStats())
    return item


def to_read_again(updates: Iterable[ObjectUpdate]) -> dict[tuple[str, str], set[str]]:
    """The properties that updates tell in part only, by type and reference."""
    found = {}
    for update in updates:
        if (known := SORTS.get(update.type)) and (paths := known.unmerged(update)):
            found[update.type, update.ref] = paths
    return found
