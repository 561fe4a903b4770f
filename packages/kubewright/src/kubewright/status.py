"""Reports the result of each reconcile: one write of the status with what changed, or none.

The status of a kind of our own has a condition for the outcome. An Event is recorded when it
becomes False, or is False with another reason or message, and when it becomes True again. A first
success causes no Event. An object without such a condition has Events and log lines instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from .client import Client
from .condition import (
    READY_CONDITION,
    STALLED_CONDITION,
    Condition,
    find_condition,
    ready_condition,
    utc_now,
    with_condition,
)
from .consequence import Consequence
from .errors import Forbidden, Invalid, NotFound, Undecodable
from .kind import Key, Object, ObjectMeta, Status
from .log import Log
from .metrics import ControllerMetrics
from .nulls import drop_nulls
from .patch import Json
from .recorder import EventRecorder
from .responses import UndecodableObject

T = TypeVar("T", bound=Object)


class StatusWriter:
    """Writes statuses through the client, which puts the response into the cache."""

    def __init__(
        self,
        kind: type[Object],
        client: Client,
        recorder: EventRecorder,
        metrics: ControllerMetrics,
        log: Log,
        *,
        own_write: Callable[[Key], AbstractContextManager[list[int]]],
        writes_status: bool = True,
        condition_type: str = READY_CONDITION,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """`own_write` is the context of a write, in which the object is not enqueued.
        `condition_type` is the type of the condition for the outcome; "" for none.
        """
        self._definition, self._client, self._recorder = kind.definition, client, recorder
        self._metrics, self._log = metrics, log
        self._own_write, self._clock = own_write, clock
        self._writes_status, self._condition_type = writes_status, condition_type
        self._reported: dict[Key, Condition] = {}
        """The last condition of each object that is not ready, if its status has none."""
        self._without_stalled: set[Key] = set()
        """Objects from which this process has removed Stalled: a new one has another writer."""
        self._replaces_first = kind.definition.can_replace_status
        """Whether the first status of an object is sent by PUT, which costs the server less."""

    async def write(self, obj: Object, status: Any, consequence: Consequence) -> None:
        """Send what changed in the status.

        `obj` is the object that the reconcile read, and `status` what it set. The write names the
        resourceVersion of `obj`, so it never lands on an object that was deleted and created again
        in the meantime. It also never overwrites the conditions of another writer: the whole list
        is replaced.
        """
        condition = consequence.condition
        if condition is None:
            return
        has_condition = self._writes_status and self._condition_type and isinstance(status, Status)
        if not has_condition:
            self._report(obj.metadata, condition, consequence)
        if not self._writes_status:
            return
        old_status = getattr(obj, "status", None)
        if isinstance(status, Status):
            if condition.type != self._condition_type:
                condition = replace(condition, type=self._condition_type)
            outcome = condition if has_condition else None
            if _complete_status(
                status,
                obj,
                outcome,
                consequence.stalled,
                self._clock(),
                keep_foreign_stalled=obj.key in self._without_stalled,
            ):
                self._without_stalled.add(obj.key)
        if status == old_status:
            self._metrics.status_unchanged.inc()
            return
        # A status that was never written has no fields on the wire, so the defaults that it
        # decodes to have to be sent as well. Every write with Ready sets observedGeneration, so it
        # is None until the first one. A status class that does not extend Status lacks it, and is
        # treated as written.
        was_written = getattr(old_status, "observedGeneration", 0) is not None
        if self._condition_type != READY_CONDITION:
            was_written = was_written or old_status != type(status)()
        replaces = not was_written and self._replaces_first
        # A first status with a condition is not empty, so that its patch is not needed.
        is_changed = replaces and has_condition
        patch: Json = {}
        if not is_changed:
            patch = _patch_of_status(old_status if was_written else None, status)
        if not (is_changed or patch):
            self._metrics.status_unchanged.inc()
            return
        # The watch event of this write must not enqueue the object again. It is recognized by its
        # revision: the resourceVersion as a number.
        with self._own_write(obj.key) as own_revisions:
            try:
                if replaces:
                    written = await self._replace(obj, status)
                else:
                    written = await self._patch(obj, patch)
            except NotFound:
                # Deleted in the meantime: there is nothing left to report.
                return
            own_revisions.append(written.metadata.revision)
        self._metrics.status_writes.inc()
        if has_condition and (consequence.warning_event or condition.status != "False"):
            stored = find_condition(getattr(old_status, "conditions", ()), self._condition_type)
            self._record_transition(obj.metadata, stored, condition)

    async def _patch(self, obj: Object, patch: Json) -> Object:
        version = obj.metadata.resourceVersion
        return await self._client.patch_status(type(obj), obj.key, patch, resource_version=version)

    async def _replace(self, obj: Any, status: Any) -> Object:
        """Send a first status as a whole. Later, a patch keeps fields that a newer release wrote
        and this one does not declare.
        """
        try:
            return await self._client.replace_status(replace(obj, status=status))
        except Forbidden:
            # The role is one from before this was done: it has only the verb `patch`.
            self._replaces_first = False
            return await self._patch(obj, _patch_of_status(None, status))

    async def write_undecodable(self, obj: UndecodableObject, kind: type[T]) -> Condition:
        """Report that an object cannot be decoded; return the condition."""
        # These two names are the placeholders on the reference page of conditions.
        decoding_error, resource = obj.message, kind.definition.name.lower()
        message = (
            f"{decoding_error}. Change the object so that it matches the schema; see it with: "
            f"kubectl explain {resource}"
        )
        condition = ready_condition("False", "Undecodable", message, obj.metadata.generation)
        if not (self._writes_status and self._condition_type):
            self._report(obj.metadata, condition, Consequence("error", condition))
            return condition
        condition = replace(condition, type=self._condition_type)
        conditions = _with_outcome(obj.conditions, condition, self._clock(), stalled=True)
        if conditions != obj.conditions:
            patch = {"conditions": drop_nulls(msgspec.to_builtins(conditions))}
            # The response is the same object, which cannot be decoded and may violate its schema.
            with suppress(NotFound, Undecodable, Invalid):
                await self._client.patch_status(
                    kind, obj.metadata.key, patch, resource_version=obj.metadata.resourceVersion
                )
            stored = find_condition(obj.conditions, self._condition_type)
            self._record_transition(obj.metadata, stored, condition)
        return condition

    def forget(self, key: Key) -> None:
        """The object no longer exists."""
        self._reported.pop(key, None)
        self._without_stalled.discard(key)

    def _report(self, metadata: ObjectMeta, condition: Condition, consequence: Consequence) -> None:
        """Record an Event and a log line instead of a condition, if something changed."""
        key = metadata.key
        reported = self._reported.pop(key, None)
        if condition.status == "False":
            self._reported[key] = condition
        elif reported is None:
            return
        if consequence.warning_event or condition.status == "True":
            self._record_transition(metadata, reported, condition)
        # The engine logs every error.
        if consequence.metric_result != "error" and (
            reported is None
            or (reported.reason, reported.message) != (condition.reason, condition.message)
        ):
            self._log.info(
                "the object is not ready" if condition.status == "False" else "the object is ready",
                reason=condition.reason,
                message=condition.message,
            )

    def _record_transition(
        self, metadata: ObjectMeta, old: Condition | None, new: Condition
    ) -> None:
        old_state = (old.status, old.reason, old.message) if old is not None else ("", "", "")
        if new.status == "False" and old_state != (new.status, new.reason, new.message):
            self._recorder.event_about(
                metadata, self._definition, "Warning", new.reason, new.message
            )
        elif new.status == "True" and old_state[0] == "False":
            # A first success is not reported: only a recovery is recorded.
            message = new.message or "Reconciled successfully after a previous failure."
            self._recorder.event_about(metadata, self._definition, "Normal", new.reason, message)


def _complete_status(
    status: Status,
    obj: Any,
    outcome: Condition | None,
    stalled: bool,
    now: datetime,
    *,
    keep_foreign_stalled: bool,
) -> bool:
    """Add the conditions of other writers, times and generations, and the outcome.

    Returns whether a stored Stalled was removed.
    """
    stored: Sequence[Condition] = obj.status.conditions
    generation, removed = obj.metadata.generation, status.removed_conditions
    conditions = [condition for condition in stored if condition.type not in removed]
    for reported in status.conditions:
        if reported not in stored:
            observed = reported.observedGeneration or generation
            own = replace(reported, observedGeneration=observed)
            conditions = with_condition(conditions, own, now)
            keep_foreign_stalled |= own.type == STALLED_CONDITION
    if outcome is not None:
        conditions = _with_outcome(
            conditions, outcome, now, stalled=stalled, keep_foreign_stalled=keep_foreign_stalled
        )
        if outcome.type == READY_CONDITION:
            status.observedGeneration = generation
    status.conditions = conditions
    return (
        find_condition(stored, STALLED_CONDITION) is not None
        and find_condition(conditions, STALLED_CONDITION) is None
    )


def _with_outcome(
    conditions: list[Condition],
    outcome: Condition,
    now: datetime,
    *,
    stalled: bool,
    keep_foreign_stalled: bool = False,
) -> list[Condition]:
    """The conditions with the outcome, and with Stalled if the object needs an action.

    Otherwise Stalled is removed, as kstatus recommends. One that differs from the stored Ready may
    have another writer. It may also be left over: a version that does not know Stalled has changed
    Ready. So it is removed, but not again if it comes back.
    """
    old_ready = find_condition(conditions, READY_CONDITION)
    old_stalled = find_condition(conditions, STALLED_CONDITION)
    conditions = with_condition(conditions, outcome, now)
    if outcome.type != READY_CONDITION:
        return conditions
    if stalled:
        stalled_condition = replace(outcome, type=STALLED_CONDITION, status="True")
        return with_condition(conditions, stalled_condition, now)
    if old_stalled is None or old_ready is None:
        return conditions
    is_own = (old_stalled.reason, old_stalled.message) == (old_ready.reason, old_ready.message)
    # The engine has set observedGeneration in every Stalled that it wrote.
    is_leftover = old_stalled.observedGeneration > 0 and not keep_foreign_stalled
    if is_own or is_leftover:
        return [condition for condition in conditions if condition.type != STALLED_CONDITION]
    return conditions


def _patch_of_status(old: Any, new: Any) -> Json:
    """The merge patch from one status to another; `old` is None if nothing was written."""
    stored = {} if old is None else drop_nulls(msgspec.to_builtins(old))
    return build_merge_patch(stored, drop_nulls(msgspec.to_builtins(new)))


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
