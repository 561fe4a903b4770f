"""`python -m demo`: start everything, show it, end it. `--once` ends by itself, with 0 if every sample got the answer it should."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence

from rich.console import Console

from vsphere_operators.terminal import replace_unencodable

from .activity import Activity
from .cleanup import DemoFolder, clean_up_abandoned
from .environment import DEMO_FOLDERS, ROOT, DemoEnvironment
from .expected import SAMPLE_CHECKS, find_failed_samples
from .frame_writer import FrameWriter
from .parent import exit_with_parent
from .snapshot import Snapshot
from .view import Screen, describe_changes, render_all_tables

SAMPLES_TIMEOUT_SECONDS = 120.0
REFRESH_SECONDS = 1.0
MESSAGE_SECONDS = 4.0
"""How long a message is to be read before the next one has its turn, where there is no room for all."""


async def run_once(stage: DemoEnvironment, console: Console) -> int:
    """Wait until every sample has its answer, and show the tables."""
    began = time.monotonic()
    while True:
        snapshot = await stage.read_snapshot()
        wrong = find_failed_samples(snapshot.objects)
        if not wrong or time.monotonic() - began > SAMPLES_TIMEOUT_SECONDS:
            break
        await asyncio.sleep(REFRESH_SECONDS / 4)
    console.print()
    console.print(
        render_all_tables(snapshot, console.width if console.is_terminal else 0), soft_wrap=True
    )
    for (kind, name), words in wrong.items():
        console.print(
            f"{kind} {name} has not the answer that it should: {words}", style="red", soft_wrap=True
        )
    right = len(SAMPLE_CHECKS) - len(wrong)
    console.print(
        f"{right} of {len(SAMPLE_CHECKS)} samples have the answer that they should, vg-2's intended ERROR included.",
        soft_wrap=True,
    )
    return 1 if wrong else 0


async def run_live(stage: DemoEnvironment, console: Console, *, calm: bool) -> int:
    """Show what happens until Ctrl-C."""
    play = asyncio.create_task(asyncio.Event().wait() if calm else Activity(stage).run())
    watch = show_screen if console.is_terminal and not console.is_dumb_terminal else print_changes
    try:
        await watch(poll_snapshots(stage), shell_hints(stage), console)
    finally:
        play.cancel()
        await asyncio.gather(play, return_exceptions=True)
    return 0


async def show_screen(
    moments: AsyncIterator[Snapshot], hints: Sequence[str], console: Console
) -> None:
    """The whole screen, looked at anew every second, and drawn anew where it changed."""
    loop, canvas = asyncio.get_running_loop(), FrameWriter(console)
    with console.screen():
        loop.add_signal_handler(signal.SIGWINCH, canvas.redraw)
        try:
            async for snapshot in moments:
                canvas.show(Screen(snapshot, hints, rotation=int(loop.time() / MESSAGE_SECONDS)))
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)


async def print_changes(
    moments: AsyncIterator[Snapshot], hints: Sequence[str], console: Console
) -> None:
    """A line for each change."""
    for hint in hints:
        console.print(hint, soft_wrap=True, markup=False, highlight=False)
    before: Snapshot | None = None
    async for snapshot in moments:
        for text in describe_changes(before, snapshot):
            console.print(
                f"{time.strftime('%H:%M:%S')} {text}", soft_wrap=True, markup=False, highlight=False
            )
        before = snapshot


async def poll_snapshots(stage: DemoEnvironment) -> AsyncIterator[Snapshot]:
    """What the cluster says, again and again."""
    while True:
        yield await stage.read_snapshot()
        await asyncio.sleep(REFRESH_SECONDS)


def shell_hints(stage: DemoEnvironment) -> list[str]:
    """How to use it from another shell, in this folder; short enough for 80 columns."""
    return [
        f"In another shell here:  . {stage.write_env_file().relative_to(ROOT)}   # KUBECONFIG, PATH...",
        "kubectl get hi,vi,fcd,gpu,vg -o wide;  kubectl vsphere tree;  manager doctor",
    ]


async def run(options: argparse.Namespace, console: Console) -> int:
    """One demo from its beginning to its end, which a signal brings too."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    stage: DemoEnvironment | None = None
    folder = DemoFolder(DEMO_FOLDERS)
    try:
        stage = DemoEnvironment(
            folder, lambda words: console.print(words, markup=False, highlight=False)
        )
        await stage.start()
        return await (
            run_once(stage, console)
            if options.once
            else run_live(stage, console, calm=options.calm)
        )
    except asyncio.CancelledError:
        return 0 if not options.once else 130
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, lambda: None)
        # The terminal may have been closed; what was started is ended all the same.
        with contextlib.suppress(OSError):
            console.print("ending what was started...", highlight=False)
        await stage.stop() if stage else folder.remove()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="All kinds at work on a real API server and a simulated vCenter.",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="print the tables and end: 0 if every sample got the answer it should",
    )
    parser.add_argument(
        "--calm",
        action="store_true",
        help="let nothing happen by itself: no drifting loads, nobody who does things",
    )
    parser.add_argument(
        "--with-parent",
        action="store_true",
        help="end when the program that started this one ends, as make wants it",
    )
    options = parser.parse_args(arguments)
    if options.with_parent:
        exit_with_parent()
    replace_unencodable(sys.stdout)
    console = Console()
    for words in clean_up_abandoned(DEMO_FOLDERS):
        console.print(words, markup=False, highlight=False)
    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(run(options, console))
    return 130


if __name__ == "__main__":
    sys.exit(main())
