"""Modules from CRDs: their names, types and what survives a write."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kubewright.builder.compat.crd_diff import compare_crds
from kubewright.builder.typegen.crd_modules import render_version
from kubewright.builder.typegen.crd_source import parse_crd
from kubewright.builder.typegen.names import field_names, singularize
from kubewright.errors import ConfigError
from kubewright.overlay import overlay
from kubewright.testing.controlplane import ControlPlane, KubectlFailed
from kubewright.yaml_text import parse_documents, to_yaml

from .generated_modules import MYPY, load_kinds, load_module, new_crd, regenerate, schemas_of

CRD_FILE = Path(__file__).parent / "vineyards.yaml"
TYPED_PROGRAM = """
from vineyard import Cellar, Vineyard, VineyardSpec

vineyard = Vineyard(spec=VineyardSpec(grape="Riesling", size=3, from_="slope", cellar=Cellar()))
rows: int | str | None = vineyard.spec.rows
for plot in vineyard.spec.plots:
    name: str = plot.name
    assert plot.soil is None or plot.soil.upper()
vineyard.spec.labels["a"] = "b"
if vineyard.status.conditions:
    message: str | None = vineyard.status.conditions[0].message
"""
WRONG_PROGRAM = """
from vineyard import Vineyard, VineyardSpec

