"""Observes one group: inventory, marks and memory become a PlanInput. It does no I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from ...vsphere.model import FINAL_TASK_STATES, Folder, VirtualMachine
from ...vsphere.vcenter import VCenter
from .group_memory import (
    FOLDER_KEY,
    CloneTaskTracker,
    GroupMemory,
    GroupMemoryStore,
    infer_clone_state,
)
from .limits import Quota, ResourceAmount, find_quota_violation
from .model import (
    CloneBlocked,
    CloneState,
    DesiredState,
    GroupFolder,
    ObservedState,
    ReplicaRecord,
    ReplicaVm,
    VmPowerState,
)
from .ownership import (
    OwnershipIndex,
    OwnershipMark,
    describe_folder_conflict,
    find_conflicting_owner,
)
from .placement import Placement, PlacementResolver
from .reasons import Reason
from .step import GroupInput

# etcd stores at most 1.5 MB per object, and a record takes half a KB.
_MAX_REPLICAS = 1000
# While one of these tasks runs on a VM, other operations on it fail, whichever client started the
# task. A backup's snapshot, a vMotion or an attached disk does not matter.
_DISRUPTIVE_TASKS = ("powerOn", "powerOff", "suspend", "reset", "destroy", "unregister")


class PlanInput(Struct, frozen=True, kw_only=True):
    """Everything that a step decides on."""

    # The desired state with the template's MoRef, the blocker, and a surge within the quota.
    desired: DesiredState
    observed: ObservedState
    # None while no VM can be cloned.
    placement: Placement | None
    parent_folder: str
    blocker_reason: str
    vms_by_replica: dict[str, VirtualMachine]


class GroupObserver:
    """Observes the groups of one vCenter."""

    def __init__(
        self,
        vcenter: VCenter,
        ownership_index: OwnershipIndex,
        clone_tracker: CloneTaskTracker,
        memory_store: GroupMemoryStore,
    ) -> None:
        self._vcenter, self._inventory = vcenter, vcenter.inventory
        self._ownership_index, self._clone_tracker = ownership_index, clone_tracker
        self._memory_store = memory_store

    def observe(self, group: GroupInput) -> PlanInput:
        memory = self._memory_store.for_group(group.group_id.uid)
        resolver = PlacementResolver(
            self._inventory, group.requested_placement, group.defaults, group.limits
        )
        placement, template_ref, parent_ref = None, "", ""
        blocker: CloneBlocked | None = None
        try:
            resolver.check_requested()
            parent_ref = resolver.find_parent_folder(resolver.find_datacenter()).ref
            if not group.desired.deleting:
                template, placement = resolver.resolve(group.desired.template_name)
                template_ref = template.ref
        except CloneBlocked as error:
            blocker = error
        folder = self._find_group_folder(group, memory, parent_ref)
        if conflict := self._find_folder_conflict(group, folder, parent_ref):
            blocker, folder = blocker or conflict, None
        if folder is not None and folder.ref in self._inventory.folders:
            memory.created_folder = None
        blocker = blocker or _find_clone_blocker(group, memory)
        return PlanInput(
            desired=replace(
                _limit_surge_to_quota(group),
                template=template_ref,
                clone_blocker=str(blocker) if blocker and not group.desired.deleting else "",
            ),
            observed=self._observe_replicas(group, memory, folder),
            placement=placement,
            parent_folder=parent_ref,
            blocker_reason=blocker.reason if blocker else "",
            vms_by_replica={
                self._ownership_index.marks[ref].replica_name: self._inventory.vms[ref]
                for ref in self._ownership_index.refs_by_group_uid.get(group.group_id.uid)
                if ref in self._inventory.vms
            },
        )

    def _find_group_folder(
        self, group: GroupInput, memory: GroupMemory, parent_ref: str
    ) -> GroupFolder | None:
        """The folder by its reference, so that a user may rename or move it; else by its name."""
        inventory, created = self._inventory, memory.created_folder
        name = group.group_id.folder_name
        folder = (
            inventory.folders.get(group.folder_ref)
            or inventory.folders.get(created.ref if created else "")
            or next(
                (
                    candidate
                    for candidate in inventory.by_name(Folder, name)
                    if parent_ref and candidate.parent == parent_ref
                ),
                None,
            )
        )
        if folder is not None:
            return GroupFolder(
                ref=folder.ref,
                name=folder.name,
                path=inventory.path(folder.ref),
                is_empty=not inventory.children(folder.ref),
            )
        if created is not None and memory.clock() < created.expires_at:
            path = f"{inventory.path(parent_ref)}/{name}"
            return GroupFolder(ref=created.ref, name=name, path=path, is_empty=True)
        return None

    def _find_folder_conflict(
        self, group: GroupInput, folder: GroupFolder | None, parent_ref: str
    ) -> CloneBlocked | None:
        marks = self._ownership_index.marks
        children = self._inventory.children(folder.ref) if folder else ()
        owner = find_conflicting_owner(
            group.folder_claim,
            [marks[child.ref].group_id for child in children if child.ref in marks],
            group.folder_claims,
        )
        if owner is None:
            return None
        path = (
            folder.path
            if folder
            else f"{self._inventory.path(parent_ref)}/{group.group_id.folder_name}"
        )
        # The groups of other clusters are not known here; they are assumed to exist.
        owner_exists = owner.cluster_id != group.group_id.cluster_id or any(
            claim.group_id.uid == owner.uid for claim in group.folder_claims
        )
        return CloneBlocked(
            Reason.FOLDER_TAKEN, describe_folder_conflict(path, owner, owner_exists=owner_exists)
        )

    def _observe_replicas(
        self, group: GroupInput, memory: GroupMemory, folder: GroupFolder | None
    ) -> ObservedState:
        records = tuple(with_task(record, memory) for record in group.records)
        vms = tuple(self._find_replica_vms(group, memory, records))
        present = {vm.replica_name for vm in vms}
        absent = [record for record in records if record.name not in present]
        assigned_tasks: Collection[str] = ()
        if absent:
            assigned_tasks = group.list_recorded_tasks() | self._memory_store.list_sent_tasks()
        return ObservedState(
            records=records,
            vms=vms,
            clone_states={
                record.name: self._clone_state_of(
                    record,
                    memory,
                    assigned_tasks,
                    group.last_known_refs.get(record.name, ""),
                )
                for record in absent
            },
            conflicting_vms={
                record.name: path
                for record in absent
                if (path := self._find_conflicting_vm(record, folder))
            },
            failures=memory.active_failures(),
            folder=folder,
            # At least one action is tried: the limiter then remembers that the group waits.
            max_actions=max(1, self._vcenter.task_limiter.free_slots),
        )

    def _find_replica_vms(
        self, group: GroupInput, memory: GroupMemory, records: Sequence[ReplicaRecord]
    ) -> Iterator[ReplicaVm]:
        """The VMs that the group owns by their marks."""
        index, inventory, group_id = self._ownership_index, self._inventory, group.group_id
        tasks_in_progress = (
            task for task in inventory.tasks.values() if task.state not in FINAL_TASK_STATES
        )
        busy_refs = {
            task.entity
            for task in tasks_in_progress
            if task.description_id.rpartition(".")[2] in _DISRUPTIVE_TASKS
        }
        cloning_names = {
            record.name
            for record in records
            if (task := self._clone_tracker.tasks.get(record.task)) and task.state == "running"
        }
        names: set[str] = set()
        for ref in sorted(index.refs_by_group_uid.get(group_id.uid)):
            mark, vm = index.marks[ref], inventory.vms.get(ref)
            # Two VMs cannot have the same genuine mark: vCenter keeps instanceUuids unique.
            if (
                vm is not None
                and mark.group_id.cluster_id == group_id.cluster_id
                and mark.replica_name not in names
            ):
                names.add(mark.replica_name)
                yield self._build_replica_vm(
                    vm,
                    mark,
                    memory,
                    busy=ref in busy_refs or mark.replica_name in cloning_names,
                )

    def _build_replica_vm(
        self, vm: VirtualMachine, mark: OwnershipMark, memory: GroupMemory, *, busy: bool
    ) -> ReplicaVm:
        power_states = ("poweredOn", "poweredOff", "suspended")
        return ReplicaVm(
            replica_name=mark.replica_name,
            ref=vm.ref,
            sequence_number=mark.sequence_number,
            instance_uuid=vm.instance_uuid,
            fingerprint=mark.fingerprint,
            power=cast("VmPowerState", vm.power or "poweredOff"),
            cpus=vm.cpus or 0,
            memory_mb=vm.memory_mb or 0,
            unavailable=vm.connection not in ("connected", "") or vm.power not in power_states,
            busy=busy or vm.ref in memory.busy_refs or _is_effect_pending(vm, memory),
            foreign_disks=self._foreign_disk_names(vm),
        )

    def _foreign_disk_names(self, vm: VirtualMachine) -> tuple[str, ...]:
        """Attached First Class Disks, and disk files outside of the VM's own directory."""
        config, disks = self._vcenter.vm_configs.values.get(vm.ref), self._vcenter.disks.disks
        if config is None:
            return ()
        return (
            *(disks[disk].name if disk in disks else disk for disk in config.first_class_disks),
            *config.foreign_disk_files(vm.vmx_path),
        )

    def _clone_state_of(
        self,
        record: ReplicaRecord,
        memory: GroupMemory,
        assigned_tasks: Collection[str],
        last_known_ref: str,
    ) -> CloneState:
        inventory = self._inventory
        # vCenter reports no instanceUuid of a VM with inaccessible files. Such a VM, or one with an
        # unread mark, may be the missing VM.
        last_known_vm = inventory.vms.get(last_known_ref)
        is_unreadable = last_known_vm is not None and not last_known_vm.instance_uuid
        if is_unreadable or any(
            vm.ref in self._ownership_index.unread_refs
            for vm in inventory.by_instance_uuid(record.instance_uuid)
        ):
            return CloneState.UNKNOWN
        return infer_clone_state(
            record,
            self._clone_tracker.tasks,
            assigned_tasks,
            memory.clone_requests.get(record.name),
            self._vcenter.watching_since,
            memory.clock(),
        )

    def _find_conflicting_vm(self, record: ReplicaRecord, folder: GroupFolder | None) -> str:
        """The path of a VM without mark that has the record's name in the folder, or its uuid."""
        inventory, index = self._inventory, self._ownership_index
        same_name = [
            vm
            for vm in inventory.by_name(VirtualMachine, record.name)
            if folder and vm.parent == folder.ref
        ]
        for vm in (*same_name, *inventory.by_instance_uuid(record.instance_uuid)):
            is_read = vm.instance_uuid and vm.ref not in index.unread_refs
            if is_read and vm.ref not in index.marks:
                return inventory.path(vm.ref)
        return ""


