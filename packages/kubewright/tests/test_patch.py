from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubewright.patch import apply_merge_patch, build_json_patch
from kubewright.status import build_merge_patch

KEYS = st.text(alphabet="ab/~", min_size=0, max_size=2)
SCALARS = st.none() | st.booleans() | st.integers(0, 2) | st.text(alphabet="xy", max_size=1)
JSON_VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
JSON_OBJECTS = st.dictionaries(KEYS, JSON_VALUES, max_size=4)
# A merge patch cannot set a value to null.
VALUES_WITHOUT_NULL = st.recursive(
    st.booleans() | st.integers(0, 2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def apply_json_patch(document: Any, operations: list[dict[str, Any]]) -> Any:
    """RFC 6902 as naively as possible, for add, remove and replace."""
    root = {"": copy.deepcopy(document)}
    for operation in operations:
        parts = [
            "",
            *(
                part.replace("~1", "/").replace("~0", "~")
                for part in operation["path"].split("/")[1:]
            ),
        ]
        spot: Any = root
        for part in parts[:-1]:
            spot = spot[int(part)] if isinstance(spot, list) else spot[part]
        last: Any = parts[-1]
        if isinstance(spot, list):
            last = len(spot) if last == "-" else int(last)
        match operation["op"]:
            case "remove":
                del spot[last]
            case "add" if isinstance(spot, list):
                spot.insert(last, operation["value"])
            case "add" | "replace":
                assert operation["op"] == "add" or isinstance(spot, list) or last in spot
                spot[last] = operation["value"]
    return root[""]


def is_same_json(one: Any, other: Any) -> bool:
    """Equal as JSON, where true is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            is_same_json(one[name], other[name]) for name in one
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same_json, one, other))
    return type(one) is type(other) and bool(one == other)


@settings(deadline=None)
@given(JSON_OBJECTS, JSON_OBJECTS)
def test_json_patch_turns_the_old_value_into_the_new_one(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert is_same_json(apply_json_patch(old, list(build_json_patch(old, new))), new)


@settings(deadline=None)
@given(JSON_OBJECTS)
def test_equal_values_give_an_empty_json_patch(old: dict[str, Any]) -> None:
    assert list(build_json_patch(old, copy.deepcopy(old))) == []


@settings(deadline=None)
@given(
    st.dictionaries(KEYS, VALUES_WITHOUT_NULL, max_size=4),
    st.dictionaries(KEYS, VALUES_WITHOUT_NULL, max_size=4),
)
def test_merge_patch_turns_the_old_value_into_the_new_one(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert apply_merge_patch(old, build_merge_patch(old, new)) == new


def test_json_patch_contains_only_the_changes() -> None:
    old = {
        "spec": {"a/b": 1, "list": [{"x": 1, "y": 2}, {"x": 3}], "gone": 1},
        "other": {"deep": [1, 2, 3]},
    }
    new = {
        "spec": {"a/b": 2, "list": [{"x": 1, "y": 3}], "new": {}},
        "other": {"deep": [1, 2, 3, 4]},
    }
    assert list(build_json_patch(old, new)) == [
        {"op": "remove", "path": "/spec/gone"},
        {"op": "replace", "path": "/spec/a~1b", "value": 2},
        {"op": "replace", "path": "/spec/list/0/y", "value": 3},
        {"op": "remove", "path": "/spec/list/1"},
        {"op": "add", "path": "/spec/new", "value": {}},
        {"op": "add", "path": "/other/deep/-", "value": 4},
    ]
