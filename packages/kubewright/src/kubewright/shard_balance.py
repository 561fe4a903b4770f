"""Which member should have which shard. Each member computes this from the members and holders that
it sees. Members that see the same get the same result, whatever happened before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def balance(
    members: Iterable[str], holders: Mapping[int, str], count: int
) -> dict[str, frozenset[int]]:
    """The shards that each member should have. As few shards as possible move.

    `holders` maps a shard to the identity that holds it now. A holder that is not a member is
    ignored.

    Shares differ by at most one. A member keeps what it has, up to its share, and the larger shares
    go to the members that have more now.
    """
    identities = sorted(set(members))
    if not identities:
        return {}
    held: dict[str, list[int]] = {identity: [] for identity in identities}
    for shard in range(count):
        if (holder := holders.get(shard)) in held:
            held[holder].append(shard)
    share, larger_shares = divmod(count, len(identities))
    result: dict[str, list[int]] = {}
    by_size = sorted(identities, key=lambda identity: (-len(held[identity]), identity))
    for rank, identity in enumerate(by_size):
        # Keep the lowest numbers: shard 0, which has the work of the leader, should move least.
        result[identity] = held[identity][: share + (rank < larger_shares)]
    kept = {shard for shards in result.values() for shard in shards}
    free = [shard for shard in range(count) if shard not in kept]
    for rank, identity in enumerate(result):
        missing = share + (rank < larger_shares) - len(result[identity])
        result[identity] += free[:missing]
        free = free[missing:]
    return {identity: frozenset(shards) for identity, shards in result.items()}
