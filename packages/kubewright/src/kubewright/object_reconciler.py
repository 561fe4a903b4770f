"""One run of a controller for one object: finalizer, copy, user code, status.

User code gets a copy of the object, since the cache shares its objects. Only the status of the copy
is written. A changed spec or metadata would be lost, so it is an error.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec.structs import replace

from .client import Client
from .consequence import Consequence, consequence_of_error, consequence_of_outcome
from .controller import FINALIZER_PREFIX, Controller
from .errors import NotFound, NotLeader, Terminal
from .kind import Key, Object, ObjectMeta
from .metrics import ControllerMetrics
from .nulls import drop_nulls
from .running_calls import RunningCalls
from .source import PrimaryKindSource
from .status import StatusWriter
from .threads import ReconcileThreads, is_blocking

T = TypeVar("T", bound=Object)

_UserCode = Callable[[Any], Awaitable[object]]
_ENCODER = msgspec.json.Encoder()
_NO_METADATA = ObjectMeta()


class ObjectReconciler(Generic[T]):
    """Runs `reconcile`, `finalize` and `reconcile_deleted` of one controller."""

    def __init__(
        self,
        controller: Controller[T],
        client: Client,
        status_writer: StatusWriter,
        primary_source: PrimaryKindSource,
        metrics: ControllerMetrics,
        *,
        clears_status: bool,
    ) -> None:
        """`clears_status`: whether Terminal resets the status to its defaults."""
        self._controller, self._client, self._metrics = controller, client, metrics
        self._status_writer, self._primary_source = status_writer, primary_source
        self._clears_status = clears_status
        # A class attribute cannot be generic, so mypy does not know that this is T.
        self._kind: type[T] = controller.kind  # type: ignore[assignment]
        self._decode = self._kind.definition.decoder.decode
        self.running_calls = RunningCalls(controller.timeout_seconds)
        self.threads = ReconcileThreads(controller.name)
        self._reconcile = self._as_async("reconcile")
        self._reconcile_deleted = self._as_async("reconcile_deleted")
        self.draining = False
        """Whether the manager is stopping: running user code may finish, or be cancelled."""
        self.cancelled = False
        """Whether the manager has cancelled the user code that is still running."""

    async def reconcile(self, obj: T) -> Consequence:
        finalizer, finalizers = self._controller.finalizer, obj.metadata.finalizers
        deleting = obj.metadata.deletionTimestamp is not None
        if deleting and finalizer not in finalizers:
            consequence = self._check_finalizers(obj)
            await self._status_writer.write(
                obj, getattr(self._copy(obj), "status", None), consequence
            )
            return consequence
        if finalizer and not deleting and finalizer not in finalizers:
            with_finalizer = await self._set_finalizers(obj, [*finalizers, finalizer])
            if with_finalizer is None:
                return Consequence("success", None)
            obj = with_finalizer
        copy = self._copy(obj)
        run = self._finalize if deleting else self._reconcile
        with self._reconcile_context(obj):
            consequence = await self._run_user_code(run, copy, obj.key, obj.metadata.generation)
        consequence = self._check_copy(obj, copy, consequence)
        if deleting:
            ready = consequence.condition is not None and consequence.condition.status == "True"
            # With a delay, cleanup goes on: `Done(requeue_after_seconds=...)` keeps the finalizer,
            # although the type of finalize does not allow it.
            if ready and consequence.requeue_after_seconds is None:
                await self._set_finalizers(obj, [name for name in finalizers if name != finalizer])
                return consequence
        status: Any = getattr(copy, "status", None)
        if consequence.clear_status and self._clears_status and not deleting:
            status = type(status)()
        if consequence.condition is not None:
            await self._status_writer.write(obj, status, consequence)
        return consequence

    def _reconcile_context(self, obj: T) -> AbstractContextManager[None]:
        if not self._controller.child_kinds:
            return nullcontext()
        return self._controller.child_applier.during_reconcile(obj)

    def _check_finalizers(self, obj: T) -> Consequence:
        """What follows for a deleted object without our finalizer."""
        left = f"{FINALIZER_PREFIX}{self._controller.name}"
        if left not in obj.metadata.finalizers:
            return Consequence("success", None)
        definition = self._kind.definition
        namespace = f" -n {obj.metadata.namespace}" if obj.metadata.namespace else ""
        error = Terminal(
            "FinalizerNotDeclared",
            f"The finalizer {left} is from a release that owned kinds with cross_namespace=True. "
            "Declare these kinds again, or delete the children in other namespaces and remove the "
            "finalizer with: "
            f"kubectl edit {definition.group_resource}{namespace} {obj.metadata.name}",
            keep_status=True,
        )
        return consequence_of_error(error, obj.metadata.generation)

    def _copy(self, obj: T) -> T:
        # JSON is the fastest deep copy. Without the metadata it takes half of the time, and of the
        # metadata only the containers can be changed.
        metadata = obj.metadata
        content = replace(obj, metadata=_NO_METADATA)
        copy: T
        try:
            copy = self._decode(_ENCODER.encode(content))
        except msgspec.ValidationError:
            # Another operator may store an object without a spec, which is None here.
            copy = self._decode(_ENCODER.encode(drop_nulls(msgspec.to_builtins(content))))
        copy.metadata = replace(
            metadata,
            labels=dict(metadata.labels),
            annotations=dict(metadata.annotations),
            finalizers=list(metadata.finalizers),
            ownerReferences=list(metadata.ownerReferences),
        )
        return copy

    async def reconcile_deleted(self, key: Key) -> Consequence:
        consequence = await self._run_user_code(self._reconcile_deleted, key, key, 0)
        # There is no object to report on.
        return replace(consequence, condition=None)

    async def _finalize(self, obj: T) -> object:
        returned = None
        if self._controller.overrides("finalize"):
            returned = await self._as_async("finalize")(obj)
        if returned is None and self._controller.child_kinds:
            # The author may need the children to clean up, so they go last.
            returned = await self._controller.child_applier.finalize(obj)
        return returned

    def _as_async(self, name: str) -> _UserCode:
        """The method of the controller, or a function that runs it in a thread."""
        method = getattr(self._controller, name)
        if not is_blocking(method):
            return cast("_UserCode", method)

        async def run_in_thread(argument: Any) -> object:
            key = argument if isinstance(argument, Key) else argument.key
            returned = await self.threads.run(key, method, argument)
            # A plain function may return the coroutine of another.
            return await returned if inspect.isawaitable(returned) else returned

        return run_in_thread

    async def _run_user_code(
        self, run: _UserCode, argument: object, key: Key, generation: int
    ) -> Consequence:
        """Whatever user code raises or returns becomes a consequence."""
        self.running_calls.begin(key)
        try:
            consequence = consequence_of_outcome(await run(argument), generation)
        except asyncio.CancelledError as error:
            if key in self.running_calls.handed_over:
                handed_over = NotLeader("another replica takes over the object")
                consequence = consequence_of_error(handed_over, generation)
            elif key in self.running_calls.timed_out and not self.cancelled:
                self._metrics.timeouts.inc()
                timeout = TimeoutError(self._describe_timeout(key))
                consequence = consequence_of_error(timeout, generation)
            else:
                self.absorb_cancellation(error)
                consequence = consequence_of_error(error, generation)
        except (Exception, SystemExit) as error:
            consequence = consequence_of_error(error, generation)
        finally:
            self.running_calls.end(key)
            _clear_cancellations()
        if self.cancelled:
            # User code has caught the cancellation by `stop` and ended in another way. Its result
            # may be that of half the work: the next manager does it again.
            raise asyncio.CancelledError
        return consequence

    def _describe_timeout(self, key: Key) -> str:
        message = f"The reconcile took longer than {self._controller.timeout_seconds:g} s and was "
        message += "stopped; it is retried"
        if key in self.threads.unfinished:
            message += " when its thread has ended, which cannot be stopped"
        return message

    def absorb_cancellation(self, error: BaseException) -> None:
        """Only the end of the manager ends a worker. Any other cancellation came from inside user
        code, and is a failure of that key alone.
        """
        if isinstance(error, asyncio.CancelledError) and self.draining:
            raise error
        _clear_cancellations()

    def _check_copy(self, obj: T, copy: T, consequence: Consequence) -> Consequence:
        """The consequence, or an error if user code has set something that is not written."""
        mistake = ""
        for field in copy.__struct_fields__:
            old, new = getattr(obj, field), getattr(copy, field)
            if field != "status" or not self._controller.writes_status:
                if new != old:
                    mistake = _describe_lost_change(self._kind, field)
            elif not isinstance(new, type(old)):
                mistake = f"the reconcile set status to a {type(new).__name__}, "
                mistake += f"not a {type(old).__name__}"
                setattr(copy, field, getattr(self._copy(obj), field))
        if mistake and consequence.error is None:
            return consequence_of_error(TypeError(mistake), obj.metadata.generation)
        return consequence

    async def _set_finalizers(self, obj: T, finalizers: list[str]) -> T | None:
        """Write the list of finalizers; returns None if the object no longer exists."""
        # A merge patch replaces the whole list, so the patch names the version that it was made
        # from: another controller may have added its own finalizer since.
        metadata = {
            "resourceVersion": obj.metadata.resourceVersion,
            "finalizers": finalizers or None,
        }
        with self._primary_source.own_write(obj.key) as own_revisions:
            try:
                written = await self._client.patch(self._kind, obj.key, {"metadata": metadata})
            except NotFound:
                return None
            own_revisions.append(written.metadata.revision)
        return written


def _describe_lost_change(kind: type[Object], field: str) -> str:
    name = kind.__name__
    patch = f'self.client.patch({name}, obj.key, {{"{field}": ...}})'
    if field == "status":
        patch = f"writes_status = True, or self.client.patch_status({name}, obj.key, ...)"
    return (
        f"the reconcile changed {field} of its copy of the object, which is not written to the API "
        f"server; use {patch}"
    )


def _clear_cancellations() -> None:
    """Undo cancellations that user code left on its task, for example by a failed TaskGroup.

    The next `asyncio.timeout` would mistake them for the engine being stopped.
    """
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
