"""Shows the progress of a download or a build."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from typing import TextIO

_PLAIN_LINE_INTERVAL_SECONDS = 15.0
_BAR_CELLS = 20
# An estimate from the first seconds would be far off.
_MIN_SHARE_FOR_ESTIMATE = 0.05


class Progress:
    """One line that changes on a terminal, otherwise a line every 15 s."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream, self.clock = stream, clock
        self.is_terminal = stream.isatty()
        self._last_shown = -_PLAIN_LINE_INTERVAL_SECONDS + clock()

    def print_line(self, text: str) -> None:
        self.stream.write(f"\r\033[K{text}\n" if self.is_terminal else f"{text}\n")
        self.stream.flush()

    def update_line(self, text: str) -> None:
        """Show a line until the next one replaces it."""
        if not self.is_terminal and self.clock() - self._last_shown < _PLAIN_LINE_INTERVAL_SECONDS:
            return
        self._last_shown = self.clock()
        # A carriage return cannot overwrite a line that wrapped.
        shortened = text[: shutil.get_terminal_size().columns - 1]
        self.stream.write(f"\r\033[K{shortened}" if self.is_terminal else f"{text}\n")
        self.stream.flush()


def format_bar(share: float, seconds: float) -> str:
    """A progress bar, with an estimate of the remaining time if the share done is large enough."""
    cells = int(share * _BAR_CELLS)
    bar = f"[{'#' * cells}{'.' * (_BAR_CELLS - cells)}] "
    if share < _MIN_SHARE_FOR_ESTIMATE:
        return bar
    remaining = seconds * (1 - share) / share
    minutes = f"about {math.ceil(remaining / 60)} min left"
    return f"{bar}{minutes if remaining > 60 else 'less than a minute left'}; "


def format_duration(seconds: float) -> str:
    """Seconds as in 2m10s."""
    minutes, remainder = divmod(int(seconds), 60)
    return f"{minutes}m{remainder:02d}s" if minutes else f"{remainder}s"
