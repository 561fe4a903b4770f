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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

from .api_requests import request_for
from .cache import Cache, Origin
from .children import Children, ChildState
from .client import Client
from .errors import AlreadyExists, ApplyConflict, ConfigError, Conflict, Invalid, Retry, Terminal
from .kind import Key, Object
from .last_applied import LastApplied
from .log import Log
from .outcome import Waiting
from .own_writes import OwnWrites
from .ownership import (
    CONTROLLER_LABEL,
    OWNER_UID_LABEL,
    DesiredChild,
    belongs_to,
    can_have_owner_reference,
    complete_child,
    controller_of,
    read_owner_uids,
)
from .readiness import Readiness, readiness_of
from .recorder import EventRecorder
from .selection import declared_kind
from .source import ChildId

T = TypeVar("T", bound=Object)

_OWNER_INDEX = "kubewright-owner-uid"
# The first revision of etcd is that of an empty store.
_MUST_NOT_EXIST = {"resourceVersion": "1"}
_MAX_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class ApplyOptions:
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
        self._own_writes, self._enqueue, self._namespaces = own_writes, enqueue, namespaces
        self._recorder, self._log = recorder, log
        self._watched_kinds = {declared_kind(kind): kind for kind in kinds}
        """By the kind of a child, the kind that is watched for it, which may be a selection."""
        self._cross_namespace_kinds = set(map(declared_kind, cross_namespace_kinds))
        self.memory = LastApplied()
        # By child, the owner that waits until an object of another client is gone.
        self._waiting_owners: dict[ChildId, Key] = {}
        # An entry stays as long as a call uses the lock.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        cache.store(owner_kind).changed.connect(self._on_owner_change)
        for kind, watched_kind in self._watched_kinds.items():
            store = cache.store(watched_kind)
            if _OWNER_INDEX not in store.indexes:
                store.add_index(_OWNER_INDEX, read_owner_uids)
            store.changed.connect(self._child_listener(kind))

    def _on_owner_change(self, key: Key, old: Any, new: Any, origin: Origin) -> None:
        if new is None:
            self.memory.forget_owner(old.metadata.uid)
            self._waiting_owners = {
                child: owner for child, owner in self._waiting_owners.items() if owner != key
            }

    def _child_listener(self, kind: type[Object]) -> Callable[[Key, Any, Any, Origin], None]:
        def on_change(key: Key, old: Any, new: Any, origin: Origin) -> None:
            if new is None and isinstance(old, Object):
                for uid in read_owner_uids(old):
                    self.memory.forget_child(uid, kind, key)
            if owner_key := self._waiting_owners.pop((kind, key), None):
                self._enqueue(owner_key)

        return on_change

    async def apply(
        self, owner: Object, children: Sequence[Object], options: ApplyOptions
    ) -> Children:
        desired = [self._complete(owner, child) for child in children]
        _check_unique(desired)
        recreate = {self._complete(owner, child).identity for child in options.recreate}
        lock = self._locks.setdefault(owner.metadata.uid, asyncio.Lock())
        async with lock:
            states = [
                await self._apply_child(owner, child, options, recreate=child.identity in recreate)
                for child in desired
            ]
            if options.prune:
                await self._prune(owner, desired)
        return Children(owner.metadata.namespace, tuple(states))

    def _complete(self, owner: Object, child: Object) -> DesiredChild:
        desired = complete_child(owner, child, self._controller)
        kind, name = desired.kind, desired.kind.__name__
        if kind not in self._watched_kinds:
            raise ConfigError(f"{name} is not declared: add self.owns({name}) to __init__")
        watched = self._watched_kinds[kind].definition
        if watched.metadata_only or (watched.selection and watched.selection.transform):
            raise ConfigError(
                f"{name} cannot be applied with metadata_only or transform, because the cache does "
                "not hold the fields to compare"
            )
        can_refer = can_have_owner_reference(owner, kind, desired.key.namespace)
        if not can_refer and kind not in self._cross_namespace_kinds:
            raise ConfigError(
                f"{desired} cannot have an owner reference to the {owner.definition.name} "
                f"{owner.key}: declare self.owns({name}, cross_namespace=True), and the "
                "controller's finalizer deletes it"
            )
        if self._namespaces and desired.key.namespace not in ("", *self._namespaces):
            raise ConfigError(
                f"{desired} is in a namespace that the manager does not watch, so it would not "
                "notice changes: add the namespace to -watch-namespaces"
            )
        return desired

    async def _apply_child(
        self, owner: Object, desired: DesiredChild, options: ApplyOptions, *, recreate: bool
    ) -> ChildState:
        uid = owner.metadata.uid
        watched_kind = self._watched_kinds[desired.kind]
        live: Object | None = self._cache.get(watched_kind, desired.key)
        for _ in range(_MAX_ATTEMPTS):
            if live is not None and (reason := _find_reason_to_wait(live, owner)):
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
        if controller is None and adopt:
            return
        # Its deletion enqueues this owner, although it names another one or none.
        self._waiting_owners[desired.identity] = owner.key
        owner_name = f"{owner.definition.name} {owner.key}"
        if controller is not None:
            raise Retry(
                "ChildNotOwned",
                f"{desired} exists and is controlled by {controller.kind} {controller.name}, not "
                f"by {owner_name}. Rename one of them",
            )
        raise Retry(
            "ChildNotOwned",
            f"{desired} exists and does not belong to {owner_name}. Rename or delete it, or pass "
            "adopt=True to apply to take it over",
        )

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
            raise Terminal("InvalidChild", f"{desired} is invalid: {error}") from error
        fields = ", ".join(sorted({cause.field for cause in error.causes})) or "a field"
        if not recreate:
            raise Terminal(
                "ImmutableField",
                f"{desired}: {fields} cannot be changed: {error}. Undo the change, delete the "
                "object, or name it in recreate of apply to have it deleted and created again",
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
        watched_kind = cast("type[T]", self._watched_kinds.get(kind, kind))
        return [
            obj
            for obj in self._cache.by_index(watched_kind, _OWNER_INDEX, owner.metadata.uid)
            if belongs_to(obj, owner)
            and obj.metadata.labels.get(CONTROLLER_LABEL) == self._controller
        ]

    async def _prune(self, owner: Object, desired: Sequence[DesiredChild]) -> None:
        kept = {child.identity for child in desired}
        for kind in self._watched_kinds:
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
        for kind in self._cross_namespace_kinds:
            namespaces = self._namespaces if kind.definition.namespaced else ()
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


def _check_unique(desired: Sequence[DesiredChild]) -> None:
    for index, child in enumerate(desired):
        if any(child.identity == other.identity for other in desired[:index]):
            raise ConfigError(f"{child} is passed twice, so one would overwrite the other")


def _find_reason_to_wait(live: Object, owner: Object) -> str:
    """Why a child cannot be applied yet although nothing is wrong; else an empty string."""
    if live.metadata.deletionTimestamp is not None:
        return "being deleted; it is created again afterwards"
    controller = controller_of(live)
    if controller is None or controller.uid == owner.metadata.uid:
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
