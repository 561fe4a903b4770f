"""Checks VmGroups that the manager does not touch, because others own their folder or their VMs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..kinds.vmgroup.model import CloneBlocked
from ..kinds.vmgroup.reasons import Reason
from ..kinds.vmgroup.types import VmGroup
from ..kinds.vmgroup.vcenter_identity import check_vcenter, format_orphan_command
from ..vsphere.inventory import Inventory
from .finding import Finding, problem

_SUBJECT = "VmGroup"


def check_conditions(groups: Iterable[VmGroup]) -> Iterator[Finding]:
    """What the manager reported of these groups at their last reconcile."""
    for group in groups:
        ready = group.status.condition("Ready")
        if ready is None or ready.status != "False":
            continue
        if ready.reason == Reason.FOLDER_TAKEN:
            yield problem(
                _SUBJECT,
                f"{group.key}: {ready.reason}: {ready.message} The group creates no VM until then.",
                f"kubectl -n {group.metadata.namespace} patch vg {group.metadata.name} "
                """--type merge -p '{"spec":{"placement":{"folder":"FOLDER"}}}'   # FOLDER: """
                "an existing folder in vCenter for the folder of this group",
            )
        elif ready.reason == Reason.VCENTER_CHANGED:
            yield _vcenter_changed_finding(group, ready.message)


def check_vcenter_identity(groups: Iterable[VmGroup], inventory: Inventory) -> Iterator[Finding]:
    """Groups with VMs in another vCenter, before a manager with this configuration finds them."""
    for group in groups:
        ready = group.status.condition("Ready")
        if ready is not None and ready.reason == Reason.VCENTER_CHANGED:
            # check_conditions() has reported it.
            continue
        try:
            check_vcenter(group, inventory)
        except CloneBlocked as error:
            yield _vcenter_changed_finding(group, str(error))


def _vcenter_changed_finding(group: VmGroup, message: str) -> Finding:
    return problem(
        _SUBJECT,
        f"{group.key}: {Reason.VCENTER_CHANGED}: {message}",
        f"{format_orphan_command(group)}   # only to leave its VMs in vCenter "
        f'"{group.status.vcenter}"; otherwise restore that vCenter in the configuration',
    )
