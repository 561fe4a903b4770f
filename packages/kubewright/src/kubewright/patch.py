"""From one JSON value to another: the smallest merge patch, a JSON patch, and what applying a merge patch gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


def build_merge_patch(old: Json, new: Json) -> Json:
    """What to send so that `old` becomes `new`; empty when they mean the same. None and absent are the same here."""
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


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """The target with a merge patch applied (RFC 7386)."""
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
    """The operations (RFC 6902) that turn `old` into `new`, touching nothing that is the same in both."""
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _build_object_patch(old, new, path)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _build_array_patch(old, new, path)
    elif type(old) is not type(new) or old != new:
        yield {"op": "replace", "path": path, "value": new}


def _build_object_patch(old: Json, new: Json, path: str) -> Iterator[Json]:
    """What goes, what changes, what comes."""
    for name in (each for each in old if each not in new):
        yield {"op": "remove", "path": f"{path}/{_escape_pointer(name)}"}
    for name, value in new.items():
        if name in old:
            yield from build_json_patch(old[name], value, f"{path}/{_escape_pointer(name)}")
        else:
            yield {"op": "add", "path": f"{path}/{_escape_pointer(name)}", "value": value}


def _build_array_patch(old: list[Any], new: list[Any], path: str) -> Iterator[Json]:
    """Item by item; what is too much goes from the end, so that the other indexes stay true."""
    for index, (before, after) in enumerate(zip(old, new, strict=False)):
        yield from build_json_patch(before, after, f"{path}/{index}")
    for index in range(len(old) - 1, len(new) - 1, -1):
        yield {"op": "remove", "path": f"{path}/{index}"}
    for value in new[len(old) :]:
        yield {"op": "add", "path": f"{path}/-", "value": value}


def _escape_pointer(name: str) -> str:
    """A name as one part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
