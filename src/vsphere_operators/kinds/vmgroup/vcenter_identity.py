"""Whether the references in the status of a VmGroup are from the vCenter that serves it now.

Why not by the configured name?  `server:` of an entry may change to another appliance: then
    `group-v55` is a folder of other people. And one vCenter has several addresses.
What identifies a vCenter?  about.instanceUuid, which a restore, an upgrade or another address does
    not change. A status of an older release has none; then the name has to match.
"""

from __future__ import annotations

from ...vsphere.inventory import Inventory
from .model import CloneBlocked
from .reasons import Reason
from .types import VmGroup


def check_vcenter(group: VmGroup, inventory: Inventory) -> None:
    """Raise CloneBlocked if the status has references of another vCenter than this one."""
    status, name, instance_uuid = group.status, inventory.name, inventory.instance_uuid
    if not status.replicas and status.folder is None:
        return
    if status.vcenterUUID:
        if status.vcenterUUID == instance_uuid:
            return
        previous, current = (
            f'"{status.vcenter}" (instance UUID {status.vcenterUUID})',
            f'"{name}" (instance UUID {instance_uuid or "unknown"})',
        )
    else:
        if status.vcenter in ("", name):
            return
        previous, current = f'"{status.vcenter}"', f'"{name}"'
    raise CloneBlocked(
        Reason.VCENTER_CHANGED,
        f"The VMs of this group are in vCenter {previous}, but vCenter {current} serves this "
        "namespace now. No changes are made while they differ. Restore the previous vCenter in "
        "the configuration of the manager. Or leave the VMs there: run "
        f"{format_orphan_command(group)}, delete this group and create a new one.",
    )


def format_orphan_command(group: VmGroup) -> str:
    """The command after which the group can be deleted without its vCenter."""
    return _format_patch_command(group, '"deletionPolicy":"Orphan"')


def format_continue_command(group: VmGroup) -> str:
    """The command after which a paused group continues."""
    return _format_patch_command(group, '"paused":false')


def _format_patch_command(group: VmGroup, spec: str) -> str:
    return (
        f"kubectl patch vmgroup {group.metadata.name} -n {group.metadata.namespace} --type merge "
        f"""-p '{{"spec":{{{spec}}}}}'"""
    )
