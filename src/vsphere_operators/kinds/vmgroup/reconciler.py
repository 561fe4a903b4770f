"""One step of one group: look, plan, and either hand back what is to be stored first, or do what the plan says.

Case (what the object says) -> Ground (where) -> Seen (what is there) -> plan -> Workshop (do) -> Report (what the object is told)
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from ...vsphere.faults import Busy, VCenterError
from ...vsphere.model import VirtualMachine
from .executor import FOLDER_KEY, Executor, OperationContext
from .expectations import INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, NO_CREATED_FOLDER
from .limits import NamespaceLimits, Quota, QuotaUsage, find_quota_violation
from .model import (
    Action,
    Clone,
    CloneBlocked,
    CloneState,
    CreateFolder,
    DesiredState,
    DestroyFolder,
    GroupFolder,
    ObservedState,
    Plan,
    RemoveFinalizer,
    ReplicaRecord,
)
from .observation import ObservationSources, find_group_folder, observe_group, with_task
from .ownership import (
    FolderClaim,
    GroupId,
    describe_folder_conflict,
    find_conflicting_owner,
    folder_name,
    generate_replica_name,
)
from .placement import Placement, PlacementResolver
from .plan import plan

_MAX_REPLICAS = 1000
"""More records do not fit into one object: etcd takes 1.5 MB, and a record is half a KB."""
_SHORT_REQUEUE_SECONDS = 1.0
_UNWATCHED_REASONS = ("SecretNotFound", "SecretForbidden", "SecretIncomplete")
"""Obstacles whose end nobody tells us: nobody watches Secrets, since that would need a right to all of them."""


class GroupInput(Struct, frozen=True, kw_only=True):
    """What the object says, and what has to be known of others."""

    group_id: GroupId
    desired: DesiredState
    """Without template and obstacle, which depend on what is there."""
    generation: int
    records: tuple[ReplicaRecord, ...]
    folder_ref: str = ""
    """Reference of the group's folder, as it was stored."""
    requested_placement: Mapping[str, str] = {}
    defaults: Mapping[str, str] = {}
    limits: NamespaceLimits = NamespaceLimits()
    folder_claim: FolderClaim
    folder_claims: Collection[FolderClaim] = ()
    """Of all groups with the same folder name."""
    list_other_usage: Callable[[], Collection[QuotaUsage]]
    """Of the other groups of the namespace."""
    list_recorded_tasks: Callable[[], set[str]]
    """Clone tasks that stored records of any group name."""
    last_known_refs: Mapping[str, str] = {}
    """References of the VMs as they were last told, by name of the replica."""
    linked_clone: bool = False
    storage_policy: str = ""


class ClusterActions(Struct, frozen=True, kw_only=True):
    """What a step may use of Kubernetes."""

    log: Callable[[str], None]
    """Writes a line into the log."""
    require_leadership: Callable[[], None]
    confirm_deletion: Callable[[str], Awaitable[bool]]
    warn: Callable[[str, str], None]
    """An Event on the object: reason and words."""
    read_extra_config: Callable[[], Awaitable[dict[str, str]]]
    """extraConfig for new replicas; raises Obstacle."""


class StepResult(Struct, frozen=True, kw_only=True):
    """What came of a step."""

    plan: Plan
    reason: str
    """Of Ready, where it does not hold."""
    folder: GroupFolder | None
    vms_by_replica: dict[str, VirtualMachine]
    """By name of the replica."""
    requeue_after_seconds: float | None
    """When to look again; None is: when something changes."""
    cleanup_finished: bool = False
    """Of a group that is to go: nothing is left."""


