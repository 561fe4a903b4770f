"""The status of a VmGroup: the records that a new manager continues from, and the conditions."""

from __future__ import annotations

from kubewright import Condition
from kubewright.errors import redact

from ...vsphere.inventory import Inventory
from ...vsphere.model import FINAL_TASK_STATES, VirtualMachine
from .model import Phase, Plan, ReplicaRecord
from .reasons import Reason
from .step import StepResult
from .types import API_GROUP, FolderStatus, ReplicaStatus, VmGroup, VmGroupStatus

# With this length `kubectl get vg` of the samples is 140 columns wide, 10 more than with the
# message of success, and shows the message about a missing template without a cut.
_MAX_SUMMARY_LENGTH = 45


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
            adopted_from=replica.adoptedFrom,
            terminating=replica.leaving,
        )
        for replica in group.status.replicas
    )


def last_known_refs_of(group: VmGroup) -> dict[str, str]:
    """MoRefs of the VMs by replica, as last reported."""
    return {replica.name: replica.moRef for replica in group.status.replicas if replica.moRef}


def reported_uuids_of(group: VmGroup) -> frozenset[str]:
    """InstanceUuids of the VMs that the stored status reports as adoptable."""
    vms = group.status.adoption.vms if group.status.adoption else ()
    return frozenset(vm.instanceUUID for vm in vms if vm.verdict == "Adoptable")


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
        summary=summarize(redact(plan.message)),
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
        adoption=result.adoption,
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
    # of the VM. The host is kept for the Event about a VM that is gone.
    kept = previous if previous and previous.attempt == record.attempt else None
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
        adoptedFrom=record.adopted_from,
        leaving=record.terminating,
        moRef=vm.ref if vm else kept.moRef if kept else "",
        power=vm.power if vm else "",
        ipAddress=vm.ip_address if vm else "",
        host=inventory.name_of(vm.host) if vm else kept.host if kept else "",
    )


def report_without_plan(group: VmGroup, phase: Phase, message: str) -> None:
    """Set the phase of a group while its VMs cannot be observed; its records stay as they are."""
    status = group.status
    status.phase, status.lastMessage, status.summary = phase, message, summarize(message)
    status.desiredReplicas = group.spec.replicas
    status.conditions = [_degraded_condition(group, phase, status.readyReplicas)]


def summarize(message: str) -> str:
    """The first sentence, cut after a word to at most _MAX_SUMMARY_LENGTH characters."""
    sentence = message.partition(". ")[0].rstrip(".")
    if len(sentence) <= _MAX_SUMMARY_LENGTH:
        return sentence
    shortened = sentence[:_MAX_SUMMARY_LENGTH].rpartition(" ")[0]
    return f"{shortened or sentence[: _MAX_SUMMARY_LENGTH - 1]}…"


def _conditions_of(group: VmGroup, plan: Plan) -> list[Condition]:
    """Progressing and Degraded; the engine writes Ready."""
    if group.spec.paused:
        working, reason, message = False, Reason.PAUSED, "spec.paused is true."
    elif plan.phase == "PENDING":
        working, reason = True, Reason.WORKING
        message = "Replicas are being created, updated or deleted."
    else:
        working, reason, message = False, Reason.IDLE, "No operation is in progress."
    progressing = _build_condition(group, "Progressing", reason, message, is_true=working)
    return [progressing, _degraded_condition(group, plan.phase, plan.counts.ready)]


def _degraded_condition(group: VmGroup, phase: Phase, ready: int) -> Condition:
    """True exactly in phase ERROR."""
    desired, in_error = group.spec.replicas, phase == "ERROR"
    all_ready = ready >= desired
    message = "All replicas are ready" if all_ready else f"{ready}/{desired} replicas are ready"
    reason = Reason.NOT_IN_ERROR
    if in_error:
        reason = Reason.IN_ERROR if all_ready else Reason.TOO_FEW_READY
        message += "; the condition Ready has the error"
    elif not all_ready:
        message += "; the group is not in phase ERROR"
    message += "."
    return _build_condition(group, "Degraded", reason, message, is_true=in_error)


def _build_condition(
    group: VmGroup, condition_type: str, reason: Reason, message: str, *, is_true: bool
) -> Condition:
    return Condition(
        type=condition_type,
        status="True" if is_true else "False",
        reason=reason,
        message=message,
        observedGeneration=group.metadata.generation,
    )
