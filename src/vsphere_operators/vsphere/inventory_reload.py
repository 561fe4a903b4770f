"""Replaces the whole inventory with what vCenter returned after a login.

    reload.add(page); reload.add(page); ...
    for _ in reload.commit_in_slices():     # or reload.commit()
        await asyncio.sleep(0)

Why not page by page?  After a restore of vCenter a host may have another reference. It would be
    there twice until the last page.
Why in slices?  With 45,000 VMs it takes more than a second, in which the event loop would serve
    nothing else: no probe, no lease.
What does a reader see between two slices?  The inventory is loaded for the first time, or
    `on_replacing` was called before the first difference: readers must wait in both cases. A reload
    with few differences, which is the usual case, is applied in one step. Only new quickStats, of
    which every object has some, are then applied in slices without that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from .converters import to_attribute_names
from .index import ChangeSet
from .inventory import Inventory, apply_update
from .properties import CUSTOM_FIELDS_MANAGER, TYPE_MAPPINGS, InventoryObject, differ_only_in_stats
from .updates import ObjectUpdate

# About 10 ms of work.
_SLICE_SIZE = 300
# Differences that are applied in one step.
_MAX_AT_ONCE = 1_000


class InventoryReload:
    """Collects the pages of a reload."""

    def __init__(
        self,
        inventory: Inventory,
        instance_uuid: str = "",
        on_replacing: Callable[[], None] = lambda: None,
    ) -> None:
        self._inventory, self._instance_uuid = inventory, instance_uuid
        self._on_replacing = on_replacing
        self._raw_objects: dict[str, InventoryObject] = {}
        self._attribute_names: dict[str, str] = {}

    def add(self, updates: Iterable[ObjectUpdate]) -> None:
        for update in updates:
            if update.type == CUSTOM_FIELDS_MANAGER:
                self._attribute_names = to_attribute_names(update.changes.get("field"))
            elif update.type in TYPE_MAPPINGS:
                item = apply_update(self._raw_objects, update, self._inventory.report_undecodable)
                if item is None:
                    self._raw_objects.pop(update.ref, None)
                else:
                    self._raw_objects[update.ref] = item

    def commit(self) -> None:
        """Replace the inventory, and notify listeners only of differences."""
        for _ in self.commit_in_slices():
            pass

    def commit_in_slices(self) -> Iterator[None]:
        """The same, with pauses."""
        inventory, raw_objects = self._inventory, self._raw_objects
        is_first = not inventory.raw_objects
        removed = [
            ref
            for ref, old in inventory.raw_objects.items()
            if type(raw_objects.get(ref)) is not type(old)
        ]
        changed, stats_changed = list[str](), list[str]()
        for count, (ref, raw) in enumerate(raw_objects.items(), 1):
            old = inventory.raw_objects.get(ref)
            if old is None or type(old) is not type(raw) or not differ_only_in_stats(old, raw):
                if old != raw:
                    changed.append(ref)
            elif old != raw:
                stats_changed.append(ref)
            if count % (10 * _SLICE_SIZE) == 0:
                yield
        is_large = len(removed) + len(changed) > _MAX_AT_ONCE
        if is_large and not is_first:
            self._on_replacing()
        inventory.instance_uuid = self._instance_uuid
        changes = ChangeSet()
        for count, ref in enumerate(removed, 1):
            inventory.put(ref, None, changes)
            if is_large and count % _SLICE_SIZE == 0:
                yield
        inventory.set_attribute_names(self._attribute_names, changes)
        for count, ref in enumerate(changed, 1):
            inventory.put(ref, raw_objects[ref], changes)
            if is_large and count % _SLICE_SIZE == 0:
                yield
        # Of an inventory that was empty or is replaced, every object depends on a changed one.
        notifying = inventory.notify_in_slices(
            changes, reloaded=True, everything_changed=is_large, slice_size=_SLICE_SIZE
        )
        for _ in notifying:
            if is_large:
                yield
        for start in range(0, len(stats_changed), _SLICE_SIZE):
            changes = ChangeSet()
            for ref in stats_changed[start : start + _SLICE_SIZE]:
                inventory.put(ref, raw_objects[ref], changes, only_stats=True)
            inventory.notify(changes, reloaded=True)
            yield
