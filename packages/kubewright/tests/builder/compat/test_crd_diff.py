"""What a change of a CRD breaks: each kind of change, classified."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kubewright.builder.compat.crd_diff import compare_crds
from kubewright.builder.compat.schema_diff import schema_changes

Json = dict[str, Any]
ROOT = Path(__file__).parents[5]

BASE: Json = {
    "metadata": {"name": "things.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {
            "kind": "Thing",
            "listKind": "ThingList",
            "plural": "things",
            "singular": "thing",
            "shortNames": ["th"],
            "categories": ["all"],
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.count",
                        "statusReplicasPath": ".status.count",
                    },
                },
                "additionalPrinterColumns": [
                    {"name": "Mode", "type": "string", "jsonPath": ".spec.mode"},
                    {"name": "Count", "type": "integer", "jsonPath": ".spec.count"},
                ],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["mode"],
                                "properties": {
                                    "mode": {
                                        "type": "string",
                                        "enum": ["on", "off"],
                                        "description": "How.",
                                    },
                                    "count": {
                                        "type": "integer",
                                        "format": "int32",
                                        "minimum": 1,
                                        "maximum": 10,
                                        "default": 2,
                                    },
                                    "name": {
                                        "type": "string",
                                        "minLength": 1,
                                        "maxLength": 20,
                                        "pattern": "^a",
                                    },
                                    "free": {"type": "string"},
                                    "step": {"type": "integer", "multipleOf": 4},
                                    "open": {
                                        "type": "object",
                                        "x-kubernetes-preserve-unknown-fields": True,
                                    },
                                    "none": {"type": "string", "nullable": True},
                                    "ports": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["port"],
                                        "items": {
                                            "type": "object",
                                            "required": ["port"],
                                            "properties": {
                                                "port": {"type": "integer"},
                                                "proto": {"type": "string", "default": "TCP"},
                                            },
                                        },
                                    },
                                    "labels": {
                                        "type": "object",
                                        "additionalProperties": {"type": "string", "maxLength": 9},
                                    },
                                },
                                "x-kubernetes-validations": [
                                    {"rule": "self.count > 0", "message": "no"}
                                ],
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "count": {"type": "integer", "maximum": 5},
                                    "phase": {"type": "string", "enum": ["A", "B"]},
                                },
                            },
                        },
                    }
                },
            },
            {
                "name": "v0",
                "served": True,
                "storage": False,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            },
        ],
    },
}


def spec_schema(crd: Json) -> Json:
    found: Json = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def spec_properties(crd: Json) -> Json:
    found: Json = spec_schema(crd)["properties"]
    return found


def status_properties(crd: Json) -> Json:
    found: Json = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"][
        "properties"
    ]
    return found


def stored_version(crd: Json) -> Json:
    found: Json = crd["spec"]["versions"][0]
    return found


Edit = Callable[[Json], object]

BREAKING: dict[str, tuple[Edit, str]] = {
    "scope changed": (lambda c: c["spec"].update(scope="Cluster"), "scope"),
    "kind renamed": (lambda c: c["spec"]["names"].update(kind="Other"), "names.kind"),
    "short name removed": (lambda c: c["spec"]["names"].update(shortNames=[]), "kubectl get th"),
    "category removed": (lambda c: c["spec"]["names"].pop("categories"), '"all" is gone'),
    "version removed": (lambda c: c["spec"]["versions"].pop(), "v0: the version is gone"),
    "version not served": (
        lambda c: stored_version(c).update(served=False),
        "v1: is not served any more",
    ),
    "status subresource removed": (
        lambda c: stored_version(c)["subresources"].pop("status"),
        "subresource status: is gone",
    ),
    "scale subresource removed": (
        lambda c: stored_version(c)["subresources"].pop("scale"),
        "subresource scale: is gone",
    ),
    "scale path changed": (
        lambda c: stored_version(c)["subresources"]["scale"].update(statusReplicasPath=".status.n"),
        "statusReplicasPath was",
    ),
    "column removed": (
        lambda c: stored_version(c)["additionalPrinterColumns"].pop(0),
        'column "Mode": is gone',
    ),
    "column shows another field": (
        lambda c: stored_version(c)["additionalPrinterColumns"][0].update(jsonPath=".x"),
        "shows .x",
    ),
    "column for -o wide alone": (
        lambda c: stored_version(c)["additionalPrinterColumns"][0].update(priority=1),
        "is shown by `-o wide` alone now",
    ),
    "field removed": (lambda c: spec_properties(c).pop("free"), "v1.spec.free: the field is gone"),
    "field of an item removed": (
        lambda c: spec_properties(c)["ports"]["items"]["properties"].pop("proto"),
        "v1.spec.ports[].proto: the field is gone",
    ),
    "status field removed": (
        lambda c: status_properties(c).pop("phase"),
        "v1.status.phase: the field is gone",
    ),
    "type changed": (
        lambda c: spec_properties(c)["free"].update(type="integer"),
        "the type was string, is integer",
    ),
    "status type changed": (
        lambda c: status_properties(c)["count"].update(type="string"),
        "v1.status.count: the type",
    ),
    "type of items changed": (
        lambda c: spec_properties(c)["ports"]["items"]["properties"]["port"].update(type="string"),
        "ports[].port: the type",
    ),
    "type of values changed": (
        lambda c: spec_properties(c)["labels"]["additionalProperties"].update(type="integer"),
        "labels{}: the type",
    ),
    "format narrowed": (
        lambda c: spec_properties(c)["ports"]["items"]["properties"]["port"].update(format="int32"),
        "the format was any, is int32",
    ),
    "newly required": (
        lambda c: spec_schema(c)["required"].append("free"),
        "v1.spec.free: is required now",
    ),
    "new required field": (
        lambda c: (
            spec_properties(c).update(new={"type": "string"}),
            spec_schema(c)["required"].append("new"),
        ),
        "a new required field",
    ),
    "enum narrowed": (
        lambda c: spec_properties(c)["mode"].update(enum=["on"]),
        "the value off is not allowed any more",
    ),
    "enum added": (
        lambda c: spec_properties(c)["free"].update(enum=["x"]),
        "only x are allowed now",
    ),
    "minimum raised": (
        lambda c: spec_properties(c)["count"].update(minimum=2),
        "minimum was 1, is 2",
    ),
    "maximum lowered": (
        lambda c: spec_properties(c)["count"].update(maximum=9),
        "maximum was 10, is 9",
    ),
    "bound added": (
        lambda c: spec_properties(c)["step"].update(minimum=0),
        "minimum was not there, is 0",
    ),
    "bound made exclusive": (
        lambda c: spec_properties(c)["count"].update(exclusiveMinimum=True),
        "exclusiveMinimum",
    ),
    "length tightened": (
        lambda c: spec_properties(c)["name"].update(maxLength=19),
        "maxLength was 20, is 19",
    ),
    "length of values tightened": (
        lambda c: spec_properties(c)["labels"]["additionalProperties"].update(maxLength=8),
        "labels{}: maxLength",
    ),
    "items limited": (
        lambda c: spec_properties(c)["ports"].update(maxItems=3),
        "maxItems was not there, is 3",
    ),
    "multiple narrowed": (
        lambda c: spec_properties(c)["step"].update(multipleOf=8),
        "multipleOf was 4, is 8",
    ),
    "pattern added": (
        lambda c: spec_properties(c)["free"].update(pattern="^x"),
        "the pattern was not there, is ^x",
    ),
    "pattern changed": (
        lambda c: spec_properties(c)["name"].update(pattern="^b"),
        "the pattern was ^a, is ^b",
    ),
    "default changed": (
        lambda c: spec_properties(c)["count"].update(default=3),
        "the default was 2, is 3",
    ),
    "default removed": (
        lambda c: spec_properties(c)["count"].pop("default"),
        "the default was 2, is not there",
    ),
    "default added": (
        lambda c: spec_properties(c)["free"].update(default="x"),
        "the default was not there, is x",
    ),
    "list type changed": (
        lambda c: spec_properties(c)["ports"].update({"x-kubernetes-list-type": "atomic"}),
        "x-kubernetes-list-type was map",
    ),
    "list keys changed": (
        lambda c: spec_properties(c)["ports"].update({"x-kubernetes-list-map-keys": ["proto"]}),
        "x-kubernetes-list-map-keys",
    ),
    "rule added": (
        lambda c: spec_schema(c)["x-kubernetes-validations"].append({"rule": "1 > 0"}),
        "the rule 1 > 0 is new",
    ),
    "unknown fields pruned": (
        lambda c: spec_properties(c)["open"].pop("x-kubernetes-preserve-unknown-fields"),
        "unknown fields are kept no more",
    ),
    "null refused": (
        lambda c: spec_properties(c)["none"].pop("nullable"),
        "null is allowed no more",
    ),
}

SAFE: dict[str, Edit] = {
    "description": lambda c: spec_properties(c)["mode"].update(description="How, in other words."),
    "new optional field": lambda c: spec_properties(c).update(new={"type": "string"}),
    "new field with a default, required": lambda c: (
        spec_properties(c).update(new={"type": "string", "default": "x"}),
        spec_schema(c)["required"].append("new"),
    ),
    "new status field": lambda c: status_properties(c).update(new={"type": "string"}),
    "newly required, with a default": lambda c: spec_schema(c)["required"].append("count"),
    "not required any more": lambda c: spec_schema(c).pop("required"),
    "enum widened": lambda c: spec_properties(c)["mode"].update(enum=["on", "off", "auto"]),
    "enum removed": lambda c: spec_properties(c)["mode"].pop("enum"),
    "minimum lowered": lambda c: spec_properties(c)["count"].update(minimum=0),
    "maximum raised": lambda c: spec_properties(c)["count"].update(maximum=11),
    "bound removed": lambda c: spec_properties(c)["count"].pop("maximum"),
    "length loosened": lambda c: spec_properties(c)["name"].update(minLength=0, maxLength=30),
    "multiple widened": lambda c: spec_properties(c)["step"].update(multipleOf=2),
    "pattern removed": lambda c: spec_properties(c)["name"].pop("pattern"),
    "format widened": lambda c: spec_properties(c)["count"].update(format="int64"),
    "rule removed": lambda c: spec_schema(c)["x-kubernetes-validations"].clear(),
    "unknown fields kept": lambda c: spec_properties(c)["labels"].update(
        {"x-kubernetes-preserve-unknown-fields": True}
    ),
    "null allowed": lambda c: spec_properties(c)["free"].update(nullable=True),
    "new column": lambda c: stored_version(c)["additionalPrinterColumns"].append(
        {"name": "New", "type": "string", "jsonPath": ".spec.free"}
    ),
    "new short name": lambda c: c["spec"]["names"]["shortNames"].append("tg"),
    "new version": lambda c: c["spec"]["versions"].append(
        copy.deepcopy(c["spec"]["versions"][1]) | {"name": "v2"}
    ),
    "another version stored": lambda c: (
        stored_version(c).update(storage=False),
        c["spec"]["versions"][1].update(storage=True),
    ),
    "deprecated": lambda c: stored_version(c).update(deprecated=True),
    "status rules are our own": lambda c: (
        status_properties(c)["count"].update(maximum=4),
        status_properties(c)["phase"].update(enum=["A"]),
    ),
    "conversion by webhook": lambda c: c["spec"].update(conversion={"strategy": "Webhook"}),
}


def apply_edit(edit: Edit) -> Json:
    crd = copy.deepcopy(BASE)
    edit(crd)
    assert crd != BASE
    return crd


@pytest.mark.parametrize("name", BREAKING)
def test_it_breaks_and_is_named(name: str) -> None:
    edit, words = BREAKING[name]
    broken = [str(each) for each in compare_crds([BASE], [apply_edit(edit)]) if each.is_breaking]
    assert any(words in each for each in broken), broken


@pytest.mark.parametrize("name", SAFE)
def test_it_is_seen_and_breaks_nobody(name: str) -> None:
    found = compare_crds([BASE], [apply_edit(SAFE[name])])
    assert found
    assert [str(each) for each in found if each.is_breaking] == []


def test_a_kind_that_goes_breaks_and_one_that_comes_does_not() -> None:
    assert [(each.message, each.is_breaking) for each in compare_crds([BASE], [])] == [
        ("the kind is gone", True)
    ]
    assert [(each.message, each.is_breaking) for each in compare_crds([], [BASE])] == [
        ("a new kind", False)
    ]


def test_the_same_crds_differ_in_nothing() -> None:
    ours = [
        yaml.safe_load(path.read_text())
        for path in sorted((ROOT / "config/crd/bases").glob("*.yaml"))
    ]
    assert len(ours) >= 5
    assert compare_crds([BASE, *ours], copy.deepcopy([*ours, BASE])) == []


bounds = st.one_of(st.none(), st.integers(-3, 3))
enums = st.one_of(st.none(), st.sets(st.integers(-3, 3), min_size=1).map(sorted))
schemas = st.builds(
    lambda low, high, enum, multiple: (
        {"type": "integer"}
        | {
            key: value
            for key, value in {
                "minimum": low,
                "maximum": high,
                "enum": enum,
                "multipleOf": multiple,
            }.items()
            if value is not None
        }
    ),
    bounds,
    bounds,
    enums,
    st.one_of(st.none(), st.integers(1, 4)),
)


def is_allowed(schema: Json, value: int) -> bool:
    """What the API server would say, computed the plain way."""
    return (
        value >= schema.get("minimum", value)
        and value <= schema.get("maximum", value)
        and value in schema.get("enum", [value])
        and value % schema.get("multipleOf", 1) == 0
    )


@settings(max_examples=500)
@given(schemas, schemas)
def test_a_change_that_refuses_what_was_allowed_is_never_called_safe(old: Json, new: Json) -> None:
    refused = [
        value for value in range(-30, 31) if is_allowed(old, value) and not is_allowed(new, value)
    ]
    if refused:
        assert any(breaking for _, _, breaking in schema_changes(old, new)), refused
