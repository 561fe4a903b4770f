"""What follows from each way to end a reconcile: for the queue, the condition, the Event, the
metric and the log line. The functions here are the only place that decides it.
"""

from __future__ import annotations

import math

from msgspec import Struct

from .condition import Condition, ConditionStatus, ready_condition
from .errors import (
    AlreadyExists,
    ConfigError,
    Conflict,
    KubewrightError,
    NotLeader,
    NotSynced,
    Retry,
    Terminal,
    TooManyRequests,
    redact,
)
from .metrics import ReconcileResult
from .outcome import Done, Waiting

_DONE = Done()
_VALID_DELAY = "it must be a finite number of seconds, 0 or more"


class Consequence(Struct, frozen=True):
    metric_result: ReconcileResult
    condition: Condition | None
    """None leaves the status as it is, because the reconcile found out nothing about the object."""
    requeue_after_seconds: float | None = None
    rate_limited: bool = False
    terminal: bool = False
    stalled: bool = False
    """Whether the condition Stalled is set: a user has to act before the object makes progress."""
    clear_status: bool = False
    unexpected: bool = False
    warning_event: bool = True
    error: BaseException | None = None


def consequence_of_outcome(returned: object, generation: int) -> Consequence:
    status: ConditionStatus
    match _DONE if returned is None else returned:
        case Done(reason, message, requeue_after_seconds=seconds):
            status = "True"
        case Waiting(reason, message, requeue_after_seconds=seconds, write_status_first=first):
            status = "False"
            # The next run acts on the record in this status: there is nothing else to wait for.
            seconds = 0.0 if first else seconds
        case _:
            message = f"the reconcile returned {type(returned).__name__}; "
            message += "return None, Done(...) or Waiting(...)"
            return consequence_of_error(TypeError(message), generation)
    if seconds is not None and not is_valid_delay(seconds):
        message = f"requeue_after_seconds is {seconds!r}; {_VALID_DELAY}"
        return consequence_of_error(TypeError(message), generation)
    condition = ready_condition(status, reason, message, generation)
    result: ReconcileResult = "success" if seconds is None else "requeue_after"
    return Consequence(result, condition, seconds, warning_event=False)


def is_valid_delay(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0  # type: ignore[arg-type,operator]


def consequence_of_error(error: BaseException, generation: int) -> Consequence:
    match error:
        case (
            Retry(requeue_after_seconds=seconds) | NotSynced(requeue_after_seconds=seconds)
        ) if not (seconds is None or is_valid_delay(seconds)):
            message = f"requeue_after_seconds of {type(error).__name__} is {seconds!r}; "
            message += _VALID_DELAY
            return consequence_of_error(TypeError(message), generation)
        case NotSynced():
            return Consequence("requeue_after", None, error.requeue_after_seconds, error=error)
        case Retry():
            condition = ready_condition("False", error.reason, str(error), generation)
            delay, stalled = error.requeue_after_seconds, error.stalled
            if delay is None:
                return Consequence(
                    "requeue", condition, rate_limited=True, stalled=stalled, error=error
                )
            return Consequence("requeue_after", condition, delay, stalled=stalled, error=error)
        case Terminal():
            condition = ready_condition("False", error.reason, str(error), generation)
            return Consequence(
                "error",
                condition,
                terminal=True,
                stalled=error.stalled,
                clear_status=not error.keep_status,
                error=error,
            )
        case ConfigError():
            # A mistake in the code or in the options of the manager: a retry meets it again.
            condition = ready_condition("False", type(error).__name__, str(error), generation)
            return Consequence("error", condition, terminal=True, stalled=True, error=error)
        case NotLeader():
            # Either the process is about to end and the next leader does the work, or the lease
            # is renewed late and we do.
            return Consequence("requeue", None, rate_limited=True, error=error)
        case Conflict() if not isinstance(error, AlreadyExists):
            # Another client wrote first. Its change will arrive through the watch.
            return Consequence("requeue", None, rate_limited=True, error=error)
        case TooManyRequests(retry_after=float() | int() as seconds):
            return Consequence("requeue_after", None, float(seconds), error=error)
        case KubewrightError():
            condition = ready_condition("False", type(error).__name__, str(error), generation)
        case TimeoutError():
            condition = ready_condition("False", "TimedOut", str(error) or "Timed out", generation)
        case _:
            message = f"{type(error).__name__}: {redact(str(error))}; it is retried with back-off"
            condition = ready_condition("False", "Error", message, generation)
            return Consequence("error", condition, rate_limited=True, unexpected=True, error=error)
    return Consequence("error", condition, rate_limited=True, error=error)
