"""The loads of the demo: hosts give what they have, and moving a VM relieves its host."""

from __future__ import annotations

import pytest

from demo.activity import choose_move
from demo.fixtures import (
    BUSY_GPU,
    CORE_MHZ,
    HOST_CORES,
    HOST_MEMORY_MB,
    HOSTS,
    WORKER,
)
from demo.loads import Loads, RunningVm, compute_loads

HOST_MHZ = HOST_CORES * CORE_MHZ
WORKER_VM = RunningVm(WORKER.name, HOSTS[0], cpus=4, memory_mb=8192)
REPLICAS = [RunningVm(f"vg-3-replica-{n}", HOSTS[0], cpus=4, memory_mb=4096) for n in range(2)]
VMS = [WORKER_VM, *REPLICAS]


def job(intensity: float) -> Loads:
    return compute_loads(HOSTS, VMS, 0, jobs={WORKER.name: intensity})


def test_loads_depend_only_on_their_arguments() -> None:
    loads = compute_loads(HOSTS, VMS, 12.5, seed=7)
    assert loads == compute_loads(HOSTS, reversed(VMS), 12.5, seed=7)
    assert loads != compute_loads(HOSTS, VMS, 12.5, seed=8)
    assert loads != compute_loads(HOSTS, VMS, 15.5, seed=7)


@pytest.mark.parametrize("seconds", range(0, 180, 7))
def test_figures_fit_the_hosts(seconds: int) -> None:
    loads = compute_loads(HOSTS, VMS, seconds, jobs={WORKER.name: 0.5})
    assert set(loads.hosts) == set(HOSTS)
    for host in loads.hosts.values():
        assert 0 < host.usage_mhz <= HOST_MHZ
        assert 0 < host.memory_mb <= HOST_MEMORY_MB
    for vm in VMS:
        load = loads.vms[vm.name]
        assert 0 < load.usage_mhz <= load.demand_mhz <= vm.cpus * CORE_MHZ
        assert 0 < load.guest_memory_mb <= vm.memory_mb
        assert load.ballooned_mb < load.guest_memory_mb


def test_demand_of_a_worker_stays_near_that_of_the_fixtures() -> None:
    demands = [
        compute_loads(HOSTS, VMS, seconds).vms[WORKER.name].demand_mhz for seconds in range(180)
    ]
    assert 0.6 * WORKER.cpu_demand_mhz < min(demands) < WORKER.cpu_demand_mhz
    assert WORKER.cpu_demand_mhz < max(demands) < 1.4 * WORKER.cpu_demand_mhz


def test_batch_job_makes_the_vms_of_its_host_wait() -> None:
    assert {load.readiness_percent for load in job(0).vms.values()} == {0}
    assert {load.ballooned_mb for load in job(0).vms.values()} == {0}
    hot = job(1)
    assert hot.hosts[HOSTS[0]].usage_mhz == HOST_MHZ
    assert all(load.readiness_percent >= 5 for load in hot.vms.values())
    stats = hot.vms[REPLICAS[0].name].quick_stats()
    assert stats["overallCpuReadiness"] >= 5
    assert stats["overallCpuUsage"] < stats["overallCpuDemand"]


def test_memory_that_a_host_does_not_have_is_ballooned() -> None:
    many = [RunningVm(f"vm-{n}", HOSTS[0], cpus=4, memory_mb=8192) for n in range(4)]
    loads = compute_loads(HOSTS, many, 0)
    assert all(load.ballooned_mb > 0 for load in loads.vms.values())
    assert loads.hosts[HOSTS[0]].memory_mb == round(HOST_MEMORY_MB * 0.94)


def test_move_goes_from_the_busiest_host_to_the_idlest() -> None:
    assert choose_move(VMS, job(1), set()) == (WORKER.name, HOSTS[1])
    assert choose_move(VMS, job(1), {HOSTS[1]}) == (WORKER.name, HOSTS[2])
    moved = [RunningVm(WORKER.name, HOSTS[1], 4, 8192), *REPLICAS]
    relieved = compute_loads(HOSTS, moved, 0, jobs={WORKER.name: 1})
    assert relieved.vms[REPLICAS[0].name].readiness_percent == 0


def test_vm_with_a_gpu_does_not_move() -> None:
    gpu = RunningVm(BUSY_GPU.name, HOSTS[2], cpus=4, memory_mb=8192)
    loads = compute_loads(HOSTS, [gpu, *REPLICAS], 0, jobs={BUSY_GPU.name: 1})
    assert loads.hosts[HOSTS[2]].usage_mhz == max(host.usage_mhz for host in loads.hosts.values())
    move = choose_move([gpu, *REPLICAS], loads, set())
    assert move is not None
    assert move[0] in {vm.name for vm in REPLICAS}
    assert choose_move([gpu], loads, set()) is None
