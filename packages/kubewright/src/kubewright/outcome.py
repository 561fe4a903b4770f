"""How a reconcile ended, and the one switch that turns an error into queue, condition, event, metric and log line."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from .controller import Done
from .errors import (
    Conflict,
    KubewrightError,
    NotLeader,
    NotSynced,
    Retry,
    Terminal,
    TooManyRequests,
    redact,
)
from .meta import Condition
from .metrics import ReconcileResult

READY_CONDITION = "Ready"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What follows from a reconcile, before anything is done about it."""

    result: ReconcileResult
    condition: Condition | None
    """None leaves the status as it is: nothing was learnt about the object."""
    requeue_after_seconds: float | None = None
    rate_limited: bool = False
    terminal: bool = False
    unexpected: bool = False
    warning_event: bool = True
    """Whether an unready object is news; work under way is not."""
    error: BaseException | None = None


def ready_condition(
    status: Literal["True", "False", "Unknown"], reason: str, message: str, generation: int
) -> Condition:
    """The Ready condition."""
    return Condition(
        type=READY_CONDITION,
        status=status,
        reason=reason,
        message=message,
        observedGeneration=generation,
    )


def outcome_from_result(returned: object, generation: int) -> Outcome:
    """What a reconcile returned: nothing, or Done; anything else is a mistake of its author, said as one."""
    if returned is None:
        return Outcome("success", ready_condition("True", "Reconciled", "", generation))
    if not isinstance(returned, Done):
        return outcome_from_error(
            TypeError(
                f"the reconcile returned {type(returned).__name__}; return None or Done(...)"
            ),
            generation,
        )
    after = returned.requeue_after_seconds
    if after is not None and not _is_valid_delay(after):
        return outcome_from_error(
            TypeError(f"again_after_seconds is {after!r}; it has to be a number of seconds"),
            generation,
        )
    condition = ready_condition("True", returned.reason, returned.message, generation)
    return Outcome("success" if after is None else "requeue_after", condition, after)


def _is_valid_delay(value: object) -> bool:
    """Whether this can be waited for."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
    )


def outcome_from_error(error: BaseException, generation: int) -> Outcome:
    """The switch."""
    match error:
        case Retry() | NotSynced() if not _is_valid_delay(error.after):
            words = (
                f"{type(error).__name__}(after={error.after!r}): it has to be a number of seconds"
            )
            return outcome_from_error(TypeError(words), generation)
        case NotSynced():
            return Outcome("requeue_after", None, error.after, error=error)
        case Retry():
            condition = ready_condition("False", error.reason, str(error), generation)
            return Outcome(
                "requeue_after",
                condition,
                error.after,
                warning_event=error.warning_event,
                error=error,
            )
        case Terminal():
            return Outcome(
                "error",
                ready_condition("False", error.reason, str(error), generation),
                terminal=True,
                error=error,
            )
        case NotLeader():
            # Either the process is about to end, and the next leader does the work, or the lease comes back and we do.
            return Outcome("requeue", None, rate_limited=True, error=error)
        case Conflict():
            # Somebody wrote first: their change is on its way to us, and nothing is wrong with the object.
            return Outcome("requeue", None, rate_limited=True, error=error)
        case TooManyRequests(retry_after=float() | int() as after):
            return Outcome("requeue_after", None, float(after), error=error)
        case KubewrightError():
            return Outcome(
                "error",
                ready_condition("False", type(error).__name__, str(error), generation),
                rate_limited=True,
                error=error,
            )
        case TimeoutError():
            return Outcome(
                "error",
                ready_condition("False", "TimedOut", str(error) or "timed out", generation),
                rate_limited=True,
                error=error,
            )
        case _:
            words = f"{type(error).__name__}: {redact(str(error))}; it is tried again with back-off"
            return Outcome(
                "error",
                ready_condition("False", "Error", words, generation),
                rate_limited=True,
                unexpected=True,
                error=error,
            )
