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
    def to_hub(self, old: FlatBox) -> Box:
        width, _, height = old.spec.sides.partition("x")
        return Box(spec=BoxSpec(width=int(width or 0), height=int(height or 0)))

    def from_hub(self, hub: Box) -> FlatBox:
        return FlatBox(
            spec=FlatSpec(sides=f"{hub.spec.width}x{hub.spec.height}" if hub.spec.width else "")
        )


def make_review(wanted: str, *objects: Any) -> bytes:
    asked = {"uid": "u-1", "desiredAPIVersion": wanted, "objects": objects}
    return json.dumps(
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": asked}
    ).encode()


async def handle_review(
    wanted: str, *objects: Any, handler: ConversionHandler | None = None
) -> dict[str, Any]:
    answer = json.loads(
        await (handler or ConversionHandler([BoxConversion(), FlatConversion()])).handle(
            make_review(wanted, *objects)
        )
    )
    assert answer["response"]["uid"] == "u-1"
    return dict(answer["response"])


async def convert(obj: Any, wanted: str) -> dict[str, Any]:
    answer = await handle_review(wanted, obj)
    assert answer["result"] == {"status": "Success"}
    [made] = answer["convertedObjects"]
    assert made["apiVersion"] == wanted
    return dict(made)


def make_box(version: str, spec: Any = None, **more: Any) -> dict[str, Any]:
    metadata = {"name": "a", "uid": "u", "managedFields": [{"x": 1}], "labels": {"l": "1"}}
    return (
        {"apiVersion": version, "kind": "Box", "metadata": metadata}
        | ({} if spec is None else {"spec": spec})
        | more
    )


async def test_metadata_and_unknown_fields_stay() -> None:
    old = make_box(
        V1, {"size": 3, "unknown": {"x": 1}}, status={"area": 9, "conditions": [], "more": True}
    )
    made = await convert(old, V2)
    assert made == make_box(
        V2,
        {"width": 3, "height": 3, "unknown": {"x": 1}},
        status={"area": 9, "conditions": [], "more": True},
    )
    assert await convert(make_box(V1), V2) == make_box(V2)
    assert await convert(make_box(V2), V2) == make_box(V2)


async def test_through_the_hub_and_back() -> None:
    first = make_box(V3, {"sides": "2x5", "unknown": 1})
    second = await convert(first, V1)
    assert second["spec"] == {"size": 2, "unknown": 1}
    assert await convert(second, V3) == first
    second["spec"]["note"] = "edited"
    third = await convert(second, V3)
    assert third["spec"] == first["spec"]
    assert (await convert(third, V1))["spec"] == second["spec"]


async def test_nothing_is_kept_where_that_is_not_wanted() -> None:
    class Forgetting(BoxConversion):
        preserve_lost_fields = False

    answer = await handle_review(
        V1, make_box(V2, {"width": 1, "height": 2}), handler=ConversionHandler([Forgetting()])
    )
    assert answer["convertedObjects"] == [make_box(V1, {"size": 1})]


SIDES = st.integers(0, 3)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "width": SIDES,
        "height": SIDES,
        "colour": st.sampled_from(["", "red"]),
        "unknown": st.recursive(
            st.integers(0, 1),
            lambda inner: st.dictionaries(st.sampled_from("ab"), inner, min_size=1),
            max_leaves=3,
        ),
    },
)


@settings(deadline=None)
@given(SPECS, st.sampled_from([V1, V3]))
async def test_nothing_is_lost_there_and_back(spec: dict[str, Any], there: str) -> None:
    original = make_box(V2, spec)
    before = copy.deepcopy(original)
    assert without_defaults(await convert(await convert(original, there), V2)) == without_defaults(
        original
    )
    assert original == before


def without_defaults(obj: dict[str, Any]) -> dict[str, Any]:
    """A zero that is written and one that is not are the same to the class, and may change places."""
    return obj | {
        "spec": {name: value for name, value in obj.get("spec", {}).items() if value not in ("", 0)}
    }


