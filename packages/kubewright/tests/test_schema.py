"""Annotations to OpenAPI: the schema, the errors, and that a real API server accepts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
import yaml
from msgspec import Struct

from kubewright.crd import _build_crd, build_crds
from kubewright.errors import SchemaError, Undecodable
from kubewright.kind import Object, ObjectMeta, Resource, Spec, Status, kind, version_of
from kubewright.markers import (
    QUANTITY_PATTERN,
    Column,
    Doc,
    EmptyObject,
    Format,
    Int32,
    ListType,
    MapType,
    OneOf,
    PreserveUnknownFields,
    Quantity,
    Scale,
    SchemaOverride,
    ValidationRule,
)
from kubewright.schema import struct_schema
from kubewright.testing.controlplane import ControlPlane, KubectlFailed
from kubewright.yaml_text import to_yaml

from .support.thing_kind import OldThing, Port, Thing, ThingSpec

SPEC_PROPERTIES: dict[str, Any] = struct_schema(ThingSpec)["properties"]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (
            "name",
            {
                "type": "string",
                "description": "A DNS label.",
                "minLength": 1,
                "maxLength": 63,
                "pattern": "^[a-z0-9-]+$",
            },
        ),
        (
            "replicas",
            {
                "type": "integer",
                "format": "int32",
                "description": "How many.",
                "minimum": 0,
                "default": 3,
            },
        ),
        ("big", {"type": "integer", "format": "int64"}),
        (
            "ratio",
            {
                "type": "number",
                "description": "A share.",
                "minimum": 0,
                "exclusiveMinimum": True,
                "maximum": 1,
                "default": 0.5,
            },
        ),
        ("enabled", {"type": "boolean", "default": True}),
        ("color", {"type": "string", "enum": ["red", "blue"], "default": "red"}),
        ("mode", {"type": "string", "enum": ["fast", "slow"]}),
        ("level", {"type": "integer", "enum": [1, 2, 3], "default": 1}),
        ("until", {"type": "string", "format": "date-time"}),
        ("blob", {"type": "string", "format": "byte"}),
        (
            "labels",
            {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Names and values.",
                "maxProperties": 10,
            },
        ),
        (
            "order",
            {
                "type": "array",
                "items": {"type": "integer", "format": "int64"},
                "x-kubernetes-list-type": "atomic",
            },
        ),
        (
            "limit",
            {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": True,
                "description": "A number or a percentage.",
                "default": "25%",
            },
        ),
        ("free", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        ("anything", {"x-kubernetes-preserve-unknown-fields": True}),
        (
            "size",
            {
                "type": "integer",
                "format": "int64",
                "x-kubernetes-validations": [
                    {"rule": "self >= oldSelf", "message": "size cannot shrink"}
                ],
                "title": "Size",
                "default": 1,
            },
        ),
    ],
)
def test_schema_of_a_field(field: str, expected: dict[str, Any]) -> None:
    assert SPEC_PROPERTIES[field] == expected


def test_list_types_become_extensions() -> None:
    assert SPEC_PROPERTIES["ports"]["x-kubernetes-list-map-keys"] == ["name", "protocol"]
    assert SPEC_PROPERTIES["ports"]["items"]["required"] == ["name", "number"]
    assert SPEC_PROPERTIES["ports"]["maxItems"] == 8
    assert SPEC_PROPERTIES["tags"]["x-kubernetes-list-type"] == "set"
    assert SPEC_PROPERTIES["tags"]["items"] == {
        "type": "string",
        "description": "One of them.",
        "maxLength": 20,
    }


def test_field_without_a_default_is_required() -> None:
    assert struct_schema(ThingSpec)["required"] == ["name"]


def test_status_has_one_default_and_standard_conditions() -> None:
    status = _build_crd([Thing.definition])["spec"]["versions"][0]["schema"]["openAPIV3Schema"][
        "properties"
    ]["status"]
    # kstatus: an object that no manager has seen is not Current.
    assert status.pop("default") == {}
    assert status["properties"]["observedGeneration"].pop("default") == -1
    assert "default" not in str(status)
    assert status["properties"]["conditions"]["x-kubernetes-list-map-keys"] == ["type"]
    assert status["properties"]["observedGeneration"]["type"] == "integer"


def test_crd_has_names_versions_columns_and_subresources() -> None:
    crds = build_crds([Thing, OldThing])
    assert len(crds) == 1
    spec = crds[0]["spec"]
    assert crds[0]["metadata"] == {"name": "things.everything.test"}
    assert spec["names"] == {
        "kind": "Thing",
        "listKind": "ThingList",
        "plural": "things",
        "singular": "thing",
        "shortNames": ["th"],
        "categories": ["all", "tests"],
    }
    new, old = spec["versions"]
    assert [(v["name"], v["storage"], v["served"]) for v in (new, old)] == [
        ("v1", True, True),
        ("v1alpha1", False, True),
    ]
    assert old["deprecationWarning"].startswith("everything.test/v1alpha1")
    assert new["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }
    columns = {c["name"]: c for c in new["additionalPrinterColumns"]}
    assert list(columns) == ["Name", "Replicas", "Until", "First", "Ready", "Reason", "Age"]
    assert (columns["Until"]["type"], columns["Until"]["priority"]) == ("date", 1)
    assert columns["First"]["type"] == "integer"
    schema = new["schema"]["openAPIV3Schema"]
    assert schema["description"] == "Everything at once.\n\nWith a second paragraph."
    assert schema["x-kubernetes-validations"][0]["message"] == "the name is too long"


def test_output_is_the_same_in_every_process() -> None:
    program = (
        "from tests.support.thing_kind import *; from kubewright.crd import *; "
        "from kubewright.yaml_text import *; "
        "print(to_yaml(*build_crds([Thing, OldThing])), end='')"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parent.parent,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert runs == {to_yaml(*build_crds([OldThing, Thing]))}
    assert yaml.safe_load(runs.pop())["kind"] == "CustomResourceDefinition"


class Loop(Struct):
    """Contains itself."""

    inner: list[Loop] = []


class Mixed(Struct):
    """A union of two."""

    value: int | bool = 0


class Bare(Struct):
    name: str = ""


REJECTED_TYPES: list[tuple[Any, str, str]] = [
    (set[str], "X.field", "has no OpenAPI form"),
    (tuple[int, str], "X.field", "has no OpenAPI form"),
    (dict[int, str], "X.field", "keys of a map must be strings"),
    (int | list[int] | None, "X.field", "union of several types"),
    (int | bool, "X.field", "has no OpenAPI form"),
    (Literal["a", 1], "X.field", "all be strings or all be integers"),
    (Loop, "X.field.inner[]", "contains itself"),
    (list[Mixed], "X.field[].value", "has no OpenAPI form"),
    (Annotated[int, "plain text"], "X.field", "is not supported"),
    (Annotated[str, ListType("set")], "X.field", "applies to lists only"),
    (Annotated[list[Port], ListType("map", "nme")], "X.field", 'the list-map key "nme"'),
    (Annotated[list[Bare], ListType("map", "name")], "X.field", "is required or has a default"),
    (
        Annotated[int, Doc("x", min_length=2)],
        "X.field",
        "length limit does not apply to the type integer",
    ),
]


@pytest.mark.parametrize(("annotation", "location", "problem"), REJECTED_TYPES)
def test_unsupported_type_is_an_error_with_class_and_field(
    annotation: Any, location: str, problem: str
) -> None:
    struct = msgspec.defstruct("X", [("field", annotation)])
    with pytest.raises(SchemaError) as caught:
        struct_schema(struct)
    assert location in str(caught.value)
    assert problem in str(caught.value)


def test_column_or_scale_path_without_a_field_is_an_error() -> None:
    @kind("x.test/v1", columns=[Column("Typo", ".spec.nmae")])
    class A(Resource[ThingSpec, Status]):
        pass

    @kind("x.test/v1", scale=Scale())
    class B(Resource[ThingSpec, Status]):
        pass

    with pytest.raises(SchemaError, match=r"A column Typo: \.spec\.nmae is not a field"):
        build_crds([A])
    with pytest.raises(
        SchemaError,
        match=r"B scale: statusReplicasPath \.status\.replicas must name a field of type integer",
    ):
        build_crds([B])


def test_other_version_inherits_names_and_columns_of_its_kind() -> None:
    @kind(
        "x.test/v1",
        plural="thinges",
        short=("th",),
        categories=("all",),
        namespaced=False,
        columns=[Column("Host", ".spec.host")],
    )
    class Main(Resource[Spec, Status]):
        """One."""

    @version_of(Main, "v2")
    class Same(Resource[Spec, Status]):
        """Two."""

    @version_of(
        Main,
        "v3",
        columns=[Column("Other", ".spec.other")],
        storage=True,
        deprecated="old",
    )
    class Other(Resource[Spec, Status]):
        """Three."""

    same, other, main = Same.definition, Other.definition, Main.definition
    called = [
        (
            definition.name,
            definition.plural,
            definition.short_names,
            definition.categories,
            definition.namespaced,
        )
        for definition in (main, same, other)
    ]
    assert called == [("Main", "thinges", ("th",), ("all",), False)] * 3
    assert [definition.api_version for definition in (same, other)] == ["x.test/v2", "x.test/v3"]
    assert (same.storage, same.columns, same.deprecation_warning) == (False, main.columns, "")
    assert (
        other.storage,
        [column.name for column in other.columns],
        other.deprecation_warning,
    ) == (
        True,
        ["Other", "Ready", "Reason", "Age"],
        "old",
    )
    assert type(Same.decode(b'{"metadata": {"name": "a"}}')) is Same


def test_versions_must_agree_and_have_one_storage_version() -> None:
    @kind("everything.test/v2", name="Thing")
    class Second(Resource[ThingSpec, Status]):
        pass

    with pytest.raises(SchemaError, match="must have storage=True, not 2"):
        build_crds([Thing, Second])


@pytest.mark.parametrize("require_spec", [None, False, True])
def test_spec_is_required_if_it_has_a_required_field(require_spec: bool | None) -> None:
    @kind("everything.test/v1", require_spec=require_spec)
    class Named(Resource[ThingSpec, Status]):
        pass

    @kind("everything.test/v1", require_spec=require_spec)
    class Empty(Resource[Spec, Status]):
        pass

    schemas = [
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for crd in build_crds([Empty, Named])
    ]
    is_required = ["required" in schema for schema in schemas]
    assert is_required == ([False, True] if require_spec is None else [require_spec] * 2)


def test_decoding_checks_known_fields_and_ignores_unknown_ones() -> None:
    thing = Thing.decode(
        b'{"apiVersion":"x","metadata":{"name":"a","managedFields":[{}]},'
        b'"spec":{"name":"n","future":{"x":1}},"extra":1}'
    )
    assert thing.spec.name == "n"
    assert thing.status.conditions == []
    with pytest.raises(Undecodable, match=r"\$\.spec\.replicas"):
        Thing.decode(b'{"metadata":{"name":"a"},"spec":{"name":"n","replicas":-1}}')
    with pytest.raises(Undecodable, match="Missing required argument 'name'"):
        Thing.decode(b'{"metadata":{"name":"a"}}')
    with pytest.raises(Undecodable):
        Thing.decode(b'{"metadata":{"name":"a"},"spec":' + b"[" * 100_000)


def test_encoding_omits_fields_that_are_not_set() -> None:
    thing = Thing(metadata=ObjectMeta(name="a"), spec=ThingSpec(name="n", free={"kept": [1, None]}))
    assert thing.encode() == {
        "apiVersion": "everything.test/v1",
        "kind": "Thing",
        "metadata": {"name": "a"},
        "spec": {"name": "n", "free": {"kept": [1, None]}},
        "status": {"replicas": 0, "selector": "", "conditions": []},
    }


@pytest.fixture(scope="module")
def installed(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> ControlPlane:
    """The CRD in a real API server, which refuses a schema that is not structural."""
    file = tmp_path_factory.mktemp("everything") / "crd.yaml"
    file.write_text(to_yaml(*build_crds([Thing, OldThing])))
    control_plane.apply(file)
    control_plane.wait_for_crds("things.everything.test")
    return control_plane


VALID_THING = """
apiVersion: everything.test/v1
kind: Thing
metadata: {name: good}
spec:
  name: abc
  limit: 3
  ports: [{name: a, number: 80}, {name: a, number: 81, protocol: UDP}]
  free: {any: {key: value}}
  template: {apiVersion: v1, kind: Pod, metadata: {name: x}}
