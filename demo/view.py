"""The live screen, cut to the terminal and never wrapped; or plain lines without a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from vsphere_operators.console import Style, escape_control, wrap_text
from vsphere_operators.kubectl.table import COLUMN_GAP, Table

from .not_ready import fit_messages, max_message_height, not_ready_messages
from .snapshot import Snapshot
from .tables import build_tables, drop_columns, limit_rows

_TITLE = "vsphere-operators demo: real API server, simulated vCenter. Press Ctrl-C to exit."
_SHORT_TITLE = "Demo with a simulated vCenter. Ctrl-C exits."
# Lower screens have no line about the script.
_MIN_SCRIPT_HEIGHT = 10
_MAX_NOTICE_LINES = 2
# Of a log line in output without a terminal.
_LOG_LINE_WIDTH = 200
# Lines that the tables leave for messages, Events and log.
_RESERVED_LINES = 5
# With many objects, this part of the screen stays for them: the samples leave a sixth of 24 lines.
_RESERVED_DIVISOR = 6
_MESSAGE_COLUMNS = ("LAST MESSAGE",)
# A table is cut to this number of rows before tables take turns.
_MIN_ROWS = 5
# How many changes of the message a page of tables stays.
_ROTATIONS_PER_PAGE = 2
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
        header = self._render_header(width, options.max_height)
        hints = self._hint_lines()
        height = options.max_height - 1 - len(header) - len(hints)
        pages = self._arrange_tables(width, height - self._reserved_lines(width, height))
        number = self._rotation // _ROTATIONS_PER_PAGE % len(pages)
        tables = pages[number]
        room = height - _total_height(tables)
        blank_lines = room >= len(tables) + 2 * _RESERVED_LINES
        if blank_lines:
            room -= len(tables)
        parts: list[RenderableType] = []
        for table in tables:
            if blank_lines:
                parts.append(Text(""))
            parts.append(_render_table(table, width))
        yield Group(
            _render_title(width, number + 1, len(pages)),
            *header,
            *parts,
            *self._render_lower_part(width, room),
            *(_text_line(hint, "bold cyan") for hint in hints),
        )

    def _render_header(self, width: int, height: int) -> list[Text]:
        """What the script did, and what is wrong with the manager."""
        manager, lines = self._snapshot.manager, list[Text]()
        if self._snapshot.script and height >= _MIN_SCRIPT_HEIGHT:
            lines.append(_text_line(self._snapshot.script, "yellow"))
        style = "bold yellow" if manager.is_serving else "bold red"
        notice = wrap_text(manager.notice, max(width, 1)) if manager.notice else []
        return [*lines, *(_text_line(line, style) for line in notice[:_MAX_NOTICE_LINES])]

    def _hint_lines(self) -> list[str]:
        url = self._snapshot.manager.page_url
        return [*([f"Page in a browser:  {url}"] if url else []), *self._hints]

    def _arrange_tables(self, width: int, height: int) -> list[list[Table]]:
        """Pages that take turns; one page if all tables fit."""
        tables = build_tables(self._snapshot)
        if "VmGroup" in tables:
            # A message that does not fit its column is below the tables anyway.
            tables["VmGroup"] = drop_columns(tables["VmGroup"], width, _MESSAGE_COLUMNS)
        return _paginate(_cut_to_height(list(tables.values()), height), height) or [[]]

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
        lines = self._snapshot.manager.log_end or self._snapshot.log
        log = [line.fit_width(width) for line in lines[-height:]] if height > 0 else []
        if height >= 3:
            parts.append(_text_line("LOG OF THE MANAGER", "bold"))
            height -= 1
        return [*parts, *_pad_lines(log, height)]


def _render_title(width: int, page: int, pages: int) -> Text:
    suffix = f" Tables {page} of {pages}." if pages > 1 else ""
    title = _TITLE if width >= len(_TITLE + suffix) else _SHORT_TITLE
    return _text_line(title + suffix, "bold reverse")


def _cut_to_height(tables: Sequence[Table], height: int) -> list[Table]:
    """Cuts the highest table first, but none below _MIN_ROWS rows."""
    counts = [len(table.rows) for table in tables]
    while sum(counts) + len(counts) > height and max(counts, default=0) > _MIN_ROWS:
        counts[counts.index(max(counts))] -= 1
    return [limit_rows(table, count) for table, count in zip(tables, counts, strict=True)]


def _paginate(tables: Sequence[Table], height: int) -> list[list[Table]]:
    """As few pages as the height allows, each with at least one table."""
    # Below a title and a row there is nothing to show.
    if height < 2:
        return []
    pages: list[list[Table]] = []
    for table in tables:
        fitted = limit_rows(table, height - 1)
        if pages and _total_height([*pages[-1], fitted]) <= height:
            pages[-1].append(fitted)
        else:
            pages.append([fitted])
    return pages


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
    line = escape_control(" ".join(text.splitlines()))
    return Text(line, style=style, no_wrap=True, overflow="ellipsis")


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
    """One line for each change by the script, of the manager and of an object."""
    return map(escape_control, _describe_changes(before, after))


def _describe_changes(before: Snapshot | None, after: Snapshot) -> Iterator[str]:
    if after.script and (before is None or before.script != after.script):
        yield after.script
    manager, old_manager = after.manager, before.manager if before else None
    if manager.notice and (old_manager is None or old_manager.notice != manager.notice):
        yield manager.notice
        yield from (line.fit_width(_LOG_LINE_WIDTH) for line in manager.log_end)
    elif old_manager and not old_manager.is_serving and manager.is_serving:
        yield "The manager responds again."
    if manager.page_url and (old_manager is None or old_manager.page_url != manager.page_url):
        yield f"Page in a browser: {manager.page_url}"
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
