"""The Events in the life of a group: the real engine and controller, without faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from .history.events import History

NAME = "g1"
SPEC = {
    "replicas": 3,
    "cpu": 1,
    "memory": 1,
    "template": "t",
    "rollout": {"maxSurge": 0, "maxUnavailable": 1},
}
# Longer than a clone, a power-off, a resize and a power-on of each replica.
SETTLE_SECONDS = 60


@dataclass
class Lifecycle:
    history: History
    reported: Counter[str] = field(default_factory=Counter)

    async def list_events(self, seconds: float = SETTLE_SECONDS) -> dict[str, int]:
        """Let the manager work; returns how many Events of each reason it recorded."""
        world = self.history.world
        await world.run_manager(seconds)
        assert world.violations == []
        events = Counter[str]()
        for name, count in world.counts.items():
            if name.startswith("Event "):
                events[name.removeprefix("Event ")] = count
        new, self.reported = events - self.reported, events
        return dict(new)

    async def edit(self, **spec: Any) -> dict[str, int]:
        self.history.world.api.edit(NAME, **spec)
        return await self.list_events()


@pytest.fixture
async def lifecycle() -> AsyncIterator[Lifecycle]:
    history = History(1)
    world = history.world
    world.faults = False
    try:
        await world.start_manager()
        world.api.create_group(NAME, SPEC)
        lifecycle = Lifecycle(history)
        assert await lifecycle.list_events() == {"CloneStarted": 3, "VMReady": 3}
        yield lifecycle
    finally:
        # The engine continues after a cancellation, and would wait for an answer.
        await world.stop_standby()
        await world.manager.kill()


async def test_each_change_is_reported_once(lifecycle: Lifecycle) -> None:
    assert await lifecycle.list_events() == {}
    assert await lifecycle.edit(replicas=4) == {"CloneStarted": 1, "VMReady": 1}
    assert await lifecycle.edit(cpu=2) == {"VMResized": 4}
    rolled = {"RollingUpdate": 4, "VMDeleted": 4, "CloneStarted": 4, "VMReady": 4}
    assert await lifecycle.edit(template="t2") == rolled
    assert await lifecycle.edit(powerState="poweredOff") == {"VMPoweredOff": 4}
    assert await lifecycle.edit(powerState="poweredOn") == {"VMPoweredOn": 4}
    assert await lifecycle.edit(replicas=2) == {"VMDeleted": 2}
    api = lifecycle.history.world.api
    api.delete(api.path_of(NAME), {})
    assert await lifecycle.list_events() == {"VMDeleted": 2}


async def test_what_users_do_in_vcenter_is_reported(lifecycle: Lifecycle) -> None:
    history = lifecycle.history
    vm = history.list_idle_vms()[0]
    vm.power = "poweredOff"
    history.appliance.publish_vm(vm)
    assert await lifecycle.list_events() == {"VMPoweredOn": 1}
    history.set_cpus(vm, 4)
    assert await lifecycle.list_events() == {"VMResized": 1}
    history.appliance.remove_vm(vm)
    replaced = {"VMGone": 1, "CloneStarted": 1, "VMReady": 1}
    assert await lifecycle.list_events() == replaced
    vm = history.list_idle_vms()[0]
    vm.inaccessible = True
    history.appliance.publish_vm(vm)
    assert await lifecycle.list_events() == {"VMUnavailable": 1}


async def test_a_new_manager_reports_what_happened_while_none_ran(lifecycle: Lifecycle) -> None:
    history = lifecycle.history
    world = history.world
    await world.start_manager()
    assert await lifecycle.list_events() == {}
    history.appliance.remove_vm(history.list_idle_vms()[0])
    await world.start_manager()
    # Without a destroy task, the VM may come back within 5 minutes.
    assert await lifecycle.list_events() == {"VMMissing": 1}
    await world.start_manager()
    assert await lifecycle.list_events(330) == {"VMGone": 1, "CloneStarted": 1, "VMReady": 1}


async def test_orphaned_vms_are_reported(lifecycle: Lifecycle) -> None:
    api = lifecycle.history.world.api
    api.edit(NAME, deletionPolicy="Orphan")
    api.delete(api.path_of(NAME), {})
    assert await lifecycle.list_events() == {"VMsOrphaned": 1}
