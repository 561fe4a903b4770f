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
    NotYet,
    Retry,
    Terminal,
    TooManyRequests,
    cut,
)
from .meta import Condition
from .metrics import Result

READY = "Ready"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What follows from a reconcile, before anything is done about it."""

    result: Result
    condition: Condition | None
    """None leaves the status as it is: nothing was learnt about the object."""
    again_after_seconds: float | None = None
    backs_off: bool = False
    terminal: bool = False
    unexpected: bool = False
    warns: bool = True
    """Whether an unready object is news; work under way is not."""
    error: BaseException | None = None


def ready(
    status: Literal["True", "False", "Unknown"], reason: str, message: str, generation: int
) -> Condition:
    """The Ready condition."""
    return Condition(
        type=READY, status=status, reason=reason, message=message, observedGeneration=generation
    )


def outcome_of_return(returned: object, generation: int) -> Outcome:
    """What a reconcile returned: nothing, or Done; anything else is a mistake of its author, said as one."""
    if returned is None:
        return Outcome("success", ready("True", "Reconciled", "", generation))
    if not isinstance(returned, Done):
        return outcome_of_error(
            TypeError(
                f"the reconcile returned {type(returned).__name__}; return None or Done(...)"
            ),
            generation,
        )
    after = returned.again_after_seconds
    if after is not None and not is_delay(after):
        return outcome_of_error(
            TypeError(f"again_after_seconds is {after!r}; it has to be a number of seconds"),
            generation,
        )
    condition = ready("True", returned.reason, returned.message, generation)
    return Outcome("success" if after is None else "requeue_after", condition, after)


def is_delay(value: object) -> bool:
    """Whether this can be waited for."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
    )


def outcome_of_error(error: BaseException, generation: int) -> Outcome:
    """The switch."""
    match error:
        case Retry() | NotYet() if not is_delay(error.after):
            words = (
                f"{type(error).__name__}(after={error.after!r}): it has to be a number of seconds"
            )
            return outcome_of_error(TypeError(words), generation)
        case NotYet():
            return Outcome("requeue_after", None, error.after, error=error)
        case Retry():
            condition = ready("False", error.reason, str(error), generation)
            return Outcome("requeue_after", condition, error.after, warns=error.warns, error=error)
        case Terminal():
            return Outcome(
                "error",
                ready("False", error.reason, str(error), generation),
                terminal=True,
                error=error,
            )
        case NotLeader():
            # Either the process is about to end, and the next leader does the work, or the lease comes back and we do.
            return Outcome("requeue", None, backs_off=True, error=error)
        case Conflict():
            # Somebody wrote first: their change is on its way to us, and nothing is wrong with the object.
            return Outcome("requeue", None, backs_off=True, error=error)
        case TooManyRequests(retry_after=float() | int() as after):
            return Outcome("requeue_after", None, float(after), error=error)
        case KubewrightError():
            return Outcome(
                "error",
                ready("False", type(error).__name__, str(error), generation),
                backs_off=True,
                error=error,
            )
        case TimeoutError():
            return Outcome(
                "error",
                ready("False", "TimedOut", str(error) or "timed out", generation),
                backs_off=True,
                error=error,
            )
        case _:
            words = f"{type(error).__name__}: {cut(str(error))}; it is tried again with back-off"
            return Outcome(
                "error",
                ready("False", "Error", words, generation),
                backs_off=True,
                unexpected=True,
                error=error,
            )
