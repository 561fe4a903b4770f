"""The tables on a terminal: all of it in the height and width that there is, cut and never wrapped; or as plain lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from vsphere_operators.kubectl.table import COLUMN_GAP, Table

from .not_ready import fit_messages, max_message_height, not_ready_messages
from .snapshot import Snapshot
from .tables import build_tables, drop_columns, join_side_by_side, limit_rows

TITLE = "vsphere-operators demo: real API server, simulated vCenter. Ctrl-C ends it."
RESERVED_LINES = 5
"""What should be left for messages, events and log."""
RESERVED_DIVISOR = 6
"""With many objects, which part of the screen stays for those all the same: a sixth is what the samples leave of 24 lines."""
MESSAGE_COLUMNS = ("LAST MESSAGE",)
RICH_STYLES = {"": "", "good": "green", "bad": "red", "busy": "yellow", "head": "bold"}


class Screen:
    """Everything, for one moment: tables, what is not Ready, events and log, and the hints at the bottom."""

    def __init__(self, snapshot: Snapshot, hints: Sequence[str], *, rotation: int = 0) -> None:
        self.snapshot, self.hints, self.rotation = snapshot, hints, rotation

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The tables come first; what is left below them is shared, and always filled, so that nothing jumps."""
        width = options.max_width
        left = options.max_height - 1 - len(self.hints)
        made = arrange_tables(build_tables(self.snapshot), width, left - RESERVED_LINES)
        shown = [
            merge_tables(each, width)
            for each in fit_height(made, left - self.reserved_lines(width, left))
        ]
        room = left - total_height(shown)
        # With plenty of room a blank line goes between the tables.
        airy = room >= len(shown) + 2 * RESERVED_LINES
        if airy:
            room -= len(shown)
        parts: list[RenderableType] = [text_line(TITLE, "bold reverse")]
        for each in shown:
            parts += [Text(""), render_table(each, width)] if airy else [render_table(each, width)]
        yield Group(
            *parts,
            *self.render_lower_part(width, room),
            *(text_line(each, "bold cyan") for each in self.hints),
        )

    def reserved_lines(self, width: int, left: int) -> int:
        """What the tables leave: a line of the log and the longest message whole, unless that takes half of the screen."""
        return min(
            max(
                max_message_height(not_ready_messages(self.snapshot), width) + 1,
                left // RESERVED_DIVISOR,
            ),
            left // 2,
        )

    def render_lower_part(self, width: int, room: int) -> list[RenderableType]:
        """What is not Ready, then events and log; a message may take a third of it, or more if it is that long."""
        texts = not_ready_messages(self.snapshot)
        head = [text_line("NOT READY", "bold")] if texts and room >= RESERVED_LINES else []
        most = min(
            max(room // 3, max_message_height(texts, width), min(room - 1, 3)), room - len(head)
        )
        told = (
            [text_line(each, "red") for each in fit_messages(texts, width, most, self.rotation)]
            if most > 0
            else []
        )
        return [*head, *told, *self.render_events_and_log(width, room - len(head) - len(told))]

    def render_events_and_log(self, width: int, room: int) -> list[RenderableType]:
        """The newest events and log lines; with little room the log alone."""
        events = (room - 2) // 2 if room >= 6 else 0
        parts = (
            [text_line("EVENTS", "bold"), *pad_lines(self.snapshot.events, events)]
            if events
            else []
        )
        left = room - len(parts)
        log = [each.fit_width(width) for each in self.snapshot.log[-left:]] if left > 0 else []
        if left >= 3:
            return [*parts, text_line("MANAGER'S LOG", "bold"), *pad_lines(log, left - 1)]
        return [*parts, *pad_lines(log, left)]


def arrange_tables(made: Mapping[str, Table], width: int, height: int) -> list[list[Table]]:
    """One below the other; if that is too high, the two with short rows side by side. Messages that do not fit are left to the notes."""
    shown = {kind: [each] for kind, each in made.items()}
    if "VmGroup" in made:
        shown["VmGroup"] = [drop_columns(made["VmGroup"], width, MESSAGE_COLUMNS)]
    if total_height(made.values()) > height and "VmGroup" in shown and "MyCustomResource" in shown:
        shown["both"] = shown.pop("VmGroup") + shown.pop("MyCustomResource")
    return list(shown.values())


def merge_tables(tables: Sequence[Table], width: int) -> Table:
    """Those side by side as one."""
    return (
        tables[0]
        if len(tables) == 1
        else drop_columns(join_side_by_side(*tables), width, (*MESSAGE_COLUMNS, "TEMPLATE"))
    )


def fit_height(made: Sequence[Sequence[Table]], height: int) -> list[list[Table]]:
    """Tables that fit: always the highest gives way; on a screen that has no room for all titles, the last are left out."""
    counts = [max(len(each.rows) for each in tables) for tables in made]
    while sum(counts) + len(counts) > height and max(counts, default=0) > 1:
        counts[counts.index(max(counts))] -= 1
    fitting = (
        min(len(counts), max(height, 0) // 2) if sum(counts) + len(counts) > height else len(counts)
    )
    return [
        [limit_rows(each, count) for each in tables]
        for tables, count in zip(made[:fitting], counts[:fitting], strict=True)
    ]


def total_height(shown: Iterable[Table]) -> int:
    """All their lines, titles too."""
    return sum(len(each.rows) + 1 for each in shown)


def pad_lines(lines: Sequence[str], count: int) -> list[Text]:
    """The last lines, always so many: what is below must not jump."""
    if count <= 0:
        return []
    last = list(lines)[-count:]
    return [text_line(each, "dim") for each in [*last, *[""] * (count - len(last))]]


def text_line(text: str, style: str) -> Text:
    """One line, cut at the edge, however many it was."""
    return Text(" ".join(text.splitlines()), style=style, no_wrap=True, overflow="ellipsis")


def render_table(table: Table, width: int) -> Text:
    """One kind, cut to the width."""
    lines = [Text((" " * COLUMN_GAP).join(cell.text for cell in row)) for row in table.lines(width)]
    for text, row in zip(lines, table.lines(width), strict=True):
        start = 0
        for cell in row:
            text.stylize(RICH_STYLES[cell.style], start, start + len(cell.text))
            start += len(cell.text) + COLUMN_GAP
        text.rstrip()
    return Text("\n", no_wrap=True).join(lines)


def render_all_tables(snapshot: Snapshot, width: int) -> RenderableType:
    """All tables, one after the other."""
    return Group(
        *(
            part
            for each in build_tables(snapshot).values()
            for part in (render_table(each, width), Text(""))
        )
    )


def describe_changes(before: Snapshot | None, after: Snapshot) -> Iterable[str]:
    """One line for each object whose row is another one now: for where there is no terminal."""
    old = (
        {
            (kind, row[0].text): row
            for kind, each in build_tables(before).items()
            for row in each.rows
        }
        if before
        else {}
    )
    for kind, each in build_tables(after).items():
        for row in each.rows:
            if old.get((kind, row[0].text)) != row:
                shown = zip(each.columns[1:], row[1:], strict=True)
                yield f"{kind} {row[0].text}: " + ", ".join(
                    f"{name.lower()} {cell.text}" for name, cell in shown if cell.text
                )
