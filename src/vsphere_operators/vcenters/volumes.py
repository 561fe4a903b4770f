"""PersistentVolumes of the vSphere CSI driver, and the First Class Disks that they name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubewright import Cache, NotSynced, Retry
from kubewright.builtin import PersistentVolume
from kubewright.responses import UndecodableObject

from ..vsphere.model import Datastore, Disk
from ..vsphere.vcenter import VCenter
from .registry import NOT_LOADED_RETRY_SECONDS, UNAVAILABLE_RETRY_SECONDS, Reason

CSI_DRIVER = "csi.vsphere.vmware.com"
VOLUME_HANDLE_INDEX = "volumeHandle"


def get_volume_handle(volume: PersistentVolume) -> str | None:
    """The id of the volume's disk; None if the volume is not the vSphere CSI driver's."""
    csi = volume.spec.csi
    return csi.volumeHandle if csi is not None and csi.driver == CSI_DRIVER else None


def format_claim(volume: PersistentVolume | None) -> str | None:
    claim = volume.spec.claimRef if volume is not None else None
    return f"{claim.namespace}/{claim.name}" if claim is not None else None


def index_volume_handles(cache: Cache) -> None:
    """Index the volumes by the id of their disk. Each controller that reads the index calls it."""
    store = cache.store(PersistentVolume)
    if VOLUME_HANDLE_INDEX not in store.indexes:
        store.add_index(VOLUME_HANDLE_INDEX, get_volume_handle)


def find_volumes(disks: Iterable[Disk], cache: Cache) -> dict[str, Sequence[PersistentVolume]]:
    """The volumes that name each disk, by its id. It needs the index of `index_volume_handles`."""
    return {
        disk.id: cache.by_index(PersistentVolume, VOLUME_HANDLE_INDEX, disk.id) for disk in disks
    }


def find_undecodable_volume(cache: Cache) -> str:
    """The name of a volume that may name any disk; "" if all can be decoded."""
    for volume in cache.store(PersistentVolume).objects.values():
        if isinstance(volume, UndecodableObject):
            return volume.metadata.name
    return ""


def list_disks_on(datastore: Datastore, vcenter: VCenter) -> Sequence[Disk]:
    """All disks on a datastore. Raises Retry or NotSynced while they are not known."""
    disks = vcenter.disks
    if cause := disks.explain_unreadable(datastore.ref):
        raise Retry(
            Reason.DISKS_UNREADABLE,
            f'The First Class Disks of datastore "{datastore.name}" cannot be read, so its volumes '
            f"and orphaned disks are unknown: {cause}",
            requeue_after_seconds=UNAVAILABLE_RETRY_SECONDS,
        )
    if not disks.loaded or datastore.ref not in disks.listed_datastores:
        raise NotSynced(
            f'the disks of datastore "{datastore.name}" are being listed',
            requeue_after_seconds=NOT_LOADED_RETRY_SECONDS,
        )
    return disks.disks_by_datastore.get(datastore.ref, [])


def read_volume_handles(cache: Cache) -> set[str] | None:
    """The ids of all disks that PersistentVolumes name; None if some of these are unknown."""
    store = cache.store(PersistentVolume)
    # Before the first list, revisions are 0.
    if not store.watched_revision("") or find_undecodable_volume(cache):
        return None
    return {
        handle
        for volume in store.objects.values()
        if isinstance(volume, PersistentVolume) and (handle := get_volume_handle(volume))
    }
