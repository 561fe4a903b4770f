"""The real API server asks; real kubectl shows the words."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from kubewright.errors import Forbidden, Invalid, ServerError
from kubewright.meta import ObjectMeta
from kubewright.testing.controlplane import KubectlFailed

from .conftest import Boxes
from .rig import Box, BoxSpec, BoxStatus, OldBox, key

CONVERTED = "hooks.kubewright.test/kept-from-v2"


async def stored(boxes: Boxes, name: str, version: str = "v2") -> dict[str, Any]:
    return dict(
        json.loads(
            await boxes.kubectl("get", f"boxes.{version}.hooks.kubewright.test", name, "-o", "json")
        )
    )


async def refused(boxes: Boxes, name: str, spec: str) -> str:
    with pytest.raises(KubectlFailed) as words:
        await boxes.apply(name, spec)
    return str(words.value).partition("apply -f -: ")[2]


async def test_defaults_and_nothing_else(boxes: Boxes) -> None:
    await boxes.apply("square", "width: 7, future: {depth: 3}")
    assert (await stored(boxes, "square"))["spec"] == {
        "width": 7,
        "height": 7,
        "future": {"depth": 3},
    }
    await boxes.apply("bare")
    assert "spec" not in await stored(boxes, "bare")
    assert "status" not in await stored(boxes, "square")
    await boxes.apply("square", "width: 9, height: 8, future: {depth: 3}")
    assert (await stored(boxes, "square"))["spec"] == {
        "width": 9,
        "height": 8,
        "future": {"depth": 3},
    }


async def test_the_words_that_kubectl_shows(boxes: Boxes, caplog: pytest.LogCaptureFixture) -> None:
    both = 'The Box "large" is invalid: \n* spec.width: must not be above 100\n* spec.height: must not be above 100'
    assert await refused(boxes, "large", "width: 101, height: 102") == both
    who = 'admission webhook "validate.boxes.hooks.kubewright.test"'
    forbidden = (
        f'Error from server (Forbidden): error when creating "STDIN": {who} denied the request: '
        "plaid is out of fashion; choose a plain colour"
    )
    assert await refused(boxes, "plaid", "colour: plaid") == forbidden
    odd = (
        'The Box "odd" is invalid: spec.width: this Box does not decode: Expected `int`, got `str`'
    )
    assert await refused(boxes, "odd", "width: a") == odd
    await boxes.apply("first", "width: 5, height: 5")
    assert (
        await refused(boxes, "first", "width: 4, height: 5")
        == 'The Box "first" is invalid: spec.width: a box does not shrink'
    )
    with pytest.raises(KubectlFailed, match="Warning: grey boxes are hard to find"):
        await boxes.kubectl(
            "apply", "--warnings-as-errors", "-f", "-", stdin=box("grey", "colour: grey")
        )
    assert (await stored(boxes, "grey"))["spec"]["colour"] == "grey"


def box(name: str, spec: str) -> str:
    return f"apiVersion: hooks.kubewright.test/v2\nkind: Box\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"


async def test_the_errors_that_a_client_gets(boxes: Boxes) -> None:
    async def create(name: str, **spec: Any) -> Box:
        return await boxes.client.create(
            Box(metadata=ObjectMeta(name=name, namespace=boxes.namespace), spec=BoxSpec(**spec))
        )

    with pytest.raises(
        Invalid, match=r"spec.width: must not be above 100; spec.height: must not be above 100"
    ):
        await create("large", width=101, height=102)
    with pytest.raises(Forbidden, match="out of fashion"):
        await create("plaid", colour="plaid")


async def test_an_exception_in_user_code_is_a_500_with_words_and_hurts_nobody_else(
    boxes: Boxes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        words = await refused(boxes, "broken", "colour: broken")
    assert (
        "an error on the server (\"BoxWebhook.validate failed: KeyError: 'no such colour, password=***'\")"
        in words
    )
    assert "InternalError" in words
    assert [record.getMessage() for record in caplog.records if record.name == "BoxWebhook"] == [
        "BoxWebhook.validate failed"
    ]
    await boxes.apply("fine", "width: 1")
    text = boxes.manager.metrics.exposition()[0].decode()
    assert "controller_runtime_webhook_panics_total 1.0\n" in text
    assert (
        'controller_runtime_webhook_requests_total{code="500",webhook="/validate-hooks-kubewright-test-v2-box"} 1.0\n'
        in text
    )


async def test_who_asks_and_for_what(boxes: Boxes) -> None:
    await boxes.kubectl("apply", "--dry-run=server", "-f", "-", stdin=box("dry", "width: 2"))
    told = dict(boxes.webhook.asked)
    assert told.keys() == {"default", "validate"}
    assert {(a.operation, a.namespace, a.name, a.dry_run, a.username) for a in told.values()} == {
        ("CREATE", boxes.namespace, "dry", True, "admin")
    }
    assert "system:masters" in told["validate"].groups
    with pytest.raises(KubectlFailed, match="NotFound"):
        await stored(boxes, "dry")


async def test_never_asked_about_status_deletion_or_finalizers(boxes: Boxes) -> None:
    await boxes.kubectl(
        "apply",
        "-f",
        "-",
        stdin=box("held", "width: 2").replace("name: held", "name: held, finalizers: [a.test/b]"),
    )
    held = key(boxes.namespace, "held")
    boxes.webhook.asked.clear()
    await boxes.client.patch_status(Box, held, {"area": 4})
    await boxes.kubectl("delete", "boxes.v2.hooks.kubewright.test", "held", "--wait=false")
    await boxes.client.patch(Box, held, {"metadata": {"finalizers": None}})
    await boxes.kubectl(
        "wait", "--for=delete", "boxes.v2.hooks.kubewright.test/held", "--timeout=10s"
    )
    assert boxes.webhook.asked == []


async def test_an_object_that_comes_as_if_it_were_going_is_asked_about(boxes: Boxes) -> None:
    """A POST loses such a mark before anybody is asked; what server-side apply creates does not."""
    liar = box("liar", "width: 200").replace(
        "name: liar", "name: liar, deletionTimestamp: '2020-01-01T00:00:00Z'"
    )
    with pytest.raises(KubectlFailed, match=r"spec\.width: must not be above 100"):
        await boxes.kubectl("apply", "--server-side", "--validate=false", "-f", "-", stdin=liar)


async def test_while_nobody_answers(boxes: Boxes) -> None:
    """failurePolicy is the API server's; what it must not stop is an object on its way out."""
    await boxes.kubectl(
        "apply",
        "-f",
        "-",
        stdin=box("held", "width: 2").replace("name: held", "name: held, finalizers: [a.test/b]"),
    )
    held = key(boxes.namespace, "held")
    assert boxes.manager.answering is not None
    await boxes.manager.answering.server.stop()
    words = await refused(boxes, "more", "width: 2")
    assert 'failed calling webhook "mutate.boxes.hooks.kubewright.test"' in words
    await boxes.kubectl("delete", "boxes.v2.hooks.kubewright.test", "held", "--wait=false")
    await boxes.client.patch(Box, held, {"metadata": {"finalizers": None}})
    await boxes.kubectl(
        "wait", "--for=delete", "boxes.v2.hooks.kubewright.test/held", "--timeout=10s"
    )
    await boxes.client.patch_status(Box, key(boxes.namespace, "first"), {"area": 4})


