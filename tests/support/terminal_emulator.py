"""A terminal emulator behind a real pseudo terminal: what it shows after every byte.

It supports only what a screen that is drawn line by line needs. Sequences that erase, scroll or
wrap raise Flicker.
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
    r"\x1b\[(?P<row>\d+);(?P<column>\d+)H|(?P<style>\x1b\[[\d;]*m)"
    r"|(?P<mark>\x1b\[\?2026[hl])|(?P<text>[^\x00-\x1f\x7f])"
)


class Flicker(AssertionError):
    """A change on the screen that a user would notice."""


@dataclass
class TerminalEmulator:
    """The cells with their styles, and the position of the cursor."""

    width: int
    height: int
    cells: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    row: int = 1
    column: int = 1
    style: str = ""
    in_frame: bool = False

    @property
    def lines(self) -> list[str]:
        rows, columns = range(1, self.height + 1), range(1, self.width + 1)
        return [
            "".join(self.cells.get((row, column), (" ", ""))[0] for column in columns).rstrip()
            for row in rows
        ]

    def show_frame(self, text: str) -> None:
        """Processes one frame; each cell may only show its text before or after the frame."""
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
        for position in self.process(text):
            cell, old, new = self.cells[position], before.get(position), after.cells[position]
            if cell not in (old, new):
                raise Flicker(f"{position} shows {cell} between {old} and {new}")

    def process(self, text: str) -> Iterator[tuple[int, int]]:
        """Yields the position of each written cell."""
        at = 0
        while at < len(text):
            token = TERMINAL_TOKEN.match(text, at)
            if token is None:
                raise Flicker(f"{text[at : at + 12]!r} erases, moves or wraps text")
            at = token.end()
            if token["row"]:
                self.row, self.column = int(token["row"]), int(token["column"])
            elif token["style"]:
                self.style = (
                    "" if token["style"] in ("\x1b[m", "\x1b[0m") else self.style + token["style"]
                )
            elif token["mark"]:
                self.in_frame = token["mark"] == SYNC_BEGIN
            else:
                yield self.write_character(token["text"])

    def write_character(self, character: str) -> tuple[int, int]:
        position = (self.row, self.column)
        if not self.in_frame:
            raise Flicker(f"{position} is written outside a frame")
        if self.column > self.width or self.row > self.height:
            raise Flicker(f"{position} is outside the screen")
        self.cells[position] = (character, self.style)
        self.column += 1
        return position


def resize_terminal(fd: int, width: int, height: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


class TerminalReader:
    """Reads one end of a terminal continuously, so that writers at the other end never block."""

    def __init__(self, fd: int) -> None:
        self.fd, self.data, self.is_closed = fd, bytearray(), False
        self.thread = threading.Thread(target=self.read_until_closed, daemon=True)
        self.thread.start()

    def read_until_closed(self) -> None:
        # When the other end is closed, reading fails with EIO.
        with contextlib.suppress(OSError):
            while not self.is_closed:
                if select.select([self.fd], [], [], 0.05)[0]:
                    self.data += os.read(self.fd, 65536)

    def close(self) -> None:
        self.is_closed = True
        self.thread.join(10)
        os.close(self.fd)
