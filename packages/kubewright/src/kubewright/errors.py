"""All errors of kubewright in one tree, by meaning. Catch the widest class that you can act on.

    KubewrightError
    ├── ConfigError             the configuration cannot work; a person has to change it
    │   ├── KubeconfigError     names the file and the key
    │   └── SchemaError         names the class and the field
    ├── ApiError                the API server returned an error: its message, code and reason
    │   ├── BadRequest          400
    │   ├── Unauthorized        401
    │   ├── Forbidden           403
    │   ├── NotFound            404
    │   ├── KindMissing         404 for the kind itself: its CRD is not installed
    │   ├── Conflict            409, another client wrote first, or a precondition failed
    │   │   ├── AlreadyExists   409 on create
    │   │   └── ApplyConflict   409 on apply: other field managers own fields, see `conflicts`
    │   ├── Gone                410, the resourceVersion is too old: list again
    │   ├── RequestTooLarge     413
    │   ├── Invalid             422
    │   ├── TooManyRequests     429, with `retry_after`
    │   ├── ServerTimeout       504 or a server-side timeout
    │   └── ServerError         any other 5xx
    ├── TransportError          no usable response
    │   ├── Unreachable         connection refused or reset, no route, no such host
    │   ├── CertificateRefused  TLS failed: the reason and the fix
    │   ├── TimedOut            the client's own deadline expired
    │   └── ResponseTooLarge    the response is larger than the client buffers
    ├── Undecodable             an object that does not match its class
    ├── NotLeader               a write was blocked because this process may not hold the lease
    ├── LeaseLost               another process holds the lease: this one has to exit
    ├── RestartRequired         raised by a runnable: build and run the manager again
    ├── NotSynced               raised by a reconcile: no data yet, keep the status, retry later
    ├── Retry                   raised by a reconcile: a temporary failure, retry later
    ├── Terminal                raised by a reconcile: a retry is useless until something changes
    └── Rejected                raised by a webhook: do not store this object

Each error keeps the message of the server, with credentials redacted. An error without a reason of
its own has its class name as the reason of Ready (`consequence.py`).
"""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar

from msgspec import Struct

MAX_MESSAGE_LENGTH = 2000
# A server or proxy that asks for more must not stop a controller for hours.
_MAX_RETRY_AFTER_SECONDS = 60.0

# Every repetition is bounded or anchored to a literal, so that hostile text costs linear time.
_SECRET_PATTERN = re.compile(
    r"""(?ix)
    # Authorization headers
    (bearer\s{1,9}|basic\s{1,9})[a-z0-9._~+/=-]{6,}
    # key: value, also in JSON that is a string in JSON
    | ((?:token|password|passwd|secret|client-key-data)\\?["']?\s{0,9}[:=]\s{0,9})
      (?: \\?"[^"\\]{0,512}\\?"? | '[^']{0,512}'? | [^\s"',;}]+ )
    # a JWT anywhere
    | \beyj[a-z0-9_-]{8,512}\.[a-z0-9._-]*
    # user:password@ in a URL
    | (://)[^/\s:@]{0,256}:[^\s@]{1,256}@
    """
)


def redact(text: str) -> str:
    """Remove what resembles a credential, and limit the length; for logs, statuses and errors."""
    safe = _SECRET_PATTERN.sub(
        lambda m: (m[1] or m[2] or m[3] or "") + "***" + ("@" if m[3] else ""),
        text[: 2 * MAX_MESSAGE_LENGTH],
    )
    return safe if len(text) <= MAX_MESSAGE_LENGTH else safe[:MAX_MESSAGE_LENGTH] + "... (cut)"


_FIELD_MANAGER_CONFLICT = "FieldManagerConflict"
# conflict with "kubectl" with subresource "scale" using apps/v1 at 2026-01-01T00:00:00Z
_CONFLICTING_MANAGER = re.compile(r'conflict with "((?:[^"\\]|\\.){0,512})"')


