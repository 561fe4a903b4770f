"""FCDInfo: the First Class Disk of a PersistentVolume, its VM and its claim."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from kubewright import (
    Cache,
    Column,
    Controller,
    Doc,
    Int64,
    Key,
    Resource,
    Spec,
    Status,
    Terminal,
    kind,
)
from kubewright.builtin import PersistentVolume

from ..vcenters.registry import VCenterLookup, VCenterRegistry
from ..vcenters.volumes import (
    VOLUME_HANDLE_INDEX,
    format_claim,
    get_volume_handle,
    index_volume_handles,
)
from ..vsphere.lookup import MAX_NAME_LENGTH
from ..vsphere.model import Disk


class Reason(StrEnum):
    """Reasons of the Ready condition that only FCDInfo has."""

    PV_ID_MISSING = "PVIdMissing"
    """spec.pvId is empty."""


class FCDInfoSpec(Spec):
    """The disk to report."""

    pvId: Annotated[
        str,
        Doc(
            "Name, not ID, of the PersistentVolume that the disk backs, or of the First Class "
            "Disk.",
            max_length=MAX_NAME_LENGTH,
        ),
    ] = ""


class FCDInfoStatus(Status):
    """The current state of the disk. Unknown values are absent, never 0."""

    sizeMB: Annotated[Int64 | None, Doc("Capacity, in MB.")] = None
    filePath: Annotated[
        str | None, Doc("Path of the disk's file: [datastore] folder/name.vmdk.")
    ] = None
    provisioningType: Annotated[str | None, Doc("thin, eagerZeroedThick or lazyZeroedThick.")] = (
        None
    )
    id: Annotated[str | None, Doc("ID of the disk; the volumeHandle of its PersistentVolume.")] = (
        None
    )
    datastore: Annotated[str | None, Doc("Name of the datastore that holds the disk.")] = None
    attachedTo: Annotated[
        str | None, Doc("Name of the VM that the disk is attached to; absent if it is detached.")
    ] = None
    creationTime: Annotated[datetime | None, Doc("Time when the disk was created.")] = None
    persistentVolume: Annotated[
        str | None, Doc("Name of the PersistentVolume that the disk backs.")
    ] = None
    claim: Annotated[
        str | None, Doc("PersistentVolumeClaim that is bound to the volume, as namespace/name.")
    ] = None
    vcenter: Annotated[
        str | None, Doc("Name, in the manager's configuration, of the vCenter that has the disk.")
    ] = None


@kind(
    "topology.corinternal.com/v1",
    plural="fcdinfoes",
    short=("fcd",),
    columns=[
        Column("PVId", ".spec.pvId"),
        Column("Size-MB", ".status.sizeMB"),
        Column("Provisioning", ".status.provisioningType"),
        Column("Datastore", ".status.datastore"),
        Column("Attached-To", ".status.attachedTo", priority=1),
        Column("Claim", ".status.claim", priority=1),
        Column("Created", ".status.creationTime", priority=1),
    ],
)
class FCDInfo(Resource[FCDInfoSpec, FCDInfoStatus]):
    """The First Class Disk of a PersistentVolume."""


def disk_status_of(
    disk: Disk, volume: PersistentVolume | None, *, datastore: str, attached_to: str, vcenter: str
) -> FCDInfoStatus:
    return FCDInfoStatus(
        sizeMB=disk.size_mb,
        filePath=disk.file_path or None,
        provisioningType=disk.provisioning or None,
        id=disk.id,
        datastore=datastore or None,
        attachedTo=attached_to or None,
        creationTime=disk.created_at and disk.created_at.replace(microsecond=0),
        persistentVolume=volume.metadata.name if volume else None,
        claim=format_claim(volume),
        vcenter=vcenter,
    )


def _status_without_disk(volume: PersistentVolume | None) -> FCDInfoStatus:
    """The fields that come from the PersistentVolume, for a disk that cannot be found."""
    if volume is None:
        return FCDInfoStatus()
    return FCDInfoStatus(
        id=get_volume_handle(volume),
        persistentVolume=volume.metadata.name,
        claim=format_claim(volume),
    )


def find_volume(name: str, cache: Cache) -> PersistentVolume | None:
    """The PersistentVolume of that name, if a disk of vSphere backs it."""
    volume = cache.get(PersistentVolume, Key("", name))
    return volume if volume is not None and get_volume_handle(volume) else None


def find_disk(name: str, volume: PersistentVolume | None, lookup: VCenterLookup) -> Disk:
    """The disk that backs the volume; without a volume, the disk of that name."""
    if volume is None:
        return lookup.find_disk(name)
    return lookup.find_disk_by_id(get_volume_handle(volume) or "")


def _get_disk_keys(info: FCDInfo) -> tuple[str, ...]:
    """The names and ids of the disk that this status depends on."""
    return tuple(filter(None, {info.spec.pvId, info.status.id}))


def _has_new_references(old: Any, new: Any) -> bool:
    """Whether the status names a disk or a VM that it did not name before."""
    if not isinstance(old, FCDInfo) or not isinstance(new, FCDInfo):
        return False
    before, after = ({info.status.id, info.status.attachedTo} - {None, ""} for info in (old, new))
    return not after <= before


class FCDInfoController(Controller[FCDInfo]):
    """Reads only the caches, never vCenter itself.

    A change of a disk, its volume or its VM enqueues the FCDInfos that show it.
    """

    def __init__(self, vcenters: VCenterRegistry, cache: Cache) -> None:
        self.vcenters, self.cache = vcenters, cache
        vcenters.watch_namespace_labels(self)
        index_volume_handles(cache)
        self.watches(PersistentVolume, index_by=lambda info: info.spec.pvId)
        self.watches(
            PersistentVolume, index_by=lambda info: info.status.id, lookup_by=get_volume_handle
        )
        self.watches(vcenters.disk_changes, index_by=_get_disk_keys)
        self.watches(vcenters.vm_changes, index_by=lambda info: info.status.attachedTo)
        # The indexes by status.id and status.attachedTo have no entry until the status is written.
        # A disk or VM that changes between the reconcile and that write would be missed, so
        # reconcile once more when a written status names a new one.
        self.watches(
            FCDInfo,
            index_by=lambda info: info.metadata.uid,
            lookup_by=lambda info: info.metadata.uid,
            predicate=_has_new_references,
        )

    async def reconcile(self, info: FCDInfo) -> None:
        name = info.spec.pvId
        if not name:
            raise Terminal(
                Reason.PV_ID_MISSING,
                "spec.pvId is empty. "
                "Set it to the name of a PersistentVolume of the vSphere CSI driver.",
            )
        lookup = self.vcenters.lookup_for(info)
        volume = find_volume(name, self.cache)
        try:
            disk = find_disk(name, volume, lookup)
        except Terminal as error:
            # It may be newer than the last listing.
            lookup.vcenter.disks.request_refresh()
            info.status, error.keep_status = _status_without_disk(volume), True
            raise
        if volume is None:
            # Two volumes may share a disk; take the first by name, so that the status is stable.
            volumes = self.cache.by_index(PersistentVolume, VOLUME_HANDLE_INDEX, disk.id)
            volume = min(volumes, key=lambda volume: volume.metadata.name, default=None)
        vm = lookup.inventory.vm_of_disk(disk)
        info.status = disk_status_of(
            disk,
            volume,
            datastore=lookup.inventory.name_of(disk.datastore),
            attached_to=vm.name if vm else "",
            vcenter=lookup.vcenter_name,
        )
