from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from msgspec.structs import replace

from kubewright import Admission, Rejected, Webhook
from kubewright.builtin import Pod
from kubewright.errors import ConfigError
from kubewright.webhook.admission import (
    BadReview,
    DefaultingHandler,
    ValidatingHandler,
    WebhookFailed,
    create_handlers,
)

from .box_kind import Box, BoxWebhook, OldBox

BOX_KIND = {"group": "hooks.kubewright.test", "version": "v2", "kind": "Box"}


def make_box(spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    obj = {
        "apiVersion": "hooks.kubewright.test/v2",
        "kind": "Box",
        "metadata": {"name": "a", **metadata},
    }
    return obj | ({"spec": spec} if spec is not None else {})


def make_review(obj: Any, old: Any = None, **request: Any) -> bytes:
    body = {
        "uid": "u-1",
        "kind": BOX_KIND,
        "operation": "CREATE",
        "name": "a",
        "object": obj,
        "oldObject": old,
    } | request
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": body}
    ).encode()


async def handle_review(
    webhook: Webhook[Any], body: bytes, *, mutate: bool = False
) -> dict[str, Any]:
    handler = DefaultingHandler(webhook) if mutate else ValidatingHandler(webhook)
    review = json.loads(await handler.handle(body))
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert review["response"].pop("uid") == "u-1"
    return dict(review["response"])


def decode_patch(response: dict[str, Any]) -> list[dict[str, Any]]:
    assert response["allowed"] is True
    assert response.get("patchType", "JSONPatch") == "JSONPatch"
    return list(json.loads(base64.b64decode(response["patch"]))) if "patch" in response else []


async def test_patch_contains_only_what_default_changed() -> None:
    sent = make_box(
        {"width": 3, "unknown": {"x": [1]}},
        creationTimestamp=None,
        managedFields=[{"manager": "m"}],
    )
    assert decode_patch(await handle_review(BoxWebhook(), make_review(sent), mutate=True)) == [
        {"op": "add", "path": "/spec/height", "value": 3}
    ]
    assert (
        decode_patch(
            await handle_review(
                BoxWebhook(), make_review(make_box({"width": 3, "height": 2})), mutate=True
            )
        )
        == []
    )
    assert (
        decode_patch(await handle_review(BoxWebhook(), make_review(make_box()), mutate=True)) == []
    )


class DefaultingWebhook(Webhook[Box]):
    async def default(self, box: Box, request: Admission) -> None:
        box.spec = replace(box.spec, width=1, color="")
        box.metadata = replace(box.metadata, labels={**box.metadata.labels, "a/b": "c"})


async def test_patch_adds_missing_parents_and_removes_cleared_fields() -> None:
    assert decode_patch(
        await handle_review(DefaultingWebhook(), make_review(make_box()), mutate=True)
    ) == [
        {"op": "add", "path": "/metadata/labels", "value": {"a/b": "c"}},
        {"op": "add", "path": "/spec", "value": {"width": 1}},
    ]
    sent = make_box({"width": 1, "color": "red", "unknown": 1}, labels={"x": "y"})
    assert decode_patch(
        await handle_review(DefaultingWebhook(), make_review(sent), mutate=True)
    ) == [
        {"op": "add", "path": "/metadata/labels/a~1b", "value": "c"},
        {"op": "remove", "path": "/spec/color"},
    ]


async def test_rejections_with_fields_are_invalid_and_all_are_listed() -> None:
    response = await handle_review(
        BoxWebhook(), make_review(make_box({"width": 101, "height": 102}))
    )
    causes = [
        {"reason": "FieldValueInvalid", "message": "must not be above 100", "field": "spec.width"},
        {"reason": "FieldValueInvalid", "message": "must not be above 100", "field": "spec.height"},
    ]
    details = {"name": "a", "group": "hooks.kubewright.test", "kind": "Box", "causes": causes}
    message = "spec.width: must not be above 100; spec.height: must not be above 100"
    status = {
        "status": "Failure",
        "message": message,
        "reason": "Invalid",
        "code": 422,
        "details": details,
    }
    assert response == {"allowed": False, "status": status}


async def test_rejection_without_a_field_is_forbidden() -> None:
    response = await handle_review(BoxWebhook(), make_review(make_box({"color": "plaid"})))
    assert (response["allowed"], response["status"]["code"], response["status"]["reason"]) == (
        False,
        403,
        "Forbidden",
    )
    assert "details" not in response["status"]


class WarnOnlyWebhook(BoxWebhook):
    warn_only = True


async def test_warn_only_webhook_never_rejects() -> None:
    for spec in ({"width": 101}, {"color": "plaid"}, {"width": "wide"}):
        assert (await handle_review(BoxWebhook(), make_review(make_box(spec))))["allowed"] is False
        assert await handle_review(WarnOnlyWebhook(), make_review(make_box(spec))) == {
            "allowed": True
        }
    assert await handle_review(WarnOnlyWebhook(), make_review(make_box({"color": "gray"}))) == {
        "allowed": True,
        "warnings": ["gray boxes are hard to find"],
    }


async def test_warning_is_one_line_of_limited_length() -> None:
    class Warning(Webhook[Box]):
        async def validate(self, box: Box, old: Box | None, request: Admission) -> None:
            request.warn("two\nlines")
            request.warn("x" * 2000)

    response = await handle_review(Warning(), make_review(make_box()))
    assert response == {"allowed": True, "warnings": ["two lines", "x" * 1021 + "..."]}


