"""Everything that can go wrong, as one tree by meaning. Catch the widest name that you can act on.

    KubewrightError
    ├── ConfigError             what we were given cannot work; a person has to change it
    │   ├── KubeconfigError     names the file and the key
    │   └── SchemaError         names the class and the field
    ├── ApiError                the API server answered "no": its words, its code, its reason
    │   ├── BadRequest          400
    │   ├── Unauthorized        401
    │   ├── Forbidden           403
    │   ├── NotFound            404
    │   │   └── KindMissing     404 for the kind itself: its CRD is not installed
    │   ├── Conflict            409, somebody else wrote first, or a precondition does not hold
    │   │   └── AlreadyExists   409 on create
    │   ├── Gone                410, the resourceVersion is too old: list again
    │   ├── TooLarge            413
    │   ├── Invalid             422
    │   ├── TooManyRequests     429, with `retry_after`
    │   ├── Timeout             504 or a server-side timeout
    │   └── ServerError         any other 5xx
    ├── TransportError          no answer at all
    │   ├── Unreachable         refused, reset, no route, no such name
    │   ├── CertificateRefused  TLS failed: the reason and the fix
    │   ├── TimedOut            our own deadline passed
    │   └── TooMuch             the answer is larger than we are willing to hold
    ├── Undecodable             an object that does not fit its class
    ├── NotLeader               a write was stopped because the lease is not certainly ours
    ├── LeaseLost               the lease went to somebody else: the process has to end
    ├── NotYet                  raised by a reconcile: nothing is known yet, the status stays as it is, again in `after` seconds
    ├── Retry                   raised by a reconcile: not now, again in `after` seconds
    ├── Terminal                raised by a reconcile: trying again is useless until something changes
    └── Refused                 raised by a webhook: this object may not be stored, in words for whoever sent it

Each keeps the words of whoever refused, with what looks like a credential cut out.
"""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar

MAX_MESSAGE_LENGTH = 2000
_MAX_RETRY_AFTER_SECONDS = 60.0

# Every repetition is bounded or anchored to a literal, so that hostile text costs linear time.
_SECRET_PATTERN = re.compile(
    r"""(?ix)
    (bearer\s{1,9}|basic\s{1,9})[a-z0-9._~+/=-]{6,}                                    # Authorization headers
    | ((?:token|password|passwd|secret|client-key-data)\\?["']?\s{0,9}[:=]\s{0,9})               # key: value, also in JSON in JSON
      (?: \\?"[^"\\]{0,512}\\?"? | '[^']{0,512}'? | [^\s"',;}]+ )
    | \beyj[a-z0-9_-]{8,512}\.[a-z0-9._-]*                                            # a JWT, wherever it stands
    | (://)[^/\s:@]{0,256}:[^\s@]{1,256}@                                             # user:password@ in an address
    """
)


def redact(text: str) -> str:
    """The text without what looks like a credential, and of bounded length; for logs, statuses and exceptions."""
    safe = _SECRET_PATTERN.sub(
        lambda m: (m[1] or m[2] or m[3] or "") + "***" + ("@" if m[3] else ""),
        text[: 2 * MAX_MESSAGE_LENGTH],
    )
    return safe if len(text) <= MAX_MESSAGE_LENGTH else safe[:MAX_MESSAGE_LENGTH] + "... (cut)"


class KubewrightError(Exception):
    """The root; its text is for people: what happened, what it means, what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(redact(message))


class ConfigError(KubewrightError):
    """What we were given cannot work; a person has to change it."""


class KubeconfigError(ConfigError):
    """A kubeconfig that cannot be used: which file, which key, and why."""

    def __init__(self, file: str, key: str, why: str) -> None:
        super().__init__(
            f"kubeconfig {file}: {why} (at {key})" if key else f"kubeconfig {file}: {why}"
        )
        self.file, self.key = file, key


class SchemaError(ConfigError):
    """A declaration that has no OpenAPI form: which class, which field, and why."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.location = where


