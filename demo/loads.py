"""The loads of the simulated hosts and VMs, as functions of time. Pure functions.

Each VM has a demand that rises and falls slowly; a batch job raises the demand of one VM to all of
its CPUs and memory. A host gives its VMs what it has: if they demand more, they wait for a CPU
(readiness), and the balloon driver takes memory from them. So moving a VM has the effect that it
has in a real cluster. The same names, placement, time and seed give the same loads.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .fixtures import ALL_WORKERS, CORE_MHZ, HOST_CORES, HOST_MEMORY_MB

_HOST_MHZ = HOST_CORES * CORE_MHZ
# What the hypervisor itself uses.
_HOST_OVERHEAD_MHZ, _HOST_OVERHEAD_MB = 150, 1024
# ESXi reclaims memory before the last of it is used.
_RECLAIM_ABOVE = 0.94
_PERIOD_SECONDS = 90.0
_SWING = 0.35
# The demand of a VM that has none of its own, as a share of its CPUs.
_DEFAULT_DEMAND = 0.15
_DEMANDS_MHZ = {worker.name: worker.cpu_demand_mhz for worker in ALL_WORKERS}
# A guest uses this share of its memory without load, and more of it with its load.
_IDLE_MEMORY = 0.45


@dataclass(frozen=True)
class RunningVm:
    name: str
    host: str
    cpus: int
    memory_mb: int


@dataclass(frozen=True)
class VmLoad:
    demand_mhz: int
    usage_mhz: int
    readiness_percent: int
    guest_memory_mb: int
    ballooned_mb: int

    def quick_stats(self) -> dict[str, int]:
        """The figures under the names of the vSphere API."""
        return {
            "overallCpuDemand": self.demand_mhz,
            "overallCpuUsage": self.usage_mhz,
            "overallCpuReadiness": self.readiness_percent,
            "guestMemoryUsage": self.guest_memory_mb,
            "hostMemoryUsage": self.guest_memory_mb - self.ballooned_mb,
            "balloonedMemory": self.ballooned_mb,
        }


@dataclass(frozen=True)
class HostLoad:
    usage_mhz: int
    memory_mb: int

    def quick_stats(self) -> dict[str, int]:
        return {"overallCpuUsage": self.usage_mhz, "overallMemoryUsage": self.memory_mb}


@dataclass(frozen=True)
class Loads:
    hosts: Mapping[str, HostLoad]
    vms: Mapping[str, VmLoad]


def compute_loads(
    hosts: Iterable[str],
    vms: Iterable[RunningVm],
    seconds: float,
    *,
    jobs: Mapping[str, float] | None = None,
    seed: int = 0,
) -> Loads:
    """`jobs` has the VMs that run a batch job, with its intensity from 0 to 1."""
    jobs, running = jobs or {}, sorted(vms, key=lambda vm: vm.name)
    host_loads, vm_loads = dict[str, HostLoad](), dict[str, VmLoad]()
    for host in hosts:
        members = [vm for vm in running if vm.host == host]
        demands = {
            vm.name: _demand_mhz(vm, seconds, jobs.get(vm.name, 0.0), seed) for vm in members
        }
        memory = {
            vm.name: _used_memory_mb(vm, demands[vm.name], jobs.get(vm.name, 0.0)) for vm in members
        }
        total_mhz = sum(demands.values()) + _HOST_OVERHEAD_MHZ
        given = min(1.0, _HOST_MHZ / total_mhz)
        total_mb = sum(memory.values()) + _HOST_OVERHEAD_MB
        excess_mb = max(0.0, total_mb - HOST_MEMORY_MB * _RECLAIM_ABOVE)
        reclaimed = excess_mb / sum(memory.values()) if excess_mb else 0.0
        for vm in members:
            vm_loads[vm.name] = VmLoad(
                demand_mhz=round(demands[vm.name]),
                usage_mhz=round(demands[vm.name] * given),
                readiness_percent=round(100 * (1 - given)),
                guest_memory_mb=round(memory[vm.name]),
                ballooned_mb=round(memory[vm.name] * reclaimed),
            )
        host_loads[host] = HostLoad(round(total_mhz * given), round(total_mb - excess_mb))
    return Loads(host_loads, vm_loads)


def _demand_mhz(vm: RunningVm, seconds: float, job: float, seed: int) -> float:
    capacity = vm.cpus * CORE_MHZ
    base = _DEMANDS_MHZ.get(vm.name, capacity * _DEFAULT_DEMAND)
    # A phase from the name, so that the VMs do not rise and fall together.
    phase = zlib.crc32(f"{seed} {vm.name}".encode()) / 2**32
    wave = math.sin(2 * math.pi * (seconds / _PERIOD_SECONDS + phase))
    demand = base * (1 + _SWING * wave)
    return min(demand + job * (capacity - demand), capacity)


def _used_memory_mb(vm: RunningVm, demand_mhz: float, job: float) -> float:
    activity = max(demand_mhz / (vm.cpus * CORE_MHZ), job)
    return vm.memory_mb * (_IDLE_MEMORY + (1 - _IDLE_MEMORY) * activity)