class KubewrightError(Exception):
    """The root. Its text is for users: what happened, why, and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(redact(message))


class ConfigError(KubewrightError):
    """The configuration cannot work; a person has to change it."""


class KubeconfigError(ConfigError):
    """A kubeconfig that cannot be used."""

    def __init__(self, file: str, key: str, problem: str) -> None:
        super().__init__(f"kubeconfig {file}: {problem}" + (f" (at {key})" if key else ""))
        self.file, self.key = file, key


class SchemaError(ConfigError):
    """A declaration that OpenAPI cannot express; `location` names the class and the field."""

    def __init__(self, location: str, problem: str) -> None:
        super().__init__(f"{location}: {problem}")
        self.location = location


class StatusCause(Struct, frozen=True):
    """One cause in a `Status`: `FieldManagerConflict` or `FieldValueInvalid`, and its field."""

    reason: str
    message: str
    field: str = ""


class ApiError(KubewrightError):
    """The API server returned an error."""

    code: ClassVar[int] = 0

    def __init__(
        self,
        message: str,
        *,
        status_code: int = 0,
        reason: str = "",
        retry_after: float | None = None,
        causes: tuple[StatusCause, ...] = (),
    ) -> None:
        super().__init__(message)
        self.status_code = status_code or self.code
        self.reason = reason
        self.retry_after = retry_after
        self.causes = causes


class BadRequest(ApiError):
    """The server does not understand the request: a bug here, or an incompatible server."""

    code = 400


class Unauthorized(ApiError):
    """Authentication failed: the token or certificate is missing, wrong or expired."""

    code = 401


class Forbidden(ApiError):
    """RBAC or an admission plugin denied the request."""

    code = 403


class NotFound(ApiError):
    """The object does not exist."""

    code = 404


class KindMissing(ApiError):
    """The server does not serve this kind: its CRD is not installed, or is being deleted."""

    code = 404


class Conflict(ApiError):
    """Another client wrote first, or a precondition (resourceVersion, uid) failed: read again."""

    code = 409


class AlreadyExists(Conflict):
    """An object of that name exists already."""


class ApplyConflict(Conflict):
    """Other field managers own fields of an apply: leave these out, or take them with `force`."""

    @property
    def conflicts(self) -> list[tuple[str, str]]:
        """The manager and the path of each field: `("kubectl", ".spec.replicas")`."""
        return sorted(
            (re.sub(r"\\(.)", r"\1", match[1]) if match else "", cause.field)
            for cause in self.causes
            if cause.reason == _FIELD_MANAGER_CONFLICT
            for match in [_CONFLICTING_MANAGER.search(cause.message)]
        )


class Gone(ApiError):
    """The resourceVersion or the continue token is too old: list again."""

    code = 410


class RequestTooLarge(ApiError):
    """The object is larger than the server accepts."""

    code = 413


class Invalid(ApiError):
    """The object violates its schema or a rule of an admission plugin."""

    code = 422


class TooManyRequests(ApiError):
    """The server is overloaded; `retry_after` is the delay that it asks for."""

    code = 429


class ServerTimeout(ApiError):
    """The server timed out waiting for a backend."""

    code = 504


class ServerError(ApiError):
    """The server failed; the same request may succeed later."""

    code = 500


class TransportError(KubewrightError):
    """No usable response: the request may or may not have taken effect."""


class Unreachable(TransportError):
    """The API server cannot be reached at its address."""


class CertificateRefused(TransportError):
    """The TLS handshake failed; the message names the certificate and the reason."""


class TimedOut(TransportError):
    """The client's own deadline for the request expired."""


class ResponseTooLarge(TransportError):
    """The response, or one line of it, is larger than the client buffers."""


class Undecodable(KubewrightError):
    """An object that does not match its class, for example one from before a schema change."""


class NotLeader(KubewrightError):
    """A write was blocked because this process may no longer hold the leader lease."""


class LeaseLost(KubewrightError):
    """The lease expired or another process holds it: this process must stop acting."""


class RestartRequired(KubewrightError):
    """Raise it in a runnable when the configuration of the manager changed.

    The manager stops, and is built and run again in the same process.
    """


class NotSynced(KubewrightError):
    """Raise it in a reconcile while its data is still being loaded.

    The status stays as it is, and the object is retried in `requeue_after_seconds`. Without this,
    every restart would make each object unready, and ready again a moment later.
    """

    def __init__(self, message: str, *, requeue_after_seconds: float) -> None:
        super().__init__(message)
        self.requeue_after_seconds = requeue_after_seconds


