"""Applies, repairs and prunes the objects that belong to an object.

Questions and answers:

When is nothing sent?  If the live object in the cache is what the last apply produced. After a
    restart: if it has the digest of the desired content in an annotation, and every desired value.
Can it take over an object of another client?  Not silently. A child that the cache does not have is
    applied with resourceVersion "1", which no stored object has: the API server creates it, or
    answers with a conflict if it exists. Every other apply names the uid of the live object.
Can it delete an object of another client?  No. It deletes what names the owner (by reference, or by
    label in another scope) and has the label of the controller, in the version that it read.
What if two calls for one owner run at the same time?  The second waits, and then finds nothing to
    do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

from msgspec import Struct

from .api_requests import request_for
from .cache import Cache, Origin
from .child_kinds import ChildKinds, check_unique
from .children import Children, ChildState
from .client import Client
from .errors import AlreadyExists, ApplyConflict, ConfigError, Conflict, Invalid, Retry, Terminal
from .kind import Key, Object
from .last_applied import ChildContested, LastApplied
from .log import Log
from .outcome import Waiting
from .own_writes import OwnWrites
from .ownership import (
    CONTROLLER_LABEL,
    OWNER_ANNOTATION,
    OWNER_UID_LABEL,
    DesiredChild,
    belongs_to,
    can_have_owner_reference,
    controller_of,
    read_owner_uids,
)
from .readiness import Readiness, readiness_of
from .recorder import EventRecorder
from .source import ChildId

T = TypeVar("T", bound=Object)

_OWNER_INDEX = "kubewright-owner-uid"
# The first revision of etcd is that of an empty store.
_MUST_NOT_EXIST = {"resourceVersion": "1"}
_MAX_ATTEMPTS = 5


class ApplyOptions(Struct, frozen=True):
    """How to apply: see `Controller.apply`."""

    prune: bool = True
    force: bool = True
    adopt: bool = False
    recreate: Sequence[Object] = ()


class ChildApplier:
    """The children of all objects of one controller."""

    def __init__(
        self,
        controller: str,
        owner_kind: type[Object],
        kinds: Iterable[type[Object]],
        cross_namespace_kinds: Iterable[type[Object]],
        *,
        client: Client,
        own_writes: OwnWrites[ChildId],
        enqueue: Callable[[Key], None],
        cache: Cache,
        recorder: EventRecorder,
        log: Log,
        namespaces: Sequence[str] = (),
    ) -> None:
        """`namespaces` are those that the manager watches; empty for all."""
        self._controller, self._client, self._cache = controller, client, cache
        self._own_writes, self._enqueue = own_writes, enqueue
        self._recorder, self._log = recorder, log
        self._kinds = ChildKinds(controller, kinds, cross_namespace_kinds, namespaces)
        self.memory = LastApplied()
        # By child, the owners that wait until an object of that name is gone. It may name another
        # owner or none, so its deletion would not enqueue them.
        self._waiting_owners: dict[ChildId, set[Key]] = {}
        # By the uid of the owner, what its current reconcile has applied so far.
        self._applied_now: dict[str, set[ChildId]] = {}
        # An entry stays as long as a call uses the lock.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        cache.store(owner_kind).changed.connect(self._on_owner_change)
        for kind, watched_kind in self._kinds.watched.items():
            store = cache.store(watched_kind)
            if _OWNER_INDEX not in store.indexes:
                store.add_index(_OWNER_INDEX, read_owner_uids)
            store.changed.connect(self._child_listener(kind))

    def _on_owner_change(self, key: Key, old: Any, new: Any, origin: Origin) -> None:
        if new is None:
            self.memory.forget_owner(old.metadata.uid)
            for owners in self._waiting_owners.values():
                owners.discard(key)

    def _child_listener(self, kind: type[Object]) -> Callable[[Key, Any, Any, Origin], None]:
        def on_change(key: Key, old: Any, new: Any, origin: Origin) -> None:
            if new is None and isinstance(old, Object):
                for uid in read_owner_uids(old):
                    self.memory.forget_child(uid, kind, key)
            for owner_key in self._waiting_owners.pop((kind, key), ()):
                self._enqueue(owner_key)

        return on_change

    @contextmanager
    def during_reconcile(self, owner: Object) -> Iterator[None]:
        """The context of one reconcile of the owner."""
        self._applied_now[owner.metadata.uid] = set()
        try:
            yield
        finally:
            del self._applied_now[owner.metadata.uid]

    async def apply(
        self, owner: Object, children: Sequence[Object], options: ApplyOptions
    ) -> Children:
        desired = [self._kinds.complete(owner, child) for child in children]
        check_unique(desired)
        self._check_stages(owner, desired, prune=options.prune)
        recreate = {self._kinds.complete(owner, child).identity for child in options.recreate}
        lock = self._locks.setdefault(owner.metadata.uid, asyncio.Lock())
        async with lock:
            states: list[ChildState] = []
            contested: ChildContested | None = None
            for child in desired:
                try:
                    states.append(
                        await self._apply_child(
                            owner, child, options, recreate=child.identity in recreate
                        )
                    )
                except ChildContested as error:
                    # A client that fights for one child must not stop the repair of the others.
                    contested = contested or error
            if contested is not None:
                raise contested
            if options.prune:
                await self._prune(owner, desired)
        return Children(owner.metadata.namespace, tuple(states))

    def _check_stages(self, owner: Object, desired: Sequence[DesiredChild], *, prune: bool) -> None:
        """Refuse a call that would prune what an earlier call of the same reconcile applied."""
        applied = self._applied_now.get(owner.metadata.uid, set())
        now = {child.identity for child in desired}
        if prune and (lost := applied - now):
            names = ", ".join(sorted(f"{kind.definition.name} {key}" for kind, key in lost))
            raise ConfigError(
                f"apply was called twice in one reconcile, and the second call would delete {names}"
                ": pass all children to the last call, and prune=False to those before it"
            )
        applied |= now

    async def _apply_child(
        self, owner: Object, desired: DesiredChild, options: ApplyOptions, *, recreate: bool
    ) -> ChildState:
        uid = owner.metadata.uid
        watched_kind = self._kinds.watched[desired.kind]
        live: Object | None = self._cache.get(watched_kind, desired.key)
        for _ in range(_MAX_ATTEMPTS):
            if live is not None and (reason := _find_reason_to_wait(live, owner)):
                self._wait_for_deletion(desired, owner)
                return ChildState(live, Readiness("Terminating", reason))
            if live is not None and not belongs_to(live, owner):
                self._check_adoption(live, desired, owner, adopt=options.adopt)
            elif live is not None and self.memory.needs_no_apply(uid, desired, live):
                return ChildState(live, readiness_of(live))
            try:
                with self._own_writes.write(
                    (watched_kind, desired.key), partial(self._enqueue, owner.key)
                ) as own_revisions:
                    live = await self._send(owner, desired, live, force=options.force)
                    own_revisions.append(live.metadata.revision)
            except Invalid as error:
                if not _is_uid_mismatch(error):
                    await self._handle_invalid(desired, live, error, recreate=recreate)
            except ApplyConflict:
                # Only with force, and then not because of a field: a retry would not help.
                raise
            except Conflict:
                pass
            else:
                # If the watch was faster, the cache has a copy, and one of the two can go.
                cached = self._cache.get(watched_kind, desired.key)
                if cached is not None and cached.metadata.revision == live.metadata.revision:
                    live = cached
                self.memory.record(uid, desired, live)
                return ChildState(live, readiness_of(live))
            # The cache is behind the server: the object was created, deleted or replaced.
            live = await self._read(desired)
        raise Conflict(f"{desired} is changed by other clients faster than it can be applied")

    def _check_adoption(
        self, live: Object, desired: DesiredChild, owner: Object, *, adopt: bool
    ) -> None:
        """Raise unless the controller may take over an object that the owner does not control."""
        controller = controller_of(live)
        other_owner = live.metadata.annotations.get(OWNER_ANNOTATION, "")
        if OWNER_UID_LABEL not in live.metadata.labels:
            other_owner = ""
        if controller is None and not other_owner and adopt:
            return
        self._wait_for_deletion(desired, owner)
        owner_name = f"{owner.definition.name} {owner.key}"
        if controller is not None:
            raise Retry(
                "ChildNotOwned",
                f"{desired} exists and is controlled by {controller.kind} {controller.name}, not "
                f"by {owner_name}. Rename one of them",
            )
        if other_owner:
            raise Retry(
                "ChildNotOwned",
                f"{desired} exists and is a child of {other_owner}, not of {owner_name}. Rename "
                f"one of them, or remove its label {OWNER_UID_LABEL} and pass adopt=True to apply",
            )
        raise Retry(
            "ChildNotOwned",
            f"{desired} exists and does not belong to {owner_name}. Rename or delete it, or pass "
            "adopt=True to apply to take it over",
        )

    def _wait_for_deletion(self, desired: DesiredChild, owner: Object) -> None:
        self._waiting_owners.setdefault(desired.identity, set()).add(owner.key)

    async def _send(
        self, owner: Object, desired: DesiredChild, live: Object | None, *, force: bool
    ) -> Object:
        precondition = _MUST_NOT_EXIST if live is None else {"uid": live.metadata.uid}
        metadata = desired.manifest["metadata"] | precondition
        manifest = desired.manifest | {"metadata": metadata}

        async def send(*, force: bool) -> Object:
            return await self._client.patch(
                desired.kind,
                desired.key,
                manifest,
                patch_type="apply",
                field_manager=self._controller,
                force=force,
            )

        try:
            return await send(force=False)
        except ApplyConflict as error:
            conflicts = ", ".join(
                f'{field} is managed by "{manager}"' for manager, field in error.conflicts
            )
        if not force:
            raise Retry(
                "FieldConflict",
                f"{desired}: {conflicts}. Remove the field from that manager, or leave it out of "
                "the child",
            )
        self._log.info("taking over fields of a child", child=str(desired), conflicts=conflicts)
        message = f"{desired}: {conflicts}; the value of the controller replaces it"
        self._recorder.event(owner, "Warning", "FieldConflict", message)
        return await send(force=True)

    async def _handle_invalid(
        self, desired: DesiredChild, live: Object | None, error: Invalid, *, recreate: bool
    ) -> None:
        """Delete the live object if only a new one can have the desired content, else raise."""
        if live is None or not await self._passes_create_dry_run(desired):
            message = f"{desired} is invalid: {error}"
            raise Terminal("InvalidChild", message, keep_status=True) from error
        fields = ", ".join(sorted({cause.field for cause in error.causes})) or "a field"
        if not recreate:
            raise Terminal(
                "ImmutableField",
                f"{desired}: {fields} cannot be changed: {error}. Undo the change, delete the "
                "object, or name it in recreate of apply to have it deleted and created again",
                keep_status=True,
            ) from error
        self._log.info("recreating a child", child=str(desired), fields=fields)
        await self._delete(live)

    async def _passes_create_dry_run(self, desired: DesiredChild) -> bool:
        """Whether the API server would admit the object if none of that name existed."""
        # It validates an object before it finds that the name is taken.
        request = request_for(
            "POST",
            desired.kind.definition,
            Key(desired.key.namespace, ""),
            query={"dryRun": "All"},
            body=desired.manifest,
        )
        try:
            await self._client.transport.send(request)
        except AlreadyExists:
            return True
        except Invalid:
            return False
        return True

    async def _read(self, desired: DesiredChild) -> Object | None:
        """The object from the API server; by a list, because the role has no permission to get."""
        selector = f"metadata.name={desired.key.name}"
        objects = await self._client.list(
            desired.kind, desired.key.namespace, field_selector=selector
        )
        return objects[0] if objects else None

    def children_of(self, owner: Object, kind: type[T]) -> list[T]:
        """The children of the owner in the cache, without those of other controllers."""
        watched_kind = cast("type[T]", self._kinds.watched.get(kind, kind))
        return [
            obj
            for obj in self._cache.by_index(watched_kind, _OWNER_INDEX, owner.metadata.uid)
            if belongs_to(obj, owner)
            and obj.metadata.labels.get(CONTROLLER_LABEL) == self._controller
        ]

    async def _prune(self, owner: Object, desired: Sequence[DesiredChild]) -> None:
        kept = {child.identity for child in desired}
        for kind in self._kinds.watched:
            for obj in self.children_of(owner, kind):
                if (kind, obj.key) not in kept and obj.metadata.deletionTimestamp is None:
                    await self._delete(obj)

    async def _delete(self, obj: Object) -> None:
        self._log.info("deleting a child", child=f"{obj.definition.name} {obj.key}")
        await self._client.delete(
            type(obj),
            obj.key,
            uid=obj.metadata.uid,
            resource_version=obj.metadata.resourceVersion,
        )

    async def finalize(self, owner: Object) -> Waiting | None:
        """Delete the children without an owner reference: no garbage collector deletes them."""
        selector = f"{OWNER_UID_LABEL}={owner.metadata.uid},{CONTROLLER_LABEL}={self._controller}"
        remaining: list[str] = []
        for kind in self._kinds.cross_namespace:
            namespaces = self._kinds.namespaces if kind.definition.namespaced else ()
            for namespace in namespaces or ("",):
                # From the API server: the cache may not have the child that was created last.
                find_children = partial(self._client.list, kind, namespace, label_selector=selector)
                for obj in await find_children():
                    if obj.metadata.deletionTimestamp is None:
                        await self._delete(obj)
                remaining += (f"{kind.definition.name} {obj.key}" for obj in await find_children())
        if not remaining:
            return None
        return Waiting("DeletingChildren", f"Waiting for the deletion of {', '.join(remaining)}")


def _find_reason_to_wait(live: Object, owner: Object) -> str:
    """Why a child cannot be applied yet although nothing is wrong; else an empty string."""
    if live.metadata.deletionTimestamp is not None:
        return "being deleted; it is created again afterwards"
    controller = controller_of(live)
    if controller is None or controller.uid == owner.metadata.uid:
        return ""
    if not can_have_owner_reference(owner, type(live), live.metadata.namespace):
        # An owner of the same name in another namespace is another one.
        return ""
    group = controller.apiVersion.rpartition("/")[0]
    if (group, controller.kind, controller.name) != (
        owner.definition.group,
        owner.definition.name,
        owner.metadata.name,
    ):
        return ""
    return f"waiting for its deletion, since it belongs to a deleted {controller.kind}"


def _is_uid_mismatch(error: Invalid) -> bool:
    # This is how the API server rejects an apply with the uid of an earlier object of that name.
    return any(cause.field == "metadata.uid" for cause in error.causes)
