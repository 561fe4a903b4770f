"""Reconciles VmGroups: N virtual machines cloned from a template.

A reconcile takes one step and never waits for a task of vCenter: the end of a task enqueues the
group. `plan()` decides what to do; docs/designs/vmgroup.md explains why it is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from msgspec import to_builtins
from msgspec.structs import replace

from kubewright import (
    Cache,
    Controller,
    Done,
    Key,
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
from ...vcenters.registry import Reason as VCenterReason
from .adoption import parse_request
from .api_reader import CLUSTER_ID_NAMESPACE, ApiReader
from .desired import build_desired_state
from .limits import MB_PER_GB, NamespaceLimits
from .messages import SUCCESS_MESSAGE, describe_deletion, describe_request
from .model import CloneBlocked, Phase, ResourceAmount
from .ownership import FolderClaim, GroupId, folder_name
from .placement import PlacementResolver, build_parent_folder_key, placement_names
from .quota import OtherGroup
from .reasons import Reason
from .reconciler import GroupReconciler
from .status import (
    group_status_of,
    last_known_refs_of,
    records_of,
    report_without_plan,
    reported_uuids_of,
)
from .step import GroupInput, StepResult, VCenterId
from .triggers import trigger_keys_of
from .types import VmGroup
from .vcenter_identity import check_vcenter, format_continue_command, format_orphan_command

_FOLDER_NAME_INDEX = "vmgroup-by-folder"
_MARKS_UNREAD_RETRY_SECONDS = 0.5


class _VCenterUnusable(Retry):
    """The group's vCenter cannot be used now, or never again."""

    def __init__(self, reason: str, message: str, *, phase: Phase) -> None:
        super().__init__(reason, message, requeue_after_seconds=UNAVAILABLE_RETRY_SECONDS)
        self.phase = phase


