"""All VMs of a simulated vCenter and the clones under way, as they were at one instant, and the most there ever were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulator import SimulatedVCenter


@dataclass(frozen=True)
class SimulatorVm:
    """A VM, or a clone under way."""

    ref: str
    name: str
    folder: str
    """Inventory path."""
    power: str
    instance_uuid: str
    cpus: int
    memory_mb: int
    marks: Mapping[str, str]
    """What stands in extraConfig under our prefix."""


@dataclass(frozen=True)
class SimulatorState:
    """One instant."""

    vms: tuple[SimulatorVm, ...]
    clones: tuple[SimulatorVm, ...]
    peak_by_uid: Mapping[str, int]
    """By the uid in the mark: VMs and clones under way at once, wherever they are, since the last reset."""

    @property
    def marked_vms(self) -> tuple[SimulatorVm, ...]:
        """The VMs with a mark, whosever it is."""
        return tuple(each for each in self.vms if each.marks)


async def read_simulator_state(vcenter: SimulatedVCenter) -> SimulatorState:
    """Now."""
    told = await vcenter.vm_census()
    owners = {uid: int(each["peak"]) for uid, each in told["owners"].items()}
    return SimulatorState(
        tuple(map(decode_vm, told["vms"])), tuple(map(decode_vm, told["clones"])), owners
    )


def decode_vm(told: Mapping[str, Any]) -> SimulatorVm:
    """A VM as the simulator tells it."""
    return SimulatorVm(
        ref=told["ref"],
        name=told["name"],
        folder=told["folder"],
        power=told.get("power", ""),
        instance_uuid=told["instanceUuid"],
        cpus=told["cpus"],
        memory_mb=told["memoryMB"],
        marks=told["marks"],
    )
