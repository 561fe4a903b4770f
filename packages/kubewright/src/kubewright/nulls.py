"""JSON values without nulls."""

from __future__ import annotations

from typing import Any

_CONTAINERS = (dict, list)


def drop_nulls(value: Any) -> Any:
    """The same values without nulls: the API server rejects an explicit null in most places."""
    # Most values are texts and numbers: a call for each would take twice as long.
    if isinstance(value, dict):
        return {
            k: drop_nulls(v) if isinstance(v, _CONTAINERS) else v
            for k, v in value.items()
            if v is not None
        }
    if isinstance(value, list):
        return [drop_nulls(v) if isinstance(v, _CONTAINERS) else v for v in value]
    return value
