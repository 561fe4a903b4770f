"""The metrics of the inventory: values, labels, what is left out, and how long a scrape takes."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kubewright.metrics import Metrics
from support.fake_environment import FakeEnvironment
from vsphere_operators.vcenters.inventory_gauges import list_metrics
from vsphere_operators.vcenters.inventory_metrics import (
    InventoryMetrics,
    InventoryMetricsOptions,
    VmRoles,
)
from vsphere_operators.vsphere.disk_catalog import DiskListing
from vsphere_operators.vsphere.faults import Unreachable
from vsphere_operators.vsphere.model import Disk
from vsphere_operators.vsphere.updates import ObjectUpdate, Ref, Value

# With a quote, a backslash, a line break, a right-to-left mark and emoji.
HOSTILE_NAME = 'a"b\\c\n<img onerror=x>\u202e{x="1"} 1\n😀'
Samples = dict[str, list[tuple[dict[str, str], float]]]


class Environment(FakeEnvironment):
    """One datacenter with a cluster, a host, a Node, another VM, a template and two datastores."""

    def __init__(self, *, all_vms: bool = False, limit: int = 100) -> None:
        super().__init__()
        self.is_leader = True
        self.roles = VmRoles({"vm-1": "node-1"}, {})
        self.volume_handles: set[str] | None = {"disk-1"}
        self.collector = InventoryMetrics(
            [self.vcenter],
            InventoryMetricsOptions(all_vms, limit),
            is_active=lambda: self.is_leader,
            read_vm_roles=lambda vcenter: self.roles,
            read_volume_handles=lambda: self.volume_handles,
        )
        self.enter("Datacenter", "datacenter-1", name="DC0")
        self.enter("Folder", "group-h1", name="host", parent=Ref("Datacenter", "datacenter-1"))
        self.enter(
            "ClusterComputeResource",
            "domain-c1",
            name="C0",
            parent=Ref("Folder", "group-h1"),
            configurationEx__drsConfig__enabled=True,
        )
        self.add_host("host-1", "esxi-1")
        self.add_vm("vm-1", "node-1")
        self.add_vm("vm-2", "other")
        self.add_vm("vm-3", "template", config__template=True)
        for number, accessible in ((1, True), (2, False)):
            self.enter(
                "Datastore",
                f"datastore-{number}",
                name=f"store-{number}",
                summary__accessible=accessible,
                summary__capacity=1000,
                summary__freeSpace=400,
            )
        self.mark_loaded()

    def add_host(self, ref: str, name: str) -> None:
        self.enter(
            "HostSystem",
            ref,
            name=name,
            parent=Ref("ClusterComputeResource", "domain-c1"),
            runtime__connectionState="connected",
            runtime__inMaintenanceMode=True,
            summary__hardware__cpuMhz=2000,
            summary__hardware__numCpuCores=4,
            summary__quickStats__overallCpuUsage=1500,
            summary__quickStats__overallMemoryUsage=3,
        )

    def add_vm(self, ref: str, name: str, **other: Any) -> None:
        self.enter(
            "VirtualMachine",
            ref,
            name=name,
            runtime__host=Ref("HostSystem", "host-1"),
            runtime__powerState="poweredOn",
            runtime__connectionState="connected",
            summary__quickStats__overallCpuReadiness=7,
            summary__quickStats__balloonedMemory=2,
            **other,
        )

    def scrape(self) -> Samples:
        samples: Samples = {}
        for family in text_string_to_metric_families(self.collector.render()):
            # A second family of the same name would be an error for Prometheus.
            assert family.name not in samples
            assert family.type == "gauge"
            samples[family.name] = [(sample.labels, sample.value) for sample in family.samples]
        return samples


@pytest.fixture
def environment() -> Environment:
    return Environment()


def test_values_have_base_units(environment: Environment) -> None:
    samples = environment.scrape()
    host = {"vcenter": "vc-1", "host": "esxi-1", "host_id": "host-1"}
    assert samples["vsphere_host_cpu_capacity_hertz"] == [(host, 8e9)]
    assert samples["vsphere_host_cpu_usage_hertz"] == [(host, 1.5e9)]
    assert samples["vsphere_host_memory_usage_bytes"] == [(host, 3 * 2**20)]
    assert samples["vsphere_host_maintenance"] == [(host, 1)]
    assert samples["vsphere_host_connected"] == [(host, 1)]
    assert samples["vsphere_host_vms"] == [(host, 2)]
    vm = {"vcenter": "vc-1", "vm": "node-1", "vm_id": "vm-1"}
    assert samples["vsphere_vm_cpu_readiness_ratio"] == [(vm, 0.07)]
    assert samples["vsphere_vm_memory_ballooned_bytes"] == [(vm, 2 * 2**20)]
    assert samples["vsphere_vm_powered_on"] == [(vm, 1)]
    assert samples["vsphere_vm_info"] == [
        (vm | {"host": "esxi-1", "host_id": "host-1", "node": "node-1", "vmgroup": ""}, 1)
    ]
    [(labels, value)] = samples["vsphere_host_info"]
    assert value == 1
    assert (labels["cluster"], labels["datacenter"]) == ("C0", "DC0")
    cluster = {"vcenter": "vc-1", "cluster": "C0", "cluster_id": "domain-c1"}
    assert samples["vsphere_cluster_drs_enabled"] == [(cluster, 1)]
    assert samples["vsphere_cluster_hosts"] == [(cluster, 1)]


def test_unknown_values_have_no_sample(environment: Environment) -> None:
    samples = environment.scrape()
    for name in (
        "vsphere_host_memory_capacity_bytes",
        "vsphere_host_boot_time_seconds",
        "vsphere_vm_memory_swapped_bytes",
        "vsphere_cluster_ha_enabled",
        "vsphere_datastore_uncommitted_bytes",
    ):
        assert name not in samples
    # The numbers of the inaccessible datastore are from before it was lost.
    assert [labels["datastore"] for labels, _ in samples["vsphere_datastore_free_bytes"]] == [
        "store-1"
    ]


def test_disconnected_host_has_no_usage(environment: Environment) -> None:
    environment.modify("HostSystem", "host-1", runtime__connectionState="notResponding")
    samples = environment.scrape()
    assert samples["vsphere_host_connected"][0][1] == 0
    assert "vsphere_host_cpu_usage_hertz" not in samples


def test_removed_and_renamed_objects_leave_no_stale_series(environment: Environment) -> None:
    environment.leave("HostSystem", "host-1")
    environment.modify("Datastore", "datastore-1", name="renamed")
    samples = environment.scrape()
    assert "vsphere_host_info" not in samples
    assert {labels["datastore"] for labels, _ in samples["vsphere_datastore_info"]} == {
        "renamed",
        "store-2",
    }


def test_all_vms_are_served_only_on_request() -> None:
    assert [labels["vm"] for labels, _ in Environment().scrape()["vsphere_vm_info"]] == ["node-1"]
    samples = Environment(all_vms=True).scrape()
    assert [labels["vm"] for labels, _ in samples["vsphere_vm_info"]] == ["node-1", "other"]


def test_replicas_of_vmgroups_are_served(environment: Environment) -> None:
    environment.roles = VmRoles({}, {"vm-2": "default/web", "vm-gone": "default/web"})
    [(labels, _)] = environment.scrape()["vsphere_vm_info"]
    assert (labels["vm"], labels["vmgroup"], labels["node"]) == ("other", "default/web", "")


def test_limit_keeps_nodes_and_counts_omitted_objects() -> None:
    environment = Environment(all_vms=True, limit=1)
    environment.roles = VmRoles({"vm-2": "node-2"}, {})
    samples = environment.scrape()
    assert [labels["vm"] for labels, _ in samples["vsphere_vm_cpu_readiness_ratio"]] == ["other"]
    omitted = {
        labels["type"]: value
        for labels, value in samples["vsphere_inventory_metrics_omitted_objects"]
    }
    assert omitted == {
        "HostSystem": 0,
        "VirtualMachine": 1,
        "Datastore": 1,
        "ClusterComputeResource": 0,
    }


def test_standby_and_unavailable_vcenter_serve_nothing(environment: Environment) -> None:
    environment.is_leader = False
    assert environment.scrape() == {}
    environment.is_leader = True
    assert environment.scrape()
    environment.vcenter.problem = Unreachable("no response")
    assert environment.scrape() == {}


def test_hostile_names_are_escaped(environment: Environment) -> None:
    environment.modify("HostSystem", "host-1", name=HOSTILE_NAME)
    environment.roles = VmRoles({"vm-1": "node-1"}, {})
    samples = environment.scrape()
    assert samples["vsphere_host_info"][0][0]["host"] == HOSTILE_NAME
    assert samples["vsphere_vm_info"][0][0]["host"] == HOSTILE_NAME
    assert len(samples["vsphere_host_maintenance"]) == 1


def test_objects_with_the_same_name_have_different_series(environment: Environment) -> None:
    environment.add_host("host-2", "esxi-1")
    labels = [labels for labels, _ in environment.scrape()["vsphere_host_connected"]]
    assert [row["host_id"] for row in labels] == ["host-1", "host-2"]


def test_disks_without_a_volume_are_counted(environment: Environment) -> None:
    def make_disk(id: str, **other: Any) -> Disk:
        return Disk(id=id, name=id, datastore="datastore-1", **other)

    disks = [
        make_disk("disk-1"),
        make_disk("disk-2"),
        make_disk("disk-3", attached_vm_uuids=("u",)),
    ]
    environment.vcenter.disks.apply(
        DiskListing(
            disks={disk.id: disk for disk in disks},
            unreadable_datastores={"datastore-2": "no host can access it"},
        )
    )
    store = {"vcenter": "vc-1", "datastore": "store-1", "datastore_id": "datastore-1"}
    samples = environment.scrape()
    assert samples["vsphere_datastore_first_class_disks"] == [(store, 3)]
    assert samples["vsphere_datastore_orphaned_disks"] == [(store, 1)]
    assert samples["vsphere_datastore_foreign_disks"] == [(store, 1)]
    environment.volume_handles = None
    samples = environment.scrape()
    assert samples["vsphere_datastore_first_class_disks"] == [(store, 3)]
    assert "vsphere_datastore_orphaned_disks" not in samples


def test_disks_of_a_new_datastore_are_unknown_until_they_are_listed(
    environment: Environment,
) -> None:
    def list_datastores() -> list[str]:
        samples = environment.scrape()["vsphere_datastore_first_class_disks"]
        return [labels["datastore_id"] for labels, _ in samples]

    environment.enter("Datastore", "datastore-3", name="new", summary__accessible=True)
    assert "datastore-3" not in list_datastores()
    environment.set_disks()
    assert "datastore-3" in list_datastores()


def test_flags_that_vcenter_does_not_report_have_no_sample(environment: Environment) -> None:
    environment.enter("HostSystem", "host-9", name="esxi-9")
    environment.enter("Datastore", "datastore-9", name="store-9", summary__capacity=1000)
    samples = environment.scrape()
    for name, key, ref in (
        ("vsphere_host_maintenance", "host_id", "host-9"),
        ("vsphere_datastore_accessible", "datastore_id", "datastore-9"),
    ):
        refs = [labels[key] for labels, _ in samples[name]]
        assert refs
        assert ref not in refs
    # vCenter reports its capacity, so that is known.
    capacities = samples["vsphere_datastore_capacity_bytes"]
    assert "datastore-9" in [labels["datastore_id"] for labels, _ in capacities]


def test_host_that_enters_maintenance_mode(environment: Environment) -> None:
    def read_value() -> float:
        ((_, value),) = environment.scrape()["vsphere_host_entering_maintenance"]
        return value

    assert read_value() == 0
    task: dict[str, Value] = {
        "info.state": "running",
        "info.descriptionId": "HostSystem.enterMaintenanceMode",
        "info.entity": Ref("HostSystem", "host-1"),
    }
    inventory = environment.vcenter.inventory
    inventory.apply([ObjectUpdate("enter", "Task", "task-1", task)])
    assert read_value() == 1
    inventory.apply([ObjectUpdate("modify", "Task", "task-1", {"info.state": "success"})])
    assert read_value() == 0


def test_failing_collector_does_not_hide_other_metrics() -> None:
    metrics = Metrics()
    metrics.add_text_collector(lambda: "a 1\n")
    metrics.add_text_collector(lambda: str(1 / 0))
    metrics.add_text_collector(lambda: "b 1\n")
    text = metrics.exposition()[0].decode()
    assert text.endswith("a 1\nb 1\n")
    assert "kubewright_lists_total" in text


def test_names_follow_the_conventions_of_prometheus() -> None:
    units = ("_hertz", "_bytes", "_ratio", "_seconds", "_info")
    counts = ("_vms", "_hosts", "_cpus", "_disks", "_objects")
    states = ("_connected", "_maintenance", "_powered_on", "_accessible", "_enabled")
    metrics = list_metrics()
    assert len({name for name, _, _ in metrics}) == len(metrics) > 25
    for name, _, _ in metrics:
        assert name.startswith("vsphere_"), name
        assert name.endswith((*units, *counts, *states)), name
