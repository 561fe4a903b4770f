"""The inventory compared with a naive one that scans all properties for each question."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.inventory_reload import InventoryReload
from vsphere_operators.vsphere.model import Host, Location, VirtualMachine
from vsphere_operators.vsphere.updates import ObjectUpdate, Ref

from .test_inventory import changed_refs, record_changes, type_of

REFS = [
    "f0",
    "f1",
    "f2",
    "dc1",
    "dc2",
    "c1",
    "s1",
    "rp1",
    "h1",
    "h2",
    "h3",
    "vm1",
    "vm2",
    "vm3",
    "ds1",
    "ds2",
]
NAMES = ["a", "b", "c"]


def changes_of(ref: str) -> st.SearchStrategy[dict[str, Any]]:
    above = {
        "h": ["c1", "s1"],
        "vm": ["f1", "f2"],
        "f": ["dc1", "dc2", "f0", "f1"],
        "dc": ["f0", "f1"],
        "rp": ["c1", "s1"],
    }.get(ref.rstrip("0123"), ["f1", "f2"])
    keys: dict[str, st.SearchStrategy[Any]] = {
        "name": st.sampled_from(NAMES),
        "parent": st.sampled_from([Ref(type_of(item), item) for item in above if item != ref]),
    }
    if ref.startswith("vm"):
        keys |= {
            "runtime.host": st.sampled_from(
                [Ref("HostSystem", "h1"), Ref("HostSystem", "h2"), None]
            ),
            "datastore": st.sampled_from(
                [(), (Ref("Datastore", "ds1"),), (Ref("Datastore", "ds1"), Ref("Datastore", "ds2"))]
            ),
            "config.uuid": st.sampled_from(["U-1", "u-1", "u-2", None]),
            "config.instanceUuid": st.sampled_from(["i-1", "i-2"]),
            "resourcePool": st.just(Ref("ResourcePool", "rp1")),
        }
    if ref.startswith("h"):
        keys |= {
            "runtime.connectionState": st.sampled_from(["connected", "notResponding"]),
            "summary.quickStats.overallCpuUsage": st.integers(1, 3),
        }
    return st.fixed_dictionaries({}, optional=keys)


def updates_of(ref: str) -> st.SearchStrategy[ObjectUpdate]:
    kinds: st.SearchStrategy[Any] = st.sampled_from(["enter", "enter", "modify", "modify", "leave"])
    return st.builds(
        lambda kind, changes: ObjectUpdate(
            kind, type_of(ref), ref, {} if kind == "leave" else changes
        ),
        kinds,
        changes_of(ref),
    )


UPDATES = st.lists(st.lists(st.one_of([updates_of(ref) for ref in REFS]), max_size=6), max_size=12)


class NaiveInventory:
    """All properties by reference; every question scans all of them."""

    def __init__(self) -> None:
        self.properties: dict[str, dict[str, Any]] = {}

    def apply(self, update: ObjectUpdate) -> None:
        if update.kind == "leave":
            self.properties.pop(update.ref, None)
        elif update.kind == "enter":
            self.properties[update.ref] = dict(update.changes)
        elif update.ref in self.properties:
            # A copy: earlier answers keep the old values.
            self.properties[update.ref] = self.properties[update.ref] | update.changes

    def property_text(self, ref: str, path: str) -> str:
        value = self.properties.get(ref, {}).get(path)
        return value.value if isinstance(value, Ref) else value or ""

    def parent_of(self, ref: str) -> str:
        return self.property_text(ref, "parent") or (
            self.property_text(ref, "resourcePool") if ref.startswith("vm") else ""
        )

    def ancestors_of(self, ref: str) -> list[str]:
        ancestors = list[str]()
        while ref and ref not in ancestors:
            ancestors.append(ref)
            ref = self.parent_of(ref) if ref in self.properties else ""
        return ancestors

    def path(self, ref: str) -> str:
        steps = [
            item
            for item in self.ancestors_of(ref)
            if item in self.properties and not (item.startswith("f") and not self.parent_of(item))
        ]
        is_known = any(item in self.properties for item in self.ancestors_of(ref))
        return "".join(f"/{self.property_text(item, 'name')}" for item in reversed(steps)) or (
            "/" if is_known else ""
        )

    def location(self, ref: str) -> Location:
        datacenter = next(
            (
                item
                for item in self.ancestors_of(ref)
                if item.startswith("dc") and item in self.properties
            ),
            "",
        )
        start = (
            self.property_text(ref, "runtime.host")
            if ref.startswith("vm") and ref in self.properties
            else ref
        )
        cluster = next(
            (
                item
                for item in self.ancestors_of(start)
                if item.startswith("c") and item in self.properties
            ),
            "",
        )
        return Location(
            self.path(ref),
            self.property_text(datacenter, "name"),
            self.property_text(cluster, "name"),
        )

    def refs_with(self, prefix: str, path: str, value: str) -> set[str]:
        return {
            ref
            for ref in self.properties
            if ref.rstrip("0123") == prefix and self.property_text(ref, path).lower() == value
        }

    def describe(self, ref: str) -> object:
        """Everything that the status of a host or VM could contain."""
        if ref not in self.properties:
            return None
        twins = (
            self.refs_with(ref.rstrip("0123"), "name", name)
            if (name := self.property_text(ref, "name"))
            else set()
        )
        if ref.startswith("h"):
            return (
                self.properties[ref],
                self.location(ref),
                len(self.refs_with("vm", "runtime.host", ref)),
                twins,
            )
        stores = [
            self.property_text(store.value, "name")
            for store in self.properties[ref].get("datastore", ())
        ]
        same = [
            self.refs_with("vm", path, uuid)
            for path in ("config.uuid", "config.instanceUuid")
            if (uuid := self.property_text(ref, path).lower())
        ]
        return (
            self.properties[ref],
            self.location(ref),
            self.property_text(self.property_text(ref, "runtime.host"), "name"),
            stores,
            twins,
            same,
        )


HOST_AND_VM_REFS = [ref for ref in REFS if ref[0] in "hv"]


def check_same(inventory: Inventory, naive: NaiveInventory) -> None:
    assert set(inventory.objects) == set(naive.properties)
    assert set(inventory.hosts) | set(inventory.vms) == {
        ref for ref in naive.properties if ref[0] in "hv"
    }
    for ref in REFS:
        assert inventory.location(ref) == naive.location(ref)
        assert {item.ref for item in inventory.children(ref)} == {
            item for item in naive.properties if naive.parent_of(item) == ref
        }
        assert {item.ref for item in inventory.vms_on(ref)} == naive.refs_with(
            "vm", "runtime.host", ref
        )
    for name in NAMES:
        assert {host.ref for host in inventory.by_name(Host, name)} == naive.refs_with(
            "h", "name", name
        )
        assert {vm.ref for vm in inventory.by_name(VirtualMachine, name)} == naive.refs_with(
            "vm", "name", name
        )
    for uuid in ("u-1", "u-2"):
        assert {vm.ref for vm in inventory.by_bios_uuid(uuid)} == naive.refs_with(
            "vm", "config.uuid", uuid
        )


@settings(max_examples=150, deadline=None)
@given(UPDATES)
def test_any_updates_match_the_naive_inventory(
    batches: list[list[ObjectUpdate]],
) -> None:
    inventory, naive = Inventory("lab"), NaiveInventory()
    changes = record_changes(inventory)
    for batch in batches:
        before = {ref: naive.describe(ref) for ref in HOST_AND_VM_REFS}
        changes.clear()
        inventory.apply(batch)
        for update in batch:
            naive.apply(update)
        check_same(inventory, naive)
        reported_refs = changed_refs(changes)
        assert len(reported_refs) == len(set(reported_refs))
        assert {
            ref
            for ref in HOST_AND_VM_REFS
            if visible_part(before[ref]) != visible_part(naive.describe(ref))
        } <= set(reported_refs)
        assert all(change.old is change.new or change.old != change.new for change in changes)


def visible_part(answer: Any) -> object:
    """Without the stats of a disconnected host, and without properties that are not set."""
    if answer is None:
        return None
    held = {path: value for path, value in answer[0].items() if value not in (None, "", ())}
    if held.get("runtime.connectionState") != "connected":
        held.pop("summary.quickStats.overallCpuUsage", None)
    return held, *answer[1:]


@settings(max_examples=60, deadline=None)
@given(UPDATES, UPDATES)
def test_reload_equals_a_new_inventory(
    first: list[list[ObjectUpdate]], second: list[list[ObjectUpdate]]
) -> None:
    inventory, fresh, naive = Inventory("lab"), Inventory("lab"), NaiveInventory()
    for batch in first:
        inventory.apply(batch)
    reload = InventoryReload(inventory)
    for batch in second:
        reload.add(batch)
        fresh.apply(batch)
        for update in batch:
            naive.apply(update)
    reload.commit()
    check_same(inventory, naive)
    assert inventory.objects == fresh.objects
    assert inventory.raw_objects == fresh.raw_objects
