"""Whose VM is which, over all of one vCenter: the marks of those VMs that can be somebody's replica, kept true.

Which can be?  A genuine mark goes with an instanceUuid that is a uuid5 (marks.py), so of all other VMs nobody asks for extraConfig. Of
    vCenter's own instanceUuids one in 64 has that form by chance.
When is it complete?  After the first load, when all those that it brought have been read. Until then a VM of ours may be unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ...vsphere.index import Index
from ...vsphere.inventory import Change
from ...vsphere.model import VirtualMachine
from ...vsphere.vcenter import VCenter
from .ownership import OwnershipMark, is_genuine, mark_from_extra_config

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
        vcenter.inventory.listeners.append(self.on_change)
        vcenter.vm_configs.listeners.append(self._on_vm_config)

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
