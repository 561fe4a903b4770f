"""When a host is too small for what runs on it: CPU readiness, ballooning, swapping, maintenance.

Which figures count?  Those of quickStats for each VM. Ballooned and swapped memory are judged as a
    share of the VM's memory, because a few megabytes of a large VM have no effect.
Why has swapping the highest threshold?  Swapped memory stays swapped until the guest uses it, so
    the figure remains for hours after the host has memory again.
What does `PressureHysteresis` add?  A figure of a VM must stay at or above a threshold for some
    time to count, and stay below a lower one for the same time to stop counting.
What if a figure is missing?  Nothing is assumed: releases before vSphere 7.0 report no readiness,
    and a VM that does not run has no figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from .inventory import Change
from .model import FINAL_TASK_STATES, Host, Task, VirtualMachine

ENTER_MAINTENANCE_DESCRIPTION_ID = "enterMaintenanceMode"


class PressureType(StrEnum):
    """The types of pressure, the most urgent first."""

    IN_MAINTENANCE = "InMaintenance"
    """The host is in maintenance mode."""
    ENTERING_MAINTENANCE = "EnteringMaintenance"
    """A task is running that puts the host into maintenance mode."""
    SWAPPING = "MemorySwapping"
    """The host has swapped memory of the VM to disk."""
    BALLOONING = "MemoryBallooning"
    """The host takes memory from the guest by the balloon driver of VMware Tools."""
    CPU_READY = "CPUReady"
    """The VM was ready to run, but waited for a physical CPU."""


class Threshold(Struct, frozen=True):
    """In percent: of the time for CPU readiness, of the VM's memory for the others."""

    enter: int
    leave: int


# A common rule for ESXi: users notice nothing below 5 % readiness, and delays from 10 % on.
THRESHOLDS: Mapping[PressureType, Threshold] = {
    PressureType.SWAPPING: Threshold(enter=10, leave=5),
    PressureType.BALLOONING: Threshold(enter=5, leave=2),
    PressureType.CPU_READY: Threshold(enter=10, leave=5),
}


class Pressure(Struct, frozen=True):
    type: PressureType
    # A sentence with the host and the figure.
    message: str


def read_figures(vm: VirtualMachine) -> dict[PressureType, float]:
    """The figures of a running VM in percent, without those that vCenter does not report."""
    if vm.power != "poweredOn":
        return {}
    stats, figures = vm.stats, dict[PressureType, float]()
    for type_, megabytes in (
        (PressureType.SWAPPING, stats.swapped_memory_mb),
        (PressureType.BALLOONING, stats.ballooned_memory_mb),
    ):
        if megabytes is not None and vm.memory_mb:
            figures[type_] = 100.0 * megabytes / vm.memory_mb
    if stats.cpu_readiness_percent is not None:
        figures[PressureType.CPU_READY] = float(stats.cpu_readiness_percent)
    return figures


def has_notable_figure(vm: VirtualMachine | None) -> bool:
    """Whether any figure is so high that it counts, or may still count."""
    return vm is not None and any(
        figure >= THRESHOLDS[type_].leave for type_, figure in read_figures(vm).items()
    )


def find_host_pressures(
    host: Host, vms: Iterable[VirtualMachine], *, is_entering_maintenance: bool = False
) -> list[Pressure]:
    """The present pressures of a host, without hysteresis: for each type the VM with most of it."""
    worst: dict[PressureType, tuple[float, VirtualMachine]] = {}
    for vm in vms:
        for type_, figure in read_figures(vm).items():
            if figure >= THRESHOLDS[type_].enter and figure > worst.get(type_, (0.0, vm))[0]:
                worst[type_] = (figure, vm)
    return [
        *_find_maintenance(host, is_entering_maintenance),
        *(_describe_figure(type_, host, worst[type_][1]) for type_ in THRESHOLDS if type_ in worst),
    ]


def find_vm_pressures(
    host: Host,
    vm: VirtualMachine,
    active_types: Iterable[PressureType],
    *,
    is_entering_maintenance: bool = False,
) -> list[Pressure]:
    """The pressures of a host that affect one VM; `active_types` are those of its hysteresis."""
    figures, active = read_figures(vm), set(active_types)
    return [
        *_find_maintenance(host, is_entering_maintenance),
        *(
            _describe_figure(type_, host, vm)
            for type_ in THRESHOLDS
            if type_ in active and type_ in figures
        ),
    ]


