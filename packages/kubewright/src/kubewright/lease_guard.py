"""Until when this process certainly holds a lease, which is checked before each write."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


def _boottime_seconds() -> float:
    """A clock that does not stop while the machine sleeps or a VM is stunned."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class WriteGuard(Protocol):
    def holds_lease(self) -> bool:
        """Whether a write may be sent now."""
        ...


class LeaseGuard:
    """Until when this process certainly holds the lease. LeaderElector extends it by a renewal."""

    def __init__(
        self, clock: Callable[[], float] = _boottime_seconds, *, expires_at: float = 0.0
    ) -> None:
        self.clock = clock
        self.expires_at = expires_at

    def holds_lease(self) -> bool:
        """Whether the lease is certainly held. Always true without leader election."""
        return self.clock() < self.expires_at
