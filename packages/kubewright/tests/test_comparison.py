"""What counts as a difference between a desired and a live object."""

from __future__ import annotations

import copy
from typing import Annotated, Any

import pytest
from msgspec import Struct

from kubewright.comparison import compare, digest
from kubewright.kind import Object, kind
from kubewright.markers import IntOrString, ListType, MapType, Quantity
from kubewright.patch import Json


class Port(Struct, kw_only=True):
    port: int
    protocol: str = ""
    targetPort: IntOrString = 0


class Selector(Struct, frozen=True, kw_only=True):
    __schema__ = (MapType("atomic"),)

    app: str = ""
    tier: str = ""


class Spec(Struct, frozen=True, kw_only=True):
    ports: Annotated[list[Port], ListType("map", "port", "protocol")] = []
    limits: dict[str, Quantity] = {}
    storage: Quantity | None = None
    names: Annotated[list[str], ListType("set")] = []
    args: list[str] = []
    tolerations: list[dict[str, str]] = []
    anything: Any = None
    text: str = ""
    enabled: bool = False
    odd: int | str | list[str] = 0
    selector: Annotated[dict[str, str], MapType("atomic")] = {}
    typed: Selector = Selector()


@kind("example.com/v1")
class Thing(Object):
    spec: Spec = Spec()


_LIVE: Json = {
    "apiVersion": "example.com/v1",
    "kind": "Thing",
    "metadata": {
        "name": "a",
        "labels": {"ours": "1", "theirs": "2"},
        "ownerReferences": [{"uid": "x", "name": "other"}, {"uid": "y", "name": "ours"}],
        "finalizers": ["a", "b"],
    },
    "spec": {
        "ports": [
            {"port": 53, "protocol": "TCP", "targetPort": 53},
            {"port": 53, "protocol": "UDP", "targetPort": 53},
            {"port": 80, "protocol": "TCP", "targetPort": "http"},
        ],
        "limits": {"cpu": "1", "memory": "1Gi", "theirs": "1"},
        "storage": "1Ti",
        "names": ["c", "a", "b"],
        "args": ["-v", "-x"],
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "anything": {"list": [{"name": "a", "default": 1}], "number": 1},
        "text": "1000m",
        "enabled": True,
        "odd": ["a"],
        "selector": {"app": "a", "tier": "b"},
        "typed": {"app": "a", "tier": "b"},
    },
}


def differences(**spec: Any) -> tuple[str, ...]:
    return compare({"spec": spec}, _LIVE, Thing).differences


@pytest.mark.parametrize(
    "spec",
    [
        {},
        # The protocol of a port has a default, and is a key of the list.
        {"ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]},
        {"limits": {"cpu": "1000m", "memory": "1024Mi"}},
        {"limits": {"cpu": 1}},
        {"storage": "1024Gi"},
        {"names": ["a", "b"]},
        {"args": ["-v", "-x"]},
        # The server adds defaults to the items of a list.
        {"tolerations": [{"key": "a"}]},
        {"anything": {"list": [{"name": "a"}]}},
        {"enabled": True},
        {"odd": ["a"]},
    ],
)
def test_live_object_may_have_more_and_other_forms(spec: Json) -> None:
    assert differences(**spec) == ()


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"ports": [{"port": 81}]}, ".spec.ports[port=81]"),
        (
            {"ports": [{"port": 53, "protocol": "UDP", "targetPort": 54}]},
            '.spec.ports[port=53,protocol="UDP"].targetPort',
        ),
        ({"ports": [{"port": 80, "targetPort": 80}]}, ".spec.ports[port=80].targetPort"),
        ({"limits": {"cpu": "999m"}}, ".spec.limits.cpu"),
        ({"limits": {"example.com/gpu": "1"}}, '.spec.limits["example.com/gpu"]'),
        ({"limits": {"cpu": "many"}}, ".spec.limits.cpu"),
        ({"names": ["d"]}, '.spec.names["d"]'),
        ({"args": ["-x", "-v"]}, ".spec.args[0]"),
        ({"args": ["-v"]}, ".spec.args"),
        ({"tolerations": [{"key": "b"}]}, ".spec.tolerations[0].key"),
        ({"anything": {"number": True}}, ".spec.anything.number"),
        ({"anything": {"missing": {}}}, ".spec.anything.missing"),
        # Not a quantity, although it has the form of one.
        ({"text": "1"}, ".spec.text"),
        ({"enabled": 1}, ".spec.enabled"),
        ({"enabled": {}}, ".spec.enabled"),
        ({"odd": "a"}, ".spec.odd"),
    ],
)
def test_difference_is_named_by_its_path(spec: Json, path: str) -> None:
    assert differences(**spec)[0] == path


def test_metadata_is_compared_by_its_list_types() -> None:
    ours: Json = {
        "labels": {"ours": "1"},
        "ownerReferences": [{"uid": "y", "name": "ours"}],
        "finalizers": ["b"],
    }
    assert compare({"metadata": ours}, _LIVE, Thing).differences == ()
    ours["ownerReferences"] = [{"uid": "z", "name": "ours"}]
    assert compare({"metadata": ours}, _LIVE, Thing).differences == (
        '.metadata.ownerReferences[uid="z"]',
    )


def test_digest_changes_with_our_values_only() -> None:
    desired: Json = {
        "metadata": {"labels": {"ours": "1"}},
        "spec": {"ports": [{"port": 80}], "tolerations": [{"key": "a"}], "limits": {"cpu": "1"}},
    }
    desired["spec"]["selector"] = desired["spec"]["typed"] = {"app": "a"}
    before = compare(desired, _LIVE, Thing).live_digest

    def digest_with(*path: str | int, value: Any) -> str:
        live = copy.deepcopy(_LIVE)
        target: Any = live
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value
        return compare(desired, live, Thing).live_digest

    assert digest_with("metadata", "labels", "theirs", value="3") == before
    assert digest_with("spec", "limits", "memory", value="2Gi") == before
    assert digest_with("spec", "ports", 0, "targetPort", value=1) == before
    assert digest_with("metadata", "labels", "ours", value="3") != before
    # A list without keys and an atomic map belong to one manager as a whole.
    assert digest_with("spec", "selector", "tier", value="c") != before
    assert digest_with("spec", "typed", "tier", value="c") != before
    assert digest_with("spec", "tolerations", 0, "operator", value="Equal") != before
    assert digest_with("spec", "tolerations", value=[]) != before


def test_digest_ignores_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [2, 1]}) == digest({"b": [2, 1], "a": 1})
    assert digest({"b": [1, 2]}) != digest({"b": [2, 1]})