def _find_maintenance(host: Host, is_entering: bool) -> list[Pressure]:
    if host.in_maintenance:
        type_, state = PressureType.IN_MAINTENANCE, "is in"
    elif is_entering:
        type_, state = PressureType.ENTERING_MAINTENANCE, "is entering"
    else:
        return []
    return [Pressure(type_, f'Host "{host.name}" {state} maintenance mode.')]


def _describe_figure(type_: PressureType, host: Host, vm: VirtualMachine) -> Pressure:
    percent, threshold = read_figures(vm)[type_], THRESHOLDS[type_]
    if type_ is PressureType.CPU_READY:
        fact = f'VM "{vm.name}" on host "{host.name}" waited for a CPU {percent:.0f}% of the time'
    elif type_ is PressureType.BALLOONING:
        fact = (
            f'Host "{host.name}" has taken {vm.stats.ballooned_memory_mb} MB ({percent:.0f}%) of '
            f'the memory of VM "{vm.name}" by ballooning'
        )
    else:
        fact = (
            f'Host "{host.name}" has swapped {vm.stats.swapped_memory_mb} MB ({percent:.0f}%) of '
            f'the memory of VM "{vm.name}" to disk, where it stays until the guest uses it'
        )
    return Pressure(type_, f"{fact}. The limit is {threshold.enter}%.")


class PressureHysteresis:
    """Which figures of one VM count as pressure, with hysteresis."""

    def __init__(self, hold_seconds: float, *, was_under_pressure: bool = False) -> None:
        """`was_under_pressure`: after a restart, figures that may still count do."""
        self._hold_seconds = hold_seconds
        self._was_under_pressure = was_under_pressure
        self._active: dict[PressureType, bool] = {}
        # Since when a figure is beyond the threshold that would change its state.
        self._beyond_since: dict[PressureType, float] = {}

    @property
    def active_types(self) -> list[PressureType]:
        return [type_ for type_ in THRESHOLDS if self._active.get(type_)]

    def update(self, figures: Mapping[PressureType, float], now: float) -> float | None:
        """Apply the present figures. Returns the seconds until they change a state if they stay.

        The state of a missing figure stays as it is.
        """
        delays = list[float]()
        for type_, threshold in THRESHOLDS.items():
            figure = figures.get(type_)
            if figure is None:
                self._beyond_since.pop(type_, None)
                continue
            active = self._active.setdefault(
                type_, self._was_under_pressure and figure >= threshold.leave
            )
            if (figure >= threshold.leave) if active else (figure < threshold.enter):
                self._beyond_since.pop(type_, None)
                continue
            remaining = self._beyond_since.setdefault(type_, now) + self._hold_seconds - now
            if remaining <= 0:
                self._active[type_] = not active
                del self._beyond_since[type_]
            else:
                delays.append(remaining)
        return min(delays, default=None)


def find_hosts_entering_maintenance(tasks: Iterable[Task]) -> set[str]:
    """The references of the hosts for which such a task has not ended."""
    return {
        task.entity
        for task in tasks
        if task.state not in FINAL_TASK_STATES
        and ENTER_MAINTENANCE_DESCRIPTION_ID.lower() in task.description_id.lower()
    }


class MaintenanceTasks:
    """The hosts of one vCenter that are entering maintenance mode, from its running tasks."""

    def __init__(self) -> None:
        self._host_by_task: dict[str, str] = {}

    def on_task_change(self, change: Change[Task]) -> str:
        """Connect it with `connect_tasks(..., ENTER_MAINTENANCE_DESCRIPTION_ID)`.

        Returns the reference of the host.
        """
        task = change.new or change.old
        if task is None:
            return ""
        if change.new is not None and change.new.state not in FINAL_TASK_STATES:
            self._host_by_task[task.ref] = task.entity
        else:
            self._host_by_task.pop(task.ref, None)
        return task.entity

    def is_entering(self, host: str) -> bool:
        return host in self._host_by_task.values()
