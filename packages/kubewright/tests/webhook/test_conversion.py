from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright import Conversion, Resource, Spec, Status, kind
from kubewright.errors import ConfigError
from kubewright.webhook.admission import BadReview
from kubewright.webhook.conversion import ConversionHandler

from .box_kind import Box, BoxConversion, BoxSpec, OldBox

V1, V2, V3 = (f"hooks.kubewright.test/{version}" for version in ("v1", "v2", "v3"))


class FlatSpec(Spec):
    """The sides as one text."""

    sides: str = ""


@kind(V3, name="Box", storage=False)
class FlatBox(Resource[FlatSpec, Status]):
    """A third version."""


class FlatConversion(Conversion[FlatBox, Box]):
    def to_hub(self, spoke: FlatBox) -> Box:
        width, _, height = spoke.spec.sides.partition("x")
        return Box(spec=BoxSpec(width=int(width or 0), height=int(height or 0)))

    def from_hub(self, hub: Box) -> FlatBox:
        return FlatBox(
            spec=FlatSpec(sides=f"{hub.spec.width}x{hub.spec.height}" if hub.spec.width else "")
        )


def make_review(version: str, *objects: Any) -> bytes:
    request = {"uid": "u-1", "desiredAPIVersion": version, "objects": objects}
    return json.dumps(
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    ).encode()


async def handle_review(
    version: str, *objects: Any, handler: ConversionHandler | None = None
) -> dict[str, Any]:
    review = json.loads(
        await (handler or ConversionHandler([BoxConversion(), FlatConversion()])).handle(
            make_review(version, *objects)
        )
    )
    assert review["response"]["uid"] == "u-1"
    return dict(review["response"])


async def convert(obj: Any, version: str) -> dict[str, Any]:
    response = await handle_review(version, obj)
    assert response["result"] == {"status": "Success"}
    [converted] = response["convertedObjects"]
    assert converted["apiVersion"] == version
    return dict(converted)


def make_box(version: str, spec: Any = None, **more: Any) -> dict[str, Any]:
    metadata = {"name": "a", "uid": "u", "managedFields": [{"x": 1}], "labels": {"l": "1"}}
    return (
        {"apiVersion": version, "kind": "Box", "metadata": metadata}
        | ({} if spec is None else {"spec": spec})
        | more
    )


async def test_metadata_and_unknown_fields_are_kept() -> None:
    old = make_box(
        V1, {"size": 3, "unknown": {"x": 1}}, status={"area": 9, "conditions": [], "more": True}
    )
    converted = await convert(old, V2)
    assert converted == make_box(
        V2,
        {"width": 3, "height": 3, "unknown": {"x": 1}},
        status={"area": 9, "conditions": [], "more": True},
    )
    assert await convert(make_box(V1), V2) == make_box(V2)
    assert await convert(make_box(V2), V2) == make_box(V2)


async def test_spokes_convert_through_the_hub() -> None:
    first = make_box(V3, {"sides": "2x5", "unknown": 1})
    second = await convert(first, V1)
    assert second["spec"] == {"size": 2, "unknown": 1}
    assert await convert(second, V3) == first
    second["spec"]["note"] = "edited"
    third = await convert(second, V3)
    assert third["spec"] == first["spec"]
    assert (await convert(third, V1))["spec"] == second["spec"]


async def test_lost_fields_are_dropped_if_they_are_not_preserved() -> None:
    class LossyConversion(BoxConversion):
        preserve_lost_fields = False

    response = await handle_review(
        V1, make_box(V2, {"width": 1, "height": 2}), handler=ConversionHandler([LossyConversion()])
    )
    assert response["convertedObjects"] == [make_box(V1, {"size": 1})]


SIDES = st.integers(0, 3)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "width": SIDES,
        "height": SIDES,
        "color": st.sampled_from(["", "red"]),
        "unknown": st.recursive(
            st.integers(0, 1),
            lambda inner: st.dictionaries(st.sampled_from("ab"), inner, min_size=1),
            max_leaves=3,
        ),
    },
)


@settings(deadline=None)
@given(SPECS, st.sampled_from([V1, V3]))
async def test_round_trip_loses_nothing(spec: dict[str, Any], version: str) -> None:
    original = make_box(V2, spec)
    before = copy.deepcopy(original)
    assert without_defaults(
        await convert(await convert(original, version), V2)
    ) == without_defaults(original)
    assert original == before


def without_defaults(obj: dict[str, Any]) -> dict[str, Any]:
    # To the class, an explicit zero and an absent one are the same.
    return obj | {
        "spec": {name: value for name, value in obj.get("spec", {}).items() if value not in ("", 0)}
    }


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "{}",
        '[[["metadata","uid"],"u","stolen"]]',
        '[[["spec","width"],3,"text"]]',
        "[[[],null,1]]",
        '[[["spec","width","deeper"],null,1]]',
        '[[["spec","width"],3,77]]',
        json.dumps([[["spec", *"x" * 9999], None, 1]]),
    ],
)
async def test_foreign_annotation_does_not_break_the_conversion(text: str) -> None:
    old = with_preserved_annotation(make_box(V1, {"size": 3}), "v2", text)
    converted = await convert(old, V2)
    assert (converted["spec"], converted["metadata"]["uid"]) == ({"width": 3, "height": 3}, "u")


