"""When is something planned to go down? Windows of maintenance from what people write: pure, and the time of now is an argument.

A calendar has one entry a line; blank lines and what follows a # count for nothing:

    host=esxi-dell-*.rainpole.com start=2026-11-20T22:00:00Z length=4h
    node=worker-7                 start=2026-11-22T03:00:00+01:00 length=90m repeats=weekly

`host` or `node` is a name or a glob, `start` a time of RFC 3339, `length` a duration such as 4h or 1h30m, `repeats` daily, weekly or
monthly.
Days are those of the offset in `start`: no daylight saving time moves them. A month without such a day has it on its last.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from fnmatch import translate
from typing import Literal, cast

from msgspec import Struct

from kubewright.flags import parse_duration

Target = Literal["host", "node"]
Repeats = Literal["", "daily", "weekly", "monthly"]
_ENTRY_FIELDS = ("host", "node", "start", "length", "repeats")
_REPEAT_INTERVALS = {"daily": timedelta(days=1), "weekly": timedelta(weeks=1)}
_ASSUMED_LENGTH = timedelta(days=1)
"""What a start without an end counts for: time enough to put the host into maintenance mode, or to write the next start."""
HOUR = timedelta(hours=1)


class Window(Struct, frozen=True, gc=False):
    """One planned maintenance, and who says so."""

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
        """The window that we are in, or the next one; None when there is none any more."""
        start = _find_first_start_after(self.start, self.repeats, now - self.length)
        return None if start is None else Window(start, start + self.length, self.source)


class Schedule:
    """All entries; which are about a Node is found out once for each name and host, not with every change of load."""

    def __init__(self, entries: Iterable[CalendarEntry] = ()) -> None:
        self.entries_by_name: dict[tuple[Target, str], list[CalendarEntry]] = {}
        """Entries without a glob: most lines name one host or Node, and 500 of them cost each Node one look."""
        self.glob_entries: list[tuple[CalendarEntry, re.Pattern[str]]] = []
        self.entries_by_node: dict[str, tuple[str, tuple[CalendarEntry, ...]]] = {}
        """By Node: its host, and what was found."""
        for entry in entries:
            if any(sign in entry.glob for sign in "*?["):
                self.glob_entries.append((entry, re.compile(translate(entry.glob))))
            else:
                self.entries_by_name.setdefault((entry.target, entry.glob), []).append(entry)

    def find_entries(self, *, host: str, node: str) -> tuple[CalendarEntry, ...]:
        """The entries about this host, or about this Node; "" is no host."""
        known = self.entries_by_node.get(node)
        if known is None or known[0] != host:
            known = self.entries_by_node[node] = (host, tuple(self.match_entries(host, node)))
        return known[1]

    def match_entries(self, host: str, node: str) -> list[CalendarEntry]:
        """The same, found out."""
        named = [
            *self.entries_by_name.get(("node", node), ()),
            *(self.entries_by_name.get(("host", host), ()) if host else ()),
        ]
        names = {"host": host, "node": node}
        return named + [
            entry
            for entry, pattern in self.glob_entries
            if (name := names[entry.target]) and pattern.match(name)
        ]

    def forget_node(self, node: str) -> None:
        """A Node is gone."""
        self.entries_by_node.pop(node, None)


class InvalidLine(Struct, frozen=True):
    """A line that cannot be used."""

    source: str
    message: str

    def __str__(self) -> str:
        return f"{self.source} cannot be used: {self.message}. The other lines count all the same."


def parse_time(text: str) -> datetime:
    """A time of RFC 3339; ValueError says in words what is wrong with it."""
    try:
        # RFC 3339 lets T and Z be small; Python's reader does not.
        found = datetime.fromisoformat(text.strip().upper())
    except ValueError:
        found = None
    if found is None or found.tzinfo is None or "T" not in text.strip().upper().replace(" ", "T"):
        raise ValueError(f'"{text[:60]}" is not a time of RFC 3339, such as 2026-11-20T22:00:00Z')
    if not 2000 <= found.year <= 9000:
        raise ValueError(f'"{text[:60]}" has a year that nobody can mean')
    return found


def window_from_start(start: datetime, source: str) -> Window:
    """A window of which only the start is known."""
    return Window(start, start + _ASSUMED_LENGTH, source)


def parse_calendar(data: Mapping[str, str]) -> tuple[list[CalendarEntry], list[InvalidLine]]:
    """All lines of all keys of a calendar, and those that cannot be used."""
    entries, problems = list[CalendarEntry](), list[InvalidLine]()
    for key, text in sorted(data.items()):
        for number, line in enumerate(text.splitlines(), 1):
            source = f"calendar {key} line {number}"
            try:
                if words := line.partition("#")[0].split():
                    entries.append(_parse_entry(words, source))
            except ValueError as error:
                problems.append(InvalidLine(source, str(error)))
    return entries, problems


def _parse_entry(words: Iterable[str], source: str) -> CalendarEntry:
    """One line; ValueError says what is wrong with it."""
    given = parse_fields(words)
    targets = [field for field in ("host", "node") if given.get(field)]
    if len(targets) != 1:
        raise ValueError("it has to say either host= or node=, with a name or a glob")
    if not given.get("start"):
        raise ValueError("it has no start=, such as start=2026-11-20T22:00:00Z")
    if (repeats := given.get("repeats", "")) not in ("", "daily", "weekly", "monthly"):
        raise ValueError(
            f"repeats={repeats[:30]} is not known; there are daily, weekly and monthly"
        )
    length = _parse_length(given.get("length", ""))
    return CalendarEntry(
        cast("Target", targets[0]),
        given[targets[0]],
        parse_time(given["start"]),
        length,
        cast("Repeats", repeats),
        source,
    )


def parse_fields(words: Iterable[str]) -> dict[str, str]:
    """The fields of a line by name."""
    given = dict[str, str]()
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in _ENTRY_FIELDS:
            raise ValueError(
                f'"{word[:60]}" is not understood; a line has {", ".join(f"{field}=" for field in _ENTRY_FIELDS)} and nothing else'
            )
        if name in given:
            raise ValueError(f"it says {name}= twice")
        given[name] = value
    return given


def _parse_length(text: str) -> timedelta:
    """A length longer than nothing."""
    if not text:
        raise ValueError("it has no length=, such as length=4h")
    seconds = parse_duration(text)
    if not 0 < seconds <= 366 * 86400:
        raise ValueError(f"length={text[:30]} has to be more than 0 and at most a year")
    return timedelta(seconds=seconds)


def _find_first_start_after(start: datetime, repeats: Repeats, moment: datetime) -> datetime | None:
    """The first of the repeated starts that is later than the moment; None when there is none."""
    if start > moment or not repeats:
        return start if start > moment else None
    if repeats == "monthly":
        return _find_monthly_start_after(start, moment)
    step = _REPEAT_INTERVALS[repeats]
    return start + ((moment - start) // step + 1) * step


def _find_monthly_start_after(start: datetime, moment: datetime) -> datetime:
    """The same, month by month."""
    local = moment.astimezone(start.tzinfo)
    months = (local.year - start.year) * 12 + local.month - start.month
    here = _add_months(start, months)
    return here if here > moment else _add_months(start, months + 1)


def _add_months(start: datetime, months: int) -> datetime:
    """The same day and hour so many months later, on the last day of a month that is too short."""
    years, month = divmod(start.month - 1 + months, 12)
    year = start.year + years
    return start.replace(
        year=year, month=month + 1, day=min(start.day, calendar.monthrange(year, month + 1)[1])
    )


def find_next_window(windows: Iterable[Window | None], now: datetime) -> Window | None:
    """The first of those that are not over; of two at once, the one that lasts longer."""
    ahead = [window for window in windows if window is not None and window.end > now]
    return min(
        ahead,
        key=lambda window: (window.start, -window.end.timestamp(), window.source),
        default=None,
    )


def to_utc(moment: datetime) -> datetime:
    """As it is shown."""
    return moment.astimezone(UTC).replace(microsecond=0)
