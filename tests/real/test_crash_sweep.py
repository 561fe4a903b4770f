"""A sample of the crash points of a VmGroup's lifecycle; `make crash-sweep` runs all of them.

The sample has each operation and each of the three ways.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kubewright.testing.controlplane import ControlPlane

from .crash_injection import CrashPoint
from .crash_run import run_simulator
from .crash_sweep import CrashSweep

PARALLEL_RUNS = 3
CRASH_POINTS = (
    CrashPoint("PATCH vmgroups", 1, "sent"),  # the finalizer is set, but the response is lost
    CrashPoint("PUT vmgroups/status", 1, "answered"),  # records are stored, no request is sent
    CrashPoint("PATCH vmgroups/status", 1, "sent"),
    CrashPoint("CreateFolder", 1, "sent"),
    CrashPoint("CloneVM_Task", 2, "sent"),  # the clone runs, but its task is unknown
    CrashPoint("PowerOnVM_Task", 1, "before"),
    CrashPoint("PowerOffVM_Task", 2, "answered"),
    CrashPoint("Destroy_Task", 2, "sent"),
)


async def test_a_group_recovers_from_a_crash_at_sampled_calls(
    pytestconfig: pytest.Config, installed: ControlPlane, tmp_path: Path
) -> None:
    sweep = CrashSweep(installed, tmp_path, PARALLEL_RUNS)
    binary = pytestconfig.rootpath / ".testenv/bin/vcsim"
    async with AsyncExitStack() as stack:
        vcenters = [
            await stack.enter_async_context(run_simulator(binary, tmp_path / f"vcsim-{number}"))
            for number in range(PARALLEL_RUNS)
        ]
        await sweep.run_points(vcenters, CRASH_POINTS)
    assert {
        str(result.crash_point): result.failure for result in sweep.results if result.failure
    } == {}
    assert {result.crash_point for result in sweep.results if result.reached} == set(CRASH_POINTS)
