"""The live view on a real pseudo terminal does not flicker.

Nothing is erased, a frame is one write, and only changed lines are written.
"""

from __future__ import annotations

import asyncio
import io
import os
import pty
import signal
import tty
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from rich.console import Console
from rich.live import Live
from rich.text import Text

from demo.__main__ import show_screen
from demo.frame_writer import FrameWriter
from demo.log import LogLine
from demo.snapshot import Snapshot
from demo.view import Screen
from support.terminal_emulator import (
    SYNC_BEGIN,
    SYNC_END,
    Flicker,
    TerminalEmulator,
    TerminalReader,
    resize_terminal,
)
from test_demo_view import HINTS, MESSAGE, NOT_READY_GROUP, make_objects

REAL_GET_TERMINAL_SIZE = os.get_terminal_size
SIZES = [(60, 15), (80, 24), (160, 50)]


class RecordingFile(io.FileIO):
    """A file that records each write."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd, "w")
        self.writes: list[str] = []

    def write(self, data: Any, /) -> int:
        self.writes.append(bytes(data).decode())
        count = super().write(data)
        assert count == len(data)
        return count


@dataclass
class ConsoleHarness:
    """A console at one end of a pseudo terminal, and the test at the other."""

    reader: TerminalReader
    console: Console
    file: RecordingFile

    def take_writes(self) -> list[str]:
        """The writes since the last call."""
        writes, self.file.writes = self.file.writes, []
        return writes


@pytest.fixture(params=SIZES, ids=["60x15", "80x24", "160x50"])
def size(request: pytest.FixtureRequest) -> tuple[int, int]:
    chosen: tuple[int, int] = request.param
    return chosen


@pytest.fixture
def harness(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[ConsoleHarness]:
    near, far = pty.openpty()
    tty.setraw(far)
    reader = TerminalReader(near)
    resize_terminal(near, *size)
    file = RecordingFile(far)
    text = io.TextIOWrapper(io.BufferedWriter(file), encoding="utf-8", line_buffering=True)
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    # rich reads the size from the standard streams, which pytest has replaced, not from its file.
    monkeypatch.setattr("os.get_terminal_size", lambda *_: REAL_GET_TERMINAL_SIZE(near))
    yield ConsoleHarness(reader, Console(file=text), file)
    text.close()
    reader.close()


def make_snapshot(number: int) -> Snapshot:
    """The script changes something each time: loads, and sometimes the log and a VmGroup."""
    objects = make_objects(freeCPU=1000 + number * 7, totalCPU=4588, nodeCPUUsage=number * 111)
    if number % 4 < 2:
        objects["VmGroup", "vg-2"] = NOT_READY_GROUP
    lines = [
        LogLine("10:00:00 info ", f"line {index}", "object=VmGroup/vg-1")
        for index in range(number // 3)
    ]
    events = [f"event {index}" for index in range(number // 5)]
    return Snapshot(objects, events, lines, script=f"Staged by a script: change {number}")


def show_frames(terminal: TerminalEmulator, writes: list[str]) -> None:
    """Checks that each write is one complete frame without flicker."""
    for frame in writes:
        assert frame.startswith(SYNC_BEGIN)
        assert frame.endswith(SYNC_END)
        assert frame.count(SYNC_BEGIN) == frame.count(SYNC_END) == 1
        terminal.show_frame(frame)


def test_each_frame_is_one_write_without_flicker(
    harness: ConsoleHarness, size: tuple[int, int]
) -> None:
    writer, terminal = FrameWriter(harness.console), TerminalEmulator(*size)
    received = ""
    for number in range(40):
        writer.show(Screen(make_snapshot(number), HINTS))
        writes = harness.take_writes()
        assert len(writes) == 1
        received += writes[0]
        show_frames(terminal, writes)
        with harness.console.capture() as plain:
            harness.console.print(Screen(make_snapshot(number), HINTS), height=size[1])
        assert terminal.lines == [
            Text.from_ansi(line).plain.rstrip() for line in plain.get().splitlines()
        ]
    harness.console.file.close()
    harness.reader.thread.join(10)
    assert harness.reader.data.decode() == received


def test_unchanged_lines_are_not_written(harness: ConsoleHarness, size: tuple[int, int]) -> None:
    writer = FrameWriter(harness.console)
    writer.show(Screen(make_snapshot(1), HINTS))
    (first,) = harness.take_writes()
    writer.show(Screen(make_snapshot(1), HINTS))
    assert harness.take_writes() == []
    other = {
        **make_snapshot(1).objects,
        ("HostInfo", "hostinfo-host-e"): make_objects(freeCPU=4321, totalCPU=4588)[
            "HostInfo", "hostinfo-host-e"
        ],
    }
    writer.show(Screen(replace(make_snapshot(1), objects=other), HINTS))
    (second,) = harness.take_writes()
    assert second.count(";1H") == 1
    assert "4321/4588" in second
    assert len(second) < len(first) / 10


async def test_screen_is_drawn_completely_after_a_resize(
    harness: ConsoleHarness, size: tuple[int, int]
) -> None:
    async def snapshots() -> AsyncIterator[Snapshot]:
        for number in range(5):
            yield make_snapshot(number)
        resize_terminal(harness.reader.fd, 100, 30)
        os.kill(os.getpid(), signal.SIGWINCH)
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)

    await show_screen(snapshots(), HINTS, harness.console)
    writes = harness.take_writes()
    frames = [number for number, text in enumerate(writes) if text.startswith(SYNC_BEGIN)]
    first, last = frames[0], frames[-1]
    assert "".join(writes[:first]) == "\x1b[?1049h\x1b[H\x1b[?25l"
    assert frames == list(range(first, first + 6))
    assert "".join(writes[last + 1 :]) == "\x1b[?1049l\x1b[?25h"
    show_frames(TerminalEmulator(*size), writes[first:last])
    resized = TerminalEmulator(100, 30)
    show_frames(resized, writes[last : last + 1])
    assert resized.lines[-2:] == list(HINTS)
    assert all(resized.lines[row] for row in (0, 1, 29))


@pytest.mark.parametrize(
    "erasing", ["\x1b[2J", "\x1b[J", "\x1b[K", "\x1b[2K", "\n", "\x1b[H\x1b[J"]
)
def test_terminal_emulator_detects_flicker(erasing: str) -> None:
    for text, message in [
        (f"{SYNC_BEGIN}{erasing}\x1b[1;1Hone{SYNC_END}", "erases"),
        (f"{SYNC_BEGIN}\x1b[1;1H   \x1b[1;1Hone{SYNC_END}", "shows"),
        ("\x1b[1;1Hone", "outside a frame"),
        (f"{SYNC_BEGIN}\x1b[1;9Hone{SYNC_END}", "outside the screen"),
    ]:
        terminal = TerminalEmulator(10, 2)
        terminal.show_frame(f"{SYNC_BEGIN}\x1b[1;1Hone{SYNC_END}")
        with pytest.raises(Flicker, match=message):
            terminal.show_frame(text)


def test_rich_live_flickers(harness: ConsoleHarness, size: tuple[int, int]) -> None:
    terminal = TerminalEmulator(*size)
    with Live(
        Screen(make_snapshot(0), HINTS), console=harness.console, screen=True, auto_refresh=False
    ) as live:
        harness.take_writes()
        live.update(Screen(make_snapshot(0), HINTS), refresh=True)
        again = "".join(harness.take_writes())
    assert len(again) > size[0] * size[1]
    with pytest.raises(Flicker):
        terminal.show_frame(again)


def test_message_of_an_object_that_is_not_ready_is_readable(
    harness: ConsoleHarness, size: tuple[int, int]
) -> None:
    terminal = TerminalEmulator(*size)
    FrameWriter(harness.console).show(Screen(make_snapshot(0), HINTS))
    show_frames(terminal, harness.take_writes())
    assert MESSAGE in " ".join(" ".join(terminal.lines).split())


def test_terminal_without_utf_8_gets_question_marks() -> None:
    output = io.BytesIO()
    file = io.TextIOWrapper(output, encoding="latin-1")
    console = Console(file=file, width=80, height=24, force_terminal=True)
    long = LogLine("10:00:00 info ", "an änswer → " * 20, "object=VmGroup/vg-1")
    FrameWriter(console).show(Screen(Snapshot(make_objects(), [], [long] * 30), HINTS))
    terminal = TerminalEmulator(80, 24)
    terminal.show_frame(output.getvalue().decode("latin-1"))
    assert any(
        "an änswer ? an" in line and "? object=VmGroup/vg-1" in line for line in terminal.lines
    )
    assert terminal.lines[-2:] == list(HINTS)
