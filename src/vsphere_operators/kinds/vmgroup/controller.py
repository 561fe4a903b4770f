"""Reconciles VmGroups: N virtual machines cloned from a template.

A reconcile takes one step and never waits for a task of vCenter: the end of a task wakes the group.
`plan()` decides what to do; docs/designs/vmgroup.md explains why it is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import to_builtins

from kubewright import (
    Cache,
    Controller,
    Done,
    NotSynced,
    Retry,
    Stream,
    Terminal,
    Waiting,
    generation_changed,
)
from kubewright.builtin import Namespace
from kubewright.recorder import EventRecorder

from ...vcenters.registry import UNAVAILABLE_RETRY_SECONDS, VCenterRegistry
from .limits import MB_PER_GB, NamespaceLimits, QuotaUsage
from .messages import SUCCESS_MESSAGE, describe_request
from .model import CloneBlocked, DesiredState, Rollout
from .ownership import FolderClaim, GroupId, compute_fingerprint, folder_name
from .placement import PlacementResolver, placement_names
from .preconditions import CLUSTER_ID_NAMESPACE, Preconditions
from .reasons import Reason
from .reconciler import GroupReconciler
from .status import last_known_refs_of, records_of, status_of
from .step import GroupInput, StepResult
from .triggers import trigger_keys_of
from .types import RolloutSpec, VmGroup

_FOLDER_NAME_INDEX = "vmgroup-by-folder"
_MARKS_UNREAD_RETRY_SECONDS = 0.5


class VmGroupController(Controller[VmGroup]):
    """Takes one step of a group at a time: observe, plan, then store records or act."""

    finalizer = "vm-operator"
    # All kinds share vCenter's threads and our connections to it, and only this kind calls vCenter.
    concurrency = 16
    resync_seconds = 300.0

    def __init__(
        self,
        vcenters: VCenterRegistry,
        reconcilers: Mapping[str, GroupReconciler],
        changes: Stream,
        cache: Cache,
        preconditions: Preconditions,
        limits_for: Callable[[str], NamespaceLimits],
        recorder: EventRecorder,
        cluster_id: str = "",
    ) -> None:
        self._vcenters, self._reconcilers, self._cache = vcenters, reconcilers, cache
        self._preconditions, self._recorder = preconditions, recorder
        self._cluster_id = cluster_id
        self.limits_for = limits_for
        cache.store(VmGroup).add_index(_FOLDER_NAME_INDEX, _folder_name_of)
        vcenters.watch_namespaces(self)
        self.wake_on(changes, by=trigger_keys_of)
        self.wake_on(VmGroup, by=_recovery_keys_of, of=_shared_keys_of, when=generation_changed)
        self.needs(VmGroup, "get")
        self.needs(Namespace, "get", resource_names=(CLUSTER_ID_NAMESPACE,))

    async def reconcile(self, group: VmGroup) -> Done | Waiting:
        """Take one step towards the desired state."""
        result = await self._run_step(group)
        if result.plan.phase != "RUNNING":
            return _wait_for(result)
        message = result.plan.message
        if message == SUCCESS_MESSAGE:
            # The contract fixes this text for status.lastMessage only.
            count = group.spec.replicas
            message = f"All {count} replicas are ready." if count != 1 else "The replica is ready."
        return Done(message=message)

    async def finalize(self, group: VmGroup) -> Waiting | None:
        """Take one step of the cleanup."""
        if _is_untouched(group) and not any(
            reconciler.ownership_index.refs_by_group_uid.get(group.metadata.uid)
            for reconciler in self._reconcilers.values()
        ):
            return None
        result = await self._run_step(group)
        if not result.cleanup_finished:
            return _wait_for(result)
        if result.folder is not None and group.spec.deletionPolicy == "Destroy":
            self._recorder.event(
                group,
                VmGroup.definition,
                "Warning",
                Reason.FOLDER_KEPT,
                f"Folder {result.folder.path} is kept: it contains objects that do not belong to "
                "this group.",
            )
        self._reconcilers[group.status.vcenter].forget_group(await self._group_id_of(group))
        return None

    async def _run_step(self, group: VmGroup) -> StepResult:
        log = self.log_for(group.key)
        log.info(describe_request(group.metadata.namespace, group.metadata.name))
        name = self._require_vcenter(group)
        reconciler, group_id = self._reconcilers[name], await self._group_id_of(group)
        try:
            result = await reconciler.run_step(self._build_input(group, group_id, name, log.info))
        except CloneBlocked as error:
            group.status.phase, group.status.lastMessage = "ERROR", str(error)
            raise Retry(str(error), after=UNAVAILABLE_RETRY_SECONDS, reason=error.reason) from error
        group.status = status_of(group, result, reconciler.inventory)
        return result

    async def _group_id_of(self, group: VmGroup) -> GroupId:
        if not self._cluster_id:
            self._cluster_id = await self._preconditions.read_cluster_id()
        return GroupId(
            cluster_id=self._cluster_id,
            namespace=group.metadata.namespace,
            name=group.metadata.name,
            uid=group.metadata.uid,
        )

    def _require_vcenter(self, group: VmGroup) -> str:
        """The name of the group's vCenter, which can be used now; raises Retry or NotSynced.

        Never Terminal: that would clear the status, and the records with it.
        """
        status = group.status
        try:
            name = self._vcenters.get_view(group).name
        except (Terminal, Retry) as error:
            status.phase = "ERROR" if isinstance(error, Terminal) else "PENDING"
            status.lastMessage = str(error)
            raise Retry(str(error), after=UNAVAILABLE_RETRY_SECONDS, reason=error.reason) from error
        if status.replicas and status.vcenter not in ("", name):
            status.phase = "ERROR"
            status.lastMessage = (
                f'The VMs of this group are in vCenter "{status.vcenter}", but vCenter "{name}" '
                "serves this namespace now. No changes are made while they differ. Restore the "
                "previous vCenter, or set spec.deletionPolicy to Orphan, delete this group and "
                "create a new one."
            )
            raise Retry(
                status.lastMessage, after=UNAVAILABLE_RETRY_SECONDS, reason=Reason.VCENTER_CHANGED
            )
        if not self._reconcilers[name].ownership_index.has_synced:
            raise NotSynced("the marks of VMs are being read", after=_MARKS_UNREAD_RETRY_SECONDS)
        return name

    def _build_input(
        self, group: VmGroup, group_id: GroupId, vcenter: str, log: Callable[[str], None]
    ) -> GroupInput:
        spec, namespace = group.spec, group.metadata.namespace
        folder_name = group_id.folder_name
        return GroupInput(
            group_id=group_id,
            desired=_desired_state_of(group),
            generation=group.metadata.generation,
            records=records_of(group),
            log=log,
            folder_ref=group.status.folder.ref if group.status.folder else "",
            requested_placement=placement_names(spec.placement),
            defaults=to_builtins(self._vcenters.get_config(vcenter).defaults),
            limits=self.limits_for(namespace),
            folder_claim=self._folder_claim_of(group, group_id.cluster_id),
            folder_claims=[
                self._folder_claim_of(other, group_id.cluster_id)
                for other in self._cache.by_index(VmGroup, _FOLDER_NAME_INDEX, folder_name)
            ],
            list_other_usage=lambda: [
                _quota_usage_of(other, group)
                for other in self._cache.all(VmGroup, namespace)
                if other.metadata.uid != group.metadata.uid
            ],
            list_recorded_tasks=lambda: {
                replica.task
                for other in self._cache.all(VmGroup)
                for replica in other.status.replicas
                if replica.task
            },
            last_known_refs=last_known_refs_of(group),
            linked_clone=spec.linkedClone,
            storage_policy=spec.storagePolicy,
            cloud_init=spec.bootstrap.cloudInit if spec.bootstrap else None,
        )

    def _folder_claim_of(self, group: VmGroup, cluster_id: str) -> FolderClaim:
        metadata = group.metadata
        return FolderClaim(
            group_id=GroupId(
                cluster_id=cluster_id,
                namespace=metadata.namespace,
                name=metadata.name,
                uid=metadata.uid,
            ),
            folder_key=f"{self._parent_folder_key_of(group)}/{_folder_name_of(group)}",
            created_at=_created_at(group),
            in_use=bool(group.status.replicas),
        )

    def _parent_folder_key_of(self, group: VmGroup) -> str:
        """Identifies the parent folder by vCenter and MoRef: specs can name it in several ways."""
        config = self._vcenters.find_config(group.metadata.namespace)
        if config is None:
            return ""
        resolver = PlacementResolver(
            self._vcenters.vcenters_by_name[config.name].inventory,
            placement_names(group.spec.placement),
            to_builtins(config.defaults),
            NamespaceLimits(),
        )
        try:
            folder = resolver.find_parent_folder(resolver.find_datacenter())
        except CloneBlocked:
            return f"{config.name}/"
        return f"{config.name}/{folder.ref}"


def _desired_state_of(group: VmGroup) -> DesiredState:
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
        deleting=group.metadata.deletionTimestamp is not None,
        deletion_policy=spec.deletionPolicy,
    )


def _folder_name_of(group: VmGroup) -> str:
    return folder_name(group.metadata.namespace, group.metadata.name)


def _recovery_keys_of(group: VmGroup) -> Iterable[str]:
    """What wakes a group in phase ERROR: another group's change may free the folder or quota."""
    return _shared_keys_of(group) if group.status.phase == "ERROR" else ()


