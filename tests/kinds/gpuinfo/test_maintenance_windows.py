"""Maintenance windows; repeated ones are compared with an independent search day by day."""

from __future__ import annotations

import calendar
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vsphere_operators.kinds.gpuinfo.maintenance_windows import (
    Calendar,
    CalendarEntry,
    Repeats,
    Window,
    find_next_window,
    parse_calendar,
    parse_time,
    window_from_start,
)

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


def hours(count: float) -> timedelta:
    return timedelta(hours=count)


def test_calendar_is_parsed_line_by_line_and_invalid_lines_are_named() -> None:
    text = """
    # planned with the hardware team
    host=esxi-dell-*.rainpole.com start=2026-11-20T22:00:00Z length=4h

    node=worker-7 start=2026-11-22T03:00:00+01:00 length=1h30m repeats=weekly   # every Sunday
    host=a node=b start=2026-11-20T22:00:00Z length=4h
    host=a start=tomorrow length=4h
    """
    entries, problems = parse_calendar({"windows": text, "more": "hello"})
    assert [(entry.target, entry.glob, entry.repeats, entry.source) for entry in entries] == [
        ("host", "esxi-dell-*.rainpole.com", "", "calendar windows line 3"),
        ("node", "worker-7", "weekly", "calendar windows line 5"),
    ]
    assert [problem.source for problem in problems] == [
        "calendar more line 1",
        "calendar windows line 6",
        "calendar windows line 7",
    ]
    assert "either host= or node=" in str(problems[1])
    assert '"tomorrow" is not an RFC 3339 time' in str(problems[2])
    assert "The other lines apply" in str(problems[2])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("start=2026-11-20T22:00:00Z length=4h", "either host= or node="),
        ("host=a length=4h", "no start="),
        ("host=a start=2026-11-20T22:00:00Z", "no length="),
        ("host=a start=2026-11-20T22:00:00Z length=4", "10s, 1m30s"),
        ("host=a start=2026-11-20T22:00:00Z length=-4h", "more than 0"),
        ("host=a start=2026-11-20T22:00:00Z length=9000h", "at most a year"),
        ("host=a start=2026-11-20T22:00:00Z length=4h repeats=yearly", "daily, weekly and monthly"),
        ("host=a start=2026-11-20T22:00:00 length=4h", "not an RFC 3339 time"),
        ("host=a host=b start=2026-11-20T22:00:00Z length=4h", "host= twice"),
        (
            "host=a begin=2026-11-20T22:00:00Z length=4h",
            '"begin=2026-11-20T22:00:00Z" is not a field',
        ),
    ],
)
def test_invalid_line_is_reported_and_ignored(line: str, message: str) -> None:
    entries, (problem,) = parse_calendar({"windows": line})
    assert entries == []
    assert message in problem.message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "2026-11-20",
        "2026-11-20T22:00:00",
        "2026-13-20T22:00:00Z",
        "20:00",
        "0001-01-01T00:00:00Z",
    ],
)
def test_invalid_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"RFC 3339|year of"):
        parse_time(text)


def test_time_may_have_an_offset_a_fraction_and_lower_case_letters() -> None:
    assert parse_time(" 2026-11-20T22:00:00+01:00 ") == datetime(2026, 11, 20, 21, tzinfo=UTC)
    assert parse_time("2026-11-20t22:00:00z") == datetime(2026, 11, 20, 22, tzinfo=UTC)
    assert parse_time("2026-11-20T22:00:00.5Z") == datetime(
        2026, 11, 20, 22, 0, 0, 500000, tzinfo=UTC
    )


def test_entries_of_a_node_and_its_host() -> None:
    when = "start=2026-11-20T22:00:00Z length=4h"
    (host, node, exact, other), _ = parse_calendar(
        {"w": f"host=esxi-* {when}\nnode=n? {when}\nnode=n1 {when}\nhost=n12 {when}"}
    )
    calendar = Calendar([host, node, exact, other])
    assert calendar.find_entries(host="esxi-1", node="n1") == (exact, host, node)
    assert calendar.find_entries(host="", node="n1") == (exact, node)
    assert calendar.find_entries(host="", node="esxi-1") == ()
    assert calendar.find_entries(host="n12", node="n12") == (other,)
    assert calendar.find_entries(host="", node="n12") == ()
    assert calendar.find_entries(host="esxi-1", node="N1") == (host,)


def test_next_window_is_the_earliest_that_has_not_ended() -> None:
    ended = Window(NOW - hours(9), NOW, "ended")
    now, later = (
        Window(NOW - hours(1), NOW + hours(1), "now"),
        window_from_start(NOW + hours(5), "later"),
    )
    assert find_next_window([later, None, ended, now], NOW) is now
    assert find_next_window([later, now], NOW + hours(1)) is later
    assert find_next_window([ended, None], NOW) is None
    assert later.end == NOW + hours(29)


def find_window_by_days(entry: CalendarEntry, now: datetime) -> tuple[datetime, datetime] | None:
    """Try every day since the start, and take the first window that has not ended."""
    if not entry.repeats:
        return (
            (entry.start, entry.start + entry.length) if entry.start + entry.length > now else None
        )
    day = entry.start
    for _ in range(365 * 4):
        last = calendar.monthrange(day.year, day.month)[1]
        repeats_today = {
            "daily": True,
            "weekly": day.weekday() == entry.start.weekday(),
            "monthly": day.day == min(entry.start.day, last),
        }[entry.repeats]
        if repeats_today and day + entry.length > now:
            return day, day + entry.length
        day += timedelta(days=1)
    raise AssertionError("no window in four years")


@given(
    start=st.datetimes(datetime(2024, 1, 1), datetime(2026, 12, 31)),
    offset_hours=st.integers(-12, 14),
    length_minutes=st.integers(1, 3 * 24 * 60),
    repeats=st.sampled_from(["", "daily", "weekly", "monthly"]),
    ahead_minutes=st.integers(-60 * 24 * 40, 60 * 24 * 700),
)
def test_next_window_agrees_with_a_search_day_by_day(
    start: datetime, offset_hours: int, length_minutes: int, repeats: Repeats, ahead_minutes: int
) -> None:
    begin = start.replace(tzinfo=timezone(timedelta(hours=offset_hours)))
    entry = CalendarEntry("host", "*", begin, timedelta(minutes=length_minutes), repeats, "test")
    now = begin + timedelta(minutes=ahead_minutes)
    window = entry.next_window(now)
    assert (None if window is None else (window.start, window.end)) == find_window_by_days(
        entry, now
    )
