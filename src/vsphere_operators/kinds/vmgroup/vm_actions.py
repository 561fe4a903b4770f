"""The actions on existing VMs: adopt, undo that, delete, power. plan.py decides their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .model import (
    Action,
    Adopt,
    CloneState,
    DesiredState,
    Destroy,
    PowerOff,
    PowerOn,
    ReplicaVm,
    UndoAdoption,
)
from .replica import Replica, has_desired_size


def _idle_vms(replicas: Sequence[Replica], *, terminating: bool) -> Iterator[ReplicaVm]:
    for replica in replicas:
        vm = replica.vm
        if vm is not None and not vm.busy and replica.terminating == terminating:
            yield vm


def adoption_actions(desired: DesiredState, adopted: Sequence[Replica]) -> Iterator[Action]:
    """Adopt VMs, or undo that, as a user requested. `adopted` have a record with `adopted_from`."""
    if desired.deleting:
        return
    if desired.undo_adoption:
        for vm in _idle_vms(adopted, terminating=False):
            if vm.adopted_from and not vm.unavailable:
                yield UndoAdoption(vm)
        return
    for replica in adopted:
        if (
            replica.clone_state is CloneState.ADOPTING
            and not replica.terminating
            and replica.vm_to_adopt is not None
        ):
            yield Adopt(replica.record, replica.vm_to_adopt)


def deletion_actions(replicas: Sequence[Replica]) -> Iterator[Action]:
    for vm in _idle_vms(replicas, terminating=True):
        # Destroy_Task deletes attached disks too, and these are other users' data. It accepts a
        # suspended VM.
        if not vm.foreign_disks:
            yield PowerOff(vm) if vm.power == "poweredOn" else Destroy(vm)


def power_actions(desired: DesiredState, replicas: Sequence[Replica]) -> Iterator[Action]:
    if desired.deleting:
        return
    for vm in _idle_vms(replicas, terminating=False):
        # A VM of another size is resized first, while it is off.
        if not vm.unavailable and vm.power != desired.power and has_desired_size(desired, vm):
            yield PowerOn(vm) if desired.power == "poweredOn" else power_off_action(vm)


def power_off_action(vm: ReplicaVm) -> Action:
    """The next step to powered off: PowerOffVM_Task rejects a suspended VM, so it is resumed."""
    return PowerOff(vm) if vm.power == "poweredOn" else PowerOn(vm)
