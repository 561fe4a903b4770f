"""Merge patches (RFC 7386) and JSON patches (RFC 6902) of plain JSON values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


def apply_merge_patch(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = apply_merge_patch(result.get(name), value)
    return result


def build_json_patch(old: Any, new: Any, path: str = "") -> Iterator[Json]:
    """The operations of a JSON patch that turn `old` into `new`, and touch no equal value."""
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _build_object_patch(old, new, path)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _build_array_patch(old, new, path)
    elif type(old) is not type(new) or old != new:
        yield {"op": "replace", "path": path, "value": new}


def _build_object_patch(old: Json, new: Json, path: str) -> Iterator[Json]:
    for name in old:
        if name not in new:
            yield {"op": "remove", "path": f"{path}/{_escape_pointer(name)}"}
    for name, value in new.items():
        if name in old:
            yield from build_json_patch(old[name], value, f"{path}/{_escape_pointer(name)}")
        else:
            yield {"op": "add", "path": f"{path}/{_escape_pointer(name)}", "value": value}


def _build_array_patch(old: list[Any], new: list[Any], path: str) -> Iterator[Json]:
    for index, (before, after) in enumerate(zip(old, new, strict=False)):
        yield from build_json_patch(before, after, f"{path}/{index}")
    # Surplus items are removed from the end, so that the indexes before them stay valid.
    for index in range(len(old) - 1, len(new) - 1, -1):
        yield {"op": "remove", "path": f"{path}/{index}"}
    for value in new[len(old) :]:
        yield {"op": "add", "path": f"{path}/-", "value": value}


def _escape_pointer(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
