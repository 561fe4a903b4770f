"""Schemas of CRDs: defaults, unknown fields, validation and rules in CEL."""

from __future__ import annotations

from typing import Any

from .crds import INTEGER, make_crd, with_spec
from .scenarios_apply import gadget
from .transcript import Step, apply, create, get, patch

Json = dict[str, Any]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def ruled(spec: Json, name: str = "a", **metadata: Any) -> Json:
    return gadget(spec, name, **metadata) | {"kind": "Ruled"}


def rejected(**spec: Any) -> Step:
    return create("gadgets", gadget(spec))


def function(name: str, good: str, bad: str) -> list[Step]:
    return [
        create("ruleds", ruled({"function": {name: bad}}, name)),
        create("ruleds", ruled({"function": {name: good}}, name), show=("spec",)),
    ]


SCENARIOS: dict[str, list[Step]] = {
    "unknown fields go, and defaults are set": [
        create(
            "gadgets",
            gadget(
                {
                    "unknown": 1,
                    "window": {"low": 1, "other": 2, "unit": None},
                    "ports": [{"name": "a", "zzz": 1}],
                    "free": {"kept": {"deep": [1]}},
                    "env": {"A": "1"},
                    "mode": None,
                    "title": None,
                }
            )
            | {"extra": True},
        ),
        patch("gadgets/a", {"spec": {"window": {"high": None}}}, show=("spec",)),
        patch("gadgets/a", {"spec": {"mode": None, "unknown": 2}}, show=("spec",)),
        patch("gadgets/a/status", {"status": {"text": "t", "unknown": 1}}, show=("status",)),
    ],
    "values that the schema rejects": [
        rejected(size=101),
        rejected(size=-1),
        rejected(size="large"),
        rejected(size=1.5),
        rejected(size=True),
        rejected(title="a"),
        rejected(title="muchtoolong"),
        rejected(title="Upper"),
        rejected(title=5),
        rejected(mode="medium"),
        rejected(enabled="yes"),
        rejected(ratio=-0.25),
        rejected(ratio=1.25),
        rejected(ratio=0.3),
        rejected(ratio="half"),
        rejected(until="tomorrow"),
        rejected(limit=1.5),
        rejected(limit=[1]),
        rejected(ports=[{"number": 1}]),
        rejected(ports=[{"name": str(number)} for number in range(4)]),
        rejected(ports=[{"name": "a"}, {"name": "a"}]),
        rejected(ports=[{"name": "a", "number": "x"}]),
        rejected(ports={"name": "a"}),
        rejected(tags=["a", "a"]),
        rejected(tags=[1]),
        rejected(order=[]),
        rejected(env={"A": 1}),
        rejected(env={str(number): "x" for number in range(4)}),
        rejected(window={}),
        rejected(window={"low": None}),
        rejected(place=5),
        rejected(size=101, title="A", window={}, mode="medium"),
    ],
    "values that the schema rejects on update": [
        create("gadgets", gadget({"size": 1, "title": "one"})),
        patch("gadgets/a", {"spec": {"size": 200}}),
        patch("gadgets/a/status", {"status": {"text": 5}}),
        patch("gadgets/a/status", {"status": {"conditions": [{"status": "True"}]}}),
        apply("gadgets/a", gadget({"title": "x"}), "one", "force=true"),
        get("gadgets/a", show=("spec", "status")),
    ],
    "rules on create": [
        create("ruleds", ruled({"low": 2, "high": 1})),
        create("ruleds", ruled({"low": 2})),
        create("ruleds", ruled({"name": "b"})),
        create("ruleds", ruled({"once": "x"})),
        create("ruleds", ruled({"expression": 7})),
        create("ruleds", ruled({"expression": 0})),
        create("ruleds", ruled({"expression": 3})),
        create("ruleds", ruled({"expression": 4})),
        create("ruleds", ruled({"even": {"a": 2, "b": 3}})),
        create("ruleds", ruled({}, "much-too-long")),
        create("ruleds", ruled({"name": "b", "expression": 7})),
        create("ruleds", ruled({"name": 5, "expression": 7})),
        create("ruleds", ruled({"name": "abc", "low": 1, "high": 2, "even": {"a": 2}})),
    ],
    "rules on update": [
        create(
            "ruleds",
            ruled({"name": "abc", "once": "o", "items": [{"name": "i", "n": 2}]}),
            show=("kind",),
        ),
        patch("ruleds/a", {"spec": {"name": "abd"}}),
        patch("ruleds/a", {"spec": {"once": "p"}}),
        patch("ruleds/a", {"spec": {"items": [{"name": "i", "n": 1}]}}),
        patch("ruleds/a", {"spec": {"items": [{"name": "j", "n": 1}]}}, show=("spec.items",)),
        patch("ruleds/a", {"spec": {"name": None}}, show=("spec",)),
        patch("ruleds/a", {"spec": {"name": "axe"}}, show=("spec",)),
        patch("ruleds/a/status", {"status": {"count": -1}}),
        patch("ruleds/a/status", {"status": {"count": 1}}, show=("status",)),
        apply("ruleds/a", ruled({"expression": 9}), "one"),
    ],
    "rules see values by the types of the schema": [
        create(
            "ruleds",
            ruled({"types": {"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}}),
        ),
        create("ruleds", ruled({"types": {"for": "90m"}})),
        create("ruleds", ruled({"types": {"x-y": 0}})),
        create("ruleds", ruled({"types": {"ratio": 1}})),
        create("ruleds", ruled({"types": {"any": 1}})),
        create(
            "ruleds",
            ruled(
                {
                    "types": {
                        "from": "2026-01-01T00:00:00Z",
                        "to": "2026-01-02T00:00:00+01:00",
                        "for": "30m",
                        "x-y": 1,
                        "ratio": 0,
                        "any": "1",
                    }
                }
            ),
            show=("kind",),
        ),
    ],
    "functions of Kubernetes in rules": [
        *function("url", "http://a.test:80/b", "not a url"),
        *function("quantity", "1Gi", "1Kx"),
        *function("ip", "10.1.2.3", "11.1.2.3"),
        *function("cidr", "10.1.0.0/16", "10.1.0.0/24"),
        *function("find", "a12b34", "a1b2"),
        *function("format", "a-b", "A_b"),
        *function("semver", "1.2.3", "1.2"),
        *function("strings", "ABC", "ABD"),
        *function("sets", "a,b", "c,d"),
        *function("macros", "a,b", "a,b,c"),
        *function("conversion", "12", "13"),
        create("ruleds", ruled({"function": {"ip": "10.9.9.9"}})),
        create("ruleds", ruled({"numbers": []})),
        create("ruleds", ruled({"numbers": [2, 1, 3]})),
        create("ruleds", ruled({"numbers": [1, 2, 3]}), show=("spec",)),
    ],
    "rule that cannot be compiled": [
        create(
            CRDS,
            make_crd(
                "Broken",
                with_spec(
                    {
                        "properties": {"n": INTEGER},
                        "x-kubernetes-validations": [{"rule": "nothing(self)"}],
                    }
                ),
            ),
        ),
    ],
}
