"""Writes frames to a terminal without flicker: only changed lines, and each frame in one write.

rich.live is not used here: at each refresh it moves the cursor home and writes every line of the
screen again, which flickers. A terminal with synchronized output (private mode 2026) shows a frame
at once; other terminals ignore the two marks.
"""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.screen import Screen

_SYNC_BEGIN, _SYNC_END = "\x1b[?2026h", "\x1b[?2026l"


class FrameWriter:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._frame: RenderableType = ""
        self._lines: list[str] = []

    def show(self, frame: RenderableType) -> None:
        """Draws the frame; writes nothing if no line changed."""
        with self._console.capture() as capture:
            self._console.print(Screen(frame), end="")
        # Screen pads each line to the width, so a new line covers the old one.
        lines = capture.get().split("\n")
        before = self._lines if len(self._lines) == len(lines) else [""] * len(lines)
        changed = [
            f"\x1b[{row};1H{line}"
            for row, (line, old) in enumerate(zip(lines, before, strict=True), 1)
            if line != old
        ]
        self._frame, self._lines = frame, lines
        if changed:
            text = f"{_SYNC_BEGIN}{''.join(changed)}{_SYNC_END}"
            # A "?" is as wide as the character that it replaces.
            encoding = self._console.encoding
            self._console.file.write(text.encode(encoding, "replace").decode(encoding))
            self._console.file.flush()

    def redraw(self) -> None:
        """Draws all lines again: a terminal that is resized moves or cuts them."""
        self._lines = []
        self.show(self._frame)
