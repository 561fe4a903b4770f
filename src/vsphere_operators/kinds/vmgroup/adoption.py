"""Plans the adoption of VMs by a group: what a user requested, and what of it is possible.

What is a request?  The annotation ADOPT_ANNOTATION of the group. It lists the instanceUuids of the
    VMs that the user has seen and confirmed, so no other VM is adopted. After the adoption a VM has
    another instanceUuid, and the request has no effect any more.
In which order?  First the records of all these VMs are stored, then one VM after the other gets the
    mark. So the group never creates a VM for one that it is about to adopt.
Why does a group create no VM while it could adopt some?  It would have twice as many as a user
    expects. This applies to groups without VMs of their own, and to groups with a request or with
    adopted VMs.

docs/designs/adoption.md explains why it is safe.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from msgspec import Struct

from ...vsphere.model import VirtualMachine
from ...vsphere.vcenter import VCenter
from .adoption_candidates import Candidate, find_candidates
from .model import (
    CloneBlocked,
    CloneState,
    DesiredState,
    GroupFolder,
    ReplicaRecord,
    ReplicaVm,
)
from .ownership import format_adopt_command, instance_uuid_of
from .quota import sum_amounts
from .reasons import Reason
from .replica import is_outdated
from .step import AdoptionRequest, GroupInput
from .types import ADOPT_ANNOTATION, UNDO_ADOPTION, AdoptionStatus, AdoptionVmStatus

_REQUEST_HASH_LENGTH = 12
_MAX_FOREIGN_VMS = 20
_NOT_REPORTED_YET = "The VMs were not in status.adoption yet. Request them again."
_MAX_NAMES_IN_MESSAGE = 3


class AdoptionPlan(Struct, frozen=True, kw_only=True):
    # Records to store before the first VM is marked.
    requested: tuple[ReplicaRecord, ...] = ()
    # By the name of a record with a VM that does not have the mark yet.
    clone_states: Mapping[str, CloneState] = {}
    # By the same names: the VM, None if it cannot be adopted any more.
    vms_to_adopt: Mapping[str, VirtualMachine | None] = {}
    blocker: CloneBlocked | None = None
    # None if there is nothing to report.
    status: AdoptionStatus | None = None


def parse_request(annotations: Mapping[str, str]) -> AdoptionRequest | None:
    text = annotations.get(ADOPT_ANNOTATION, "").strip()
    if not text:
        return None
    if text.lower() == UNDO_ADOPTION:
        return AdoptionRequest(hash=hash_request(text), undo=True)
    uuids = (part.strip().lower() for part in text.split(","))
    return AdoptionRequest(hash=hash_request(text), instance_uuids=frozenset(filter(None, uuids)))


def hash_request(text: str) -> str:
    """Identifies a request in the status."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:_REQUEST_HASH_LENGTH]


class AdoptionPlanner:
    """Plans the adoptions of the groups of one vCenter, without I/O."""

    def __init__(self, vcenter: VCenter) -> None:
        self._vcenter, self._inventory = vcenter, vcenter.inventory

    def plan(
        self,
        group: GroupInput,
        desired: DesiredState,
        folder: GroupFolder | None,
        vms: Sequence[ReplicaVm],
        is_change_pending: Callable[[VirtualMachine], bool],
    ) -> AdoptionPlan:
        """`vms` are those that the group owns by their marks.

        `is_change_pending` returns whether a request may be in progress that changes the mark of a
        VM. Its record is then neither dropped nor acted on.
        """
        candidates: list[Candidate] = []
        if folder is not None:
            own_refs = {vm.ref for vm in vms}
            candidates = list(
                find_candidates(group, folder, own_refs, self._inventory, self._vcenter.vm_configs)
            )
        vms_by_uuid = {
            candidate.instance_uuid: candidate.vm
            for candidate in candidates
            if candidate.verdict == "Adoptable"
        }
        undecided = {c.instance_uuid for c in candidates if c.verdict == "Waiting"}
        clone_states, vms_to_adopt = dict[str, CloneState](), dict[str, VirtualMachine | None]()
        for record, vm in self._find_unmarked(group, vms):
            vms_to_adopt[record.name] = vms_by_uuid.get(record.adopted_from)
            if is_change_pending(vm):
                clone_states[record.name] = CloneState.RUNNING
            elif folder is None or record.adopted_from in undecided:
                clone_states[record.name] = CloneState.UNKNOWN
            else:
                clone_states[record.name] = CloneState.ADOPTING
        chosen, rejection = _choose(group, desired, candidates, vms)
        requested = tuple(_build_records(group, desired, chosen, vms))
        return AdoptionPlan(
            requested=requested,
            clone_states=clone_states | {record.name: CloneState.ADOPTING for record in requested},
            vms_to_adopt=vms_to_adopt
            | {record.name: vms_by_uuid[record.adopted_from] for record in requested},
            blocker=_find_blocker(group, desired, folder, candidates, requested, vms),
            status=_build_status(group, desired, candidates, vms, rejection),
        )

    def _find_unmarked(
        self, group: GroupInput, vms: Sequence[ReplicaVm]
    ) -> Iterator[tuple[ReplicaRecord, VirtualMachine]]:
        """The records of VMs to adopt that do not have the mark, each with its VM.

        A VM can lose its mark again: vCenter may have been restored from a backup.
        """
        own_names = {vm.replica_name for vm in vms}
        for record in group.records:
            if record.adopted_from and record.name not in own_names:
                for vm in list(self._inventory.by_instance_uuid(record.adopted_from))[:1]:
                    yield record, vm


