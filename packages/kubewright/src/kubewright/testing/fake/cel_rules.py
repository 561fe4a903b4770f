"""Evaluates the rules of a CRD (`x-kubernetes-validations`).

The evaluator is cel-expr-python, the binding of the C++ implementation of CEL. Rules are checked
with `self` as a dynamic type: the API server also rejects a CRD for a rule that reads a field which
its schema does not declare, the fake only when the rule is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import ConfigError
from ...patch import Json
from .cel_values import needs_literal, to_cel_value, to_literal
from .failure import field_cause
from .schema_node import MISSING, SchemaNode, find_old_item

if TYPE_CHECKING:
    from cel_expr_python import cel

_RULES = "x-kubernetes-validations"
# What Kubernetes enables in its own environment.
_ENVIRONMENT = """
name: kubernetes
extensions:
- {name: strings, version: 2}
- {name: sets}
- {name: lists}
- {name: two-var-comprehensions}
- {name: optional}
- {name: bindings}
"""
_USES_OLD_SELF = re.compile(r"\boldSelf\b")
_OLD_VALUE = "__oldSelf"
_MISSING_KEY = re.compile(r'Key not found in map : "?(.*?)"?$')
_MAX_MESSAGE_LENGTH = 5 * 1024


def has_rules(node: SchemaNode) -> bool:
    return any(True for _ in _list_rules(node))


def find_rule_errors(node: SchemaNode, path: str) -> Iterator[Json]:
    """The causes for each rule that cannot be compiled."""
    for place, rule in _list_rules(node, path):
        for name in ("rule", "messageExpression"):
            expression = rule.get(name)
            if expression and (error := _find_compile_error(expression)):
                text = f"Invalid value: {_show_rule(rule)}: {error}"
                yield field_cause("FieldValueInvalid", f"{place}.{name}", text)


def _show_rule(rule: Json) -> str:
    """The rule as the API server prints it, with the names of its Go type."""
    names = {"rule": "", "message": "", "messageExpression": "", "reason": None}
    names |= {"fieldPath": "", "optionalOldSelf": None}
    shown = {name[0].upper() + name[1:]: rule.get(name, names[name]) for name in names}
    return msgspec.json.encode(shown).decode()


def _list_rules(node: SchemaNode, path: str = "") -> Iterator[tuple[str, Json]]:
    """All rules of a CRD's schema, each with its place."""
    raw = node.raw
    for index, rule in enumerate(raw.get(_RULES, ())):
        yield f"{path}.{_RULES}[{index}]", rule
    for name in raw.get("properties", ()):
        field = node.field(name)
        # Metadata is described by a definition of Kubernetes, which may be recursive.
        if field is not None and not (name == "metadata" and node.has_object_meta):
            yield from _list_rules(field, f"{path}.properties[{name}]")
    if isinstance(raw.get("items"), dict):
        yield from _list_rules(node.items, f"{path}.items")
    if isinstance(raw.get("additionalProperties"), dict):
        values = node.value("")
        if values is not None:
            yield from _list_rules(values, f"{path}.additionalProperties")


@cache
def _environment() -> cel.Env:
    try:
        from cel_expr_python import cel
    except ImportError:
        raise ConfigError(
            "a CRD has validation rules in CEL. To evaluate them, FakeApi requires the package "
            "cel-expr-python: pip install 'kubewright[testing]'"
        ) from None
    from .cel_functions import build_extension

    dynamic = cel.Type.DYN
    return cel.NewEnv(
        config=cel.NewEnvConfigFromYaml(_ENVIRONMENT),
        variables={"self": dynamic, "oldSelf": dynamic, _OLD_VALUE: dynamic},
        extensions=[build_extension()],
    )


@cache
def _compile(expression: str) -> cel.Expression:
    return _environment().compile(expression)


def _find_compile_error(expression: str) -> str:
    """Why an expression cannot be compiled; "" if it can."""
    try:
        _compile(expression)
    except RuntimeError as error:
        text = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        return f"compilation failed: {text}"
    return ""


