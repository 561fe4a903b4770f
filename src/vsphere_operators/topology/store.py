"""The objects of the model in memory, numbered by their last change.

How does a client get what changed?  Each change of an object gets the next number. The objects are
    kept in the order of these numbers, so what changed after a number are the last entries. An
    object that changed often is sent once.
What if a client is slow?  Nothing is queued for it. It gets the newest state of what it missed.
What of removed objects?  Their ids stay, up to a limit. Older numbers than the oldest id need a
    reset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar, cast, get_args

import msgspec

from ..vsphere.pressure import THRESHOLDS
from . import model
from .model import Collection, Item

_COLLECTIONS: tuple[Collection, ...] = get_args(Collection)
_MAX_VMS = 20_000
_MAX_REMOVED_IDS = 10_000
# At most five events a second are sent to a client, so that 1.25 MiB/s can be sent: all hosts and
# VMs of a vCenter with 500 hosts and 5,000 VMs in less than 2 s.
_MAX_EVENT_BYTES = 256 * 1024
# Most clients are at one of the last revisions; a client may ask for any.
_MAX_SHARED_EVENTS = 8

ItemT = TypeVar("ItemT", bound=Item)
_Key = tuple[Collection | Literal["limits"], str]
# Stands for `limits`, which are not a collection, among the numbers of objects.
_LIMITS_KEY: _Key = ("limits", "")


class Event(msgspec.Struct, frozen=True):
    """An encoded event, and the number of the last change in it."""

    number: int
    data: bytes


class TopologyStore:
    """The model. `put` and `remove` give a change its number; `publish` notifies listeners."""

    def __init__(
        self,
        epoch: str,
        describe_manager: Callable[[], model.Manager],
        *,
        max_vms: int = _MAX_VMS,
        max_removed_ids: int = _MAX_REMOVED_IDS,
        max_event_bytes: int = _MAX_EVENT_BYTES,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`epoch` distinguishes the revisions of this process from those of others."""
        self._epoch, self._describe_manager, self._clock = epoch, describe_manager, clock
        self._max_vms, self._max_removed_ids = max_vms, max_removed_ids
        self._max_event_bytes = max_event_bytes
        self._items: dict[Collection, dict[str, Item]] = {name: {} for name in _COLLECTIONS}
        # In the order of their numbers, also those of removed objects.
        self._numbers: dict[_Key, int] = {}
        self._removed: dict[_Key, None] = {}
        # The removal with this number was dropped, so that older numbers need a reset.
        self._last_dropped_number = 0
        self.number = self._published_number = 0
        self.omitted_vms: set[str] = set()
        self._listeners: dict[Callable[[], None], None] = {}
        self._encoder = msgspec.json.Encoder()
        self._snapshot: tuple[int, model.Manager, bytes] | None = None
        # By the number after which the changes are.
        self._events: dict[int, Event] = {}

    # Objects

    def items(self, item_type: type[ItemT]) -> Mapping[str, ItemT]:
        return cast("Mapping[str, ItemT]", self._items[_COLLECTION_BY_TYPE[item_type]])

    def put(self, item: Item) -> None:
        collection = _COLLECTION_BY_TYPE[type(item)]
        items = self._items[collection]
        if items.get(item.id) == item:
            return
        if isinstance(item, model.VM) and not self._has_room_for(item):
            if item.id not in self.omitted_vms:
                self.omitted_vms.add(item.id)
                self._count_change(_LIMITS_KEY)
            return
        items[item.id] = item
        self._removed.pop((collection, item.id), None)
        self._count_change((collection, item.id))

    def _has_room_for(self, vm: model.VM) -> bool:
        # The VMs of Nodes and VmGroups are what this cluster is about, so they are never omitted.
        vms = self._items["vms"]
        has_room = vm.id in vms or len(vms) < self._max_vms or bool(vm.node or vm.vmGroup)
        if has_room:
            self._discard_omitted_vm(vm.id)
        return has_room

    def _discard_omitted_vm(self, vm_id: str) -> None:
        if vm_id in self.omitted_vms:
            self.omitted_vms.remove(vm_id)
            self._count_change(_LIMITS_KEY)

    def remove(self, collection: Collection, item_id: str) -> None:
        self._discard_omitted_vm(item_id)
        if self._items[collection].pop(item_id, None) is None:
            return
        key: _Key = (collection, item_id)
        self._removed[key] = None
        self._count_change(key)
        if len(self._removed) > self._max_removed_ids:
            oldest = next(iter(self._removed))
            del self._removed[oldest]
            self._last_dropped_number = self._numbers.pop(oldest)

    def _count_change(self, key: _Key) -> None:
        self.number += 1
        # Deleted first, so that the key moves to the end.
        self._numbers.pop(key, None)
        self._numbers[key] = self.number
        self._events.clear()

    def connect(self, listener: Callable[[], None]) -> None:
        self._listeners[listener] = None

    def disconnect(self, listener: Callable[[], None]) -> None:
        self._listeners.pop(listener, None)

    def publish(self) -> None:
        """Notify the listeners if anything changed since the last call."""
        if self.number == self._published_number:
            return
        self._published_number = self.number
        for listener in list(self._listeners):
            listener()

    # Encoding

    def _format_revision(self, number: int) -> str:
        return f"{self._epoch}-{number}"

    @property
    def revision(self) -> str:
        return self._format_revision(self.number)

    def parse_revision(self, revision: str) -> int | None:
        """The number; None if the changes after it are not known, so that a reset is needed."""
        epoch, _, digits = revision.rpartition("-")
        # The length bounds what a client can make int() do.
        if epoch != self._epoch or not digits.isascii() or not digits.isdigit() or len(digits) > 18:
            return None
        number = int(digits)
        return number if self.knows_changes_after(number) else None

    def knows_changes_after(self, number: int) -> bool:
        return self._last_dropped_number <= number <= self.number

    @property
    def limits(self) -> model.Limits:
        return model.Limits(vms=self._max_vms, omittedVMs=len(self.omitted_vms))

    def build_topology(self) -> model.Topology:
        collections: dict[str, Any] = {
            name: [items[key] for key in sorted(items)] for name, items in self._items.items()
        }
        return model.Topology(
            apiVersion=model.API_VERSION,
            kind="Topology",
            revision=self.revision,
            time=self._clock(),
            manager=self._describe_manager(),
            limits=self.limits,
            pressureLimits={
                type_.value: model.PressureLimit(
                    warmPercent=threshold.leave, hotPercent=threshold.enter
                )
                for type_, threshold in THRESHOLDS.items()
            },
            **collections,
        )

    def encode_snapshot(self) -> bytes:
        """The whole model as JSON; encoded again only after a change."""
        manager = self._describe_manager()
        if self._snapshot is None or self._snapshot[:2] != (self.number, manager):
            # A new leader has no number of its own; the ETag must differ all the same.
            if self._snapshot is not None and self._snapshot[0] == self.number:
                self.number += 1
                self._events.clear()
            self._snapshot = (self.number, manager, self._encoder.encode(self.build_topology()))
        return self._snapshot[2]

    def encode_changes(self, number: int) -> Event:
        """The changes after this number, as many as fit into one event.

        Clients that are at the same number share the bytes.
        """
        if (event := self._events.get(number)) is None:
            if len(self._events) >= _MAX_SHARED_EVENTS:
                self._events.clear()
            self._events[number] = event = self._encode_changes(number)
        return event

    def _encode_changes(self, number: int) -> Event:
        keys = list[_Key]()
        for key in reversed(self._numbers):
            if self._numbers[key] <= number:
                break
            keys.append(key)
        changed: dict[str, list[msgspec.Raw]] = {}
        removed: dict[str, list[str]] = {}
        fields: dict[str, object] = {"changed": changed, "removed": removed}
        size, last = 0, number
        for key in reversed(keys):
            collection, item_id = key
            if collection == "limits":
                fields["limits"] = self.limits
            elif (item := self._items[collection].get(item_id)) is None:
                removed.setdefault(collection, []).append(item_id)
                size += len(item_id)
            else:
                raw = self._encoder.encode(item)
                changed.setdefault(collection, []).append(msgspec.Raw(raw))
                size += len(raw)
            last = self._numbers[key]
            if size >= self._max_event_bytes:
                break
        else:
            last = self.number
        return Event(last, self.encode_event("change", last, **fields))

    def encode_heartbeat(self) -> bytes:
        return self.encode_event("heartbeat", self.number, manager=self._describe_manager())

    def encode_event(self, event_type: str, number: int, **fields: object) -> bytes:
        """A Server-Sent Event. JSON has no line breaks, so that its data is one line."""
        revision = self._format_revision(number)
        data = self._encoder.encode({"revision": revision, "time": self._clock(), **fields})
        return b"event: %b\nid: %b\ndata: %b\n\n" % (event_type.encode(), revision.encode(), data)


_COLLECTION_BY_TYPE: Mapping[type[Item], Collection] = {
    model.VCenter: "vcenters",
    model.Datacenter: "datacenters",
    model.Cluster: "clusters",
    model.Host: "hosts",
    model.VM: "vms",
    model.Datastore: "datastores",
    model.Disk: "disks",
    model.Node: "nodes",
    model.VmGroup: "vmGroups",
    model.GPUInfo: "gpuInfos",
}


def store_of(items: Iterable[Item], epoch: str = "") -> TopologyStore:
    """A store with these objects, for tools that read everything once."""
    manager = model.Manager(version="", identity="", isLeader=False)
    store = TopologyStore(epoch, lambda: manager)
    for item in items:
        store.put(item)
    return store
