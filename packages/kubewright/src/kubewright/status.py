"""The only writer of status: one patch with what changed, or none.

It also records an Event when Ready becomes False, or is False with another reason or message, and
when Ready becomes True again. A first success causes no Event.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar

import msgspec

from .client import Client
from .errors import Invalid, NotFound, Undecodable
from .kind import Condition, Resource, Status, drop_nulls, find_condition, with_condition
from .metrics import ControllerMetrics
from .patch import Json
from .recorder import EventRecorder
from .responses import UndecodableObject

T = TypeVar("T", bound=Resource[Any, Any])

READY_CONDITION = "Ready"


def ready_condition(
    status: Literal["True", "False", "Unknown"], reason: str, message: str, generation: int
) -> Condition:
    return Condition(
        type=READY_CONDITION,
        status=status,
        reason=reason,
        message=message,
        observedGeneration=generation,
    )


class StatusWriter:
    """Writes statuses through the client, which puts the response into the cache."""

    def __init__(self, client: Client, recorder: EventRecorder, metrics: ControllerMetrics) -> None:
        self._client, self._recorder, self._metrics = client, recorder, metrics

    async def write(
        self,
        obj: T,
        encoded_before: bytes,
        status: Any,
        condition: Condition,
        *,
        warning_event: bool = True,
    ) -> T | None:
        """Send what changed in the status, and return the stored object; None if nothing changed.

        `obj` is the object that the reconcile read, `encoded_before` its status, and `status` the
        one that the reconcile set. The patch names the resourceVersion of `obj`, so it never lands
        on an object that was deleted and created again in the meantime. It also never overwrites
        the conditions of another writer: a merge patch replaces the whole list.
        """
        if isinstance(status, Status):
            _complete_status(status, obj, condition)
        encoded = msgspec.json.encode(status)
        if encoded == encoded_before:
            self._metrics.status_unchanged.inc()
            return None
        # A status that was never written has no fields on the wire, so the defaults that it
        # decodes to have to be sent as well. Every write sets observedGeneration, so it is None
        # until the first one. A status class that does not extend Status lacks it, and is treated
        # as written.
        was_written = getattr(obj.status, "observedGeneration", 0) is not None
        old = drop_nulls(msgspec.json.decode(encoded_before)) if was_written else {}
        patch = build_merge_patch(old, drop_nulls(msgspec.to_builtins(status)))
        if not patch:
            self._metrics.status_unchanged.inc()
            return None
        try:
            written = await self._client.patch_status(
                type(obj), obj.key, patch, resource_version=obj.metadata.resourceVersion
            )
        except NotFound:
            # Deleted in the meantime: there is nothing left to report.
            return None
        self._metrics.status_writes.inc()
        if warning_event or condition.status != "False":
            conditions = obj.status.conditions if isinstance(status, Status) else ()
            self._record_ready_event(obj, type(obj), conditions, condition)
        return written

    async def write_undecodable(self, obj: UndecodableObject, kind: type[T]) -> Condition:
        """Report in the object's own status that it cannot be decoded; return that condition."""
        # These two names are the placeholders on the reference page of conditions.
        decoding_error, resource = obj.message, kind.definition.name.lower()
        message = (
            f"{decoding_error}. Change the object so that it matches the schema; see it with: "
            f"kubectl explain {resource}"
        )
        condition = ready_condition("False", "Undecodable", message, obj.metadata.generation)
        conditions = with_condition(obj.conditions, condition)
        if conditions != obj.conditions:
            patch = {"conditions": drop_nulls(msgspec.to_builtins(conditions))}
            # The response is the same object, which cannot be decoded and may violate its schema.
            with suppress(NotFound, Undecodable, Invalid):
                await self._client.patch_status(
                    kind, obj.metadata.key, patch, resource_version=obj.metadata.resourceVersion
                )
            self._record_ready_event(obj, kind, obj.conditions, condition)
        return condition

    def _record_ready_event(
        self,
        obj: T | UndecodableObject,
        kind: type[T],
        conditions: Sequence[Condition],
        new: Condition,
    ) -> None:
        old = find_condition(conditions, READY_CONDITION)
        old_state = (old.status, old.reason, old.message) if old is not None else ("", "", "")
        if new.status == "False" and old_state != (new.status, new.reason, new.message):
            self._recorder.event(obj, kind.definition, "Warning", new.reason, new.message)
        elif new.status == "True" and old_state[0] == "False":
            # A first success is not reported: only a recovery is recorded.
            message = new.message or "Reconciled successfully after a previous failure."
            self._recorder.event(obj, kind.definition, "Normal", new.reason, message)


def _complete_status(status: Status, obj: Resource[Any, Any], condition: Condition) -> None:
    # The conditions of the stored status come first: other writers may own some of them.
    conditions: list[Condition] = list(obj.status.conditions)
    for reported in status.conditions:
        if reported not in conditions:
            conditions = with_condition(conditions, reported)
    status.conditions = with_condition(conditions, condition)
    status.observedGeneration = obj.metadata.generation


def build_merge_patch(old: Json, new: Json) -> Json:
    """The smallest merge patch that turns `old` into `new`; {} if they are equal.

    None and an absent field count as equal.
    """
    patch: Json = {}
    for name in {**old, **new}:
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            patch[name] = build_merge_patch(before, after)
        else:
            patch[name] = after
    return patch