def with_preserved_annotation(obj: dict[str, Any], version: str, text: str) -> dict[str, Any]:
    return obj | {
        "metadata": obj["metadata"]
        | {"annotations": {f"hooks.kubewright.test/kept-from-{version}": text}}
    }


async def test_preserved_value_that_does_not_convert_is_ignored() -> None:
    obj = with_preserved_annotation(
        make_box(V2, {"width": 3, "height": 3}),
        "v3",
        '[[["spec","sides"],"3x3","wide"],[["spec","unknown"],null,1]]',
    )
    assert (await convert(obj, V3))["spec"] == {"sides": "3x3", "unknown": 1}


async def test_too_large_lost_fields_are_an_error_with_the_object() -> None:
    response = await handle_review(
        V1, make_box(V2, {"width": 1, "height": 1, "color": "x" * 262_144})
    )
    assert response["result"]["message"].startswith(
        "a: the fields that v1 does not have are larger than an annotation may be (262144 bytes)"
    )


class WeightSpec(Spec):
    value: int = 0
    unit: str = "kg"
    note: str = ""


@kind("hooks.kubewright.test/v2")
class Weight(Resource[WeightSpec, Status]):
    """In any unit."""


class OldWeightSpec(Spec):
    kilos: int = 0


@kind("hooks.kubewright.test/v1", name="Weight", storage=False)
class OldWeight(Resource[OldWeightSpec, Status]):
    """In kilos."""


class WeightConversion(Conversion[OldWeight, Weight]):
    def to_hub(self, spoke: OldWeight) -> Weight:
        return Weight(spec=WeightSpec(value=spoke.spec.kilos))

    def from_hub(self, hub: Weight) -> OldWeight:
        return OldWeight(
            spec=OldWeightSpec(kilos=hub.spec.value // (1000 if hub.spec.unit == "g" else 1))
        )


async def test_preserved_value_does_not_change_an_edit() -> None:
    # The preserved unit belongs to the old value. The note is still valid.
    handler = ConversionHandler([WeightConversion()])
    grams = make_box(V2, {"value": 1500, "unit": "g", "note": "fragile"}) | {"kind": "Weight"}
    [old] = (await handle_review(V1, grams, handler=handler))["convertedObjects"]
    assert old["spec"] == {"kilos": 1}
    assert (await handle_review(V2, old, handler=handler))["convertedObjects"] == [grams]
    old["spec"]["kilos"] = 2
    [edited] = (await handle_review(V2, old, handler=handler))["convertedObjects"]
    assert edited["spec"] == {"value": 2, "note": "fragile"}


async def test_conversion_can_change_labels_but_no_other_metadata() -> None:
    class LabelConversion(BoxConversion):
        def to_hub(self, spoke: OldBox) -> Box:
            hub = super().to_hub(spoke)
            hub.metadata = replace(spoke.metadata, labels={"l": "2"}, uid="another")
            return hub

    response = await handle_review(
        V2, make_box(V1, {"size": 1}), handler=ConversionHandler([LabelConversion()])
    )
    [converted] = response["convertedObjects"]
    assert converted["metadata"] == make_box(V1)["metadata"] | {"labels": {"l": "2"}}


async def test_object_without_a_name_keeps_its_labels() -> None:
    nameless = make_box(V1, {"size": 1}) | {
        "metadata": {"generateName": "a-", "labels": {"l": "1"}}
    }
    assert (await convert(nameless, V2))["metadata"] == nameless["metadata"]


async def test_one_failure_fails_the_whole_review() -> None:
    class Failing(BoxConversion):
        def to_hub(self, spoke: OldBox) -> Box:
            raise ValueError(f"cannot read {spoke.metadata.name}")

    class Wrong(BoxConversion):
        def to_hub(self, spoke: OldBox) -> Any:
            return spoke

    for conversion, problem in (
        (Failing(), "ValueError: cannot read a"),
        (Wrong(), "returned a OldBox, not a Box"),
    ):
        response = await handle_review(
            V2, make_box(V1), make_box(V1), handler=ConversionHandler([conversion])
        )
        assert (response["result"]["status"], response["convertedObjects"]) == ("Failure", [])
        assert problem in response["result"]["message"]
        assert response["result"]["message"].startswith("a: "), (
            "one object fails the page, so the message must name it"
        )
    assert (
        "Box has no conversion from or to hooks.kubewright.test/v9"
        in (await handle_review(V1, make_box(V2), make_box("hooks.kubewright.test/v9")))["result"][
            "message"
        ]
    )
    assert (
        "cannot decode"
        in (await handle_review(V2, make_box(V1, {"size": "x"})))["result"]["message"]
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"apiVersion":"v1","kind":"Pod","request":{"uid":"","desiredAPIVersion":"","objects":[]}}',
    ],
)
async def test_invalid_review_is_an_error(body: bytes) -> None:
    with pytest.raises(BadReview):
        await ConversionHandler([BoxConversion()]).handle(body)


def test_invalid_declaration_is_an_error() -> None:
    class Twice(BoxConversion): ...

    class Same(Conversion[Box, Box]): ...

    class Nothing(Conversion): ...  # type: ignore[type-arg]

    with pytest.raises(ConfigError, match="two conversions"):
        ConversionHandler([BoxConversion(), Twice()])
    with pytest.raises(ConfigError, match="not two versions of one kind"):
        Same()
    with pytest.raises(ConfigError, match="has no versions"):
        Nothing()