class ApiError(KubewrightError):
    """The API server answered "no"."""

    code: ClassVar[int] = 0

    def __init__(
        self,
        message: str,
        *,
        status_code: int = 0,
        reason: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status_code = status_code or self.code
        self.reason = reason
        self.retry_after = retry_after


class BadRequest(ApiError):
    """The request makes no sense to the server: a bug on our side, or a server of another age."""

    code = 400


class Unauthorized(ApiError):
    """The server does not know who we are: a token or certificate is missing, wrong or expired."""

    code = 401


class Forbidden(ApiError):
    """The server knows who we are and says no: RBAC, or an admission plugin."""

    code = 403


class NotFound(ApiError):
    """There is no such object."""

    code = 404


class KindMissing(NotFound):
    """The server does not serve this kind: its CRD is not installed (or is being deleted)."""


class Conflict(ApiError):
    """Somebody else wrote first, or a precondition (resourceVersion, uid) does not hold: read again."""

    code = 409


class AlreadyExists(Conflict):
    """There is an object of that name already."""


class Gone(ApiError):
    """The resourceVersion or the continue token is too old: list again."""

    code = 410


class TooLarge(ApiError):
    """The server refuses an object of this size."""

    code = 413


class Invalid(ApiError):
    """The object breaks a rule of its schema or of an admission plugin."""

    code = 422


class TooManyRequests(ApiError):
    """The server asks for patience; `retry_after` says how much."""

    code = 429


class Timeout(ApiError):
    """The server gave up waiting for something behind it."""

    code = 504


class ServerError(ApiError):
    """The server failed; the same request may succeed later."""

    code = 500


class TransportError(KubewrightError):
    """No answer: whether the call took effect is not known."""


class Unreachable(TransportError):
    """Nobody answers at that address."""


class CertificateRefused(TransportError):
    """The TLS handshake failed; the message says which certificate and why."""


class TimedOut(TransportError):
    """Our own deadline for the call has passed."""


class TooMuch(TransportError):
    """The answer, or one line of it, is larger than we are willing to hold in memory."""


class Undecodable(KubewrightError):
    """An object that does not fit its class, for example one written before a schema change."""


class NotLeader(KubewrightError):
    """A write was stopped because the lease is not certainly ours at this moment."""


class LeaseLost(KubewrightError):
    """The lease could not be renewed in time, or is somebody else's: this process may not act any more."""


class RestartRequired(KubewrightError):
    """Raise it in a service when what the manager was built from has changed: it ends, and is built and run again in the same process."""


class NotSynced(KubewrightError):
    """Raise it in a reconcile while what it depends on is still being loaded: the status stays as it is, again in `after` seconds.

    Without it every restart would turn each object unready, and ready again a moment later.
    """

    def __init__(self, message: str, *, after: float) -> None:
        super().__init__(message)
        self.after = after


class Retry(KubewrightError):
    """Raise it in a reconcile for what will pass: Ready becomes False with this reason, again in `after` seconds.

    `warns=False` is for work under way: it is no news, so no warning Event is made of it.
    """

    def __init__(
        self, message: str, *, after: float, reason: str = "Retrying", warning_event: bool = True
    ) -> None:
        super().__init__(message)
        self.after, self.reason, self.warning_event = after, reason, warning_event


class Terminal(KubewrightError):
    """Raise it in a reconcile when trying again is useless until the object, or what it depends on, changes.

    The answer no longer holds, so a status that the reconcile has not set itself goes back to its defaults:
    no old number survives next to Ready=False.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Rejected(KubewrightError):
    """Raise it in a webhook: the object is not stored, and whoever sent it reads these words.

    With a `field` ("spec.size") it reads as the API server's own validation does (422); without one it is forbidden (403).
    """

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


_ERRORS_BY_CODE: dict[int, type[ApiError]] = {
    error.code: error
    for error in (
        BadRequest,
        Unauthorized,
        Forbidden,
        NotFound,
        Conflict,
        Gone,
        TooLarge,
        Invalid,
        TooManyRequests,
        Timeout,
    )
}
_ERRORS_BY_REASON: dict[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExists,
    "Expired": Gone,
    "Timeout": Timeout,
    "ServerTimeout": Timeout,
}


def error_from_status(
    code: int, body: dict[str, Any], *, operation: str, retry_after: float | None = None
) -> ApiError:
    """The error for a `Status` body of the API server (or of a proxy in front of it), with its own words kept."""
    reason = str(body.get("reason") or "")
    words = str(body.get("message") or f"HTTP {code}")
    error = (
        _ERRORS_BY_REASON.get(reason)
        or _ERRORS_BY_CODE.get(code)
        or (ServerError if code >= 500 else ApiError)
    )
    # A path that the server does not know at all gets plain text, not a Status.
    if error is NotFound and (
        "could not find the requested resource" in words or body.get("kind") != "Status"
    ):
        error = KindMissing
    details = body.get("details") or {}
    patience = (
        retry_after
        if retry_after is not None
        else details.get("retryAfterSeconds")
        if isinstance(details, dict)
        else None
    )
    return error(
        f"{operation}: {words}",
        status_code=code,
        reason=reason,
        retry_after=_bound_retry_after(patience),
    )


def _bound_retry_after(patience: object) -> float | None:
    """What a server may ask of our patience: a number, and no more than a minute of it."""
    if (
        not isinstance(patience, int | float)
        or isinstance(patience, bool)
        or not math.isfinite(patience)
    ):
        return None
    return min(max(float(patience), 0.0), _MAX_RETRY_AFTER_SECONDS)