Vineyard(spec=VineyardSpec(size=3))
VineyardSpec(grape=7, size=3, color="red")
"""


def read_vineyards() -> dict[str, Any]:
    (document,) = parse_documents(CRD_FILE.read_text(), str(CRD_FILE))
    crd: dict[str, Any] = document
    return crd


def render(crd: dict[str, Any], index: int = 0) -> str:
    parsed = parse_crd(crd, "a test")
    return render_version(parsed, parsed.spec.versions[index])


def test_every_feature_of_a_crd_survives() -> None:
    crd = read_vineyards()
    regenerated = regenerate(crd)
    assert schemas_of(regenerated) == schemas_of(crd)
    for key in ("group", "names", "scope", "conversion"):
        assert regenerated["spec"][key] == crd["spec"][key]
    for old, new in zip(crd["spec"]["versions"], regenerated["spec"]["versions"], strict=True):
        assert {**new, "schema": ""} == {**old, "schema": ""}
    assert [change for change in compare_crds([crd], [regenerated]) if change.is_breaking()] == []


def test_real_api_server_accepts_the_regenerated_crd(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    file = tmp_path / "crd.yaml"
    for crd in (read_vineyards(), regenerate(read_vineyards())):
        file.write_text(to_yaml(crd))
        control_plane.apply(file)
    control_plane.kubectl("delete", "crd", "vineyards.wine-yard.example")


def test_classes_have_short_names_and_equal_schemas_share_one() -> None:
    module = load_module(render(read_vineyards()))
    assert list(module.VineyardSpec.__annotations__)[:3] == ["amount", "anything", "both"]
    names = [name for name in vars(module) if name[0].isupper() and name not in dir(__builtins__)]
    own = [name for name in names if getattr(module, name).__module__ == module.__name__]
    assert own == [
        *("VineyardSpec", "VineyardStatus", "Both", "Cellar", "Owner", "Plot", "Rule"),
        *("StatusCondition", "RuleCellar", "Vineyard"),
    ]


def test_objects_decode_and_encode() -> None:
    (kind, _) = load_kinds(parse_crd(read_vineyards(), "a test"))
    stored = {
        "apiVersion": "wine-yard.example/v1",
        "kind": "Vineyard",
        "metadata": {"name": "a"},
        "spec": {
            "grape": "A grape that a newer CRD allows",
            "size": 0,
            "from": "slope",
            "rows": "50%",
            "amount": "1Gi",
            "opened": "2026-01-02T03:04:05Z",
            "seal": "aGk=",
            "cellar": {},
            "empty": {},
            "plots": [{"name": "a", "protocol": "TCP"}],
            "resource": {"apiVersion": "v1", "kind": "Pod", "metadata": {}},
            "anything": [1, {"a": 2}],
            "x-ray": 1.5,
        },
    }
    obj: Any = kind.decode(to_json(stored))
    assert obj.encode() == stored
    assert (obj.spec.from_, obj.spec.x_ray, obj.spec.seal) == ("slope", 1.5, b"hi")
    assert obj.spec.opened == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    # Without spec and status, as the CRD allows.
    assert kind.decode(b'{"metadata": {"name": "a"}}').encode() == {
        "apiVersion": "wine-yard.example/v1",
        "kind": "Vineyard",
        "metadata": {"name": "a"},
    }


def to_json(value: Any) -> bytes:
    import msgspec

    return msgspec.json.encode(value)


def test_unknown_fields_survive_an_update() -> None:
    (kind, _) = load_kinds(parse_crd(read_vineyards(), "a test"))
    stored: dict[str, Any] = {
        "metadata": {"name": "a", "future": 1},
        "spec": {
            "grape": "Riesling",
            "size": 1,
            "from": "slope",
            "future": {"a": 1},
            "cellar": {"future": 2},
            "plots": [
                {"name": "a", "protocol": "TCP", "future": 3},
                {"name": "a", "protocol": "UDP", "future": 4},
            ],
        },
        "status": {"future": 5},
    }
    obj: Any = kind.decode(to_json(stored))
    obj.spec.size = 2
    # The items are matched by name and protocol, not by their place.
    obj.spec.plots.reverse()
    updated = overlay(stored, obj)
    stored["spec"]["size"] = 2
    stored["spec"]["plots"].reverse()
    assert updated == stored | {"apiVersion": "wine-yard.example/v1", "kind": "Vineyard"}


def test_a_default_is_not_sent_and_an_empty_list_can_be() -> None:
    (kind, _) = load_kinds(parse_crd(read_vineyards(), "a test"))
    obj: Any = kind.decode(b'{"spec": {"grape": "a", "size": 1, "from": "b"}}')
    assert (obj.spec.color, obj.spec.tastings) == (None, None)
    assert "color" not in obj.encode()["spec"]
    obj.spec.tastings = []
    assert obj.encode()["spec"]["tastings"] == []


def test_type_checkers_accept_the_module_and_find_errors_in_its_use(tmp_path: Path) -> None:
    crd = read_vineyards()
    for index, name in enumerate(("vineyard", "vineyard_v1beta1")):
        (tmp_path / f"{name}.py").write_text(render(crd, index))
    hostile = new_crd(spec_schema=hostile_schema(), kind="Object")
    (tmp_path / "hostile.py").write_text(render(hostile))
    (tmp_path / "nullable.py").write_text(render(nullable_crd()))
    (tmp_path / "typed.py").write_text(TYPED_PROGRAM)
    (tmp_path / "wrong.py").write_text(WRONG_PROGRAM)
    output = subprocess.run(MYPY, cwd=tmp_path, capture_output=True, text=True).stdout
    assert output.splitlines() == [
        'wrong.py:4: error: Missing named argument "from_" for "VineyardSpec"  [call-arg]',
        'wrong.py:4: error: Missing named argument "grape" for "VineyardSpec"  [call-arg]',
        'wrong.py:5: error: Missing named argument "from_" for "VineyardSpec"  [call-arg]',
        'wrong.py:5: error: Argument "grape" to "VineyardSpec" has incompatible type "int"; '
        'expected "str"  [arg-type]',
        "Found 4 errors in 1 file (checked 6 source files)",
    ]
    ruff = [sys.executable, "-m", "ruff", "format", "--check", "--isolated", "--line-length", "100"]
    modules = ["vineyard.py", "vineyard_v1beta1.py", "hostile.py", "nullable.py"]
    assert subprocess.run([*ruff, *modules], cwd=tmp_path).returncode == 0


def nullable_crd() -> dict[str, Any]:
    """A CRD that allows null as spec and as status."""
    properties = {"a": {"type": "string"}}
    part = {"type": "object", "required": ["a"], "properties": properties}
    # A field of the same shape is not nullable, so it must not share the class.
    spec = {**part, "properties": {**properties, "inner": part}, "nullable": True}
    crd = new_crd(spec_schema=spec)
    root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["properties"]["status"] = {**part, "nullable": True, "default": {"a": "b"}}
    root["properties"]["last"] = {key: value for key, value in spec.items() if key != "nullable"}
    return crd


def test_nullable_spec_and_status_are_never_none_in_python() -> None:
    crd = nullable_crd()
    assert schemas_of(regenerate(crd)) == schemas_of(crd)
    (kind,) = load_kinds(parse_crd(crd, "a test"))
    obj: Any = kind.decode(b'{"spec": {"a": "x", "inner": {"a": "y"}}, "status": null}')
    assert (obj.spec.inner.a, obj.status.a) == ("y", None)
    # The spec has a required field, so there is no empty one.
    assert kind.decode(b'{"metadata": {"name": "a"}, "spec": null}').encode() == {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "a"},
    }


def hostile_schema() -> dict[str, Any]:
    """A schema with nearly every name that could break a class."""
    names = [
        *("from", "None", "str", "list", "dict", "datetime", "Any", "Struct", "msgspec", "kind"),
        *("field", "rules", "x-y", "x.y", "x_y", "1st", "", "_a", "__b", "__c__", "é", "self"),
        *("Annotated", "Resource", "Object", "ObjectSpec", "property", "definition", "mro"),
    ]
    leaf = {"type": "array", "items": {"type": "string", "format": "date-time"}}
    inner = {"type": "object", "properties": dict.fromkeys(names, leaf)}
    return {"type": "object", "properties": dict.fromkeys(names, inner) | {"x": leaf}}


def test_fields_with_names_that_python_has_itself() -> None:
    crd = new_crd(spec_schema=hostile_schema(), kind="Object")
    assert schemas_of(regenerate(crd)) == schemas_of(crd)
    (kind,) = load_kinds(parse_crd(crd, "a test"))
    assert (kind.__name__, kind.definition.name) == ("ObjectKind", "Object")


def test_real_map_that_keeps_unknown_fields_has_a_schema_of_values(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    levels = {
        "type": "object",
        "additionalProperties": {"type": "integer", "format": "int64"},
        "x-kubernetes-preserve-unknown-fields": True,
    }
    crd = new_crd(spec_schema={"type": "object", "properties": {"levels": levels}})
    regenerated = regenerate(crd)
    assert schemas_of(regenerated) == schemas_of(crd)
    file = tmp_path / "crd.yaml"
    file.write_text(to_yaml(regenerated))
    control_plane.apply(file)
    name = "widgets.example.com"
    control_plane.wait_for_crds(name)
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
    wrong = to_yaml(widget | {"spec": {"levels": {"a": "x"}}})
    with pytest.raises(KubectlFailed, match=r"spec\.levels\.a in body must be of type integer"):
        control_plane.kubectl("-n", namespace, "create", "-f", "-", stdin=wrong)
    control_plane.kubectl("delete", "crd", name)


def test_a_schema_of_many_levels() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(60):
        schema = {"type": "object", "properties": {"items": {"type": "array", "items": schema}}}
    crd = new_crd(spec_schema=schema)
    assert schemas_of(regenerate(crd)) == schemas_of(crd)


def test_a_field_name_that_msgspec_rejects() -> None:
    quoted = {"type": "object", "properties": {'a"b': {"type": "string"}}}
    crd = new_crd(spec_schema={"type": "object", "properties": {"map": quoted}})
    assert schemas_of(regenerate(crd)) == schemas_of(crd)
    root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["properties"] |= quoted["properties"]
    with pytest.raises(ConfigError, match="cannot be the name of a field"):
        render(crd)


def test_a_crd_of_the_first_api_version() -> None:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}},
    }
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1beta1",
        "kind": "CustomResourceDefinition",
        "spec": {
            "group": "example.com",
            "version": "v1",
            "names": {"kind": "Widget", "plural": "widgets"},
            "validation": {"openAPIV3Schema": schema},
            "subresources": {"status": {}},
            "additionalPrinterColumns": [{"name": "A", "JSONPath": ".spec.a", "type": "string"}],
        },
    }
    (version,) = regenerate(crd)["spec"]["versions"]
    assert version["subresources"] == {"status": {}}
    assert version["additionalPrinterColumns"] == [
        {"name": "A", "type": "string", "jsonPath": ".spec.a"}
    ]


def test_a_crd_without_schema() -> None:
    crd = new_crd([{"name": "v1", "served": True, "storage": True}])
    assert load_kinds(parse_crd(crd, "a test"))[0].decode(b'{"metadata": {"name": "a"}, "x": 1}')


def test_python_names_of_fields() -> None:
    assert field_names(["from", "from_", "a-b", "a.b", "a_b", "", "$", "2nd"], ()) == {
        "from": "from_2",
        "from_": "from_",
        "a-b": "a_b_",
        "a.b": "a_b_2",
        "a_b": "a_b",
        "": "field",
        "$": "field_",
        "2nd": "field_2nd",
    }


def test_names_of_list_items() -> None:
    plurals = ("rules", "addresses", "policies", "matches", "boxes", "env", "dns", "status", "axis")
    singulars = ("rule", "address", "policy", "match", "box", "env", "dns", "status", "axis")
    assert tuple(map(singularize, plurals)) == singulars


def test_a_crd_without_the_names_that_the_api_server_fills_in() -> None:
    crd = new_crd(spec_schema={"type": "object", "properties": {"a": {"type": "string"}}})
    del crd["spec"]["names"]["listKind"]
    del crd["spec"]["names"]["singular"]
    assert [
        change for change in compare_crds([crd], [regenerate(crd)]) if change.is_breaking()
    ] == []


def test_values_that_are_not_json() -> None:
    field = {"type": "number", "maximum": float("inf"), "format": ""}
    crd = new_crd(spec_schema={"type": "object", "properties": {"a": field, True: field}})
    (kind,) = load_kinds(parse_crd(crd, "a test"))
    assert kind.decode(b'{"spec": {"a": 1}}').encode()["spec"] == {"a": 1}
