"""Runs thousands of generated histories of plan(); the test suite runs a sample of them.

    make histories                                      # 10,000 of them
    make histories ARGS="--count 2000 --seed 7"

A history is a group in a simulated vCenter with crashes, lost responses and changes by users. The
simulation fails it if there is a VM too many at any instant, or if an object of another owner is
touched; at the end all disturbances stop and the group must recover. The exit code is 0 if no
history failed. A failure is printed with its seed; the same seed runs the same histories.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from .test_plan_state_machine import DERANDOMIZED, CrashStateMachine, UserChangeStateMachine

BATCH_SIZE = 100


class HistoryCounter:
    """Counts the histories that a batch really ran, and what happened in them."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()

    def count(self, machine: CrashStateMachine) -> None:
        simulation = machine.simulation
        self.events["histories"] += 1
        self.events["clones"] += len(simulation.clone_calls)
        self.events["foreign clones"] += sum(call.is_from_user for call in simulation.clone_calls)
        self.events["clones shown early"] += sum(
            call.shown_at is not None and call.vm is not None for call in simulation.clone_calls
        )
        self.events["restarts"] += simulation.restart_count
        self.events["actions on VMs"] += simulation.vm_action_count
        self.events["actions on suspended VMs"] += simulation.suspended_vm_action_count


def run_batch(number: int) -> tuple[int, Counter[str], str]:
    """Run one batch; returns its number, its counts, and the failure or ""."""
    base = UserChangeStateMachine if number % 2 else CrashStateMachine
    counter = HistoryCounter()

    def teardown(self: Any) -> None:
        try:
            base.teardown(self)
        finally:
            counter.count(self)

    machine = seed(number)(type(base.__name__, (base,), {"teardown": teardown}))
    batch_settings = settings(
        DERANDOMIZED, derandomize=False, max_examples=BATCH_SIZE, phases=[Phase.generate]
    )
    try:
        run_state_machine_as_test(machine, settings=batch_settings)
    except Exception:
        return number, counter.events, traceback.format_exc()
    return number, counter.events, ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make histories", description="Run generated histories of a VmGroup."
    )
    parser.add_argument("--count", type=int, default=10_000, help="how many, at least")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes")
    options = parser.parse_args(arguments)
    started_at, events, failed = time.monotonic(), Counter[str](), 0
    batches = range(options.seed, options.seed + -(-options.count // BATCH_SIZE))
    with ProcessPoolExecutor(options.jobs) as pool:
        for number, counts, failure in pool.map(run_batch, batches):
            events += counts
            if failure:
                failed += 1
                print(f"FAILED: seed {number}\n{failure}", flush=True)
            elif (number - options.seed) % 10 == 9:
                print(f"{events['histories']} histories, {failed} failures", flush=True)
    details = ", ".join(f"{count} {name}" for name, count in events.items())
    print(f"{details}; {failed} failures in {time.monotonic() - started_at:.0f} s")
    return 1 if failed or events["histories"] < options.count else 0


if __name__ == "__main__":
    sys.exit(main())
