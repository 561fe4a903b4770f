"""Tracks whether the watches of a reflector work.

What shows that a watch works? A line, or an end at the time that the request asked for. A proxy
    that buffers responses accepts every watch and delivers nothing, so an accepted watch proves
    nothing.
Is a silent watch a broken one? Not always: kube-apiserver sends a bookmark every minute only if its
    resourceVersion has advanced, which for a quiet kind needs the progress notifications of etcd.
    So a short watch follows a silent one. If not even its end arrives, the watches are broken.
"""

from __future__ import annotations

import random
from collections.abc import Callable

# The server ends a watch after this time. Random, so that many watches do not return together.
_MIN_WATCH_TIMEOUT_SECONDS, _MAX_WATCH_TIMEOUT_SECONDS = 300, 600
# A single silent watch may be a connection that broke. A second one on a new connection is not.
_MAX_SILENT_WATCHES = 2
# After a silent watch, this many watches are short: their end shows that they work. A load balancer
# may have ended the silent one because it was idle, so they are shorter than it was.
_SHORT_WATCHES = 20
_MIN_SHORT_WATCH_SECONDS, _MAX_SHORT_WATCH_SECONDS = 5, 30
_SHORT_WATCH_FRACTION = 0.75
# A bookmark arrives once a minute. If a connection breaks just before one, the next watch has its
# first one after another minute: up to 125 s are normal.
_MAX_AGE_SECONDS = 150.0


def describe_age(seconds: float, is_listed: bool) -> str:
    """The problem of a watch that was last seen to work so many seconds ago; "" for none."""
    if not is_listed:
        return "not listed yet"
    return f"nothing received for {seconds:.0f} s" if seconds > _MAX_AGE_SECONDS else ""


def describe_silence(name: str) -> str:
    """The problem of a kind if its watches are broken."""
    return (
        f"the watches of {name} are accepted, but receive nothing, not even their end; "
        "listing instead. A proxy in front of the API server probably buffers responses: "
        "disable that for it (nginx: proxy_buffering off)"
    )


class WatchHealth:
    """What is known about the watches of one reflector."""

    def __init__(self, idle_timeout_seconds: float, clock: Callable[[], float]) -> None:
        self.idle_timeout_seconds = idle_timeout_seconds
        self._clock = clock
        self._last_alive_at = self._last_list_at = clock()
        self.silent_watches = 0
        """How many watches in a row received nothing."""
        self.is_broken = False
        """Whether the watches receive nothing, so that only lists find changes."""
        self._short_watch_seconds = self._short_watches_left = 0

    @property
    def age_seconds(self) -> float:
        """Seconds since a watch was last seen to work, or since the list before it."""
        return self._clock() - self._last_alive_at

    def choose_timeout(self, *, allow_short: bool) -> int:
        """How many seconds the next watch should take."""
        if self._short_watches_left and allow_short:
            self._short_watches_left -= 1
            return self._short_watch_seconds
        return random.randint(_MIN_WATCH_TIMEOUT_SECONDS, _MAX_WATCH_TIMEOUT_SECONDS)

    def mark_alive(self) -> None:
        self._last_alive_at = self._clock()
        self.silent_watches, self.is_broken = 0, False

    def mark_listed(self) -> None:
        self._last_list_at = self._clock()
        if not self.is_broken:
            self._last_alive_at = self._last_list_at

    def count_silent_watch(self, watch_seconds: float) -> bool:
        """Count a watch that was accepted and received nothing; returns whether to list again."""
        self.silent_watches += 1
        self._short_watch_seconds = max(
            _MIN_SHORT_WATCH_SECONDS,
            min(int(watch_seconds * _SHORT_WATCH_FRACTION), _MAX_SHORT_WATCH_SECONDS),
        )
        self._short_watches_left = _SHORT_WATCHES
        quiet_seconds = self._clock() - max(self._last_alive_at, self._last_list_at)
        # The second condition bounds how often watches that end at once lead to a list.
        if self.silent_watches < _MAX_SILENT_WATCHES or quiet_seconds < self.idle_timeout_seconds:
            return False
        self.is_broken = True
        return True
