"""Finds the folder of a group in the inventory, and whether another group owns it."""

from __future__ import annotations

from msgspec.structs import replace

from ...vsphere.model import Folder
from ...vsphere.vcenter import VCenter
from .group_memory import GroupMemory
from .model import CloneBlocked, GroupFolder
from .ownership import OwnershipIndex, describe_folder_conflict, find_conflicting_owner
from .reasons import Reason
from .step import GroupInput


class FolderFinder:
    """Finds the folders of the groups of one vCenter."""

    def __init__(self, vcenter: VCenter, ownership_index: OwnershipIndex) -> None:
        self._vcenter, self._inventory = vcenter, vcenter.inventory
        self._ownership_index = ownership_index
        # By group: the folder that was last proven to be its own, and when the inventory in which
        # it was proven was loaded.
        self._proofs: dict[str, tuple[str, float]] = {}

    def find(self, group: GroupInput, memory: GroupMemory, parent_ref: str) -> GroupFolder | None:
        """The folder by its reference, so that a user may rename or move it; otherwise by name."""
        inventory, created = self._inventory, memory.created_folder
        name = group.group_id.folder_name
        folder = next(
            (
                candidate
                for ref in (group.folder_ref, created.ref if created else "")
                if (candidate := inventory.folders.get(ref)) is not None
                and self._is_own_folder(group, candidate, parent_ref)
            ),
            None,
        ) or next(
            (
                candidate
                for candidate in inventory.by_name(Folder, name)
                if parent_ref and candidate.parent == parent_ref
            ),
            None,
        )
        if folder is not None:
            return GroupFolder(
                ref=folder.ref,
                name=folder.name,
                path=inventory.path(folder.ref),
                is_empty=not inventory.children(folder.ref),
            )
        if created is not None and memory.clock() < created.expires_at:
            path = f"{inventory.path(parent_ref)}/{name}"
            return GroupFolder(ref=created.ref, name=name, path=path, is_empty=True)
        return None

    def _is_own_folder(self, group: GroupInput, folder: Folder, parent_ref: str) -> bool:
        """Whether the folder with a stored reference is still the group's own.

        A reference alone proves nothing: after a restore from backup, vCenter gives the references
        of folders that were created since the backup to other folders.
        """
        uid, marks = group.group_id.uid, self._ownership_index.marks
        is_where_created = (folder.name, folder.parent) == (group.group_id.folder_name, parent_ref)
        proof = (folder.ref, self._vcenter.watching_since)
        if is_where_created or any(
            child.ref in marks
            and marks[child.ref].group_id.uid == uid
            and marks[child.ref].group_id.cluster_id == group.group_id.cluster_id
            for child in self._inventory.children(folder.ref)
        ):
            self._proofs[uid] = proof
            return True
        # A renamed folder without VMs: it was proven before, in the present load of the inventory.
        return self._proofs.get(uid) == proof

    def forget_group(self, uid: str) -> None:
        self._proofs.pop(uid, None)

    def find_conflict(
        self, group: GroupInput, folder: GroupFolder | None, parent_ref: str
    ) -> CloneBlocked | None:
        """Why the group may not use the folder: it belongs to another one."""
        marks = self._ownership_index.marks
        children = self._inventory.children(folder.ref) if folder else ()
        owner = find_conflicting_owner(
            group.folder_claim,
            [marks[child.ref].group_id for child in children if child.ref in marks],
            group.folder_claims,
        )
        if owner is None:
            return None
        path = (
            folder.path
            if folder
            else f"{self._inventory.path(parent_ref)}/{group.group_id.folder_name}"
        )
        message = describe_folder_conflict(
            path,
            owner,
            owner_exists=group.may_exist(owner),
            is_owners_folder=owner.folder_name == group.group_id.folder_name,
            is_same_name=replace(owner, uid=group.group_id.uid) == group.group_id,
        )
        return CloneBlocked(Reason.FOLDER_TAKEN, message)