def _choose(
    group: GroupInput,
    desired: DesiredState,
    candidates: Sequence[Candidate],
    vms: Sequence[ReplicaVm],
) -> tuple[list[Candidate], str]:
    """The requested VMs that have no record yet, all or none; and the reason if none."""
    request = group.adoption_request
    if request is None or not request.instance_uuids:
        return [], ""
    recorded = {record.adopted_from for record in group.records} | {vm.adopted_from for vm in vms}
    by_uuid = {candidate.instance_uuid: candidate for candidate in candidates}
    chosen = list[Candidate]()
    for uuid in sorted(request.instance_uuids - recorded):
        candidate = by_uuid.get(uuid)
        if candidate is None:
            return [], f"The group's folder has no VM with the instanceUuid {uuid}."
        if candidate.verdict != "Adoptable":
            return [], f'VM "{candidate.vm.name}" cannot be adopted. {candidate.message}'
        chosen.append(candidate)
        if uuid not in group.reported_uuids:
            # A user has not seen it yet. The check also makes sure that the CRD has the fields: if
            # the API server dropped `adoptedFrom`, the record would lead to a clone.
            return [], _NOT_REPORTED_YET
    chosen.sort(key=_creation_order)
    rejection = _find_rejection(group, desired, chosen, vms) if chosen else ""
    return ([], rejection) if rejection else (chosen, "")


def _find_rejection(
    group: GroupInput,
    desired: DesiredState,
    chosen: Sequence[Candidate],
    vms: Sequence[ReplicaVm],
) -> str:
    """Why these VMs cannot be adopted together, or ""."""
    if duplicates := " ".join(_describe_duplicates(chosen, {vm.replica_name for vm in vms})):
        return duplicates
    names = {candidate.replica_name for candidate in chosen}
    recorded = sorted({record.name for record in group.records} & names)
    if recorded:
        # An older manager, or its CRD, has dropped `adoptedFrom` of a record without a mark.
        return (
            f"The group already has records of {', '.join(recorded)}, and they do not lead to "
            "these VMs. This can be after a downgrade during an adoption. Set spec.deletionPolicy "
            "to Orphan, delete the VmGroup, create it again, then adopt the VMs. They keep running."
        )
    active = _count_active(group, vms)
    if active + len(chosen) > desired.replicas:
        excess = active + len(chosen) - desired.replicas
        return (
            f"The group would delete {excess} of its VMs after the adoption: it would have "
            f"{active + len(chosen)}, and spec.replicas is {desired.replicas}. Set spec.replicas "
            f"to {active + len(chosen)}, or move VMs to another folder in vCenter."
        )
    # The VMs of a deleted group count in the quota of the namespace already.
    added = [candidate.size for candidate in chosen if candidate.previous_mark is None]
    used = sum_amounts(record.size for record in group.records)
    if desired.quota_violation or not desired.quota.covers(used + sum_amounts(added)):
        return desired.quota_violation or (
            "The VMs exceed the quota of the namespace. Ask an administrator to raise it."
        )
    if desired.deleting:
        return "The VmGroup is being deleted."
    return "spec.paused is true. Set it to false before the adoption." if desired.paused else ""


def _describe_duplicates(chosen: Sequence[Candidate], own_names: Set[str]) -> Iterator[str]:
    """A replica name is that of one VM; a mark can be copied, and a user can rename a VM."""
    for name in sorted({candidate.replica_name for candidate in chosen}):
        vms = [candidate.vm for candidate in chosen if candidate.replica_name == name]
        titles = " and ".join(f'"{vm.name}" ({vm.ref})' for vm in vms)
        if name in own_names:
            yield (
                f'The group has a replica "{name}" already, so it cannot adopt {titles}. Move it '
                "to another folder in vCenter."
            )
        elif len(vms) > 1:
            yield (
                f'Several VMs are marked as replica "{name}": {titles}. Move all but one of them '
                "to another folder in vCenter."
            )


def _count_active(group: GroupInput, vms: Sequence[ReplicaVm]) -> int:
    terminating = {record.name for record in group.records if record.terminating}
    names = {record.name for record in group.records} | {vm.replica_name for vm in vms}
    return len(names - terminating)


def _creation_order(candidate: Candidate) -> tuple[int, int, str]:
    """By the number in the mark; without one by the MoRef, because vCenter counts MoRefs up."""
    mark, ref = candidate.previous_mark, candidate.vm.ref
    return mark.sequence_number if mark else 0, len(ref), ref


