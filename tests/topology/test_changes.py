from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Literal

import pytest

from kubewright import Cache, Condition, Key, ObjectMeta
from kubewright.cache import Origin
from kubewright.log import Log
from support.fake_node_cluster import FakeNodeCluster
from vsphere_operators.kinds.gpuinfo import GPUInfo
from vsphere_operators.kinds.gpuinfo.types import NONE_AVAILABLE, GPUInfoSpec, GPUInfoStatus
from vsphere_operators.kinds.vmgroup.types import ReplicaStatus, VmGroup, VmGroupSpec, VmGroupStatus
from vsphere_operators.topology.changes import ChangeLog
from vsphere_operators.vsphere.inventory_reload import InventoryReload
from vsphere_operators.vsphere.updates import ObjectUpdate, Ref

NOW = datetime(2026, 11, 18, tzinfo=UTC)


class Recorded(FakeNodeCluster):
    """A vCenter with two hosts and a VM, and the list of its changes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.log = ChangeLog(max_changes=5, clock=lambda: self.now)
        self.log.connect({"vc-1": self.vcenter}, Cache(Log("cache")))
        self.add_host(1)
        self.add_host(2)
        self.add_vm(1, 1, 100)
        self.mark_loaded()

    def types(self) -> list[tuple[str, str]]:
        """Type and message, oldest first."""
        return [(change.type, change.message) for change in reversed(self.log.read().changes)]


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def test_first_load_is_not_a_change(recorded: Recorded) -> None:
    result = recorded.log.read()
    assert (result.changes, result.since) == ([], NOW)


def test_changes_of_vms(recorded: Recorded) -> None:
    recorded.modify("VirtualMachine", "vm-1", runtime__host=Ref("HostSystem", "host-2"))
    recorded.modify("VirtualMachine", "vm-1", runtime__powerState="poweredOff")
    recorded.modify("VirtualMachine", "vm-1", name="renamed")
    recorded.set_cpu_demand(1, 5)
    recorded.leave("VirtualMachine", "vm-1")
    assert recorded.types() == [
        ("Moved", "from esxi-1 to esxi-2"),
        ("PoweredOff", ""),
        ("Renamed", "from node-1 to renamed"),
        ("Removed", ""),
    ]


def test_restart_by_vsphere_ha_names_the_state_of_the_host(recorded: Recorded) -> None:
    recorded.modify("HostSystem", "host-1", runtime__connectionState="notResponding")
    recorded.modify("VirtualMachine", "vm-1", runtime__host=Ref("HostSystem", "host-2"))
    assert recorded.types() == [
        ("Disconnected", "the connection state is notResponding"),
        ("Moved", "from esxi-1, which is notResponding, to esxi-2"),
    ]


def test_changes_of_hosts(recorded: Recorded) -> None:
    recorded.modify("HostSystem", "host-1", runtime__inMaintenanceMode=True)
    recorded.modify("HostSystem", "host-1", runtime__inMaintenanceMode=False)
    assert recorded.types() == [("EnteredMaintenance", ""), ("LeftMaintenance", "")]


def set_readiness(recorded: Recorded, number: int, percent: int) -> None:
    recorded.modify(
        "VirtualMachine", f"vm-{number}", summary__quickStats__overallCpuReadiness=percent
    )


def test_host_that_becomes_hot(recorded: Recorded) -> None:
    set_readiness(recorded, 1, 9)
    set_readiness(recorded, 1, 12)
    # Between the limits it stays hot, and a higher figure is no second change.
    set_readiness(recorded, 1, 6)
    set_readiness(recorded, 1, 30)
    set_readiness(recorded, 1, 4)
    assert recorded.types() == [
        (
            "Hot",
            'VM "node-1" on host "esxi-1" waited for a CPU 12% of the time. The limit is 10%.',
        ),
        ("NoLongerHot", ""),
    ]
    assert {change.name for change in recorded.log.read().changes} == {"esxi-1"}


def test_hot_vm_that_moves_takes_the_pressure_with_it(recorded: Recorded) -> None:
    set_readiness(recorded, 1, 20)
    recorded.modify("VirtualMachine", "vm-1", runtime__host=Ref("HostSystem", "host-2"))
    names = [(change.name, change.type) for change in reversed(recorded.log.read().changes)]
    assert names[0] == ("esxi-1", "Hot")
    assert set(names[1:]) == {("esxi-1", "NoLongerHot"), ("esxi-2", "Hot"), ("node-1", "Moved")}


def test_host_that_is_hot_at_the_first_load_is_not_a_change() -> None:
    cluster = FakeNodeCluster()
    log = ChangeLog(clock=lambda: NOW)
    log.connect({"vc-1": cluster.vcenter}, Cache(Log("cache")))
    cluster.add_vm(1, 1, 100, summary__quickStats__overallCpuReadiness=20)
    cluster.add_host(1)
    cluster.mark_loaded()
    cluster.modify("VirtualMachine", "vm-1", summary__quickStats__overallCpuReadiness=21)
    assert log.read().changes == []
    cluster.modify("VirtualMachine", "vm-1", summary__quickStats__overallCpuReadiness=0)
    assert [change.type for change in log.read().changes] == ["NoLongerHot"]


def test_flag_that_becomes_known_is_not_a_change(recorded: Recorded) -> None:
    recorded.enter("HostSystem", "host-9", name="esxi-9")
    recorded.enter("Datastore", "datastore-9", name="nfs-9")
    recorded.modify("HostSystem", "host-9", runtime__inMaintenanceMode=True)
    recorded.modify("Datastore", "datastore-9", summary__accessible=True)
    assert {change for change, _ in recorded.types()} == {"Added"}


def test_reload_reports_differences(recorded: Recorded) -> None:
    reload = InventoryReload(recorded.vcenter.inventory)
    reload.add([ObjectUpdate("enter", "HostSystem", "host-1", {"name": "esxi-1"})])
    reload.commit()
    assert ("Removed", "found by a reload") in recorded.types()


def test_list_is_bounded_and_names_from_when_it_is_complete(recorded: Recorded) -> None:
    for number in range(7):
        recorded.now = NOW + timedelta(minutes=number)
        recorded.modify("HostSystem", "host-1", runtime__inMaintenanceMode=number % 2 == 0)
    result = recorded.log.read()
    assert (len(result.changes), result.limit) == (5, 5)
    assert result.since == NOW + timedelta(minutes=1)
    assert result.changes[0].time == NOW + timedelta(minutes=6)
    recorded.now = NOW + timedelta(minutes=64)
    result = recorded.log.read()
    assert [change.time.minute for change in result.changes] == [6, 5, 4]
    assert result.since == NOW + timedelta(minutes=4)


def make_group(replicas: int, *members: ReplicaStatus, ready: bool) -> VmGroup:
    condition = Condition(
        type="Ready",
        status="True" if ready else "False",
        reason="R",
        message="" if ready else "cloning",
    )
    return VmGroup(
        metadata=ObjectMeta(name="web", namespace="default"),
        spec=VmGroupSpec(cpu=1, memory=1, replicas=replicas, template="t"),
        status=VmGroupStatus(replicas=list(members), conditions=[condition]),
    )


def make_replica(name: str, state: Literal["Cloning", "Present"] = "Present") -> ReplicaStatus:
    return ReplicaStatus(name=name, slot=1, instanceUUID=name, state=state)


def test_changes_of_groups() -> None:
    log, cache = ChangeLog(clock=lambda: NOW), Cache(Log("cache"))
    log.connect({}, cache)
    changed, key = cache.store(VmGroup).changed, Key("default", "web")
    first = make_group(2, make_replica("a"), make_replica("b"), ready=True)
    first.status.replicas[1].leaving = True
    second = make_group(3, make_replica("c", "Cloning"), ready=False)
    third = make_group(3, make_replica("c"), ready=True)
    changed.emit(key, None, first, Origin.INITIAL_LIST)
    for old, new in ((first, second), (second, third), (third, None)):
        changed.emit(key, old, new, Origin.WATCH)
    assert [(change.type, change.message) for change in reversed(log.read().changes)] == [
        ("Scaled", "from 2 to 3"),
        # Not b: it was marked for deletion before.
        ("Replaced", "VM a is gone"),
        ("NotReady", "cloning"),
        ("Cloned", "VM c"),
        ("Ready", ""),
        ("Removed", ""),
    ]


def make_gpu_info(selected: str | None) -> GPUInfo:
    return GPUInfo(
        metadata=ObjectMeta(name="train", namespace="default"),
        spec=GPUInfoSpec(),
        status=GPUInfoStatus(suitableNodeName=selected),
    )


def test_node_that_a_gpu_info_selects() -> None:
    log, cache = ChangeLog(clock=lambda: NOW), Cache(Log("cache"))
    log.connect({}, cache)
    changed, key = cache.store(GPUInfo).changed, Key("default", "train")
    infos = [make_gpu_info(name) for name in (None, "node-1", "node-1", "node-2", NONE_AVAILABLE)]
    changed.emit(key, None, infos[0], Origin.INITIAL_LIST)
    for old, new in pairwise(infos):
        changed.emit(key, old, new, Origin.WATCH)
    assert [(change.type, change.message) for change in reversed(log.read().changes)] == [
        ("Selected", "node-1"),
        ("Selected", "node-2, before: node-1"),
        ("NoneSelected", "before: node-2"),
    ]
