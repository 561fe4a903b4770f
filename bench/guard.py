"""`python -m bench.guard`: fails if the manager costs more than recorded, relative to a bare loop.

It takes about a minute. The manager and the bare loop of bench.product write the same statuses by
turns, on one API server and one simulated vCenter. Only ratios of their medians are compared with
guard.json, because machines differ. Wall time is not compared: it depends on other processes.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import msgspec

from bench.cluster import BenchError
from bench.product.cold_start import ColdStart
from bench.product.contenders import BARE, MANAGER
from bench.product.environment import open_environment
from bench.product.equal_work import check_equal_work
from bench.product.turns import FIGURES
from bench.report import align_columns
from vsphere_operators.kinds.hostinfo import HostInfo

_RECORD = Path(__file__).with_name("guard.json")
_HOSTS, _VMS, _OBJECTS, _TURNS = 20, 40, 500, 5


class Limit(msgspec.Struct, frozen=True):
    ratio: float
    """The manager's figure over that of the bare loop, when it was recorded."""
    margin: float
    """How much larger the ratio may be: 0.1 is a tenth."""

    @property
    def highest(self) -> float:
        return self.ratio * (1 + self.margin)


async def measure_ratios() -> dict[str, float]:
    """The ratio of each figure in guard.json."""
    figures: dict[str, list[dict[str, float]]] = {MANAGER.slug: [], BARE.slug: []}
    with tempfile.TemporaryDirectory() as folder:
        async with open_environment(Path(folder), _HOSTS, _VMS) as environment:
            reference = await check_equal_work(environment, (MANAGER, BARE))
            for turn in range(_TURNS):
                for contender in (MANAGER, BARE) if turn % 2 else (BARE, MANAGER):
                    scenario = ColdStart(HostInfo, _OBJECTS)
                    name = f"guard-{turn + 1}-{contender.slug}"
                    figures[contender.slug].append(
                        await scenario.measure(environment, reference, contender, name)
                    )
    return {
        name: _median(figures[MANAGER.slug], name) / _median(figures[BARE.slug], name)
        for name in read_limits()
    }


def _median(turns: list[dict[str, float]], name: str) -> float:
    return median(turn[name] for turn in turns)


def read_limits() -> dict[str, Limit]:
    return msgspec.json.decode(_RECORD.read_bytes(), type=dict[str, Limit])


def write_limits(limits: Mapping[str, Limit]) -> None:
    _RECORD.write_bytes(msgspec.json.format(msgspec.json.encode(limits), indent=1) + b"\n")


def find_worse(ratios: Mapping[str, float], limits: Mapping[str, Limit]) -> list[str]:
    """The figures with a ratio above the limit."""
    return [name for name, limit in limits.items() if ratios[name] > limit.highest]


def format_report(ratios: Mapping[str, float], limits: Mapping[str, Limit]) -> str:
    rows = [["of the bare loop", "measured", "recorded", "highest", ""]]
    worse = find_worse(ratios, limits)
    for name, limit in limits.items():
        values = (f"{value:.2f}x" for value in (ratios[name], limit.ratio, limit.highest))
        rows.append([FIGURES[name].title, *values, "WORSE" if name in worse else "ok"])
    return "\n".join(align_columns(rows))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.guard", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=1,
        help="number of runs; with more than one, the spread is printed",
    )
    parser.add_argument(
        "--update", action="store_true", help="record the medians of the runs; margins stay"
    )
    options = parser.parse_args()
    limits, runs = read_limits(), []
    try:
        for _ in range(options.runs):
            runs.append(asyncio.run(measure_ratios()))
            print(format_report(runs[-1], limits), flush=True)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2
    ratios = {name: median(run[name] for run in runs) for name in limits}
    for name in limits if options.runs > 1 else ():
        values = sorted(run[name] / ratios[name] for run in runs)
        print(f"{FIGURES[name].title}: {values[0]:.3f} to {values[-1]:.3f} of the median")
    if options.update:
        write_limits(
            {name: Limit(round(ratios[name], 3), limit.margin) for name, limit in limits.items()}
        )
        print(f"recorded in {_RECORD.name}")
        return 0
    if worse := find_worse(ratios, limits):
        print(
            f"\n{len(worse)} of {len(limits)} ratios are worse than recorded by more than the "
            "margin. If the cost is intended, explain it in the commit and record it with: "
            'make bench-guard ARGS="--runs 3 --update"',
            file=sys.stderr,
        )
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
