"""The objects of a vCenter and the values of their properties, as XML.

Where do the values come from?  They are generated, with the names and sizes of a large site: one
    datacenter for each 500 hosts, clusters of 50 hosts, eight datastores in each cluster. Or they
    were recorded (recording.py). The server treats both in the same way.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from . import values

HOSTS_PER_CLUSTER, CLUSTERS_PER_DATACENTER, DATASTORES_PER_CLUSTER = 50, 10, 8
FOLDERS_PER_DATACENTER = 60
ROOT_FOLDER = "group-d1"
CUSTOM_FIELDS_MANAGER = "CustomFieldsManager"
_GUESTS = ("rhel8_64Guest", "ubuntu64Guest", "windows2019srv_64Guest", "sles15_64Guest")
_HARDWARE_VERSIONS = ("vmx-15", "vmx-19", "vmx-20", "vmx-21")
_HOST_MODELS = (
    ("Dell Inc.", "PowerEdge R750", 2600, 56, 1024),
    ("HPE", "ProLiant DL380 Gen11", 2800, 64, 1536),
    ("Lenovo", "ThinkSystem SR650 V3", 2100, 96, 2048),
)
_ROLES = ("web", "db", "app", "cache", "worker", "build", "proxy", "queue")


@dataclass(slots=True)
class ManagedObject:
    type: str
    ref: str
    # By path. A value is an XML element `val`.
    properties: dict[str, bytes]


@dataclass
class ReplayedInventory:
    objects: dict[str, ManagedObject] = field(default_factory=dict)
    instance_uuid: str = ""
    # Called after each change, with the reference of the object and the changed paths.
    listeners: list[Callable[[str, tuple[str, ...]], None]] = field(default_factory=list)

    def add(self, type_name: str, ref: str, properties: dict[str, bytes]) -> ManagedObject:
        self.objects[ref] = obj = ManagedObject(type_name, ref, properties)
        return obj

    def of_type(self, type_name: str) -> list[ManagedObject]:
        return [obj for obj in self.objects.values() if obj.type == type_name]

    def change(self, ref: str, properties: dict[str, bytes]) -> None:
        self.objects[ref].properties.update(properties)
        paths = tuple(properties)
        for listener in self.listeners:
            listener(ref, paths)


def generate_inventory(hosts: int, vms: int, seed: int = 1) -> ReplayedInventory:
    return _Generator(seed).generate(hosts, vms)


class _Generator:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.inventory = ReplayedInventory(instance_uuid=self._uuid())
        self._numbers = iter(range(1000, 10_000_000))

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def _ref(self, prefix: str) -> str:
        return f"{prefix}-{next(self._numbers)}"

    def _add(
        self, type_name: str, ref: str, name: str, parent: bytes | None, **more: bytes
    ) -> ManagedObject:
        properties = {"name": values.unique_text(name)}
        if parent is not None:
            properties["parent"] = parent
        return self.inventory.add(type_name, ref, {**properties, **more})

    def generate(self, hosts: int, vms: int) -> ReplayedInventory:
        self._add("Folder", ROOT_FOLDER, "Datacenters", None)
        self.inventory.add(
            "CustomFieldsManager",
            CUSTOM_FIELDS_MANAGER,
            {
                "field": values.array(
                    "ArrayOfCustomFieldDef",
                    "<CustomFieldDef><key>1</key><name>owner</name><type>string</type>"
                    "</CustomFieldDef>",
                )
            },
        )
        vm_numbers = iter(range(vms))
        clusters = -(-hosts // HOSTS_PER_CLUSTER)
        host_numbers = iter(range(hosts))
        folders: list[str] = []
        for cluster in range(clusters):
            if cluster % CLUSTERS_PER_DATACENTER == 0:
                number = cluster // CLUSTERS_PER_DATACENTER + 1
                host_folder, store_folder, folders = self._add_datacenter(number)
            size = len(range(cluster, hosts, clusters))
            share = len(range(cluster, vms, clusters))
            members = [next(host_numbers) for _ in range(size)]
            self._add_cluster(
                cluster,
                members,
                [next(vm_numbers) for _ in range(share)],
                host_folder,
                store_folder,
                folders,
            )
        return self.inventory

    def _add_datacenter(self, number: int) -> tuple[str, str, list[str]]:
        datacenter = self._ref("datacenter")
        name = f"dc-{number:02}"
        self._add("Datacenter", datacenter, name, values.reference("Folder", ROOT_FOLDER))
        parent = values.reference("Datacenter", datacenter)
        vm_folder, host_folder, store_folder, network_folder = (
            self._ref(f"group-{letter}") for letter in "vhsn"
        )
        for ref, folder_name in (
            (vm_folder, "vm"),
            (host_folder, "host"),
            (store_folder, "datastore"),
            (network_folder, "network"),
        ):
            self._add("Folder", ref, folder_name, parent)
        folders = [self._ref("group-v") for _ in range(FOLDERS_PER_DATACENTER)]
        for index, ref in enumerate(folders):
            self._add("Folder", ref, f"team-{index:02}", values.reference("Folder", vm_folder))
        return host_folder, store_folder, folders

    def _add_cluster(
        self,
        number: int,
        host_numbers: list[int],
        vm_numbers: list[int],
        host_folder: str,
        store_folder: str,
        folders: list[str],
    ) -> None:
        cluster, pool = self._ref("domain-c"), self._ref("resgroup")
        self._add(
            "ClusterComputeResource",
            cluster,
            f"cluster-{number + 1:03}",
            values.reference("Folder", host_folder),
            **{
                "configurationEx.drsConfig.enabled": values.boolean(True),
                "configurationEx.drsConfig.defaultVmBehavior": values.simple(
                    "DrsBehavior", "fullyAutomated"
                ),
                "configurationEx.dasConfig.enabled": values.boolean(True),
                "configurationEx.dasConfig.admissionControlEnabled": values.boolean(True),
            },
        )
        owner = values.reference("ClusterComputeResource", cluster)
        self._add("ResourcePool", pool, "Resources", owner, owner=owner)
        hosts = [self._add_host(index, cluster) for index in host_numbers]
        stores = [
            (self._ref("datastore"), f"cluster-{number + 1:03}-lun-{index:02}")
            for index in range(DATASTORES_PER_CLUSTER)
        ]
        for ref, name in stores:
            self._add_datastore(ref, name, store_folder, [host.ref for host in hosts])
        for index in vm_numbers:
            self._add_vm(
                index,
                self.rng.choice(hosts).ref,
                pool,
                self.rng.choice(folders),
                self.rng.choice(stores),
            )

    def _add_host(self, number: int, cluster: str) -> ManagedObject:
        vendor, model, mhz, cores, memory_gb = self.rng.choice(_HOST_MODELS)
        is_idle = self.rng.random() < 0.1
        load = 0.05 if is_idle else self.rng.uniform(0.2, 0.8)
        attribute = (
            f'<CustomFieldValue xsi:type="CustomFieldStringValue"><key>1</key>'
            f"<value>team-{number % 40:02}</value></CustomFieldValue>"
        )
        boot = f"2026-{1 + number % 12:02}-{1 + number % 28:02}T06:{number % 60:02}:00.417Z"
        return self._add(
            "HostSystem",
            self._ref("host"),
            f"esxi-{number:04}.dc{number // 500 + 1:02}.example.com",
            values.reference("ClusterComputeResource", cluster),
            **{
                "runtime.connectionState": values.simple("HostSystemConnectionState", "connected"),
                "runtime.powerState": values.simple("HostSystemPowerState", "poweredOn"),
                "runtime.inMaintenanceMode": values.boolean(False),
                "runtime.bootTime": values.time(boot),
                "summary.hardware.cpuMhz": values.integer(mhz),
                "summary.hardware.numCpuCores": values.short(cores),
                "summary.hardware.memorySize": values.long(memory_gb << 30),
                "summary.hardware.vendor": values.text(vendor),
                "summary.hardware.model": values.text(model),
                "summary.config.product.version": values.text("8.0.3"),
                "summary.config.product.build": values.text("24280767"),
                "customValue": values.array("ArrayOfCustomFieldValue", attribute),
                "config.graphicsInfo": values.array("ArrayOfHostGraphicsInfo"),
                "config.sharedPassthruGpuTypes": values.array("ArrayOfString"),
                "summary.quickStats.overallCpuUsage": values.integer(int(mhz * cores * load)),
                "summary.quickStats.overallMemoryUsage": values.integer(
                    int(memory_gb * 1024 * load)
                ),
            },
        )

    def _add_datastore(self, ref: str, name: str, folder: str, hosts: Iterable[str]) -> None:
        mounts = "".join(
            f'<DatastoreHostMount><key type="HostSystem">{host}</key><mountInfo>'
            f"<path>/vmfs/volumes/{ref}</path><accessMode>readWrite</accessMode>"
            "<mounted>true</mounted><accessible>true</accessible></mountInfo></DatastoreHostMount>"
            for host in hosts
        )
        capacity = 8 << 40
        self._add(
            "Datastore",
            ref,
            name,
            values.reference("Folder", folder),
            **{
                "summary.url": values.unique_text(f"ds:///vmfs/volumes/{ref}/"),
                "summary.accessible": values.boolean(True),
                "summary.type": values.text("VMFS"),
                "summary.capacity": values.long(capacity),
                "summary.freeSpace": values.long(int(capacity * self.rng.uniform(0.1, 0.7))),
                "summary.uncommitted": values.long(int(capacity * self.rng.uniform(0, 0.5))),
                "summary.maintenanceMode": values.text("normal"),
                "host": values.array("ArrayOfDatastoreHostMount", mounts),
            },
        )

    def _add_vm(
        self, number: int, host: str, pool: str, folder: str, store: tuple[str, str]
    ) -> None:
        rng = self.rng
        name = f"{_ROLES[number % len(_ROLES)]}-{number:05}.team-{number % 60:02}"
        guest, memory_mb = rng.choice(_GUESTS), rng.choice((4096, 8192, 16384, 32768))
        cpus, is_on = rng.choice((1, 2, 4, 8)), rng.random() < 0.95
        address = f"10.{number >> 14 & 255}.{number >> 7 & 127}.{1 + (number & 127)}"
        nic = (
            "<GuestNicInfo><network>vlan-100</network>"
            f"<ipAddress>{address}</ipAddress><ipAddress>fe80::250:56ff:fe{number >> 16 & 255:02x}:"
            f"{number & 65535:04x}</ipAddress><macAddress>00:50:56:{number >> 16 & 63:02x}:"
            f"{number >> 8 & 255:02x}:{number & 255:02x}</macAddress><connected>true</connected>"
            "<deviceConfigId>4000</deviceConfigId></GuestNicInfo>"
        )
        hardware = values.text(rng.choice(_HARDWARE_VERSIONS))
        properties = {
            "runtime.host": values.reference("HostSystem", host),
            "runtime.connectionState": values.simple("VirtualMachineConnectionState", "connected"),
            "runtime.powerState": values.simple(
                "VirtualMachinePowerState", "poweredOn" if is_on else "poweredOff"
            ),
            "config.template": values.boolean(False),
            "config.uuid": values.unique_text(self._uuid()),
            "config.instanceUuid": values.unique_text(self._uuid()),
            "config.guestId": values.text(guest),
            "config.version": hardware,
            "config.hardware.numCoresPerSocket": values.integer(1),
            "config.changeVersion": values.unique_text(
                f"2026-10-{1 + number % 28:02}T06:{number % 60:02}:{number % 59:02}.{number:06}Z"
            ),
            "summary.config.numCpu": values.integer(cpus),
            "summary.config.memorySizeMB": values.integer(memory_mb),
            "summary.config.cpuReservation": values.integer(0),
            "summary.config.memoryReservation": values.integer(0),
            "summary.config.vmPathName": values.unique_text(f"[{store[1]}] {name}/{name}.vmx"),
            "datastore": values.references("Datastore", [store[0]]),
            "resourcePool": values.reference("ResourcePool", pool),
            "summary.guest.toolsRunningStatus": values.text(
                "guestToolsRunning" if is_on else "guestToolsNotRunning"
            ),
            "summary.guest.toolsVersionStatus2": values.text("guestToolsCurrent"),
            "customValue": values.array("ArrayOfCustomFieldValue"),
            "guest.net": values.array("ArrayOfGuestNicInfo", nic if is_on else ""),
        }
        if is_on:
            properties |= {
                "summary.guest.guestId": values.text(guest),
                "summary.guest.hwVersion": hardware,
                "summary.guest.ipAddress": values.unique_text(address),
                "summary.quickStats.overallCpuUsage": values.integer(rng.randint(20, cpus * 900)),
                "summary.quickStats.overallCpuDemand": values.integer(rng.randint(20, cpus * 900)),
                "summary.quickStats.guestMemoryUsage": values.integer(rng.randint(50, memory_mb)),
                "summary.quickStats.overallCpuReadiness": values.integer(0),
                "summary.quickStats.balloonedMemory": values.integer(0),
                "summary.quickStats.swappedMemory": values.integer(0),
            }
        self._add(
            "VirtualMachine",
            self._ref("vm"),
            name,
            values.reference("Folder", folder),
            **properties,
        )


def names_of(objects: Iterable[ManagedObject]) -> Iterator[str]:
    """The names of the objects as text. No name has characters that XML escapes."""
    for obj in objects:
        yield obj.properties["name"].partition(b">")[2].removesuffix(b"</val>").decode()
