"""Maintenance windows, and the calendar lines that plan them. Pure: `now` is an argument.

A calendar has one entry per line; blank lines and text after # are ignored:

    host=esxi-dell-*.rainpole.com start=2026-11-20T22:00:00Z length=4h
    node=worker-7                 start=2026-11-22T03:00:00+01:00 length=90m repeats=weekly

`host` or `node` is a name or a glob, `start` an RFC 3339 time, `length` a duration such as 4h or
1h30m, `repeats` daily, weekly or monthly. Days are those of the offset in `start`, so daylight
saving time does not move them. In a month without that day, the window is on its last day.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from fnmatch import translate
from typing import Literal, cast

from msgspec import Struct

from kubewright.flags import parse_duration

Target = Literal["host", "node"]
Repeats = Literal["", "daily", "weekly", "monthly"]
_ENTRY_FIELDS = ("host", "node", "start", "length", "repeats")
_REPEAT_INTERVALS = {"daily": timedelta(days=1), "weekly": timedelta(weeks=1)}
# Assumed length of a window with only a start: 1 day, enough to enter maintenance mode or to plan
# again.
_ASSUMED_LENGTH = timedelta(days=1)
HOUR = timedelta(hours=1)


class Window(Struct, frozen=True, gc=False):
    """One planned maintenance, and where it is planned."""

    start: datetime
    end: datetime
    source: str


class CalendarEntry(Struct, frozen=True):
    """One line of a calendar."""

    target: Target
    glob: str
    start: datetime
    length: timedelta
    repeats: Repeats
    source: str

    def next_window(self, now: datetime) -> Window | None:
        """The current window, or the next one; None if there are no more."""
        start = _find_first_start_after(self.start, self.repeats, now - self.length)
        return None if start is None else Window(start, start + self.length, self.source)


class Calendar:
    """All calendar entries, by the Nodes that they apply to."""

    def __init__(self, entries: Iterable[CalendarEntry] = ()) -> None:
        # Most lines name one host or Node: without this index, 500 lines cost 500 glob matches.
        self.entries_by_name: dict[tuple[Target, str], list[CalendarEntry]] = {}
        self.glob_entries: list[tuple[CalendarEntry, re.Pattern[str]]] = []
        # Per Node, for its current host: facts are rebuilt with every change of load.
        self.entries_by_node: dict[str, tuple[str, tuple[CalendarEntry, ...]]] = {}
        for entry in entries:
            if any(character in entry.glob for character in "*?["):
                self.glob_entries.append((entry, re.compile(translate(entry.glob))))
            else:
                self.entries_by_name.setdefault((entry.target, entry.glob), []).append(entry)

    def find_entries(self, *, host: str, node: str) -> tuple[CalendarEntry, ...]:
        """The entries for this host or this Node; `host` may be ""."""
        cached = self.entries_by_node.get(node)
        if cached is None or cached[0] != host:
            cached = self.entries_by_node[node] = (host, tuple(self._match_entries(host, node)))
        return cached[1]

    def _match_entries(self, host: str, node: str) -> list[CalendarEntry]:
        by_name = [
            *self.entries_by_name.get(("node", node), ()),
            *(self.entries_by_name.get(("host", host), ()) if host else ()),
        ]
        names = {"host": host, "node": node}
        return by_name + [
            entry
            for entry, pattern in self.glob_entries
            if (name := names[entry.target]) and pattern.match(name)
        ]

    def forget_node(self, node: str) -> None:
        self.entries_by_node.pop(node, None)


class InvalidLine(Struct, frozen=True):
    source: str
    message: str

    def __str__(self) -> str:
        return f"Ignoring {self.source}: {self.message}. The other lines apply."


def parse_time(text: str) -> datetime:
    """Parse an RFC 3339 time with an offset; ValueError explains what is wrong."""
    # RFC 3339 allows a lower-case t and z; Python's parser does not.
    normalized = text.strip().upper()
    try:
        time = datetime.fromisoformat(normalized)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None or "T" not in normalized.replace(" ", "T"):
        raise ValueError(f'"{text[:60]}" is not an RFC 3339 time such as 2026-11-20T22:00:00Z')
    # Windows are computed from it, and must stay within the range of datetime.
    if not 2000 <= time.year <= 9000:
        raise ValueError(f'the year of "{text[:60]}" is not between 2000 and 9000')
    return time


def window_from_start(start: datetime, source: str) -> Window:
    """A window of which only the start is known."""
    return Window(start, start + _ASSUMED_LENGTH, source)


def parse_calendar(data: Mapping[str, str]) -> tuple[list[CalendarEntry], list[InvalidLine]]:
    """The entries of all keys of a calendar ConfigMap, and the lines that cannot be parsed."""
    entries: list[CalendarEntry] = []
    invalid_lines: list[InvalidLine] = []
    for key, text in sorted(data.items()):
        for number, line in enumerate(text.splitlines(), 1):
            source = f"calendar {key} line {number}"
            try:
                if fields := line.partition("#")[0].split():
                    entries.append(_parse_entry(fields, source))
            except ValueError as error:
                invalid_lines.append(InvalidLine(source, str(error)))
    return entries, invalid_lines


def _parse_entry(fields: Iterable[str], source: str) -> CalendarEntry:
    values = _parse_fields(fields)
    targets = [field for field in ("host", "node") if values.get(field)]
    if len(targets) != 1:
        raise ValueError("it must have either host= or node=, with a name or a glob")
    if not values.get("start"):
        raise ValueError("it has no start=, such as start=2026-11-20T22:00:00Z")
    if (repeats := values.get("repeats", "")) not in ("", "daily", "weekly", "monthly"):
        raise ValueError(f"repeats={repeats[:30]} is not one of daily, weekly and monthly")
    if not (length := values.get("length", "")):
        raise ValueError("it has no length=, such as length=4h")
    seconds = parse_duration(length)
    if not 0 < seconds <= 366 * 86400:
        raise ValueError(f"length={length[:30]} must be more than 0 and at most a year")
    return CalendarEntry(
        cast("Target", targets[0]),
        values[targets[0]],
        parse_time(values["start"]),
        timedelta(seconds=seconds),
        cast("Repeats", repeats),
        source,
    )


def _parse_fields(fields: Iterable[str]) -> dict[str, str]:
    values = dict[str, str]()
    for field in fields:
        name, equals, value = field.partition("=")
        if not equals or name not in _ENTRY_FIELDS:
            allowed = ", ".join(f"{name}=" for name in _ENTRY_FIELDS)
            raise ValueError(f'"{field[:60]}" is not a field; the fields of a line are {allowed}')
        if name in values:
            raise ValueError(f"it has {name}= twice")
        values[name] = value
    return values


def _find_first_start_after(start: datetime, repeats: Repeats, moment: datetime) -> datetime | None:
    """The first of the repeated starts after the moment; None after the last."""
    if start > moment or not repeats:
        return start if start > moment else None
    if repeats == "monthly":
        local = moment.astimezone(start.tzinfo)
        months = (local.year - start.year) * 12 + local.month - start.month
        same_month = _add_months(start, months)
        return same_month if same_month > moment else _add_months(start, months + 1)
    interval = _REPEAT_INTERVALS[repeats]
    return start + ((moment - start) // interval + 1) * interval


def _add_months(start: datetime, months: int) -> datetime:
    years, month = divmod(start.month - 1 + months, 12)
    year = start.year + years
    last_day = calendar.monthrange(year, month + 1)[1]
    return start.replace(year=year, month=month + 1, day=min(start.day, last_day))


def find_next_window(windows: Iterable[Window | None], now: datetime) -> Window | None:
    """The first window that has not ended; of two that start together, the longer one."""
    remaining = [window for window in windows if window is not None and window.end > now]
    return min(
        remaining,
        key=lambda window: (window.start, -window.end.timestamp(), window.source),
        default=None,
    )
