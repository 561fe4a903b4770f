"""A status is sent without nulls at any depth, compared with the plain recursive function."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kubewright.kind import drop_nulls
from kubewright.status import _drop_status_nulls

texts = st.sampled_from(["", "null", ":null", '":null,"', "a"])
scalars = st.none() | texts | st.integers(0, 3)
json_values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(texts, json_values, max_size=4))
def test_every_null_is_dropped_and_nothing_else(value: dict[str, Any]) -> None:
    assert _drop_status_nulls(value, msgspec.json.encode(value)) == drop_nulls(value)
