"""The Prometheus metrics of vCenters."""

from __future__ import annotations

import re

from kubewright.metrics import Metrics

from ..vsphere.faults import WrongLogin
from ..vsphere.vcenter import VCenter

_CALL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_ID_IN_PATH = re.compile(r"(/cis/tagging/(?:tag|category))/[^/]+")


class VCenterMetrics:
    """The metrics of all vCenters, on the manager's registry."""

    def __init__(self, metrics: Metrics) -> None:
        self.calls = metrics.new_counter(
            "vsphere_vcenter_calls_total",
            "Number of calls to vCenter, by method and how they ended",
            ["vcenter", "method", "outcome"],
        )
        self.call_seconds = metrics.new_histogram(
            "vsphere_vcenter_call_duration_seconds",
            "How long calls to vCenter took",
            ["vcenter", "method"],
            _CALL_BUCKETS,
        )
        self._sessions = metrics.new_gauge(
            "vsphere_vcenter_sessions",
            "Number of sessions that are open at the vCenter",
            ["vcenter"],
        )
        self._logins = metrics.new_gauge(
            "vsphere_vcenter_logins",
            "Number of times that a session was opened since the start",
            ["vcenter"],
        )
        self._up = metrics.new_gauge(
            "vsphere_vcenter_up",
            "1 if the inventory of the vCenter is loaded and current, otherwise 0",
            ["vcenter"],
        )
        self._login_rejected = metrics.new_gauge(
            "vsphere_vcenter_login_rejected",
            "1 if the vCenter rejects the user name or the password, otherwise 0",
            ["vcenter"],
        )
        self._objects = metrics.new_gauge(
            "vsphere_inventory_objects", "Number of objects in the inventory", ["vcenter", "type"]
        )
        self._inventory_age = metrics.new_gauge(
            "vsphere_inventory_age_seconds",
            "Seconds since the last response of the property collector",
            ["vcenter"],
        )
        self.updates = metrics.new_counter(
            "vsphere_inventory_updates_total",
            "Number of updates from vCenter",
            ["vcenter", "type", "kind"],
        )
        self.undecodable = metrics.new_counter(
            "vsphere_vcenter_undecodable_values_total",
            "Number of values from vCenter that could not be decoded and were left unset",
            ["vcenter", "type", "property"],
        )

    def for_vcenter(self, vcenter: str) -> SingleVCenterMetrics:
        return SingleVCenterMetrics(self, vcenter)

    def register_gauges(self, vcenter: VCenter) -> None:
        """Read these values from the vCenter at each scrape."""
        self._sessions.labels(vcenter.name).set_function(lambda: float(vcenter.session.logged_in))
        self._logins.labels(vcenter.name).set_function(lambda: float(vcenter.session.login_count))
        self._up.labels(vcenter.name).set_function(
            lambda: float(vcenter.loaded and vcenter.problem is None)
        )
        self._login_rejected.labels(vcenter.name).set_function(
            lambda: float(isinstance(vcenter.problem, WrongLogin))
        )
        self._inventory_age.labels(vcenter.name).set_function(
            lambda: vcenter.seconds_since_response
        )
        inventory = vcenter.inventory
        sizes = {
            "HostSystem": lambda: len(inventory.hosts),
            "VirtualMachine": lambda: len(inventory.vms),
            "Datastore": lambda: len(inventory.datastores),
            "ComputeResource": lambda: len(inventory.compute_resources),
            "ResourcePool": lambda: len(inventory.resource_pools),
            "Folder": lambda: len(inventory.folders),
            "Datacenter": lambda: len(inventory.datacenters),
            "Task": lambda: len(inventory.tasks),
            "FirstClassDisk": lambda: len(vcenter.disks.disks),
        }
        for type_name, size in sizes.items():
            self._objects.labels(vcenter.name, type_name).set_function(size)


class SingleVCenterMetrics:
    """The metrics that one vCenter counts itself."""

    def __init__(self, metrics: VCenterMetrics, vcenter: str) -> None:
        self._metrics, self._vcenter = metrics, vcenter

    def observe_call(self, method: str, outcome: str, seconds: float) -> None:
        # The path of a tag contains its id, and a series per tag would grow without bound.
        method = _ID_IN_PATH.sub(r"\1/id", method)
        self._metrics.calls.labels(self._vcenter, method, outcome).inc()
        self._metrics.call_seconds.labels(self._vcenter, method).observe(seconds)

    def count_undecodable(self, type_name: str, path: str) -> None:
        self._metrics.undecodable.labels(self._vcenter, type_name, path).inc()

    def count_updates(self, type_name: str, kind: str, count: int = 1) -> None:
        self._metrics.updates.labels(self._vcenter, type_name, kind).inc(count)
