"""Frames on a terminal without flicker: nothing is erased, only lines that changed are written, and all of a frame in one write.

A terminal that knows synchronized output (its private mode 2026) shows a frame at once, however its bytes arrive; others skip the marks.
"""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.screen import Screen

SYNC_BEGIN, SYNC_END = "\x1b[?2026h", "\x1b[?2026l"


class FrameWriter:
    """A whole screen, and what it shows."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.frame: RenderableType = ""
        self.shown_lines: list[str] = []

    def show(self, frame: RenderableType) -> None:
        """Bring the screen to this frame; one that changes nothing writes nothing."""
        lines = self.render_lines(frame)
        before = self.shown_lines if len(self.shown_lines) == len(lines) else [""] * len(lines)
        changed = [
            f"\x1b[{row};1H{line}"
            for row, (line, old) in enumerate(zip(lines, before, strict=True), 1)
            if line != old
        ]
        self.frame, self.shown_lines = frame, lines
        if changed:
            self.console.file.write(
                self.replace_unencodable(f"{SYNC_BEGIN}{''.join(changed)}{SYNC_END}")
            )
            self.console.file.flush()

    def redraw(self) -> None:
        """All lines anew: a terminal whose size changes has moved or cut them."""
        self.shown_lines = []
        self.show(self.frame)

    def render_lines(self, frame: RenderableType) -> list[str]:
        """The lines, each filled to the width, so that it covers what was there."""
        with self.console.capture() as text:
            self.console.print(Screen(frame), end="")
        return text.get().split("\n")

    def replace_unencodable(self, text: str) -> str:
        """With a question mark, as wide as what it stands for, where the terminal's encoding has no sign."""
        return text.encode(self.console.encoding, "replace").decode(self.console.encoding)
