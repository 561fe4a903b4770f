"""The smallest JSON merge patch that leads from one value to another."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def merge_patch(old: Json, new: Json) -> Json:
    """What to send so that `old` becomes `new`; empty when they mean the same. None and absent are the same here."""
    patch: Json = {}
    for name in {**old, **new}:
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            patch[name] = merge_patch(before, after)
        else:
            patch[name] = after
    return patch
