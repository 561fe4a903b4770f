"""Whose VM it is: by a mark in extraConfig that holds only together with the instanceUuid that goes with it.

vCenter copies extraConfig into every clone but gives the clone a new instanceUuid. The instanceUuid of a replica follows from its
group and its name, so a copy that a person made betrays itself, without any list of what we made.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Container, Mapping
from string import ascii_lowercase
from uuid import UUID, uuid5

from msgspec import Struct

from ...vsphere.index import Index
from ...vsphere.inventory import Change
from ...vsphere.model import VirtualMachine
from ...vsphere.vcenter import VCenter

_EXTRA_CONFIG_PREFIX = "vsphere-operators."
_UUID_NAMESPACE = UUID("6f5c1f3a-6f0e-5a8e-9a43-0d2c8d1f7b52")
"""The namespace of our uuid5; any fixed value does, as long as it never changes."""


class GroupId(Struct, frozen=True, kw_only=True):
    """Who owns."""

    cluster_id: str
    """An id of the Kubernetes cluster, such as the uid of its namespace kube-system."""
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f'VmGroup "{self.name}" in namespace "{self.namespace}" of cluster {self.cluster_id}'


class OwnershipMark(Struct, frozen=True, kw_only=True):
    """What stands in a VM's extraConfig."""

    group_id: GroupId
    replica_name: str
    slot: int
    fingerprint: str


def instance_uuid_of(uid: str, replica: str) -> str:
    """The instanceUuid of a replica."""
    return str(uuid5(_UUID_NAMESPACE, f"{uid}/{replica}"))


def compute_fingerprint(*parts: str) -> str:
    """A short name for what a replica is made from, so that a change of it is seen: template, linked clone or not, storage policy."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def mark_to_extra_config(mark: OwnershipMark) -> dict[str, str]:
    """The mark as extraConfig."""
    group = mark.group_id
    values = {
        "cluster": group.cluster_id,
        "namespace": group.namespace,
        "name": group.name,
        "uid": group.uid,
    }
    values |= {
        "replica": mark.replica_name,
        "slot": str(mark.slot),
        "fingerprint": mark.fingerprint,
    }
    return {f"{_EXTRA_CONFIG_PREFIX}{key}": value for key, value in values.items()}


def mark_from_extra_config(options: Mapping[str, str]) -> OwnershipMark | None:
    """The mark in extraConfig; None where there is none, or not all of it."""
    found = {
        key: options.get(f"{_EXTRA_CONFIG_PREFIX}{key}", "")
        for key in ("cluster", "namespace", "name", "uid", "replica", "slot", "fingerprint")
    }
    if not all(found.values()) or not (found["slot"].isascii() and found["slot"].isdecimal()):
        return None
    group = GroupId(
        cluster_id=found["cluster"],
        namespace=found["namespace"],
        name=found["name"],
        uid=found["uid"],
    )
    return OwnershipMark(
        group_id=group,
        replica_name=found["replica"],
        slot=int(found["slot"]),
        fingerprint=found["fingerprint"],
    )


def is_genuine(mark: OwnershipMark, instance_uuid: str) -> bool:
    """Whether the mark was made for this VM, and not copied into it."""
    return instance_uuid.lower() == instance_uuid_of(mark.group_id.uid, mark.replica_name)


def is_owned_by(mark: OwnershipMark | None, instance_uuid: str, group: GroupId) -> bool:
    """Whether a VM belongs to the group."""
    return (
        mark is not None
        and mark.group_id.uid == group.uid
        and mark.group_id.cluster_id == group.cluster_id
        and is_genuine(mark, instance_uuid)
    )


class FolderClaim(Struct, frozen=True, kw_only=True):
    """A living group and the folder that it has or would make."""

    group_id: GroupId
    folder_key: str
    """Parent and name, the same text for the same folder."""
    created_at: str
    """creationTimestamp, in whole seconds: two may have the same."""
    in_use: bool = False
    """Whether it has begun to use it."""


def find_conflicting_owner(
    claim: FolderClaim, owners_inside: Collection[GroupId], claims: Collection[FolderClaim]
) -> GroupId | None:
    """Who else owns the folder, None if nobody.

    `owners_inside` are the owners of the VMs in it, by genuine marks; `claims` are those of all living groups of this cluster.
    """
    if any(each.uid == claim.group_id.uid for each in owners_inside):
        return None
    if others := sorted(owners_inside, key=lambda each: (each.cluster_id, each.uid)):
        return others[0]
    same = [
        each
        for each in claims
        if each.folder_key == claim.folder_key and each.group_id.uid != claim.group_id.uid
    ]
    older = sorted(
        (each for each in same if _claim_sort_key(each) < _claim_sort_key(claim)),
        key=_claim_sort_key,
    )
    return older[0].group_id if older else None


def _claim_sort_key(claim: FolderClaim) -> tuple[bool, str, str]:
    """Who has begun comes first, then who was made first."""
    return not claim.in_use, claim.created_at, claim.group_id.uid


def describe_folder_conflict(folder_path: str, owner: GroupId, *, owner_exists: bool = True) -> str:
    """The words for a folder that is somebody else's; also of a group that is gone and left its VMs."""
    if not owner_exists:
        return (
            f"the folder {folder_path} has VMs of a group that is gone ({owner}, uid {owner.uid}), so nothing is created in it; "
            "move them elsewhere in vCenter, or give this group another name or spec.placement.folder"
        )
    cure = "delete that group, or give this one another name or spec.placement.folder"
    return f"the folder {folder_path} belongs to {owner}, so nothing is created in it; {cure}"


