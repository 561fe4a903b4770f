"""The cache of decisions on bearer tokens."""

from __future__ import annotations

import asyncio

import pytest

from kubewright.authorization import CachingAuthorizer, Decision, TooManyReviews
from kubewright.testing import eventually

from .support.fake_authorizer import FakeAuthorizer


async def test_decisions_are_cached_for_a_while() -> None:
    authorizer, moments = FakeAuthorizer(), [0.0]
    cache = CachingAuthorizer(authorizer, clock=lambda: moments[-1])

    async def decide_at(seconds: float, token: str, path: str = "/metrics") -> tuple[Decision, int]:
        moments.append(seconds)
        return await cache.authorize(token, "get", path), len(authorizer.requests)

    assert await decide_at(0, "good") == ("allowed", 1)
    assert await decide_at(59, "good") == ("allowed", 1)
    assert await decide_at(61, "good") == ("allowed", 2)
    assert await decide_at(61, "good", "/else") == ("allowed", 3)
    assert await decide_at(100, "poor") == ("forbidden", 4)
    assert await decide_at(109, "poor") == ("forbidden", 4)
    assert await decide_at(111, "poor") == ("forbidden", 5)
    assert not any("good" in str(key) for key in (*cache.allowed, *cache.denied))


async def test_cache_of_decisions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubewright.authorization._MAX_CACHED_DECISIONS", 3)
    cache = CachingAuthorizer(FakeAuthorizer(), clock=lambda: 0.0)
    await cache.authorize("good", "get", "/metrics")
    for number in range(10):
        await cache.authorize(str(number), "get", "/metrics")
    assert len(cache.denied) == 3
    # Invalid tokens do not evict the valid one.
    assert len(cache.allowed) == 1


async def test_failed_review_is_not_cached() -> None:
    authorizer = FakeAuthorizer()
    cache = CachingAuthorizer(authorizer)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await cache.authorize("broken", "get", "/metrics")
    assert len(authorizer.requests) == 2


async def test_concurrent_requests_with_one_token_share_a_review() -> None:
    authorizer = FakeAuthorizer()
    authorizer.gate.clear()
    cache = CachingAuthorizer(authorizer)
    waiting = [asyncio.create_task(cache.authorize("good", "get", "/metrics")) for _ in range(50)]
    await eventually(lambda: authorizer.requests)
    # One that gives up does not end the review of the others.
    waiting[0].cancel()
    authorizer.gate.set()
    assert await asyncio.gather(*waiting[1:]) == ["allowed"] * 49
    assert authorizer.requests == [("good", "get", "/metrics")]


async def test_failed_review_fails_all_requests_that_wait_for_it() -> None:
    authorizer = FakeAuthorizer()
    authorizer.gate.clear()
    cache = CachingAuthorizer(authorizer)
    waiting = [asyncio.create_task(cache.authorize("broken", "get", "/metrics")) for _ in range(3)]
    await eventually(lambda: authorizer.requests)
    authorizer.gate.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [ConnectionError] * 3
    assert len(authorizer.requests) == 1


async def test_concurrent_reviews_are_bounded_and_cached_decisions_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kubewright.authorization._MAX_CONCURRENT_REVIEWS", 2)
    authorizer = FakeAuthorizer()
    cache = CachingAuthorizer(authorizer)
    assert await cache.authorize("good", "get", "/metrics") == "allowed"
    authorizer.gate.clear()
    waiting = [
        asyncio.create_task(cache.authorize(token, "get", "/metrics")) for token in ("one", "two")
    ]
    await eventually(lambda: len(authorizer.requests) == 3)
    with pytest.raises(TooManyReviews):
        await cache.authorize("three", "get", "/metrics")
    assert await cache.authorize("good", "get", "/metrics") == "allowed"
    await cache.close()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError] * 2
    authorizer.gate.set()
    assert await cache.authorize("three", "get", "/metrics") == "unauthenticated"
