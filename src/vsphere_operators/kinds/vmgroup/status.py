"""TODO."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from kubewright import (
    Condition,
)
from kubewright.errors import redact

from ...vsphere.model import Task, VirtualMachine
from .model import GroupFolder, Plan, ReplicaRecord
from .types import (
    API_GROUP,
    FolderStatus,
    ReplicaStatus,
    VmGroup,
    VmGroupStatus,
)


class StatusContext(Struct, frozen=True, kw_only=True):
    """What a status shows beside the plan."""

    vcenter: str
    vms_by_replica: dict[str, VirtualMachine]
    """By name of the replica."""
    last_known_refs: Mapping[str, str]
    """What was last told of the VMs that are not seen: one that tells no configuration now is still known by it after a restart."""
    tasks: dict[str, Task]
    host_name: Callable[[str], str]
    folder: GroupFolder | None


def status_of(group: VmGroup, plan: Plan, around: StatusContext) -> VmGroupStatus:
    """All of the answer."""
    counts = plan.counts
    return VmGroupStatus(
        phase=plan.phase,
        currentReplicas=counts.current,
        desiredReplicas=group.spec.replicas,
        readyReplicas=counts.ready,
        updatedReplicas=counts.updated,
        lastMessage=redact(plan.message),
        selector=f"{API_GROUP}/vmgroup-uid={group.metadata.uid}",
        replicas=[_replica_status_of(each, around) for each in plan.records],
        folder=FolderStatus(ref=around.folder.ref, path=around.folder.path)
        if around.folder
        else None,
        vcenter=around.vcenter,
        conditions=_conditions_of(group, plan),
    )


def _replica_status_of(record: ReplicaRecord, around: StatusContext) -> ReplicaStatus:
    """One replica."""
    vm, task = around.vms_by_replica.get(record.name), around.tasks.get(record.task)
    running = task is not None and task.state in ("queued", "running")
    return ReplicaStatus(
        name=record.name,
        slot=record.slot,
        instanceUUID=record.instance_uuid,
        template=record.template,
        fingerprint=record.fingerprint,
        state=record.state,
        task=record.task,
        progress=task.progress_percent if task is not None and running else None,
        attempt=record.attempt,
        leaving=record.terminating,
        moRef=vm.ref
        if vm
        else around.last_known_refs.get(record.name, "")
        if record.state == "Present"
        else "",
        power=vm.power if vm else "",
        ipAddress=vm.ip_address if vm else "",
        host=around.host_name(vm.host) if vm else "",
    )


def _conditions_of(group: VmGroup, plan: Plan) -> list[Condition]:
    """Progressing and Degraded; Ready is the engine's."""
    working = plan.phase == "PENDING" and not group.spec.paused
    short = plan.counts.ready < group.spec.replicas
    return [
        _build_condition(
            group,
            "Progressing",
            working,
            "Working" if working else "Paused" if group.spec.paused else "Idle",
        ),
        _build_condition(
            group,
            "Degraded",
            short and plan.phase == "ERROR",
            "TooFewReady" if short and plan.phase == "ERROR" else "NotInError",
        ),
    ]


def _build_condition(group: VmGroup, type: str, holds: bool, reason: str) -> Condition:
    """One condition."""
    return Condition(
        type=type,
        status="True" if holds else "False",
        reason=reason,
        observedGeneration=group.metadata.generation,
    )
