"""The real API server asks; real kubectl shows the words."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from kubewright.errors import Forbidden, Invalid, ServerError
from kubewright.kind import ObjectMeta
from kubewright.testing.controlplane import KubectlFailed

from .box_kind import Box, BoxSpec, BoxStatus, OldBox, key
from .conftest import BoxHarness

PRESERVED_ANNOTATION = "hooks.kubewright.test/kept-from-v2"


async def get_box(boxes: BoxHarness, name: str, version: str = "v2") -> dict[str, Any]:
    return dict(
        json.loads(
            await boxes.kubectl("get", f"boxes.{version}.hooks.kubewright.test", name, "-o", "json")
        )
    )


async def apply_rejected(boxes: BoxHarness, name: str, spec: str) -> str:
    with pytest.raises(KubectlFailed) as words:
        await boxes.apply_box(name, spec)
    return str(words.value).partition("apply -f -: ")[2]


async def test_defaults_and_nothing_else(box_harness: BoxHarness) -> None:
    await box_harness.apply_box("square", "width: 7, future: {depth: 3}")
    assert (await get_box(box_harness, "square"))["spec"] == {
        "width": 7,
        "height": 7,
        "future": {"depth": 3},
    }
    await box_harness.apply_box("bare")
    assert "spec" not in await get_box(box_harness, "bare")
    assert "status" not in await get_box(box_harness, "square")
    await box_harness.apply_box("square", "width: 9, height: 8, future: {depth: 3}")
    assert (await get_box(box_harness, "square"))["spec"] == {
        "width": 9,
        "height": 8,
        "future": {"depth": 3},
    }


async def test_the_words_that_kubectl_shows(
    box_harness: BoxHarness, caplog: pytest.LogCaptureFixture
) -> None:
    both = 'The Box "large" is invalid: \n* spec.width: must not be above 100\n* spec.height: must not be above 100'
    assert await apply_rejected(box_harness, "large", "width: 101, height: 102") == both
    who = 'admission webhook "validate.boxes.hooks.kubewright.test"'
    forbidden = (
        f'Error from server (Forbidden): error when creating "STDIN": {who} denied the request: '
        "plaid is out of fashion; choose a plain colour"
    )
    assert await apply_rejected(box_harness, "plaid", "colour: plaid") == forbidden
    odd = (
        'The Box "odd" is invalid: spec.width: this Box does not decode: Expected `int`, got `str`'
    )
    assert await apply_rejected(box_harness, "odd", "width: a") == odd
    await box_harness.apply_box("first", "width: 5, height: 5")
    assert (
        await apply_rejected(box_harness, "first", "width: 4, height: 5")
        == 'The Box "first" is invalid: spec.width: a box does not shrink'
    )
    with pytest.raises(KubectlFailed, match="Warning: grey boxes are hard to find"):
        await box_harness.kubectl(
            "apply", "--warnings-as-errors", "-f", "-", stdin=box_manifest("grey", "colour: grey")
        )
    assert (await get_box(box_harness, "grey"))["spec"]["colour"] == "grey"


def box_manifest(name: str, spec: str) -> str:
    return f"apiVersion: hooks.kubewright.test/v2\nkind: Box\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"


async def test_the_errors_that_a_client_gets(box_harness: BoxHarness) -> None:
    async def create(name: str, **spec: Any) -> Box:
        return await box_harness.client.create(
            Box(
                metadata=ObjectMeta(name=name, namespace=box_harness.namespace),
                spec=BoxSpec(**spec),
            )
        )

    with pytest.raises(
        Invalid, match=r"spec.width: must not be above 100; spec.height: must not be above 100"
    ):
        await create("large", width=101, height=102)
    with pytest.raises(Forbidden, match="out of fashion"):
        await create("plaid", colour="plaid")


async def test_an_exception_in_user_code_is_a_500_with_words_and_hurts_nobody_else(
    box_harness: BoxHarness, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        words = await apply_rejected(box_harness, "broken", "colour: broken")
    assert (
        "an error on the server (\"BoxWebhook.validate failed: KeyError: 'no such colour, password=***'\")"
        in words
    )
    assert "InternalError" in words
    assert [record.getMessage() for record in caplog.records if record.name == "BoxWebhook"] == [
        "BoxWebhook.validate failed"
    ]
    await box_harness.apply_box("fine", "width: 1")
    text = box_harness.manager.metrics.exposition()[0].decode()
    assert "controller_runtime_webhook_panics_total 1.0\n" in text
    assert (
        'controller_runtime_webhook_requests_total{code="500",webhook="/validate-hooks-kubewright-test-v2-box"} 1.0\n'
        in text
    )


async def test_who_asks_and_for_what(box_harness: BoxHarness) -> None:
    await box_harness.kubectl(
        "apply", "--dry-run=server", "-f", "-", stdin=box_manifest("dry", "width: 2")
    )
    told = dict(box_harness.webhook.requests)
    assert told.keys() == {"default", "validate"}
    assert {(a.operation, a.namespace, a.name, a.dry_run, a.username) for a in told.values()} == {
        ("CREATE", box_harness.namespace, "dry", True, "admin")
    }
    assert "system:masters" in told["validate"].groups
    with pytest.raises(KubectlFailed, match="NotFound"):
        await get_box(box_harness, "dry")


async def test_never_asked_about_status_deletion_or_finalizers(box_harness: BoxHarness) -> None:
    await box_harness.kubectl(
        "apply",
        "-f",
        "-",
        stdin=box_manifest("held", "width: 2").replace(
            "name: held", "name: held, finalizers: [a.test/b]"
        ),
    )
    held = key(box_harness.namespace, "held")
    box_harness.webhook.requests.clear()
    await box_harness.client.patch_status(Box, held, {"area": 4})
    await box_harness.kubectl("delete", "boxes.v2.hooks.kubewright.test", "held", "--wait=false")
    await box_harness.client.patch(Box, held, {"metadata": {"finalizers": None}})
    await box_harness.kubectl(
        "wait", "--for=delete", "boxes.v2.hooks.kubewright.test/held", "--timeout=10s"
    )
    assert box_harness.webhook.requests == []


async def test_an_object_that_comes_as_if_it_were_going_is_asked_about(
    box_harness: BoxHarness,
) -> None:
    """A POST loses such a mark before anybody is asked; what server-side apply creates does not."""
    liar = box_manifest("liar", "width: 200").replace(
        "name: liar", "name: liar, deletionTimestamp: '2020-01-01T00:00:00Z'"
    )
    with pytest.raises(KubectlFailed, match=r"spec\.width: must not be above 100"):
        await box_harness.kubectl(
            "apply", "--server-side", "--validate=false", "-f", "-", stdin=liar
        )


async def test_while_nobody_answers(box_harness: BoxHarness) -> None:
    """failurePolicy is the API server's; what it must not stop is an object on its way out."""
    await box_harness.kubectl(
        "apply",
        "-f",
        "-",
        stdin=box_manifest("held", "width: 2").replace(
            "name: held", "name: held, finalizers: [a.test/b]"
        ),
    )
    held = key(box_harness.namespace, "held")
    assert box_harness.manager.webhook_runner is not None
    await box_harness.manager.webhook_runner.server.stop()
    words = await apply_rejected(box_harness, "more", "width: 2")
    assert 'failed calling webhook "mutate.boxes.hooks.kubewright.test"' in words
    await box_harness.kubectl("delete", "boxes.v2.hooks.kubewright.test", "held", "--wait=false")
    await box_harness.client.patch(Box, held, {"metadata": {"finalizers": None}})
    await box_harness.kubectl(
        "wait", "--for=delete", "boxes.v2.hooks.kubewright.test/held", "--timeout=10s"
    )
    await box_harness.client.patch_status(Box, key(box_harness.namespace, "first"), {"area": 4})