_MAX_NAME_LENGTH = 80


_SUFFIX_LENGTH = 8


_HASH_LENGTH = 10


# `%`, `/` and `\` count three times and must be escaped on the wire; the others cannot be typed into a search.
_UNSAFE_CHARACTERS = re.compile(r"[%/\\]|[^ -~]")


def escaped_length(name: str) -> int:
    """The length of a name as vCenter counts it."""
    return len(name) + 2 * sum(name.count(each) for each in "%/\\")


def _make_valid_name(text: str, longest: int = _MAX_NAME_LENGTH) -> str:
    """The text itself if vCenter takes it, else the beginning of it and a hash of all of it."""
    plain = _UNSAFE_CHARACTERS.sub("-", text).strip()
    if plain == text and 0 < len(text) <= longest:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return f"{plain[: longest - _HASH_LENGTH - 1].rstrip()}-{digest}"


def folder_name(namespace: str, name: str) -> str:
    """The group's folder. Two groups may have the same one (`a`, `b-c` and `a-b`, `c`): see folder.py."""
    return _make_valid_name(f"{namespace}-{name}")


def replica_name(group: str, suffix: str) -> str:
    """A replica's name."""
    ending = f"-replica-{suffix}"
    return f"{_make_valid_name(group, _MAX_NAME_LENGTH - len(ending))}{ending}"


def generate_replica_name(group: str, choose: Callable[[str], str], used: Container[str]) -> str:
    """A replica's name that is not used yet; `choose` picks a letter, such as random.SystemRandom().choice."""
    while True:
        name = replica_name(group, "".join(choose(ascii_lowercase) for _ in range(_SUFFIX_LENGTH)))
        if name not in used:
            return name


_UUID5_PATTERN = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE
)


class OwnershipIndex:
    """The genuine marks by reference, and the references by uid of the group; `tell` hears whose VMs changed."""

    def __init__(self, vcenter: VCenter, tell: Callable[[str], None]) -> None:
        self.inventory, self.vm_configs, self._notify_group = (
            vcenter.inventory,
            vcenter.vm_configs,
            tell,
        )
        self.marks: dict[str, OwnershipMark] = {}
        self.refs_by_group_uid = Index()
        self.unread_refs: set[str] = set()
        self.synced = False
        vcenter.inventory.connect(self.on_change, VirtualMachine)
        vcenter.vm_configs.changed.connect(self._on_vm_config)

    @property
    def has_synced(self) -> bool:
        """Whether every VM that was there in the beginning is known; those that come later follow from records."""
        self.synced = self.synced or self.unread_refs <= self.vm_configs.hidden
        return self.synced

    def on_change(self, change: Change) -> None:
        """A VM came, changed or went."""
        old, new = change.old, change.new
        if isinstance(new, VirtualMachine):
            # Without its files vCenter tells no configuration; whose it is has not changed by that.
            if not new.instance_uuid or (
                isinstance(old, VirtualMachine) and old.instance_uuid == new.instance_uuid
            ):
                return
            if _UUID5_PATTERN.fullmatch(new.instance_uuid):
                if self.vm_configs.get(new.ref) is None:
                    self.unread_refs.add(new.ref)
                self._on_vm_config(new.ref)
            elif isinstance(old, VirtualMachine):
                self.remove(new.ref)
        elif isinstance(old, VirtualMachine):
            self.remove(old.ref)

    def _on_vm_config(self, ref: str) -> None:
        """What belongs to a VM is known, or is otherwise."""
        found, machine = self.vm_configs.values.get(ref), self.inventory.vms.get(ref)
        if found is None or machine is None or not machine.instance_uuid:
            return
        if ref in self.vm_configs.hidden:
            # What cannot be read is not unmarked; it may be anybody's.
            self.unread_refs.add(ref)
            return
        self.unread_refs.discard(ref)
        mark = mark_from_extra_config(found.extra_config)
        if mark is None or not is_genuine(mark, machine.instance_uuid):
            self.remove(ref)
            return
        if self.marks.get(ref) != mark:
            self.remove(ref)
            self.marks[ref] = mark
            self.refs_by_group_uid.add(mark.group_id.uid, ref)
        self._notify_group(mark.group_id.uid)

    def remove(self, ref: str) -> None:
        """It is nobody's from now on."""
        self.unread_refs.discard(ref)
        mark = self.marks.pop(ref, None)
        if mark is not None:
            self.refs_by_group_uid.drop(mark.group_id.uid, ref)
            self._notify_group(mark.group_id.uid)
