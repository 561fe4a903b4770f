"""The expected status of the info kinds, from what pyVmomi's own client reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

from pyVmomi import vim

from support.pyvmomi_session import PyVmomiSession

HOST_PROPERTIES = (
    "summary.hardware.cpuMhz",
    "summary.hardware.numCpuCores",
    "summary.hardware.memorySize",
    "summary.hardware.vendor",
    "summary.hardware.model",
    "summary.config.product.version",
    "summary.config.product.build",
    "summary.quickStats.overallCpuUsage",
    "summary.quickStats.overallMemoryUsage",
    "runtime.connectionState",
    "runtime.inMaintenanceMode",
    "runtime.bootTime",
    "vm",
)
VM_PROPERTIES = (
    "summary.config.numCpu",
    "summary.config.memorySizeMB",
    "summary.config.cpuReservation",
    "summary.config.memoryReservation",
    "summary.config.vmPathName",
    "summary.guest.guestId",
    "summary.guest.hwVersion",
    "summary.guest.ipAddress",
    "summary.guest.toolsRunningStatus",
    "summary.guest.toolsVersionStatus2",
    "config.guestId",
    "config.version",
    "config.uuid",
    "config.instanceUuid",
    "config.template",
    "runtime.powerState",
    "runtime.connectionState",
    "runtime.host",
    "guest.net",
    "datastore",
)

DATASTORE_PROPERTIES = (
    "name",
    "summary.capacity",
    "summary.freeSpace",
    "summary.uncommitted",
    "summary.accessible",
    "summary.type",
    "summary.maintenanceMode",
    "host",
)
CLUSTER_PROPERTIES = (
    "name",
    "host",
    "configurationEx",
)


def without_unknown(values: dict[str, Any]) -> dict[str, Any]:
    """Drops unknown values: a status leaves them out."""
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}


def format_time(moment: Any) -> str | None:
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


async def expected_host_status(session: PyVmomiSession, name: str, vcenter: str) -> dict[str, Any]:
    host = await session.read_one(vim.HostSystem, name, HOST_PROPERTIES)
    total = host["summary.hardware.cpuMhz"] * host["summary.hardware.numCpuCores"]
    memory = host["summary.hardware.memorySize"] // 2**20
    return without_unknown(
        {
            "totalCPU": total,
            "freeCPU": total - host["summary.quickStats.overallCpuUsage"],
            "totalMemoryMB": memory,
            "freeMemoryMB": memory - host["summary.quickStats.overallMemoryUsage"],
            "vendor": host["summary.hardware.vendor"],
            "model": host["summary.hardware.model"],
            "esxiVersion": host["summary.config.product.version"],
            "esxiBuild": host["summary.config.product.build"],
            "connectionState": host["runtime.connectionState"],
            "maintenanceMode": host["runtime.inMaintenanceMode"],
            "bootTime": format_time(host["runtime.bootTime"]),
            "vms": len(host["vm"] or ()),
            "cluster": await session.ancestor_name(host["obj"], vim.ClusterComputeResource),
            "datacenter": await session.ancestor_name(host["obj"], vim.Datacenter),
            "inventoryPath": await session.inventory_path(host["obj"]),
            "vcenter": vcenter,
        }
    )


async def expected_vm_status(session: PyVmomiSession, name: str, vcenter: str) -> dict[str, Any]:
    vm = await session.read_one(vim.VirtualMachine, name, VM_PROPERTIES)
    host = next(
        row
        for row in await session.read_all(vim.HostSystem, ["name"])
        if row["obj"]._moId == vm["runtime.host"]._moId
    )
    stores = {
        row["obj"]._moId: row["name"] for row in await session.read_all(vim.Datastore, ["name"])
    }
    return without_unknown(
        {
            "guestId": vm["summary.guest.guestId"] or vm["config.guestId"],
            "totalCPU": vm["summary.config.numCpu"],
            "resvdCPU": vm["summary.config.cpuReservation"],
            "totalMem": vm["summary.config.memorySizeMB"],
            "resvdMem": vm["summary.config.memoryReservation"],
            "powerState": vm["runtime.powerState"],
            "hwVersion": vm["summary.guest.hwVersion"] or vm["config.version"],
            "ipAddress": vm["summary.guest.ipAddress"],
            "pathToVM": vm["summary.config.vmPathName"],
            "host": host["name"],
            "connectionState": vm["runtime.connectionState"],
            "toolsRunningStatus": vm["summary.guest.toolsRunningStatus"],
            "toolsVersionStatus": vm["summary.guest.toolsVersionStatus2"],
            "ipAddresses": [address for nic in vm["guest.net"] or () for address in nic.ipAddress],
            "datastores": sorted(stores[datastore._moId] for datastore in vm["datastore"]),
            "biosUUID": vm["config.uuid"],
            "instanceUUID": vm["config.instanceUuid"],
            "template": vm["config.template"],
            "cluster": await session.ancestor_name(host["obj"], vim.ClusterComputeResource),
            "datacenter": await session.ancestor_name(vm["obj"], vim.Datacenter),
            "inventoryPath": await session.inventory_path(vm["obj"]),
            "vcenter": vcenter,
        }
    )


async def expected_disk_status(session: PyVmomiSession, name: str, vcenter: str) -> dict[str, Any]:
    """The expected status of a disk that is not attached."""
    disk, datastore = await session.find_disk(name)
    created = disk.config.createTime
    return {
        "id": disk.config.id.id,
        "sizeMB": disk.config.capacityInMB,
        "filePath": disk.config.backing.filePath,
        "provisioningType": disk.config.backing.provisioningType,
        "creationTime": created.astimezone(UTC)
        .replace(microsecond=0, tzinfo=UTC)
        .isoformat()
        .replace("+00:00", "Z"),
        "datastore": datastore,
        "vcenter": vcenter,
    }


async def expected_datastore_status(
    session: PyVmomiSession, path: str, vcenter: str, volume_names: Mapping[str, str]
) -> dict[str, Any]:
    """The expected status of the datastore at a path; `volume_names` are by the id of the disk."""
    (datastore,) = [
        row
        for row in await session.read_all(vim.Datastore, DATASTORE_PROPERTIES)
        if await session.inventory_path(row["obj"]) == path
    ]
    host_names = {
        row["obj"]._moId: row["name"] for row in await session.read_all(vim.HostSystem, ["name"])
    }
    capacity, free = datastore["summary.capacity"], datastore["summary.freeSpace"]
    uncommitted = datastore["summary.uncommitted"]
    provisioned = None if uncommitted is None else capacity - free + uncommitted
    disks = await session.list_disks(datastore["obj"])
    used = [disk for disk in disks if disk.config.id.id in volume_names]
    orphaned = [disk for disk in disks if disk.config.id.id not in volume_names]
    volumes = [
        {
            "name": volume_names[disk.config.id.id],
            "diskId": disk.config.id.id,
            "sizeMB": disk.config.capacityInMB,
        }
        for disk in used
    ]
    return without_unknown(
        {
            "capacityMB": capacity // 2**20,
            "freeMB": free // 2**20,
            "provisionedMB": None if provisioned is None else provisioned // 2**20,
            "overcommitPercent": None if provisioned is None else provisioned * 100 // capacity,
            "accessible": datastore["summary.accessible"],
            "type": datastore["summary.type"],
            "maintenanceMode": datastore["summary.maintenanceMode"],
            "hosts": sorted(host_names[mount.key._moId] for mount in datastore["host"]),
            "disks": len(disks),
            "persistentVolumes": without_unknown(
                {"count": len(used), "volumes": sorted(volumes, key=lambda item: item["name"])}
            ),
            "orphanedDisks": without_unknown(
                {
                    "count": len(orphaned),
                    "sizeMB": sum(disk.config.capacityInMB for disk in orphaned),
                    "disks": [
                        {
                            "id": disk.config.id.id,
                            "name": disk.config.name,
                            "sizeMB": disk.config.capacityInMB,
                            "attached": bool(disk.config.consumerId),
                        }
                        for disk in sorted(
                            orphaned, key=lambda disk: (disk.config.name, disk.config.id.id)
                        )
                    ],
                }
            ),
            "datacenter": await session.ancestor_name(datastore["obj"], vim.Datacenter),
            "inventoryPath": path,
            "vcenter": vcenter,
        }
    )


async def expected_cluster_status(
    session: PyVmomiSession, path: str, vcenter: str, node_names: Sequence[str]
) -> dict[str, Any]:
    """The expected status of a cluster with hosts that are all connected."""
    (cluster,) = [
        row
        for row in await session.read_all(vim.ClusterComputeResource, CLUSTER_PROPERTIES)
        if await session.inventory_path(row["obj"]) == path
    ]
    refs = {host._moId for host in cluster["host"]}
    hosts = [
        row
        for row in await session.read_all(vim.HostSystem, HOST_PROPERTIES)
        if row["obj"]._moId in refs
    ]
    available = [host for host in hosts if not host["runtime.inMaintenanceMode"]]
    cpus = [
        host["summary.hardware.cpuMhz"] * host["summary.hardware.numCpuCores"] for host in available
    ]
    memories = [host["summary.hardware.memorySize"] // 2**20 for host in available]
    free_cpu = sum(cpus) - sum(host["summary.quickStats.overallCpuUsage"] for host in available)
    free_memory = sum(memories) - sum(
        host["summary.quickStats.overallMemoryUsage"] for host in available
    )
    config = cluster["configurationEx"]
    return without_unknown(
        {
            "hosts": len(hosts),
            "availableHosts": len(available),
            "hostsInMaintenance": len(hosts) - len(available),
            "disconnectedHosts": 0,
            "poweredDownHosts": 0,
            "totalCPUMHz": sum(cpus),
            "freeCPUMHz": free_cpu,
            "headroomCPUMHz": free_cpu - max(cpus),
            "totalMemoryMB": sum(memories),
            "freeMemoryMB": free_memory,
            "headroomMemoryMB": free_memory - max(memories),
            "drsEnabled": config.drsConfig.enabled,
            "drsAutomation": config.drsConfig.defaultVmBehavior,
            "haEnabled": config.dasConfig.enabled,
            "haAdmissionControl": config.dasConfig.admissionControlEnabled,
            "nodes": without_unknown({"count": len(node_names), "names": sorted(node_names)}),
            "datacenter": await session.ancestor_name(cluster["obj"], vim.Datacenter),
            "inventoryPath": path,
            "vcenter": vcenter,
        }
    )
