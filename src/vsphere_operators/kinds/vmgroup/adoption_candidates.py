"""Which VMs in the folder of a group the group may adopt.

Adoptable are the VMs that the original operator created for the group: without a mark, in the
group's folder, with the name of a replica. And those of a deleted group of the same cluster,
namespace and name: this group has that name now, so the other one cannot exist.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Literal

from msgspec import Struct

from ...vsphere.inventory import Inventory
from ...vsphere.model import VirtualMachine
from ...vsphere.vm_calls import VmConfig
from ...vsphere.vm_property_cache import VmPropertyCache
from .model import GroupFolder, ResourceAmount
from .ownership import (
    FolderClaim,
    GroupId,
    OwnershipMark,
    has_mark_keys,
    instance_uuid_of,
    is_made_for_vm,
    is_replica_name,
    mark_from_extra_config,
    may_be_replica,
)
from .step import GroupInput

# Adoptable: the group may adopt it. Waiting: it cannot be decided yet. Refused: it may not, and a
# user may have expected it. Foreign: it does not belong to the group.
Verdict = Literal["Adoptable", "Waiting", "Refused", "Foreign"]


class Candidate(Struct, frozen=True, kw_only=True):
    """A VM in the folder of a group without the group's mark, and whether it can be adopted."""

    vm: VirtualMachine
    verdict: Verdict
    message: str
    # Whether it may be a VM of the group, so that the group should not create another one.
    may_be_own: bool = False
    # Of an adoptable VM; the mark of a deleted group has another name if a user renamed the VM.
    replica_name: str = ""
    previous_mark: OwnershipMark | None = None

    @property
    def instance_uuid(self) -> str:
        return self.vm.instance_uuid.lower()

    @property
    def size(self) -> ResourceAmount:
        return ResourceAmount(vms=1, cpus=self.vm.cpus or 0, memory_mb=self.vm.memory_mb or 0)


def judge_vm(
    vm: VirtualMachine,
    config: VmConfig | None,
    group_id: GroupId,
    sharing_group: GroupId | None = None,
) -> Candidate:
    """Whether the group may adopt a VM in its folder; `config` is None until it was read.

    `sharing_group` is another group that has the same folder.
    """

    def answer(verdict: Verdict, message: str, *, may_be_own: bool = False) -> Candidate:
        return Candidate(vm=vm, verdict=verdict, message=message, may_be_own=may_be_own)

    has_name = is_replica_name(group_id.name, vm.name)
    if vm.is_template:
        return answer("Foreign", "It is a template.")
    mark = mark_from_extra_config(config.extra_config) if config is not None else None
    if mark is None and not has_name:
        return answer("Foreign", f"Its name is not {group_id.name}-replica- and 8 letters.")
    if config is None or not vm.instance_uuid:
        return answer("Waiting", "vCenter has not returned its configuration.", may_be_own=True)
    if mark is None:
        if has_mark_keys(config.extra_config):
            return answer("Refused", "Its vsphere-operators.* keys in extraConfig are incomplete.")
        if vm.instance_uuid.lower() == instance_uuid_of(group_id.uid, vm.name):
            return answer("Refused", "Its vsphere-operators.* keys in extraConfig were removed.")
        origin = "It has no owner, and its name and folder are those of a VM of this group."
    else:
        if (rejected := _check_owner(vm, mark, group_id)) is not None:
            return rejected
        origin = f"It belonged to a deleted VmGroup of this name (uid {mark.group_id.uid})."
    if sharing_group is not None:
        return answer(
            "Refused",
            f"{sharing_group} has the same folder. Set spec.placement.folder of one of the groups, "
            "and move its VMs there.",
            may_be_own=True,
        )
    if vm.connection not in ("connected", ""):
        return answer("Waiting", f"vCenter cannot access it ({vm.connection}).", may_be_own=True)
    return Candidate(
        vm=vm,
        verdict="Adoptable",
        message=origin,
        may_be_own=True,
        replica_name=mark.replica_name if mark else vm.name,
        previous_mark=mark,
    )


def _check_owner(vm: VirtualMachine, mark: OwnershipMark, group_id: GroupId) -> Candidate | None:
    """The answer for a VM with a mark; None if its owner is a deleted group of the same name."""
    owner = mark.group_id
    if not is_made_for_vm(mark, vm.instance_uuid):
        return Candidate(vm=vm, verdict="Foreign", message=f"It is a copy of a replica of {owner}.")
    if (owner.namespace, owner.name) != (group_id.namespace, group_id.name):
        return Candidate(vm=vm, verdict="Refused", message=f"It belongs to {owner}.")
    if owner.cluster_id != group_id.cluster_id:
        return Candidate(
            vm=vm,
            verdict="Refused",
            message=f"It belongs to {owner}. If this cluster replaces that one, start the manager "
            f"with -cluster-id={owner.cluster_id}.",
            may_be_own=True,
        )
    return None


def find_candidates(
    group: GroupInput,
    folder: GroupFolder,
    own_refs: Collection[str],
    inventory: Inventory,
    vm_configs: VmPropertyCache[VmConfig],
) -> Iterator[Candidate]:
    """All VMs in the folder except the group's own."""
    own_uuids = {record.instance_uuid for record in group.records}
    sharing_group = find_sharing_group(group)
    for child in inventory.children(folder.ref):
        if (
            not isinstance(child, VirtualMachine)
            or child.ref in own_refs
            # A replica with a mark that has not been read yet.
            or (child.instance_uuid.lower() in own_uuids and child.ref not in vm_configs.values)
        ):
            continue
        config: VmConfig | None = None
        if is_replica_name(group.group_id.name, child.name) or may_be_replica(child.instance_uuid):
            # get() also requests the configuration when it is not cached.
            config = vm_configs.get(child.ref)
            if child.ref in vm_configs.unreadable:
                config = None
        yield judge_vm(child, config, group.group_id, sharing_group)


def find_sharing_group(group: GroupInput) -> GroupId | None:
    """Another group that has the same folder."""

    def shares(claim: FolderClaim) -> bool:
        own = group.folder_claim
        return claim.folder_key == own.folder_key and claim.group_id.uid != own.group_id.uid

    return next((claim.group_id for claim in group.folder_claims if shares(claim)), None)