def check_rules(value: Any, node: SchemaNode, path: str = "", old: Any = MISSING) -> Iterator[Json]:
    """The causes for each rule that the value, or a part of it, violates."""
    if value is None:
        return
    for rule in node.raw.get(_RULES, ()):
        cause = _check_rule(rule, value, node, path, old)
        if cause is not None:
            yield cause
    if isinstance(value, dict):
        old_fields = old if isinstance(old, dict) else {}
        for name, item in value.items():
            child = node.value(name)
            if child is None or (name == "metadata" and node.has_object_meta):
                continue
            is_field = node.field(name) is not None
            place = f"{path}.{name}".lstrip(".") if is_field else f"{path}[{name}]"
            yield from check_rules(item, child, place, old_fields.get(name, MISSING))
    elif isinstance(value, list) and "items" in node.raw:
        for index, item in enumerate(value):
            yield from check_rules(
                item, node.items, f"{path}[{index}]", find_old_item(node, item, old)
            )


def _check_rule(rule: Json, value: Any, node: SchemaNode, path: str, old: Any) -> Json | None:
    uses_old = bool(_USES_OLD_SELF.search(rule["rule"]))
    is_optional = bool(rule.get("optionalOldSelf"))
    if uses_old and old is MISSING and not is_optional:
        return None
    if not uses_old and old is not MISSING and old == value:
        # A value that did not change is tolerated although it violates a newer rule.
        return None
    variables = {"self": to_cel_value(value, node)}
    if old is not MISSING:
        variables["oldSelf"] = to_cel_value(old, node)
    result = _evaluate(rule["rule"], variables, has_optional_old=is_optional)
    text = (rule.get("message") or rule["rule"]).strip()
    if result.type().name() == "ERROR":
        error = _to_go_message(str(result.plain_value()))
        message = f'Invalid value: "{node.type}": {error} evaluating rule: {text}'
        return field_cause("FieldValueInvalid", path or "<nil>", message)
    if result.plain_value() is True:
        return None
    detail = _evaluate_message(rule, variables) or (
        rule["message"].strip() if rule.get("message") else f"failed rule: {text}"
    )
    place = f"{path}{rule.get('fieldPath', '')}".lstrip(".") or "<nil>"
    return _build_cause(rule, place, value, node, detail)


def _evaluate(
    expression: str, variables: dict[str, Any], *, has_optional_old: bool = False
) -> cel.Value:
    data = {"self": None, "oldSelf": None, _OLD_VALUE: None, **variables}
    if has_optional_old:
        # An optional cannot be passed as a variable.
        optional = "optional.none()"
        if "oldSelf" in variables:
            data[_OLD_VALUE], optional = variables["oldSelf"], f"optional.of({_OLD_VALUE})"
        expression = f"cel.bind(oldSelf, {optional}, {expression})"
    for name, value in data.items():
        if needs_literal(value):
            # Nor can a time or a duration.
            expression = f"cel.bind({name}, {to_literal(value)}, {expression})"
            data[name] = None
    return _compile(expression).eval(data=data)


def _evaluate_message(rule: Json, variables: dict[str, Any]) -> str:
    """The result of messageExpression; "" without one, or if it cannot be used."""
    if not rule.get("messageExpression"):
        return ""
    result = _evaluate(rule["messageExpression"], variables)
    text = result.plain_value()
    if result.type().name() != "STRING" or not isinstance(text, str):
        return ""
    text = text.strip()
    return "" if "\n" in text or len(text) > _MAX_MESSAGE_LENGTH else text


def _build_cause(rule: Json, path: str, value: Any, node: SchemaNode, detail: str) -> Json:
    reason = rule.get("reason") or "FieldValueInvalid"
    shown = "" if node.type in ("object", "array") else f": {msgspec.json.encode(value).decode()}"
    match reason:
        case "FieldValueForbidden":
            message = f"Forbidden: {detail}"
        case "FieldValueRequired":
            message = f"Required value: {detail}"
        case "FieldValueDuplicate":
            message = f"Duplicate value{shown}"
        case _:
            message = f"Invalid value{shown}: {detail}"
    return field_cause(reason, path, message)


def _to_go_message(text: str) -> str:
    """The text of the Go implementation for common errors."""
    text = text.partition(": ")[2] or text
    if match := _MISSING_KEY.search(text):
        return f"no such key: {match[1]}"
    return {"divide by zero": "division by zero"}.get(text, text)
