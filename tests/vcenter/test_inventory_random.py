"""The inventory compared with one that is so simple that it cannot be wrong: it keeps all properties and looks at all of them."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from vsphere_operators.vsphere.inventory import Inventory, InventoryReload, Location
from vsphere_operators.vsphere.model import Host, VirtualMachine
from vsphere_operators.vsphere.updates import ObjectUpdate, Ref

from .test_inventory import heard, refs, type_of

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
        "parent": st.sampled_from([Ref(type_of(each), each) for each in above if each != ref]),
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


def one_update(ref: str) -> st.SearchStrategy[ObjectUpdate]:
    kinds: st.SearchStrategy[Any] = st.sampled_from(["enter", "enter", "modify", "modify", "leave"])
    return st.builds(
        lambda kind, changes: ObjectUpdate(
            kind, type_of(ref), ref, {} if kind == "leave" else changes
        ),
        kinds,
        changes_of(ref),
    )


UPDATES = st.lists(st.lists(st.one_of([one_update(ref) for ref in REFS]), max_size=6), max_size=12)


class Naive:
    """All properties by reference, and every question answered by looking at all of them."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, Any]] = {}

    def apply(self, update: ObjectUpdate) -> None:
        if update.kind == "leave":
            self.held.pop(update.ref, None)
        elif update.kind == "enter":
            self.held[update.ref] = dict(update.changes)
        elif update.ref in self.held:
            # A new one: answers that were given before keep theirs.
            self.held[update.ref] = self.held[update.ref] | update.changes

    def text(self, ref: str, path: str) -> str:
        value = self.held.get(ref, {}).get(path)
        return value.value if isinstance(value, Ref) else value or ""

    def above(self, ref: str) -> str:
        return self.text(ref, "parent") or (
            self.text(ref, "resourcePool") if ref.startswith("vm") else ""
        )

    def chain(self, ref: str) -> list[str]:
        found = list[str]()
        while ref and ref not in found:
            found.append(ref)
            ref = self.above(ref) if ref in self.held else ""
        return found

    def path(self, ref: str) -> str:
        steps = [
            each
            for each in self.chain(ref)
            if each in self.held and not (each.startswith("f") and not self.above(each))
        ]
        known = any(each in self.held for each in self.chain(ref))
        return "".join(f"/{self.text(each, 'name')}" for each in reversed(steps)) or (
            "/" if known else ""
        )

    def place(self, ref: str) -> Location:
        datacenter = next(
            (each for each in self.chain(ref) if each.startswith("dc") and each in self.held), ""
        )
        start = self.text(ref, "runtime.host") if ref.startswith("vm") and ref in self.held else ref
        cluster = next(
            (each for each in self.chain(start) if each.startswith("c") and each in self.held), ""
        )
        return Location(self.path(ref), self.text(datacenter, "name"), self.text(cluster, "name"))

    def having(self, prefix: str, path: str, value: str) -> set[str]:
        return {
            ref
            for ref in self.held
            if ref.rstrip("0123") == prefix and self.text(ref, path).lower() == value
        }

    def answer(self, ref: str) -> object:
        """All that a status could hold of a host or VM."""
        if ref not in self.held:
            return None
        twins = (
            self.having(ref.rstrip("0123"), "name", name)
            if (name := self.text(ref, "name"))
            else set()
        )
        if ref.startswith("h"):
            return (
                self.held[ref],
                self.place(ref),
                len(self.having("vm", "runtime.host", ref)),
                twins,
            )
        stores = [self.text(store.value, "name") for store in self.held[ref].get("datastore", ())]
        same = [
            self.having("vm", path, uuid)
            for path in ("config.uuid", "config.instanceUuid")
            if (uuid := self.text(ref, path).lower())
        ]
        return (
            self.held[ref],
            self.place(ref),
            self.text(self.text(ref, "runtime.host"), "name"),
            stores,
            twins,
            same,
        )


WATCHED = [ref for ref in REFS if ref[0] in "hv"]


def same(inventory: Inventory, naive: Naive) -> None:
    assert set(inventory.objects) == set(naive.held)
    assert set(inventory.hosts) | set(inventory.vms) == {
        ref for ref in naive.held if ref[0] in "hv"
    }
    for ref in REFS:
        assert inventory.location(ref) == naive.place(ref)
        assert {each.ref for each in inventory.children(ref)} == {
            each for each in naive.held if naive.above(each) == ref
        }
        assert {each.ref for each in inventory.vms_on(ref)} == naive.having(
            "vm", "runtime.host", ref
        )
    for name in NAMES:
        assert inventory.relations.by_name[Host].get(name) == naive.having("h", "name", name)
        assert inventory.relations.by_name[VirtualMachine].get(name) == naive.having(
            "vm", "name", name
        )
    for uuid in ("u-1", "u-2"):
        assert inventory.relations.by_bios_uuid.get(uuid) == naive.having("vm", "config.uuid", uuid)


@settings(max_examples=150, deadline=None)
@given(UPDATES)
def test_any_sequence_of_updates_leads_where_looking_at_all_leads(
    batches: list[list[ObjectUpdate]],
) -> None:
    inventory, naive = Inventory("lab"), Naive()
    changes = heard(inventory)
    for batch in batches:
        before = {ref: naive.answer(ref) for ref in WATCHED}
        changes.clear()
        inventory.apply(batch)
        for update in batch:
            naive.apply(update)
        same(inventory, naive)
        told = refs(changes)
        assert len(told) == len(set(told))
        assert {
            ref for ref in WATCHED if visible(before[ref]) != visible(naive.answer(ref))
        } <= set(told)
        assert all(change.only_dependency_changed or change.old != change.new for change in changes)


def visible(answer: Any) -> object:
    """An answer without the load of a host that does not report, and without properties that are not set."""
    if answer is None:
        return None
    held = {path: value for path, value in answer[0].items() if value not in (None, "", ())}
    if held.get("runtime.connectionState") != "connected":
        held.pop("summary.quickStats.overallCpuUsage", None)
    return held, *answer[1:]


@settings(max_examples=60, deadline=None)
@given(UPDATES, UPDATES)
def test_a_reload_leads_to_the_same_as_a_new_inventory(
    first: list[list[ObjectUpdate]], second: list[list[ObjectUpdate]]
) -> None:
    inventory, fresh, naive = Inventory("lab"), Inventory("lab"), Naive()
    for batch in first:
        inventory.apply(batch)
    reload = InventoryReload(inventory)
    for batch in second:
        reload.add(batch)
        fresh.apply(batch)
        for update in batch:
            naive.apply(update)
    reload.commit()
    same(inventory, naive)
    assert inventory.objects == fresh.objects
    assert inventory.raw_objects == fresh.raw_objects
