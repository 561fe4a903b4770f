"""Which VM and which folder belong to which VmGroup, and how they are named.

How is a VM marked?  By keys in extraConfig that name its group and replica. vCenter copies
    extraConfig into every clone but gives the clone a new instanceUuid. The instanceUuid of a
    replica is derived from its group and its name, so a copy that a user made is recognized: its
    instanceUuid does not match its mark. No list of created VMs is needed.
How is a folder marked?  A folder has no extraConfig. The VMs in it prove its owner; without any,
    the group that uses it, or that was created first, owns it.
Which VMs does OwnershipIndex read?  Those with a UUID of version 5 as instanceUuid, since only
    these can be replicas. One in 64 of vCenter's own instanceUuids has that form by chance.
When is OwnershipIndex complete?  After a load of the inventory, when the configuration of all those
    VMs has been read. Until then a VM of a group may be unknown.
Why does `refs_by_group_uid` need no cluster id?  The uid of an object is unique across clusters.
    `is_owned_by` compares the cluster id all the same: the backup of a cluster may be restored as a
    second one, and then both have the uid.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from string import ascii_lowercase
from uuid import UUID, uuid5

from msgspec import Struct
from msgspec.structs import replace

from ...vsphere.index import Index
from ...vsphere.inventory import Change
from ...vsphere.model import VirtualMachine
from ...vsphere.vcenter import VCenter

_EXTRA_CONFIG_PREFIX = "vsphere-operators."
_MARK_KEYS = ("cluster", "namespace", "name", "uid", "replica", "slot", "fingerprint")
_ADOPTION_KEY = f"{_EXTRA_CONFIG_PREFIX}adopted"
# In place of the uid of a previous owner, if there was none.
_NO_OWNER = "-"
# The namespace of the uuid5 of replicas. It must never change: existing VMs would lose their group.
_UUID_NAMESPACE = UUID("6f5c1f3a-6f0e-5a8e-9a43-0d2c8d1f7b52")
_UUID5_PATTERN = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE
)
# vCenter rejects longer names. It counts `%`, `/` and `\` three times, because it stores them
# escaped.
_MAX_NAME_LENGTH = 80
_SUFFIX_LENGTH = 8
_HASH_LENGTH = 10
_UNSAFE_CHARACTERS = re.compile(r"[%/\\]|[^ -~]")


class GroupId(Struct, frozen=True, kw_only=True):
    """One VmGroup, across clusters and across objects of the same name."""

    # The uid of the cluster's namespace kube-system, or the flag -cluster-id.
    cluster_id: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f'VmGroup "{self.name}" in namespace "{self.namespace}" of cluster {self.cluster_id}'

    @property
    def folder_name(self) -> str:
        return folder_name(self.namespace, self.name)

    @property
    def namespace_key(self) -> str:
        """The namespace and its cluster: two clusters may have namespaces of the same name."""
        return f"{self.cluster_id}/{self.namespace}"


class VmOrigin(Struct, frozen=True, kw_only=True):
    """What a VM was before a group adopted it."""

    instance_uuid: str
    # The uid of the deleted group that owned it; "" for a VM without a mark.
    owner_uid: str = ""


class OwnershipMark(Struct, frozen=True, kw_only=True):
    """The content of a VM's extraConfig that names its owner."""

    group_id: GroupId
    replica_name: str
    sequence_number: int
    fingerprint: str
    # Of an adopted VM.
    origin: VmOrigin | None = None


def instance_uuid_of(uid: str, replica: str) -> str:
    """The instanceUuid of a replica of the group with this uid."""
    return str(uuid5(_UUID_NAMESPACE, f"{uid}/{replica}"))


def may_be_replica(instance_uuid: str) -> bool:
    """Whether this can be the instanceUuid of a replica, of any group."""
    return _UUID5_PATTERN.fullmatch(instance_uuid) is not None


def mark_to_extra_config(mark: OwnershipMark) -> dict[str, str]:
    group = mark.group_id
    values = (
        group.cluster_id,
        group.namespace,
        group.name,
        group.uid,
        mark.replica_name,
        str(mark.sequence_number),
        mark.fingerprint,
    )
    keys = (f"{_EXTRA_CONFIG_PREFIX}{key}" for key in _MARK_KEYS)
    extra_config = dict(zip(keys, values, strict=True))
    if mark.origin is not None:
        # With the new instanceUuid of this VM, because a clone of the VM gets a copy of the key.
        own_uuid = instance_uuid_of(group.uid, mark.replica_name)
        origin = (mark.origin.instance_uuid, mark.origin.owner_uid or _NO_OWNER)
        extra_config[_ADOPTION_KEY] = " ".join((own_uuid, *origin))
    return extra_config


