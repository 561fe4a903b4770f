"""Kill the manager at every call of a group's life, in three ways each, and see that nothing comes of it.

    make crash-sweep                                  # all points; some 20 s each
    make crash-sweep ARGS="--jobs 3 --only CloneVM_Task,Destroy_Task --mode sent"

One life without a death lists the calls. A point that a later life does not come to is tried again and then told: it proves nothing. The
exit code is 0 when every life ended as it should and every point was reached, but for the last status writes: how many of them a life has
depends on how many changes fall into one.
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
    calls: Sequence[MutatingCall], only: Sequence[str], modes: Sequence[str]
) -> list[CrashPoint]:
    """Every point of a life that is asked for."""
    wanted = [call for call in calls if not only or call.operation in only]
    return [
        CrashPoint(call.operation, call.number, mode)
        for call in wanted
        for mode in CRASH_MODES
        if mode in modes
    ]


@dataclass
class CrashSweep:
    """All lives of one run; logs go into the folder."""

    control_plane: ControlPlane
    folder: Path
    jobs: int
    clone_seconds: float = CLONE_SECONDS
    results: list[CrashResult] = field(default_factory=list)

    async def run(self, only: Sequence[str], modes: Sequence[str]) -> bool:
        """Whether all went well."""
        async with AsyncExitStack() as stack:
            grounds = [
                await stack.enter_async_context(
                    run_simulator(BINARIES / "vcsim", self.folder / f"vcsim-{n}")
                )
                for n in range(self.jobs)
            ]
            plain = await self.run_point(grounds[0], "plain", None)
            points = list_crash_points(plain.calls, only, modes)
            print(
                f"{len(plain.calls)} calls, {len(points)} points: {', '.join(map(str, plain.calls))}",
                flush=True,
            )
            if not plain.failure:
                await self.run_points(grounds, points)
        return self.print_summary()

    async def run_points(
        self, grounds: Sequence[SimulatedVCenter], points: Iterable[CrashPoint]
    ) -> None:
        """Live once for each point, on all grounds at the same time."""
        left = iter(enumerate(points, 1))
        await asyncio.gather(*(self.run_worker(vcenter, left) for vcenter in grounds))

    async def run_worker(
        self, vcenter: SimulatedVCenter, left: Iterator[tuple[int, CrashPoint]]
    ) -> None:
        """Take one point after the other, until none is left."""
        for number, point in left:
            for attempt in range(MAX_ATTEMPTS):
                result = await self.run_point(vcenter, f"{number}-{attempt}", point)
                if result.reached or result.failure:
                    break

    async def run_point(
        self, vcenter: SimulatedVCenter, name: str, point: CrashPoint | None
    ) -> CrashResult:
        """One life, and a line about it."""
        result = await run_lifecycle(
            self.control_plane, vcenter, self.folder / name, point, self.clone_seconds
        )
        self.results.append(result)
        verdict = (
            "FAILED"
            if result.failure
            else "ok"
            if result.reached or point is None
            else "not reached"
        )
        print(
            f"{verdict:11} {result.seconds:5.1f} s  {name:8} {point or 'without a death'}  {result.failure}",
            flush=True,
        )
        return result

    def print_summary(self) -> bool:
        """Print the sum; whether no life went wrong and every point was reached."""
        failed = [result for result in self.results if result.failure]
        reached = {result.crash_point for result in self.results if result.reached}
        unreached = {result.crash_point for result in self.results} - reached - {None}
        print(
            f"{len(self.results)} lives, {len(reached)} points reached, {len(unreached)} not reached, {len(failed)} lives failed"
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
    """CRDs and roles as they are generated."""
    plane.create_namespace(SYSTEM_NAMESPACE)
    for part in ("crd", "rbac"):
        plane.kubectl("apply", "-k", str(ROOT / "config" / part))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")


async def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="make crash-sweep", description="Kill the manager at every call of a group's life."
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=2,
        help="lives at once, each with a vCenter of its own (default 2)",
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="SORTS",
        help="sorts of calls, with commas between; all by default",
    )
    parser.add_argument(
        "--mode",
        default=",".join(CRASH_MODES),
        metavar="MODES",
        help="of before, sent and answered, with commas between",
    )
    parser.add_argument(
        "--clone-seconds",
        type=float,
        default=CLONE_SECONDS,
        metavar="S",
        help="how long a clone takes (default 0.1)",
    )
    parser.add_argument(
        "--logs",
        type=Path,
        metavar="DIR",
        help="where a folder for the managers' logs is made; the one for temporary files by default",
    )
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="crash-sweep-", dir=options.logs))
    async with ControlPlane(find_binaries(folders=[BINARIES])) as plane:
        install_manifests(plane)
        sweep = CrashSweep(plane, folder, options.jobs, options.clone_seconds)
        good = await sweep.run(list(filter(None, options.only.split(","))), options.mode.split(","))
    print(f"the managers' logs are in {folder}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
