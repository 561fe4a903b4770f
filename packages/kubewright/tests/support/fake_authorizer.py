"""An authorizer that needs no API server."""

from __future__ import annotations

import asyncio

from kubewright.authorization import Decision


class FakeAuthorizer:
    """Accepts two tokens, fails for a third, and records the requests; a test may delay it."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def authorize(self, token: str, verb: str, path: str) -> Decision:
        self.requests.append((token, verb, path))
        await self.gate.wait()
        if token == "broken":
            raise ConnectionError("no API server, token=abcdefgh")
        decisions: dict[str, Decision] = {"good": "allowed", "poor": "forbidden"}
        return decisions.get(token, "unauthenticated")
