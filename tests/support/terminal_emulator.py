"""A terminal of our own, behind a real pseudo terminal: what it shows after every byte, and how the bytes came.

It knows what a screen drawn line by line needs, and refuses all else: whatever erases, scrolls or wraps is a flicker, or leads to one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import struct
import termios
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

SYNC_BEGIN, SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
TERMINAL_TOKEN = re.compile(
    r"\x1b\[(?P<row>\d+);(?P<column>\d+)H|(?P<style>\x1b\[[\d;]*m)|(?P<mark>\x1b\[\?2026[hl])|(?P<text>[^\x00-\x1f\x7f])"
)


class Flicker(AssertionError):
    """Something that a person would see, and should not."""


@dataclass
class TerminalEmulator:
    """Cells with their style, and where the next character goes."""

    width: int
    height: int
    cells: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    row: int = 1
    column: int = 1
    style: str = ""
    in_frame: bool = False

    @property
    def lines(self) -> list[str]:
        """What is to be read."""
        rows, columns = range(1, self.height + 1), range(1, self.width + 1)
        return [
            "".join(self.cells.get((row, column), (" ", ""))[0] for column in columns).rstrip()
            for row in rows
        ]

    def show_frame(self, text: str) -> None:
        """Take in one frame, and judge every moment of it: a cell shows what it showed before, or what it shows at the end."""
        after = TerminalEmulator(
            self.width,
            self.height,
            dict(self.cells),
            self.row,
            self.column,
            self.style,
            self.in_frame,
        )
        for _ in after.process(text):
            pass
        before = dict(self.cells)
        for place in self.process(text):
            if self.cells[place] not in (before.get(place), after.cells[place]):
                raise Flicker(
                    f"{place} shows {self.cells[place]} between {before.get(place)} and {after.cells[place]}"
                )

    def process(self, text: str) -> Iterator[tuple[int, int]]:
        """Take in one part after the other; yields the cells that were written."""
        at = 0
        while at < len(text):
            found = TERMINAL_TOKEN.match(text, at)
            if found is None:
                raise Flicker(f"{text[at : at + 12]!r} erases, moves or wraps what is shown")
            at = found.end()
            if found["row"]:
                self.row, self.column = int(found["row"]), int(found["column"])
            elif found["style"]:
                self.style = (
                    "" if found["style"] in ("\x1b[m", "\x1b[0m") else self.style + found["style"]
                )
            elif found["mark"]:
                self.in_frame = found["mark"] == SYNC_BEGIN
            else:
                yield self.write_character(found["text"])

    def write_character(self, character: str) -> tuple[int, int]:
        """One character into its cell."""
        place = (self.row, self.column)
        if not self.in_frame:
            raise Flicker(f"{place} is written outside a frame")
        if self.column > self.width or self.row > self.height:
            raise Flicker(f"{place} is outside the screen")
        self.cells[place] = (character, self.style)
        self.column += 1
        return place


def resize_terminal(fd: int, width: int, height: int) -> None:
    """Give a terminal its size."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


class TerminalReader:
    """Reads one end of a terminal all the time: nobody who writes to the other end ever waits."""

    def __init__(self, fd: int) -> None:
        self.fd, self.data, self.is_closed = fd, bytearray(), False
        self.thread = threading.Thread(target=self.read_until_closed, daemon=True)
        self.thread.start()

    def read_until_closed(self) -> None:
        """Until we close our end, or the other one is closed, which a terminal tells as an error."""
        with contextlib.suppress(OSError):
            while not self.is_closed:
                if select.select([self.fd], [], [], 0.05)[0]:
                    self.data += os.read(self.fd, 65536)

    def close(self) -> None:
        """Hang up."""
        self.is_closed = True
        self.thread.join(10)
        os.close(self.fd)