class VmGroupController(Controller[VmGroup]):
    finalizer = "vm-operator"
    # Below the default of 64: a reconcile of this kind calls vCenter, and all calls share 32
    # connections (transport.MAX_CONNECTIONS).
    max_concurrent_reconciles = 16
    resync_seconds = 300.0
    # The groups of a namespace share its quota.
    shard_by = "namespace"
    # Groups of two namespaces may have one folder name, and a VM names its group.
    caches_all_shards = True

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
        vcenters.watch_namespace_labels(self)
        self.watches(changes, index_by=trigger_keys_of)
        self.watches(
            VmGroup,
            index_by=_recovery_keys_of,
            lookup_by=_shared_keys_of,
            predicate=_may_free_quota,
            # Two namespaces can share a folder name: a/b-c and a-b/c.
            any_namespace=True,
        )
        self.needs(VmGroup, "get")
        self.needs(Namespace, "get", resource_names=(CLUSTER_ID_NAMESPACE,))

    async def reconcile(self, group: VmGroup) -> Done | Waiting:
        reconciler, group_input = await self._prepare_step(group)
        result = await reconciler.run_step(group_input)
        group.status = group_status_of(group, result, reconciler.inventory)
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
        try:
            reconciler, group_input = await self._prepare_step(group)
        except _VCenterUnusable as error:
            if group.spec.deletionPolicy != "Orphan":
                raise
            self._report_vms_left(group, error)
            return None
        if _is_deletion_unreported(group):
            # A call to a vCenter that has just vanished waits for its timeout.
            message = describe_deletion(len(group.status.replicas))
            report_without_plan(group, "PENDING", message)
            return Waiting(Reason.PROGRESSING, message, write_status_first=True)
        result = await reconciler.run_step(group_input)
        if group.spec.paused:
            plan = result.plan
            message = f"{plan.message.rstrip('.')}: {format_continue_command(group)}"
            result = replace(result, plan=replace(plan, message=message))
        group.status = group_status_of(group, result, reconciler.inventory)
        if not result.cleanup_finished:
            return _unfinished_outcome(result)
        if result.folder is not None and group.spec.deletionPolicy == "Destroy":
            self._recorder.event(
                group,
                "Warning",
                Reason.FOLDER_KEPT,
                f"Folder {result.folder.path} is kept: it contains objects that do not belong to "
                "this group.",
            )
        if group.spec.deletionPolicy == "Orphan":
            message = f"The group was deleted without its VMs. {_describe_left(group)}"
            self._recorder.event(group, "Normal", Reason.VMS_ORPHANED, message)
        reconciler.forget_group(group.metadata.uid)
        return None

    def forget(self, group: VmGroup) -> None:
        # What this process has sent is no longer the last that was sent for the group.
        for reconciler in self._reconcilers.values():
            reconciler.forget_group(group.metadata.uid)

    def _report_vms_left(self, group: VmGroup, cause: _VCenterUnusable) -> None:
        self._recorder.event(
            group,
            "Warning",
            Reason.VMS_LEFT,
            f"The group was deleted without its vCenter ({cause.reason}). {_describe_left(group)}",
        )

    async def _prepare_step(self, group: VmGroup) -> tuple[GroupReconciler, GroupInput]:
        """The reconciler of the group's vCenter, and its input; raises Retry or NotSynced."""
        log = self.log.for_object("VmGroup", group.key)
        log.info(describe_request(group.metadata.namespace, group.metadata.name))
        if not self._cluster_id:
            self._cluster_id = await self._api_reader.read_cluster_id()
        # Nothing is awaited from here on: the vCenter that is checked is that of the input.
        reconciler = self._require_reconciler(group)
        return reconciler, self._build_input(group, reconciler, log.info)

    def _require_reconciler(self, group: VmGroup) -> GroupReconciler:
        """The reconciler of the group's vCenter, which can be used now.

        Never raises Terminal: that would clear the status, and the records with it.
        """
        try:
            reconciler = self._find_reconciler(group)
            if not reconciler.ownership_index.has_synced:
                raise NotSynced(
                    "the ownership keys (extraConfig) of the VMs are being read",
                    requeue_after_seconds=_MARKS_UNREAD_RETRY_SECONDS,
                )
            reconciler.memory_store.for_group(group.metadata.uid).check_writes_kept(
                replica.name for replica in group.status.replicas
            )
        except _VCenterUnusable as error:
            report_without_plan(group, error.phase, str(error))
            raise
        except CloneBlocked as error:
            report_without_plan(group, "ERROR", str(error))
            raise Retry(
                error.reason, str(error), requeue_after_seconds=UNAVAILABLE_RETRY_SECONDS
            ) from error
        return reconciler

    def _find_reconciler(self, group: VmGroup) -> GroupReconciler:
        """The reconciler of the vCenter that has the group's VMs; raises _VCenterUnusable."""
        try:
            lookup = self._vcenters.lookup_for(group, keeps_status=True)
            reconciler = self._reconcilers[lookup.vcenter_name]
            check_vcenter(group, reconciler.inventory)
        except (Terminal, Retry, CloneBlocked) as error:
            message = f"{str(error).rstrip('.')}."
            phase: Phase = "ERROR"
            if error.reason == VCenterReason.VCENTER_UNREACHABLE:
                message = f"{message} The group continues as soon as vCenter responds."
                phase = "PENDING"
            if group.metadata.deletionTimestamp is not None:
                message = (
                    f"{message} To delete this group without its vCenter, and leave its VMs "
                    f"there, run: {format_orphan_command(group)}"
                )
            raise _VCenterUnusable(error.reason, message, phase=phase) from error
        return reconciler

    def _build_input(
        self, group: VmGroup, reconciler: GroupReconciler, log: Callable[[str], None]
    ) -> GroupInput:
        inventory = reconciler.inventory
        spec, namespace, folder_claim = (
            group.spec,
            group.metadata.namespace,
            self._build_folder_claim(group),
        )
        return GroupInput(
            group_id=folder_claim.group_id,
            desired=build_desired_state(group),
            generation=group.metadata.generation,
            resource_version=group.metadata.resourceVersion,
            records=records_of(group),
            log=log,
            record_event=partial(self._recorder.event, group),
            vcenter=VCenterId(name=inventory.name, instance_uuid=inventory.instance_uuid),
            loaded_at=reconciler.loaded_at,
            folder_ref=group.status.folder.ref if group.status.folder else "",
            requested_placement=placement_names(spec.placement),
            defaults=to_builtins(self._vcenters.get_config_by_name(inventory.name).defaults),
            limits=self.limits_for(namespace),
            folder_claim=folder_claim,
            folder_claims=[
                self._build_folder_claim(other)
                for other in self._cache.by_index(
                    VmGroup, _FOLDER_NAME_INDEX, _folder_name_of(group)
                )
            ],
            may_exist=self._may_exist,
            list_other_groups=lambda: [
                _build_other_group(other, group)
                for other in self._cache.all(VmGroup, namespace)
                if other.metadata.uid != group.metadata.uid
            ],
            last_known_refs=last_known_refs_of(group),
            adoption_request=parse_request(group.metadata.annotations),
            reported_uuids=reported_uuids_of(group),
            linked_clone=spec.linkedClone,
            storage_policy=spec.storagePolicy,
            cloud_init=spec.bootstrap.cloudInit if spec.bootstrap else None,
        )

    def _may_exist(self, group_id: GroupId) -> bool:
        """Whether a group exists; also true if this manager does not watch its namespace."""
        store = self._cache.store(VmGroup)
        if group_id.cluster_id != self._cluster_id or not store.watched_revision(
            group_id.namespace
        ):
            return True
        # Also a group that cannot be decoded.
        stored = store.objects.get(Key(group_id.namespace, group_id.name))
        return stored is not None and stored.metadata.uid == group_id.uid

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
            has_replicas=bool(group.status.replicas),
        )

    def _build_parent_folder_key(self, group: VmGroup) -> str:
        config = self._vcenters.find_config_of_namespace(group.metadata.namespace)
        if config is None:
            return ""
        return build_parent_folder_key(
            PlacementResolver(
                self._vcenters.vcenters_by_name[config.name].inventory,
                placement_names(group.spec.placement),
                to_builtins(config.defaults),
                NamespaceLimits(),
            )
        )


