"""Runs thousands of generated histories of VmGroups; the test suite runs a sample of them.

    make histories                                      # 10,000 of them
    make histories ARGS="--count 2000 --seed 7"

Each history has up to three groups that share a quota, or have none, two vCenters, and a manager
that dies and loses answers; see history/events.py. A seed runs the same history again, with the
PYTHONHASHSEED that the make target sets. The exit code is 0 if no invariant was violated, and every
group recovered.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from .history.events import WEIGHTS, run_history

BATCH_SIZE = 20


def run_batch(first_seed: int, count: int) -> tuple[Counter[str], list[str]]:
    """Run some histories; returns what happened in them, and the failures."""
    counts, failures = Counter[str](), list[str]()
    for seed in range(first_seed, first_seed + count):
        counts["histories"] += 1
        try:
            counts += run_history(seed).counts
        except Exception as error:
            text = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
            failures.append(f"FAILED: seed {seed}\n{text}")
    return counts, failures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make histories", description="Run generated histories of VmGroups."
    )
    parser.add_argument("--count", type=int, default=10_000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first failure")
    options = parser.parse_args(arguments)
    started_at, counts, failed = time.monotonic(), Counter[str](), 0
    seeds = range(options.seed, options.seed + options.count, BATCH_SIZE)
    sizes = [min(BATCH_SIZE, seeds.stop - seed) for seed in seeds]
    with ProcessPoolExecutor(options.jobs) as pool:
        for number, (batch, failures) in enumerate(pool.map(run_batch, seeds, sizes), 1):
            counts, failed = counts + batch, failed + len(failures)
            for failure in failures:
                print(failure, flush=True)
            if number % 10 == 0:
                print(f"{counts['histories']} histories, {failed} violations", flush=True)
            if failed and options.until_failure:
                print(f"failed within {counts['histories']} histories", flush=True)
                pool.shutdown(cancel_futures=True)
                return 1
    _print_counts(counts)
    seconds = time.monotonic() - started_at
    print(f"{counts['histories']} histories, {failed} violations ({seconds:.0f} s)")
    return 1 if failed else 0


def _print_counts(counts: Counter[str]) -> None:
    print("events:")
    for name in sorted(WEIGHTS, key=lambda name: -counts[name]):
        print(f"  {counts[name]:7d} {name}")
    print("what followed from them:")
    for name in sorted(counts.keys() - WEIGHTS.keys() - {"histories"}):
        print(f"  {counts[name]:7d} {name}")


if __name__ == "__main__":
    sys.exit(main())