def mark_before_adoption(mark: OwnershipMark) -> dict[str, str]:
    """The extraConfig that makes an adopted VM what it was before; vCenter removes empty keys."""
    keys = [*(f"{_EXTRA_CONFIG_PREFIX}{key}" for key in _MARK_KEYS), _ADOPTION_KEY]
    removed = dict.fromkeys(keys, "")
    if mark.origin is None or not mark.origin.owner_uid:
        return removed
    owner = replace(mark.group_id, uid=mark.origin.owner_uid)
    return removed | mark_to_extra_config(replace(mark, group_id=owner, origin=None))


def has_mark_keys(extra_config: Mapping[str, str]) -> bool:
    """Whether there is a mark, complete or not."""
    return any(extra_config.get(f"{_EXTRA_CONFIG_PREFIX}{key}") for key in _MARK_KEYS)


def _read_origin(text: str, own_uuid: str) -> VmOrigin | None:
    parts = text.split(" ")
    if len(parts) != 3 or parts[0] != own_uuid or not parts[1]:
        return None
    return VmOrigin(instance_uuid=parts[1], owner_uid="" if parts[2] == _NO_OWNER else parts[2])


def mark_from_extra_config(extra_config: Mapping[str, str]) -> OwnershipMark | None:
    """The mark; None if it is missing or incomplete."""
    values = {key: extra_config.get(f"{_EXTRA_CONFIG_PREFIX}{key}", "") for key in _MARK_KEYS}
    # The key keeps the name that existing VMs have.
    sequence_number = values["slot"]
    if not all(values.values()) or not (sequence_number.isascii() and sequence_number.isdecimal()):
        return None
    return OwnershipMark(
        group_id=GroupId(
            cluster_id=values["cluster"],
            namespace=values["namespace"],
            name=values["name"],
            uid=values["uid"],
        ),
        replica_name=values["replica"],
        sequence_number=int(sequence_number),
        fingerprint=values["fingerprint"],
        origin=_read_origin(
            extra_config.get(_ADOPTION_KEY, ""),
            instance_uuid_of(values["uid"], values["replica"]),
        ),
    )


def is_made_for_vm(mark: OwnershipMark, instance_uuid: str) -> bool:
    """Whether the mark was made for this VM, and not copied into it by a clone."""
    return instance_uuid.lower() == instance_uuid_of(mark.group_id.uid, mark.replica_name)


def is_owned_by(mark: OwnershipMark | None, instance_uuid: str, group: GroupId) -> bool:
    return (
        mark is not None
        and mark.group_id.uid == group.uid
        and mark.group_id.cluster_id == group.cluster_id
        and is_made_for_vm(mark, instance_uuid)
    )


class OwnershipIndex:
    """The marks that were made for their VM, of one vCenter, and the VMs by uid of their group.

    When the VMs of a group change, `notify_group` is called with its uid.
    """

    def __init__(self, vcenter: VCenter, notify_group: Callable[[str], None]) -> None:
        self.marks: dict[str, OwnershipMark] = {}
        self.refs_by_group_uid = Index()
        # By `namespace_key`.
        self.refs_by_namespace = Index()
        # VMs that may be replicas; their configuration is not read yet, or is unreadable.
        self.unread_refs: set[str] = set()
        self._inventory, self._vm_configs = vcenter.inventory, vcenter.vm_configs
        self._notify_group, self._vcenter = notify_group, vcenter
        # Of the last load after which all marks were read: when it was.
        self._synced_load: float | None = None

    @property
    def has_synced(self) -> bool:
        """Whether the marks of all VMs that the last load found were read.

        VMs that are created later have records. After a reload VMs may be back under another
        reference: a removed host was added, or a vCenter restored.
        """
        last_load = self._vcenter.watching_since
        if self._synced_load != last_load and self.unread_refs <= self._vm_configs.unreadable:
            self._synced_load = last_load
        return self._synced_load == last_load

    def on_vm_change(self, change: Change[VirtualMachine]) -> None:
        old, new = change.old, change.new
        if new is not None:
            # vCenter reports no configuration of a VM with inaccessible files. Its owner stays
            # the same.
            if not new.instance_uuid or (old and old.instance_uuid == new.instance_uuid):
                return
            if may_be_replica(new.instance_uuid):
                # get() also requests the configuration when it is not cached.
                if self._vm_configs.get(new.ref) is None:
                    self.unread_refs.add(new.ref)
                self.on_vm_config_change(new.ref)
                return
        if old is not None:
            self._remove(old.ref)

    def on_vm_config_change(self, ref: str) -> None:
        config, vm = self._vm_configs.values.get(ref), self._inventory.vms.get(ref)
        if config is None or vm is None or not vm.instance_uuid:
            return
        if ref in self._vm_configs.unreadable:
            # A configuration that the account cannot read does not prove that there is no mark.
            self.unread_refs.add(ref)
            return
        self.unread_refs.discard(ref)
        mark = mark_from_extra_config(config.extra_config)
        if mark is None or not is_made_for_vm(mark, vm.instance_uuid):
            self._remove(ref)
            return
        if self.marks.get(ref) != mark:
            self._remove(ref)
            self.marks[ref] = mark
            self.refs_by_group_uid.add(mark.group_id.uid, ref)
            self.refs_by_namespace.add(mark.group_id.namespace_key, ref)
        self._notify_group(mark.group_id.uid)

    def _remove(self, ref: str) -> None:
        self.unread_refs.discard(ref)
        mark = self.marks.pop(ref, None)
        if mark is not None:
            self.refs_by_group_uid.drop(mark.group_id.uid, ref)
            self.refs_by_namespace.drop(mark.group_id.namespace_key, ref)
            self._notify_group(mark.group_id.uid)