@pytest.mark.parametrize(
    "kept",
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
async def test_an_annotation_written_by_somebody_else_breaks_nothing(kept: str) -> None:
    old = with_preserved_annotation(make_box(V1, {"size": 3}), "v2", kept)
    made = await convert(old, V2)
    assert (made["spec"], made["metadata"]["uid"]) == ({"width": 3, "height": 3}, "u")


def with_preserved_annotation(obj: dict[str, Any], version: str, kept: str) -> dict[str, Any]:
    return obj | {
        "metadata": obj["metadata"]
        | {"annotations": {f"hooks.kubewright.test/kept-from-{version}": kept}}
    }


async def test_what_somebody_else_wrote_and_no_conversion_understands_is_left_aside() -> None:
    strange = with_preserved_annotation(
        make_box(V2, {"width": 3, "height": 3}),
        "v3",
        '[[["spec","sides"],"3x3","wide"],[["spec","unknown"],null,1]]',
    )
    assert (await convert(strange, V3))["spec"] == {"sides": "3x3", "unknown": 1}


async def test_more_than_annotations_hold_is_told_with_the_object() -> None:
    answer = await handle_review(
        V1, make_box(V2, {"width": 1, "height": 1, "colour": "x" * 262_144})
    )
    assert answer["result"]["message"].startswith(
        "a: it has more that v1 cannot say than annotations hold (262144 bytes)"
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
    def to_hub(self, old: OldWeight) -> Weight:
        return Weight(spec=WeightSpec(value=old.spec.kilos))

    def from_hub(self, hub: Weight) -> OldWeight:
        return OldWeight(
            spec=OldWeightSpec(kilos=hub.spec.value // (1000 if hub.spec.unit == "g" else 1))
        )


async def test_what_was_kept_never_turns_an_edit_into_something_else() -> None:
    """The unit was kept beside the value: with another value it means something else, while the note still holds."""
    converting = ConversionHandler([WeightConversion()])
    grams = make_box(V2, {"value": 1500, "unit": "g", "note": "fragile"}) | {"kind": "Weight"}
    [old] = (await handle_review(V1, grams, handler=converting))["convertedObjects"]
    assert old["spec"] == {"kilos": 1}
    assert (await handle_review(V2, old, handler=converting))["convertedObjects"] == [grams]
    old["spec"]["kilos"] = 2
    [edited] = (await handle_review(V2, old, handler=converting))["convertedObjects"]
    assert edited["spec"] == {"value": 2, "note": "fragile"}


async def test_labels_may_change_but_nothing_else_of_metadata() -> None:
    class Marking(BoxConversion):
        def to_hub(self, old: OldBox) -> Box:
            made = super().to_hub(old)
            made.metadata = replace(old.metadata, labels={"l": "2"}, uid="another")
            return made

    answer = await handle_review(
        V2, make_box(V1, {"size": 1}), handler=ConversionHandler([Marking()])
    )
    [made] = answer["convertedObjects"]
    assert made["metadata"] == make_box(V1)["metadata"] | {"labels": {"l": "2"}}


async def test_labels_of_an_object_without_a_name_yet_stay() -> None:
    nameless = make_box(V1, {"size": 1}) | {
        "metadata": {"generateName": "a-", "labels": {"l": "1"}}
    }
    assert (await convert(nameless, V2))["metadata"] == nameless["metadata"]


async def test_a_failure_is_told_for_all() -> None:
    class Failing(BoxConversion):
        def to_hub(self, old: OldBox) -> Box:
            raise ValueError(f"cannot read {old.metadata.name}")

    class Wrong(BoxConversion):
        def to_hub(self, old: OldBox) -> Any:
            return old

    for conversion, words in (
        (Failing(), "ValueError: cannot read a"),
        (Wrong(), "gave a OldBox, not a Box"),
    ):
        answer = await handle_review(
            V2, make_box(V1), make_box(V1), handler=ConversionHandler([conversion])
        )
        assert (answer["result"]["status"], answer["convertedObjects"]) == ("Failure", [])
        assert words in answer["result"]["message"]
        assert answer["result"]["message"].startswith("a: "), (
            "one of a page stops all of them, and has to be found"
        )
    assert (
        "nobody declared how Box is converted from or to hooks.kubewright.test/v9"
        in (await handle_review(V1, make_box(V2), make_box("hooks.kubewright.test/v9")))["result"][
            "message"
        ]
    )
    assert (
        "does not decode"
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
async def test_what_is_no_review(body: bytes) -> None:
    with pytest.raises(BadReview):
        await ConversionHandler([BoxConversion()]).handle(body)


def test_declarations_that_make_no_sense() -> None:
    class Twice(BoxConversion): ...

    class Same(Conversion[Box, Box]): ...

    class Nothing(Conversion): ...  # type: ignore[type-arg]

    with pytest.raises(ConfigError, match="two conversions"):
        ConversionHandler([BoxConversion(), Twice()])
    with pytest.raises(ConfigError, match="no two versions of one kind"):
        Same()
    with pytest.raises(ConfigError, match="does not say its versions"):
        Nothing()
