"""The only writer of status: one patch with what changed, or none; and an Event when readiness
changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar

import msgspec

from .client import Client
from .errors import Invalid, NotFound, Undecodable
from .kind import Condition, Resource, Status, drop_nulls, with_condition
from .metrics import ControllerMetrics
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

    def __init__(self, client: Client, recorder: EventRecorder) -> None:
        self.client, self.recorder = client, recorder

    async def write(
        self,
        obj: T,
        encoded_before: bytes,
        status: Any,
        condition: Condition,
        metrics: ControllerMetrics,
        *,
        warning_event: bool = True,
    ) -> T | None:
        """Send what changed in the status, and return the stored object; None if nothing changed.

        `obj` is the object that the reconcile read, `encoded_before` its status, and `status` what
        the reconcile made of it. The patch names the resourceVersion of `obj`, so it never lands on
        an object that was deleted and created again in the meantime. It also never overwrites the
        conditions of another writer: a merge patch replaces the whole list.
        """
        if isinstance(status, Status):
            _complete_status(status, obj, condition)
        encoded = msgspec.json.encode(status)
        if encoded == encoded_before:
            metrics.status_unchanged.inc()
            return None
        # A status that was never written has no fields on the wire, so the defaults that it
        # decodes to have to be sent as well. A status class without observedGeneration cannot
        # show whether it was written; such a class has no defaults of ours.
        was_written = getattr(obj.status, "observedGeneration", 0) is not None
        old = (
            _drop_status_nulls(msgspec.json.decode(encoded_before), encoded_before)
            if was_written
            else {}
        )
        patch = build_merge_patch(old, _drop_status_nulls(msgspec.to_builtins(status), encoded))
        if not patch:
            metrics.status_unchanged.inc()
            return None
        try:
            written = await self.client.patch_status(
                type(obj), obj.key, patch, resource_version=obj.metadata.resourceVersion
            )
        except NotFound:
            return None
        metrics.status_writes.inc()
        if warning_event or condition.status != "False":
            conditions = obj.status.conditions if isinstance(status, Status) else ()
            self._record_ready_event(obj, type(obj), conditions, condition)
        return written

    async def write_undecodable(self, obj: UndecodableObject, kind: type[T]) -> Condition:
        """Report in the object's own status that it does not decode, and return that condition."""
        message = (
            f"{obj.message}. Change the object so that it matches the schema; see it with: "
            f"kubectl explain {kind.definition.name.lower()}"
        )
        condition = ready_condition("False", "Undecodable", message, obj.metadata.generation)
        conditions = with_condition(obj.conditions, condition)
        if conditions != obj.conditions:
            patch = {"conditions": drop_nulls(msgspec.to_builtins(conditions))}
            with suppress(NotFound, Undecodable, Invalid):
                await self.client.patch_status(
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
        old = next((c for c in conditions if c.type == READY_CONDITION), None)
        before = (old.status, old.reason, old.message) if old is not None else ("", "", "")
        if new.status == "False" and before != (new.status, new.reason, new.message):
            self.recorder.event(obj, kind.definition, "Warning", new.reason, new.message)
        elif new.status == "True" and before[0] == "False":
            # A first success is not reported: only a recovery is news.
            message = new.message or "Reconciled successfully after a previous failure."
            self.recorder.event(obj, kind.definition, "Normal", new.reason, message)


def build_merge_patch(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The smallest merge patch (RFC 7386) that turns `old` into `new`; {} if they are equal.

    None and an absent field count as equal.
    """
    patch: dict[str, Any] = {}
    for name in {**old, **new}:
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            patch[name] = build_merge_patch(before, after)
        else:
            patch[name] = after
    return patch


def _drop_status_nulls(value: dict[str, Any], encoded: bytes) -> dict[str, Any]:
    """The status without nulls. `encoded` is the same status as JSON.

    Most statuses have nulls only at the top level. Counting them in the bytes shows it, and saves
    the walk through all nested values.
    """
    flat = {name: field for name, field in value.items() if field is not None}
    is_flat = encoded.count(b":null") == len(value) - len(flat)
    result: dict[str, Any] = flat if is_flat else drop_nulls(flat)
    return result


def _complete_status(status: Status, obj: Resource[Any, Any], condition: Condition) -> None:
    # The conditions of the stored status come first: other writers may own some of them.
    conditions: list[Condition] = list(obj.status.conditions)
    for own in status.conditions:
        if own not in conditions:
            conditions = with_condition(conditions, own)
    status.conditions = with_condition(conditions, condition)
    status.observedGeneration = obj.metadata.generation
