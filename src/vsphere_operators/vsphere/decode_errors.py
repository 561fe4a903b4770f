"""Values in responses of vCenter that do not decode: left unset, counted, and logged once.

Why not fail?  A newer vCenter may send a value of an enumeration, or a form of an object, that this
    version does not know. One such value must not keep a whole vCenter from loading.
What is left unset?  The smallest part that has a name: a property of one object, a row of a list. A
    property that does not decode counts as one that vCenter does not return (`missing`). Code that
    destroys something refuses to act on such an object.
What if the response as a whole is broken, without an end or a version?  It is Unreachable, and the
    call is repeated: no part of it can be trusted.
"""

from __future__ import annotations

from typing import Protocol

from .log import Log

# What decoders raise for a value of a type or form that they do not know.
DECODE_ERRORS = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
# The names come from the wire. All names after these are counted as one: otherwise a broken server
# could create metric labels and log lines without end.
_MAX_NAMES = 200
_MAX_REASON_LENGTH = 200


class DecodeMetrics(Protocol):
    def count_undecodable(self, type_name: str, path: str) -> None:
        """Count a value of a property, or a row, of a type of objects."""
        ...


class ReportUndecodable(Protocol):
    def __call__(self, type_name: str, path: str, ref: str, error: Exception) -> None:
        """`ref` is the object that has the value, "" if it is not known."""
        ...


def ignore_undecodable(type_name: str, path: str, ref: str, error: Exception) -> None:
    """For decoders of which the caller needs no report."""


class DecodeErrors:
    """Counts and logs the values of one vCenter that do not decode."""

    def __init__(self, metrics: DecodeMetrics, log: Log | None = None) -> None:
        self._metrics, self._log = metrics, log
        self._logged: set[tuple[str, str]] = set()

    def report(self, type_name: str, path: str, ref: str, error: Exception) -> None:
        if (type_name, path) not in self._logged:
            if len(self._logged) >= _MAX_NAMES:
                type_name, path = "other", "other"
            if (type_name, path) not in self._logged:
                self._logged.add((type_name, path))
                self._log_first(type_name, path, ref, error)
        self._metrics.count_undecodable(type_name, path)

    def _log_first(self, type_name: str, path: str, ref: str, error: Exception) -> None:
        if self._log is not None:
            self._log.warning(
                "vCenter sent a value that this version does not know; it is left unset, for "
                "other objects too, and logged only once. A newer release may know it",
                type=type_name,
                property=path,
                object=ref,
                reason=f"{type(error).__name__}: {error}"[:_MAX_REASON_LENGTH],
            )
