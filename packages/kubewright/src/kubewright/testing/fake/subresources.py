"""Subresources other than status: scale, and those that only accept a POST."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from ...patch import Json, apply_merge_patch
from .deletion import ObjectDeleter
from .failure import Failure, bad_request, method_not_allowed
from .managed_fields import format_time
from .object_writer import MERGE_PATCH, ObjectWriter, WriteOptions
from .reading import ObjectReader
from .resource_path import ResourcePath
from .served_kind import ServedKind

_BUILTIN_SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
}
_DEFAULT_TOKEN_SECONDS = 3600


class SubresourceHandler:
    """Answers requests for the subresources of one object."""

    def __init__(
        self,
        reader: ObjectReader,
        writer: ObjectWriter,
        deleter: ObjectDeleter,
        clock: Callable[[], datetime],
    ) -> None:
        self._reader, self._writer, self._deleter = reader, writer, deleter
        self._clock = clock

    def handle(
        self, method: str, path: ResourcePath, kind: ServedKind, body: Any, options: WriteOptions
    ) -> Json:
        target = path.of_object()
        obj = self._reader.get(target, "")
        match path.subresource, method:
            case "scale", "GET" | "PUT" | "PATCH":
                return self._scale(method, target, kind, obj, body, options)
            case "eviction", "POST":
                delete_options = body.get("deleteOptions") or {}
                self._deleter.delete(target, delete_options, dry_run=options.dry_run)
                return {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}
            case "token", "POST":
                return self._issue_token(body)
            case "binding", "POST":
                patch = {"spec": {"nodeName": body["target"]["name"]}}
                self._writer.patch(target, MERGE_PATCH, patch, options)
                return {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}
            case "scale" | "eviction" | "token" | "binding", _:
                raise method_not_allowed()
        raise Failure(
            501,
            "NotImplemented",
            f"FakeApi does not implement {kind.plural}/{path.subresource}; "
            "test it on a real API server (the fixture control_plane)",
        )

    def _scale(
        self,
        method: str,
        target: ResourcePath,
        kind: ServedKind,
        obj: Json,
        body: Any,
        options: WriteOptions,
    ) -> Json:
        paths = kind.scale or _BUILTIN_SCALE
        if method != "GET":
            current = _build_scale(kind, obj, paths)
            scale = apply_merge_patch(current, body) if method == "PATCH" else body
            replicas = (scale.get("spec") or {}).get("replicas", 0)
            if not isinstance(replicas, int) or replicas < 0:
                raise bad_request(f"spec.replicas: Invalid value: {replicas}")
            patch = _nest(paths["specReplicasPath"], replicas)
            obj = self._writer.patch(target, MERGE_PATCH, patch, options)
        return _build_scale(kind, obj, paths)

    def _issue_token(self, body: Json) -> Json:
        spec = body.get("spec") or {}
        seconds = spec.get("expirationSeconds", _DEFAULT_TOKEN_SECONDS)
        expires = self._clock() + timedelta(seconds=seconds)
        status = {"token": f"fake-{uuid.uuid4()}", "expirationTimestamp": format_time(expires)}
        return body | {"spec": spec | {"expirationSeconds": seconds}, "status": status}


def _build_scale(kind: ServedKind, obj: Json, paths: Json) -> Json:
    metadata = obj["metadata"]
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status = {"replicas": _find(obj, paths["statusReplicasPath"]) or 0}
    selector = _find(obj, paths.get("labelSelectorPath", ""))
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in shown if name in metadata},
        "spec": {"replicas": replicas}
        if (replicas := _find(obj, paths["specReplicasPath"]))
        else {},
        "status": status,
    }


def _find(obj: Any, path: str) -> Any:
    for part in path.strip(".").split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def _nest(path: str, value: Any) -> Json:
    for part in reversed(path.strip(".").split(".")):
        value = {part: value}
    nested: Json = value
    return nested