class FolderClaim(Struct, frozen=True, kw_only=True):
    """An existing group and the folder that it has or would create."""

    group_id: GroupId
    # vCenter, parent and name: the same text for the same folder.
    folder_key: str
    # creationTimestamp has whole seconds, so two groups may have the same.
    created_at: str
    has_replicas: bool = False


def find_conflicting_owner(
    claim: FolderClaim, owners_inside: Collection[GroupId], claims: Collection[FolderClaim]
) -> GroupId | None:
    """The other group that owns the folder, if any.

    `owners_inside` are the owners of the VMs in it; `claims` are those of all groups of this
    cluster with the same folder name.
    """
    if any(owner.uid == claim.group_id.uid for owner in owners_inside):
        return None
    if owners_inside:
        return min(owners_inside, key=lambda owner: (owner.cluster_id, owner.uid))
    first = min(
        (
            other
            for other in claims
            if other.folder_key == claim.folder_key and other.group_id.uid != claim.group_id.uid
        ),
        key=_claim_order,
        default=claim,
    )
    return first.group_id if _claim_order(first) < _claim_order(claim) else None


def _claim_order(claim: FolderClaim) -> tuple[bool, str, str]:
    return not claim.has_replicas, claim.created_at, claim.group_id.uid


def describe_folder_conflict(
    folder_path: str,
    owner: GroupId,
    *,
    owner_exists: bool = True,
    is_owners_folder: bool = True,
    is_same_name: bool = False,
) -> str:
    """`is_same_name`: the owner had the name of this group, so this group can adopt its VMs."""
    if not owner_exists:
        adoption = f"To adopt them, run: {format_adopt_command(owner)}. " if is_same_name else ""
        return (
            f"Folder {folder_path} contains VMs of a deleted VmGroup ({owner}, uid {owner.uid}). "
            f"{adoption}Move or delete them in vCenter, or change the name or "
            "spec.placement.folder of this group."
        )
    if not is_owners_folder:
        return (
            f"Folder {folder_path} contains VMs of {owner}, which has another folder. Move them "
            "there in vCenter, or change the name or spec.placement.folder of this group."
        )
    return (
        f"Folder {folder_path} belongs to {owner}. Delete that group, or change the name or "
        "spec.placement.folder of this one."
    )


def format_adopt_command(group: GroupId) -> str:
    return f"kubectl vsphere adopt {group.name} -n {group.namespace}"


def _make_valid_name(text: str, max_length: int = _MAX_NAME_LENGTH) -> str:
    """The text if vCenter accepts it as a name, else its beginning and a hash of all of it."""
    plain = _UNSAFE_CHARACTERS.sub("-", text).strip()
    if plain == text and 0 < len(text) <= max_length:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return f"{plain[: max_length - _HASH_LENGTH - 1].rstrip()}-{digest}"


def folder_name(namespace: str, name: str) -> str:
    """The name of a group's folder. Names of two groups can collide: `a`/`b-c` and `a-b`/`c`."""
    return _make_valid_name(f"{namespace}-{name}")


def replica_name(group: str, suffix: str) -> str:
    ending = f"-replica-{suffix}"
    return f"{_make_valid_name(group, _MAX_NAME_LENGTH - len(ending))}{ending}"


def is_replica_name(group: str, name: str) -> bool:
    """Whether a replica of the group can have this name, from the original operator or this one."""
    prefix, suffix = name[:-_SUFFIX_LENGTH], name[-_SUFFIX_LENGTH:]
    return (
        prefix in (f"{group}-replica-", replica_name(group, suffix)[:-_SUFFIX_LENGTH])
        and len(suffix) == _SUFFIX_LENGTH
        and all(letter in ascii_lowercase for letter in suffix)
    )


def generate_replica_name(
    group: str, choose: Callable[[str], str], is_used: Callable[[str], bool]
) -> str:
    """An unused name; `choose` picks a letter, such as random.SystemRandom().choice."""
    while True:
        name = replica_name(group, "".join(choose(ascii_lowercase) for _ in range(_SUFFIX_LENGTH)))
        if not is_used(name):
            return name
