"""Conditions: the standard way of Kubernetes to report the state of an object."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal, Protocol, TypeVar

import msgspec
from msgspec import Meta, Struct

from .markers import MapType

READY_CONDITION = "Ready"
# By this condition kstatus, and so Flux, reports a failure: the object makes no progress until a
# user or an administrator acts.
STALLED_CONDITION = "Stalled"
# The default in CRDs. Without it, an object that no manager has seen has no observedGeneration, and
# kstatus reports it as Current. In memory it is None.
UNOBSERVED_GENERATION = -1
ConditionStatus = Literal["True", "False", "Unknown"]


class Condition(Struct, frozen=True, gc=False, kw_only=True):
    """One standard metav1.Condition."""

    # One writer owns a condition as a whole. With an owner for each field, managedFields would have
    # seven entries for it, which the API server decodes, compares and encodes with every write.
    __schema__ = (MapType("atomic"),)

    type: Annotated[str, Meta(description="Type of the condition, in CamelCase.", max_length=316)]
    status: Annotated[ConditionStatus, Meta(description="Status of the condition.")]
    reason: Annotated[
        str,
        Meta(
            description="Reason for the status, one CamelCase word for programs.", max_length=1024
        ),
    ] = ""
    message: Annotated[
        str, Meta(description="What happened, why, and what to do, for users.", max_length=32768)
    ] = ""
    lastTransitionTime: Annotated[
        datetime | None, Meta(description="When the status last changed.")
    ] = None
    observedGeneration: Annotated[
        int, Meta(description="The metadata.generation that the condition was computed from.", ge=0)
    ] = 0


def ready_condition(
    status: ConditionStatus, reason: str, message: str, generation: int
) -> Condition:
    return Condition(
        type=READY_CONDITION,
        status=status,
        reason=reason,
        message=message,
        observedGeneration=generation,
    )


def utc_now() -> datetime:
    """The wall clock in whole seconds, the resolution of metav1.Time."""
    return datetime.now(UTC).replace(microsecond=0)


class _Typed(Protocol):
    """A condition of any kind: those of Pods and Deployments have other fields."""

    @property
    def type(self) -> str: ...


_ConditionT = TypeVar("_ConditionT", bound=_Typed)


def find_condition(conditions: Sequence[_ConditionT], type: str) -> _ConditionT | None:
    return next((condition for condition in conditions if condition.type == type), None)


def with_condition(conditions: list[Condition], new: Condition, now: datetime) -> list[Condition]:
    """The list with `new` in place of the condition of its type.

    lastTransitionTime moves only when the status does. Conditions of other types, which may have
    other writers, stay as they are.
    """
    old = find_condition(conditions, new.type)
    since = old.lastTransitionTime if old is not None and old.status == new.status else None
    stamped = msgspec.structs.replace(new, lastTransitionTime=since or now)
    if old is None:
        return [*conditions, stamped]
    return [stamped if c is old else c for c in conditions]
