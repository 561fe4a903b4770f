"""Draws docs/pictures/live-view.svg: the demo's live view, animated, from a real run.

`make live-view-picture` runs it. The picture changes with every run (loads, times). So it is
not one of the generated files that `make verify` compares.
"""

from __future__ import annotations

import asyncio
import io
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from demo.__main__ import shell_hints
from demo.activity import Activity
from demo.cleanup import DemoFolder
from demo.environment import DEMO_FOLDERS, ROOT, DemoEnvironment, find_demo_binaries
from demo.expected import find_failed_samples
from demo.view import Screen
from hack.svg_animation import animate

PICTURE = Path("docs/pictures/live-view.svg")
WIDTH, HEIGHT = 100, 36
TIMEOUT_SECONDS = 120.0
# Long enough for four changes of the script and what follows from them.
ACTIVITY_SECONDS = 56.0
SECONDS_PER_FRAME = 2.0
# The animation runs faster than the demo.
SECONDS_PER_SHOWN_FRAME = 0.8
# rich refers to fonts on a content delivery network, which a browser does not load inside <img>.
FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


async def record() -> list[Screen]:
    """The screens of a real run, from the moment when every sample has its status."""
    environment = DemoEnvironment(DemoFolder(DEMO_FOLDERS), find_demo_binaries(), print)
    try:
        await environment.start()
        began = time.monotonic()
        while find_failed_samples((await environment.read_snapshot()).objects):
            if time.monotonic() - began > TIMEOUT_SECONDS:
                raise SystemExit("The samples did not get their expected status in time.")
            await asyncio.sleep(0.5)
        activity = Activity(environment)
        running = asyncio.create_task(activity.run())
        screens = []
        for _ in range(int(ACTIVITY_SECONDS / SECONDS_PER_FRAME)):
            await asyncio.sleep(SECONDS_PER_FRAME)
            snapshot = replace(await environment.read_snapshot(), script=activity.status)
            screens.append(Screen(snapshot, shell_hints(environment)))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return screens
    finally:
        await environment.stop()


def render(screens: Sequence[Screen]) -> str:
    """The screens one below the other, so that they share the classes of their styles."""
    console = Console(
        file=io.StringIO(), record=True, width=WIDTH, height=HEIGHT, force_terminal=True
    )
    for screen in screens:
        console.print(screen)
    # A fixed id keeps the difference between two pictures to what changed on the screen.
    return FONT_FACE.sub("", console.export_svg(title="make demo", unique_id="live-view"))


if __name__ == "__main__":
    recorded = asyncio.run(record())
    picture = animate(render(recorded), HEIGHT, SECONDS_PER_SHOWN_FRAME)
    (ROOT / PICTURE).write_text(picture)
    print(f"wrote {PICTURE}: {len(recorded)} frames, {len(picture.encode()) / 1000:.0f} kB")
