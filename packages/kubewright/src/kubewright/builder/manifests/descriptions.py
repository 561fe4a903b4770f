"""Finds what `kubectl explain` could not explain: kinds and fields without a description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_MAX_LISTED_FIELDS = 5
# The API server's own documentation covers these.
_STANDARD_FIELDS = ("apiVersion", "kind", "metadata")


def format_undescribed(crds: Sequence[Mapping[str, Any]]) -> list[str]:
    """One warning for each version of a kind that lacks descriptions."""
    warnings = []
    for crd in crds:
        for version in crd["spec"]["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            missing = [] if schema.get("description") else ["the kind"]
            missing += _undescribed_fields(schema, "")
            if missing:
                more = len(missing) - _MAX_LISTED_FIELDS
                listed = ", ".join(missing[:_MAX_LISTED_FIELDS])
                listed += f" and {more} more" if more > 0 else ""
                warnings.append(
                    f"warning: {crd['metadata']['name']} {version['name']}: no description of "
                    f'{listed}. Add a docstring to the class, or Doc("...") to the field: '
                    "`kubectl explain` shows them."
                )
    return warnings


def _undescribed_fields(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        if path or name not in _STANDARD_FIELDS:
            if not field.get("description"):
                yield f"{path}.{name}"
            yield from _undescribed_fields(field, f"{path}.{name}")
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(inner := schema.get(key), Mapping):
            yield from _undescribed_fields(inner, f"{path}{suffix}")
