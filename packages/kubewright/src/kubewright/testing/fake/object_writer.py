"""The way of a write: decode, record the managers, apply the rules of the kind, validate, store."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...patch import Json, apply_merge_patch
from .builtin_rules import (
    complete_new_object,
    keep_namespace_finalizers,
    set_namespace_label,
    set_role_group,
)
from .builtin_validation import check_builtin
from .completion import drop_empty, prune, set_defaults
from .deletion import is_deletion_complete
from .failure import (
    Failure,
    already_exists,
    bad_request,
    conflict,
    field_cause,
    invalid,
    not_found,
    unsupported_media_type,
)
from .json_patch import apply_json_patch
from .managed_fields import ApplyConflict, FieldManager, format_time
from .object_meta import (
    check_namespace,
    check_same_name,
    check_uid,
    name_new_object,
    validate_metadata,
    validate_metadata_update,
)
from .object_store import ObjectStore
from .reading import to_response
from .resource_path import ResourcePath
from .schema_check import check_custom_resource
from .served_kind import KindRegistry, ServedKind, check_crd
from .structured_merge import find_type_error

APPLY_PATCH = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_KEPT_METADATA = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "name",
    "namespace",
)
_MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


@dataclass(frozen=True)
class WriteOptions:
    """The query of a write."""

    manager: str = "kubewright"
    dry_run: bool = False
    force: bool = False


class ObjectWriter:
    def __init__(
        self, store: ObjectStore, kinds: KindRegistry, clock: Callable[[], datetime]
    ) -> None:
        self._store, self._kinds, self._clock = store, kinds, clock

    # Create

    def create(self, path: ResourcePath, body: Json, options: WriteOptions) -> Json:
        kind = self._kinds.find(path)
        _check_type(kind, body)
        metadata = name_new_object(kind, path, body.get("metadata") or {})
        if metadata.get("resourceVersion"):
            raise Failure(500, "", "resourceVersion should not be set on objects to be created")
        obj = self._decode(kind, body | {"metadata": metadata})
        managed = self._field_manager(kind, path, options).update({}, obj)
        return self._store_new(kind, path, obj, managed, options)

    def _store_new(
        self,
        kind: ServedKind,
        path: ResourcePath,
        obj: Json,
        managed: list[Json],
        options: WriteOptions,
    ) -> Json:
        name = obj["metadata"]["name"]
        obj = complete_new_object(kind, obj)
        metadata = {
            **obj["metadata"],
            "uid": str(uuid.uuid4()),
            "creationTimestamp": format_time(self._clock()),
            "managedFields": managed,
            **({"generation": 1} if kind.has_generation else {}),
        }
        for field in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(field, None)
        obj["metadata"] = _without_empty(metadata)
        causes = [*validate_metadata(kind, obj["metadata"])]
        causes += self._check_content(kind, obj, None)
        if causes:
            raise invalid(kind.group_kind, name, causes)
        key = f"{path.collection}/{name}"
        if key in self._store.objects:
            raise already_exists(kind.group_resource, name)
        self._kinds.remember_name(kind, obj.get("kind", ""))
        return obj if options.dry_run else self._store.store("ADDED", key, _stored(kind, obj))

    def add(self, path: ResourcePath, body: Json) -> Json:
        """Store an object as it is, as if it had been there before."""
        kind = self._kinds.find(path)
        metadata = name_new_object(kind, path, body["metadata"])
        obj = self._decode(kind, body | {"metadata": metadata})
        managed = self._field_manager(kind, path, WriteOptions()).update({}, obj)
        generation = {"generation": 1} if kind.has_generation else {}
        created = {"uid": str(uuid.uuid4()), "creationTimestamp": format_time(self._clock())}
        metadata = generation | created | obj["metadata"] | {"managedFields": managed}
        if "status" not in obj:
            obj = complete_new_object(kind, obj)
        obj["metadata"] = _without_empty(metadata)
        self._kinds.remember_name(kind, obj.get("kind", ""))
        return self._store.store("ADDED", f"{path.collection}/{metadata['name']}", obj)

    # Change

    def replace(self, path: ResourcePath, body: Json, options: WriteOptions) -> Json:
        kind, old = self._read(path)
        _check_type(kind, body)
        metadata = dict(body.get("metadata") or {})
        check_same_name(path, metadata)
        check_namespace(path, metadata)
        if kind.is_custom and metadata.get("resourceVersion", "0") == "0":
            text = "Invalid value: 0: must be specified for an update"
            cause = field_cause("FieldValueInvalid", "metadata.resourceVersion", text)
            raise invalid(kind.group_resource, path.name, [cause])
        new = self._decode(kind, body | {"metadata": metadata})
        self._check_version(kind, old, new)
        check_uid(kind, path, metadata, old["metadata"])
        return self._update(kind, path, old, new, options)

    def patch(
        self, path: ResourcePath, content_type: str, body: Any, options: WriteOptions
    ) -> Json:
        if content_type == APPLY_PATCH:
            return self._apply(path, body, options)
        if options.force:
            raise _invalid_patch_options(
                "FieldValueForbidden",
                "force",
                "Forbidden: may not be specified for non-apply patch",
            )
        kind, old = self._read(path)
        if content_type == _JSON_PATCH:
            patched = apply_json_patch(old, body)
        elif content_type == MERGE_PATCH:
            patched = apply_merge_patch(old, body)
        else:
            raise unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: "
                f"{_JSON_PATCH}, {MERGE_PATCH}, {APPLY_PATCH}"
            )
        check_same_name(path, patched["metadata"])
        check_namespace(path, patched["metadata"])
        return self._update(kind, path, old, self._decode(kind, patched), options)

    def _update(
        self, kind: ServedKind, path: ResourcePath, old: Json, new: Json, options: WriteOptions
    ) -> Json:
        self._check_version(kind, old, new)
        managed = self._field_manager(kind, path, options).update(old, new)
        return self._store_changed(kind, path, old, new, managed, options)

    def _apply(self, path: ResourcePath, config: Any, options: WriteOptions) -> Json:
        if not options.manager:
            raise _invalid_patch_options(
                "FieldValueRequired", "fieldManager", "Required value: is required for apply patch"
            )
        kind = self._kinds.find(path)
        metadata = config.get("metadata") or {}
        config = {**config, "metadata": metadata}
        check_same_name(path, metadata)
        check_namespace(path, metadata)
        _check_apply_type(kind, config)
        if "managedFields" in metadata:
            raise bad_request("metadata.managedFields must be nil")
        if error := find_type_error(config, kind.node):
            group_version = kind.api_version if kind.group else f"/{kind.api_version}"
            namespace = metadata.get("namespace", "")
            described = f"{namespace}/{path.name}; {group_version}, Kind={kind.name}"
            raise Failure(500, "", f"failed to create typed patch object ({described}): {error}")
        stored = self._store.objects.get(path.key)
        if stored is None and path.subresource:
            raise not_found(kind.group_resource, path.name)
        if stored is None and not metadata.get("name"):
            raise bad_request(
                f"the name of the object ({path.name} based on URL) was undeterminable: name must "
                "be provided"
            )
        if stored is None and (uid := metadata.get("uid")):
            text = f"uid mismatch: the provided object specified uid {uid}, and no existing object "
            raise conflict(kind.group_resource, path.name, f"{text}was found")
        old = to_response(kind, stored) if stored is not None else None
        if old is not None:
            self._check_version(kind, old, config)
        live = old or {"apiVersion": config["apiVersion"], "kind": config["kind"], "metadata": {}}
        manager = self._field_manager(kind, path, options)
        try:
            merged, managed = manager.apply(live, config, force=options.force)
        except ApplyConflict as refused:
            raise Failure(409, "Conflict", str(refused), refused.causes) from None
        merged = self._decode(kind, merged)
        if old is None:
            merged["metadata"] = name_new_object(kind, path, merged["metadata"])
            return self._store_new(kind, path, merged, managed, options)
        return self._store_changed(kind, path, old, merged, managed, options)

    def _store_changed(
        self,
        kind: ServedKind,
        path: ResourcePath,
        old: Json,
        new: Json,
        managed: list[Json],
        options: WriteOptions,
    ) -> Json:
        # Clients cannot change these: the API server keeps its own values.
        old_metadata = old["metadata"]
        kept = {name: old_metadata[name] for name in _KEPT_METADATA if name in old_metadata}
        causes: list[Json] = []
        if path.subresource == "status":
            metadata, status = dict(old_metadata), new.get("status")
            new = {k: v for k, v in old.items() if k != "status"}
            if status is not None:
                new["status"] = status
        else:
            causes += validate_metadata_update(kind, new["metadata"], old_metadata)
            metadata = new["metadata"] | kept
            if path.subresource != "finalize":
                new = keep_namespace_finalizers(kind, new, old)
            if kind.has_status:
                new = {k: v for k, v in new.items() if k != "status"}
                if "status" in old:
                    new["status"] = old["status"]
            metadata["generation"] = old_metadata.get("generation", 0)
            metadata["generation"] += kind.has_generation and _has_other_content(kind, old, new)
        metadata["resourceVersion"] = old_metadata["resourceVersion"]
        new = new | {"metadata": _without_empty(metadata | {"managedFields": managed})}
        causes += self._check_content(kind, new, old, path.subresource)
        if causes:
            raise invalid(kind.group_kind, path.name, causes)
        return self._finish(kind, path.key, old, new, options)

    def _finish(
        self, kind: ServedKind, key: str, old: Json, new: Json, options: WriteOptions
    ) -> Json:
        if _without_times(new) == _without_times(old):
            return old
        if options.dry_run:
            return new
        if is_deletion_complete(new):
            self._store.store("DELETED", key, _stored(kind, new))
            return new
        return self._store.store("MODIFIED", key, _stored(kind, new))

    # Parts of both

    def _read(self, path: ResourcePath) -> tuple[ServedKind, Json]:
        kind, obj = self._kinds.find(path), self._store.objects.get(path.key)
        if obj is None:
            raise not_found(kind.group_resource, path.name)
        return kind, to_response(kind, obj)

    def _decode(self, kind: ServedKind, obj: Json) -> Json:
        if not kind.is_declared:
            return obj
        decoded: Json = prune(obj, kind.node)
        decoded.setdefault("apiVersion", kind.api_version)
        decoded.setdefault("kind", kind.name)
        if kind.is_custom:
            # Of a custom resource, only the metadata has a Go type.
            metadata = drop_empty({"metadata": decoded["metadata"]}, kind.node)["metadata"]
            if not metadata.get("managedFields"):
                metadata.pop("managedFields", None)
            decoded["metadata"] = metadata
        else:
            decoded = drop_empty(decoded, kind.node)
            set_namespace_label(kind, decoded)
            set_role_group(kind, decoded)
        set_defaults(decoded, kind.node)
        return decoded

    def _check_content(
        self, kind: ServedKind, obj: Json, old: Json | None, subresource: str = ""
    ) -> list[Json]:
        if (kind.group, kind.plural) == ("apiextensions.k8s.io", "customresourcedefinitions"):
            return [*check_crd(obj)]
        if not kind.is_custom:
            # A write of the status changes nothing that these checks are about.
            return [] if subresource == "status" else check_builtin(kind, obj, old)
        return check_custom_resource(kind, obj, old, subresource=subresource)

    def _field_manager(
        self, kind: ServedKind, path: ResourcePath, options: WriteOptions
    ) -> FieldManager:
        return FieldManager(
            manager_name=options.manager or "kubewright",
            api_version=kind.api_version,
            subresource=path.subresource,
            node=kind.node,
            reset_fields=kind.reset_fields(path.subresource),
            clock=self._clock,
        )

    def _check_version(self, kind: ServedKind, old: Json, new: Json) -> None:
        expected = new["metadata"].get("resourceVersion")
        if expected and expected != old["metadata"]["resourceVersion"]:
            raise conflict(kind.group_resource, old["metadata"]["name"], _MODIFIED)


def _stored(kind: ServedKind, obj: Json) -> Json:
    """The object in the storage version."""
    if kind.storage_version in ("", kind.version):
        return obj
    return obj | {"apiVersion": f"{kind.group}/{kind.storage_version}"}


def _check_type(kind: ServedKind, body: Json) -> None:
    api_version = body.get("apiVersion", kind.api_version)
    name = body.get("kind", kind.name)
    if not kind.is_declared or (api_version, name) == (kind.api_version, kind.name):
        return
    if api_version != kind.api_version:
        raise bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version "
            f"({kind.api_version})"
        )
    if kind.is_custom:
        text = f'Invalid value: "{name}": must be {kind.name}'
        cause = field_cause("FieldValueInvalid", "kind", text)
        object_name = (body.get("metadata") or {}).get("name", "")
        raise invalid(f"{name}.{kind.group}", object_name, [cause])
    raise bad_request(f'{name} in version "{api_version}" cannot be handled as a {kind.name}')


def _check_apply_type(kind: ServedKind, config: Json) -> None:
    api_version, name = config.get("apiVersion", ""), config.get("kind", "")
    if kind.is_declared and (api_version, name) != (kind.api_version, kind.name):
        group_version = api_version if "/" in api_version else f"/{api_version}"
        raise bad_request(f"invalid object type: {group_version}, Kind={name}")


def _invalid_patch_options(reason: str, field: str, text: str) -> Failure:
    return invalid("PatchOptions.meta.k8s.io", "", [field_cause(reason, field, text)])


def _has_other_content(kind: ServedKind, old: Json, new: Json) -> bool:
    ignored = ("metadata", "status") if kind.has_status else ("metadata",)
    return any(old.get(name) != new.get(name) for name in {**old, **new} if name not in ignored)


def _without_empty(metadata: Json) -> Json:
    """Metadata as the API server writes it: empty lists, maps and numbers are absent."""
    return {
        k: v
        for k, v in metadata.items()
        if v not in (None, "", 0, [], {}) or k in ("name", "deletionGracePeriodSeconds")
    }


def _without_times(obj: Json) -> Json:
    """For comparison: a new time of a manager alone is no change."""
    metadata = obj["metadata"]
    managed = [
        {k: v for k, v in m.items() if k != "time"} for m in metadata.get("managedFields", ())
    ]
    return obj | {"metadata": metadata | {"managedFields": managed}}
