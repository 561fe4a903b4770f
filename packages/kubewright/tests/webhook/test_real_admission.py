"""Webhooks that the real API server calls, and the errors that kubectl shows."""

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
    with pytest.raises(KubectlFailed) as caught:
        await boxes.apply_box(name, spec)
    return str(caught.value).partition("apply -f -: ")[2]


async def test_defaults_are_set_and_nothing_else(box_harness: BoxHarness) -> None:
    await box_harness.apply_box("square", "width: 7, future: {depth: 3}")
    assert (await get_box(box_harness, "square"))["spec"] == {
        "width": 7,
        "height": 7,
        "future": {"depth": 3},
    }
    await box_harness.apply_box("bare")
    assert "spec" not in await get_box(box_harness, "bare")
    # The default of the CRD, not of the webhook.
    assert (await get_box(box_harness, "square"))["status"] == {"observedGeneration": -1}
    await box_harness.apply_box("square", "width: 9, height: 8, future: {depth: 3}")
    assert (await get_box(box_harness, "square"))["spec"] == {
        "width": 9,
        "height": 8,
        "future": {"depth": 3},
    }


async def test_errors_and_warnings_in_kubectl(
    box_harness: BoxHarness, caplog: pytest.LogCaptureFixture
) -> None:
    both = (
        'The Box "large" is invalid: \n* spec.width: must not be above 100\n'
        "* spec.height: must not be above 100"
    )
    assert await apply_rejected(box_harness, "large", "width: 101, height: 102") == both
    forbidden = (
        'Error from server (Forbidden): error when creating "STDIN": '
        'admission webhook "validate.boxes.hooks.kubewright.test" denied the request: '
        "plaid is out of fashion; choose a plain color"
    )
    assert await apply_rejected(box_harness, "plaid", "color: plaid") == forbidden
    odd = 'The Box "odd" is invalid: spec.width: cannot decode Box: Expected `int`, got `str`'
    assert await apply_rejected(box_harness, "odd", "width: a") == odd
    await box_harness.apply_box("first", "width: 5, height: 5")
    assert (
        await apply_rejected(box_harness, "first", "width: 4, height: 5")
        == 'The Box "first" is invalid: spec.width: a box does not shrink'
    )
    with pytest.raises(KubectlFailed, match="Warning: gray boxes are hard to find"):
        await box_harness.kubectl(
            "apply", "--warnings-as-errors", "-f", "-", stdin=box_manifest("gray", "color: gray")
        )
    assert (await get_box(box_harness, "gray"))["spec"]["color"] == "gray"


def box_manifest(name: str, spec: str) -> str:
    head = f"apiVersion: hooks.kubewright.test/v2\nkind: Box\nmetadata: {{name: {name}}}\n"
    return head + f"spec: {{{spec}}}\n"


async def test_errors_of_the_client(box_harness: BoxHarness) -> None:
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
        await create("plaid", color="plaid")


async def test_exception_of_a_webhook_is_an_internal_error_of_one_request(
    box_harness: BoxHarness, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        text = await apply_rejected(box_harness, "broken", "color: broken")
    assert (
        'an error on the server ("BoxWebhook.validate failed: '
        "KeyError: 'no such color, password=***'\")" in text
    )
    assert "InternalError" in text
    assert [record.getMessage() for record in caplog.records if record.name == "BoxWebhook"] == [
        "BoxWebhook.validate failed"
    ]
    await box_harness.apply_box("fine", "width: 1")
    text = box_harness.manager.metrics.exposition()[0].decode()
    assert "controller_runtime_webhook_panics_total 1.0\n" in text
    assert (
        'controller_runtime_webhook_requests_total{code="500",'
        'webhook="/validate-hooks-kubewright-test-v2-box"} 1.0\n' in text
    )


async def test_admission_has_user_operation_and_dry_run(box_harness: BoxHarness) -> None:
    await box_harness.kubectl(
        "apply", "--dry-run=server", "-f", "-", stdin=box_manifest("dry", "width: 2")
    )
    requests = dict(box_harness.webhook.requests)
    assert requests.keys() == {"default", "validate"}
    assert {
        (a.operation, a.namespace, a.name, a.dry_run, a.username) for a in requests.values()
    } == {("CREATE", box_harness.namespace, "dry", True, "admin")}
    assert "system:masters" in requests["validate"].groups
    with pytest.raises(KubectlFailed, match="NotFound"):
        await get_box(box_harness, "dry")


async def test_status_deletion_and_finalizers_do_not_call_the_webhook(
    box_harness: BoxHarness,
) -> None:
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
        "wait", "--for=delete", "boxes.v2.hooks.kubewright.test/held", "--timeout=60s"
    )
    assert box_harness.webhook.requests == []


