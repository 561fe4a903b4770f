"""FCDInfo: the First Class Disk behind a PersistentVolume, the VM that uses it, and the claim that it serves."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
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

from ..vcenters.registry import VCenterRegistry, VCenterView
from ..vsphere.model import Disk

CSI_DRIVER = "csi.vsphere.vmware.com"
_VOLUME_HANDLE_INDEX = "disk"


class FCDInfoSpec(Spec):
    """Which disk."""

    pvId: Annotated[
        str,
        Doc("Name of the PersistentVolume that the disk backs, or of the First Class Disk itself."),
    ] = ""


class FCDInfoStatus(Status):
    """The disk as vCenter knows it now. What is not known is absent, never 0."""

    sizeMB: Annotated[Int64 | None, Doc("Capacity, in MB.")] = None
    filePath: Annotated[str | None, Doc("The disk's file: [datastore] folder/name.vmdk.")] = None
    provisioningType: Annotated[str | None, Doc("thin, eagerZeroedThick or lazyZeroedThick.")] = (
        None
    )
    id: Annotated[str | None, Doc("The disk's id; a PersistentVolume calls it volumeHandle.")] = (
        None
    )
    datastore: Annotated[str | None, Doc("Name of the datastore that it is on.")] = None
    attachedTo: Annotated[
        str | None, Doc("Name of the VM that uses it; absent while none does.")
    ] = None
    creationTime: Annotated[datetime | None, Doc("When the disk was made.")] = None
    persistentVolume: Annotated[str | None, Doc("Name of the PersistentVolume that it backs.")] = (
        None
    )
    claim: Annotated[
        str | None, Doc("The PersistentVolumeClaim that the volume is bound to, as namespace/name.")
    ] = None
    vcenter: Annotated[
        str | None, Doc("The vCenter that answered, by its name in the manager's configuration.")
    ] = None


@kind(
    "topology.corinternal.com/v1",
    plural="fcdinfoes",
    short=("fcd",),
    columns=[
        Column("PVId", ".spec.pvId"),
        Column("SizeMB", ".status.sizeMB", priority=1),
        Column("Provisioning", ".status.provisioningType", priority=1),
        Column("Datastore", ".status.datastore", priority=1),
        Column("AttachedTo", ".status.attachedTo", priority=1),
        Column("Claim", ".status.claim", priority=1),
        Column("Created", ".status.creationTime", priority=1),
    ],
)
class FCDInfo(Resource[FCDInfoSpec, FCDInfoStatus]):
    """The First Class Disk behind a PersistentVolume."""


def status_of(
    disk: Disk, volume: PersistentVolume | None, *, datastore: str, attached_to: str, vcenter: str
) -> FCDInfoStatus:
    """All of the answer."""
    return FCDInfoStatus(
        sizeMB=disk.size_mb,
        filePath=disk.file_path or None,
        provisioningType=disk.provisioning or None,
        id=disk.id,
        datastore=datastore or None,
        attachedTo=attached_to or None,
        creationTime=disk.created_at and disk.created_at.replace(microsecond=0),
        persistentVolume=volume.metadata.name if volume else None,
        claim=_format_claim(volume),
        vcenter=vcenter,
    )


def status_without_disk(volume: PersistentVolume | None) -> FCDInfoStatus:
    """What is known while the disk is not: what the PersistentVolume says."""
    if volume is None:
        return FCDInfoStatus()
    return FCDInfoStatus(
        id=get_volume_handle(volume),
        persistentVolume=volume.metadata.name,
        claim=_format_claim(volume),
    )


def get_volume_handle(volume: PersistentVolume) -> str | None:
    """The id of the disk behind a volume; None for a volume that is not the vSphere CSI driver's."""
    csi = volume.spec.csi
    return csi.volumeHandle if csi is not None and csi.driver == CSI_DRIVER else None