async def test_old_is_the_stored_object_or_none_if_it_does_not_decode() -> None:
    shrinking = make_review(make_box({"width": 1}), make_box({"width": 2}), operation="UPDATE")
    assert (await handle_review(BoxWebhook(), shrinking))["status"][
        "message"
    ] == "spec.width: a box does not shrink"
    damaged = make_review(make_box({"width": 1}), make_box({"width": "two"}), operation="UPDATE")
    assert (await handle_review(BoxWebhook(), damaged))["allowed"] is True


async def test_object_that_does_not_decode_is_rejected_with_its_field() -> None:
    response = await handle_review(
        BoxWebhook(), make_review(make_box({"width": "two"})), mutate=True
    )
    assert response["status"]["details"]["causes"][0]["field"] == "spec.width"


async def test_object_that_does_not_decode_can_be_deleted() -> None:
    terminating = make_box({"width": "two"}, deletionTimestamp="2026-01-01T00:00:00Z")
    for mutate in (True, False):
        assert await handle_review(
            BoxWebhook(), make_review(terminating, terminating, operation="UPDATE"), mutate=mutate
        ) == {"allowed": True}


async def test_deletion_timestamp_of_the_client_is_ignored() -> None:
    forged = make_box({"width": 200}, deletionTimestamp="2026-01-01T00:00:00Z")
    for body in (
        make_review(forged),
        make_review(forged, make_box({"width": 1}), operation="UPDATE"),
    ):
        assert (await handle_review(BoxWebhook(), body))["allowed"] is False
        assert "patch" in await handle_review(BoxWebhook(), body, mutate=True)


class StatusAndDeletionWebhook(Webhook[Box]):
    include_status = True
    include_terminating = True

    def __init__(self) -> None:
        self.operations: list[str] = []

    async def validate(self, box: Box, old: Box | None, request: Admission) -> None:
        self.operations.append(f"{request.operation} {request.subresource}".strip())

    async def validate_deletion(self, box: Box, request: Admission) -> None:
        self.operations.append(f"{request.operation} {box.metadata.name}")
        raise Rejected("not this one")


async def test_webhook_handles_only_the_requests_that_it_declares() -> None:
    terminating = make_box({"width": 999}, deletionTimestamp="2026-01-01T00:00:00Z")
    bodies = [
        make_review(terminating, terminating, operation="UPDATE"),
        make_review(make_box({"width": 999}), operation="UPDATE", subResource="status"),
        make_review(None, make_box(), operation="DELETE"),
        make_review(make_box(), operation="CONNECT"),
    ]
    default, extended = BoxWebhook(), StatusAndDeletionWebhook()
    assert [(await handle_review(default, body))["allowed"] for body in bodies] == [True] * 4
    assert default.requests == []
    assert [(await handle_review(extended, body))["allowed"] for body in bodies] == [
        True,
        True,
        False,
        True,
    ]
    assert extended.operations == ["UPDATE", "UPDATE status", "DELETE a"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{}}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":1}}',
        b"[" * 100_000,
        make_review(make_box(), kind={"group": "", "version": "v1", "kind": "Pod"}),
        make_review(make_box(), kind=BOX_KIND | {"version": "v1"}),
        make_review(None),
    ],
)
async def test_invalid_review_is_an_error(body: bytes) -> None:
    with pytest.raises(BadReview):
        await ValidatingHandler(BoxWebhook()).handle(body)


async def test_exception_of_a_webhook_is_a_failure_without_secrets() -> None:
    with pytest.raises(WebhookFailed) as failed:
        await handle_review(BoxWebhook(), make_review(make_box({"color": "broken"})))
    assert (
        str(failed.value) == "BoxWebhook.validate failed: KeyError: 'no such color, password=***'"
    )
    assert failed.value.unexpected


@pytest.mark.looptime
async def test_webhook_that_takes_too_long_times_out() -> None:
    webhook = BoxWebhook()
    webhook.gate.clear()
    started_at = asyncio.get_running_loop().time()
    with pytest.raises(WebhookFailed, match=r"timed out after 4\.5 s"):
        await handle_review(webhook, make_review(make_box({"color": "slow"})))
    assert asyncio.get_running_loop().time() - started_at == pytest.approx(4.5)


async def test_default_must_return_none() -> None:
    class Returning(Webhook[Box]):
        async def default(self, box: Box, request: Admission) -> Box:  # type: ignore[override]
            return box

    with pytest.raises(
        WebhookFailed, match=r"Returning\.default returned a Box; it must return None"
    ):
        await handle_review(Returning(), make_review(make_box()), mutate=True)


def test_paths_are_those_of_controller_runtime() -> None:
    class PodWebhook(Webhook[Pod]):
        async def validate_deletion(self, pod: Pod, request: Admission) -> None: ...

    assert [handler.path for handler in create_handlers(BoxWebhook())] == [
        "/mutate-hooks-kubewright-test-v2-box",
        "/validate-hooks-kubewright-test-v2-box",
    ]
    assert [handler.path for handler in create_handlers(PodWebhook())] == ["/validate--v1-pod"]


def test_invalid_declaration_is_an_error() -> None:
    class Nothing(Webhook[Box]): ...

    class Kindless(Webhook):  # type: ignore[type-arg]
        async def validate(self, obj: Any, old: Any, request: Admission) -> None: ...

    class SlowTimeout(Webhook[OldBox]):
        timeout_seconds = 31

        async def validate(self, obj: OldBox, old: OldBox | None, request: Admission) -> None: ...

    for declaration, problem in (
        (Nothing, "has no methods"),
        (Kindless, "has no kind"),
        (SlowTimeout, "must be from 1 to 30"),
    ):
        with pytest.raises(ConfigError, match=problem):
            declaration()
