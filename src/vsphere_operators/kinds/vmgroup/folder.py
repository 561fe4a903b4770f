"""Whose folder it is. A folder can carry no mark, so its owner is who proves it: by VMs in it, or by having been there first."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from .ownership import Group


class Claim(Struct, frozen=True, kw_only=True):
    """A living group and the folder that it has or would make."""

    group: Group
    folder: str
    """Parent and name, the same text for the same folder."""
    created: str
    """creationTimestamp, in whole seconds: two may have the same."""
    holds: bool = False
    """Whether it has begun to use it."""


def rival(claim: Claim, owners_inside: Collection[Group], claims: Collection[Claim]) -> Group | None:
    """Who else owns the folder, None if nobody.

    `owners_inside` are the owners of the VMs in it, by genuine marks; `claims` are those of all living groups of this cluster.
    """
    if any(each.uid == claim.group.uid for each in owners_inside):
        return None
    if others := sorted(owners_inside, key=lambda each: (each.cluster, each.uid)):
        return others[0]
    same = [each for each in claims if each.folder == claim.folder and each.group.uid != claim.group.uid]
    older = sorted((each for each in same if order(each) < order(claim)), key=order)
    return older[0].group if older else None


def order(claim: Claim) -> tuple[bool, str, str]:
    """Who has begun comes first, then who was made first."""
    return not claim.holds, claim.created, claim.group.uid


def refusal(folder_path: str, owner: Group, *, lives: bool = True) -> str:
    """The words for a folder that is somebody else's; also of a group that is gone and left its VMs."""
    if not lives:
        return (
            f"the folder {folder_path} has VMs of a group that is gone ({owner}, uid {owner.uid}), so nothing is created in it; "
            "move them elsewhere in vCenter, or give this group another name or spec.placement.folder"
        )
    cure = "delete that group, or give this one another name or spec.placement.folder"
    return f"the folder {folder_path} belongs to {owner}, so nothing is created in it; {cure}"
