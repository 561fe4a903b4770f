"""Properties of a VM are not those of another VM that had its reference."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.inventory_builder import enter_update, make_inventory
from vsphere_operators.vsphere.faults import Busy
from vsphere_operators.vsphere.model import VirtualMachine
from vsphere_operators.vsphere.updates import ObjectUpdate, Value
from vsphere_operators.vsphere.vm_property_cache import VmPropertyCache


class CacheHarness(VmPropertyCache[Value]):
    """Reads what is in `answers`; the session is replaced `during_read`."""

    def __init__(self) -> None:
        self.session = SimpleNamespace(login_count=1)
        anything = cast("Any", SimpleNamespace())
        inventory = make_inventory()
        super().__init__(
            ["config"],
            lambda properties: properties.get("config"),
            anything,
            cast("Any", self.session),
            inventory,
            cast("Any", SimpleNamespace(debug=lambda *text, **fields: None)),
            is_inventory_current=lambda: self.is_current,
        )
        self.is_current = True
        inventory.connect(self.on_vm_change, VirtualMachine, include_related=False)
        self.answers: dict[str, Value] = {"vm-9": "of the first"}
        self.is_session_replaced = False
        self.put_vm("first")

    def put_vm(self, instance_uuid: str) -> None:
        self.inventory.apply(
            [
                enter_update(
                    "VirtualMachine",
                    "vm-9",
                    "r0",
                    "group-v2",
                    config__instanceUuid=instance_uuid,
                    config__changeVersion="1",
                )
            ]
        )

    async def read_properties(self, refs: list[str]) -> list[ObjectUpdate]:
        self.session.login_count += self.is_session_replaced
        return [
            ObjectUpdate("enter", "VirtualMachine", ref, {"config": self.answers[ref]})
            for ref in refs
        ]


async def test_another_vm_under_a_known_reference_is_read_again() -> None:
    cache = CacheHarness()
    await cache.refresh(["vm-9"])
    # vCenter was restored, or another one is at its address.
    cache.put_vm("second")
    assert cache.get("vm-9") is None
    cache.answers["vm-9"] = "of the second"
    await cache.poll()
    assert cache.get("vm-9") == "of the second"


async def test_a_vm_that_becomes_unreadable_keeps_its_value() -> None:
    cache = CacheHarness()
    await cache.refresh(["vm-9"])
    cache.put_vm("")
    assert cache.get("vm-9") == "of the first"


async def test_an_answer_of_the_last_session_does_not_count() -> None:
    cache = CacheHarness()
    cache.is_session_replaced = True
    with pytest.raises(Busy):
        await cache.refresh(["vm-9"])
    assert cache.values == {}


async def test_answers_wait_until_the_inventory_was_read_again() -> None:
    cache = CacheHarness()
    cache.is_current = False
    assert cache.get("vm-9") is None
    await cache.poll()
    assert (cache.values, cache.requested) == ({}, {"vm-9"})
    cache.is_current = True
    await cache.poll()
    assert cache.get("vm-9") == "of the first"