"""


def test_real_api_server_accepts_the_crd_and_sets_defaults(
    installed: ControlPlane, namespace: str, kubectl: Callable[..., str]
) -> None:
    kubectl("apply", "-n", namespace, "-f", "-", stdin=VALID_THING)
    stored = Thing.decode(kubectl("get", "-n", namespace, "th", "good", "-o", "json").encode())
    assert stored.spec.replicas == 3
    assert stored.spec.ports[0].protocol == "TCP"
    assert stored.spec.limit == 3
    assert stored.spec.free == {"any": {"key": "value"}}
    assert (
        kubectl(
            "get", "-n", namespace, "things.v1alpha1.everything.test", "good", "-o", "name"
        ).strip()
        == "thing.everything.test/good"
    )
    header = kubectl("get", "-n", namespace, "th", "-o", "wide").splitlines()[0]
    assert header.split() == [
        "NAME",
        "NAME",
        "REPLICAS",
        "UNTIL",
        "FIRST",
        "READY",
        "REASON",
        "AGE",
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("name: ABC", "should match"),
        ("name: abc\n  replicas: -1", "greater than or equal to 0"),
        ("name: abc\n  color: green", "Unsupported value"),
        ("name: abc\n  ratio: 0", "greater than 0"),
        ("name: abc\n  tags: [a, a]", "Duplicate value"),
        ("name: abc\n  window: {low: 9, high: 3}", "low must not be above high"),
        ("name: abc\n  level: 9", "Unsupported value"),
        ("replicas: 1", "Required value"),
        ("name: abc\n  unknown: field", "unknown field"),
    ],
)
def test_real_api_server_enforces_the_schema(
    installed: ControlPlane, namespace: str, kubectl: Callable[..., str], change: str, problem: str
) -> None:
    text = (
        f"apiVersion: everything.test/v1\nkind: Thing\nmetadata: {{name: bad}}\nspec:\n  {change}\n"
    )
    with pytest.raises(KubectlFailed, match=problem):
        kubectl("apply", "-n", namespace, "--validate=strict", "-f", "-", stdin=text)


def test_real_api_server_rejects_an_object_without_the_required_spec(
    installed: ControlPlane, namespace: str, kubectl: Callable[..., str]
) -> None:
    text = "apiVersion: everything.test/v1\nkind: Thing\nmetadata: {name: bad}\n"
    with pytest.raises(KubectlFailed, match=r"spec: Required value"):
        kubectl("apply", "-n", namespace, "-f", "-", stdin=text)


def test_marker_without_a_description() -> None:
    class Y(Struct):
        """Y."""

        free: PreserveUnknownFields
        n: Annotated[Int32, ValidationRule("self > 0")] = 1

    assert struct_schema(Y)["properties"]["n"]["x-kubernetes-validations"] == [{"rule": "self > 0"}]


def test_schema_of_values_stays_in_a_map_that_keeps_unknown_fields() -> None:
    class Z(Struct):
        """Z."""

        free: PreserveUnknownFields
        levels: Annotated[
            dict[str, int], SchemaOverride.of(x_kubernetes_preserve_unknown_fields=True)
        ]

    properties = struct_schema(Z)["properties"]
    preserve = {"x-kubernetes-preserve-unknown-fields": True}
    assert properties["free"] == {"type": "object", **preserve}
    values = {"type": "integer", "format": "int64"}
    assert properties["levels"] == {"type": "object", "additionalProperties": values, **preserve}


class Selector(Struct, kw_only=True):
    __schema__ = (MapType("atomic"), SchemaOverride.of(required=["key"]))
    key: str | None = None
    rules: list[str] = []
    mode: Annotated[str | None, OneOf("Always", "Never")] = None
    level: Annotated[int, OneOf(1, 2)] = 1
    amount: Quantity | None = None
    plain: Annotated[int, Format("")] = 0
    marker: EmptyObject | None = None
    loose: Annotated[Any, SchemaOverride.of(x_kubernetes_preserve_unknown_fields=None)] = None


@kind(
    "example.com/v1",
    singular="one",
    list_kind="Many",
    selectable_fields=(".selector.key",),
    status_subresource=False,
    deprecated=True,
    external=True,
    columns=[Column("Gone", ".spec.gone", "integer", format="int32")],
)
class Foreign(Object, kw_only=True, omit_defaults=True):
    __schema__ = (ValidationRule("has(self.selector)", optional_old_self=True),)
    metadata: Annotated[ObjectMeta, SchemaOverride.of(maxProperties=9)] = ObjectMeta()
    selector: Selector
    status: Annotated[dict[str, str], MapType("granular")] = {}


def test_what_only_a_crd_of_another_operator_needs() -> None:
    spec = build_crds([Foreign])[0]["spec"]
    assert (spec["names"]["singular"], spec["names"]["listKind"]) == ("one", "Many")
    version = spec["versions"][0]
    assert version["selectableFields"] == [{"jsonPath": ".selector.key"}]
    assert version["deprecated"] is True
    assert not version.keys() & {"deprecationWarning", "subresources"}
    # The path is not checked: the CRD is not ours.
    assert version["additionalPrinterColumns"] == [
        {"name": "Gone", "type": "integer", "jsonPath": ".spec.gone", "format": "int32"}
    ]
    schema = version["schema"]["openAPIV3Schema"]
    assert schema["x-kubernetes-validations"] == [
        {"rule": "has(self.selector)", "optionalOldSelf": True}
    ]
    assert "required" not in schema
    assert schema["properties"]["metadata"] == {"type": "object", "maxProperties": 9}
    assert schema["properties"]["status"] == {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "x-kubernetes-map-type": "granular",
    }
    int_or_string = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
    }
    assert schema["properties"]["selector"] == {
        "type": "object",
        "required": ["key"],
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "key": {"type": "string"},
            "rules": {"type": "array", "items": {"type": "string"}},
            "mode": {"type": "string", "enum": ["Always", "Never"]},
            "level": {"type": "integer", "format": "int64", "enum": [1, 2], "default": 1},
            "amount": int_or_string | {"pattern": QUANTITY_PATTERN},
            "plain": {"type": "integer"},
            "marker": {"type": "object"},
            "loose": {},
        },
    }


def test_an_unknown_value_of_a_foreign_enum_decodes() -> None:
    obj = Foreign.decode(b'{"selector": {"mode": "Sometimes", "level": 7}}')
    assert (obj.selector.mode, obj.selector.level) == ("Sometimes", 7)
    with pytest.raises(Undecodable):
        Foreign.decode(b'{"selector": {"mode": 3}}')


def test_map_type_of_a_list_is_rejected() -> None:
    class Wrong(Struct):
        items: Annotated[list[str], MapType("atomic")] = []

    with pytest.raises(SchemaError, match=r"Wrong.items: MapType applies to maps and Structs only"):
        struct_schema(Wrong)


class StrictSpec(Struct, kw_only=True, omit_defaults=True):
    name: str


class LooseStatus(Struct, kw_only=True, omit_defaults=True):
    ready: bool | None = None


@kind("example.com/v1", external=True)
class ForeignResource(Resource[StrictSpec, LooseStatus]):
    pass


def test_an_external_object_may_lack_its_spec() -> None:
    obj = ForeignResource.decode(b'{"metadata": {"name": "a"}}')
    assert obj.encode() == {
        "apiVersion": "example.com/v1",
        "kind": "ForeignResource",
        "metadata": {"name": "a"},
    }
    obj = ForeignResource(spec=StrictSpec(name="b"), status=LooseStatus(ready=True))
    assert obj.encode() == {
        "apiVersion": "example.com/v1",
        "kind": "ForeignResource",
        "metadata": {},
        "spec": {"name": "b"},
        "status": {"ready": True},
    }
