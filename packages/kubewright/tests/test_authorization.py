"""The cache of decisions on bearer tokens."""

from __future__ import annotations

import pytest

from kubewright.authorization import CachingAuthorizer, Decision

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
    assert not any("good" in str(key) for key in cache.cached_decisions)


async def test_cache_of_decisions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubewright.authorization._MAX_CACHED_DECISIONS", 3)
    cache = CachingAuthorizer(FakeAuthorizer(), clock=lambda: 0.0)
    for number in range(10):
        await cache.authorize(str(number), "get", "/metrics")
    assert len(cache.cached_decisions) == 3


async def test_failed_review_is_not_cached() -> None:
    authorizer = FakeAuthorizer()
    cache = CachingAuthorizer(authorizer)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await cache.authorize("broken", "get", "/metrics")
    assert len(authorizer.requests) == 2
