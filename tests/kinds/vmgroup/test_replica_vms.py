from __future__ import annotations

from kubewright import ObjectMeta
from support.fake_environment import FakeEnvironment
from vsphere_operators.kinds.vmgroup import VmGroup
from vsphere_operators.kinds.vmgroup.replica_vms import groups_by_vm
from vsphere_operators.kinds.vmgroup.types import ReplicaStatus, VmGroupSpec, VmGroupStatus

REPLICA_UUID = "5f0e5a8e-0000-5000-8000-00000000000a"


def make_group(vcenter: str) -> VmGroup:
    replica = ReplicaStatus(name="web-replica-a", slot=1, instanceUUID=REPLICA_UUID)
    planned = ReplicaStatus(name="web-replica-b", slot=2, instanceUUID="not-cloned-yet")
    return VmGroup(
        metadata=ObjectMeta(namespace="default", name="web"),
        spec=VmGroupSpec(cpu=1, memory=1, replicas=2, template="t"),
        status=VmGroupStatus(vcenter=vcenter, replicas=[replica, planned]),
    )


def test_vms_are_found_by_the_recorded_instance_uuid() -> None:
    environment = FakeEnvironment()
    environment.enter("VirtualMachine", "vm-1", name="renamed", config__instanceUuid=REPLICA_UUID)
    environment.enter("VirtualMachine", "vm-2", name="web-replica-b")
    inventory = environment.vcenter.inventory
    assert groups_by_vm([make_group("vc-1")], inventory) == {"vm-1": "default/web"}
    assert groups_by_vm([make_group("vc-2")], inventory) == {}
