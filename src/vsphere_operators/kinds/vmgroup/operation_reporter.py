"""Reports the operations in one vCenter: metrics, and Events of what the status does not show.

events.py records the Events of clones and deletions. A failure that only a user can fix makes the
group not ready, and the engine records an Event of that; so only other failures are reported here.
"""

from __future__ import annotations

from .causes import find_deletion_cause
from .group_memory import GroupMemoryStore
from .metrics import OperationMetrics
from .model import (
    Action,
    Adopt,
    Clone,
    Destroy,
    OperationFailure,
    PowerOff,
    PowerOn,
    ReplicaVm,
    Resize,
    UndoAdoption,
)
from .reasons import Reason
from .step import GroupInput


class OperationReporter:
    def __init__(self, memory_store: GroupMemoryStore, metrics: OperationMetrics) -> None:
        self._memory_store, self._metrics = memory_store, metrics

    def report_success(self, group: GroupInput, action: Action, seconds: float) -> None:
        """The task of an action has succeeded, `seconds` after it was requested."""
        memory, desired = self._memory_store.for_group(group.group_id.uid), group.desired
        match action:
            case Clone(record=record):
                self._metrics.created[memory.creation_causes.get(record.name, "unknown")].inc()
                self._metrics.clone_seconds.observe(seconds)
            case Destroy(vm=vm):
                cause = find_deletion_cause(desired, vm.fingerprint, vm.size)
                self._metrics.destroyed[cause].inc()
                memory.refs_stopped_for_resize.discard(vm.ref)
            case Adopt(record=record, vm=adopted_vm):
                group.record_event(
                    "Normal",
                    Reason.VM_ADOPTED,
                    f'Adopted VM "{record.name}" ({adopted_vm.ref}).',
                )
            case UndoAdoption(vm=vm):
                group.record_event(
                    "Normal",
                    Reason.VM_ADOPTION_UNDONE,
                    f'Undid the adoption of VM "{vm.replica_name}" ({vm.ref}).',
                )
            case Resize(vm=vm):
                group.record_event(
                    "Normal",
                    Reason.VM_RESIZED,
                    f'Resized VM "{vm.replica_name}" from {_format_size(vm.cpus, vm.memory_mb)} '
                    f"to {_format_size(action.cpus, action.memory_mb)}.",
                )
            case PowerOn(vm=vm) if desired.power == "poweredOn":
                if vm.ref in memory.refs_stopped_for_resize:
                    memory.refs_stopped_for_resize.discard(vm.ref)
                    return
                state = "suspended" if vm.power == "suspended" else "powered off"
                group.record_event(
                    "Normal",
                    Reason.VM_POWERED_ON,
                    f'Powered on VM "{vm.replica_name}", which was {state}.',
                )
            case PowerOff(vm=vm) if not desired.deleting and not _is_terminating(group, vm):
                if desired.power == "poweredOn":
                    memory.refs_stopped_for_resize.add(vm.ref)
                    return
                group.record_event(
                    "Normal",
                    Reason.VM_POWERED_OFF,
                    f'Powered off VM "{vm.replica_name}": spec.powerState is poweredOff.',
                )

    def report_failure(self, group: GroupInput, action: Action, failure: OperationFailure) -> None:
        """A request was rejected or got no response, or its task has failed."""
        is_clone = isinstance(action, Clone)
        if is_clone:
            self._metrics.clone_failures.inc()
        if not failure.permanent:
            reason = Reason.CLONE_FAILED if is_clone else Reason.OPERATION_FAILED
            group.record_event("Warning", reason, failure.message)


def _is_terminating(group: GroupInput, vm: ReplicaVm) -> bool:
    return any(record.terminating for record in group.records if record.name == vm.replica_name)


def _format_size(cpus: int, memory_mb: int) -> str:
    return f"{cpus} vCPU{'' if cpus == 1 else 's'} and {memory_mb} MB"
