"""Which member should have which shard. Each member computes it from what it sees, so the result
depends on nothing else: not on the order of events, and not on the member that computes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def balance(
    members: Iterable[str], holders: Mapping[int, str], count: int
) -> dict[str, frozenset[int]]:
    """The shards of each member, such that as few as possible move.

    `holders` has the member that holds a shard now. One that is not a member counts as none.

    Shares differ by at most one. A member keeps what it has, up to its share, and the larger shares
    go to the members that have more now.
    """
    names = sorted(set(members))
    if not names:
        return {}
    held: dict[str, list[int]] = {name: [] for name in names}
    for shard in range(count):
        if (holder := holders.get(shard)) in held:
            held[holder].append(shard)
    share, larger_shares = divmod(count, len(names))
    result: dict[str, list[int]] = {}
    for place, name in enumerate(sorted(names, key=lambda name: (-len(held[name]), name))):
        # The first ones, so that shard 0, which has the work of the leader, moves least.
        result[name] = held[name][: share + (place < larger_shares)]
    kept = {shard for shards in result.values() for shard in shards}
    free = [shard for shard in range(count) if shard not in kept]
    for place, name in enumerate(result):
        missing = share + (place < larger_shares) - len(result[name])
        result[name] += free[:missing]
        free = free[missing:]
    return {name: frozenset(shards) for name, shards in result.items()}