def with_task(record: ReplicaRecord, memory: GroupMemory) -> ReplicaRecord:
    """The record with the task that vCenter returned for it, which may not be stored yet."""
    request = memory.clone_requests.get(record.name)
    if request and request.attempt == record.attempt and request.task and record.state == "Planned":
        return replace(record, state="Cloning", task=request.task)
    return record


def _is_effect_pending(vm: VirtualMachine, memory: GroupMemory) -> bool:
    """Whether a task has succeeded on the VM and the inventory does not show its effect yet."""
    pending = memory.pending_effects.get(vm.ref)
    if pending is None or memory.clock() >= pending.expires_at:
        return False
    if pending.effect in ("poweredOn", "poweredOff"):
        return vm.power != pending.effect
    return pending.effect == "destroyed" or vm.config_version == pending.config_version_before


def _find_clone_blocker(group: GroupInput, memory: GroupMemory) -> CloneBlocked | None:
    """What prevents clones in addition to placement and folder."""
    desired, quota = group.desired, group.limits.quota
    if desired.replicas > _MAX_REPLICAS:
        return CloneBlocked(
            Reason.TOO_MANY_REPLICAS,
            f"spec.replicas: Invalid value: {desired.replicas}: must be less than or equal to "
            f"{_MAX_REPLICAS}",
        )
    if quota != Quota() and (
        violation := find_quota_violation(
            _usage_of(desired, desired.replicas), group.list_other_usage(), quota
        )
    ):
        return CloneBlocked(Reason.QUOTA_EXCEEDED, violation)
    failure = memory.active_failures().get(FOLDER_KEY)
    if failure is not None and failure.permanent:
        return CloneBlocked(failure.reason, failure.message)
    return None


def _limit_surge_to_quota(group: GroupInput) -> DesiredState:
    desired, quota = group.desired, group.limits.quota
    if quota == Quota() or not desired.rollout.max_surge:
        return desired
    others, surge = group.list_other_usage(), desired.rollout.max_surge
    while surge and find_quota_violation(
        _usage_of(desired, desired.replicas + surge), others, quota
    ):
        surge -= 1
    return replace(desired, rollout=replace(desired.rollout, max_surge=surge))


def _usage_of(desired: DesiredState, vms: int) -> ResourceAmount:
    return ResourceAmount(vms=vms, cpus=vms * desired.cpus, memory_mb=vms * desired.memory_mb)
