"""Draws docs/pictures/live-view.svg: the demo's live view, rendered from a real run.

`make live-view-picture` runs it. The picture changes with every run (loads, times). So it is
not one of the generated files that `make verify` compares.
"""

from __future__ import annotations

import asyncio
import io
import re
import time
from pathlib import Path

from rich.console import Console

from demo.__main__ import shell_hints
from demo.activity import Activity
from demo.cleanup import DemoFolder
from demo.environment import DEMO_FOLDERS, ROOT, DemoEnvironment
from demo.expected import find_failed_samples
from demo.view import Screen

PICTURE = Path("docs/pictures/live-view.svg")
WIDTH, HEIGHT = 100, 36
TIMEOUT_SECONDS = 120.0
# The loads drift every few seconds; by then every table has moved at least once.
ACTIVITY_SECONDS = 10.0
# rich refers to fonts on a content delivery network, which a browser does not load inside <img>.
FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


async def draw() -> str:
    environment = DemoEnvironment(DemoFolder(DEMO_FOLDERS), print)
    try:
        await environment.start()
        began = time.monotonic()
        while find_failed_samples((await environment.read_snapshot()).objects):
            if time.monotonic() - began > TIMEOUT_SECONDS:
                raise SystemExit("The samples did not get their expected status in time.")
            await asyncio.sleep(0.5)
        activity = asyncio.create_task(Activity(environment).run())
        await asyncio.sleep(ACTIVITY_SECONDS)
        screen = Screen(await environment.read_snapshot(), shell_hints(environment))
        activity.cancel()
        await asyncio.gather(activity, return_exceptions=True)
        return render(screen)
    finally:
        await environment.stop()


def render(screen: Screen) -> str:
    console = Console(
        file=io.StringIO(), record=True, width=WIDTH, height=HEIGHT, force_terminal=True
    )
    console.print(screen)
    # A fixed id keeps the difference between two pictures to what changed on the screen.
    svg = console.export_svg(title="make demo", unique_id="live-view")
    return FONT_FACE.sub("", svg)


if __name__ == "__main__":
    (ROOT / PICTURE).write_text(asyncio.run(draw()))
    print(f"wrote {PICTURE}")
