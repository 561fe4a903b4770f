"""PersistentVolumes of the vSphere CSI driver, and the First Class Disks that they name."""

from __future__ import annotations

from kubewright import Cache
from kubewright.builtin import PersistentVolume
from kubewright.responses import UndecodableObject

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


def read_volume_handles(cache: Cache) -> set[str] | None:
    """The ids of all disks that PersistentVolumes name; None if some of these are unknown."""
    store = cache.store(PersistentVolume)
    volumes = list(store.objects.values())
    # Before the first list, revisions are 0.
    if not store.watched_revision("") or any(isinstance(v, UndecodableObject) for v in volumes):
        return None
    return {
        handle
        for volume in volumes
        if isinstance(volume, PersistentVolume) and (handle := get_volume_handle(volume))
    }
