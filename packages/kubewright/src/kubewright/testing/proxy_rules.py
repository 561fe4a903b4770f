"""What an HttpProxy saw, and what it has been told to do to the next requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import parse_qs

_STATUS_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
UNANSWERED = 0


@dataclass
class RecordedRequest:
    """One request in the ledger. `status` is None while it runs, and 0 where the client got no answer."""

    received_at: float
    method: str
    path: str
    query: str
    user_agent: str
    has_authorization: bool
    status: int | None = None

    @property
    def is_watch(self) -> bool:
        """Whether it asks for a watch."""
        return parse_qs(self.query).get("watch", [""])[-1] in {"1", "true"}

    @property
    def is_mutating(self) -> bool:
        """Whether it may change something."""
        return self.method not in {"GET", "HEAD", "OPTIONS"}


@dataclass(frozen=True)
class RequestMatcher:
    """Which requests: a method or `*`, a path in which `*` stands for anything (also slashes), and watches only, or none, or both."""

    method: str = "*"
    path: str = "*"
    watch: bool | None = None

    def matches(self, seen: RecordedRequest) -> bool:
        """Whether this request is meant."""
        of_kind = self.watch is None or self.watch == seen.is_watch
        return self.method in {"*", seen.method} and fnmatchcase(seen.path, self.path) and of_kind


@dataclass(frozen=True)
class BufferedResponse:
    """A whole response."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


ResponseTransform = Callable[[BufferedResponse], BufferedResponse]


@dataclass
class ProxyRule:
    """What happens to the next `times` wanted requests; the steps are taken in the order of the fields.

    `hits` are the requests it was applied to, `forwarded` the statuses with which the API server answered those it did get:
    a fault that was not reached proves nothing, so assert on them.
    """

    matcher: RequestMatcher
    times: int = 1
    delay_seconds: float = 0.0
    response: BufferedResponse | None = None
    transform: ResponseTransform | None = None
    drop_response: bool = False
    matched_requests: list[RecordedRequest] = field(default_factory=list)
    upstream_statuses: list[int] = field(default_factory=list)

    def try_match(self, seen: RecordedRequest) -> bool:
        """Whether it applies to this request; if so, it counts as one of its times."""
        if len(self.matched_requests) >= self.times or not self.matcher.matches(seen):
            return False
        self.matched_requests.append(seen)
        return True


def encode_status(status: int, message: str) -> bytes:
    """A metav1.Status, as the API server says no."""
    told = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _STATUS_REASONS.get(status, ""),
        "code": status,
    }
    return json.dumps(told).encode()


def encode_line(line: bytes | str | Mapping[str, Any]) -> bytes:
    """One line of a watch stream, with its end."""
    content = (
        line
        if isinstance(line, bytes)
        else line.encode()
        if isinstance(line, str)
        else json.dumps(line).encode()
    )
    return content if content.endswith(b"\n") else content + b"\n"
