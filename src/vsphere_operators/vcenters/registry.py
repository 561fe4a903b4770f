"""Selects the vCenter of a namespace, and finds its objects in memory.

Failures are raised as outcomes of a reconcile: Terminal, Retry or NotSynced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import Any

from kubewright import Cache, Controller, Key, NotSynced, Object, Retry, Stream, Terminal
from kubewright.builtin import Namespace
from kubewright.errors import ConfigError

from ..vsphere.cluster_summary import ClusterSummary
from ..vsphere.faults import (
    Ambiguous,
    CertificateRefused,
    Denied,
    NotFound,
    VCenterError,
    WrongLogin,
)
from ..vsphere.inventory import Change
from ..vsphere.model import Datastore, Disk, Host, VirtualMachine
from ..vsphere.path_lookup import find_cluster, find_datastore
from ..vsphere.stats_throttle import StatsThrottle, ThrottledEntity
from ..vsphere.vcenter import VCenter
from .config import VCenterConfig
from .namespace_rules import choose_vcenter

# A change of the vCenter's state enqueues all objects; this covers the case that one was missed.
UNAVAILABLE_RETRY_SECONDS = 60.0
NOT_LOADED_RETRY_SECONDS = 5.0
# The end of a load enqueues all objects; this covers the case that it was missed.
_INVENTORY_RETRY_SECONDS = 60.0
_NO_LABELS_RETRY_SECONDS = 1.0

CONFIGURATION_HINT = (
    "In a cluster, create the Secret vc-creds in the namespace of the manager (with Helm: the "
    "Secret of the value secrets.vc-creds) with the keys GOVMOMI_URL, GOVMOMI_USERNAME and "
    "GOVMOMI_PASSWORD (or VC_HOST, VC_USER and VC_PASS). Otherwise set these variables for the "
    "manager, or pass a directory with such files by -vcenter-credentials, or a file of several "
    "vCenters by -vcenters"
)


class Reason(StrEnum):
    """Reasons of the Ready condition that several kinds share."""

    NO_VCENTER = "NoVCenter"
    """No vCenter serves the namespace; the message names the setting to change."""
    VCENTER_AMBIGUOUS = "VCenterAmbiguous"
    """Two vCenters match the namespace equally well; the message names both."""
    VCENTER_UNREACHABLE = "VCenterUnreachable"
    """vCenter does not respond; the status shows the last known values."""
    VCENTER_LOGIN_FAILED = "VCenterLoginFailed"
    """vCenter rejects the user name or the password."""
    VCENTER_CERTIFICATE_REFUSED = "VCenterCertificateRefused"
    """The certificate of vCenter is not trusted."""
    VCENTER_DENIED = "VCenterDenied"
    """The vCenter account lacks a permission."""
    DISKS_UNREADABLE = "DisksUnreadable"
    """The First Class Disks of a datastore cannot be read."""
    HOST_NOT_FOUND = "HostNotFound"
    """vCenter has no host with this name; the message suggests similar names."""
    HOST_AMBIGUOUS = "HostAmbiguous"
    """Several hosts have this name; the message has their inventory paths."""
    VM_NOT_FOUND = "VMNotFound"
    """vCenter has no VM with this name; the message suggests similar names."""
    VM_AMBIGUOUS = "VMAmbiguous"
    """Several VMs have this name; the message has their inventory paths."""
    DISK_NOT_FOUND = "DiskNotFound"
    """No First Class Disk has this name; the message names unreadable datastores."""
    DISK_AMBIGUOUS = "DiskAmbiguous"
    """Several disks have this name; the message lists them."""
    DATASTORE_NOT_FOUND = "DatastoreNotFound"
    """vCenter has no datastore with this name or path; the message suggests similar names."""
    DATASTORE_AMBIGUOUS = "DatastoreAmbiguous"
    """Several datastores have this name; the message has their inventory paths."""
    CLUSTER_NOT_FOUND = "ClusterNotFound"
    """vCenter has no cluster with this name or path; the message suggests similar names."""
    CLUSTER_AMBIGUOUS = "ClusterAmbiguous"
    """Several clusters have this name; the message has their inventory paths."""


_UNAVAILABLE_REASONS = {
    WrongLogin: Reason.VCENTER_LOGIN_FAILED,
    CertificateRefused: Reason.VCENTER_CERTIFICATE_REFUSED,
    Denied: Reason.VCENTER_DENIED,
}


class VCenterRegistry:
    """All vCenters of this manager. build.py connects them to its streams."""

    def __init__(
        self,
        vcenters_by_name: Mapping[str, VCenter],
        configs: Sequence[VCenterConfig],
        cache: Cache,
        stats_interval_seconds: float,
        stats_change_fraction: float,
    ) -> None:
        self.vcenters_by_name, self.configs, self.cache = vcenters_by_name, configs, cache
        # Set when each vCenter has been read, or has failed.
        self._synced = asyncio.Event()
        self.host_changes, self.vm_changes, self.disk_changes = self._new_streams(3)
        self.datastore_changes, self.cluster_changes = self._new_streams(2)
        self._streams_by_type: Mapping[type[object], Stream] = {
            Host: self.host_changes,
            VirtualMachine: self.vm_changes,
            Datastore: self.datastore_changes,
            ClusterSummary: self.cluster_changes,
        }
        self.throttles = {
            name: StatsThrottle(
                vcenter.inventory,
                self._wake,
                stats_interval_seconds,
                stats_change_fraction,
                on_due=partial(self._wake, low_priority=True),
            )
            for name, vcenter in vcenters_by_name.items()
        }
        self._check_synced()

    def _new_streams(self, count: int) -> Iterator[Stream]:
        return (Stream(self._synced) for _ in range(count))

    def _check_synced(self) -> None:
        vcenters = self.vcenters_by_name.values()
        if all(vcenter.loaded or vcenter.problem is not None for vcenter in vcenters):
            self._synced.set()

    def _wake(
        self, entity: ThrottledEntity | VirtualMachine, *, low_priority: bool = False
    ) -> None:
        self._streams_by_type[type(entity)].notify(entity.name, low_priority=low_priority)

    def on_disk_change(self, old: Disk | None, new: Disk | None) -> None:
        disks = [disk for disk in (old, new) if disk is not None]
        # An FCDInfo finds its disk by name, or by the id in its PersistentVolume.
        for key in {key for disk in disks for key in (disk.name, disk.id)}:
            self.disk_changes.notify(key)

    def on_vm_change(self, vcenter: VCenter, change: Change[VirtualMachine]) -> None:
        """Enqueue the objects of a VM, under both names, and those of its disks if the VM was
        added, removed, or has another uuid.
        """
        vms = {vm.name: vm for vm in (change.old, change.new) if vm is not None}
        for vm in vms.values():
            self._wake(vm)
        for uuid in _read_uuids(change.old) ^ _read_uuids(change.new):
            for disk in vcenter.disks.disks_by_vm_uuid.get(uuid, ()):
                self.on_disk_change(None, disk)

    def notify_all(self) -> None:
        """Enqueue all objects: a vCenter was loaded, failed, or recovered."""
        self._check_synced()
        for stream in (*self._streams_by_type.values(), self.disk_changes):
            stream.notify_all()

    def watch_namespace_labels(self, controller: Controller[Any]) -> None:
        """Enqueue a controller's objects when labels that select the vCenter change."""
        if self._has_label_rules():
            controller.watches(
                Namespace,
                index_by=lambda obj: obj.metadata.namespace,
                predicate=_have_labels_changed,
            )
        else:
            # The generated role does not depend on a file of vCenters; one with label rules may be
            # added later, and needs the permission.
            controller.needs(Namespace, "list", "watch")

    def lookup_for(self, obj: Object, *, keeps_status: bool = False) -> VCenterLookup:
        """The vCenter that serves the object's namespace.

        Raises Terminal if none serves it. While the vCenter is unavailable: Retry if the status
        still matches the spec, or the kind always keeps its status, else Terminal. NotSynced while
        it is loading.
        """
        namespace = obj.metadata.namespace
        try:
            config = choose_vcenter(self.configs, namespace, self._read_labels(namespace))
        except ConfigError as error:
            raise Terminal(Reason.VCENTER_AMBIGUOUS, str(error)) from error
        if config is None:
            raise Terminal(
                Reason.NO_VCENTER,
                f'No vCenter serves the namespace "{namespace}". '
                f"{self._explain_unserved(namespace)}.",
            )
        vcenter = self.vcenters_by_name[config.name]
        if vcenter.problem is not None:
            raise unavailable_error(vcenter, vcenter.problem, obj, keeps_status=keeps_status)
        if not vcenter.loaded:
            raise NotSynced(
                f'the inventory of vCenter "{vcenter.name}" is being loaded',
                requeue_after_seconds=_INVENTORY_RETRY_SECONDS,
            )
        return VCenterLookup(vcenter, self.throttles[vcenter.name])

    def find_config_of_namespace(self, namespace: str) -> VCenterConfig | None:
        """The vCenter of a namespace; None if no vCenter serves it, or it is not known yet."""
        try:
            return choose_vcenter(self.configs, namespace, self._read_labels(namespace))
        except (ConfigError, NotSynced):
            return None

    def get_config_by_name(self, name: str) -> VCenterConfig:
        return next(config for config in self.configs if config.name == name)

    def _explain_unserved(self, namespace: str) -> str:
        if not self.configs:
            return CONFIGURATION_HINT
        names = ", ".join(config.name for config in self.configs)
        return (
            f'Add "{namespace}" to the `namespaces` of one of {names} in the file of -vcenters, or '
            "add an entry without `namespaces`, which serves all other namespaces"
        )

    def _has_label_rules(self) -> bool:
        return any(config.namespaces and config.namespaces.labels for config in self.configs)

    def _read_labels(self, namespace: str) -> Mapping[str, str]:
        if not self._has_label_rules():
            return {}
        stored = self.cache.get(Namespace, Key("", namespace))
        if stored is None:
            # The watch on Namespaces is behind that on the object. Without labels the namespace
            # would belong to the vCenter that serves all others.
            raise NotSynced(
                f'the labels of the namespace "{namespace}" are not known yet',
                requeue_after_seconds=_NO_LABELS_RETRY_SECONDS,
            )
        return stored.metadata.labels


