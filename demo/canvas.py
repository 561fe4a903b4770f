"""Frames on a terminal without flicker: nothing is erased, only lines that changed are written, and all of a frame in one write.

A terminal that knows synchronized output (its private mode 2026) shows a frame at once, however its bytes arrive; others skip the marks.
"""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.screen import Screen

FRAME_BEGINS, FRAME_ENDS = "\x1b[?2026h", "\x1b[?2026l"


class Canvas:
    """A whole screen, and what it shows."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.frame: RenderableType = ""
        self.shown: list[str] = []

    def show(self, frame: RenderableType) -> None:
        """Bring the screen to this frame; one that changes nothing writes nothing."""
        lines = self.drawn(frame)
        before = self.shown if len(self.shown) == len(lines) else [""] * len(lines)
        changed = [f"\x1b[{row};1H{line}" for row, (line, old) in enumerate(zip(lines, before, strict=True), 1) if line != old]
        self.frame, self.shown = frame, lines
        if changed:
            self.console.file.write(self.showable(f"{FRAME_BEGINS}{''.join(changed)}{FRAME_ENDS}"))
            self.console.file.flush()

    def redraw(self) -> None:
        """All lines anew: a terminal whose size changes has moved or cut them."""
        self.shown = []
        self.show(self.frame)

    def drawn(self, frame: RenderableType) -> list[str]:
        """The lines, each filled to the width, so that it covers what was there."""
        with self.console.capture() as text:
            self.console.print(Screen(frame), end="")
        return text.get().split("\n")

    def showable(self, text: str) -> str:
        """With a question mark, as wide as what it stands for, where the terminal's encoding has no sign."""
        return text.encode(self.console.encoding, "replace").decode(self.console.encoding)
