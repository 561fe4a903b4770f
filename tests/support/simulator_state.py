"""The VMs and pending clones of a simulated vCenter at one instant, and their highest number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulator import SimulatedVCenter


@dataclass(frozen=True)
class SimulatorVm:
    """A VM or a pending clone; `folder` is an inventory path."""

    ref: str
    name: str
    folder: str
    power: str
    instance_uuid: str
    cpus: int
    memory_mb: int
    # The entries of extraConfig with the prefix of VmGroups.
    marks: Mapping[str, str]


@dataclass(frozen=True)
class SimulatorState:
    vms: tuple[SimulatorVm, ...]
    clones: tuple[SimulatorVm, ...]
    # The highest number of VMs and pending clones of a VmGroup, by its uid, since the last reset.
    peak_by_uid: Mapping[str, int]

    @property
    def marked_vms(self) -> tuple[SimulatorVm, ...]:
        """The VMs of any VmGroup."""
        return tuple(vm for vm in self.vms if vm.marks)


async def read_simulator_state(vcenter: SimulatedVCenter) -> SimulatorState:
    census = await vcenter.vm_census()
    owners = {uid: int(owner["peak"]) for uid, owner in census["owners"].items()}
    return SimulatorState(
        tuple(map(decode_vm, census["vms"])), tuple(map(decode_vm, census["clones"])), owners
    )


def decode_vm(entry: Mapping[str, Any]) -> SimulatorVm:
    return SimulatorVm(
        ref=entry["ref"],
        name=entry["name"],
        folder=entry["folder"],
        power=entry.get("power", ""),
        instance_uuid=entry["instanceUuid"],
        cpus=entry["cpus"],
        memory_mb=entry["memoryMB"],
        marks=entry["marks"],
    )
