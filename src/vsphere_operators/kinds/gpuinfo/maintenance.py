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

from kubewright.flags import duration

Target = Literal["host", "node"]
Repeats = Literal["", "daily", "weekly", "monthly"]
FIELDS = ("host", "node", "start", "length", "repeats")
STEPS = {"daily": timedelta(days=1), "weekly": timedelta(weeks=1)}
UNKNOWN_LENGTH = timedelta(days=1)
"""What a start without an end counts for: time enough to put the host into maintenance mode, or to write the next start."""
HOUR = timedelta(hours=1)


class Window(Struct, frozen=True, gc=False):
    """One planned maintenance, and who says so."""

    start: datetime
    end: datetime
    source: str


class Entry(Struct, frozen=True):
    """One line of a calendar."""

    target: Target
    glob: str
    start: datetime
    length: timedelta
    repeats: Repeats
    source: str

    def next(self, now: datetime) -> Window | None:
        """The window that we are in, or the next one; None when there is none any more."""
        start = first_after(self.start, self.repeats, now - self.length)
        return None if start is None else Window(start, start + self.length, self.source)


class Calendar:
    """All entries; which are about a Node is found out once for each name and host, not with every change of load."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.named: dict[tuple[Target, str], list[Entry]] = {}
        """Entries without a glob: most lines name one host or Node, and 500 of them cost each Node one look."""
        self.globs: list[tuple[Entry, re.Pattern[str]]] = []
        self.found: dict[str, tuple[str, tuple[Entry, ...]]] = {}
        """By Node: its host, and what was found."""
        for entry in entries:
            if any(sign in entry.glob for sign in "*?["):
                self.globs.append((entry, re.compile(translate(entry.glob))))
            else:
                self.named.setdefault((entry.target, entry.glob), []).append(entry)

    def about(self, *, host: str, node: str) -> tuple[Entry, ...]:
        """The entries about this host, or about this Node; "" is no host."""
        known = self.found.get(node)
        if known is None or known[0] != host:
            known = self.found[node] = (host, tuple(self.search(host, node)))
        return known[1]

    def search(self, host: str, node: str) -> list[Entry]:
        """The same, found out."""
        named = [*self.named.get(("node", node), ()), *(self.named.get(("host", host), ()) if host else ())]
        names = {"host": host, "node": node}
        return named + [entry for entry, pattern in self.globs if (name := names[entry.target]) and pattern.match(name)]

    def forget(self, node: str) -> None:
        """A Node is gone."""
        self.found.pop(node, None)


class Problem(Struct, frozen=True):
    """A line that cannot be used."""

    source: str
    words: str

    def __str__(self) -> str:
        return f"{self.source} cannot be used: {self.words}. The other lines count all the same."


def moment_of(text: str) -> datetime:
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


def without_end(start: datetime, source: str) -> Window:
    """A window of which only the start is known."""
    return Window(start, start + UNKNOWN_LENGTH, source)


def entries_of(data: Mapping[str, str]) -> tuple[list[Entry], list[Problem]]:
    """All lines of all keys of a calendar, and those that cannot be used."""
    entries, problems = list[Entry](), list[Problem]()
    for key, text in sorted(data.items()):
        for number, line in enumerate(text.splitlines(), 1):
            source = f"calendar {key} line {number}"
            try:
                if words := line.partition("#")[0].split():
                    entries.append(entry_of(words, source))
            except ValueError as error:
                problems.append(Problem(source, str(error)))
    return entries, problems


def entry_of(words: Iterable[str], source: str) -> Entry:
    """One line; ValueError says what is wrong with it."""
    given = fields_of(words)
    targets = [field for field in ("host", "node") if given.get(field)]
    if len(targets) != 1:
        raise ValueError("it has to say either host= or node=, with a name or a glob")
    if not given.get("start"):
        raise ValueError("it has no start=, such as start=2026-11-20T22:00:00Z")
    if (repeats := given.get("repeats", "")) not in ("", "daily", "weekly", "monthly"):
        raise ValueError(f"repeats={repeats[:30]} is not known; there are daily, weekly and monthly")
    length = length_of(given.get("length", ""))
    return Entry(cast("Target", targets[0]), given[targets[0]], moment_of(given["start"]), length, cast("Repeats", repeats), source)


def fields_of(words: Iterable[str]) -> dict[str, str]:
    """The fields of a line by name."""
    given = dict[str, str]()
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in FIELDS:
            raise ValueError(f'"{word[:60]}" is not understood; a line has {", ".join(f"{field}=" for field in FIELDS)} and nothing else')
        if name in given:
            raise ValueError(f"it says {name}= twice")
        given[name] = value
    return given


def length_of(text: str) -> timedelta:
    """A length longer than nothing."""
    if not text:
        raise ValueError("it has no length=, such as length=4h")
    seconds = duration(text)
    if not 0 < seconds <= 366 * 86400:
        raise ValueError(f"length={text[:30]} has to be more than 0 and at most a year")
    return timedelta(seconds=seconds)


def first_after(start: datetime, repeats: Repeats, moment: datetime) -> datetime | None:
    """The first of the repeated starts that is later than the moment; None when there is none."""
    if start > moment or not repeats:
        return start if start > moment else None
    if repeats == "monthly":
        return month_after(start, moment)
    step = STEPS[repeats]
    return start + ((moment - start) // step + 1) * step


def month_after(start: datetime, moment: datetime) -> datetime:
    """The same, month by month."""
    local = moment.astimezone(start.tzinfo)
    months = (local.year - start.year) * 12 + local.month - start.month
    here = in_month(start, months)
    return here if here > moment else in_month(start, months + 1)


def in_month(start: datetime, months: int) -> datetime:
    """The same day and hour so many months later, on the last day of a month that is too short."""
    years, month = divmod(start.month - 1 + months, 12)
    year = start.year + years
    return start.replace(year=year, month=month + 1, day=min(start.day, calendar.monthrange(year, month + 1)[1]))


def earliest(windows: Iterable[Window | None], now: datetime) -> Window | None:
    """The first of those that are not over; of two at once, the one that lasts longer."""
    ahead = [window for window in windows if window is not None and window.end > now]
    return min(ahead, key=lambda window: (window.start, -window.end.timestamp(), window.source), default=None)


def in_utc(moment: datetime) -> datetime:
    """As it is shown."""
    return moment.astimezone(UTC).replace(microsecond=0)
