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


class CachingAuthorizer:
    """Caches the decisions of another authorizer for a short time."""

    def __init__(self, authorizer: Authorizer, clock: Callable[[], float] = time.monotonic) -> None:
        self._authorizer, self._clock = authorizer, clock
        self.cached_decisions: dict[tuple[bytes, str, str], tuple[Decision, float]] = {}

    async def authorize(self, token: str, verb: str, path: str) -> Decision:
        # The key holds a hash, so that no token stays in memory.
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        key = (digest, verb, path)
        cached, valid_until = self.cached_decisions.get(key, ("forbidden", 0.0))
        if self._clock() < valid_until:
            return cached
        async with asyncio.timeout(_REVIEW_TIMEOUT_SECONDS):
            decision: Decision = await self._authorizer.authorize(token, verb, path)
        # Dictionaries keep insertion order: after the pop, the first entry is the oldest one.
        self.cached_decisions.pop(key, None)
        while len(self.cached_decisions) >= _MAX_CACHED_DECISIONS:
            del self.cached_decisions[next(iter(self.cached_decisions))]
        seconds = _ALLOWED_CACHE_SECONDS if decision == "allowed" else _DENIED_CACHE_SECONDS
        self.cached_decisions[key] = (decision, self._clock() + seconds)
        return decision
