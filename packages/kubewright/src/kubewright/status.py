"""The only writer of status: what changed, once, or nothing; and an event when readiness turns."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from .client import Client
from .errors import Invalid, NotFound, Undecodable
from .kind import Resource, Status, drop_nulls
from .meta import Condition, with_condition
from .metrics import ControllerMetrics
from .outcome import READY_CONDITION, Outcome, ready_condition
from .patch import build_merge_patch
from .recorder import EventRecorder
from .responses import UndecodableObject

T = TypeVar("T", bound=Resource[Any, Any])


class StatusWriter:
    """Writes statuses through the client; the answer enters the cache there."""

    def __init__(self, client: Client, recorder: EventRecorder) -> None:
        self.client, self.recorder = client, recorder

    async def write(
        self,
        seen: T,
        before: bytes,
        status: Any,
        condition: Condition,
        metrics: ControllerMetrics,
        *,
        warning_event: bool = True,
    ) -> T | None:
        """Send what changed of the status since `before`, if anything; returns the object as it is then.

        Only onto the very version that the answer was computed from: never onto an object that was deleted and made anew meanwhile,
        and never over the conditions of another writer, which a merge patch replaces with the whole list.
        """
        if isinstance(status, Status):
            _complete_status(status, seen, condition)
        after = msgspec.json.encode(status)
        if after == before:
            metrics.count_status_unchanged()
            return None
        # Before the first answer nothing is on the wire: what decodes as a default must still be written.
        old = (
            drop_status_nulls(msgspec.json.decode(before), before)
            if _has_been_written(seen)
            else {}
        )
        patch = build_merge_patch(old, drop_status_nulls(msgspec.to_builtins(status), after))
        if not patch:
            metrics.count_status_unchanged()
            return None
        try:
            written = await self.client.patch_status(
                type(seen), seen.key, patch, resource_version=seen.metadata.resourceVersion
            )
        except NotFound:
            return None
        metrics.count_status_write()
        if warning_event or condition.status != "False":
            self._record_ready_event(
                seen,
                type(seen),
                seen.status.conditions if isinstance(status, Status) else (),
                condition,
            )
        return written

    async def write_undecodable(self, seen: UndecodableObject, kind: type[T]) -> Outcome:
        """Say in the object's own status that it does not decode; trying again is useless until it changes."""
        words = f"{seen.message}. Change the object so that it fits the schema: kubectl explain {kind.definition.name.lower()}"
        condition = ready_condition("False", "Undecodable", words, seen.metadata.generation)
        conditions = with_condition(seen.conditions, condition)
        if conditions != seen.conditions:
            patch = {"conditions": drop_nulls(msgspec.to_builtins(conditions))}
            with suppress(NotFound, Undecodable, Invalid):
                await self.client.patch_status(
                    kind, seen.metadata.key, patch, resource_version=seen.metadata.resourceVersion
                )
            self._record_ready_event(seen, kind, seen.conditions, condition)
        return Outcome("error", condition, terminal=True)

    def _record_ready_event(
        self,
        seen: T | UndecodableObject,
        kind: type[T],
        conditions: Sequence[Condition],
        now: Condition,
    ) -> None:
        """An event when readiness turns False (or False for another reason), and when it is True again. A first success is no news."""
        old = next((c for c in conditions if c.type == READY_CONDITION), None)
        before = (old.status, old.reason, old.message) if old is not None else ("", "", "")
        if now.status == "False" and before != (now.status, now.reason, now.message):
            self.recorder.event(seen, kind.definition, "Warning", now.reason, now.message)
        elif now.status == "True" and before[0] == "False":
            self.recorder.event(
                seen, kind.definition, "Normal", now.reason, now.message or "works again"
            )


def drop_status_nulls(value: dict[str, Any], encoded: bytes) -> dict[str, Any]:
    """The value without nulls; most statuses have none below their own fields, and a look at the bytes tells."""
    flat = {name: field for name, field in value.items() if field is not None}
    deeper: dict[str, Any] = (
        flat if encoded.count(b":null") == len(value) - len(flat) else drop_nulls(flat)
    )
    return deeper


def _has_been_written(seen: Resource[Any, Any]) -> bool:
    """Whether a controller has written this status before; a status without our fields cannot tell, and has no defaults to write."""
    return getattr(seen.status, "observedGeneration", 0) is not None


def _complete_status(status: Status, seen: Resource[Any, Any], condition: Condition) -> None:
    """Add what a kind never writes: the conditions that were there, Ready, and observedGeneration."""
    conditions: list[Condition] = list(seen.status.conditions)
    for own in status.conditions:
        if own not in conditions:
            conditions = with_condition(conditions, own)
    status.conditions = with_condition(conditions, condition)
    status.observedGeneration = seen.metadata.generation
