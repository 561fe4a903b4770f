"""Authenticates and authorizes clients of /metrics by their bearer tokens.

The API server decides, and its decisions are cached.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from typing import Literal, Protocol

from .client import Client

_REVIEW_TIMEOUT_SECONDS = 10.0
_MAX_CACHED_DECISIONS = 1024
# Prometheus has one token. More reviews at once are an attack, which must not reach the API server.
_MAX_CONCURRENT_REVIEWS = 16
# controller-runtime caches a token for 1 min, an allowed request for 5 min and a denied one for
# 30 s. These are shorter, so that a changed role takes effect sooner.
_ALLOWED_CACHE_SECONDS, _DENIED_CACHE_SECONDS = 60.0, 10.0

Decision = Literal["unauthenticated", "forbidden", "allowed"]


class Authorizer(Protocol):
    """Decides on requests to non-resource paths."""

    async def authorize(self, token: str, verb: str, path: str) -> Decision:
        """Decide whether the bearer of the token may do `verb` on `path`."""
        ...


class ApiAuthorizer:
    """Asks the API server: a TokenReview for the user, a SubjectAccessReview for the permission."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def authorize(self, token: str, verb: str, path: str) -> Decision:
        token_review = await self._client.create_review(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": token},
            },
        )
        status = token_review.get("status") or {}
        if not status.get("authenticated"):
            return "unauthenticated"
        user = status.get("user") or {}
        spec = {name: user[name] for name in ("groups", "uid", "extra") if user.get(name)}
        spec |= {
            "user": user.get("username", ""),
            "nonResourceAttributes": {"verb": verb, "path": path},
        }
        access_review = await self._client.create_review(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec},
        )
        return "allowed" if (access_review.get("status") or {}).get("allowed") else "forbidden"


class TooManyReviews(Exception):
    """The limit of concurrent reviews is reached: retry later."""


_CacheKey = tuple[bytes, str, str]
_CachedDecision = tuple[Decision, float]


class CachingAuthorizer:
    """Caches the decisions of another authorizer, and bounds how often it is asked.

    Concurrent requests with one token share one review.
    """

    def __init__(self, authorizer: Authorizer, clock: Callable[[], float] = time.monotonic) -> None:
        self._authorizer, self._clock = authorizer, clock
        # Separate, so that a flood of invalid tokens cannot evict the token of Prometheus.
        self.allowed: dict[_CacheKey, _CachedDecision] = {}
        self.denied: dict[_CacheKey, _CachedDecision] = {}
        self._reviews: dict[_CacheKey, asyncio.Task[Decision]] = {}

    async def authorize(self, token: str, verb: str, path: str) -> Decision:
        """Raises TooManyReviews if the decision is not cached and too many reviews run."""
        # The key holds a hash, so that no token stays in memory.
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        key = (digest, verb, path)
        cached = self.allowed.get(key) or self.denied.get(key)
        if cached is not None and self._clock() < cached[1]:
            return cached[0]
        review = self._reviews.get(key)
        if review is None:
            if len(self._reviews) >= _MAX_CONCURRENT_REVIEWS:
                raise TooManyReviews
            review = asyncio.create_task(self._review(key, token), name="kubewright: review")
            self._reviews[key] = review
            review.add_done_callback(lambda task: self._on_review_done(key, task))
        # Shielded: a request that is cancelled must not cancel the review that others wait for.
        return await asyncio.shield(review)

    async def close(self) -> None:
        """Cancel the reviews in progress."""
        reviews = list(self._reviews.values())
        for review in reviews:
            review.cancel()
        await asyncio.gather(*reviews, return_exceptions=True)

    def _on_review_done(self, key: _CacheKey, task: asyncio.Task[Decision]) -> None:
        del self._reviews[key]
        if not task.cancelled():
            # Retrieve the exception. If every request was cancelled, asyncio would log it.
            task.exception()

    async def _review(self, key: _CacheKey, token: str) -> Decision:
        _, verb, path = key
        async with asyncio.timeout(_REVIEW_TIMEOUT_SECONDS):
            decision: Decision = await self._authorizer.authorize(token, verb, path)
        is_allowed = decision == "allowed"
        # One decision per key: the old one must not outlive a new one of the other kind.
        self.allowed.pop(key, None)
        self.denied.pop(key, None)
        decisions = self.allowed if is_allowed else self.denied
        while len(decisions) >= _MAX_CACHED_DECISIONS:
            # Dictionaries keep insertion order, so the first entry is the oldest one.
            del decisions[next(iter(decisions))]
        seconds = _ALLOWED_CACHE_SECONDS if is_allowed else _DENIED_CACHE_SECONDS
        decisions[key] = (decision, self._clock() + seconds)
        return decision
