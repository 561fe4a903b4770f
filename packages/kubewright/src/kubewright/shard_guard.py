"""Whether a write may be sent now, if several replicas share the objects.

How does the transport know the shard of a write?  From a context variable: a worker sets it before
    it handles a key, and tasks and threads that a reconcile starts inherit it.
And a write outside of a reconcile?  It belongs to shard 0, and the replica that holds shard 0 is
    the leader. Code that any replica may run sets ANY_SHARD, for example to write an Event about an
    object of its own.
Why is the lease of the members checked, too?  It excludes managers with another number of shards,
    or without shards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from .lease_guard import LeaseGuard

LEADER_SHARD = 0
ANY_SHARD = -1

_current_shard: ContextVar[int] = ContextVar("current_shard", default=LEADER_SHARD)


def set_current_shard(shard: int) -> None:
    """The writes of the current task, and of those that it starts, belong to this shard."""
    _current_shard.set(shard)


@contextmanager
def in_shard(shard: int) -> Iterator[None]:
    token = _current_shard.set(shard)
    try:
        yield
    finally:
        _current_shard.reset(token)


class ShardGuard:
    """Guards the writes of a replica. Each renewal of a lease extends the guard of that lease."""

    def __init__(self, member: LeaseGuard, shards: Sequence[LeaseGuard]) -> None:
        self.member, self.shards = member, shards

    def holds_lease(self) -> bool:
        """Whether the lease of the current shard is certainly held."""
        return self.holds_shard(_current_shard.get())

    def holds_shard(self, shard: int) -> bool:
        if not self.member.holds_lease():
            return False
        if shard == ANY_SHARD:
            return any(guard.holds_lease() for guard in self.shards)
        return self.shards[shard].holds_lease()

    def is_leader(self) -> bool:
        """Whether this replica has shard 0, whatever the current shard is."""
        return self.holds_shard(LEADER_SHARD)