def _build_records(
    group: GroupInput,
    desired: DesiredState,
    chosen: Sequence[Candidate],
    vms: Sequence[ReplicaVm],
) -> Iterator[ReplicaRecord]:
    next_number = 1 + max(
        (
            -1,
            *(record.sequence_number for record in group.records),
            *(vm.sequence_number for vm in vms),
        )
    )
    for number, candidate in enumerate(chosen, next_number):
        mark = candidate.previous_mark
        yield ReplicaRecord(
            sequence_number=number,
            name=candidate.replica_name,
            instance_uuid=instance_uuid_of(group.group_id.uid, candidate.replica_name),
            template="",
            # What the original operator cloned is unknown, so it counts as current.
            fingerprint=mark.fingerprint if mark else desired.fingerprint,
            # The original operator may have sent its clone, and the clone may not have ended.
            state="Cloning",
            cpus=candidate.size.cpus,
            memory_mb=candidate.size.memory_mb,
            adopted_from=candidate.instance_uuid,
        )


def _find_blocker(
    group: GroupInput,
    desired: DesiredState,
    folder: GroupFolder | None,
    candidates: Sequence[Candidate],
    requested: Sequence[ReplicaRecord],
    vms: Sequence[ReplicaVm],
) -> CloneBlocked | None:
    if _count_active(group, vms) + len(requested) >= desired.replicas:
        return None
    recorded = {record.adopted_from for record in (*group.records, *requested)}
    names = sorted(
        candidate.vm.name
        for candidate in candidates
        if candidate.may_be_own and candidate.instance_uuid not in recorded
    )
    request, group_id = group.adoption_request, group.group_id
    if folder is not None and names and _waits_for_decision(group, vms):
        shown = ", ".join(names[:_MAX_NAMES_IN_MESSAGE])
        more = ", ..." if len(names) > _MAX_NAMES_IN_MESSAGE else ""
        return CloneBlocked(
            Reason.VMS_NOT_ADOPTED,
            f"{len(names)} VM{'' if len(names) == 1 else 's'} without a mark of this group in "
            f"{folder.path} may belong to it ({shown}{more}), so it creates no VM. To adopt them, "
            f"run: {format_adopt_command(group_id)}. To have new VMs instead, move these to "
            "another folder in vCenter.",
        )
    if request is not None and request.undo:
        return CloneBlocked(
            Reason.VMS_NOT_ADOPTED,
            f'The annotation {ADOPT_ANNOTATION} is "{UNDO_ADOPTION}", so the group creates no VM. '
            f"To create VMs again, run: kubectl annotate vmgroup {group_id.name} -n "
            f"{group_id.namespace} {ADOPT_ANNOTATION}-",
        )
    return None


def _waits_for_decision(group: GroupInput, vms: Sequence[ReplicaVm]) -> bool:
    """Whether VMs that the group could adopt keep it from creating others."""
    return (
        not (group.records or vms)
        or group.adoption_request is not None
        or any(record.adopted_from for record in group.records)
        or any(vm.adopted_from for vm in vms)
    )


def _build_status(
    group: GroupInput,
    desired: DesiredState,
    candidates: Sequence[Candidate],
    vms: Sequence[ReplicaVm],
    rejection: str,
) -> AdoptionStatus | None:
    request = group.adoption_request
    recorded = {record.adopted_from for record in group.records}
    candidates = [c for c in candidates if c.instance_uuid not in recorded]
    if request is None:
        # Why the manager would reject a request for all of them.
        adoptable = [c for c in candidates if c.verdict == "Adoptable"]
        rejection = _find_rejection(group, desired, adoptable, vms) if adoptable else ""
    if request is None and not any(candidate.may_be_own for candidate in candidates):
        return None
    foreign = [candidate for candidate in candidates if candidate.verdict == "Foreign"]
    shown = [candidate for candidate in candidates if candidate.verdict != "Foreign"]
    return AdoptionStatus(
        observedRequest=request.hash if request is not None else "",
        message=rejection,
        vms=[
            AdoptionVmStatus(
                name=candidate.vm.name,
                moRef=candidate.vm.ref,
                instanceUUID=candidate.instance_uuid,
                verdict=candidate.verdict,
                message=" ".join([candidate.message, *_describe_effects(desired, candidate)]),
            )
            for candidate in sorted(
                [*shown, *foreign[:_MAX_FOREIGN_VMS]], key=lambda candidate: candidate.vm.name
            )
        ],
    )


def _describe_effects(desired: DesiredState, candidate: Candidate) -> Iterator[str]:
    """What the group does with an adopted VM afterwards."""
    if candidate.verdict != "Adoptable":
        return
    mark, size, vm = candidate.previous_mark, candidate.size, candidate.vm
    if is_outdated(desired, mark.fingerprint if mark else desired.fingerprint, size):
        yield "The group then replaces it, because it differs from the spec."
    elif size != desired.size:
        yield (
            f"The group then powers it off and changes its size to {desired.cpus} CPUs and "
            f"{desired.memory_mb} MB."
        )
    elif vm.power != desired.power:
        yield f"The group then changes its power state to {desired.power}."
