"""VmGroup: N virtual machines cloned from a template. What is done is decided by `plan()`; docs/designs/vmgroup.md has the argument."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import to_builtins

from kubewright import (
    Cache,
    Controller,
    Done,
    NotSynced,
    Retry,
    Terminal,
    Waiting,
    generation_changed,
)
from kubewright.builtin import Namespace

from ...vcenters.config import VCenterConfig
from ...vcenters.registry import UNAVAILABLE_RETRY_SECONDS
from .limits import MB_PER_GB, NamespaceLimits, QuotaUsage
from .messages import describe_request
from .model import CloneBlocked, DesiredState, Rollout
from .ownership import FolderClaim, GroupId, compute_fingerprint, folder_name
from .placement import PlacementResolver
from .preconditions import CLUSTER_ID_NAMESPACE, Preconditions
from .reconciler import GroupInput, GroupReconciler, StepResult
from .status import StatusContext, status_of
from .triggers import VmGroupTriggers
from .types import (
    RolloutSpec,
    VmGroup,
)

_FOLDER_NAME_INDEX = "vmgroup-by-folder"
_MARKS_UNREAD_RETRY_SECONDS = 0.5


def _desired_state_of(group: VmGroup) -> DesiredState:
    """What the object asks for."""
    spec, rollout = group.spec, group.spec.rollout or RolloutSpec()
    return DesiredState(
        cpus=spec.cpu,
        memory_mb=spec.memory * MB_PER_GB,
        replicas=spec.replicas,
        uid=group.metadata.uid,
        template_name=spec.template,
        fingerprint=compute_fingerprint(spec.template, str(spec.linkedClone), spec.storagePolicy),
        power=spec.powerState,
        rollout=Rollout(
            max_surge=rollout.maxSurge,
            max_unavailable=rollout.maxUnavailable,
            strategy=rollout.strategy,
        ),
        paused=spec.paused,
        deleting=group.deleting,
        deletion_policy=spec.deletionPolicy,
    )


def _trigger_keys_of(group: VmGroup) -> Iterable[str]:
    """What wakes a group; see groups.py."""
    status, spec = group.status, group.spec
    template, parent = (
        each.rpartition("/")[2]
        for each in (spec.template, spec.requested_placement["folder"] or "vm-operator")
    )
    yield from (
        f"uid:{group.metadata.uid}",
        f"owner:{group.key}",
        f"template:{template}",
        f"folder:{parent}",
    )
    # Its own folder, and where it was refused that one, what happens in it.
    yield (
        f"folder:{status.folder.ref}"
        if status.folder is not None
        else f"folder:{_folder_name_of(group)}"
    )
    # Whose clone may be any of those that run, waits for each of them.
    yield from {
        f"source:{each.template}"
        for each in status.replicas
        if each.template and each.state == "Planned"
    }


def _folder_name_of(group: VmGroup) -> str:
    """The name of its folder, which another group may have too."""
    return folder_name(group.metadata.namespace, group.metadata.name)


def _recovery_keys_of(group: VmGroup) -> Iterable[str]:
    """Whose change may mend a group that is in error: who shares its folder's name, or its namespace's quota."""
    return _shared_keys_of(group) if group.status.phase == "ERROR" else ()


def _shared_keys_of(group: VmGroup) -> Iterable[str]:
    """What a group shares with others."""
    return f"folder:{_folder_name_of(group)}", f"namespace:{group.metadata.namespace}"


class VmGroupController(Controller[VmGroup]):
    """Takes one step of a group at a time: look, plan, store or do. Nothing waits for vCenter's tasks: their ends wake the group."""

    finalizer = "vm-operator"
    concurrency = (
        16  # It alone calls vCenter, whose threads and our few connections to it are everybody's.
    )
    resync_seconds = 300.0

    def __init__(
        self,
        groups: VmGroupTriggers,
        cache: Cache,
        guard: Preconditions,
        limits: Callable[[str], NamespaceLimits],
    ) -> None:
        self._group_triggers, self.cache, self.preconditions, self.limits_for = (
            groups,
            cache,
            guard,
            limits,
        )
        self._reconcilers = {
            name: GroupReconciler(workshop) for name, workshop in groups.executors.items()
        }
        cache.store(VmGroup).add_index(_FOLDER_NAME_INDEX, _folder_name_of)
        groups.vcenters.watch_namespaces(self)
        self.wake_on(groups.stream, by=_trigger_keys_of)
        self.wake_on(VmGroup, by=_recovery_keys_of, of=_shared_keys_of, when=generation_changed)
        self.needs(VmGroup, "get")
        self.needs(Namespace, "get", resource_names=(CLUSTER_ID_NAMESPACE,))

    async def reconcile(self, group: VmGroup) -> Done | Waiting:
        """One step towards the wish."""
        report = await self.run_step(group)
        if report.plan.phase != "RUNNING":
            return _unready(report)
        return Done(message=report.plan.message)

    async def finalize(self, group: VmGroup) -> Waiting | None:
        """One step towards the end."""
        if _is_untouched(group) and not any(
            each.ownership_index.refs_by_group_uid.get(group.metadata.uid)
            for each in self._group_triggers.executors.values()
        ):
            return None
        report = await self.run_step(group)
        if not report.cleanup_finished:
            return _unready(report)
        self._reconcilers[group.status.vcenter].executor.forget_group(
            await self.preconditions._group_id_of(group)
        )
        return None

    async def run_step(self, group: VmGroup) -> StepResult:
        """Look, plan, do; the status has all of it."""
        log = self.log_for(group.key)
        log.info(describe_request(group.metadata.namespace, group.metadata.name))
        steward, config = self._reconciler_for(group)
        owner = await self.preconditions._group_id_of(group)
        try:
            report = await steward.run_step(
                self._build_input(group, owner, config),
                self.preconditions._actions_for(group, log.info),
            )
        except CloneBlocked as error:
            group.status.phase, group.status.lastMessage = "ERROR", str(error)
            raise Retry(str(error), after=UNAVAILABLE_RETRY_SECONDS, reason=error.reason) from error
        around = StatusContext(
            vcenter=steward.vcenter.name,
            vms_by_replica=report.vms_by_replica,
            last_known_refs=_last_known_refs_of(group),
            tasks=steward.inventory.tasks,
            host_name=steward.inventory.name_of,
            folder=report.folder,
        )
        group.status = status_of(group, report.plan, around)
        return report

    def _reconciler_for(self, group: VmGroup) -> tuple[GroupReconciler, VCenterConfig]:
        """Who looks after the group. No records are lost when nobody can: Terminal would set the status back to nothing."""
        status, vcenters = group.status, self._group_triggers.vcenters
        try:
            vcenter = vcenters.get_view(group).vcenter
        except (Terminal, Retry) as error:
            status.phase, status.lastMessage = (
                "ERROR" if isinstance(error, Terminal) else "PENDING",
                str(error),
            )
            raise Retry(str(error), after=UNAVAILABLE_RETRY_SECONDS, reason=error.reason) from error
        if status.replicas and status.vcenter not in ("", vcenter.name):
            status.phase = "ERROR"
            status.lastMessage = (
                f'the VMs of this group are in vCenter "{status.vcenter}", and "{vcenter.name}" serves this namespace now; nothing is '
                "done in either. Let the first serve it again, or set spec.deletionPolicy to Orphan there and make a new group."
            )
            raise Retry(
                status.lastMessage, after=UNAVAILABLE_RETRY_SECONDS, reason="VCenterChanged"
            )
        steward = self._reconcilers[vcenter.name]
        if not steward.executor.ownership_index.has_synced:
            raise NotSynced("the marks of VMs are being read", after=_MARKS_UNREAD_RETRY_SECONDS)
        return steward, vcenters.get_config(vcenter.name)

    def _build_input(self, group: VmGroup, owner: GroupId, config: VCenterConfig) -> GroupInput:
        """What the object says, and what has to be known of the others."""
        spec, here = group.spec, group.metadata.namespace
        return GroupInput(
            group_id=owner,
            desired=_desired_state_of(group),
            generation=group.metadata.generation,
            records=group.records,
            folder_ref=group.status.folder.ref if group.status.folder else "",
            requested_placement=spec.requested_placement,
            defaults=to_builtins(config.defaults),
            limits=self.limits_for(here),
            folder_claim=self._folder_claim_of(group, owner.cluster_id),
            folder_claims=[
                self._folder_claim_of(each, owner.cluster_id)
                for each in self.cache.by_index(VmGroup, _FOLDER_NAME_INDEX, _folder_name_of(group))
            ],
            list_other_usage=lambda: [
                _other_usage_of(group, each)
                for each in self.cache.all(VmGroup, here)
                if each.metadata.uid != group.metadata.uid
            ],
            last_known_refs=_last_known_refs_of(group),
            list_recorded_tasks=lambda: {
                each.task
                for other in self.cache.all(VmGroup)
                for each in other.status.replicas
                if each.task
            },
            linked_clone=spec.linkedClone,
            storage_policy=spec.storagePolicy,
        )

    def _folder_claim_of(self, group: VmGroup, cluster: str) -> FolderClaim:
        """Which folder a group has or would make: by vCenter and reference of what it is in, since a folder can be named in many ways."""
        meta = group.metadata
        owner = GroupId(cluster_id=cluster, namespace=meta.namespace, name=meta.name, uid=meta.uid)
        where, holds = (
            f"{self._parent_folder_of(group)}/{_folder_name_of(group)}",
            bool(group.status.replicas),
        )
        return FolderClaim(
            group_id=owner, folder_key=where, created_at=created_at(group), in_use=holds
        )

    def _parent_folder_of(self, group: VmGroup) -> str:
        """The vCenter and the folder that a group's folder is in; "" of what cannot be told."""
        config = self._group_triggers.vcenters.find_config(group.metadata.namespace)
        if config is None:
            return ""
        ground = PlacementResolver(
            self._group_triggers.vcenters.vcenters_by_name[config.name].inventory,
            group.spec.requested_placement,
            to_builtins(config.defaults),
            NamespaceLimits(),
        )
        try:
            return f"{config.name}/{ground.find_parent_folder(ground.find_datacenter()).ref}"
        except CloneBlocked:
            return f"{config.name}/"


