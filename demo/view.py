"""The tables on a terminal: all of it in the height and width that there is, cut and never wrapped; or as plain lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from vsphere_operators.plugin.table import GAP, Table

from .snapshot import Snapshot
from .tables import tables

TITLE = "vsphere-operators demo: real API server, simulated vCenter. Ctrl-C ends it."
STYLES = {"": "", "good": "green", "bad": "red", "busy": "yellow", "head": "bold"}


class Screen:
    """Everything, drawn anew for each moment."""

    def __init__(self, snapshot: Snapshot, hints: Sequence[str]) -> None:
        self.snapshot, self.hints = snapshot, hints

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The tables come first, then the hints; events and log share what is left."""
        shown = list(tables(self.snapshot).values())
        room = options.max_height - 1 - sum(len(each.rows) + 1 for each in shown) - len(self.hints)
        # With plenty of room a blank line goes between the tables.
        airy = room >= len(shown) + 8
        if airy:
            room -= len(shown)
        parts: list[RenderableType] = [line(TITLE, "bold reverse")]
        for each in shown:
            parts += [Text(""), drawn(each, options.max_width)] if airy else [drawn(each, options.max_width)]
        yield Group(*parts, *self.tails(room), *(line(each, "bold cyan") for each in self.hints))

    def tails(self, room: int) -> list[RenderableType]:
        """The newest events and log lines; with little room the log alone."""
        events = (room - 2) // 2 if room >= 6 else 0
        parts = [line("EVENTS", "bold"), *padded(self.snapshot.events, events)] if events else []
        left = room - len(parts)
        if left >= 3:
            return [*parts, line("MANAGER'S LOG", "bold"), *padded(self.snapshot.log, left - 1)]
        return [*parts, *padded(self.snapshot.log, left)]


def padded(lines: Sequence[str], count: int) -> list[Text]:
    """The last lines, always so many: what is below must not jump."""
    if count <= 0:
        return []
    last = list(lines)[-count:]
    return [line(each, "dim") for each in [*last, *[""] * (count - len(last))]]


def line(text: str, style: str) -> Text:
    """One line, cut at the edge."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def drawn(table: Table, width: int) -> Text:
    """One kind, cut to the width."""
    lines = [Text((" " * GAP).join(cell.text for cell in row)) for row in table.lines(width)]
    for text, row in zip(lines, table.lines(width), strict=True):
        start = 0
        for cell in row:
            text.stylize(STYLES[cell.tone], start, start + len(cell.text))
            start += len(cell.text) + GAP
        text.rstrip()
    return Text("\n", no_wrap=True).join(lines)


def final(snapshot: Snapshot, width: int) -> RenderableType:
    """All tables, one after the other."""
    return Group(*(part for each in tables(snapshot).values() for part in (drawn(each, width), Text(""))))


def changes(before: Snapshot | None, after: Snapshot) -> Iterable[str]:
    """One line for each object whose row is another one now: for where there is no terminal."""
    old = {(kind, row[0].text): row for kind, each in tables(before).items() for row in each.rows} if before else {}
    for kind, each in tables(after).items():
        for row in each.rows:
            if old.get((kind, row[0].text)) != row:
                shown = zip(each.columns[1:], row[1:], strict=True)
                yield f"{kind} {row[0].text}: " + ", ".join(f"{name.lower()} {cell.text}" for name, cell in shown if cell.text)
