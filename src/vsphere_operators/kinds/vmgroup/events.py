"""The Events of a VmGroup that follow from its status: clones, replacements and deletions.

Why are two stored versions compared, and not the steps of a reconcile?  A step is repeated after a
    conflict or a restart, but its result is stored once. A new manager sees what has changed since
    the stored version, so it also reports what happened while no manager ran.
What is not in the status?  The cause of a change of power or size: see operation_reporter.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set

from msgspec import Struct

from kubewright import Key
from kubewright.cache import Origin
from kubewright.condition import find_condition
from kubewright.recorder import EventRecorder, EventType

from ...vsphere.inventory import Inventory
from .causes import find_deletion_cause
from .desired import build_desired_state
from .fingerprint import compute_fingerprints, is_current
from .model import DeletionCause, ResourceAmount
from .reasons import Reason
from .types import ReplicaStatus, VmGroup

# With these reasons the group waits. The engine records Events of failures only.
_REPORTED_READY_REASONS = (Reason.VM_MISSING, Reason.VM_UNAVAILABLE)


class GroupEvent(Struct, frozen=True):
    type: EventType
    reason: Reason
    message: str


class VmGroupEvents:
    """Records the Events of all groups, while this manager holds the lease."""

    def __init__(
        self,
        recorder: EventRecorder,
        inventories: Mapping[str, Inventory],
        holds_lease: Callable[[], bool],
    ) -> None:
        """`inventories` are those of the vCenters, by name."""
        self._recorder, self._inventories = recorder, inventories
        self._holds_lease = holds_lease
        # By the uid of the group. vCenter may report a VM before it has powered it on.
        self._not_ready_yet: dict[str, frozenset[str]] = {}

    def on_group_change(self, key: Key, old: object, new: object, origin: Origin) -> None:
        if isinstance(old, VmGroup) and not (
            isinstance(new, VmGroup) and new.metadata.uid == old.metadata.uid
        ):
            self._not_ready_yet.pop(old.metadata.uid, None)
            return
        if not isinstance(old, VmGroup) or not isinstance(new, VmGroup):
            return
        if old.status == new.status:
            return
        uid = new.metadata.uid
        not_ready_yet = self._not_ready_yet.pop(uid, frozenset())
        # A standby remembers them too, since it may become the leader.
        if names := _list_not_ready_yet(old, new, not_ready_yet):
            self._not_ready_yet[uid] = names
        if not self._holds_lease():
            return
        inventory = self._inventories.get(new.status.vcenter)
        for event in list_events(old, new, inventory, not_ready_yet):
            # The next leader may see the same change, if its watch is late.
            self._recorder.event(
                new, event.type, event.reason, event.message, once_per_version=True
            )


def _list_not_ready_yet(old: VmGroup, new: VmGroup, previous: Set[str]) -> frozenset[str]:
    """The replicas that were cloned and never had the desired power state, by name.

    `previous` are those of the old version.
    """
    states = {replica.name: replica.state for replica in old.status.replicas}
    return frozenset(
        replica.name
        for replica in new.status.replicas
        if replica.state == "Present"
        and not _is_ready(replica, new)
        and (states.get(replica.name, "Present") != "Present" or replica.name in previous)
    )


def list_events(
    old: VmGroup, new: VmGroup, inventory: Inventory | None, not_ready_yet: Set[str] = frozenset()
) -> Iterator[GroupEvent]:
    """What has happened between two versions of a group.

    `not_ready_yet` is `_list_not_ready_yet` of the old version.
    """
    if new.status.observedGeneration is None:
        # A user has wiped the status.
        return
    reasons = [
        condition.reason if (condition := find_condition(status.conditions, "Ready")) else ""
        for status in (old.status, new.status)
    ]
    for reason in _REPORTED_READY_REASONS:
        if reasons[1] == reason != reasons[0]:
            yield GroupEvent("Warning", reason, new.status.lastMessage)
    previous = {replica.name: replica for replica in old.status.replicas}
    for replica in new.status.replicas:
        before = previous.pop(replica.name, None)
        if before is not None:
            yield from _list_replica_events(before, replica, new, inventory)
            is_new = before.state != "Present" or replica.name in not_ready_yet
            if is_new and _is_ready(replica, new):
                host = f' on host "{replica.host}"' if replica.host else ""
                yield GroupEvent("Normal", Reason.VM_READY, f'VM "{replica.name}" is ready{host}.')
    for replica in previous.values():
        yield from _list_removal_events(replica, new, inventory)


def _is_ready(replica: ReplicaStatus, group: VmGroup) -> bool:
    return (
        replica.state == "Present"
        and replica.power == group.spec.powerState
        and not replica.leaving
    )


def _list_replica_events(
    before: ReplicaStatus, replica: ReplicaStatus, group: VmGroup, inventory: Inventory | None
) -> Iterator[GroupEvent]:
    name = replica.name
    if before.state == "Present" and replica.attempt > before.attempt:
        yield GroupEvent(
            "Warning",
            Reason.VM_GONE,
            f"{_describe_gone(before)} It is cloned again under the same name.",
        )
    if before.state == "Planned" and replica.state == "Cloning" and replica.task:
        template = inventory.name_of(replica.template) if inventory else ""
        yield GroupEvent(
            "Normal",
            Reason.CLONE_STARTED,
            f'Cloning VM "{name}" from template "{template or group.spec.template}" '
            f"({replica.task}).",
        )
    if replica.leaving and not before.leaving and _cause_of(replica, group) == "rollout":
        change = (
            "spec.cpu or spec.memory has changed, and spec.rollout.maxUnavailable is 0"
            if is_current(replica.fingerprint, compute_fingerprints(group.spec))
            else "spec.template, spec.linkedClone or spec.storagePolicy has changed"
        )
        yield GroupEvent("Normal", Reason.ROLLING_UPDATE, f'Replacing VM "{name}": {change}.')


def _list_removal_events(
    replica: ReplicaStatus, group: VmGroup, inventory: Inventory | None
) -> Iterator[GroupEvent]:
    """A replica that is no longer in the status."""
    is_deletion = group.metadata.deletionTimestamp is not None
    vm = inventory.vms.get(replica.moRef) if inventory is not None else None
    if vm is not None and replica.adoptedFrom == vm.instance_uuid.lower():
        # The adoption was undone, which operation_reporter.py reports, or has not begun.
        return
    if replica.state == "Present" and inventory is not None and replica.moRef in inventory.vms:
        if replica.leaving or not is_deletion:
            replacement = "" if replica.leaving else ", and a new VM replaces it"
            yield GroupEvent(
                "Warning",
                Reason.VM_RELEASED,
                f'VM "{replica.name}" ({inventory.path(replica.moRef)}) no longer belongs to this '
                "group: its vsphere-operators.* keys in extraConfig were removed. It is left as it "
                f"is{replacement}.",
            )
    elif replica.leaving:
        # Without a reference, the replica never had a VM.
        if replica.moRef:
            cause = {
                "group_deletion": "the VmGroup is being deleted",
                "rollout": "a new VM replaces it",
                "scale_down": f"spec.replicas is {group.spec.replicas}",
            }[_cause_of(replica, group)]
            message = f'Deleted VM "{replica.name}": {cause}.'
            yield GroupEvent("Normal", Reason.VM_DELETED, message)
    elif replica.state == "Present" and not is_deletion:
        yield GroupEvent("Warning", Reason.VM_GONE, _describe_gone(replica))


def _describe_gone(replica: ReplicaStatus) -> str:
    details = [replica.moRef, f'on host "{replica.host}"' if replica.host else ""]
    reference = " ".join(filter(None, details))
    return (
        f'VM "{replica.name}" {f"({reference}) " if reference else ""}no longer exists in vCenter, '
        "and the manager did not delete it."
    )


def _cause_of(replica: ReplicaStatus, group: VmGroup) -> DeletionCause:
    size = ResourceAmount(vms=1, cpus=replica.cpu, memory_mb=replica.memoryMB)
    return find_deletion_cause(build_desired_state(group), replica.fingerprint, size)