class Retry(KubewrightError):
    """Raise it in a reconcile for a temporary failure: Ready is False.

    The object is retried in `requeue_after_seconds`, or with back-off if that is None. Normal
    progress is not a failure: return `Waiting` for it. Pass `stalled=True` if no retry is expected
    to succeed before a user acts: the condition Stalled is True, and GitOps tools report a failure.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        requeue_after_seconds: float | None = None,
        stalled: bool = False,
    ) -> None:
        super().__init__(message)
        self.reason, self.requeue_after_seconds = reason, requeue_after_seconds
        self.stalled = stalled


class Terminal(KubewrightError):
    """Raise it in a reconcile when a retry is useless until the object or its input changes.

    The status is reset to its defaults, so that no outdated number stays next to Ready=False.
    With `keep_status` the status that the reconcile has set is written, not cleared. The condition
    Stalled is True; pass `stalled=False` if the input recovers without an action of a user.
    """

    def __init__(
        self, reason: str, message: str, *, keep_status: bool = False, stalled: bool = True
    ) -> None:
        super().__init__(message)
        self.reason, self.keep_status, self.stalled = reason, keep_status, stalled


class Rejected(KubewrightError):
    """Raise it in a webhook: the object is not stored, and the client gets the message.

    With a `field` ("spec.size") the response is 422, in the format of the API server's own
    validation; without one it is 403.
    """

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


_ERRORS_BY_CODE: dict[int, type[ApiError]] = {
    error.code: error for error in ApiError.__subclasses__() if error is not KindMissing
}
_ERRORS_BY_REASON: dict[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExists,
    "Expired": Gone,
    "Timeout": ServerTimeout,
    "ServerTimeout": ServerTimeout,
}


def error_from_status(
    code: int, body: dict[str, Any], *, operation: str, retry_after: float | None = None
) -> ApiError:
    """The error for a `Status` of the API server, or for the response of a proxy before it."""
    reason = str(body.get("reason") or "")
    message = str(body.get("message") or f"HTTP {code}")
    error = (
        _ERRORS_BY_REASON.get(reason)
        or _ERRORS_BY_CODE.get(code)
        or (ServerError if code >= 500 else ApiError)
    )
    # The server returns plain text, not a Status, for a path that it does not serve.
    if error is NotFound and (
        "could not find the requested resource" in message or body.get("kind") != "Status"
    ):
        error = KindMissing
    details = body.get("details")
    if not isinstance(details, dict):
        details = {}
    causes = _read_causes(details.get("causes"))
    if error is Conflict and any(cause.reason == _FIELD_MANAGER_CONFLICT for cause in causes):
        error, message = ApplyConflict, _describe_conflicts(causes)
    seconds: object = details.get("retryAfterSeconds") if retry_after is None else retry_after
    return error(
        f"{operation}: {message}",
        status_code=code,
        reason=reason,
        retry_after=_bound_retry_after(seconds),
        causes=causes,
    )


def _describe_conflicts(causes: tuple[StatusCause, ...]) -> str:
    fields_by_manager: dict[str, list[str]] = {}
    for manager, field in ApplyConflict("", causes=causes).conflicts:
        fields_by_manager.setdefault(manager, []).append(field)
    owners = "; ".join(
        f'field manager "{manager}" owns {", ".join(fields)}'
        for manager, fields in fields_by_manager.items()
    )
    return f"{owners}. Do not set these fields, or apply with force=True"


def _read_causes(causes: object) -> tuple[StatusCause, ...]:
    # A proxy or an aggregated API server may send anything.
    return tuple(
        StatusCause(
            reason=str(cause.get("reason") or ""),
            message=redact(str(cause.get("message") or "")),
            field=str(cause.get("field") or ""),
        )
        for cause in (causes if isinstance(causes, list) else ())
        if isinstance(cause, dict)
    )


def _bound_retry_after(seconds: object) -> float | None:
    # A bool is an int in Python, and a proxy may send anything.
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return None
    if not math.isfinite(seconds):
        return None
    return min(max(float(seconds), 0.0), _MAX_RETRY_AFTER_SECONDS)
