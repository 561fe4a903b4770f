"""Hashes, ranges and selectors, also compared with the real API server."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.api_requests import request_for
from kubewright.builtin import ConfigMap
from kubewright.errors import ApiError
from kubewright.kind import Key, ObjectMeta
from kubewright.shard_ranges import (
    MAX_SHARDS,
    ShardBy,
    ShardScope,
    hash_field,
    range_of,
    shard_of,
    shard_of_value,
)
from kubewright.testing.pins import parse_version

from ..support.api_harness import ApiHarness

COUNTS = st.integers(1, MAX_SHARDS)


# From the reference implementation of FNV: http://www.isthe.com/chongo/tech/comp/fnv.
@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)],
)
def test_hash_is_fnv_1a_with_64_bits(text: str, expected: int) -> None:
    assert hash_field(text) == expected


@given(COUNTS)
def test_ranges_cover_all_hashes_once(count: int) -> None:
    ranges = [range_of(shard, count) for shard in range(count)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 2**64
    assert all(before[1] == after[0] for before, after in pairwise(ranges))


@given(st.text(), COUNTS)
def test_shard_of_a_value_has_its_hash_in_its_range(value: str, count: int) -> None:
    start, end = range_of(shard_of_value(value, count), count)
    assert start <= hash_field(value) < end


def test_all_objects_of_a_namespace_are_in_one_shard() -> None:
    shards = {
        shard_of(ObjectMeta(namespace="team", name=name, uid=f"uid-{name}"), "namespace", 16)
        for name in "abcdefgh"
    }
    assert len(shards) == 1


def test_with_none_all_objects_belong_to_the_leader() -> None:
    assert {shard_of(ObjectMeta(uid=str(i)), "none", 8) for i in range(50)} == {0}


def test_selector_merges_neighbours() -> None:
    scope = ShardScope("uid", 4, frozenset({0, 1, 3}))
    assert scope.selector == (
        "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000') || "
        "shardRange(object.metadata.uid, '0xc000000000000000', '0x10000000000000000')"
    )


def test_longest_selector_fits_into_a_url() -> None:
    scope = ShardScope("namespace", MAX_SHARDS, frozenset(range(0, MAX_SHARDS, 2)))
    query = {"shardSelector": scope.selector}
    # nginx and most load balancers accept 8 KiB.
    assert len(request_for("GET", ConfigMap.definition, Key("", ""), query=query).query) < 6000


@pytest.mark.parametrize("shard_by", ["uid", "namespace", "none"])
def test_all_shards_need_no_selector(shard_by: ShardBy) -> None:
    assert ShardScope(shard_by, 3, frozenset({0, 1, 2})).selector == ""


@pytest.mark.parametrize("shard_by", ["uid", "namespace"])
async def test_server_selects_the_objects_that_we_expect(
    api: ApiHarness, shard_by: ShardBy
) -> None:
    if api.is_real:
        version = parse_version(await api.client.server_version())
        if version < (1, 36):
            pytest.skip("this API server has no sharded list and watch")
    else:
        api.fake.selects_shards = True
    names = [f"object-{number}" for number in range(30)]
    await asyncio.gather(
        *(
            api.client.create(ConfigMap(metadata=ObjectMeta(namespace=api.namespace, name=name)))
            for name in names
        )
    )
    names_in_shards = []
    for shard in range(5):
        scope = ShardScope(shard_by, 5, frozenset({shard}))
        pages = api.client.list_pages(ConfigMap, api.namespace, shard_selector=scope.selector)
        async for page in pages:
            assert page.is_sharded
            assert all(scope.covers(item.metadata) for item in page.items)
            names_in_shards += [
                item.metadata.name for item in page.items if item.metadata.name in names
            ]
    assert sorted(names_in_shards) == sorted(names)


async def test_server_sends_only_the_events_of_the_shards(api: ApiHarness) -> None:
    if api.is_real:
        version = parse_version(await api.client.server_version())
        if version < (1, 36):
            pytest.skip("this API server has no sharded list and watch")
    else:
        api.fake.selects_shards = True
    scope = ShardScope("uid", 4, frozenset({1, 3}))
    version_before = ""
    async for page in api.client.list_pages(ConfigMap, api.namespace):
        version_before = page.resource_version
    created = [
        await api.client.create(
            ConfigMap(metadata=ObjectMeta(namespace=api.namespace, name=f"event-{number}"))
        )
        for number in range(12)
    ]
    for obj in created:
        await api.client.delete(ConfigMap, obj.key)
    expected = [obj.metadata.name for obj in created if scope.covers(obj.metadata)]
    assert 0 < len(expected) < len(created)
    received: dict[str, list[str]] = {"ADDED": [], "DELETED": []}
    async for event in api.client.watch(
        ConfigMap,
        version_before,
        api.namespace,
        shard_selector=scope.selector,
        timeout_seconds=20,
    ):
        if event.object is not None:
            received[event.type].append(event.object.metadata.name)
        if len(received["DELETED"]) == len(expected):
            break
    assert received == {"ADDED": expected, "DELETED": expected}


async def test_server_rejects_a_malformed_selector(api: ApiHarness) -> None:
    if api.is_real:
        version = parse_version(await api.client.server_version())
        if version < (1, 36):
            pytest.skip("this API server has no sharded list and watch")
    else:
        api.fake.selects_shards = True
    pages = api.client.list_pages(ConfigMap, api.namespace, shard_selector="shardRange(a, 1, 2)")
    with pytest.raises(ApiError, match="shard selector"):
        async for _ in pages:
            pass
