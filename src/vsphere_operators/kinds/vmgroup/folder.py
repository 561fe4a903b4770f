"""Whose folder it is. A folder can carry no mark, so its owner is who proves it: by VMs in it, or by having been there first."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from .ownership import GroupId


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