async def test_two_versions(boxes: Boxes) -> None:
    await boxes.apply("old", "size: 3, note: hello, future: {depth: 1}", version="v1")
    hub = await stored(boxes, "old")
    assert hub["spec"] == {"width": 3, "height": 3, "future": {"depth": 1}}
    old = await stored(boxes, "old", "v1")
    assert old["spec"] == {"size": 3, "note": "hello", "future": {"depth": 1}}
    assert old["metadata"]["uid"] == hub["metadata"]["uid"]
    by_server = box("old", "size: 4").replace("/v2", "/v1")
    await boxes.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=by_server)
    # What kubectl applied before, in either way, and does not name any more, it takes away: also what v2 only kept.
    assert (await stored(boxes, "old"))["spec"] == {"width": 4, "height": 4}
    assert (await stored(boxes, "old", "v1"))["spec"] == {"size": 4}


async def test_what_the_other_version_cannot_say_survives_an_edit_there(boxes: Boxes) -> None:
    await boxes.apply("new", "width: 3, height: 9, colour: red, future: {depth: 1}")
    await boxes.client.patch_status(Box, key(boxes.namespace, "new"), {"area": 27})
    old = await stored(boxes, "new", "v1")
    assert old["spec"] == {"size": 3, "future": {"depth": 1}}
    assert old["status"]["area"] == 27
    assert CONVERTED in old["metadata"]["annotations"]
    await boxes.kubectl(
        "patch",
        "boxes.v1.hooks.kubewright.test",
        "new",
        "--type=merge",
        "-p",
        '{"spec": {"note": "hi"}}',
    )
    hub = await stored(boxes, "new")
    assert hub["spec"] == {"width": 3, "height": 9, "colour": "red", "future": {"depth": 1}}
    assert CONVERTED not in hub["metadata"].get("annotations", {})
    assert (await stored(boxes, "new", "v1"))["spec"] == {
        "size": 3,
        "note": "hi",
        "future": {"depth": 1},
    }
    # Of a box with one side, another size means both sides: what was kept of the height is not true any more.
    await boxes.client.patch(OldBox, key(boxes.namespace, "new"), {"spec": {"size": 4}})
    assert (await stored(boxes, "new"))["spec"] == {
        "width": 4,
        "height": 4,
        "colour": "red",
        "future": {"depth": 1},
    }


async def test_a_whole_list_in_the_other_version(boxes: Boxes) -> None:
    for number in range(60):
        name = ObjectMeta(name=f"box-{number}", namespace=boxes.namespace)
        await boxes.client.create(
            Box(metadata=name, spec=BoxSpec(width=number), status=BoxStatus())
        )
    found = await boxes.client.list(OldBox, boxes.namespace)
    assert {
        each.metadata.name: each.spec.size for each in found if each.metadata.name != "first"
    } == {f"box-{n}": n for n in range(60)}


async def test_a_conversion_that_fails_says_why(boxes: Boxes) -> None:
    await boxes.kubectl(
        "annotate",
        "boxes.v2.hooks.kubewright.test",
        "first",
        "hooks.kubewright.test/kept-from-v1=no json",
    )
    assert (await stored(boxes, "first", "v1"))["spec"] == {"size": 1}
    converting = boxes.manager.answering
    assert converting is not None
    converting.server.handlers["/convert"].kinds.clear()  # type: ignore[attr-defined]
    with pytest.raises(
        ServerError, match=r"nobody declared a conversion of hooks.kubewright.test/v2 Box"
    ):
        await boxes.client.get(OldBox, key(boxes.namespace, "first"))