def _folder_name_of(group: VmGroup) -> str:
    return folder_name(group.metadata.namespace, group.metadata.name)


def _recovery_keys_of(group: VmGroup) -> Iterable[str]:
    """What enqueues a group in phase ERROR: another group's change may free the folder or quota."""
    return _shared_keys_of(group) if group.status.phase == "ERROR" else ()


def _may_free_quota(old: VmGroup | None, new: VmGroup | None) -> bool:
    """Whether the spec of a group has changed, or what it has."""
    if old is None or new is None or generation_changed(old, new):
        return old is not new
    return [record.size for record in records_of(old)] != [
        record.size for record in records_of(new)
    ]


def _shared_keys_of(group: VmGroup) -> Iterable[str]:
    return f"folder:{_folder_name_of(group)}", f"namespace:{group.metadata.namespace}"


def _format_creation_time(group: VmGroup) -> str:
    moment = group.metadata.creationTimestamp
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}" if moment else ""


def _build_other_group(other: VmGroup, group: VmGroup) -> OtherGroup:
    """What the quota has to know of another group; see quota.py."""
    created_at, other_created_at = _format_creation_time(group), _format_creation_time(other)
    is_older = (other_created_at, other.metadata.uid) < (created_at, group.metadata.uid)
    is_deleting = other.metadata.deletionTimestamp is not None
    spec = other.spec
    size = ResourceAmount(vms=1, cpus=spec.cpu, memory_mb=spec.memory * MB_PER_GB)
    return OtherGroup(
        uid=other.metadata.uid,
        records=records_of(other),
        size=size,
        requested=size * (spec.replicas if is_older and not is_deleting else 0),
    )


def _describe_left(group: VmGroup) -> str:
    status = group.status
    names = ", ".join(replica.name for replica in status.replicas) or "none"
    # The folder first: the recorder cuts a long list of VMs.
    folder = f"Folder left: {status.folder.path}. " if status.folder else ""
    return f'{folder}VMs left in vCenter "{status.vcenter}": {names}.'


def _is_untouched(group: VmGroup) -> bool:
    """Whether the group never had a VM, so that it can be deleted without its vCenter.

    A status without observedGeneration may have been wiped and proves nothing.
    """
    status = group.status
    return not status.replicas and status.folder is None and status.observedGeneration is not None


def _is_deletion_unreported(group: VmGroup) -> bool:
    """Whether VMs are to be destroyed, and the status does not show it yet.

    The API server increments the generation when it sets deletionTimestamp.
    """
    return (
        bool(group.status.replicas)
        and group.status.observedGeneration != group.metadata.generation
        and group.spec.deletionPolicy == "Destroy"
        and not group.spec.paused
    )


def _unfinished_outcome(result: StepResult) -> Waiting:
    """The outcome of a step after which the group is not RUNNING yet; raises Retry in ERROR."""
    plan, seconds = result.plan, result.requeue_after_seconds
    if seconds is None:
        seconds = UNAVAILABLE_RETRY_SECONDS
    if plan.phase == "ERROR":
        raise Retry(result.reason, plan.message, requeue_after_seconds=seconds, stalled=True)
    return Waiting(
        result.reason,
        plan.message,
        requeue_after_seconds=seconds,
        write_status_first=plan.write_status_first,
    )
