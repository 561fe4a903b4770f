"""What we did and have not seen come back.

Questions and answers:

Why is the cache not enough?  The answer to a Kubernetes write goes into the cache at once. A call to another system (a clone
    in vCenter, say) returns before its result can be seen, and a reconcile in between would do it again.
What does a reconcile do?  Before it acts it asks `pending(key)`; what is pending counts as done. It says `expect(key, token)`
    before the call goes out, so that not even a crash between call and answer can make it forget within this process.
How does an expectation end?  By `saw(token)`, called by whoever watches the other system; by `drop(token)` when the call was
    refused and so had no effect; or by its deadline, since a lost notice may not block an object for ever. After the deadline
    the world must be read afresh: `overdue(key)` says so once.
Does it survive a restart?  No, and it must not be needed for that: intent that must survive is written into the object first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from .meta import Key


class Expectations:
    """Pending effects by key; a token names one effect and is unique."""

    def __init__(
        self, *, deadline_seconds: float = 300.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.deadline_seconds = deadline_seconds
        self.clock = clock
        self.by_key: dict[Key, dict[Hashable, float]] = {}
        self.key_of: dict[Hashable, Key] = {}

    def expect(self, key: Key, token: Hashable) -> None:
        """Something of this key is about to happen."""
        self.by_key.setdefault(key, {})[token] = self.clock() + self.deadline_seconds
        self.key_of[token] = key

    def saw(self, token: Hashable) -> Key | None:
        """It happened; returns whose it was, None if nobody expected it."""
        key = self.key_of.pop(token, None)
        if key is not None:
            mine = self.by_key[key]
            del mine[token]
            if not mine:
                del self.by_key[key]
        return key

    def drop(self, token: Hashable) -> None:
        """It will not happen: the call was refused."""
        self.saw(token)

    def pending(self, key: Key) -> list[Hashable]:
        """What is still to come, and not overdue."""
        now = self.clock()
        return [token for token, due in self.by_key.get(key, {}).items() if due > now]

    def overdue(self, key: Key) -> list[Hashable]:
        """What should have come by now; these are forgotten, and the caller has to look at the world itself."""
        now = self.clock()
        late = [token for token, due in self.by_key.get(key, {}).items() if due <= now]
        for token in late:
            self.saw(token)
        return late

    def forget(self, key: Key) -> None:
        """The object is gone, and so is what was expected of it."""
        for token in list(self.by_key.get(key, {})):
            self.saw(token)