async def test_two_versions(box_harness: BoxHarness) -> None:
    await box_harness.apply_box("old", "size: 3, note: hello, future: {depth: 1}", version="v1")
    hub = await get_box(box_harness, "old")
    assert hub["spec"] == {"width": 3, "height": 3, "future": {"depth": 1}}
    old = await get_box(box_harness, "old", "v1")
    assert old["spec"] == {"size": 3, "note": "hello", "future": {"depth": 1}}
    assert old["metadata"]["uid"] == hub["metadata"]["uid"]
    by_server = box_manifest("old", "size: 4").replace("/v2", "/v1")
    await box_harness.kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=by_server
    )
    # What kubectl applied before, in either way, and does not name any more, it takes away: also what v2 only kept.
    assert (await get_box(box_harness, "old"))["spec"] == {"width": 4, "height": 4}
    assert (await get_box(box_harness, "old", "v1"))["spec"] == {"size": 4}


async def test_what_the_other_version_cannot_say_survives_an_edit_there(
    box_harness: BoxHarness,
) -> None:
    await box_harness.apply_box("new", "width: 3, height: 9, colour: red, future: {depth: 1}")
    await box_harness.client.patch_status(Box, key(box_harness.namespace, "new"), {"area": 27})
    old = await get_box(box_harness, "new", "v1")
    assert old["spec"] == {"size": 3, "future": {"depth": 1}}
    assert old["status"]["area"] == 27
    assert PRESERVED_ANNOTATION in old["metadata"]["annotations"]
    await box_harness.kubectl(
        "patch",
        "boxes.v1.hooks.kubewright.test",
        "new",
        "--type=merge",
        "-p",
        '{"spec": {"note": "hi"}}',
    )
    hub = await get_box(box_harness, "new")
    assert hub["spec"] == {"width": 3, "height": 9, "colour": "red", "future": {"depth": 1}}
    assert PRESERVED_ANNOTATION not in hub["metadata"].get("annotations", {})
    assert (await get_box(box_harness, "new", "v1"))["spec"] == {
        "size": 3,
        "note": "hi",
        "future": {"depth": 1},
    }
    # Of a box with one side, another size means both sides: what was kept of the height is not true any more.
    await box_harness.client.patch(OldBox, key(box_harness.namespace, "new"), {"spec": {"size": 4}})
    assert (await get_box(box_harness, "new"))["spec"] == {
        "width": 4,
        "height": 4,
        "colour": "red",
        "future": {"depth": 1},
    }


async def test_a_whole_list_in_the_other_version(box_harness: BoxHarness) -> None:
    for number in range(60):
        name = ObjectMeta(name=f"box-{number}", namespace=box_harness.namespace)
        await box_harness.client.create(
            Box(metadata=name, spec=BoxSpec(width=number), status=BoxStatus())
        )
    found = await box_harness.client.list(OldBox, box_harness.namespace)
    assert {
        each.metadata.name: each.spec.size for each in found if each.metadata.name != "first"
    } == {f"box-{n}": n for n in range(60)}


async def test_a_conversion_that_fails_says_why(box_harness: BoxHarness) -> None:
    await box_harness.kubectl(
        "annotate",
        "boxes.v2.hooks.kubewright.test",
        "first",
        "hooks.kubewright.test/kept-from-v1=no json",
    )
    assert (await get_box(box_harness, "first", "v1"))["spec"] == {"size": 1}
    converting = box_harness.manager.webhook_runner
    assert converting is not None
    converting.server.handlers["/convert"].kinds.clear()  # type: ignore[attr-defined]
    with pytest.raises(
        ServerError, match=r"nobody declared a conversion of hooks.kubewright.test/v2 Box"
    ):
        await box_harness.client.get(OldBox, key(box_harness.namespace, "first"))
