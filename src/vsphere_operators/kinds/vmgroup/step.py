"""The input and the result of a step, which is one reconcile of one group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from msgspec import Struct

from kubewright.recorder import EventType

from ...vsphere.model import VirtualMachine
from .limits import NamespaceLimits
from .model import DesiredState, GroupFolder, Plan, ReplicaRecord
from .ownership import FolderClaim, GroupId
from .quota import OtherGroup
from .types import AdoptionStatus, CloudInitSpec


class VCenterId(Struct, frozen=True, kw_only=True):
    # In the manager's configuration.
    name: str
    # about.instanceUuid
    instance_uuid: str


class AdoptionRequest(Struct, frozen=True, kw_only=True):
    # Of the annotation; status.adoption.observedRequest has it.
    hash: str
    instance_uuids: frozenset[str] = frozenset()
    undo: bool = False


class GroupInput(Struct, frozen=True, kw_only=True):
    """The object, and what has to be known of other groups."""

    group_id: GroupId
    # Without template and blocker, which depend on the inventory.
    desired: DesiredState
    generation: int
    # The version of the object that `records` are from.
    resource_version: str = ""
    records: tuple[ReplicaRecord, ...]
    # Writes a line to the log of the object.
    log: Callable[[str], None]
    # Records an Event of the object, with its type, reason and message.
    record_event: Callable[[EventType, str, str], None]
    # The vCenter that has the VMs in the records, and when its inventory was loaded. Once it was
    # loaded again, this input is void: references may belong to other objects.
    vcenter: VCenterId
    loaded_at: float
    # MoRef of the group's folder in the status.
    folder_ref: str = ""
    requested_placement: Mapping[str, str] = {}
    # The placement defaults of the vCenter.
    defaults: Mapping[str, str] = {}
    limits: NamespaceLimits = NamespaceLimits()
    folder_claim: FolderClaim
    # The claims of all groups with the same folder name.
    folder_claims: Collection[FolderClaim] = ()
    # Whether another group exists, as far as this manager can know.
    may_exist: Callable[[GroupId], bool]
    # The other groups of the namespace, listed only if there is a quota.
    list_other_groups: Callable[[], Collection[OtherGroup]]
    # MoRefs of the VMs by replica, as last reported.
    last_known_refs: Mapping[str, str] = {}
    adoption_request: AdoptionRequest | None = None
    # instanceUuids of the VMs that the stored status reports as adoptable.
    reported_uuids: frozenset[str] = frozenset()
    linked_clone: bool = False
    storage_policy: str = ""
    cloud_init: CloudInitSpec | None = None


class StepResult(Struct, frozen=True, kw_only=True):
    """What the controller reports in the status, and when the next step is due."""

    plan: Plan
    # The reason of Ready while it is False.
    reason: str
    vcenter: VCenterId
    folder: GroupFolder | None
    adoption: AdoptionStatus | None = None
    vms_by_replica: dict[str, VirtualMachine]
    # None: no timer; a change enqueues the group.
    requeue_after_seconds: float | None
    # A group that is being deleted has nothing left to clean up.
    cleanup_finished: bool = False
