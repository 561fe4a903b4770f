"""Operations on the simulator: tasks are started, their ends come through the inventory, and room is shared fairly."""

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
from vsphere_operators.vsphere.task_limiter import WAITING_OWNER_SECONDS, Operation, TaskLimiter
from vsphere_operators.vsphere.updates import ObjectUpdate
from vsphere_operators.vsphere.vcenter import VCenter

from .rig import Tally, account, address_of_simulator

Ends = list[tuple[Operation, Task | None]]


@pytest.fixture
async def vcenter(simulator: Simulator, log: Log, meter: Tally) -> AsyncIterator[VCenter]:
    vcenter = VCenter("vc", address_of_simulator(simulator), account(simulator), log, meter)
    running = asyncio.create_task(vcenter.run())
    await eventually(lambda: vcenter.loaded, within=20)
    yield vcenter
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.fixture
def operations(vcenter: VCenter, log: Log) -> TaskLimiter:
    return TaskLimiter(vcenter.session, vcenter.inventory, log, max_running_tasks=2)


@pytest.fixture
def ends(operations: TaskLimiter) -> Ends:
    heard: Ends = []
    operations.listeners.append(lambda operation, task: heard.append((operation, task)))
    return heard


def annotate(vcenter: VCenter, words: str = "") -> Any:
    """A call that starts a task on some VM."""
    ref = min(vcenter.inventory.vms)
    return lambda: vim.VirtualMachine(ref, vcenter.soap.stub).ReconfigVM_Task(
        vim.vm.ConfigSpec(annotation=words)
    )


async def test_the_end_of_a_task_comes_by_itself(
    vcenter: VCenter, operations: TaskLimiter, ends: Ends
) -> None:
    operation = await operations.start("a", "annotate a VM", annotate(vcenter))
    await eventually(lambda: ends)
    ((ended, task),) = ends
    assert ended == operation
    assert task is not None
    assert (task.ref, task.state, task.entity) == (
        operation.task,
        "success",
        min(vcenter.inventory.vms),
    )
    assert operations.free_slots == 2


async def test_a_task_that_fails_says_why(
    simulator: Simulator, vcenter: VCenter, operations: TaskLimiter, ends: Ends
) -> None:
    await simulator.fail_calls("ReconfigVM_Task", "InsufficientResourcesFault", where="task")
    await operations.start("a", "annotate a VM", annotate(vcenter))
    await eventually(lambda: ends)
    task = ends[0][1]
    assert task is not None
    assert (task.state, task.fault) == ("error", "InsufficientResourcesFault")


async def test_a_call_that_is_refused_takes_no_room(
    simulator: Simulator, vcenter: VCenter, operations: TaskLimiter
) -> None:
    await simulator.fail_calls("ReconfigVM_Task", "InvalidState")
    with pytest.raises(Rejected):
        await operations.start("a", "annotate a VM", annotate(vcenter))
    assert operations.free_slots == 2


async def test_room_is_bounded_and_goes_to_who_has_waited(
    simulator: Simulator, vcenter: VCenter, operations: TaskLimiter, ends: Ends
) -> None:
    offered: list[str] = []
    operations.slot_listeners.append(offered.append)
    await simulator.delay_calls("ReconfigVM_Task", 0.5)
    for _ in range(2):
        await operations.start("many", "annotate a VM", annotate(vcenter))
    for owner in ("one", "many", "another"):
        with pytest.raises(Busy, match="2 operations"):
            await operations.start(owner, "annotate a VM", annotate(vcenter))
    await eventually(lambda: len(ends) == 2, within=10)
    assert offered[0] == "one"
    # Room for two, and "one" is first in the line: "another" is third, and has to let the first two go before.
    with pytest.raises(Busy):
        await operations.start("another", "annotate a VM", annotate(vcenter))
    await operations.start("one", "annotate a VM", annotate(vcenter))
    await operations.start("many", "annotate a VM", annotate(vcenter))
    with pytest.raises(Busy):
        await operations.start("late", "annotate a VM", annotate(vcenter))
    await eventually(lambda: len(ends) == 4, within=10)
    await operations.start("another", "annotate a VM", annotate(vcenter))


async def test_who_does_not_come_again_is_not_waited_for(vcenter: VCenter, log: Log) -> None:
    now = 0.0
    operations = TaskLimiter(
        vcenter.session, vcenter.inventory, log, max_running_tasks=1, clock=lambda: now
    )
    operations.starting_count = 1
    with pytest.raises(Busy):
        operations.admit("gone")
    operations.starting_count = 0
    with pytest.raises(Busy):
        operations.admit("here")
    now = WAITING_OWNER_SECONDS
    operations.admit("here")


async def test_a_task_that_vcenter_forgets_has_an_unknown_end(
    vcenter: VCenter, operations: TaskLimiter, ends: Ends
) -> None:
    operation = Operation("a", "clone", "task-lost")
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
    operations.running[operation.task] = operation
    vcenter.inventory.apply(
        [ObjectUpdate(kind="leave", type="Task", ref="task-lost", changes={}, missing=())]
    )
    assert ends == [(operation, None)]
