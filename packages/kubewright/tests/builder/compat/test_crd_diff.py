"""Every kind of change of a CRD is reported, and classified as breaking or safe."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kubewright.builder.compat import rules
from kubewright.builder.compat.crd_diff import compare_crds
from kubewright.builder.compat.rules import POLICIES, Rule, expand_policies
from kubewright.builder.compat.schema_diff import schema_changes

Json = dict[str, Any]
ROOT = Path(__file__).parents[5]

BASE: Json = {
    "metadata": {"name": "things.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "preserveUnknownFields": True,
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
                "selectableFields": [{"jsonPath": ".spec.mode"}],
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
                                    "any": {"x-kubernetes-preserve-unknown-fields": True},
                                    "unique": {
                                        "type": "array",
                                        "items": {"type": "string"},
                                        "uniqueItems": True,
                                    },
                                    "combined": {
                                        "type": "integer",
                                        "allOf": [{"minimum": -50}, {"maximum": 50}],
                                        "anyOf": [{"maximum": 10}, {"minimum": 20}],
                                        "oneOf": [{"multipleOf": 2}, {"multipleOf": 3}],
                                        "not": {"enum": [13]},
                                    },
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
    schema: Json = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def spec_properties(crd: Json) -> Json:
    schema: Json = spec_schema(crd)["properties"]
    return schema


def status_properties(crd: Json) -> Json:
    schema: Json = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"][
        "properties"
    ]
    return schema


def stored_version(crd: Json) -> Json:
    schema: Json = crd["spec"]["versions"][0]
    return schema


Edit = Callable[[Json], object]

BREAKING: dict[str, tuple[Edit, str]] = {
    "scope changed": (lambda c: c["spec"].update(scope="Cluster"), "scope"),
    "kind renamed": (lambda c: c["spec"]["names"].update(kind="Other"), "names.kind"),
    "short name removed": (lambda c: c["spec"]["names"].update(shortNames=[]), "kubectl get th"),
    "category removed": (lambda c: c["spec"]["names"].pop("categories"), '"all" removed'),
    "version removed": (lambda c: c["spec"]["versions"].pop(), "v0: version removed"),
    "version not served": (
        lambda c: stored_version(c).update(served=False),
        "v1: no longer served",
    ),
    "status subresource removed": (
        lambda c: stored_version(c)["subresources"].pop("status"),
        "subresource status: removed",
    ),
    "scale subresource removed": (
        lambda c: stored_version(c)["subresources"].pop("scale"),
        "subresource scale: removed",
    ),
    "scale path changed": (
        lambda c: stored_version(c)["subresources"]["scale"].update(statusReplicasPath=".status.n"),
        "statusReplicasPath changed from",
    ),
    "column removed": (
        lambda c: stored_version(c)["additionalPrinterColumns"].pop(0),
        'column "Mode": removed',
    ),
    "column shows another field": (
        lambda c: stored_version(c)["additionalPrinterColumns"][0].update(jsonPath=".x"),
        "shows .x instead of .spec.mode",
    ),
    "column for -o wide alone": (
        lambda c: stored_version(c)["additionalPrinterColumns"][0].update(priority=1),
        "now shown only with `-o wide`",
    ),
    "field removed": (lambda c: spec_properties(c).pop("free"), "v1.spec.free: field removed"),
    "field of an item removed": (
        lambda c: spec_properties(c)["ports"]["items"]["properties"].pop("proto"),
        "v1.spec.ports[].proto: field removed",
    ),
    "status field removed": (
        lambda c: status_properties(c).pop("phase"),
        "v1.status.phase: field removed",
    ),
    "type changed": (
        lambda c: spec_properties(c)["free"].update(type="integer"),
        "type changed from string to integer",
    ),
    "status type changed": (
        lambda c: status_properties(c)["count"].update(type="string"),
        "v1.status.count: type",
    ),
    "type of items changed": (
        lambda c: spec_properties(c)["ports"]["items"]["properties"]["port"].update(type="string"),
        "ports[].port: type",
    ),
    "type of values changed": (
        lambda c: spec_properties(c)["labels"]["additionalProperties"].update(type="integer"),
        "labels{}: type",
    ),
    "format narrowed": (
        lambda c: spec_properties(c)["ports"]["items"]["properties"]["port"].update(format="int32"),
        "format changed from unset to int32",
    ),
    "newly required": (
        lambda c: spec_schema(c)["required"].append("free"),
        "v1.spec.free: now required",
    ),
    "new required field": (
        lambda c: (
            spec_properties(c).update(new={"type": "string"}),
            spec_schema(c)["required"].append("new"),
        ),
        "new required field",
    ),
    "enum narrowed": (
        lambda c: spec_properties(c)["mode"].update(enum=["on"]),
        "value off no longer allowed",
    ),
    "enum added": (
        lambda c: spec_properties(c)["free"].update(enum=["x"]),
        "now allows only x",
    ),
    "minimum raised": (
        lambda c: spec_properties(c)["count"].update(minimum=2),
        "minimum changed from 1 to 2",
    ),
    "maximum lowered": (
        lambda c: spec_properties(c)["count"].update(maximum=9),
        "maximum changed from 10 to 9",
    ),
    "bound added": (
        lambda c: spec_properties(c)["step"].update(minimum=0),
        "minimum changed from unset to 0",
    ),
    "bound made exclusive": (
        lambda c: spec_properties(c)["count"].update(exclusiveMinimum=True),
        "exclusiveMinimum",
    ),
    "length tightened": (
        lambda c: spec_properties(c)["name"].update(maxLength=19),
        "maxLength changed from 20 to 19",
    ),
    "length of values tightened": (
        lambda c: spec_properties(c)["labels"]["additionalProperties"].update(maxLength=8),
        "labels{}: maxLength",
    ),
    "items limited": (
        lambda c: spec_properties(c)["ports"].update(maxItems=3),
        "maxItems changed from unset to 3",
    ),
    "multiple narrowed": (
        lambda c: spec_properties(c)["step"].update(multipleOf=8),
        "multipleOf changed from 4 to 8",
    ),
    "pattern added": (
        lambda c: spec_properties(c)["free"].update(pattern="^x"),
        "pattern changed from unset to ^x",
    ),
    "pattern changed": (
        lambda c: spec_properties(c)["name"].update(pattern="^b"),
        "pattern changed from ^a to ^b",
    ),
    "default changed": (
        lambda c: spec_properties(c)["count"].update(default=3),
        "default changed from 2 to 3",
    ),
    "default removed": (
        lambda c: spec_properties(c)["count"].pop("default"),
        "default changed from 2 to unset",
    ),
    "default added": (
        lambda c: spec_properties(c)["free"].update(default="x"),
        "default changed from unset to x",
    ),
    "list type changed": (
        lambda c: spec_properties(c)["ports"].update({"x-kubernetes-list-type": "atomic"}),
        "x-kubernetes-list-type changed from map",
    ),
    "list keys changed": (
        lambda c: spec_properties(c)["ports"].update({"x-kubernetes-list-map-keys": ["proto"]}),
        "x-kubernetes-list-map-keys",
    ),
    "rule added": (
        lambda c: spec_schema(c)["x-kubernetes-validations"].append({"rule": "1 > 0"}),
        "rule 1 > 0 added",
    ),
    "unknown fields pruned": (
        lambda c: spec_properties(c)["open"].pop("x-kubernetes-preserve-unknown-fields"),
        "unknown fields no longer allowed",
    ),
    "unique items required": (
        lambda c: spec_properties(c)["ports"].update(uniqueItems=True),
        "uniqueItems changed from False to True",
    ),
    "complete object required": (
        lambda c: spec_properties(c)["open"].update({"x-kubernetes-embedded-resource": True}),
        "x-kubernetes-embedded-resource changed from False to True",
    ),
    "oneOf added": (
        lambda c: spec_schema(c).update(oneOf=[{"required": ["free"]}, {"required": ["name"]}]),
        "v1.spec: oneOf added",
    ),
    "anyOf added": (
        lambda c: spec_properties(c)["free"].update(anyOf=[{"pattern": "^a"}, {"minLength": 9}]),
        "v1.spec.free: anyOf added",
    ),
    "alternative of anyOf removed": (
        lambda c: spec_properties(c)["combined"]["anyOf"].pop(),
        "v1.spec.combined: anyOf changed",
    ),
    "alternative of anyOf changed": (
        lambda c: spec_properties(c)["combined"]["anyOf"][0].update(maximum=9),
        "v1.spec.combined: anyOf changed",
    ),
    "member of allOf added": (
        lambda c: spec_properties(c)["combined"]["allOf"].append({"minimum": 1}),
        "v1.spec.combined: allOf changed",
    ),
    "alternative of oneOf added": (
        lambda c: spec_properties(c)["combined"]["oneOf"].append({"minimum": 1}),
        "v1.spec.combined: oneOf changed",
    ),
    "alternative of oneOf removed": (
        lambda c: spec_properties(c)["combined"]["oneOf"].pop(),
        "v1.spec.combined: oneOf changed",
    ),
    "not changed": (
        lambda c: spec_properties(c)["combined"].update({"not": {"enum": [14]}}),
        "v1.spec.combined: not changed",
    ),
    "not added": (
        lambda c: spec_properties(c)["free"].update({"not": {"enum": ["x"]}}),
        "v1.spec.free: not added",
    ),
    "rule evaluated for new objects": (
        lambda c: spec_schema(c)["x-kubernetes-validations"][0].update(optionalOldSelf=True),
        "rule self.count > 0 added",
    ),
    "integer or string": (
        lambda c: spec_properties(c)["any"].update({"x-kubernetes-int-or-string": True}),
        "x-kubernetes-int-or-string changed from unset to True",
    ),
    "field not selectable": (
        lambda c: stored_version(c)["selectableFields"].pop(),
        "selectable field .spec.mode: removed",
    ),
    "all unknown fields pruned": (
        lambda c: c["spec"].update(preserveUnknownFields=False),
        "preserveUnknownFields: unknown fields no longer allowed",
    ),
    "null rejected": (
        lambda c: spec_properties(c)["none"].pop("nullable"),
        "null no longer allowed",
    ),
}

SAFE: dict[str, Edit] = {
    "description": lambda c: spec_properties(c)["mode"].update(description="How it runs."),
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
    "unique items not required": lambda c: spec_properties(c)["unique"].update(uniqueItems=False),
    "member of allOf removed": lambda c: spec_properties(c)["combined"]["allOf"].pop(),
    "allOf removed": lambda c: spec_properties(c)["combined"].pop("allOf"),
    "alternative of anyOf added": lambda c: spec_properties(c)["combined"]["anyOf"].append(
        {"maximum": -5}
    ),
    "anyOf removed": lambda c: spec_properties(c)["combined"].pop("anyOf"),
    "oneOf removed": lambda c: spec_properties(c)["combined"].pop("oneOf"),
    "not removed": lambda c: spec_properties(c)["combined"].pop("not"),
    "title": lambda c: spec_properties(c)["mode"].update(title="Mode"),
    "selectable field": lambda c: stored_version(c)["selectableFields"].append(
        {"jsonPath": ".spec.free"}
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
def test_breaking_change_is_reported(name: str) -> None:
    edit, message = BREAKING[name]
    changes = compare_crds([BASE], [apply_edit(edit)])
    breaking = [str(change) for change in changes if change.is_breaking()]
    assert any(message in text for text in breaking), breaking


@pytest.mark.parametrize("name", SAFE)
def test_safe_change_is_reported_but_not_breaking(name: str) -> None:
    changes = compare_crds([BASE], [apply_edit(SAFE[name])])
    assert changes
    assert [str(change) for change in changes if change.is_breaking()] == []


def test_removed_kind_is_breaking_and_new_kind_is_not() -> None:
    [removed], [added] = compare_crds([BASE], []), compare_crds([], [BASE])
    assert (str(removed), removed.is_breaking()) == ("things.example.com: kind removed", True)
    assert (str(added), added.is_breaking()) == ("things.example.com: new kind", False)


def test_equal_crds_have_no_changes() -> None:
    crds = [
        yaml.safe_load(path.read_text())
        for path in sorted((ROOT / "config/crd/bases").glob("*.yaml"))
    ]
    assert len(crds) >= 5
    assert compare_crds([BASE, *crds], copy.deepcopy([*crds, BASE])) == []


def test_documentation_inside_a_combination_is_ignored() -> None:
    def add_descriptions(crd: Json) -> None:
        combined = spec_properties(crd)["combined"]
        combined["anyOf"][0]["description"] = "Small."
        combined["not"]["title"] = "Unlucky"

    assert compare_crds([BASE], [apply_edit(add_descriptions)]) == []


def test_field_called_description_inside_a_combination_counts() -> None:
    old, new = ({"anyOf": [{"properties": {"description": {"maxLength": n}}}]} for n in (9, 8))
    assert [change.message for change in schema_changes(old, new)] == ["anyOf changed"]


def test_version_in_stored_versions_cannot_be_removed() -> None:
    def remove_v0(crd: Json) -> None:
        crd["spec"]["versions"].pop()

    def remove_v1(crd: Json) -> None:
        crd["spec"]["versions"][0].update(name="v2")

    def rule_of(old: Json, edit: Edit) -> Rule | None:
        new = copy.deepcopy(old)
        edit(new)
        changes = compare_crds([old], [new])
        [removed] = [item.change for item in changes if item.change.message == "version removed"]
        return removed.rule

    installed = BASE | {"status": {"storedVersions": ["v0", "v1"]}}
    assert rule_of(BASE, remove_v0) is rules.VERSION_REMOVED
    assert rule_of(installed, remove_v0) is rules.STORED_VERSION_REMOVED
    assert rule_of(BASE, remove_v1) is rules.STORED_VERSION_REMOVED


POLICY_CHANGES: dict[str, Edit] = {
    "description-changed": SAFE["description"],
    "enum-value-added": SAFE["enum widened"],
    "null-allowed": SAFE["null allowed"],
    "pattern-removed": SAFE["pattern removed"],
    "required-with-default": SAFE["newly required, with a default"],
}


@pytest.mark.parametrize("policy", sorted(POLICIES.keys() - {"all"}))
def test_policy_makes_its_class_of_changes_breaking_and_no_other(policy: str) -> None:
    for name, edit in POLICY_CHANGES.items():
        [change] = compare_crds([BASE], [apply_edit(edit)])
        assert change.is_breaking([policy]) == (name == policy), name
        assert change.is_breaking(expand_policies(["all"]))


def test_policies_for_readers_count_in_the_status_too() -> None:
    new = apply_edit(lambda c: status_properties(c)["phase"].update(enum=["A", "B", "C"]))
    [change] = compare_crds([BASE], [new])
    assert change.is_breaking(["enum-value-added"])


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
    """Whether the API server would accept the value."""
    return (
        value >= schema.get("minimum", value)
        and value <= schema.get("maximum", value)
        and value in schema.get("enum", [value])
        and value % schema.get("multipleOf", 1) == 0
    )


@settings(max_examples=500)
@given(schemas, schemas)
def test_change_that_rejects_a_valid_value_is_always_breaking(old: Json, new: Json) -> None:
    rejected = [
        value for value in range(-30, 31) if is_allowed(old, value) and not is_allowed(new, value)
    ]
    if rejected:
        assert any(change.is_breaking() for change in schema_changes(old, new)), rejected
