"""The Kubernetes verbs, with the kind as first argument: `await client.get(HostInfo, key)`. A
client always asks the API server; the cache answers from memory.

`api_requests` builds each request without a network. The methods send it and decode the response.

Every write takes `field_manager` (default: the manager's name) and `dry_run`: the server validates
and answers, but stores nothing.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeVar, overload

import msgspec
from msgspec.structs import replace

from .api_requests import (
    ENCODER,
    METADATA_ONLY_LIST,
    JsonPatch,
    PatchType,
    PropagationPolicy,
    delete_options,
    patch_request,
    request_for,
    require_complete,
)
from .definition import KindDefinition
from .errors import Gone, NotFound
from .kind import Key, Object
from .overlay import overlay
from .patch import Json
from .reader import PAGE_SIZE, Reader, selector_query
from .responses import (
    UndecodableObject,
    decode_continue_token,
    decode_item,
    removed_uid,
)
from .transport import ApiTransport, Request

T = TypeVar("T", bound=Object)
# By default the API server searches for fields that the schema does not have, and warns about them
# in a header that nothing reads. Such a field is dropped in either case.
_STATUS_QUERY = {"fieldValidation": "Ignore"}


class WriteListener(Protocol):
    """What a client reports its writes to: a cache."""

    def apply_own_write(self, obj: Object, raw: bytes) -> None:
        """`raw` is the stored object as the server returned it, and `obj` the same decoded."""
        ...

    def apply_own_delete(self, definition: KindDefinition, key: Key, uid: str) -> None:
        """The server has removed the object with this uid."""
        ...


class Client(Reader):
    def __init__(
        self,
        transport: ApiTransport,
        *,
        field_manager: str = "kubewright",
        cache: WriteListener | None = None,
    ) -> None:
        """Writes and deletes are visible in `cache` when the call returns."""
        super().__init__(transport)
        self._default_write_query = {"fieldManager": field_manager}
        self._cache = cache

    async def create(self, obj: T, *, field_manager: str | None = None, dry_run: bool = False) -> T:
        request = request_for(
            "POST",
            obj.definition,
            Key(obj.metadata.namespace, ""),
            query=self._write_query(field_manager, dry_run),
            body=obj.encode(),
        )
        return await self._send_write(type(obj), request, dry_run)

    async def create_subresource(
        self,
        kind: type[Object],
        key: Key,
        subresource: str,
        body: Json | Object,
        *,
        field_manager: str | None = None,
        dry_run: bool = False,
    ) -> Json:
        """Post to a subresource: an Eviction to "eviction", a TokenRequest to "token"."""
        request = request_for(
            "POST",
            kind.definition,
            key,
            subresource=subresource,
            query=self._write_query(field_manager, dry_run),
            body=body.encode() if isinstance(body, Object) else body,
        )
        # The response is of another kind, or a Status.
        return await self._send_json(replace(request, accept="application/json"))

    async def apply(
        self,
        obj: T,
        *,
        subresource: str = "",
        field_manager: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> T:
        """Create or change the object by server-side apply: only the fields that `obj` sets.

        A field that this field manager applied before and that `obj` does not set is removed.
        Raises ApplyConflict if another manager owns a field, unless `force` takes it over.
        """
        return await self.patch(
            type(obj),
            obj.key,
            obj,
            patch_type="apply",
            subresource=subresource,
            field_manager=field_manager,
            force=force,
            dry_run=dry_run,
        )

    @overload
    async def patch(
        self,
        kind: type[T],
        key: Key,
        patch: Json,
        *,
        patch_type: Literal["merge"] = "merge",
        subresource: str = "",
        field_manager: str | None = None,
        dry_run: bool = False,
    ) -> T: ...

    @overload
    async def patch(
        self,
        kind: type[T],
        key: Key,
        patch: JsonPatch,
        *,
        patch_type: Literal["json"],
        subresource: str = "",
        field_manager: str | None = None,
        dry_run: bool = False,
    ) -> T: ...

    @overload
    async def patch(
        self,
        kind: type[T],
        key: Key,
        patch: Json | Object,
        *,
        patch_type: Literal["apply"],
        subresource: str = "",
        field_manager: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> T: ...

    async def patch(
        self,
        kind: type[T],
        key: Key,
        patch: Json | JsonPatch | Object,
        *,
        patch_type: PatchType = "merge",
        subresource: str = "",
        field_manager: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> T:
        """Send a merge patch (dict), JSON patch (list) or server-side apply (dict or Object)."""
        query = self._write_query(field_manager, dry_run)
        request = patch_request(
            kind.definition,
            key,
            patch,
            patch_type=patch_type,
            subresource=subresource,
            query=query | {"force": "true"} if force else query,
        )
        return await self._send_write(kind, request, dry_run, subresource)

    async def update(
        self,
        obj: T,
        *,
        subresource: str = "",
        field_manager: str | None = None,
        dry_run: bool = False,
    ) -> T:
        """Replace the stored object, if it is still the version that `obj` was read as.

        Fields that our class does not declare are kept: the stored object is read first, and ours
        is laid over it.
        """
        require_complete(obj)
        stored = await self._send_json(
            replace(request_for("GET", obj.definition, obj.key), accept="application/json")
        )
        body = overlay(stored, obj)
        body["metadata"]["resourceVersion"] = obj.metadata.resourceVersion
        request = request_for(
            "PUT",
            obj.definition,
            obj.key,
            subresource=subresource,
            query=self._write_query(field_manager, dry_run),
            body=body,
        )
        return await self._send_write(type(obj), request, dry_run, subresource)

    async def patch_status(
        self,
        kind: type[T],
        key: Key,
        status: Json,
        *,
        resource_version: str = "",
        field_manager: str | None = None,
        dry_run: bool = False,
    ) -> T:
        """Merge into the status; with `resource_version` only if the object is still that version.

        A uid as precondition has no effect: on the status subresource the API server ignores all
        other metadata (seen in 1.36).
        """
        patch: Json = {"status": status}
        if resource_version:
            patch["metadata"] = {"resourceVersion": resource_version}
        request = patch_request(
            kind.definition,
            key,
            patch,
            patch_type="merge",
            subresource="status",
            query=self._write_query(field_manager, dry_run) | _STATUS_QUERY,
        )
        return await self._send_write(kind, request, dry_run, "status")

    async def replace_status(
        self, obj: T, *, field_manager: str | None = None, dry_run: bool = False
    ) -> T:
        """Replace the whole status, if the object is still the version that `obj` was read as.

        Nothing else of the object changes. Fields of the status that its class does not declare are
        removed. The API server spends less on it than on a patch, which it applies to the encoded
        object.
        """
        require_complete(obj)
        request = request_for(
            "PUT",
            obj.definition,
            obj.key,
            subresource="status",
            query=self._write_query(field_manager, dry_run) | _STATUS_QUERY,
            body=obj.encode(),
        )
        return await self._send_write(type(obj), request, dry_run, "status")

    async def delete(
        self,
        kind: type[T],
        key: Key,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation_policy: PropagationPolicy = "Background",
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete the object; with `uid` or `resource_version` only if it is still that one.

        An object that does not exist is not an error. `propagation_policy` decides about the
        objects that it owns; by default the garbage collector deletes them afterwards, as with
        kubectl. The default of the API server depends on the kind: the Pods of a Job stay.
        """
        definition = kind.definition
        options = delete_options(
            uid=uid,
            resource_version=resource_version,
            propagation_policy=propagation_policy,
            grace_period_seconds=grace_period_seconds,
            dry_run=dry_run,
        )
        raw = b""
        try:
            raw = await self.transport.send(request_for("DELETE", definition, key, body=options))
            removed = removed_uid(definition, raw)
        except NotFound:
            removed = uid or None
        if self._cache is None or dry_run or removed is None:
            return
        if removed:
            self._cache.apply_own_delete(definition, key, removed)
        elif not isinstance(marked := decode_item(kind, raw), UndecodableObject):
            self._cache.apply_own_write(marked, raw)

    async def delete_collection(
        self,
        kind: type[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        propagation_policy: PropagationPolicy = "Background",
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete the objects that match; without a selector, all objects in the namespace.

        The cache follows with the watch: the response has the objects as they were before.
        """
        definition = kind.definition
        if definition.namespaced and not namespace:
            raise TypeError(
                f"delete_collection({kind.__name__}) needs a namespace: the API server deletes a "
                "collection in one namespace at a time"
            )
        options = delete_options(
            propagation_policy=propagation_policy,
            grace_period_seconds=grace_period_seconds,
            dry_run=dry_run,
        )
        continue_token = ""
        while True:
            query = {
                "limit": str(PAGE_SIZE),
                "continue": continue_token,
                **selector_query(definition, label_selector, field_selector),
            }
            request = request_for(
                "DELETE", definition, Key(namespace, ""), query=query, body=options
            )
            try:
                raw = await self.transport.send(replace(request, accept=METADATA_ONLY_LIST))
            except Gone:
                if not continue_token:
                    raise
                # The token expired. What is deleted already is not in a new list.
                continue_token = ""
                continue
            continue_token = decode_continue_token(raw)
            if not continue_token:
                return

    def _write_query(self, field_manager: str | None, dry_run: bool) -> dict[str, str]:
        query = self._default_write_query
        if field_manager is not None:
            query = query | {"fieldManager": field_manager}
        return query | {"dryRun": "All"} if dry_run else query

    async def _send_write(
        self, kind: type[T], request: Request, dry_run: bool, subresource: str = ""
    ) -> T:
        raw = await self.transport.send(request)
        written = kind.decode(raw)
        # The response of another subresource, such as scale, may be of another kind.
        if self._cache is not None and not dry_run and subresource in ("", "status"):
            # Without its last finalizer, an object that is being deleted is removed at once.
            is_terminating = written.metadata.deletionTimestamp is not None
            if is_terminating and (uid := removed_uid(kind.definition, raw)):
                self._cache.apply_own_delete(kind.definition, written.key, uid)
            else:
                self._cache.apply_own_write(written, raw)
        return written

    async def _send_json(self, request: Request) -> Json:
        response: Json = msgspec.json.decode(await self.transport.send(request))
        return response

    async def create_review(self, path: str, body: Json) -> Json:
        """Post a review (TokenReview, SubjectAccessReview...), which the server answers but does
        not store.
        """
        request = Request(
            "POST",
            path,
            body=ENCODER.encode(body),
            content_type="application/json",
            operation=f"create {body.get('kind', path)}",
        )
        return await self._send_json(request)