def _shared_keys_of(group: VmGroup) -> Iterable[str]:
    return f"folder:{_folder_name_of(group)}", f"namespace:{group.metadata.namespace}"


def _created_at(group: VmGroup) -> str:
    moment = group.metadata.creationTimestamp
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}" if moment else ""


def _quota_usage_of(other: VmGroup, group: VmGroup) -> QuotaUsage:
    """What another group uses of the quota: all that it asks for if it is older, else what it has.

    So the oldest groups come first, and a new group cannot block an existing one.
    """
    is_older = (_created_at(other), other.metadata.uid) < (_created_at(group), group.metadata.uid)
    vms = other.spec.replicas if is_older else len(other.status.replicas)
    return QuotaUsage(
        vms=vms, cpus=vms * other.spec.cpu, memory_mb=vms * other.spec.memory * MB_PER_GB
    )


def _is_untouched(group: VmGroup) -> bool:
    """Whether the group never had a VM, so that it can be deleted without its vCenter.

    A status without observedGeneration may have been wiped and proves nothing.
    """
    status = group.status
    return not status.replicas and status.folder is None and status.observedGeneration is not None


def _wait_for(result: StepResult) -> Waiting:
    """The outcome of a step that is not the last one; raises Retry in phase ERROR."""
    plan, after = result.plan, result.requeue_after_seconds
    if after is None:
        after = UNAVAILABLE_RETRY_SECONDS
    if plan.phase == "ERROR":
        raise Retry(plan.message, after=after, reason=result.reason)
    return Waiting(result.reason, plan.message, after, write_status_first=plan.write_status_first)