class GroupReconciler:
    """Looks after groups in one vCenter."""

    def __init__(self, workshop: Executor) -> None:
        self.executor, self.vcenter, self.inventory = (
            workshop,
            workshop.vcenter,
            workshop.vcenter.inventory,
        )

    async def run_step(self, case: GroupInput, means: ClusterActions) -> StepResult:
        """Look, plan, do."""
        memory = self.executor.expectations_for(case.group_id.uid)
        memory.observe_generation(case.generation)
        sight = ObservationSources(
            vcenter=self.vcenter,
            ownership_index=self.executor.ownership_index,
            clone_tracker=self.executor.clone_tracker,
            expectations=memory,
            group_id=case.group_id,
            list_claimed_tasks=lambda: case.list_recorded_tasks() | self.executor.list_sent_tasks(),
            last_known_refs=case.last_known_refs,
        )
        memory.check_writes_kept(case.records)
        scene, made = await self.observe_and_plan(case, sight)
        for line in made.log_lines:
            means.log(line)
        if made.write_status_first:
            memory.expect_records(scene.observed.records, made.records)
            self.vcenter.task_limiter.stop_waiting(_task_owner_of(case.group_id))
            return self.build_result(scene, made, requeue_after_seconds=0.0)
        job = OperationContext(
            group_id=case.group_id,
            expectations=memory,
            log=means.log,
            require_leadership=means.require_leadership,
            confirm_deletion=means.confirm_deletion,
            linked_clone=case.linked_clone,
            storage_policy=case.storage_policy,
        )
        if any(isinstance(each, Clone) for each in made.actions):
            try:
                job = replace(job, extra_config=await means.read_extra_config())
            except CloneBlocked as error:
                made = replace(
                    made, actions=_without_clones(made.actions), phase="ERROR", message=str(error)
                )
                scene = replace(scene, blocker_reason=error.reason)
        finished = await self._execute_actions(job, scene, made.actions)
        if finished and scene.folder is not None and case.desired.deletion_policy == "Destroy":
            words = f"the folder {scene.folder.path} stays, since there is something in it that is not this group's"
            means.warn("FolderKept", words)
        told = tuple(with_task(each, memory) for each in made.records)
        memory.keep_only({*(each.name for each in told), FOLDER_KEY})
        return self.build_result(
            scene,
            replace(made, records=told),
            requeue_after_seconds=self._choose_requeue_delay(scene, made, sight),
            cleanup_finished=finished,
        )

    async def observe_and_plan(
        self, case: GroupInput, sight: ObservationSources
    ) -> tuple[Observation, Plan]:
        """What is there, and what to do.

        Who is chosen to go is not taken back, so everybody who is chosen has been read just now: a volume may have been attached.
        """
        read: set[str] = set()
        while True:
            scene = self.observe(case, sight)
            made = plan(scene.desired, scene.observed, self._make_name_generator(case))
            chosen = [
                ref for ref in _newly_terminating_refs(scene.observed, made) if ref not in read
            ]
            if not chosen:
                return scene, made
            with suppress(VCenterError):
                await self.vcenter.vm_configs.refresh(chosen)
            read.update(chosen)

    def observe(self, case: GroupInput, sight: ObservationSources) -> Observation:
        """Where things go, what is in the way, what is there."""
        ground = PlacementResolver(
            self.inventory, case.requested_placement, case.defaults, case.limits
        )
        site, template, obstacle, parent = None, "", None, ""
        name = folder_name(case.group_id.namespace, case.group_id.name)
        try:
            ground.check_requested()
            parent = ground.find_parent_folder(ground.find_datacenter()).ref
            if not case.desired.deleting:
                source, site = ground.resolve(case.desired.template_name)
                template = source.ref
        except CloneBlocked as error:
            obstacle = error
        folder = find_group_folder(sight, case.folder_ref, parent, name)
        taken = find_conflicting_owner(
            case.folder_claim, self._find_folder_owners(folder), case.folder_claims
        )
        if taken is not None:
            where = folder.path if folder else f"{self.inventory.path(parent)}/{name}"
            lives = (
                any(each.group_id.uid == taken.uid for each in case.folder_claims)
                or taken.cluster_id != case.group_id.cluster_id
            )
            obstacle, folder = (
                obstacle
                or CloneBlocked(
                    "FolderTaken", describe_folder_conflict(where, taken, owner_exists=lives)
                ),
                None,
            )
        if folder is not None and folder.ref in self.inventory.folders:
            sight.expectations.created_folder = NO_CREATED_FOLDER
        obstacle = obstacle or self.find_blocker(case, sight)
        wish = replace(
            self._limit_surge_to_quota(case),
            template=template,
            blocker=str(obstacle) if obstacle and not case.desired.deleting else "",
        )
        return Observation(
            desired=wish,
            observed=observe_group(sight, case.records, folder),
            folder=folder,
            placement=site,
            parent_folder=parent,
            folder_name=name,
            blocker_reason=obstacle.reason if obstacle else "",
            vms_by_replica=self._find_vms_by_replica(case.group_id.uid),
        )

    def _find_vms_by_replica(self, uid: str) -> dict[str, VirtualMachine]:
        """The VMs of a group by name of the replica."""
        owners, machines = self.executor.ownership_index, self.inventory.vms
        return {
            owners.marks[ref].replica_name: machines[ref]
            for ref in owners.refs_by_group_uid.get(uid)
            if ref in machines
        }

    def _limit_surge_to_quota(self, case: GroupInput) -> DesiredState:
        """The wish with as much surge as the quota leaves."""
        wish, quota = case.desired, case.limits.quota
        if quota == Quota() or not wish.rollout.max_surge:
            return wish
        others, surge = case.list_other_usage(), wish.rollout.max_surge
        while surge and find_quota_violation(_usage_of(wish, wish.replicas + surge), others, quota):
            surge -= 1
        return replace(wish, rollout=replace(wish.rollout, max_surge=surge))

    def find_blocker(self, case: GroupInput, sight: ObservationSources) -> CloneBlocked | None:
        """What is in the way beside the places: too many, the quota, a folder that cannot be made."""
        if case.desired.replicas > _MAX_REPLICAS:
            words = f"{case.desired.replicas} replicas are more than one object can keep account of; ask for {_MAX_REPLICAS} at the most"
            return CloneBlocked("TooManyReplicas", words)
        quota = case.limits.quota
        if quota != Quota() and (
            words := find_quota_violation(
                _usage_of(case.desired, case.desired.replicas), case.list_other_usage(), quota
            )
        ):
            return CloneBlocked("QuotaExceeded", words)
        trouble = sight.expectations.active_failures().get(FOLDER_KEY)
        return (
            CloneBlocked(trouble.reason, trouble.message) if trouble and trouble.permanent else None
        )

    def _find_folder_owners(self, folder: GroupFolder | None) -> list[GroupId]:
        """Whose VMs are in a folder."""
        marks = self.executor.ownership_index.marks
        return (
            [
                marks[child.ref].group_id
                for child in self.inventory.children(folder.ref)
                if child.ref in marks
            ]
            if folder
            else []
        )

    def _make_name_generator(self, case: GroupInput) -> Callable[[], str]:
        """Names that no replica has, and no VM of the vCenter."""
        used = {each.name for each in case.records}
        choose = random.SystemRandom().choice

        def name() -> str:
            while (
                found := generate_replica_name(case.group_id.name, choose, used)
            ) in used or self.inventory.by_name(VirtualMachine, found):
                pass
            used.add(found)
            return found

        return name

    async def _execute_actions(
        self, job: OperationContext, scene: Observation, actions: Sequence[Action]
    ) -> bool:
        """Start what the plan says, until there is no room; whether the group may go."""
        resting = FOLDER_KEY in job.expectations.active_failures()
        if not actions:
            self.vcenter.task_limiter.stop_waiting(job.task_owner)
        for action in actions:
            if isinstance(action, RemoveFinalizer):
                return True
            if isinstance(action, CreateFolder | DestroyFolder) and resting:
                return False
            try:
                await self._dispatch_action(job, scene, action)
            except VCenterError as error:
                if isinstance(error, Busy) and not error.fault:
                    return False
        return False

    async def _dispatch_action(
        self, job: OperationContext, scene: Observation, action: Action
    ) -> None:
        """Start one thing."""
        match action:
            case CreateFolder():
                await self.executor.create_folder(job, scene.parent_folder, scene.folder_name)
            case DestroyFolder():
                await self.executor.destroy_folder(job, action)
            case Clone():
                assert scene.placement is not None
                assert scene.folder is not None
                await self.executor.start_clone(
                    job, action, scene.desired, scene.placement, scene.folder.ref
                )
            case RemoveFinalizer():
                pass
            case _:
                await self.executor.change_vm(job, action)

    def _choose_requeue_delay(
        self, scene: Observation, made: Plan, sight: ObservationSources
    ) -> float | None:
        """When to look again by ourselves; what vCenter does wakes us anyway."""
        memory = sight.expectations
        if memory.active_failures().keys() - scene.observed.failures.keys():
            return 0.0  # what was refused in this step is told by the next
        if made.phase == "RUNNING":
            return None
        if (
            any(isinstance(each, CreateFolder) for each in made.actions)
            and memory.created_folder != NO_CREATED_FOLDER
        ):
            return 0.0  # it is there: go on
        doubtful = any(
            each in (CloneState.UNKNOWN, CloneState.RUNNING)
            for each in scene.observed.clone_states.values()
        )
        settling = (
            any(glow.expires_at > memory.clock() for glow in memory.pending_effects.values())
            or memory.created_folder[1] > memory.clock()
        )
        if doubtful or settling or any(isinstance(each, CreateFolder) for each in made.actions):
            return _SHORT_REQUEUE_SECONDS
        pause = (
            INITIAL_BACKOFF_SECONDS
            if made.phase == "PENDING" or scene.blocker_reason in _UNWATCHED_REASONS
            else MAX_BACKOFF_SECONDS
        )
        return min(pause, (memory.seconds_until_retry() or pause) + 0.05)

    def build_result(
        self,
        scene: Observation,
        made: Plan,
        *,
        requeue_after_seconds: float | None,
        cleanup_finished: bool = False,
    ) -> StepResult:
        """What the object is told."""
        trouble = scene.observed.failures.get(FOLDER_KEY)
        if trouble is not None and (scene.desired.deleting or not trouble.permanent):
            made = replace(
                made,
                phase="ERROR" if trouble.permanent else "PENDING",
                message=f"{made.message}; {trouble.message}",
            )
        lasting = [
            each.reason
            for each in scene.observed.failures.values()
            if each.permanent and each.reason
        ]
        reason = (
            "Progressing"
            if made.phase != "ERROR"
            else scene.blocker_reason or (lasting[0] if lasting else "NeedsAttention")
        )
        return StepResult(
            plan=made,
            reason=reason,
            folder=scene.folder,
            vms_by_replica=scene.vms_by_replica,
            requeue_after_seconds=requeue_after_seconds,
            cleanup_finished=cleanup_finished,
        )


def _newly_terminating_refs(seen: ObservedState, made: Plan) -> list[str]:
    """References of the VMs that a plan newly lets go."""
    before = {each.name for each in seen.records if each.terminating}
    going = {each.name for each in made.records if each.terminating} - before
    return [vm.ref for vm in seen.vms if vm.name in going]


def _task_owner_of(group: GroupId) -> str:
    """Who asks for room."""
    return f"{group.namespace}/{group.name}"


def _usage_of(wish: DesiredState, vms: int) -> QuotaUsage:
    """So many VMs of the wished size."""
    return QuotaUsage(vms=vms, cpus=vms * wish.cpus, memory_mb=vms * wish.memory_mb)


def _without_clones(actions: Sequence[Action]) -> tuple[Action, ...]:
    """All others."""
    return tuple(each for each in actions if not isinstance(each, Clone))


class Observation(Struct, frozen=True, kw_only=True):
    """All that a step has found."""

    desired: DesiredState
    observed: ObservedState
    folder: GroupFolder | None
    placement: Placement | None
    parent_folder: str
    folder_name: str
    blocker_reason: str
    vms_by_replica: dict[str, VirtualMachine]
