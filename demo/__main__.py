"""`python -m demo`: starts everything, shows it, and stops it again."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from kubewright.errors import ConfigError
from kubewright.testing.apiserver import StartFailed
from kubewright.testing.binaries import report_interruption
from vsphere_operators.console import replace_unencodable

from .activity import Activity
from .cleanup import DemoFolder, clean_up_abandoned, exit_with_parent
from .environment import DEMO_FOLDERS, ROOT, DemoEnvironment, find_demo_binaries
from .expected import SAMPLE_CHECKS, find_failed_samples
from .frame_writer import FrameWriter
from .snapshot import Snapshot
from .view import Screen, describe_changes, render_all_tables

_SAMPLES_TIMEOUT_SECONDS = 120.0
_REFRESH_SECONDS = 1.0
# Time to read a message before the next one takes its turn on the screen.
_MESSAGE_SECONDS = 4.0
_NO_SCRIPT = "No script runs: nothing changes on its own."


async def _run_once(environment: DemoEnvironment, console: Console) -> int:
    """Prints the tables when every sample has the expected status."""
    began = time.monotonic()
    while True:
        snapshot = await environment.read_snapshot()
        failed = find_failed_samples(snapshot.objects)
        if not failed or time.monotonic() - began > _SAMPLES_TIMEOUT_SECONDS:
            break
        await asyncio.sleep(_REFRESH_SECONDS / 4)
    console.print()
    console.print(
        render_all_tables(snapshot, console.width if console.is_terminal else 0), soft_wrap=True
    )
    if failed and snapshot.manager.notice:
        console.print(snapshot.manager.notice, style="red", soft_wrap=True)
    for (kind, name), problem in failed.items():
        console.print(
            f"{kind} {name} does not have the expected status: {problem}",
            style="red",
            soft_wrap=True,
        )
    passed = len(SAMPLE_CHECKS) - len(failed)
    console.print(
        f"{passed} of {len(SAMPLE_CHECKS)} samples have the expected status "
        "(vg-2 is expected to be in phase ERROR).",
        soft_wrap=True,
    )
    return 1 if failed else 0


async def _run_live(environment: DemoEnvironment, console: Console, *, calm: bool) -> int:
    """Shows the live view until Ctrl-C."""
    activity = None if calm else Activity(environment)
    running = asyncio.create_task(activity.run() if activity else asyncio.Event().wait())
    full_screen = console.is_terminal and not console.is_dumb_terminal
    show = show_screen if full_screen else _print_changes
    try:
        await show(_poll_snapshots(environment, activity), shell_hints(environment), console)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return 0


async def show_screen(
    snapshots: AsyncIterator[Snapshot], hints: Sequence[str], console: Console
) -> None:
    """Draws each snapshot on the full screen."""
    loop, writer = asyncio.get_running_loop(), FrameWriter(console)
    with console.screen():
        loop.add_signal_handler(signal.SIGWINCH, writer.redraw)
        try:
            async for snapshot in snapshots:
                writer.show(Screen(snapshot, hints, rotation=int(loop.time() / _MESSAGE_SECONDS)))
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)


async def _print_changes(
    snapshots: AsyncIterator[Snapshot], hints: Sequence[str], console: Console
) -> None:
    """Prints a line for each change, for output that is not a terminal."""
    for hint in hints:
        console.print(hint, soft_wrap=True, markup=False, highlight=False)
    before: Snapshot | None = None
    async for snapshot in snapshots:
        for text in describe_changes(before, snapshot):
            console.print(
                f"{time.strftime('%H:%M:%S')} {text}", soft_wrap=True, markup=False, highlight=False
            )
        before = snapshot


async def _poll_snapshots(
    environment: DemoEnvironment, activity: Activity | None
) -> AsyncIterator[Snapshot]:
    while True:
        snapshot = await environment.read_snapshot()
        yield replace(snapshot, script=activity.status if activity else _NO_SCRIPT)
        await asyncio.sleep(_REFRESH_SECONDS)


def shell_hints(environment: DemoEnvironment) -> list[str]:
    """Commands to try in another shell; each fits 80 columns."""
    env_file = environment.write_env_file().relative_to(ROOT)
    return [
        f"In another shell here:  . {env_file}   # KUBECONFIG, PATH...",
        "kubectl get hi,vi,fcd,di,ci,gpu,vg;  kubectl vsphere tree;  manager doctor",
    ]


async def _run(options: argparse.Namespace, binaries: Mapping[str, Path], console: Console) -> int:
    """Runs one demo; a signal ends it in order, too."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    environment: DemoEnvironment | None = None
    folder = DemoFolder(DEMO_FOLDERS)
    try:
        environment = DemoEnvironment(
            folder, binaries, lambda line: console.print(line, markup=False, highlight=False)
        )
        await environment.start()
        if options.once:
            return await _run_once(environment, console)
        return await _run_live(environment, console, calm=options.calm)
    except asyncio.CancelledError:
        return 0 if not options.once else 130
    except StartFailed as error:
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        return 1
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, lambda: None)
        # The terminal may have been closed; the processes are stopped all the same.
        with contextlib.suppress(OSError):
            console.print("Stopping all processes...", highlight=False)
        await environment.stop() if environment else folder.remove()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="Runs all kinds on a real API server and a simulated vCenter.",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="Print the tables and exit: 0 if every sample got the expected status.",
    )
    parser.add_argument(
        "--calm",
        action="store_true",
        help="Change nothing while the demo runs: no drifting loads, no user actions.",
    )
    parser.add_argument(
        "--with-parent",
        action="store_true",
        help="Exit when the parent process ends; make passes this flag.",
    )
    options = parser.parse_args(arguments)
    if options.with_parent:
        exit_with_parent()
    replace_unencodable(sys.stdout)
    console = Console()
    try:
        binaries = find_demo_binaries()
    except ConfigError as error:
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return report_interruption()
    for message in clean_up_abandoned(DEMO_FOLDERS):
        console.print(message, markup=False, highlight=False)
    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(_run(options, binaries, console))
    return 130


if __name__ == "__main__":
    sys.exit(main())
