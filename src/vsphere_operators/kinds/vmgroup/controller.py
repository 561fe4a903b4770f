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
from .api_reader import CLUSTER_ID_NAMESPACE, ApiReader
from .limits import MB_PER_GB, NamespaceLimits, ResourceAmount
from .model import CloneBlocked, DesiredState, Rollout
from .ownership import FolderClaim, GroupId, compute_fingerprint, folder_name
from .placement import PlacementResolver, placement_names
from .reasons import Reason
from .reconciler import GroupReconciler
from .status import (
    SUCCESS_MESSAGE,
    describe_request,
    last_known_refs_of,
    records_of,
    status_of,
)
from .step import GroupInput, StepResult
from .triggers import trigger_keys_of
from .types import RolloutSpec, VmGroup

_FOLDER_NAME_INDEX = "vmgroup-by-folder"
_MARKS_UNREAD_RETRY_SECONDS = 0.5


class VmGroupController(Controller[VmGroup]):
    finalizer = "vm-operator"
    # Below the default of 64: a reconcile of this kind calls vCenter, and all calls share 32
    # connections (transport.MAX_CONNECTIONS).
    concurrency = 16
    resync_seconds = 300.0

    def __init__(
        self,
        vcenters: VCenterRegistry,
        reconcilers: Mapping[str, GroupReconciler],
        changes: Stream,
        cache: Cache,
        api_reader: ApiReader,
        limits_for: Callable[[str], NamespaceLimits],
        recorder: EventRecorder,
        cluster_id: str = "",
    ) -> None:
        self._vcenters, self._reconcilers, self._cache = vcenters, reconcilers, cache
        self._api_reader, self._recorder = api_reader, recorder
        self._cluster_id = cluster_id
        self.limits_for = limits_for
        cache.store(VmGroup).add_index(_FOLDER_NAME_INDEX, _folder_name_of)
        vcenters.watch_namespaces(self)
        self.wake_on(changes, by=trigger_keys_of)
        self.wake_on(VmGroup, by=_recovery_keys_of, of=_shared_keys_of, when=generation_changed)
        self.needs(VmGroup, "get")
        self.needs(Namespace, "get", resource_names=(CLUSTER_ID_NAMESPACE,))

    async def reconcile(self, group: VmGroup) -> Done | Waiting:
        reconciler, group_input = await self._prepare_step(group)
        result = await reconciler.run_step(group_input)
        group.status = status_of(group, result, reconciler.inventory)
        if result.plan.phase != "RUNNING":
            return _unfinished_outcome(result)
        message = result.plan.message
        if message == SUCCESS_MESSAGE:
            # Only status.lastMessage has to keep the original operator's text.
            count = group.spec.replicas
            message = f"All {count} replicas are ready." if count != 1 else "The replica is ready."
        return Done(message=message)

    async def finalize(self, group: VmGroup) -> Waiting | None:
        if _is_untouched(group) and not any(
            reconciler.ownership_index.refs_by_group_uid.get(group.metadata.uid)
            for reconciler in self._reconcilers.values()
        ):
            return None
        reconciler, group_input = await self._prepare_step(group)
        result = await reconciler.run_step(group_input)
        group.status = status_of(group, result, reconciler.inventory)
        if not result.cleanup_finished:
            return _unfinished_outcome(result)
        if result.folder is not None and group.spec.deletionPolicy == "Destroy":
            self._recorder.event(
                group,
                VmGroup.definition,
                "Warning",
                Reason.FOLDER_KEPT,
                f"Folder {result.folder.path} is kept: it contains objects that do not belong to "
                "this group.",
            )
        reconciler.forget_group(group.metadata.uid)
        return None

    async def _prepare_step(self, group: VmGroup) -> tuple[GroupReconciler, GroupInput]:
        """The reconciler of the group's vCenter, and its input; raises Retry or NotSynced."""
        log = self.log.for_object("VmGroup", group.key)
        log.info(describe_request(group.metadata.namespace, group.metadata.name))
        reconciler = self._require_reconciler(group)
        if not self._cluster_id:
            self._cluster_id = await self._api_reader.read_cluster_id()
        return reconciler, self._build_input(group, reconciler.inventory.name, log.info)

    def _require_reconciler(self, group: VmGroup) -> GroupReconciler:
        """The reconciler of the group's vCenter, which can be used now.

        Never raises Terminal: that would clear the status, and the records with it.
        """
        status = group.status
        try:
            reconciler = self._reconcilers[self._vcenters.lookup_for(group).vcenter_name]
            name = reconciler.inventory.name
            if status.replicas and status.vcenter not in ("", name):
                raise CloneBlocked(
                    Reason.VCENTER_CHANGED,
                    f'The VMs of this group are in vCenter "{status.vcenter}", but vCenter '
                    f'"{name}" serves this namespace now. No changes are made while they differ. '
                    "Restore the previous vCenter, or set spec.deletionPolicy to Orphan, delete "
                    "this group and create a new one.",
                )
            if not reconciler.ownership_index.has_synced:
                raise NotSynced(
                    "the ownership keys (extraConfig) of the VMs are being read",
                    after=_MARKS_UNREAD_RETRY_SECONDS,
                )
            reconciler.memory_store.for_group(group.metadata.uid).check_writes_kept(
                replica.name for replica in status.replicas
            )
        except (Terminal, Retry, CloneBlocked) as error:
            status.phase = "PENDING" if isinstance(error, Retry) else "ERROR"
            status.lastMessage = str(error)
            raise Retry(str(error), after=UNAVAILABLE_RETRY_SECONDS, reason=error.reason) from error
        return reconciler

    def _build_input(self, group: VmGroup, vcenter: str, log: Callable[[str], None]) -> GroupInput:
        spec, namespace, folder_claim = (
            group.spec,
            group.metadata.namespace,
            self._build_folder_claim(group),
        )
        return GroupInput(
            group_id=folder_claim.group_id,
            desired=_build_desired_state(group),
            generation=group.metadata.generation,
            records=records_of(group),
            log=log,
            folder_ref=group.status.folder.ref if group.status.folder else "",
            requested_placement=placement_names(spec.placement),
            defaults=to_builtins(self._vcenters.get_config_by_name(vcenter).defaults),
            limits=self.limits_for(namespace),
            folder_claim=folder_claim,
            folder_claims=[
                self._build_folder_claim(other)
                for other in self._cache.by_index(
                    VmGroup, _FOLDER_NAME_INDEX, _folder_name_of(group)
                )
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

    def _build_folder_claim(self, group: VmGroup) -> FolderClaim:
        metadata = group.metadata
        return FolderClaim(
            group_id=GroupId(
                cluster_id=self._cluster_id,
                namespace=metadata.namespace,
                name=metadata.name,
                uid=metadata.uid,
            ),
            folder_key=f"{self._build_parent_folder_key(group)}/{_folder_name_of(group)}",
            created_at=_format_creation_time(group),
            in_use=bool(group.status.replicas),
        )

    def _build_parent_folder_key(self, group: VmGroup) -> str:
        """Identifies the parent folder by vCenter and MoRef: specs can name it in several ways."""
        config = self._vcenters.find_config_of_namespace(group.metadata.namespace)
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


def _build_desired_state(group: VmGroup) -> DesiredState:
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


def _format_creation_time(group: VmGroup) -> str:
    moment = group.metadata.creationTimestamp
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}" if moment else ""


def _quota_usage_of(other: VmGroup, group: VmGroup) -> ResourceAmount:
    """What another group uses of the quota: all that it requests if it is older, else what it has.

    So the oldest groups come first, and a new group cannot block an existing one.
    """
    created_at, other_created_at = _format_creation_time(group), _format_creation_time(other)
    is_older = (other_created_at, other.metadata.uid) < (created_at, group.metadata.uid)
    vms = other.spec.replicas if is_older else len(other.status.replicas)
    return ResourceAmount(
        vms=vms, cpus=vms * other.spec.cpu, memory_mb=vms * other.spec.memory * MB_PER_GB
    )


def _is_untouched(group: VmGroup) -> bool:
    """Whether the group never had a VM, so that it can be deleted without its vCenter.

    A status without observedGeneration may have been wiped and proves nothing.
    """
    status = group.status
    return not status.replicas and status.folder is None and status.observedGeneration is not None


def _unfinished_outcome(result: StepResult) -> Waiting:
    """The outcome of a step that is not the last one; raises Retry in phase ERROR."""
    plan, after = result.plan, result.requeue_after_seconds
    if after is None:
        after = UNAVAILABLE_RETRY_SECONDS
    if plan.phase == "ERROR":
        raise Retry(plan.message, after=after, reason=result.reason)
    return Waiting(result.reason, plan.message, after, write_status_first=plan.write_status_first)
