"""The live screen, cut to the terminal and never wrapped; or plain lines without a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from vsphere_operators.console import Style
from vsphere_operators.kubectl.table import COLUMN_GAP, Table

from .not_ready import fit_messages, max_message_height, not_ready_messages
from .snapshot import Snapshot
from .tables import build_tables, drop_columns, join_side_by_side, limit_rows

_TITLE = "vsphere-operators demo: real API server, simulated vCenter. Press Ctrl-C to exit."
# Lines that the tables leave for messages, Events and log.
_RESERVED_LINES = 5
# With many objects, this part of the screen stays for them: the samples leave a sixth of 24 lines.
_RESERVED_DIVISOR = 6
_MESSAGE_COLUMNS = ("LAST MESSAGE",)
_RICH_STYLES: dict[Style, str] = {
    "": "",
    "good": "green",
    "bad": "red",
    "busy": "yellow",
    "alert": "bold red",
    "head": "bold",
}


class Screen:
    """One snapshot: tables, objects that are not Ready, Events, log, and hints at the bottom."""

    def __init__(self, snapshot: Snapshot, hints: Sequence[str], *, rotation: int = 0) -> None:
        self._snapshot, self._hints, self._rotation = snapshot, hints, rotation

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Fills the screen exactly, so that the hints at the bottom never move."""
        width = options.max_width
        height = options.max_height - 1 - len(self._hints)
        arranged = _arrange_tables(build_tables(self._snapshot), width, height - _RESERVED_LINES)
        tables = [
            _merge_tables(row, width)
            for row in _fit_height(arranged, height - self._reserved_lines(width, height))
        ]
        room = height - _total_height(tables)
        blank_lines = room >= len(tables) + 2 * _RESERVED_LINES
        if blank_lines:
            room -= len(tables)
        parts: list[RenderableType] = [_text_line(_TITLE, "bold reverse")]
        for table in tables:
            if blank_lines:
                parts.append(Text(""))
            parts.append(_render_table(table, width))
        yield Group(
            *parts,
            *self._render_lower_part(width, room),
            *(_text_line(hint, "bold cyan") for hint in self._hints),
        )

    def _reserved_lines(self, width: int, height: int) -> int:
        """Room for the longest message and one log line, but at most half of the screen."""
        messages = max_message_height(not_ready_messages(self._snapshot), width)
        return min(max(messages + 1, height // _RESERVED_DIVISOR), height // 2)

    def _render_lower_part(self, width: int, room: int) -> list[RenderableType]:
        """Messages take a third of the room, or more if one is that long; Events and log follow."""
        messages = not_ready_messages(self._snapshot)
        title = [_text_line("NOT READY", "bold")] if messages and room >= _RESERVED_LINES else []
        height = min(
            max(room // 3, max_message_height(messages, width), min(room - 1, 3)),
            room - len(title),
        )
        lines = fit_messages(messages, width, height, self._rotation) if height > 0 else []
        return [
            *title,
            *(_text_line(line, "red") for line in lines),
            *self._render_events_and_log(width, room - len(title) - len(lines)),
        ]

    def _render_events_and_log(self, width: int, room: int) -> list[RenderableType]:
        """The newest Events and log lines; only the log if there is little room."""
        parts: list[RenderableType] = []
        if room >= 6:
            parts.append(_text_line("EVENTS", "bold"))
            parts += _pad_lines(self._snapshot.events, (room - 2) // 2)
        height = room - len(parts)
        log = [line.fit_width(width) for line in self._snapshot.log[-height:]] if height > 0 else []
        if height >= 3:
            parts.append(_text_line("LOG OF THE MANAGER", "bold"))
            height -= 1
        return [*parts, *_pad_lines(log, height)]


def _arrange_tables(tables: Mapping[str, Table], width: int, height: int) -> list[list[Table]]:
    """One table per row; VmGroup and MyCustomResource share a row if the height requires it."""
    rows = {kind: [table] for kind, table in tables.items()}
    if "VmGroup" in tables:
        # A message that does not fit its column is below the tables anyway.
        rows["VmGroup"] = [drop_columns(tables["VmGroup"], width, _MESSAGE_COLUMNS)]
    if _total_height(tables.values()) > height and "VmGroup" in rows and "MyCustomResource" in rows:
        rows["both"] = rows.pop("VmGroup") + rows.pop("MyCustomResource")
    return list(rows.values())


def _merge_tables(tables: Sequence[Table], width: int) -> Table:
    if len(tables) == 1:
        return tables[0]
    return drop_columns(join_side_by_side(*tables), width, (*_MESSAGE_COLUMNS, "TEMPLATE"))


def _fit_height(rows: Sequence[Sequence[Table]], height: int) -> list[list[Table]]:
    """Cuts the highest table first; the last ones are dropped if not even the titles fit."""
    counts = [max(len(table.rows) for table in tables) for tables in rows]
    while sum(counts) + len(counts) > height and max(counts, default=0) > 1:
        counts[counts.index(max(counts))] -= 1
    fitting = (
        min(len(counts), max(height, 0) // 2) if sum(counts) + len(counts) > height else len(counts)
    )
    return [
        [limit_rows(table, count) for table in tables]
        for tables, count in zip(rows[:fitting], counts[:fitting], strict=True)
    ]


def _total_height(tables: Iterable[Table]) -> int:
    return sum(len(table.rows) + 1 for table in tables)


def _pad_lines(lines: Sequence[str], count: int) -> list[Text]:
    """The last `count` lines, filled with empty ones."""
    if count <= 0:
        return []
    last = list(lines)[-count:]
    return [_text_line(line, "dim") for line in [*last, *[""] * (count - len(last))]]


def _text_line(text: str, style: str) -> Text:
    """One line, cut at the edge; line breaks become blanks."""
    return Text(" ".join(text.splitlines()), style=style, no_wrap=True, overflow="ellipsis")


def _render_table(table: Table, width: int) -> Text:
    lines: list[Text] = []
    for row in table.lines(width):
        line = Text((" " * COLUMN_GAP).join(cell.text for cell in row))
        start = 0
        for cell in row:
            line.stylize(_RICH_STYLES[cell.style], start, start + len(cell.text))
            start += len(cell.text) + COLUMN_GAP
        line.rstrip()
        lines.append(line)
    return Text("\n", no_wrap=True).join(lines)


def render_all_tables(snapshot: Snapshot, width: int) -> RenderableType:
    """The tables of all kinds, for output without the live screen."""
    return Group(
        *(
            part
            for table in build_tables(snapshot).values()
            for part in (_render_table(table, width), Text(""))
        )
    )


def describe_changes(before: Snapshot | None, after: Snapshot) -> Iterable[str]:
    """One line for each changed object."""
    old_tables = build_tables(before) if before else {}
    old_rows = {
        (kind, row[0].text): row for kind, table in old_tables.items() for row in table.rows
    }
    for kind, table in build_tables(after).items():
        for row in table.rows:
            if old_rows.get((kind, row[0].text)) != row:
                fields = zip(table.columns[1:], row[1:], strict=True)
                yield f"{kind} {row[0].text}: " + ", ".join(
                    f"{title.lower()} {cell.text}" for title, cell in fields if cell.text
                )
