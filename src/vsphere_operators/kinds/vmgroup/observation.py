"""Observes one group: inventory, marks and memory become a PlanInput. It does no I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from ...vsphere.model import FINAL_TASK_STATES, VirtualMachine
from ...vsphere.vcenter import VCenter
from .absence import Absence, AbsenceTracker
from .adoption import AdoptionPlan, AdoptionPlanner
from .clone_blocker import find_clone_blocker
from .clone_state import (
    REQUEST_SETTLE_SECONDS,
    CloneTaskTracker,
    infer_clone_state,
    is_clone_unfinished,
    may_have_been_cloned,
    may_have_had_vm,
    reset_if_replaced,
    with_task,
)
from .folder import FolderFinder
from .group_memory import GroupMemory, GroupMemoryStore
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
from .ownership import OwnershipIndex, OwnershipMark
from .placement import Placement, PlacementResolver
from .step import GroupInput
from .types import AdoptionStatus
from .usage import UsageCounter

# While one of these tasks runs on a VM, other operations on it fail, whichever client started the
# task. A backup's snapshot, a vMotion or an attached disk does not matter.
_DISRUPTIVE_TASKS = ("powerOn", "powerOff", "suspend", "reset", "destroy", "unregister")


class PlanInput(Struct, frozen=True, kw_only=True):
    """Everything that a step decides on."""

    # The desired state with the template's MoRef, the blocker, and the group's part of the quota.
    desired: DesiredState
    observed: ObservedState
    # None while no VM can be cloned.
    placement: Placement | None
    parent_folder: str
    blocker_reason: str
    vms_by_replica: dict[str, VirtualMachine]
    adoption: AdoptionStatus | None = None
    # References of missing VMs; whether vCenter still has them is read before the plan.
    refs_to_read: tuple[str, ...] = ()
    # Whether the group waits for a missing VM, until it comes back or counts as deleted.
    waits_for_missing_vm: bool = False
    # When to decide again on missing VMs; None if none is missing.
    recheck_seconds: float | None = None


class _ResolvedPlacement(Struct, frozen=True, kw_only=True):
    # "" if the parent folder cannot be found.
    parent_ref: str = ""
    # None if the group is being deleted, or something cannot be found.
    template: VirtualMachine | None = None
    placement: Placement | None = None
    # Why something cannot be found.
    blocker: CloneBlocked | None = None


class GroupObserver:
    """Observes the groups of one vCenter."""

    def __init__(
        self,
        vcenter: VCenter,
        ownership_index: OwnershipIndex,
        clone_tracker: CloneTaskTracker,
        memory_store: GroupMemoryStore,
        absences: AbsenceTracker,
    ) -> None:
        self._vcenter, self._inventory = vcenter, vcenter.inventory
        self._ownership_index, self._clone_tracker = ownership_index, clone_tracker
        self._memory_store, self._absences = memory_store, absences
        self._folders = FolderFinder(vcenter, ownership_index)
        self._adoptions = AdoptionPlanner(vcenter)
        self._usage = UsageCounter(vcenter.inventory, ownership_index, memory_store)

    def forget_group(self, uid: str) -> None:
        self._folders.forget_group(uid)

    def observe(self, group: GroupInput) -> PlanInput:
        memory = self._memory_store.for_group(group.group_id.uid)
        resolver = PlacementResolver(
            self._inventory, group.requested_placement, group.defaults, group.limits
        )
        resolved = _resolve_placement(resolver, group.desired)
        template, blocker = resolved.template, resolved.blocker
        folder = self._folders.find(group, memory, resolved.parent_ref)
        vms = tuple(self._find_replica_vms(group, memory))
        desired = self._usage.apply_quota(group)
        adoption = self._adoptions.plan(
            group, desired, folder, vms, partial(self._is_owner_change_pending, group, memory)
        )
        if conflict := self._folders.find_conflict(group, folder, resolved.parent_ref):
            blocker, folder = blocker or conflict, None
        else:
            blocker = adoption.blocker or blocker
        if folder is not None and folder.ref in self._inventory.folders:
            memory.created_folder = None
        blocker = blocker or find_clone_blocker(desired, memory)
        observed = self._observe_replicas(group, memory, folder, vms, adoption)
        absences = self._judge_absences(group, observed, resolver)
        return PlanInput(
            desired=replace(
                desired,
                template=template.ref if template else "",
                template_cores_per_socket=template.cores_per_socket if template else 0,
                clone_blocker=str(blocker) if blocker and not group.desired.deleting else "",
                undo_adoption=group.adoption_request is not None and group.adoption_request.undo,
            ),
            observed=replace(
                observed,
                clone_states={
                    **observed.clone_states,
                    **dict.fromkeys(absences, CloneState.MISSING),
                },
                missing_vms={name: absence.message for name, absence in absences.items()},
            ),
            placement=resolved.placement,
            parent_folder=resolved.parent_ref,
            blocker_reason=blocker.reason if blocker else "",
            vms_by_replica={
                name: vm for name, vm in adoption.vms_to_adopt.items() if vm is not None
            }
            | {
                self._ownership_index.marks[ref].replica_name: self._inventory.vms[ref]
                for ref in self._ownership_index.refs_by_group_uid.get(group.group_id.uid)
                if ref in self._inventory.vms
            },
            adoption=adoption.status,
            refs_to_read=tuple(
                absence.ref_to_read for absence in absences.values() if absence.ref_to_read
            ),
            waits_for_missing_vm=any(not absence.is_brief for absence in absences.values()),
            recheck_seconds=min(
                (absence.recheck_seconds for absence in absences.values()), default=None
            ),
        )

    def _judge_absences(
        self, group: GroupInput, observed: ObservedState, resolver: PlacementResolver
    ) -> dict[str, Absence]:
        """The records with a VM that is missing, and not known to be deleted."""
        absent = [
            record
            for record in observed.records
            if observed.clone_states.get(record.name) is CloneState.NOT_IN_PROGRESS
            # With its uuid, it is the VM without its mark. Another VM of its name proves nothing.
            and not self._inventory.by_instance_uuid(record.instance_uuid)
        ]
        if not absent:
            return {}
        compute_refs = resolver.find_compute_refs(group.desired.template_name)

        def find_missing(records: Iterable[ReplicaRecord]) -> dict[str, Absence]:
            absences = {
                record.name: self._absences.judge(
                    record.name,
                    record.instance_uuid,
                    group.last_known_refs.get(record.name, ""),
                    compute_refs,
                )
                for record in records
            }
            return {name: absence for name, absence in absences.items() if not absence.deleted}

        tasks, memory = self._clone_tracker.tasks, self._memory_store.for_group(group.group_id.uid)
        acting_since = self._memory_store.acting_since(group.group_id.uid, group.loaded_at)
        requests = {record.name: memory.find_request(record, group.loaded_at) for record in absent}
        had_vm = [
            record
            for record in absent
            if record.name in group.last_known_refs
            or may_have_had_vm(record, tasks, requests[record.name], acting_since)
        ]
        missing = find_missing(had_vm)
        if missing:
            self._absences.report_missing()
        if not self._absences.is_any_missing:
            return missing
        return missing | find_missing(
            record
            for record in absent
            if record not in had_vm and may_have_been_cloned(requests[record.name])
        )

    def _observe_replicas(
        self,
        group: GroupInput,
        memory: GroupMemory,
        folder: GroupFolder | None,
        replica_vms: Sequence[ReplicaVm],
        adoption: AdoptionPlan,
    ) -> ObservedState:
        vms = {vm.replica_name: vm for vm in replica_vms}
        records = tuple(with_task(record, memory) for record in group.records)
        absent = [record for record in records if record.name not in vms]
        unreadable_vms = self._find_unreadable_vms(absent, group.last_known_refs)
        unread_vms = frozenset(record.name for record in absent if self._has_unread_vm(record))
        sent_tasks: Collection[str] = ()
        if absent or any(record.state != "Present" for record in records):
            sent_tasks = self._memory_store.list_sent_tasks(group.loaded_at)
        unfinished = {
            record.name
            for record in records
            if record.name in vms
            and is_clone_unfinished(
                reset_if_replaced(
                    record, group.last_known_refs.get(record.name, ""), vms[record.name].ref
                ),
                self._clone_tracker.tasks,
                sent_tasks,
                memory.find_request(record, group.loaded_at),
                self._memory_store.acting_since(group.group_id.uid, group.loaded_at),
                memory.clock(),
            )
        }
        return ObservedState(
            records=records,
            vms=tuple(replace(vm, busy=vm.busy or name in unfinished) for name, vm in vms.items()),
            clone_states={
                record.name: CloneState.UNKNOWN
                if record.name in unreadable_vms or record.name in unread_vms
                else self._clone_state_of(group, record, memory, sent_tasks)
                for record in absent
            }
            | dict.fromkeys(unfinished, CloneState.RUNNING)
            | dict(adoption.clone_states),
            conflicting_vms={
                record.name: path
                for record in absent
                if record.name not in adoption.clone_states
                and (path := self._find_conflicting_vm(record, folder))
            },
            unreadable_vms=unreadable_vms,
            unread_vms=unread_vms,
            failures=memory.active_failures(),
            vms_to_adopt=adoption.vms_to_adopt,
            requested_adoptions=adoption.requested,
            folder=folder,
            # At least one action is tried: the limiter then remembers that the group waits.
            max_actions=max(1, self._vcenter.task_limiter.free_slots),
        )

    def _is_owner_change_pending(
        self, group: GroupInput, memory: GroupMemory, vm: VirtualMachine
    ) -> bool:
        # A request of a manager that died just before may still begin.
        acting_since = self._memory_store.acting_since(group.group_id.uid, group.loaded_at)
        return (
            memory.is_owner_change_pending(vm)
            or memory.clock() - acting_since < REQUEST_SETTLE_SECONDS
            or any(
                task.entity == vm.ref and task.state not in FINAL_TASK_STATES
                for task in self._inventory.tasks.values()
            )
        )

    def _find_replica_vms(self, group: GroupInput, memory: GroupMemory) -> Iterator[ReplicaVm]:
        """The VMs that the group owns by their marks."""
        index, inventory, group_id = self._ownership_index, self._inventory, group.group_id
        tasks_in_progress = (
            task for task in inventory.tasks.values() if task.state not in FINAL_TASK_STATES
        )
        tasks_by_ref = [
            (task.entity, task.description_id.rpartition(".")[2]) for task in tasks_in_progress
        ]
        busy_refs = {ref for ref, task in tasks_by_ref if task in _DISRUPTIVE_TASKS}
        resized_refs = {ref for ref, task in tasks_by_ref if task == "reconfigure"}
        # A request of a manager that died just before may still begin.
        acting_since = self._memory_store.acting_since(group.group_id.uid, group.loaded_at)
        is_recent = memory.clock() - acting_since < REQUEST_SETTLE_SECONDS
        names: set[str] = set()
        for ref in sorted(index.refs_by_group_uid.get(group_id.uid)):
            mark, vm = index.marks[ref], inventory.vms.get(ref)
            # A mark is made for one instanceUuid, and vCenter keeps these unique.
            if (
                vm is not None
                and mark.group_id.cluster_id == group_id.cluster_id
                and mark.replica_name not in names
            ):
                names.add(mark.replica_name)
                yield replace(
                    self._build_replica_vm(vm, mark, memory, busy=ref in busy_refs),
                    resize_possible=is_recent or ref in resized_refs,
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
            cores_per_socket=vm.cores_per_socket,
            memory_mb=vm.memory_mb or 0,
            unavailable=vm.connection not in ("connected", "") or vm.power not in power_states,
            busy=busy or vm.ref in memory.busy_refs or memory.is_effect_pending(vm),
            foreign_disks=self._foreign_disk_names(vm),
            adopted_from=mark.origin.instance_uuid if mark.origin else "",
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

    def _find_unreadable_vms(
        self, absent: Iterable[ReplicaRecord], last_known_refs: Mapping[str, str]
    ) -> dict[str, str]:
        """The paths of VMs that may be the missing ones, by record."""
        vms = self._inventory.vms
        return {
            record.name: self._inventory.path(vm.ref)
            for record in absent
            # vCenter reports no instanceUuid of a VM with inaccessible files.
            if (vm := vms.get(last_known_refs.get(record.name, ""))) and not vm.instance_uuid
        }

    def _has_unread_vm(self, record: ReplicaRecord) -> bool:
        return any(
            vm.ref in self._ownership_index.unread_refs
            for vm in self._inventory.by_instance_uuid(record.instance_uuid)
        )

    def _clone_state_of(
        self,
        group: GroupInput,
        record: ReplicaRecord,
        memory: GroupMemory,
        sent_tasks: Collection[str],
    ) -> CloneState:
        return infer_clone_state(
            record,
            self._clone_tracker.tasks,
            sent_tasks,
            memory.find_request(record, group.loaded_at),
            self._memory_store.acting_since(group.group_id.uid, group.loaded_at),
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


def _resolve_placement(resolver: PlacementResolver, desired: DesiredState) -> _ResolvedPlacement:
    parent_ref, template, placement = "", None, None
    try:
        resolver.check_requested()
        parent_ref = resolver.find_parent_folder(resolver.find_datacenter()).ref
        if not desired.deleting:
            template, placement = resolver.resolve(desired.template_name)
    except CloneBlocked as error:
        return _ResolvedPlacement(parent_ref=parent_ref, blocker=error)
    return _ResolvedPlacement(parent_ref=parent_ref, template=template, placement=placement)