class VCenterLookup:
    """Lookups in one vCenter for controllers. A missing object raises Terminal."""

    def __init__(self, vcenter: VCenter, throttle: StatsThrottle) -> None:
        self.vcenter, self.inventory, self._throttle = vcenter, vcenter.inventory, throttle

    @property
    def vcenter_name(self) -> str:
        return self.vcenter.name

    def find_host(self, name: str) -> Host:
        with _lookup_errors_as_terminal(Reason.HOST_NOT_FOUND, Reason.HOST_AMBIGUOUS):
            return self._throttle.with_released_stats(self.inventory.find_host(name))

    def find_vm(self, name: str) -> VirtualMachine:
        with _lookup_errors_as_terminal(Reason.VM_NOT_FOUND, Reason.VM_AMBIGUOUS):
            return self.inventory.find_vm(name)

    def find_datastore(self, name_or_path: str) -> Datastore:
        with _lookup_errors_as_terminal(Reason.DATASTORE_NOT_FOUND, Reason.DATASTORE_AMBIGUOUS):
            return self._throttle.with_released_stats(find_datastore(self.inventory, name_or_path))

    def find_cluster(self, name_or_path: str) -> ClusterSummary:
        with _lookup_errors_as_terminal(Reason.CLUSTER_NOT_FOUND, Reason.CLUSTER_AMBIGUOUS):
            cluster = find_cluster(self.inventory, name_or_path)
        return self._throttle.with_released_stats(self._throttle.clusters.get(cluster))

    def find_disk(self, name: str) -> Disk:
        return self._find_disk(self.vcenter.disks.find_by_name, name)

    def find_disk_by_id(self, disk_id: str) -> Disk:
        return self._find_disk(self.vcenter.disks.find_by_id, disk_id)

    def _find_disk(self, find: Callable[[str], Disk], key: str) -> Disk:
        disks = self.vcenter.disks
        if disks.problem is not None and (disks.is_stale or not disks.loaded):
            raise Retry(
                Reason.DISKS_UNREADABLE,
                f'The First Class Disks of vCenter "{self.vcenter_name}" cannot be read: '
                f"{disks.problem}",
                requeue_after_seconds=UNAVAILABLE_RETRY_SECONDS,
            )
        if not disks.loaded:
            raise NotSynced(
                f'the disks of vCenter "{self.vcenter_name}" are being listed',
                requeue_after_seconds=NOT_LOADED_RETRY_SECONDS,
            )
        with _lookup_errors_as_terminal(Reason.DISK_NOT_FOUND, Reason.DISK_AMBIGUOUS):
            disk = find(key)
        if cause := disks.explain_stale(disk):
            raise Retry(
                Reason.DISKS_UNREADABLE,
                f'The First Class Disks of vCenter "{self.vcenter_name}" cannot be read from '
                f"datastore {cause}",
                requeue_after_seconds=UNAVAILABLE_RETRY_SECONDS,
            )
        return disk


