"""Builds desired states, records, VMs and observed states in one line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.model import (
    DesiredState,
    GroupFolder,
    ObservedState,
    ReplicaRecord,
    ReplicaVm,
)
from vsphere_operators.kinds.vmgroup.ownership import instance_uuid_of

DESIRED = DesiredState(
    cpus=1,
    memory_mb=1024,
    replicas=3,
    uid="uid-1",
    template="vm-t1",
    template_name="t",
    fingerprint="f1",
)
FOLDER = GroupFolder(
    ref="group-v1", name="team-a-web", path="/DC0/vm/vm-operator/team-a-web", is_empty=False
)


def make_record(number: int, **changes: Any) -> ReplicaRecord:
    name = f"r{number}"
    return replace(
        ReplicaRecord(
            sequence_number=number,
            name=name,
            instance_uuid=instance_uuid_of("uid-1", name),
            template="vm-t1",
            fingerprint="f1",
            state="Present",
        ),
        **changes,
    )


def make_vm(number: int, **changes: Any) -> ReplicaVm:
    name = f"r{number}"
    uuid = instance_uuid_of("uid-1", name)
    vm = ReplicaVm(
        replica_name=name,
        ref=f"vm-{number}",
        sequence_number=number,
        instance_uuid=uuid,
        fingerprint="f1",
        power="poweredOn",
        cpus=1,
        memory_mb=1024,
    )
    return replace(vm, **changes)


def make_observed(
    vms: Iterable[ReplicaVm] = (), records: Iterable[ReplicaRecord] | None = None, **changes: Any
) -> ObservedState:
    vms = tuple(vms)
    stored = (
        tuple(make_record(vm.sequence_number, fingerprint=vm.fingerprint) for vm in vms)
        if records is None
        else tuple(records)
    )
    return replace(ObservedState(records=stored, vms=vms, folder=FOLDER, max_actions=10), **changes)
