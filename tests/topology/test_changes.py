from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest

from kubewright import Cache, Condition, Key, ObjectMeta
from kubewright.cache import Origin
from kubewright.log import Log
from support.fake_node_cluster import FakeNodeCluster
from vsphere_operators.kinds.vmgroup.types import ReplicaStatus, VmGroup, VmGroupSpec, VmGroupStatus
from vsphere_operators.topology.changes import ChangeLog
from vsphere_operators.vsphere.inventory import InventoryReload
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
