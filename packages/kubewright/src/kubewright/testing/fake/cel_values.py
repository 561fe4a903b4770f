"""Objects as the rules of a CRD see them: by their schema, not by their JSON."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from .schema_node import SchemaNode

_RESERVED_NAMES = frozenset(
    (
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "namespace",
        "null",
        "package",
        "return",
        "true",
        "var",
        "void",
        "while",
    )
)
_ACCESSIBLE_NAME = re.compile(r"[A-Za-z_.\-/][A-Za-z0-9_.\-/]*")
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ESCAPED_PART = re.compile(r"__|[.\-/]")
# Rules may read no other metadata, so that a write of labels never needs their evaluation.
_READABLE_METADATA = ("name", "generateName")
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_DURATION_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}


def _escape_name(name: str) -> str | None:
    """The name of a field in a rule; None if rules cannot access it."""
    if name in _RESERVED_NAMES:
        return f"__{name}__"
    if not _ACCESSIBLE_NAME.fullmatch(name):
        return None
    return _ESCAPED_PART.sub(lambda match: _ESCAPES[match[0]], name)


def to_cel_value(value: Any, node: SchemaNode) -> Any:
    """The value with the types that its schema declares; fields without a schema are left out."""
    match value:
        case dict():
            return _convert_object(value, node)
        case list():
            return [to_cel_value(item, node.items) for item in value]
        case str():
            return _convert_string(value, node)
        case int() if node.type == "number" and not isinstance(value, bool):
            return float(value)
    return value


def _convert_object(value: dict[str, Any], node: SchemaNode) -> dict[str, Any]:
    if "properties" not in node.raw:
        values = node.value("")
        if values is None or node.preserves_unknown:
            return {}
        return {name: to_cel_value(item, values) for name, item in value.items()}
    converted: dict[str, Any] = {}
    for name, item in value.items():
        field, escaped = node.field(name), _escape_name(name)
        if field is None or escaped is None:
            continue
        if name == "metadata" and node.has_object_meta:
            item = {key: item[key] for key in _READABLE_METADATA if key in item}
        converted[escaped] = to_cel_value(item, field)
    return converted


def _convert_string(value: str, node: SchemaNode) -> Any:
    match str(node.raw.get("format", "")).replace("-", ""):
        case "byte":
            return base64.b64decode(value)
        case "datetime":
            return datetime.fromisoformat(value)
        case "date":
            return datetime.fromisoformat(value).replace(tzinfo=UTC)
        case "duration":
            return _parse_duration(value)
    return value


def needs_literal(value: Any) -> bool:
    """Whether a value has a type that the evaluator does not accept in variables."""
    match value:
        case dict():
            return any(needs_literal(item) for item in value.values())
        case list():
            return any(needs_literal(item) for item in value)
    return isinstance(value, datetime | timedelta)


def to_literal(value: Any) -> str:
    """The value as an expression of a dynamic type, as variables have."""
    return f"dyn({_to_typed_literal(value)})"


def _to_typed_literal(value: Any) -> str:
    match value:
        case dict():
            items = (f"{json.dumps(name)}: {to_literal(item)}" for name, item in value.items())
            return "{" + ", ".join(items) + "}"
        case list():
            return "[" + ", ".join(to_literal(item) for item in value) + "]"
        case datetime():
            return f"timestamp('{value.astimezone(UTC).isoformat().replace('+00:00', 'Z')}')"
        case timedelta():
            return f"duration('{value.total_seconds():f}s')"
        case bytes():
            return "b'" + "".join(f"\\x{byte:02x}" for byte in value) + "'"
        case float():
            return repr(value)
    return json.dumps(value)


def _parse_duration(text: str) -> timedelta:
    parts = _DURATION_PART.findall(text)
    seconds = sum(float(number) * _DURATION_SECONDS[unit] for number, unit in parts)
    return timedelta(seconds=-seconds if text.startswith("-") else seconds)