async def test_deletion_timestamp_of_the_client_does_not_skip_the_webhook(
    box_harness: BoxHarness,
) -> None:
    # The API server drops it from a POST before it calls webhooks, but not from server-side apply.
    forged = box_manifest("forged", "width: 200").replace(
        "name: forged", "name: forged, deletionTimestamp: '2020-01-01T00:00:00Z'"
    )
    with pytest.raises(KubectlFailed, match=r"spec\.width: must not be above 100"):
        await box_harness.kubectl(
            "apply", "--server-side", "--validate=false", "-f", "-", stdin=forged
        )


async def test_objects_can_be_deleted_while_the_webhook_is_down(box_harness: BoxHarness) -> None:
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
    text = await apply_rejected(box_harness, "more", "width: 2")
    assert 'failed calling webhook "mutate.boxes.hooks.kubewright.test"' in text
    await box_harness.kubectl("delete", "boxes.v2.hooks.kubewright.test", "held", "--wait=false")
    await box_harness.client.patch(Box, held, {"metadata": {"finalizers": None}})
    await box_harness.kubectl(
        "wait", "--for=delete", "boxes.v2.hooks.kubewright.test/held", "--timeout=60s"
    )
    await box_harness.client.patch_status(Box, key(box_harness.namespace, "first"), {"area": 4})


async def test_object_is_served_in_both_versions(box_harness: BoxHarness) -> None:
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
    # kubectl removes the fields that it applied before and no longer names, preserved ones too.
    assert (await get_box(box_harness, "old"))["spec"] == {"width": 4, "height": 4}
    assert (await get_box(box_harness, "old", "v1"))["spec"] == {"size": 4}


async def test_lost_fields_survive_an_edit_in_the_other_version(
    box_harness: BoxHarness,
) -> None:
    await box_harness.apply_box("new", "width: 3, height: 9, color: red, future: {depth: 1}")
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
    assert hub["spec"] == {"width": 3, "height": 9, "color": "red", "future": {"depth": 1}}
    assert PRESERVED_ANNOTATION not in hub["metadata"].get("annotations", {})
    assert (await get_box(box_harness, "new", "v1"))["spec"] == {
        "size": 3,
        "note": "hi",
        "future": {"depth": 1},
    }
    # A new size sets both sides, so the preserved height is no longer valid.
    await box_harness.client.patch(OldBox, key(box_harness.namespace, "new"), {"spec": {"size": 4}})
    assert (await get_box(box_harness, "new"))["spec"] == {
        "width": 4,
        "height": 4,
        "color": "red",
        "future": {"depth": 1},
    }


async def test_list_is_converted_to_the_other_version(box_harness: BoxHarness) -> None:
    for number in range(60):
        name = ObjectMeta(name=f"box-{number}", namespace=box_harness.namespace)
        await box_harness.client.create(
            Box(metadata=name, spec=BoxSpec(width=number), status=BoxStatus())
        )
    boxes = await box_harness.client.list(OldBox, box_harness.namespace)
    assert {box.metadata.name: box.spec.size for box in boxes if box.metadata.name != "first"} == {
        f"box-{n}": n for n in range(60)
    }


async def test_error_of_a_conversion_has_its_reason(box_harness: BoxHarness) -> None:
    await box_harness.kubectl(
        "annotate",
        "boxes.v2.hooks.kubewright.test",
        "first",
        "hooks.kubewright.test/kept-from-v1=no json",
    )
    assert (await get_box(box_harness, "first", "v1"))["spec"] == {"size": 1}
    runner = box_harness.manager.webhook_runner
    assert runner is not None
    runner.server.handlers["/convert"]._kinds.clear()  # type: ignore[attr-defined]
    with pytest.raises(
        ServerError, match=r"hooks.kubewright.test/v2 Box has no conversion: add a Conversion"
    ):
        await box_harness.client.get(OldBox, key(box_harness.namespace, "first"))
