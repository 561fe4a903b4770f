"""JSON patches (RFC 6902), applied as the API server does."""

from __future__ import annotations

import copy
from typing import Any

from .failure import Failure


def apply_json_patch(target: Any, operations: list[dict[str, Any]]) -> Any:
    result = copy.deepcopy(target)
    for operation in operations:
        try:
            result = _apply(result, operation)
        except (KeyError, IndexError, TypeError, ValueError):
            text = "the server rejected our request due to an error in our request"
            raise Failure(422, "Invalid", text) from None
    return result


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    path = _parse_pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _add(document, path, operation["value"])
        case "replace":
            _remove(document, path)
            return _add(document, path, operation["value"])
        case "remove":
            _remove(document, path)
        case "test":
            if _find(document, path) != operation["value"]:
                raise ValueError("test failed")
        case "copy":
            return _add(document, path, copy.deepcopy(_find(document, _from(operation))))
        case "move":
            value = _find(document, _from(operation))
            _remove(document, _from(operation))
            return _add(document, path, value)
        case other:
            raise ValueError(f"unknown operation {other}")
    return document


def _from(operation: dict[str, Any]) -> list[str]:
    return _parse_pointer(operation["from"])


def _parse_pointer(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _find(document: Any, path: list[str]) -> Any:
    for part in path:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    *parents, last = path
    parent = _find(document, parents)
    if isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else int(last), value)
    else:
        parent[last] = value
    return document


def _remove(document: Any, path: list[str]) -> None:
    *parents, last = path
    parent = _find(document, parents)
    if isinstance(parent, list):
        del parent[int(last)]
    else:
        del parent[last]
