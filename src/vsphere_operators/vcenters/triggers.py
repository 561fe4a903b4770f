"""Enqueues objects that show more than the vSphere object they name.

A DatastoreInfo shows the disks on its datastore and the names of its hosts, a ClusterInfo the Nodes
on its hosts. The streams of the registry have names, so that each change here becomes the name of a
datastore or cluster.
"""

from __future__ import annotations

from ..vsphere.inventory import Change
from ..vsphere.model import ComputeResource, Disk, Host
from ..vsphere.vcenter import VCenter
from .registry import VCenterRegistry


class RelatedObjectTriggers:
    """The triggers of one vCenter; build.py connects them."""

    def __init__(self, vcenters: VCenterRegistry, vcenter: VCenter) -> None:
        self._vcenters, self._vcenter = vcenters, vcenter

    def on_disk_change(self, old: Disk | None, new: Disk | None) -> None:
        for ref in {disk.datastore for disk in (old, new) if disk is not None}:
            self._notify_datastore(ref)

    def on_readability_change(self, datastore: str) -> None:
        self._notify_datastore(datastore)

    def on_host_change(self, change: Change[Host]) -> None:
        """The name of a host is part of each datastore that it mounts."""
        old, new = change.old, change.new
        # At the end of a load all objects are enqueued; until then, that scan would be for nothing.
        if not self._vcenter.loaded or (old and new and old.name == new.name):
            return
        refs = {host.ref for host in (old, new) if host is not None}
        for datastore in self._vcenter.inventory.datastores.values():
            if not refs.isdisjoint(datastore.hosts):
                self._vcenters.datastore_changes.notify(datastore.name)

    def _notify_datastore(self, ref: str) -> None:
        if name := self._vcenter.inventory.name_of(ref):
            self._vcenters.datastore_changes.notify(name)


class NodeTrigger:
    """A Node with a VM that moves to another cluster enqueues the ClusterInfos of both."""

    def __init__(self, vcenters: VCenterRegistry) -> None:
        self._vcenters = vcenters

    def on_node_host_change(self, old: str, new: str) -> None:
        """`old` and `new` are vcenter/ref, or "" for none."""
        before, after = self._find_cluster(old), self._find_cluster(new)
        # Two clusters may share a name, so compare the clusters.
        if before is not after:
            for cluster in filter(None, (before, after)):
                self._vcenters.cluster_changes.notify(cluster.name)

    def _find_cluster(self, qualified_host: str) -> ComputeResource | None:
        vcenter_name, _, ref = qualified_host.rpartition("/")
        vcenter = self._vcenters.vcenters_by_name.get(vcenter_name)
        host = vcenter.inventory.hosts.get(ref) if vcenter else None
        if vcenter is None or host is None:
            return None
        return vcenter.inventory.compute_resources.get(host.parent)
