from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubewright.nulls import drop_nulls

# Keys and texts that contain a null as JSON writes it.
TEXTS = st.sampled_from(["", "null", ":null", '":null,"', "a"])
LEAVES = st.none() | TEXTS | st.integers(0, 3) | st.booleans()
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every leaf and container with its path, except the values of keys that are null."""
    if isinstance(value, dict):
        yield (*path, "object")
        for key, inner in value.items():
            if inner is not None:
                yield from paths(inner, (*path, key))
    elif isinstance(value, list):
        yield (*path, "list", len(value))
        for index, inner in enumerate(value):
            yield from paths(inner, (*path, index))
    else:
        yield (*path, type(value).__name__, value)


def has_null_key(value: Any) -> bool:
    if isinstance(value, dict):
        return any(inner is None or has_null_key(inner) for inner in value.values())
    return isinstance(value, list) and any(has_null_key(inner) for inner in value)


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_no_key_with_null_is_left_and_nothing_else_is_lost(value: dict[str, Any]) -> None:
    before = copy.deepcopy(value)
    result = drop_nulls(value)
    assert not has_null_key(result)
    assert list(paths(result)) == list(paths(value))
    assert value == before
    assert json.loads(json.dumps(result)) == result
