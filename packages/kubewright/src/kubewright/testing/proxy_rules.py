"""Requests that an HttpProxy recorded, and rules for its next requests."""

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
    received_at: float
    method: str
    path: str
    query: str
    user_agent: str
    has_authorization: bool
    status: int | None = None
    """Of the response: None while the request runs, 0 if the client got no response."""

    @property
    def is_watch(self) -> bool:
        return parse_qs(self.query).get("watch", [""])[-1] in {"1", "true"}

    @property
    def is_mutating(self) -> bool:
        return self.method not in {"GET", "HEAD", "OPTIONS"}


@dataclass(frozen=True)
class RequestMatcher:
    """Selects requests by method (or `*`), path, and whether they are watches.

    In a path `*` matches any text, including slashes.
    """

    method: str = "*"
    path: str = "*"
    watch: bool | None = None

    def matches(self, request: RecordedRequest) -> bool:
        if self.watch not in (None, request.is_watch):
            return False
        return self.method in {"*", request.method} and fnmatchcase(request.path, self.path)


@dataclass(frozen=True)
class BufferedResponse:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


ResponseTransform = Callable[[BufferedResponse], BufferedResponse]


@dataclass
class ProxyRule:
    """What happens to the next `times` matching requests, in the order of the fields.

    A fault that did not happen proves nothing: assert on `matched_requests`, and on
    `upstream_statuses`, the statuses of the API server for the requests that reached it.
    """

    matcher: RequestMatcher
    times: int = 1
    delay_seconds: float = 0.0
    response: BufferedResponse | None = None
    transform: ResponseTransform | None = None
    drop_response: bool = False
    matched_requests: list[RecordedRequest] = field(default_factory=list)
    upstream_statuses: list[int] = field(default_factory=list)

    def try_match(self, request: RecordedRequest) -> bool:
        """Whether the rule applies to this request; if so, the request is counted."""
        if len(self.matched_requests) >= self.times or not self.matcher.matches(request):
            return False
        self.matched_requests.append(request)
        return True


def encode_status(status: int, message: str) -> bytes:
    """A metav1.Status, as the API server sends it with an error."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _STATUS_REASONS.get(status, ""),
        "code": status,
    }
    return json.dumps(body).encode()


def encode_line(line: bytes | str | Mapping[str, Any]) -> bytes:
    """One line of a watch stream, with its line end."""
    if isinstance(line, Mapping):
        line = json.dumps(line)
    content = line.encode() if isinstance(line, str) else line
    return content if content.endswith(b"\n") else content + b"\n"
