"""Kills the manager at every call of a group's lifecycle, in three ways, and checks the group.

    make crash-sweep                                  # all points, about 20 s each
    make crash-sweep ARGS="--jobs 3 --only CloneVM_Task,Destroy_Task --mode sent"
    make crash-sweep ARGS="--hand-over"               # instead of a kill, to another manager

One run without a crash lists the calls. A crash point that a later run does not reach is tried
again and then reported, since it proves nothing. The exit code is 0 if every run passed and every
point was reached. The last status writes are excepted: their number depends on how many changes
fall into one write.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from kubewright.testing.binaries import find_binaries
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.manager_process import SYSTEM_NAMESPACE

from .crash_injection import CRASH_MODES, CrashPoint, MutatingCall
from .crash_run import CLONE_SECONDS, CrashResult, run_lifecycle, run_simulator

ROOT = Path(__file__).parents[2]
BINARIES = ROOT / ".testenv" / "bin"
MAX_ATTEMPTS = 3
VARYING_OPERATION = "PATCH vmgroups/status"


def list_crash_points(
    calls: Sequence[MutatingCall],
    only: Sequence[str],
    modes: Sequence[str],
    *,
    hands_over: bool = False,
) -> list[CrashPoint]:
    """The crash points of these calls, by the selected operations and modes."""
    wanted = [call for call in calls if not only or call.operation in only]
    return [
        CrashPoint(call.operation, call.number, mode, hands_over)
        for call in wanted
        for mode in CRASH_MODES
        if mode in modes
    ]


@dataclass
class CrashSweep:
    """All runs of one sweep; logs are written to the folder."""

    control_plane: ControlPlane
    folder: Path
    jobs: int
    clone_seconds: float = CLONE_SECONDS
    hands_over: bool = False
    results: list[CrashResult] = field(default_factory=list)

    async def run(self, only: Sequence[str], modes: Sequence[str]) -> bool:
        """Returns whether all runs passed."""
        async with AsyncExitStack() as stack:
            vcenters = [
                await stack.enter_async_context(
                    run_simulator(BINARIES / "vcsim", self.folder / f"vcsim-{n}")
                )
                for n in range(self.jobs)
            ]
            uncrashed = await self.run_point(vcenters[0], "uncrashed", None)
            points = list_crash_points(uncrashed.calls, only, modes, hands_over=self.hands_over)
            print(
                f"{len(uncrashed.calls)} calls, {len(points)} points: "
                f"{', '.join(map(str, uncrashed.calls))}",
                flush=True,
            )
            if not uncrashed.failure:
                await self.run_points(vcenters, points)
        return self.print_summary()

    async def run_points(
        self, vcenters: Sequence[SimulatedVCenter], points: Iterable[CrashPoint]
    ) -> None:
        """Run once for each point, on all vCenters in parallel."""
        remaining = iter(enumerate(points, 1))
        await asyncio.gather(*(self.run_worker(vcenter, remaining) for vcenter in vcenters))

    async def run_worker(
        self, vcenter: SimulatedVCenter, remaining: Iterator[tuple[int, CrashPoint]]
    ) -> None:
        """Run one point after the other."""
        for number, point in remaining:
            for attempt in range(MAX_ATTEMPTS):
                result = await self.run_point(vcenter, f"{number}-{attempt}", point)
                if result.reached or result.failure:
                    break

    async def run_point(
        self, vcenter: SimulatedVCenter, name: str, point: CrashPoint | None
    ) -> CrashResult:
        """Run and print one line."""
        result = await run_lifecycle(
            self.control_plane,
            vcenter,
            self.folder / name,
            point,
            self.clone_seconds,
            with_hand_over=self.hands_over,
        )
        self.results.append(result)
        outcome = (
            "FAILED"
            if result.failure
            else "ok"
            if result.reached or point is None
            else "not reached"
        )
        print(
            f"{outcome:11} {result.seconds:5.1f} s  {name:8} {point or 'without a crash'}  "
            f"{result.failure}",
            flush=True,
        )
        return result

    def print_summary(self) -> bool:
        """Print the summary; returns whether all runs passed and every point was reached."""
        failed = [result for result in self.results if result.failure]
        reached = {result.crash_point for result in self.results if result.reached}
        unreached = {result.crash_point for result in self.results} - reached - {None}
        print(
            f"{len(self.results)} runs, {len(reached)} points reached, "
            f"{len(unreached)} not reached, {len(failed)} runs failed"
        )
        for point in sorted(map(str, unreached)):
            print(f"not reached: {point}")
        missed = [
            point
            for point in unreached
            if point is not None and point.operation != VARYING_OPERATION
        ]
        return bool(reached) and not failed and not missed


def install_manifests(plane: ControlPlane) -> None:
    plane.create_namespace(SYSTEM_NAMESPACE)
    for part in ("crd", "rbac"):
        plane.kubectl("apply", "-k", str(ROOT / "config" / part))
    plane.wait_for_crds()


async def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make crash-sweep",
        description="Kill the manager at every call of a VmGroup's lifecycle.",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=2,
        help="parallel runs, each with its own vCenter (default 2)",
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="OPERATIONS",
        help="comma-separated operations; all by default",
    )
    parser.add_argument(
        "--mode",
        default=",".join(CRASH_MODES),
        metavar="MODES",
        help="comma-separated: before, sent, answered; all by default",
    )
    parser.add_argument(
        "--hand-over",
        action="store_true",
        help="run two managers with shards, and hand over at each call instead of a kill",
    )
    parser.add_argument(
        "--clone-seconds",
        type=float,
        default=CLONE_SECONDS,
        metavar="S",
        help="duration of a clone (default 0.1)",
    )
    parser.add_argument(
        "--logs",
        type=Path,
        metavar="DIR",
        help="directory for the folder with the managers' logs; the temporary directory by default",
    )
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="crash-sweep-", dir=options.logs))
    async with ControlPlane(find_binaries(folders=[BINARIES])) as plane:
        install_manifests(plane)
        sweep = CrashSweep(plane, folder, options.jobs, options.clone_seconds, options.hand_over)
        passed = await sweep.run(
            list(filter(None, options.only.split(","))), options.mode.split(",")
        )
    print(f"the managers' logs are in {folder}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
