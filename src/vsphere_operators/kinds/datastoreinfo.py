"""DatastoreInfo: the space of one datastore, and the volumes and disks on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from kubewright import (
    Cache,
    Column,
    Controller,
    Doc,
    Done,
    Int64,
    ListType,
    Resource,
    Retry,
    Spec,
    Status,
    Terminal,
    kind,
)
from kubewright.builtin import PersistentVolume

from ..vcenters.registry import UNAVAILABLE_RETRY_SECONDS, VCenterRegistry
from ..vcenters.volumes import (
    find_undecodable_volume,
    find_volumes,
    format_claim,
    get_volume_handle,
    index_volume_handles,
    list_disks_on,
)
from ..vsphere.model import Datastore, Disk, Location
from ..vsphere.path_lookup import MAX_NAME_OR_PATH_LENGTH, possible_names

# Of each list in a status: 100 entries are about 20 kB, and etcd accepts 1.5 MB per object.
MAX_LISTED = 100


class Reason(StrEnum):
    """Reasons of the Ready condition that only DatastoreInfo has."""

    DATASTORE_NAME_MISSING = "DatastoreNameMissing"
    """spec.datastore is empty."""
    DATASTORE_INACCESSIBLE = "DatastoreInaccessible"
    """No host can access the datastore, so its space and its disks are unknown."""
    MAINTENANCE_MODE = "MaintenanceMode"
    """The datastore is in maintenance mode, or enters it."""
    VOLUMES_UNREADABLE = "VolumesUnreadable"
    """A PersistentVolume cannot be decoded, so it is unknown which disks are orphaned."""


class DatastoreInfoSpec(Spec):
    """The datastore to report."""

    datastore: Annotated[
        str,
        Doc(
            "Name of the datastore, as shown in vCenter, or its inventory path, such as "
            "/dc-1/datastore/nfs-1. A path is needed if several datacenters have the name.",
            max_length=MAX_NAME_OR_PATH_LENGTH,
        ),
    ] = ""


class Volume(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A PersistentVolume with a disk on the datastore."""

    name: Annotated[str, Doc("Name of the PersistentVolume.")]
    claim: Annotated[
        str | None, Doc("PersistentVolumeClaim that is bound to the volume, as namespace/name.")
    ] = None
    diskId: Annotated[str, Doc("ID of the First Class Disk.")]
    sizeMB: Annotated[Int64 | None, Doc("Capacity of the disk, in MB.")] = None


