"""`python -m bench`: one control plane, all contenders by turns, one report."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from bench.cluster import BenchCluster, BenchError, open_cluster
from bench.contender import (
    BARE,
    BASELINE,
    CONTENDERS,
    KOPF,
    RUNTIME,
    Contender,
    Result,
    measure_contender,
)
from bench.report import format_json, format_text, medians_of, targets_for
from bench.restart import RestartResult, measure_restart
from bench.same_writes import check_same_writes
from kubewright import KubewrightError

_RESULTS = Path(__file__).parent / "results"
_WARM_UP_OBJECTS = 100
_LARGE_RUN_OBJECTS = 2_000
_CONTENDERS_WITH_TARGET = (BARE, RUNTIME, KOPF)
_OTHERS_EVERY_TURNS = 3


@dataclass(frozen=True)
class Plan:
    sizes: Sequence[int]
    turns: int
    large_turns: int
    contenders: Sequence[Contender]
    idle_seconds: float

    def _turns_at(self, size: int) -> int:
        return self.turns if size <= _LARGE_RUN_OBJECTS else self.large_turns

    def _contenders_for_turn(self, turn: int, size: int) -> list[Contender]:
        """The contenders in their order; the first one changes each turn."""
        # Above _LARGE_RUN_OBJECTS only contenders with a target run: kopf takes minutes there, and
        # controller-runtime wrote nothing for two minutes in the only attempt.
        others = size <= _LARGE_RUN_OBJECTS and turn % _OTHERS_EVERY_TURNS == 0
        contenders = [
            contender
            for contender in self.contenders
            if others or contender.checkout or contender in _CONTENDERS_WITH_TARGET
        ]
        first = turn % len(contenders)
        return [*contenders[first:], *contenders[:first]]


@dataclass
class Run:
    """The results so far."""

    plan: Plan
    cluster: BenchCluster = field(init=False)
    results: list[Result] = field(default_factory=list)
    restarts: list[RestartResult] = field(default_factory=list)

    async def _measure_all(self) -> None:
        """Checks that the bare loop does the same work, warms up, then runs all turns at each N."""
        await check_same_writes(self.cluster)
        for contender in self.plan.contenders:
            await self._measure_turn(contender, _WARM_UP_OBJECTS, "warm-up")
        for size in self.plan.sizes:
            turns = self.plan._turns_at(size)
            for turn in range(turns):
                for contender in self.plan._contenders_for_turn(turn, size):
                    self.results.append(
                        await self._measure_turn(
                            contender, size, f"turn-{size}-{turn + 1}", last=turn == turns - 1
                        )
                    )

    async def _measure_turn(
        self, contender: Contender, size: int, name: str, *, last: bool = False
    ) -> Result:
        """Runs a contender on new objects, and after its last turn the runtime again on them."""
        samples = await self.cluster.create_samples(f"{name}-{contender.slug}", size)
        await self.cluster.collect_garbage()
        result = await measure_contender(self.cluster, contender, samples)
        _log_progress(
            f"{name:<16} {contender.name:<24} {result.statuses_per_second:6.0f} statuses/s  "
            f"{result.cpu_working_ms:.3f} CPU ms/object"
        )
        if last and contender is RUNTIME:
            _log_progress(
                f"{'':<16} {contender.name:<24} second start, then "
                f"{self.plan.idle_seconds:g} s idle"
            )
            self.restarts.append(
                await measure_restart(self.cluster, samples, self.plan.idle_seconds)
            )
        await self.cluster.delete_samples(samples)
        return result


def _log_progress(line: str) -> None:
    # On stderr, so that stdout has only the report.
    print(line, file=sys.stderr, flush=True)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Compare the runtime with a bare aiohttp loop, controller-runtime and kopf.",
    )
    parser.add_argument(
        "-n",
        type=int,
        action="append",
        metavar="N",
        help="how many objects; more than one is fine (1000 and 10000)",
    )
    parser.add_argument(
        "--turns", type=int, default=15, help=f"turns at N up to {_LARGE_RUN_OBJECTS:,} (15)"
    )
    parser.add_argument("--large-turns", type=int, default=1, help="turns at larger N (1)")
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        choices=[
            contender.slug for contender in CONTENDERS if contender not in (RUNTIME, BASELINE)
        ],
        help="leave a contender out",
    )
    parser.add_argument(
        "--rest-seconds", type=float, default=20.0, help="how long to measure the idle runtime (20)"
    )
    parser.add_argument(
        "--baseline",
        type=Path,
        metavar="CHECKOUT",
        help="measure the runtime of another checkout too, by turns with this one",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="where the JSON goes (bench/results/<time>.json)"
    )
    options = parser.parse_args()
    if min([*(options.n or [2]), options.turns + 1, options.large_turns + 1]) < 2:
        parser.error("-n has to be at least 2, and the turns at least 1")
    return options


def _create_plan(options: argparse.Namespace) -> Plan:
    skipped = {*options.skip} if options.baseline else {*options.skip, BASELINE.slug}
    contenders = [contender for contender in CONTENDERS if contender.slug not in skipped]
    if options.baseline:
        checkout = str(options.baseline.resolve())
        contenders[contenders.index(BASELINE)] = replace(BASELINE, checkout=checkout)
    sizes = options.n or [1_000, 10_000]
    return Plan(sizes, options.turns, options.large_turns, contenders, options.rest_seconds)


async def run_benchmark(run: Run) -> None:
    """SIGTERM ends a run as cleanly as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with open_cluster() as run.cluster:
        await run._measure_all()


def main() -> int:
    if sys.platform != "linux":
        print(
            "bench reads CPU and memory of other processes from /proc; run it on Linux "
            "or in a container.",
            file=sys.stderr,
        )
        return 2
    options = _parse_arguments()
    run, started, whole = Run(_create_plan(options)), datetime.now(UTC), True
    try:
        asyncio.run(run_benchmark(run))
    except Exception as error:
        expected = isinstance(error, BenchError | KubewrightError)
        _log_progress(str(error) if expected else "".join(traceback.format_exception(error)))
        if not run.results:
            return 2
        _log_progress("the run ends here; what it had measured by then:")
        whole = False
    except (KeyboardInterrupt, asyncio.CancelledError):
        print(
            "stopped; everything that was started has been ended, and nothing was recorded",
            file=sys.stderr,
        )
        return 130
    file = options.json or _RESULTS / f"{started:%Y-%m-%dT%H-%M-%SZ}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(
        format_json(
            run.results, run.restarts, started.isoformat(timespec="seconds"), complete=whole
        )
    )
    print(format_text(run.results, run.restarts))
    _log_progress(f"\nevery turn is in {file}")
    if not whole:
        return 2
    targets = targets_for(medians_of(run.results), run.restarts)
    return 0 if all(target.is_met for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