def _format_claim(volume: PersistentVolume | None) -> str | None:
    """The claim of a volume as namespace/name."""
    claim = volume.spec.claimRef if volume is not None else None
    return f"{claim.namespace}/{claim.name}" if claim is not None else None


def find_volume(name: str, cache: Cache) -> PersistentVolume | None:
    """The PersistentVolume of that name, if there is one with a disk of vSphere behind it."""
    volume = cache.get(PersistentVolume, Key("", name))
    return volume if volume is not None and get_volume_handle(volume) else None


def find_disk(name: str, volume: PersistentVolume | None, served: VCenterView) -> Disk:
    """The disk behind the volume of that name, where there is one; else the disk that is named so itself."""
    return (
        served.find_disk_by_id(get_volume_handle(volume) or "")
        if volume
        else served.find_disk(name)
    )


def get_disk_keys(info: FCDInfo) -> tuple[str, ...]:
    """By what names and ids the disk may be published that this answer depends on."""
    return tuple(filter(None, {info.spec.pvId, info.status.id}))


def has_new_references(old: Any, new: Any) -> bool:
    """Whether the status names a disk or a VM that it did not name before."""
    return (
        old is not None
        and new is not None
        and not _get_status_references(new) <= _get_status_references(old)
    )


def _get_status_references(info: FCDInfo) -> set[str]:
    """The disk and the VM that the status names."""
    return set(filter(None, (info.status.id, info.status.attachedTo)))


class FCDInfoController(Controller[FCDInfo]):
    """Answers from memory; a change of the disk, its volume or the VM that uses it wakes the resources that depend on it.

    Some of that is known only from the answer, so it is indexed by status. What changed between the answer and its write would find
    no index entry yet; therefore an answer that names something new is looked at once more when it is written.
    """

    def __init__(self, vcenters: VCenterRegistry, cache: Cache) -> None:
        self.vcenters, self.cache = vcenters, cache
        vcenters.watch_namespaces(self)
        cache.store(PersistentVolume).add_index(_VOLUME_HANDLE_INDEX, get_volume_handle)
        self.wake_on(PersistentVolume, by=lambda info: info.spec.pvId)
        self.wake_on(PersistentVolume, by=lambda info: info.status.id, of=get_volume_handle)
        self.wake_on(vcenters.disk_changes, by=get_disk_keys)
        self.wake_on(vcenters.vm_changes, by=lambda info: info.status.attachedTo)
        self.wake_on(
            FCDInfo,
            by=lambda info: info.metadata.uid,
            of=lambda info: info.metadata.uid,
            when=has_new_references,
        )

    async def reconcile(self, info: FCDInfo) -> None:
        """Find the disk through the PersistentVolume of that name, else by its own name, and tell what is known of it."""
        name = info.spec.pvId
        if not name:
            raise Terminal(
                "PVIdMissing",
                "spec.pvId is empty; set it to the name of a PersistentVolume that the vSphere CSI driver made",
            )
        served = self.vcenters.get_view(info)
        named = find_volume(name, self.cache)
        try:
            disk = find_disk(name, named, served)
        except Terminal as error:
            served.request_disk_refresh()
            info.status, error.keep_status = status_without_disk(named), True
            raise
        info.status = self._build_status(served, disk, named)

    def _build_status(
        self, served: VCenterView, disk: Disk, named: PersistentVolume | None
    ) -> FCDInfoStatus:
        """The status of a disk that was found, with the names of all that belongs to it."""
        user = served.find_vm_using(disk)
        return status_of(
            disk,
            named
            or first_by_name(self.cache.by_index(PersistentVolume, _VOLUME_HANDLE_INDEX, disk.id)),
            datastore=served.name_of(disk.datastore),
            attached_to=user.name if user else "",
            vcenter=served.name,
        )


def first_by_name(volumes: Iterable[PersistentVolume]) -> PersistentVolume | None:
    """The first by name: two volumes on one disk are possible, but a status must not waver between them."""
    return min(volumes, key=lambda volume: volume.metadata.name, default=None)
