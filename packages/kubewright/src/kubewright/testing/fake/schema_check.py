"""All checks of a custom resource, in the order of the API server."""

from __future__ import annotations

from ...patch import Json
from .cel_rules import check_rules
from .failure import field_cause
from .served_kind import ServedKind
from .validation import BLOCKING_REASONS, validate, validate_list_types

_RULES_NOT_CHECKED = field_cause(
    "FieldValueInvalid",
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


def check_custom_resource(
    kind: ServedKind, obj: Json, old: Json | None, *, subresource: str = ""
) -> list[Json]:
    """What the schema, list types and rules of the CRD reject; [] for other kinds."""
    if not kind.is_custom:
        return []
    causes = (
        _check_status(kind, obj, old) if subresource == "status" else _check_all(kind, obj, old)
    )
    if old is None or not any(validate_list_types(old, kind.node)):
        causes += validate_list_types(obj, kind.node)
    if kind.has_rules:
        if any(cause["reason"] in BLOCKING_REASONS for cause in causes):
            causes.append(_RULES_NOT_CHECKED)
        elif old is None:
            causes += check_rules(obj, kind.node)
        else:
            causes += check_rules(obj, kind.node, "", old)
    return causes


def _check_all(kind: ServedKind, obj: Json, old: Json | None) -> list[Json]:
    return validate(obj, kind.node) if old is None else validate(obj, kind.node, "", old)


def _check_status(kind: ServedKind, obj: Json, old: Json | None) -> list[Json]:
    node = kind.node.field("status")
    if node is None or "status" not in obj:
        return []
    if old is None or "status" not in old:
        causes = validate(obj["status"], node)
    else:
        causes = validate(obj["status"], node, "", old["status"])
    # Messages name the place inside of the status, fields that in the object.
    return [
        cause | {"field": f"status.{cause['field']}".removesuffix(".<nil>")} for cause in causes
    ]
