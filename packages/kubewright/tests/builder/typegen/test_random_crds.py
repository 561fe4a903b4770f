"""Generated CRDs: the classes of any of them give the same CRD again."""

from __future__ import annotations

import ast
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubewright.builder.compat.crd_diff import compare_crds
from kubewright.builder.typegen.annotation import is_field_name
from kubewright.builder.typegen.crd_modules import render_version
from kubewright.builder.typegen.crd_source import parse_crd

from .generated_modules import new_crd, regenerate, schemas_of

NAMES = st.sampled_from(
    [
        *("name", "size", "template", "rules", "items", "kind", "type", "status", "spec", "env"),
        *("from", "class", "None", "True", "continue", "lambda", "import", "match", "async"),
        *("str", "int", "float", "bool", "bytes", "list", "dict", "datetime", "object"),
        *("Any", "Annotated", "Struct", "Object", "Resource", "Column", "msgspec", "field"),
        *("metadata", "definition", "key", "decode", "encode", "spec_type", "micro_times"),
        *("x-y", "x.y", "x_y", "$ref", "1st", "-", "_", "__", "_private", "__dunder__", ""),
        *("héllo", "\ufb01", "名", 'a"b', "a\\b", "a b", "Rule", "rule", "Rules", "Template"),
        *("WidgetSpec", "Widget", "widget", "addresses", "policies", "self", "cls", "mro"),
        *("__schema__", "__init__", "__struct_fields__", "copy", "print", "Exception"),
    ]
)
TEXTS = st.sampled_from(["", "a", "A text. More.", 'quote"', "back\\slash", '"""', "é\n\u202e"])
JSON = st.recursive(
    st.booleans() | st.integers(-5, 5) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)


def optional(**strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=strategies)


RULES = st.lists(
    st.fixed_dictionaries(
        {"rule": st.sampled_from(["self == oldSelf", "has(self.a) && self.b != 'x'"])},
        optional={"message": TEXTS.filter(bool), "optionalOldSelf": st.just(True)},
    ),
    min_size=1,
    max_size=2,
)
COMMON = optional(
    **{
        "description": TEXTS,
        "default": JSON,
        "nullable": st.just(True),
        "x-kubernetes-validations": RULES,
        "not": st.just({"type": "null"}),
        "oneOf": st.just([{"required": ["a"]}, {"required": ["b"]}]),
        "anyOf": st.just([{"pattern": "a"}, {"format": "ipv4"}]),
        "allOf": st.just([{"minLength": 1}]),
    }
)
STRINGS = optional(
    format=st.sampled_from(["date-time", "byte", "ipv4", "uri"]),
    enum=st.lists(TEXTS, min_size=1, max_size=3, unique=True),
    pattern=st.sampled_from(["^[a-z]+$", r"\p{L}(?i)", "(unclosed"]),
    minLength=st.integers(0, 3),
    maxLength=st.integers(3, 9),
)
NUMBERS = optional(
    format=st.sampled_from(["int32", "int64", "double"]),
    enum=st.lists(st.integers(0, 5), min_size=1, max_size=2, unique=True),
    minimum=st.integers(-3, 0) | st.floats(-3, 0),
    maximum=st.integers(1, 3),
    exclusiveMinimum=st.just(True),
    multipleOf=st.just(2),
)


def typed(type_: str | None, *extra: st.SearchStrategy[dict[str, Any]]) -> Any:
    base = {} if type_ is None else {"type": type_}
    return st.builds(lambda *parts: dict(base, **merge(parts)), *extra, COMMON)


def merge(parts: Any) -> dict[str, Any]:
    return {key: value for part in parts for key, value in part.items()}


def int_or_string(draw: Any) -> Any:
    keys = {"x-kubernetes-int-or-string": True}
    if draw:
        keys["anyOf"] = [{"type": "integer"}, {"type": "string"}]  # type: ignore[assignment]
    return keys


LEAVES = st.one_of(
    typed("string", STRINGS),
    typed("integer", NUMBERS),
    typed("number", NUMBERS),
    typed("boolean"),
    typed("object"),
    st.booleans().map(int_or_string),
    typed(None, st.just({"x-kubernetes-preserve-unknown-fields": True})),
    typed("object", st.just({"x-kubernetes-preserve-unknown-fields": True})),
    typed(
        "object",
        st.just(
            {
                "x-kubernetes-embedded-resource": True,
                "x-kubernetes-preserve-unknown-fields": True,
            }
        ),
    ),
)


@st.composite
def structs(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    properties = draw(st.dictionaries(NAMES, inner, min_size=1, max_size=4))
    schema = {"type": "object", "properties": properties} | draw(COMMON)
    if required := draw(st.lists(st.sampled_from(sorted(properties)), unique=True, max_size=2)):
        schema["required"] = required
    if draw(st.booleans()):
        schema["x-kubernetes-map-type"] = draw(st.sampled_from(["atomic", "granular"]))
    if draw(st.integers(0, 9)) == 0:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    return schema


@st.composite
def lists(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    items = draw(inner)
    schema = {"type": "array", "items": items} | draw(COMMON)
    list_type = draw(st.sampled_from([None, "atomic", "set", "map"]))
    if list_type:
        schema["x-kubernetes-list-type"] = list_type
    if list_type == "map":
        keys = sorted(items.get("properties", {}))[:2]
        schema["x-kubernetes-list-map-keys"] = keys or ["name"]
    return schema


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        structs(inner),
        lists(inner),
        st.builds(
            lambda values, common: {"type": "object", "additionalProperties": values} | common,
            inner,
            COMMON,
        ),
    ),
    max_leaves=12,
)


# An example takes about 50 ms.
SETTINGS = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)


@given(structs(SCHEMAS), SCHEMAS)
@SETTINGS
def test_the_same_crd_is_generated_again(spec: dict[str, Any], status: dict[str, Any]) -> None:
    crd = new_crd(spec_schema=spec)
    root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["properties"]["status"] = status
    crd["spec"]["versions"][0]["subresources"] = {"status": {}}
    regenerated = regenerate(crd)
    assert schemas_of(regenerated) == schemas_of(crd)
    assert [change for change in compare_crds([crd], [regenerated]) if change.is_breaking()] == []


@given(st.dictionaries(NAMES, SCHEMAS, max_size=4), st.sampled_from(["Widget", "Object", "Any"]))
@SETTINGS
def test_fields_outside_of_spec_and_status(fields: dict[str, Any], kind: str) -> None:
    crd = new_crd(kind=kind)
    version = crd["spec"]["versions"][0]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    properties |= {
        name: value
        for name, value in fields.items()
        if name not in properties and is_field_name(name)
    }
    regenerated = regenerate(crd)
    assert schemas_of(regenerated) == schemas_of(crd)


@given(SCHEMAS)
@SETTINGS
def test_the_source_has_no_field_twice_and_no_invisible_characters(schema: dict[str, Any]) -> None:
    crd = parse_crd(new_crd(spec_schema=schema), "a test")
    source = render_version(crd, crd.spec.versions[0])
    assert all(line.isprintable() for line in source.splitlines())
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            names = [
                item.target.id
                for item in node.body
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
            ]
            assert len(names) == len(set(names))
