"""Error responses as the API server writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...errors import ApiError, error_from_status
from ...patch import Json


class Failure(Exception):
    """An error response: its `Status`. FakeApi turns it into an error of `errors.py`."""

    def __init__(self, code: int, reason: str, message: str, causes: Sequence[Json] = ()) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.causes = code, reason, message, list(causes)

    def _to_error(self, operation: str) -> ApiError:
        status = {
            "kind": "Status" if self.reason else "",
            "reason": self.reason,
            "message": self.message,
            "details": {"causes": self.causes},
        }
        return error_from_status(self.code, status, operation=operation)


@contextmanager
def raise_api_errors(operation: str) -> Iterator[None]:
    try:
        yield
    except Failure as failure:
        raise failure._to_error(operation) from None


def bad_request(message: str) -> Failure:
    return Failure(400, "BadRequest", message)


def not_found(resource: str, name: str) -> Failure:
    return Failure(404, "NotFound", f'{resource} "{name}" not found')


def not_served() -> Failure:
    return Failure(404, "NotFound", "the server could not find the requested resource")


def no_such_path() -> Failure:
    """For a group or version that has no kind at all the response is plain text, not a Status."""
    return Failure(404, "", "404 page not found")


def method_not_allowed() -> Failure:
    return Failure(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
    )


def already_exists(resource: str, name: str) -> Failure:
    return Failure(409, "AlreadyExists", f'{resource} "{name}" already exists')


def conflict(resource: str, name: str, message: str) -> Failure:
    return Failure(
        409, "Conflict", f'Operation cannot be fulfilled on {resource} "{name}": {message}'
    )


def gone(message: str) -> Failure:
    return Failure(410, "Expired", message)


def unsupported_media_type(message: str) -> Failure:
    return Failure(415, "UnsupportedMediaType", message)


def field_cause(reason: str, field: str, message: str) -> Json:
    return {"reason": reason, "field": field, "message": message}


def invalid(kind: str, name: str, causes: Sequence[Json]) -> Failure:
    """422: `causes` are made by `field_cause`."""
    texts = list(dict.fromkeys(f"{cause['field']}: {cause['message']}" for cause in causes))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return Failure(422, "Invalid", f'{kind} "{name}" is invalid: {text}', causes)