def _last_known_refs_of(group: VmGroup) -> dict[str, str]:
    """References of its VMs as they were last told, by name of the replica."""
    return {each.name: each.moRef for each in group.status.replicas if each.moRef}


def created_at(group: VmGroup) -> str:
    """When it was made, so that the first comes first."""
    moment = group.metadata.creationTimestamp
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}" if moment else ""


def _other_usage_of(group: VmGroup, other: VmGroup) -> QuotaUsage:
    """What another group takes of the quota: all that it asks for if it is older, else what it has."""
    spec, older = (
        other.spec,
        (created_at(other), other.metadata.uid) < (created_at(group), group.metadata.uid),
    )
    vms = spec.replicas if older else len(other.status.replicas)
    return QuotaUsage(vms=vms, cpus=vms * spec.cpu, memory_mb=vms * spec.memory * MB_PER_GB)


def _is_untouched(group: VmGroup) -> bool:
    """Whether nothing was ever made for it, so that it may go whether or not vCenter answers. A status that was wiped says nothing."""
    status = group.status
    return not status.replicas and status.folder is None and status.observedGeneration is not None


def _unready(report: StepResult) -> Waiting:
    """The outcome of a group that is not ready: normal progress is returned, a fault is raised."""
    after = (
        UNAVAILABLE_RETRY_SECONDS
        if report.requeue_after_seconds is None
        else report.requeue_after_seconds
    )
    if report.plan.phase == "ERROR":
        raise Retry(report.plan.message, after=after, reason=report.reason)
    # 0 means that the status holds a record of what the next step is going to do.
    return Waiting(report.reason, report.plan.message, after, write_status_first=after == 0)