@contextmanager
def _lookup_errors_as_terminal(not_found: Reason, ambiguous: Reason) -> Iterator[None]:
    # Terminal, since waiting does not help: the change that adds or renames the object enqueues it.
    try:
        yield
    except NotFound as error:
        raise Terminal(not_found, str(error)) from error
    except Ambiguous as error:
        raise Terminal(ambiguous, str(error)) from error


def unavailable_error(
    vcenter: VCenter, problem: VCenterError, obj: Any, *, keeps_status: bool = False
) -> Retry | Terminal:
    """The outcome while a vCenter is unavailable.

    A status that belongs to the present spec is kept, and the message states until when it was
    accurate. With `keeps_status` each status is kept, such as one with records.
    """
    reason = next(
        (reason for kind, reason in _UNAVAILABLE_REASONS.items() if isinstance(problem, kind)),
        Reason.VCENTER_UNREACHABLE,
    )
    if not keeps_status and not is_status_current(obj, vcenter.name):
        # The manager connects again without an action at the object.
        return Terminal(reason, str(problem), stalled=False)
    if keeps_status and obj.status.vcenter != vcenter.name:
        # The object is new, or its values are from another vCenter.
        return Retry(reason, str(problem), requeue_after_seconds=UNAVAILABLE_RETRY_SECONDS)
    age = (
        f"The status was accurate until {vcenter.accurate_until:%Y-%m-%dT%H:%M:%SZ}."
        if vcenter.loaded
        else "The status is from before this manager started."
    )
    return Retry(
        reason,
        f"{str(problem).rstrip('.')}. {age}",
        requeue_after_seconds=UNAVAILABLE_RETRY_SECONDS,
    )


def is_status_current(obj: Any, vcenter: str = "") -> bool:
    """Whether the status belongs to the present spec and, if it names a vCenter, to this one."""
    status = obj.status
    return (
        status.observedGeneration == obj.metadata.generation
        and getattr(status, "vcenter", vcenter) == vcenter
    )


def _read_uuids(vm: VirtualMachine | None) -> set[str]:
    return {vm.bios_uuid.lower(), vm.instance_uuid.lower()} - {""} if vm else set()


def _have_labels_changed(old: Namespace | None, new: Namespace | None) -> bool:
    return old is None or new is None or old.metadata.labels != new.metadata.labels
