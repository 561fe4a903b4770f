"""An authorizer that needs no API server."""

from __future__ import annotations

from kubewright.authorization import Decision


class FakeAuthorizer:
    """Accepts two tokens, fails for a third, and records the requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str]] = []

    async def authorize(self, token: str, verb: str, path: str) -> Decision:
        self.requests.append((token, verb, path))
        if token == "broken":
            raise ConnectionError("no API server, token=abcdefgh")
        decisions: dict[str, Decision] = {"good": "allowed", "poor": "forbidden"}
        return decisions.get(token, "unauthenticated")