class Volumes(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The PersistentVolumes of this cluster on the datastore."""

    count: Annotated[Int64, Doc("Number of PersistentVolumes.")]
    volumes: Annotated[
        list[Volume] | None, ListType("atomic"), Doc(f"The first {MAX_LISTED}, by name.")
    ] = None
    more: Annotated[Int64, Doc("Number of PersistentVolumes that are not listed.")] = 0


class OrphanedDisk(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A First Class Disk that no PersistentVolume of this cluster names."""

    id: Annotated[str, Doc("ID of the disk.")]
    name: Annotated[str | None, Doc("Name of the disk.")] = None
    sizeMB: Annotated[Int64 | None, Doc("Capacity of the disk, in MB.")] = None
    attached: Annotated[bool, Doc("True if the disk is attached to a VM, so that it is in use.")]


class OrphanedDisks(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """First Class Disks that no PersistentVolume of this cluster names.

    Another cluster may use them.
    """

    count: Annotated[Int64, Doc("Number of these disks.")]
    sizeMB: Annotated[
        Int64 | None, Doc("Capacity of all of them, in MB; absent if that of one is unknown.")
    ] = None
    disks: Annotated[
        list[OrphanedDisk] | None,
        ListType("atomic"),
        Doc(f"The first {MAX_LISTED}, by name and id."),
    ] = None
    more: Annotated[Int64, Doc("Number of these disks that are not listed.")] = 0


class DatastoreInfoStatus(Status):
    """The current state of the datastore. Unknown values are absent, never 0."""

    capacityMB: Annotated[Int64 | None, Doc("Capacity, in MB of 1024 x 1024 bytes.")] = None
    freeMB: Annotated[Int64 | None, Doc("Free space, in MB.")] = None
    provisionedMB: Annotated[
        Int64 | None,
        Doc("Space in use if all thin disks were full, in MB: capacity - free + uncommitted."),
    ] = None
    overcommitPercent: Annotated[
        Int64 | None,
        Doc("provisionedMB in percent of capacityMB. Above 100, disks can fill the datastore."),
    ] = None
    accessible: Annotated[bool | None, Doc("True if a host can access the datastore.")] = None
    type: Annotated[str | None, Doc("VMFS, NFS, NFS41, vsan, VVOL...")] = None
    maintenanceMode: Annotated[str | None, Doc("normal, enteringMaintenance or inMaintenance.")] = (
        None
    )
    hosts: Annotated[
        list[str] | None, ListType("atomic"), Doc("Names of the ESXi hosts that mount it.")
    ] = None
    disks: Annotated[Int64 | None, Doc("Number of First Class Disks on the datastore.")] = None
    persistentVolumes: Annotated[
        Volumes | None, Doc("The PersistentVolumes of this cluster on the datastore.")
    ] = None
    orphanedDisks: Annotated[
        OrphanedDisks | None,
        Doc(
            "First Class Disks, attached to a VM or not, that no PersistentVolume of this cluster "
            "names. Another cluster may use them."
        ),
    ] = None
    datacenter: Annotated[str | None, Doc("Datacenter of the datastore.")] = None
    inventoryPath: Annotated[str | None, Doc("Inventory path, such as /dc-1/datastore/nfs-1.")] = (
        None
    )
    vcenter: Annotated[
        str | None,
        Doc("Name, in the manager's configuration, of the vCenter that has the datastore."),
    ] = None


@kind(
    "topology.corinternal.com/v1",
    plural="datastoreinfoes",
    short=("di",),
    columns=[
        Column("Datastore", ".spec.datastore"),
        Column("Capacity-MB", ".status.capacityMB"),
        Column("Free-MB", ".status.freeMB"),
        Column("Overcommit%", ".status.overcommitPercent"),
        Column("PVs", ".status.persistentVolumes.count"),
        Column("Orphaned", ".status.orphanedDisks.count"),
        Column("Type", ".status.type", priority=1),
        Column("Accessible", ".status.accessible", priority=1),
        Column("Provisioned-MB", ".status.provisionedMB", priority=1),
        Column("Disks", ".status.disks", priority=1),
        Column("Maintenance", ".status.maintenanceMode", priority=1),
        Column("Datacenter", ".status.datacenter", priority=1),
    ],
)
class DatastoreInfo(Resource[DatastoreInfoSpec, DatastoreInfoStatus]):
    """The space of one datastore, and the volumes and disks on it."""


def datastore_status_of(
    datastore: Datastore, location: Location, hosts: Sequence[str], vcenter: str
) -> DatastoreInfoStatus:
    """The status without its disks."""
    if datastore.accessible is False:
        # vCenter keeps reporting the last values of such a datastore.
        datastore = replace(datastore, capacity_bytes=None, free_bytes=None, uncommitted_bytes=None)
    capacity, free = datastore.capacity_bytes, datastore.free_bytes
    uncommitted, provisioned = datastore.uncommitted_bytes, None
    if capacity is not None and free is not None and uncommitted is not None:
        provisioned = capacity - free + uncommitted
    return DatastoreInfoStatus(
        capacityMB=_to_megabytes(capacity),
        freeMB=_to_megabytes(free),
        provisionedMB=_to_megabytes(provisioned),
        overcommitPercent=provisioned * 100 // capacity
        if provisioned is not None and capacity
        else None,
        accessible=datastore.accessible,
        type=datastore.type or None,
        maintenanceMode=datastore.maintenance_mode or None,
        hosts=sorted(filter(None, hosts)) or None,
        datacenter=location.datacenter or None,
        inventoryPath=location.path or None,
        vcenter=vcenter,
    )


def _to_megabytes(size: int | None) -> int | None:
    return None if size is None else size // 2**20


def with_disks(
    status: DatastoreInfoStatus,
    disks: Sequence[Disk],
    volumes_by_disk: Mapping[str, Sequence[PersistentVolume]],
) -> DatastoreInfoStatus:
    volumes = sorted(
        (
            (volume.metadata.name, volume, disk)
            for disk in disks
            for volume in volumes_by_disk.get(disk.id, ())
        ),
        key=lambda item: item[0],
    )
    orphans = sorted(
        (disk for disk in disks if not volumes_by_disk.get(disk.id)),
        key=lambda disk: (disk.name, disk.id),
    )
    sizes = [disk.size_mb for disk in orphans if disk.size_mb is not None]
    return replace(
        status,
        disks=len(disks),
        persistentVolumes=Volumes(
            count=len(volumes),
            volumes=[
                Volume(name=name, claim=format_claim(volume), diskId=disk.id, sizeMB=disk.size_mb)
                for name, volume, disk in volumes[:MAX_LISTED]
            ]
            or None,
            more=max(len(volumes) - MAX_LISTED, 0),
        ),
        orphanedDisks=OrphanedDisks(
            count=len(orphans),
            sizeMB=sum(sizes) if len(sizes) == len(orphans) else None,
            disks=[
                OrphanedDisk(
                    id=disk.id,
                    name=disk.name or None,
                    sizeMB=disk.size_mb,
                    attached=bool(disk.attached_vm_uuids),
                )
                for disk in orphans[:MAX_LISTED]
            ]
            or None,
            more=max(len(orphans) - MAX_LISTED, 0),
        ),
    )


class DatastoreInfoController(Controller[DatastoreInfo]):
    """Reads only the caches, never vCenter itself.

    A change of a datastore, its hosts, a disk on it or a volume of that disk enqueues the
    DatastoreInfos that name the datastore.
    """

    def __init__(self, vcenters: VCenterRegistry, cache: Cache) -> None:
        self.vcenters, self.cache = vcenters, cache
        vcenters.watch_namespace_labels(self)
        index_volume_handles(cache)
        self.watches(vcenters.datastore_changes, index_by=_list_possible_names)
        self.watches(
            PersistentVolume, index_by=_list_possible_names, lookup_by=self._find_datastore_names
        )

    def _find_datastore_names(self, volume: PersistentVolume) -> list[str]:
        """The datastore of a volume's disk, in each vCenter that has the disk."""
        handle = get_volume_handle(volume) or ""
        return [
            vcenter.inventory.name_of(disk.datastore)
            for vcenter in self.vcenters.vcenters_by_name.values()
            if (disk := vcenter.disks.disks.get(handle)) is not None
        ]

    async def reconcile(self, info: DatastoreInfo) -> Done:
        if not info.spec.datastore:
            raise Terminal(
                Reason.DATASTORE_NAME_MISSING,
                "spec.datastore is empty. Set it to the name of a datastore, as shown in vCenter.",
            )
        lookup = self.vcenters.lookup_for(info)
        datastore, inventory = lookup.find_datastore(info.spec.datastore), lookup.inventory
        status = datastore_status_of(
            datastore,
            inventory.location(datastore.ref),
            [inventory.name_of(ref) for ref in datastore.hosts],
            lookup.vcenter_name,
        )
        info.status = status
        if datastore.accessible is False:
            raise Terminal(
                Reason.DATASTORE_INACCESSIBLE,
                f'No host can access datastore "{datastore.name}", so its space and its disks are '
                "unknown. Check the storage and the hosts that mount it.",
                keep_status=True,
            )
        disks = list_disks_on(datastore, lookup.vcenter)
        if name := find_undecodable_volume(self.cache):
            # Otherwise its disk would be listed as orphaned.
            raise Retry(
                Reason.VOLUMES_UNREADABLE,
                f'PersistentVolume "{name}" cannot be decoded, so it is unknown which disks are '
                "orphaned. Correct or delete it.",
                requeue_after_seconds=UNAVAILABLE_RETRY_SECONDS,
            )
        info.status = with_disks(status, disks, find_volumes(disks, self.cache))
        if datastore.maintenance_mode not in ("", "normal"):
            return Done(
                Reason.MAINTENANCE_MODE,
                f'Datastore "{datastore.name}" is in maintenance mode, or enters it.',
            )
        return Done()


def _list_possible_names(info: DatastoreInfo) -> list[str]:
    return possible_names(info.spec.datastore)
