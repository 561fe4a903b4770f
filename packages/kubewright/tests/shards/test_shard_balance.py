"""balance(): any history of joins, leaves and stale views ends balanced, with the fewest moves."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from kubewright.shard_balance import balance

NAMES = list("abcdef")
COUNTS = st.integers(1, 24)
MEMBERS = st.sets(st.sampled_from(NAMES), min_size=1)
HOLDERS = st.dictionaries(st.integers(0, 23), st.sampled_from([*NAMES, "gone", ""]))


def count_moves(target: dict[str, frozenset[int]], holders: dict[int, str]) -> int:
    return sum(shard not in target.get(holder, ()) for shard, holder in holders.items())


@given(MEMBERS, HOLDERS, COUNTS)
def test_each_shard_has_one_member_and_shares_differ_by_at_most_one(
    members: set[str], holders: dict[int, str], count: int
) -> None:
    target = balance(members, holders, count)
    assert target.keys() == members
    assert sorted(shard for shards in target.values() for shard in shards) == list(range(count))
    sizes = [len(shards) for shards in target.values()]
    assert max(sizes) - min(sizes) <= 1


@given(MEMBERS, HOLDERS, COUNTS)
def test_result_is_stable(members: set[str], holders: dict[int, str], count: int) -> None:
    target = balance(members, holders, count)
    reached = {shard: name for name, shards in target.items() for shard in shards}
    assert balance(members, reached, count) == target


@given(MEMBERS, HOLDERS, COUNTS)
def test_order_of_members_does_not_matter(
    members: set[str], holders: dict[int, str], count: int
) -> None:
    assert balance(sorted(members), holders, count) == balance(
        sorted(members, reverse=True), holders, count
    )


@given(st.sets(st.sampled_from("abc"), min_size=1), st.integers(1, 6), st.data())
def test_no_balanced_assignment_moves_fewer_shards(
    members: set[str], count: int, data: st.DataObject
) -> None:
    holders = data.draw(
        st.dictionaries(st.integers(0, count - 1), st.sampled_from([*"abc", "gone"]))
    )
    held = {shard: holder for shard, holder in holders.items() if holder in members}
    moves = count_moves(balance(members, holders, count), held)
    fewest = count
    for owners in product(sorted(members), repeat=count):
        sizes = [owners.count(name) for name in members]
        if max(sizes) - min(sizes) <= 1:
            fewest = min(fewest, sum(owners[shard] != name for shard, name in held.items()))
    assert moves == fewest


@given(
    COUNTS,
    st.lists(
        st.tuples(st.sampled_from(["join", "leave", "stale step", "step"]), st.sampled_from(NAMES)),
        max_size=40,
    ),
    st.randoms(use_true_random=False),
)
def test_any_history_ends_balanced_and_a_shard_never_has_two_holders(
    count: int, history: list[tuple[str, str]], random: object
) -> None:
    members = {"a"}
    # The truth is in the Leases; a view may be the state of any earlier moment.
    holders: dict[int, str] = {}
    views: list[tuple[set[str], dict[int, str]]] = [(set(members), {})]

    def step(name: str, view: tuple[set[str], dict[int, str]]) -> None:
        wanted = balance(view[0] | {name}, view[1], count)[name]
        for shard in range(count):
            if holders.get(shard) == name and shard not in wanted:
                del holders[shard]
            elif shard not in holders and shard in wanted:
                holders[shard] = name

    for action, name in history:
        if action == "join":
            members.add(name)
        elif action == "leave" and members != {name}:
            members.discard(name)
            holders = {shard: holder for shard, holder in holders.items() if holder != name}
        elif name in members:
            step(name, views[random.randrange(len(views))] if action == "stale step" else views[-1])  # type: ignore[attr-defined]
        views.append((set(members), dict(holders)))
    # From here on all see the present. Each member releases first, then each takes.
    for _ in range(2):
        for name in sorted(members):
            step(name, (set(members), dict(holders)))
    sizes = [sum(holder == name for holder in holders.values()) for name in members]
    assert len(holders) == count
    assert max(sizes) - min(sizes) <= 1


def test_leader_shard_stays_when_members_join() -> None:
    holders = dict.fromkeys(range(6), "b")
    assert 0 in balance(["a", "b", "c"], holders, 6)["b"]
