"""What happened in the last hour: moves, power, maintenance, readiness. In memory and bounded.

A reload of a vCenter reports differences only, and the first load reports nothing: that an object
was there before the manager started is not a change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial

from kubewright import Cache, Key
from kubewright.builtin import Node
from kubewright.cache import Origin

from ..kinds.gpuinfo.node import is_ready
from ..kinds.vmgroup import VmGroup
from ..vsphere import inventory as inventories
from ..vsphere.model import Datastore, Host, VirtualMachine
from ..vsphere.vcenter import VCenter
from .entities import qualify
from .model import Change, Changes

_MAX_CHANGES = 2000
_MAX_AGE = timedelta(hours=1)
_POWER_TYPES = {"poweredOn": "PoweredOn", "poweredOff": "PoweredOff", "suspended": "Suspended"}
_Entity = Host | VirtualMachine | Datastore
_KINDS: Mapping[type[_Entity], str] = {Host: "Host", VirtualMachine: "VM", Datastore: "Datastore"}


class ChangeLog:
    """The list of changes; `connect` attaches it to the sources."""

    def __init__(
        self,
        *,
        max_changes: int = _MAX_CHANGES,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._clock, self._max_changes = clock, max_changes
        self._changes: deque[Change] = deque()
        # Before this, changes may be missing.
        self._complete_since = clock()

    def connect(self, vcenters: Mapping[str, VCenter], cache: Cache) -> None:
        for vcenter in vcenters.values():
            vcenter.inventory.connect(
                partial(self._on_entity_change, vcenter),
                Host,
                VirtualMachine,
                Datastore,
                include_related=False,
            )
        cache.store(Node).changed.connect(self._on_node_change)
        cache.store(VmGroup).changed.connect(self._on_group_change)

    def add(self, kind: str, item_id: str, name: str, change_type: str, message: str = "") -> None:
        if len(self._changes) >= self._max_changes:
            # Others of the same moment may remain, but nothing is missing after it.
            self._complete_since = self._changes.popleft().time
        self._changes.append(
            Change(
                time=self._clock(),
                kind=kind,
                id=item_id,
                name=name,
                type=change_type,
                message=message,
            )
        )

    def read(self) -> Changes:
        oldest = self._clock() - _MAX_AGE
        while self._changes and self._changes[0].time < oldest:
            self._changes.popleft()
        self._complete_since = max(self._complete_since, oldest)
        return Changes(
            since=self._complete_since,
            limit=self._max_changes,
            changes=list(reversed(self._changes)),
        )

    def _on_entity_change(self, vcenter: VCenter, change: inventories.Change[_Entity]) -> None:
        entity = change.new or change.old
        if entity is None or not vcenter.loaded:
            return
        kind, item_id = _KINDS[type(entity)], qualify(vcenter.name, entity.ref)
        add = partial(self.add, kind, item_id, entity.name)
        old, new = change.old, change.new
        if old is None or new is None:
            # After a reload, a missing object need not be deleted: the account may have lost the
            # permission to see it.
            add(
                "Added" if old is None else "Removed",
                "found by a reload" if change.reloaded else "",
            )
            return
        if old.name != new.name:
            add("Renamed", f"from {old.name} to {new.name}")
        match old, new:
            case VirtualMachine(), VirtualMachine():
                self._add_vm_changes(vcenter, old, new, add)
            case Host(), Host():
                _add_host_changes(old, new, add)
            case Datastore(), Datastore() if (old.accessible, new.accessible) in _OPPOSITES:
                add("Connected" if new.accessible else "Disconnected")

    def _add_vm_changes(
        self, vcenter: VCenter, old: VirtualMachine, new: VirtualMachine, add: _Add
    ) -> None:
        if old.host != new.host and old.host and new.host:
            hosts = vcenter.inventory.hosts
            source, target = hosts.get(old.host), hosts.get(new.host)
            text = source.name if source else "a removed host"
            # vSphere HA restarts the VMs of a host that failed on other hosts.
            if source is not None and source.connection not in ("", "connected"):
                text += f", which is {source.connection},"
            add("Moved", f"from {text} to {target.name if target else 'an unknown host'}")
        if old.power != new.power and new.power in _POWER_TYPES:
            add(_POWER_TYPES[new.power])

    def _on_node_change(self, key: Key, old: object, new: object, origin: Origin) -> None:
        if origin is Origin.INITIAL_LIST:
            return
        add = partial(self.add, "Node", key.name, key.name)
        if isinstance(new, Node) and isinstance(old, Node):
            if is_ready(old) != is_ready(new):
                add("Ready" if is_ready(new) else "NotReady")
        elif old is None or new is None:
            add("Added" if old is None else "Removed")

    def _on_group_change(self, key: Key, old: object, new: object, origin: Origin) -> None:
        if origin is Origin.INITIAL_LIST:
            return
        add = partial(self.add, "VmGroup", str(key), str(key))
        if isinstance(new, VmGroup) and isinstance(old, VmGroup):
            _add_group_changes(old, new, add)
        elif old is None or new is None:
            add("Added" if old is None else "Removed")


_Add = Callable[..., None]
# Of a flag that vCenter reported before and after. An unknown one has not changed.
_OPPOSITES = ((False, True), (True, False))


def _add_host_changes(old: Host, new: Host, add: _Add) -> None:
    if (old.in_maintenance, new.in_maintenance) in _OPPOSITES:
        add("EnteredMaintenance" if new.in_maintenance else "LeftMaintenance")
    if old.connection != new.connection and new.connection:
        is_connected = new.connection == "connected"
        add(
            "Connected" if is_connected else "Disconnected",
            "" if is_connected else f"the connection state is {new.connection}",
        )


def _add_group_changes(old: VmGroup, new: VmGroup, add: _Add) -> None:
    if old.spec.replicas != new.spec.replicas:
        add("Scaled", f"from {old.spec.replicas} to {new.spec.replicas}")
    before = {replica.name: replica for replica in old.status.replicas}
    after = {replica.name: replica for replica in new.status.replicas}
    for name, replica in after.items():
        was_present = name in before and before[name].state == "Present"
        if replica.state == "Present" and not was_present:
            add("Cloned", f"VM {name}")
    for name in before.keys() - after.keys():
        # A replica that is no longer wanted is marked before it is deleted.
        if before[name].state == "Present" and not before[name].leaving:
            add("Replaced", f"VM {name} is gone")
    was_ready, is_now_ready = (_is_group_ready(group) for group in (old, new))
    if was_ready != is_now_ready:
        condition = new.status.condition("Ready")
        add("Ready" if is_now_ready else "NotReady", condition.message if condition else "")


def _is_group_ready(group: VmGroup) -> bool:
    condition = group.status.condition("Ready")
    return condition is not None and condition.status == "True"
