"""Decoding of objects, and what a declaration checks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
import pytest
from msgspec import Struct

from kubewright import Column, Doc, Int32, Object, Resource, Spec, Status, kind, version_of
from kubewright.builtin import ConfigMap, Pod
from kubewright.errors import SchemaError, Undecodable
from kubewright.schema import struct_schema


class RuleSpec(Spec):
    verbs: list[str] = []
    since: datetime | None = None
    limit: Annotated[int, Doc("Limit.", le=3)] = 1


@kind("example.com/v1")
class Rule(Resource[RuleSpec, Status]):
    """A kind with a list, which Go writes as null when it is empty."""


class Ambiguous(Struct):
    value: list[int] | set[int]


def test_a_null_counts_as_absent() -> None:
    rule = Rule.decode(
        b'{"metadata": {"name": "a", "labels": null}, "status": null,'
        b' "spec": {"verbs": null, "since": "2026-01-02T03:04:05Z"}}'
    )
    assert rule.spec == RuleSpec(verbs=[], since=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert (rule.metadata.name, rule.metadata.labels) == ("a", {})
    assert rule.status == Status()


@pytest.mark.parametrize(
    "body",
    [
        b'{"spec": {"verbs": null, "limit": 9}}',
        b'{"spec": {"limit": 9}}',
        b'{"metadata": null',
        b"null",
    ],
)
def test_an_error_other_than_a_null_is_reported(body: bytes) -> None:
    with pytest.raises(Undecodable, match="cannot decode Rule"):
        Rule.decode(body)


def test_an_undecodable_type_is_an_error_of_the_declaration() -> None:
    with pytest.raises(SchemaError, match=r"Ambiguous\.value: .*array-like"):

        @kind("example.com/v1")
        class Wrong(Object):
            value: Ambiguous | None = None


class Replica(Struct):
    zone: Annotated[str | None, Doc("Zone of the replica.", min_length=1)] = None


class LimitedSpec(Spec):
    replicas: Annotated[Int32 | None, Doc("Number of replicas.", ge=1, le=3)] = None
    placed: list[Replica] = []


@kind("example.com/v1")
class Limited(Resource[LimitedSpec, Status]):
    """Constraints on optional fields, also of a nested type."""


@pytest.mark.parametrize("spec", [b"{}", b'{"replicas": null}', b'{"placed": [{"zone": "a"}]}'])
def test_optional_field_with_constraints_can_be_absent(spec: bytes) -> None:
    assert Limited.decode(b'{"spec": %s}' % spec).spec.replicas is None


@pytest.mark.parametrize("spec", [b'{"replicas": 4}', b'{"placed": [{"zone": ""}]}'])
def test_constraints_of_an_optional_field_are_checked(spec: bytes) -> None:
    with pytest.raises(Undecodable, match="Expected"):
        Limited.decode(b'{"spec": %s}' % spec)


def test_constraints_of_an_optional_field_are_in_the_schema() -> None:
    properties = struct_schema(LimitedSpec)["properties"]
    assert properties["replicas"] == {
        "type": "integer",
        "format": "int32",
        "minimum": 1,
        "maximum": 3,
        "description": "Number of replicas.",
    }
    zone = properties["placed"]["items"]["properties"]["zone"]
    assert zone == {"type": "string", "minLength": 1, "description": "Zone of the replica."}


class Flagged(Struct):
    flag: Annotated[bool | None, Doc("A flag.", ge=1)] = None


class FlaggedSpec(Spec):
    inner: Flagged | None = None


def test_constraint_that_does_not_apply_names_class_and_field() -> None:
    with pytest.raises(SchemaError, match=r"Flagged\.flag: Can only set `ge` on a numeric type"):

        @kind("example.com/v1")
        class Outer(Resource[FlaggedSpec, Status]):
            pass


def test_a_builtin_kind_is_external_and_ours_is_not() -> None:
    assert Pod.definition.external
    assert ConfigMap.definition.external
    assert not Rule.definition.external


@pytest.mark.parametrize(
    ("api_version", "is_external"),
    [("v1", True), ("apps/v1", True), ("policy.k8s.io/v1", True), ("example.com/v1", False)],
)
def test_hand_written_kind_of_kubernetes_is_external(api_version: str, is_external: bool) -> None:
    @kind(api_version)
    class Deployment(Resource[Spec, Status]):
        """Some fields of it."""

    assert Deployment.definition.external == is_external


def test_the_decoder_of_an_external_kind_is_built_at_its_first_use() -> None:
    @kind("v1", external=True)
    class Binding(Object):
        pass

    assert "decoder" not in vars(Binding.definition)
    assert Binding.decode(b'{"metadata": {"name": "a"}}').metadata.name == "a"
    assert isinstance(vars(Binding.definition)["decoder"], msgspec.json.Decoder)


@pytest.mark.parametrize("names", [["Ready"], ["AGE"], ["Size", "size"]])
def test_two_columns_of_one_name_are_rejected(names: list[str]) -> None:
    columns = [Column(name, ".spec.limit") for name in names]
    with pytest.raises(SchemaError, match=r"Limited column \w+: two columns have this name; ren"):

        @kind("example.com/v1", columns=columns)
        class Limited(Resource[RuleSpec, Status]):
            """A kind with a column that kubectl shows twice."""

    @kind("example.com/v1", columns=columns, external=True)
    class Foreign(Resource[RuleSpec, Status]):
        """The columns of another operator are not ours to change."""

    with pytest.raises(SchemaError, match="two columns have this name"):

        @version_of(Rule, "v2", columns=columns)
        class RuleV2(Resource[RuleSpec, Status]):
            """Another version."""
