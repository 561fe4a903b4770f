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
from ...vsphere.model import Machine
from ...vsphere.vcenter import VCenter
from .ownership import Mark, is_genuine, mark_of

UUID5 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)


class Owners:
    """The genuine marks by reference, and the references by uid of the group; `tell` hears whose VMs changed."""

    def __init__(self, vcenter: VCenter, tell: Callable[[str], None]) -> None:
        self.inventory, self.belongings, self.tell = vcenter.inventory, vcenter.belongings, tell
        self.marks: dict[str, Mark] = {}
        self.by_uid = Index()
        self.unread: set[str] = set()
        self.complete = False
        vcenter.inventory.listeners.append(self.hear)
        vcenter.belongings.listeners.append(self.learn)

    @property
    def ready(self) -> bool:
        """Whether every VM that was there in the beginning is known; those that come later follow from records."""
        self.complete = self.complete or self.unread <= self.belongings.hidden
        return self.complete

    def hear(self, change: Change) -> None:
        """A VM came, changed or went."""
        old, new = change.old, change.new
        if isinstance(new, Machine):
            # Without its files vCenter tells no configuration; whose it is has not changed by that.
            if not new.instance_uuid or (isinstance(old, Machine) and old.instance_uuid == new.instance_uuid):
                return
            if UUID5.fullmatch(new.instance_uuid):
                if self.belongings.of(new.ref) is None:
                    self.unread.add(new.ref)
                self.learn(new.ref)
            elif isinstance(old, Machine):
                self.drop(new.ref)
        elif isinstance(old, Machine):
            self.drop(old.ref)

    def learn(self, ref: str) -> None:
        """What belongs to a VM is known, or is otherwise."""
        found, machine = self.belongings.known.get(ref), self.inventory.machines.get(ref)
        if found is None or machine is None or not machine.instance_uuid:
            return
        if ref in self.belongings.hidden:
            # What cannot be read is not unmarked; it may be anybody's.
            self.unread.add(ref)
            return
        self.unread.discard(ref)
        mark = mark_of(found.options)
        if mark is None or not is_genuine(mark, machine.instance_uuid):
            self.drop(ref)
            return
        if self.marks.get(ref) != mark:
            self.drop(ref)
            self.marks[ref] = mark
            self.by_uid.add(mark.group.uid, ref)
        self.tell(mark.group.uid)

    def drop(self, ref: str) -> None:
        """It is nobody's from now on."""
        self.unread.discard(ref)
        mark = self.marks.pop(ref, None)
        if mark is not None:
            self.by_uid.drop(mark.group.uid, ref)
            self.tell(mark.group.uid)
