"""The status of a cluster, and the controller with Nodes on a fake API server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright import Cache, Key, ObjectMeta, Terminal
from kubewright.builtin import Node, NodeSpec
from kubewright.crd import build_crds
from kubewright.log import Log
from support.fake_environment import FakeEnvironment, run_manager
from vsphere_operators.build import connect_node_tracker
from vsphere_operators.kinds.clusterinfo import (
    MAX_LISTED_NODES,
    ClusterInfo,
    ClusterInfoController,
    ClusterInfoStatus,
    ClusterNodes,
    cluster_status_of,
    ready_outcome,
)
from vsphere_operators.kinds.gpuinfo.tracker import NodeTracker
from vsphere_operators.vcenters.registry import VCenterRegistry
from vsphere_operators.vcenters.triggers import NodeTrigger
from vsphere_operators.vsphere.cluster_summary import summarize_cluster
from vsphere_operators.vsphere.model import ComputeResource, Host, HostStats, Location
from vsphere_operators.vsphere.updates import Ref, Value

SAMPLES = Path(__file__).parents[2] / "config/samples"
LOCATION = Location(path="/dc-1/host/cluster-1", datacenter="dc-1", cluster="cluster-1")
CLUSTER = ComputeResource(
    ref="domain-c8",
    name="cluster-1",
    is_cluster=True,
    drs_enabled=True,
    drs_automation="fullyAutomated",
    ha_enabled=True,
    ha_admission_control=False,
)
SMALL_HOST = Host(
    ref="host-1",
    name="esxi-1",
    connection="connected",
    power="poweredOn",
    in_maintenance=False,
    cpu_mhz=2000,
    cpu_cores=10,
    memory_bytes=100 * 2**30,
    stats=HostStats(cpu_usage_mhz=5000, memory_usage_mb=51_200),
)
LARGE_HOST = replace(
    SMALL_HOST,
    ref="host-2",
    name="esxi-2",
    cpu_cores=20,
    memory_bytes=200 * 2**30,
    stats=HostStats(cpu_usage_mhz=8000, memory_usage_mb=102_400),
)


def make_status(*hosts: Host, nodes: tuple[str, ...] = ()) -> ClusterInfoStatus:
    return cluster_status_of(summarize_cluster(CLUSTER, hosts), LOCATION, nodes, "vc-1")


STATUS = ClusterInfoStatus(
    hosts=2,
    availableHosts=2,
    hostsInMaintenance=0,
    disconnectedHosts=0,
    poweredDownHosts=0,
    totalCPUMHz=60_000,
    freeCPUMHz=47_000,
    headroomCPUMHz=7_000,
    totalMemoryMB=307_200,
    freeMemoryMB=153_600,
    headroomMemoryMB=-51_200,
    drsEnabled=True,
    drsAutomation="fullyAutomated",
    haEnabled=True,
    haAdmissionControl=False,
    nodes=ClusterNodes(count=2, names=["node-1", "node-2"]),
    datacenter="dc-1",
    inventoryPath="/dc-1/host/cluster-1",
    vcenter="vc-1",
)


def test_status_of_a_cluster() -> None:
    assert make_status(SMALL_HOST, LARGE_HOST, nodes=("node-2", "node-1")) == STATUS
    assert ready_outcome(summarize_cluster(CLUSTER, [SMALL_HOST])).reason == "Reconciled"


def test_hosts_that_are_not_available_are_not_counted() -> None:
    hosts = (
        SMALL_HOST,
        replace(LARGE_HOST, in_maintenance=True),
        replace(LARGE_HOST, connection="notResponding", stats=HostStats()),
        replace(LARGE_HOST, power="standBy", stats=HostStats()),
    )
    status = make_status(*hosts)
    assert (status.hosts, status.availableHosts) == (4, 1)
    assert (status.hostsInMaintenance, status.disconnectedHosts) == (1, 1)
    assert (status.totalCPUMHz, status.freeCPUMHz) == (20_000, 15_000)
    # Without its only available host the cluster cannot run what uses 5,000 MHz now.
    assert status.headroomCPUMHz == -5_000
    outcome = ready_outcome(summarize_cluster(CLUSTER, hosts))
    assert outcome.reason == "HostsUnavailable"
    assert outcome.message == (
        '1 of the 4 hosts of cluster "cluster-1" are available (1 in maintenance mode, '
        "1 disconnected, 1 powered off or in standby). CPU and memory are those of the available "
        "hosts."
    )


def test_host_in_standby_is_powered_down_and_not_disconnected() -> None:
    # vCenter does not receive responses of a host in standby.
    host = replace(SMALL_HOST, power="standBy", connection="notResponding")
    status = make_status(SMALL_HOST, host)
    assert (status.poweredDownHosts, status.disconnectedHosts) == (1, 0)


def test_host_with_an_unknown_state_is_not_available() -> None:
    hosts = (SMALL_HOST, replace(LARGE_HOST, in_maintenance=None))
    status = make_status(*hosts)
    assert (status.availableHosts, status.hostsInMaintenance) == (1, None)
    assert status.totalCPUMHz == 20_000
    outcome = ready_outcome(summarize_cluster(CLUSTER, hosts))
    assert "(1 in an unknown state)" in outcome.message


def test_cluster_without_an_available_host() -> None:
    for hosts in ([], [replace(SMALL_HOST, connection="disconnected", stats=HostStats())]):
        status = make_status(*hosts)
        assert (status.hosts, status.availableHosts, status.totalCPUMHz) == (len(hosts), 0, 0)
        assert (status.freeCPUMHz, status.headroomCPUMHz, status.headroomMemoryMB) == (
            0,
            None,
            None,
        )
        with pytest.raises(Terminal, match=r"reconnect a host|Add a host") as caught:
            ready_outcome(summarize_cluster(CLUSTER, hosts))
        assert (caught.value.reason, caught.value.keep_status) == ("NoHostAvailable", True)


def test_unknown_usage_of_one_host_makes_the_sum_unknown() -> None:
    status = make_status(SMALL_HOST, replace(LARGE_HOST, stats=HostStats(memory_usage_mb=1)))
    assert (status.totalCPUMHz, status.freeCPUMHz, status.headroomCPUMHz) == (60_000, None, None)
    assert status.freeMemoryMB == 255_999
    status = make_status(SMALL_HOST, replace(LARGE_HOST, cpu_cores=None))
    assert (status.totalCPUMHz, status.freeCPUMHz) == (None, None)


def test_unknown_settings_are_absent() -> None:
    bare = ComputeResource(ref="domain-c8", name="cluster-1", is_cluster=True)
    status = cluster_status_of(summarize_cluster(bare, []), Location(), (), "vc-1")
    assert (status.drsEnabled, status.drsAutomation, status.haEnabled) == (None, None, None)
    assert (status.haAdmissionControl, status.datacenter) == (None, None)


usages = st.none() | st.integers(0, 10**6)
hosts_strategy = st.lists(
    st.builds(
        lambda cores, cpu, memory, connection, maintenance: replace(
            SMALL_HOST,
            cpu_cores=cores,
            connection=connection,
            in_maintenance=maintenance,
            stats=HostStats(cpu_usage_mhz=cpu, memory_usage_mb=memory),
        ),
        st.none() | st.integers(1, 64),
        usages,
        usages,
        st.sampled_from(["connected", "disconnected", "notResponding"]),
        st.none() | st.booleans(),
    ),
    max_size=6,
)


@given(hosts=hosts_strategy)
def test_sums_are_those_of_the_available_hosts(hosts: list[Host]) -> None:
    available = [
        host for host in hosts if host.connection == "connected" and host.in_maintenance is False
    ]
    status = make_status(*hosts)
    capacities = [2000 * host.cpu_cores if host.cpu_cores else None for host in available]
    used = [host.stats.cpu_usage_mhz for host in available]
    numbers = [value for value in capacities if value is not None]
    if None in capacities:
        assert status.totalCPUMHz is None
    else:
        assert status.totalCPUMHz == sum(numbers)
    if None in capacities or None in used:
        assert (status.freeCPUMHz, status.headroomCPUMHz) == (None, None)
    else:
        free = sum(numbers) - sum(value for value in used if value is not None)
        assert status.freeCPUMHz == free
        assert status.headroomCPUMHz == (free - max(numbers) if numbers else None)


def test_list_of_nodes_is_bounded() -> None:
    names = tuple(f"node-{number:03}" for number in range(MAX_LISTED_NODES + 5))
    nodes = make_status(SMALL_HOST, nodes=names).nodes
    assert nodes == ClusterNodes(count=105, names=list(names[:100]), more=5)


def test_crd() -> None:
    crd = build_crds([ClusterInfo])[0]["spec"]
    assert (crd["group"], crd["scope"]) == ("topology.corinternal.com", "Namespaced")
    assert crd["names"]["shortNames"] == ["ci"]
    [version] = crd["versions"]
    assert "required" not in version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert [
        column["name"]
        for column in version["additionalPrinterColumns"]
        if not column.get("priority")
    ] == [
        "Cluster",
        "Hosts",
        "Free-MHz",
        "Free-MB",
        "Headroom-MHz",
        "Headroom-MB",
        "Nodes",
        "Ready",
        "Age",
    ]


def test_sample() -> None:
    sample = yaml.safe_load((SAMPLES / "topology_v1_clusterinfo.yaml").read_text())
    assert (sample["kind"], sample["spec"]) == ("ClusterInfo", {"cluster": "DC0_C0"})


def make_controller(vcenters: VCenterRegistry, cache: Cache) -> ClusterInfoController:
    tracker = NodeTracker(
        cache,
        vcenters.vcenters_by_name,
        partial(datetime.now, UTC),
        lambda obj, reason, message: None,
        log=Log("nodes"),
        gpu_resource_globs=(),
    )
    connect_node_tracker(tracker, cache, vcenters.vcenters_by_name)
    tracker.host_changed.connect(NodeTrigger(vcenters).on_node_host_change)
    return ClusterInfoController(vcenters, tracker)


def host_properties(name: str, cluster: str, **more: Value) -> dict[str, Any]:
    return {
        "name": name,
        "parent": Ref("ClusterComputeResource", cluster),
        "runtime__connectionState": "connected",
        "runtime__powerState": "poweredOn",
        "runtime__inMaintenanceMode": False,
        "summary__hardware__cpuMhz": 2000,
        "summary__hardware__numCpuCores": 10,
        "summary__hardware__memorySize": 100 * 2**30,
        "summary__quickStats__overallCpuUsage": 5000,
        "summary__quickStats__overallMemoryUsage": 51_200,
        **more,
    }


def environment_with_clusters() -> FakeEnvironment:
    """Two clusters with two hosts each, and a VM on the first host of the first."""
    environment = FakeEnvironment()
    environment.enter("Datacenter", "datacenter-1", name="dc-1", parent=Ref("Folder", "group-d1"))
    environment.enter("Folder", "group-h1", name="host", parent=Ref("Datacenter", "datacenter-1"))
    for number in (1, 2):
        environment.enter(
            "ClusterComputeResource",
            f"domain-c{number}",
            name=f"cluster-{number}",
            parent=Ref("Folder", "group-h1"),
            configurationEx__drsConfig__enabled=True,
        )
        for host in (1, 2):
            ref = f"{number}{host}"
            environment.enter(
                "HostSystem", f"host-{ref}", **host_properties(f"esxi-{ref}", f"domain-c{number}")
            )
    environment.enter(
        "VirtualMachine", "vm-1", name="node-1", runtime__host=Ref("HostSystem", "host-11")
    )
    environment.mark_loaded()
    for number in (1, 2):
        environment.create(ClusterInfo, f"c{number}", cluster=f"cluster-{number}")
    return environment


def make_node(name: str) -> Node:
    return Node(metadata=ObjectMeta(name=name), spec=NodeSpec())


async def test_hosts_are_followed() -> None:
    environment = environment_with_clusters()
    async with run_manager(environment, make_controller):
        info, _ = await environment.wait_for_ready(ClusterInfo, "c1", "Reconciled")
        assert (info.status.totalCPUMHz, info.status.freeCPUMHz) == (40_000, 30_000)
        assert (info.status.drsEnabled, info.status.inventoryPath) == (True, "/dc-1/host/cluster-1")
        environment.modify("HostSystem", "host-11", runtime__inMaintenanceMode=True)
        info, condition = await environment.wait_for_ready(ClusterInfo, "c1", "HostsUnavailable")
        assert condition.status == "True"
        assert (info.status.totalCPUMHz, info.status.hostsInMaintenance) == (20_000, 1)
        environment.modify("HostSystem", "host-12", runtime__connectionState="disconnected")
        _, condition = await environment.wait_for_ready(ClusterInfo, "c1", "NoHostAvailable")
        assert condition.status == "False"
        environment.modify("HostSystem", "host-11", runtime__inMaintenanceMode=False)
        environment.modify("HostSystem", "host-12", runtime__connectionState="connected")
        await environment.wait_for_ready(
            ClusterInfo, "c1", "Reconciled", lambda status: status.freeCPUMHz == 30_000
        )
        environment.modify(
            "HostSystem", "host-12", parent=Ref("ClusterComputeResource", "domain-c2")
        )
        await environment.wait_for_ready(
            ClusterInfo, "c1", "Reconciled", lambda status: status.hosts == 1
        )
        await environment.wait_for_ready(
            ClusterInfo, "c2", "Reconciled", lambda status: status.hosts == 3
        )
        environment.leave("HostSystem", "host-12")
        await environment.wait_for_ready(
            ClusterInfo, "c2", "Reconciled", lambda status: status.hosts == 2
        )


async def test_settings_and_names_are_followed() -> None:
    environment = environment_with_clusters()
    async with run_manager(environment, make_controller):
        await environment.wait_for_ready(ClusterInfo, "c1", "Reconciled")
        environment.modify(
            "ClusterComputeResource",
            "domain-c1",
            configurationEx__drsConfig__enabled=False,
            configurationEx__dasConfig__enabled=True,
        )
        await environment.wait_for_ready(
            ClusterInfo,
            "c1",
            "Reconciled",
            lambda status: (status.drsEnabled, status.haEnabled) == (False, True),
        )
        environment.modify("Datacenter", "datacenter-1", name="dc-one")
        await environment.wait_for_ready(
            ClusterInfo, "c1", "Reconciled", lambda status: status.datacenter == "dc-one"
        )
        environment.modify("ClusterComputeResource", "domain-c1", name="renamed")
        _, condition = await environment.wait_for_ready(ClusterInfo, "c1", "ClusterNotFound")
        assert 'has no cluster named "cluster-1"' in condition.message
        environment.modify("ClusterComputeResource", "domain-c1", name="cluster-1")
        await environment.wait_for_ready(ClusterInfo, "c1", "Reconciled")


async def test_nodes_follow_their_vm() -> None:
    environment = environment_with_clusters()
    async with run_manager(environment, make_controller):
        await environment.wait_for_ready(
            ClusterInfo, "c1", "Reconciled", lambda status: status.nodes.count == 0
        )
        await environment.wait_for_ready(ClusterInfo, "c2", "Reconciled")
        environment.api.add(make_node("node-1"))
        await environment.wait_for_ready(
            ClusterInfo,
            "c1",
            "Reconciled",
            lambda status: status.nodes == ClusterNodes(count=1, names=["node-1"]),
        )
        writes = environment.count_status_writes()
        # Within a cluster nothing is written.
        environment.modify("VirtualMachine", "vm-1", runtime__host=Ref("HostSystem", "host-12"))
        environment.modify("VirtualMachine", "vm-1", runtime__host=Ref("HostSystem", "host-21"))
        await environment.wait_for_ready(
            ClusterInfo, "c1", "Reconciled", lambda status: status.nodes.count == 0
        )
        await environment.wait_for_ready(
            ClusterInfo, "c2", "Reconciled", lambda status: status.nodes.count == 1
        )
        assert environment.count_status_writes() - writes == 2
        await environment.client.delete(Node, Key("", "node-1"))
        await environment.wait_for_ready(
            ClusterInfo, "c2", "Reconciled", lambda status: status.nodes.count == 0
        )


async def test_usage_is_throttled() -> None:
    environment = environment_with_clusters()
    async with run_manager(environment, make_controller):
        for name in ("c1", "c2"):
            await environment.wait_for_ready(ClusterInfo, name, "Reconciled")
        # The first change after the start is released: the sums were not known before.
        environment.modify("HostSystem", "host-11", summary__quickStats__overallCpuUsage=5001)
        await environment.wait_for_ready(
            ClusterInfo, "c1", "Reconciled", lambda status: status.freeCPUMHz == 29_999
        )
        writes = environment.count_status_writes()
        # Less than 5 % of 40,000 MHz.
        environment.modify("HostSystem", "host-11", summary__quickStats__overallCpuUsage=6000)
        environment.create(ClusterInfo, "new", cluster="cluster-1")
        info, _ = await environment.wait_for_ready(ClusterInfo, "new", "Reconciled")
        assert info.status.freeCPUMHz == 29_999
        assert environment.count_status_writes() - writes == 1
        environment.modify("HostSystem", "host-12", summary__quickStats__overallCpuUsage=9000)
        for name in ("c1", "new"):
            await environment.wait_for_ready(
                ClusterInfo, name, "Reconciled", lambda status: status.freeCPUMHz == 25_000
            )
        assert environment.count_status_writes() - writes == 3


async def test_small_changes_of_usage_are_written_within_an_interval() -> None:
    environment = environment_with_clusters()
    async with run_manager(environment, make_controller, interval_seconds=1.0) as vcenters:
        await environment.wait_for_ready(ClusterInfo, "c1", "Reconciled")
        environment.modify("HostSystem", "host-11", summary__quickStats__overallCpuUsage=5001)
        await environment.wait_for_ready(
            ClusterInfo, "c1", "Reconciled", lambda status: status.freeCPUMHz == 29_999
        )
        environment.modify("HostSystem", "host-11", summary__quickStats__overallCpuUsage=5002)
        running = asyncio.create_task(vcenters.throttles["vc-1"].run())
        await environment.wait_for_ready(
            ClusterInfo, "c1", "Reconciled", lambda status: status.freeCPUMHz == 29_998
        )
        running.cancel()


async def test_missing_ambiguous_and_by_path() -> None:
    environment = environment_with_clusters()
    environment.create(ClusterInfo, "path", cluster="/dc-1/host/cluster-1")
    environment.create(ClusterInfo, "misspelt", cluster="clutser-1")
    environment.create(ClusterInfo, "empty")
    async with run_manager(environment, make_controller):
        _, condition = await environment.wait_for_ready(ClusterInfo, "misspelt", "ClusterNotFound")
        assert 'Did you mean "cluster-1"' in condition.message
        _, condition = await environment.wait_for_ready(ClusterInfo, "empty", "ClusterNameMissing")
        assert "Set it to the name of a cluster" in condition.message
        await environment.wait_for_ready(ClusterInfo, "path", "Reconciled")
        environment.enter("ClusterComputeResource", "domain-c9", name="cluster-1")
        info, condition = await environment.wait_for_ready(ClusterInfo, "c1", "ClusterAmbiguous")
        assert "Set spec.cluster to one of these paths" in condition.message
        assert info.status.hosts is None
        environment.modify("HostSystem", "host-11", runtime__inMaintenanceMode=True)
        await environment.wait_for_ready(ClusterInfo, "path", "HostsUnavailable")


async def test_standalone_host_is_not_a_cluster() -> None:
    environment = environment_with_clusters()
    environment.enter(
        "ComputeResource", "domain-s1", name="alone", parent=Ref("Folder", "group-h1")
    )
    environment.create(ClusterInfo, "alone", cluster="alone")
    async with run_manager(environment, make_controller):
        await environment.wait_for_ready(ClusterInfo, "alone", "ClusterNotFound")
