"""`python -m bench`: one control plane, every contender in turn, one report."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench.arena import Arena, BenchFailed, opened
from bench.report import json_of, medians_of, promises_of, text_of
from bench.sameness import check
from bench.settled import Settled, start_again
from bench.turn import BARE, CONTENDERS, KOPF, RUNTIME, Contender, Result, take_turn
from kubewright import KubewrightError

RESULTS = Path(__file__).parent / "results"
WARM_UP_OBJECTS = 100
MANY_OBJECTS = 2_000
JUDGED = (BARE, RUNTIME, KOPF)
OTHERS_EVERY = 3


@dataclass(frozen=True)
class Plan:
    """What a run is to measure."""

    sizes: Sequence[int]
    turns: int
    large_turns: int
    contenders: Sequence[Contender]
    rest_seconds: float

    def turns_at(self, size: int) -> int:
        return self.turns if size <= MANY_OBJECTS else self.large_turns

    def order(self, turn: int, size: int) -> list[Contender]:
        """Who takes this turn; each turn somebody else begins. Those whom no promise is about take every third.

        With many objects one kopf is enough: it takes minutes. Nor is Go among them there: in the one try it wrote nothing for two
        minutes, and why was not found out.
        """
        others = size <= MANY_OBJECTS and turn % OTHERS_EVERY == 0
        here = [contender for contender in self.contenders if others or contender in JUDGED]
        first = turn % len(here)
        return [*here[first:], *here[:first]]


@dataclass
class Run:
    """A run as it goes: what has been measured so far."""

    plan: Plan
    arena: Arena = field(init=False)
    results: list[Result] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)

    async def all(self) -> None:
        """Check that the bare loop does the same work, warm up, then all turns at each N."""
        await check(self.arena)
        for contender in self.plan.contenders:
            await self.turn(contender, WARM_UP_OBJECTS, "warm-up")
        for size in self.plan.sizes:
            turns = self.plan.turns_at(size)
            for turn in range(turns):
                for contender in self.plan.order(turn, size):
                    self.results.append(await self.turn(contender, size, f"turn-{size}-{turn + 1}", last=turn == turns - 1))

    async def turn(self, contender: Contender, size: int, name: str, *, last: bool = False) -> Result:
        """One contender on fresh objects; after the runtime's last turn, its second start on the same ones."""
        ground = await self.arena.ground(f"{name}-{contender.slug}", size)
        await self.arena.collect()
        result = await take_turn(self.arena, contender, ground)
        say(f"{name:<16} {contender.name:<24} {result.statuses_per_second:6.0f} statuses/s  {result.cpu_working_ms:.3f} CPU ms/object")
        if last and contender is RUNTIME:
            say(f"{'':<16} {contender.name:<24} second start, then {self.plan.rest_seconds:g} s at rest")
            self.settled.append(await start_again(self.arena, ground, self.plan.rest_seconds))
        await self.arena.clear(ground)
        return result


def say(line: str) -> None:
    """Tell how far we are, apart from the report."""
    print(line, file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure the runtime beside a bare aiohttp loop, controller-runtime and kopf."
    )
    parser.add_argument("-n", type=int, action="append", metavar="N", help="how many objects; more than one is fine (1000 and 10000)")
    parser.add_argument("--turns", type=int, default=15, help=f"turns at N up to {MANY_OBJECTS:,} (15)")
    parser.add_argument("--large-turns", type=int, default=1, help="turns at larger N (1)")
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        choices=[each.slug for each in CONTENDERS if each is not RUNTIME],
        help="leave a contender out",
    )
    parser.add_argument("--rest-seconds", type=float, default=20.0, help="how long to look at the runtime at rest (20)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the JSON goes (bench/results/<time>.json)")
    options = parser.parse_args()
    if min([*(options.n or [2]), options.turns + 1, options.large_turns + 1]) < 2:
        parser.error("-n has to be at least 2, and the turns at least 1")
    return options


async def measure(run: Run) -> None:
    """A whole run; SIGTERM ends it as cleanly as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with opened() as run.arena:
        await run.all()


def main() -> int:
    if sys.platform != "linux":
        print("bench reads CPU and memory of other processes as only Linux tells them; run it on Linux or in a container.", file=sys.stderr)
        return 2
    options = arguments()
    contenders = [contender for contender in CONTENDERS if contender.slug not in options.skip]
    plan = Plan(options.n or [1_000, 10_000], options.turns, options.large_turns, contenders, options.rest_seconds)
    run, started, whole = Run(plan), datetime.now(UTC), True
    try:
        asyncio.run(measure(run))
    except Exception as failed:
        expected = isinstance(failed, BenchFailed | KubewrightError)
        say(str(failed) if expected else "".join(traceback.format_exception(failed)))
        if not run.results:
            return 2
        say("the run ends here; what it had measured by then:")
        whole = False
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("stopped; everything that was started has been ended, and nothing was recorded", file=sys.stderr)
        return 130
    file = options.json or RESULTS / f"{started:%Y-%m-%dT%H-%M-%SZ}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(json_of(run.results, run.settled, started.isoformat(timespec="seconds"), whole=whole))
    print(text_of(run.results, run.settled))
    say(f"\nevery turn is in {file}")
    if not whole:
        return 2
    return 0 if all(promise.kept for promise in promises_of(medians_of(run.results), run.settled)) else 1


if __name__ == "__main__":
    sys.exit(main())
