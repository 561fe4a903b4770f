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

from .canvas import Canvas
from .expected import SAMPLES, shortfalls
from .leftovers import Folder, clean
from .parent import end_with_parent
from .play import Play
from .snapshot import Snapshot
from .stage import FOLDERS, ROOT, Stage
from .view import Screen, changes, final

ANSWERS_WITHIN_SECONDS = 120.0
LOOK_SECONDS = 1.0
TURN_SECONDS = 4.0
"""How long a message is to be read before the next one has its turn, where there is no room for all."""


async def once(stage: Stage, console: Console) -> int:
    """Wait until every sample has its answer, and show the tables."""
    began = time.monotonic()
    while True:
        snapshot = await stage.look()
        wrong = shortfalls(snapshot.objects)
        if not wrong or time.monotonic() - began > ANSWERS_WITHIN_SECONDS:
            break
        await asyncio.sleep(LOOK_SECONDS / 4)
    console.print()
    console.print(final(snapshot, console.width if console.is_terminal else 0), soft_wrap=True)
    for (kind, name), words in wrong.items():
        console.print(f"{kind} {name} has not the answer that it should: {words}", style="red", soft_wrap=True)
    right = len(SAMPLES) - len(wrong)
    console.print(f"{right} of {len(SAMPLES)} samples have the answer that they should, vg-2's intended ERROR included.", soft_wrap=True)
    return 1 if wrong else 0


async def live(stage: Stage, console: Console, *, calm: bool) -> int:
    """Show what happens until Ctrl-C."""
    play = asyncio.create_task(asyncio.Event().wait() if calm else Play(stage).run())
    watch = watch_screen if console.is_terminal and not console.is_dumb_terminal else watch_lines
    try:
        await watch(looks(stage), hints_for(stage), console)
    finally:
        play.cancel()
        await asyncio.gather(play, return_exceptions=True)
    return 0


async def watch_screen(moments: AsyncIterator[Snapshot], hints: Sequence[str], console: Console) -> None:
    """The whole screen, looked at anew every second, and drawn anew where it changed."""
    loop, canvas = asyncio.get_running_loop(), Canvas(console)
    with console.screen():
        loop.add_signal_handler(signal.SIGWINCH, canvas.redraw)
        try:
            async for snapshot in moments:
                canvas.show(Screen(snapshot, hints, turn=int(loop.time() / TURN_SECONDS)))
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)


async def watch_lines(moments: AsyncIterator[Snapshot], hints: Sequence[str], console: Console) -> None:
    """A line for each change."""
    for hint in hints:
        console.print(hint, soft_wrap=True, markup=False, highlight=False)
    before: Snapshot | None = None
    async for snapshot in moments:
        for text in changes(before, snapshot):
            console.print(f"{time.strftime('%H:%M:%S')} {text}", soft_wrap=True, markup=False, highlight=False)
        before = snapshot


async def looks(stage: Stage) -> AsyncIterator[Snapshot]:
    """What the cluster says, again and again."""
    while True:
        yield await stage.look()
        await asyncio.sleep(LOOK_SECONDS)


def hints_for(stage: Stage) -> list[str]:
    """How to use it from another shell, in this folder; short enough for 80 columns."""
    return [
        f"In another shell here:  . {stage.shell().relative_to(ROOT)}   # KUBECONFIG, PATH...",
        "kubectl get hi,vi,fcd,gpu,vg -o wide;  kubectl vsphere tree;  manager doctor",
    ]


async def run(options: argparse.Namespace, console: Console) -> int:
    """One demo from its beginning to its end, which a signal brings too."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    stage: Stage | None = None
    folder = Folder(FOLDERS)
    try:
        stage = Stage(folder, lambda words: console.print(words, markup=False, highlight=False))
        await stage.start()
        return await (once(stage, console) if options.once else live(stage, console, calm=options.calm))
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
    parser = argparse.ArgumentParser(prog="python -m demo", description="All kinds at work on a real API server and a simulated vCenter.")
    parser.add_argument("--once", action="store_true", help="print the tables and end: 0 if every sample got the answer it should")
    parser.add_argument("--calm", action="store_true", help="let nothing happen by itself: no drifting loads, nobody who does things")
    parser.add_argument("--with-parent", action="store_true", help="end when the program that started this one ends, as make wants it")
    options = parser.parse_args(arguments)
    if options.with_parent:
        end_with_parent()
    replace_unencodable(sys.stdout)
    console = Console()
    for words in clean(FOLDERS):
        console.print(words, markup=False, highlight=False)
    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(run(options, console))
    return 130


if __name__ == "__main__":
    sys.exit(main())
