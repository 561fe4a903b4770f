"""The pressure of hosts: figures, thresholds, messages, and hysteresis."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from vsphere_operators.vsphere.inventory import Change
from vsphere_operators.vsphere.model import (
    Host,
    PowerState,
    Task,
    TaskState,
    VirtualMachine,
    VirtualMachineStats,
)
from vsphere_operators.vsphere.pressure import (
    MaintenanceTasks,
    PressureHysteresis,
    PressureType,
    find_host_pressures,
    find_vm_pressures,
    has_notable_figure,
    read_figures,
)

HOST = Host(ref="host-1", name="esxi-1", connection="connected")
CPU, BALLOON, SWAP = PressureType.CPU_READY, PressureType.BALLOONING, PressureType.SWAPPING


def make_vm(
    name: str = "node-1",
    *,
    ready: int | None = None,
    ballooned: int | None = None,
    swapped: int | None = None,
    power: PowerState = "poweredOn",
) -> VirtualMachine:
    return VirtualMachine(
        ref=f"vm-{name}",
        name=name,
        host="host-1",
        power=power,
        memory_mb=8000,
        stats=VirtualMachineStats(
            cpu_readiness_percent=ready, ballooned_memory_mb=ballooned, swapped_memory_mb=swapped
        ),
    )


def test_memory_is_a_share_and_missing_figures_are_absent() -> None:
    assert read_figures(make_vm(ready=7, ballooned=400, swapped=80)) == {
        SWAP: 1.0,
        BALLOON: 5.0,
        CPU: 7.0,
    }
    assert read_figures(make_vm()) == {}
    assert read_figures(make_vm(ready=99, power="poweredOff")) == {}
    assert read_figures(replace(make_vm(ballooned=400), memory_mb=None)) == {}


@pytest.mark.parametrize(
    ("vm", "notable"),
    [
        (None, False),
        (make_vm(ready=4, ballooned=100, swapped=300), False),
        (make_vm(ready=5), True),
        (make_vm(ballooned=160), True),
        (make_vm(swapped=400), True),
    ],
)
def test_notable_figures_begin_at_the_lower_threshold(
    vm: VirtualMachine | None, notable: bool
) -> None:
    assert has_notable_figure(vm) is notable


def test_pressures_of_a_host_name_its_worst_vm_and_the_figure() -> None:
    vms = [make_vm("a", ready=10, swapped=900), make_vm("b", ready=31), make_vm("c", ballooned=399)]
    assert [(entry.type, entry.message) for entry in find_host_pressures(HOST, vms)] == [
        (
            SWAP,
            'Host "esxi-1" has swapped 900 MB (11%) of the memory of VM "a" to disk, where it '
            "stays until the guest uses it. The limit is 10%.",
        ),
        (CPU, 'VM "b" on host "esxi-1" waited for a CPU 31% of the time. The limit is 10%.'),
    ]
    assert find_host_pressures(HOST, []) == []


def test_maintenance_comes_first() -> None:
    vm = make_vm(ready=50)
    entering = find_host_pressures(HOST, [vm], is_entering_maintenance=True)
    assert [entry.type for entry in entering] == [PressureType.ENTERING_MAINTENANCE, CPU]
    assert entering[0].message == 'Host "esxi-1" is entering maintenance mode.'
    (pressure,) = find_vm_pressures(
        replace(HOST, in_maintenance=True), vm, [], is_entering_maintenance=True
    )
    assert pressure.message == 'Host "esxi-1" is in maintenance mode.'


def test_pressures_of_a_vm_are_those_of_its_hysteresis() -> None:
    vm = make_vm(ready=50, ballooned=800)
    assert find_vm_pressures(HOST, vm, []) == []
    (pressure,) = find_vm_pressures(HOST, vm, [BALLOON, SWAP])
    assert pressure.message == (
        'Host "esxi-1" has taken 800 MB (10%) of the memory of VM "node-1" by ballooning. '
        "The limit is 5%."
    )


def test_hysteresis_changes_after_the_figure_was_beyond_the_threshold_for_the_whole_time() -> None:
    hysteresis = PressureHysteresis(60.0)
    assert hysteresis.update({CPU: 10.0}, 0.0) == 60.0
    assert hysteresis.update({CPU: 9.0}, 30.0) is None
    assert hysteresis.update({CPU: 12.0}, 40.0) == 60.0
    assert hysteresis.update({CPU: 12.0}, 99.0) == 1.0
    assert hysteresis.active_types == []
    assert hysteresis.update({CPU: 12.0}, 100.0) is None
    assert hysteresis.active_types == [CPU]
    # Between the two thresholds nothing changes.
    assert hysteresis.update({CPU: 5.0}, 500.0) is None
    assert hysteresis.update({CPU: 4.0}, 600.0) == 60.0
    assert hysteresis.update({CPU: 5.0}, 650.0) is None
    assert hysteresis.update({CPU: 4.0}, 700.0) == 60.0
    assert hysteresis.active_types == [CPU]
    assert hysteresis.update({CPU: 0.0}, 760.0) is None
    assert hysteresis.active_types == []


def test_hysteresis_keeps_its_state_while_a_figure_is_missing() -> None:
    hysteresis = PressureHysteresis(10.0)
    hysteresis.update({CPU: 50.0, BALLOON: 50.0}, 0.0)
    hysteresis.update({CPU: 50.0}, 5.0)
    hysteresis.update({CPU: 50.0, BALLOON: 50.0}, 10.0)
    assert hysteresis.active_types == [CPU]
    hysteresis.update({}, 100.0)
    assert hysteresis.active_types == [CPU]


def test_hysteresis_after_a_restart_keeps_what_may_still_count() -> None:
    hysteresis = PressureHysteresis(10.0, was_under_pressure=True)
    assert hysteresis.update({CPU: 6.0, BALLOON: 1.0}, 0.0) is None
    assert hysteresis.active_types == [CPU]


@pytest.mark.parametrize("final_state", ["success", "error", None])
def test_host_is_entering_maintenance_while_a_task_runs(final_state: TaskState | None) -> None:
    tasks = MaintenanceTasks()
    task = Task(ref="task-1", state="running", entity="host-1")
    assert tasks.on_task_change(Change(None, task)) == "host-1"
    assert tasks.is_entering("host-1")
    assert not tasks.is_entering("host-2")
    tasks.on_task_change(Change(task, replace(task, state=final_state) if final_state else None))
    assert not tasks.is_entering("host-1")
