"""Tasks on the simulator: their ends arrive through the inventory, and slots are shared fairly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from pyVmomi import vim

from kubewright.log import Log
from kubewright.testing import eventually
from simulator import SimulatedVCenter as Simulator
from vsphere_operators.vsphere.faults import Busy, Rejected
from vsphere_operators.vsphere.model import Task
from vsphere_operators.vsphere.task_limiter import WAITING_OWNER_SECONDS, TaskLimiter
from vsphere_operators.vsphere.updates import ObjectUpdate
from vsphere_operators.vsphere.vcenter import VCenter

from .canned_server import RecordingMetrics, simulator_address, simulator_credentials

EndedTasks = list[tuple[str, Task | None]]


@pytest.fixture
async def vcenter(
    simulator: Simulator, log: Log, metrics: RecordingMetrics
) -> AsyncIterator[VCenter]:
    vcenter = VCenter(
        "vc", simulator_address(simulator), simulator_credentials(simulator), log, metrics
    )
    running = asyncio.create_task(vcenter.run())
    await eventually(lambda: vcenter.loaded, within=60)
    yield vcenter
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.fixture
def limiter(vcenter: VCenter, log: Log) -> TaskLimiter:
    limiter = TaskLimiter(vcenter.inventory, log, max_running_tasks=2)
    vcenter.inventory.connect(limiter.on_task_change, Task)
    return limiter


@pytest.fixture
def ended_tasks(limiter: TaskLimiter) -> EndedTasks:
    ended: EndedTasks = []
    limiter.task_ended.connect(lambda task_ref, task: ended.append((task_ref, task)))
    return ended


async def start_task(vcenter: VCenter, limiter: TaskLimiter, owner: str) -> str:
    """Annotate a VM in a slot of the limiter."""
    vm: Any = vim.VirtualMachine(min(vcenter.inventory.vms), vcenter.soap.stub)
    with limiter.reserve_slot(owner):
        task = await vcenter.session.call(
            lambda: vm.ReconfigVM_Task(vim.vm.ConfigSpec(annotation=""))
        )
    task_ref = str(task._moId)
    limiter.track(owner, task_ref)
    return task_ref


async def test_end_of_a_task_is_reported(
    vcenter: VCenter, limiter: TaskLimiter, ended_tasks: EndedTasks
) -> None:
    task_ref = await start_task(vcenter, limiter, "a")
    await eventually(lambda: ended_tasks)
    ((ended, task),) = ended_tasks
    assert ended == task_ref
    assert task is not None
    assert (task.ref, task.state, task.entity) == (
        task_ref,
        "success",
        min(vcenter.inventory.vms),
    )
    assert limiter.free_slots == 2


async def test_failed_task_has_the_fault(
    simulator: Simulator, vcenter: VCenter, limiter: TaskLimiter, ended_tasks: EndedTasks
) -> None:
    await simulator.fail_calls("ReconfigVM_Task", "InsufficientResourcesFault", where="task")
    await start_task(vcenter, limiter, "a")
    await eventually(lambda: ended_tasks)
    task = ended_tasks[0][1]
    assert task is not None
    assert (task.state, task.fault) == ("error", "InsufficientResourcesFault")


async def test_rejected_call_takes_no_slot(
    simulator: Simulator, vcenter: VCenter, limiter: TaskLimiter
) -> None:
    await simulator.fail_calls("ReconfigVM_Task", "InvalidState")
    with pytest.raises(Rejected):
        await start_task(vcenter, limiter, "a")
    assert limiter.free_slots == 2


async def test_slots_are_limited_and_given_to_the_longest_waiting(
    simulator: Simulator, vcenter: VCenter, limiter: TaskLimiter, ended_tasks: EndedTasks
) -> None:
    offered: list[str] = []
    limiter.slot_freed.connect(offered.append)
    await simulator.delay_calls("ReconfigVM_Task", 0.5)
    for _ in range(2):
        await start_task(vcenter, limiter, "many")
    for owner in ("one", "many", "another"):
        with pytest.raises(Busy, match="2 tasks"):
            await start_task(vcenter, limiter, owner)
    await eventually(lambda: len(ended_tasks) == 2)
    assert offered[0] == "one"
    # Two slots, and "one" is first in the queue: "another" is third, and must wait for both.
    with pytest.raises(Busy):
        await start_task(vcenter, limiter, "another")
    await start_task(vcenter, limiter, "one")
    await start_task(vcenter, limiter, "many")
    with pytest.raises(Busy):
        await start_task(vcenter, limiter, "late")
    await eventually(lambda: len(ended_tasks) == 4)
    await start_task(vcenter, limiter, "another")


async def test_owner_that_stops_asking_loses_its_place(vcenter: VCenter, log: Log) -> None:
    now = 0.0
    limiter = TaskLimiter(vcenter.inventory, log, max_running_tasks=1, clock=lambda: now)
    limiter.starting_count = 1
    with pytest.raises(Busy):
        limiter._take_slot("gone")
    limiter.starting_count = 0
    with pytest.raises(Busy):
        limiter._take_slot("here")
    now = WAITING_OWNER_SECONDS
    limiter._take_slot("here")


async def test_forgotten_task_has_an_unknown_end(
    vcenter: VCenter, limiter: TaskLimiter, ended_tasks: EndedTasks
) -> None:
    vcenter.inventory.apply(
        [
            ObjectUpdate(
                kind="enter",
                type="Task",
                ref="task-lost",
                changes={"info.state": "running"},
                missing=(),
            )
        ]
    )
    limiter.running["task-lost"] = 0.0
    vcenter.inventory.apply(
        [ObjectUpdate(kind="leave", type="Task", ref="task-lost", changes={}, missing=())]
    )
    assert ended_tasks == [("task-lost", None)]
