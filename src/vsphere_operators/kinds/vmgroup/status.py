"""The status of a VmGroup: the records that a new manager continues from, and the conditions."""

from __future__ import annotations

from typing import Literal

from kubewright import Condition
from kubewright.errors import redact

from ...vsphere.inventory import Inventory
from ...vsphere.model import FINAL_TASK_STATES, VirtualMachine
from .model import (
    Plan,
    ReplicaRecord,
)
from .reasons import Reason
from .step import StepResult
from .types import API_GROUP, FolderStatus, ReplicaStatus, VmGroup, VmGroupStatus


def records_of(group: VmGroup) -> tuple[ReplicaRecord, ...]:
    return tuple(
        ReplicaRecord(
            sequence_number=replica.slot,
            name=replica.name,
            instance_uuid=replica.instanceUUID,
            template=replica.template,
            fingerprint=replica.fingerprint,
            state=replica.state,
            task=replica.task,
            attempt=replica.attempt,
            cpus=replica.cpu,
            memory_mb=replica.memoryMB,
            terminating=replica.leaving,
        )
        for replica in group.status.replicas
    )


def last_known_refs_of(group: VmGroup) -> dict[str, str]:
    """MoRefs of the VMs by replica, as last reported."""
    return {replica.name: replica.moRef for replica in group.status.replicas if replica.moRef}


def _is_running(task_ref: str, inventory: Inventory) -> bool:
    task = inventory.tasks.get(task_ref)
    return task is not None and task.state not in FINAL_TASK_STATES


def group_status_of(group: VmGroup, result: StepResult, inventory: Inventory) -> VmGroupStatus:
    plan, folder = result.plan, result.folder
    previous = {replica.name: replica for replica in group.status.replicas}
    return VmGroupStatus(
        phase=plan.phase,
        currentReplicas=plan.counts.current,
        desiredReplicas=group.spec.replicas,
        readyReplicas=plan.counts.ready,
        updatedReplicas=plan.counts.updated,
        lastMessage=redact(plan.message),
        selector=f"{API_GROUP}/vmgroup-uid={group.metadata.uid}",
        replicas=[
            _replica_status_of(
                record,
                result.vms_by_replica.get(record.name),
                previous.get(record.name),
                inventory,
            )
            for record in plan.records
        ],
        folder=FolderStatus(ref=folder.ref, path=folder.path) if folder else None,
        # Not those of the inventory: during the step, another vCenter may have been loaded.
        vcenter=result.vcenter.name,
        vcenterUUID=result.vcenter.instance_uuid,
        conditions=_conditions_of(group, plan),
    )


def _replica_status_of(
    record: ReplicaRecord,
    vm: VirtualMachine | None,
    previous: ReplicaStatus | None,
    inventory: Inventory,
) -> ReplicaStatus:
    task = inventory.tasks.get(record.task)
    # vCenter reports no configuration of a VM with inaccessible files, and a VM may be missing for
    # a while. The reference is kept until the record is renewed, so that a new manager still knows
    # of the VM.
    kept_ref = previous.moRef if previous and previous.attempt == record.attempt else ""
    return ReplicaStatus(
        name=record.name,
        slot=record.sequence_number,
        instanceUUID=record.instance_uuid,
        template=record.template,
        fingerprint=record.fingerprint,
        state=record.state,
        task=record.task,
        progress=task.progress_percent if task and _is_running(task.ref, inventory) else None,
        attempt=record.attempt,
        cpu=record.cpus,
        memoryMB=record.memory_mb,
        leaving=record.terminating,
        moRef=vm.ref if vm else kept_ref,
        power=vm.power if vm else "",
        ipAddress=vm.ip_address if vm else "",
        host=inventory.name_of(vm.host) if vm else "",
    )


def _conditions_of(group: VmGroup, plan: Plan) -> list[Condition]:
    """Progressing and Degraded; the engine writes Ready."""
    desired, ready = group.spec.replicas, plan.counts.ready
    progressing: tuple[Literal["True", "False"], Reason, str]
    degraded: tuple[Literal["True", "False"], Reason, str]
    if group.spec.paused:
        progressing = ("False", Reason.PAUSED, "spec.paused is true.")
    elif plan.phase == "PENDING":
        progressing = ("True", Reason.WORKING, "Replicas are being created, updated or deleted.")
    else:
        progressing = ("False", Reason.IDLE, "No operation is in progress.")
    if ready < desired and plan.phase == "ERROR":
        degraded = ("True", Reason.TOO_FEW_READY, f"{ready}/{desired} replicas are ready.")
    elif ready < desired:
        message = f"{ready}/{desired} replicas are ready; the group is not in phase ERROR."
        degraded = ("False", Reason.NOT_IN_ERROR, message)
    else:
        degraded = ("False", Reason.NOT_IN_ERROR, "All replicas are ready.")
    return [
        Condition(
            type=condition_type,
            status=status,
            reason=reason,
            message=message,
            observedGeneration=group.metadata.generation,
        )
        for condition_type, (status, reason, message) in (
            ("Progressing", progressing),
            ("Degraded", degraded),
        )
    ]
