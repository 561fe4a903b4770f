"""A fixed sample of the crash points of a VmGroup's life, of all sorts of calls; `make crash-sweep` has them all."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kubewright.testing.controlplane import ControlPlane

from .crashing import Point
from .crashsweep import Sweep
from .stage import simulated

AT_ONCE = 3
POINTS = (
    Point("PATCH vmgroups", 1, "sent"),  # the finalizer is there, and nobody heard
    Point("PATCH vmgroups/status", 1, "answered"),  # records are stored, nothing is sent
    Point("CreateFolder", 1, "sent"),
    Point("CloneVM_Task", 2, "sent"),  # the clone runs, and nobody knows its task
    Point("CloneVM_Task", 4, "before"),
    Point("PowerOnVM_Task", 1, "sent"),
    Point("PowerOffVM_Task", 2, "answered"),
    Point("Destroy_Task", 2, "sent"),
    Point("Destroy_Task", 4, "before"),
)


async def test_a_group_is_right_wherever_its_manager_dies(
    pytestconfig: pytest.Config, installed: ControlPlane, tmp_path: Path
) -> None:
    sweep = Sweep(installed, tmp_path, AT_ONCE)
    binary = pytestconfig.rootpath / ".testenv/bin/vcsim"
    async with AsyncExitStack() as stack:
        grounds = [
            await stack.enter_async_context(simulated(binary, tmp_path / f"vcsim-{number}"))
            for number in range(AT_ONCE)
        ]
        await sweep.over(grounds, POINTS)
    assert {str(each.point): each.failure for each in sweep.results if each.failure} == {}
    assert {each.point for each in sweep.results if each.reached} == set(POINTS)
