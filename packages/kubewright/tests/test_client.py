"""Requests as values, errors by status, and every verb on the fake and on the real API server."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from kubewright.api_requests import request_for
from kubewright.builtin import ConfigMap, Node, Pod, PodMetadata, Secret, new_owner_reference
from kubewright.client import Client
from kubewright.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KindMissing,
    NotFound,
    ResponseTooLarge,
    ServerError,
    ServerTimeout,
    StatusCause,
    TimedOut,
    TooManyRequests,
    Unauthorized,
    Undecodable,
    error_from_status,
    redact,
)
from kubewright.kind import Key, ObjectMeta, Resource, Spec, kind
from kubewright.responses import UndecodableObject, decode_page, decode_watch_event
from kubewright.testing.fake import FakeApi
from kubewright.transport import Request, _parse_retry_after

from .support.api_harness import ApiHarness
from .support.thing_kind import Port, Thing
from .support.widget_kind import Widget, WidgetSpec, WidgetStatus


@kind("unserved.test/v1")
class Unknown(Resource[WidgetSpec, WidgetStatus]):
    """A kind that no server serves."""


class HolderSpec(Spec):
    on: bool = False
    parts: dict[str, Port] = {}


@kind("unserved.test/v1")
class Holder(Resource[HolderSpec, WidgetStatus]):
    """A kind with a map of structs."""


POD = Pod.definition
WIDGET = Widget.definition


@pytest.mark.parametrize(
    ("request_", "path", "query"),
    [
        (request_for("GET", POD, Key("n", "a")), "/api/v1/namespaces/n/pods/a", ""),
        (request_for("GET", POD, Key("", "")), "/api/v1/pods", ""),
        (request_for("GET", Node.definition, Key("", "n1")), "/api/v1/nodes/n1", ""),
        (
            request_for("GET", WIDGET, Key("n", "a"), subresource="status"),
            "/apis/kubewright.test/v1/namespaces/n/widgets/a/status",
            "",
        ),
        (
            request_for("GET", POD, Key("n", ""), query={"limit": "5", "continue": ""}),
            "/api/v1/namespaces/n/pods",
            "limit=5",
        ),
        (
            request_for("GET", POD, Key("a/../b", "x?y#z")),
            "/api/v1/namespaces/a%2F..%2Fb/pods/x%3Fy%23z",
            "",
        ),
    ],
)
def test_path_and_query_of_a_request(request_: Request, path: str, query: str) -> None:
    assert (request_.path, request_.query) == (path, query)


def test_metadata_only_kinds_request_metadata_alone() -> None:
    one = request_for("GET", PodMetadata.definition, Key("n", "a"))
    many = request_for("GET", PodMetadata.definition, Key("n", ""))
    assert "as=PartialObjectMetadata;" in one.accept
    assert "as=PartialObjectMetadataList;" in many.accept


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (400, "BadRequest", BadRequest),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Gone),
        (410, "Gone", Gone),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (500, "InternalError", ServerError),
        (503, "ServiceUnavailable", ServerError),
        (504, "Timeout", ServerTimeout),
        (418, "Teapot", ApiError),
    ],
)
def test_error_class_follows_the_status_and_keeps_its_message(
    code: int, reason: str, error: type[ApiError]
) -> None:
    created = error_from_status(
        code,
        {
            "kind": "Status",
            "reason": reason,
            "message": "its message",
            "details": {"retryAfterSeconds": 3},
        },
        operation="get x",
    )
    assert type(created) is error
    assert (str(created), created.status_code, created.reason, created.retry_after) == (
        "get x: its message",
        code,
        reason,
        3,
    )


def test_error_has_the_causes_of_the_status_without_credentials() -> None:
    cause = {"reason": "FieldManagerConflict", "message": "token=s3cr3tvalue", "field": ".data.a"}
    body: dict[str, Any] = {"reason": "Conflict", "details": {"causes": [cause, "not a cause", {}]}}
    assert error_from_status(409, body, operation="apply").causes == (
        StatusCause("FieldManagerConflict", "token=***", ".data.a"),
        StatusCause("", ""),
    )
    assert error_from_status(409, {"details": {"causes": 1}}, operation="apply").causes == ()


def test_missing_kind_and_missing_object_are_different_errors() -> None:
    message = "the server could not find the requested resource"
    assert isinstance(
        error_from_status(
            404, {"kind": "Status", "message": message, "reason": "NotFound"}, operation="list"
        ),
        KindMissing,
    )
    assert isinstance(
        error_from_status(404, {"message": "404 page not found"}, operation="list"), KindMissing
    )
    assert (
        type(
            error_from_status(
                404, {"kind": "Status", "message": 'widgets "a" not found'}, operation="get"
            )
        )
        is NotFound
    )


@pytest.mark.parametrize(
    "secret",
    [
        "Authorization: Bearer eyJhbGciOi.abcdef-_",
        "basic dXNlcjpwYXNz",
        "token=s3cr3tvalue&x=1",
        '"password": "s3cr3tvalue"',
        "client-key-data: s3cr3tvalue",
        "https://me:s3cr3tvalue@vc.example/sdk",
        "https://:s3cr3tvalue@vc.example/sdk",
        "https://me:pa/s3cr3tvalue@vc.example/sdk",
        '{\\"password\\":\\"s3cr3tvalue\\"}',
        'password: "my s3cr3tvalue"',
        "password=ab&s3cr3tvalue",
        'invalid bearer token "eyJhbGciOiJSUzI1NiIs.abc.def"',
    ],
)
def test_credentials_are_redacted(secret: str) -> None:
    text = redact(f"before {secret} after")
    assert text.startswith("before ")
    assert text.endswith(" after")
    assert not any(part in text for part in ("s3cr3t", "eyJhbGciOi", "dXNlcjpwYXNz"))


def test_long_message_is_truncated() -> None:
    assert len(redact("x" * 100_000)) < 2100


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("", None),
        ("soon", None),
        ("²", None),
        ("٣", None),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
    ],
)
def test_retry_after_in_both_forms(header: str, seconds: float | None) -> None:
    assert _parse_retry_after(header) == seconds


def test_bad_object_in_a_list_does_not_hide_the_others() -> None:
    body = b"""{"metadata":{"resourceVersion":"7"},"items":[
        {"metadata":{"name":"a","resourceVersion":"5"},"spec":{"size":1}},
        {"metadata":{"name":"b","resourceVersion":"6"},"spec":{"size":"large"},
         "status":{"conditions":[{"type":"T","status":"True"}]}},
        {"metadata":{"name":"c","resourceVersion":"7","labels":7},"spec":{}}]}"""
    good, bad, worse = decode_page(Widget, body).items
    assert isinstance(good, Widget)
    assert isinstance(bad, UndecodableObject)
    assert "$.spec.size" in bad.message
    assert [c.type for c in bad.conditions] == ["T"]
    assert isinstance(worse, UndecodableObject)
    assert worse.metadata.name == "c"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b'{"type":"ADDED"}',
        b'{"type":"ADDED","object":' + b"[" * 200_000,
        b"\xff\xfe",
        b'{"type":"ERROR","object":[1]}',
    ],
)
def test_line_that_is_not_an_event_raises_undecodable(line: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_watch_event(Widget, line, "watch")


def test_error_lines_of_a_watch() -> None:
    with pytest.raises(Gone):
        decode_watch_event(
            Widget,
            b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired",'
            b'"message":"too old"}}',
            "watch",
        )
    with pytest.raises(ServerError, match="etcd is unwell"):
        decode_watch_event(
            Widget,
            b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd is unwell"}}',
            "watch",
        )
    bookmark = decode_watch_event(
        Widget, b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"99"}}}', "watch"
    )
    assert (bookmark.object, bookmark.resource_version) == (None, "99")


async def test_every_verb(api: ApiHarness, key: Key) -> None:
    client = api.client
    created = await api.create_widget("a", size=1)
    assert created.metadata.uid
    with pytest.raises(AlreadyExists):
        await api.create_widget("a", size=1)
    assert (await client.get(Widget, key)).spec.size == 1
    patched = await client.patch(Widget, key, {"spec": {"size": 2}})
    assert (patched.spec.size, patched.metadata.generation) == (2, 2)
    with pytest.raises(Conflict):
        await client.patch(
            Widget,
            key,
            {
                "metadata": {"resourceVersion": created.metadata.resourceVersion},
                "spec": {"size": 3},
            },
        )
    status = await client.patch_status(
        Widget, key, {"doubled": 4}, resource_version=patched.metadata.resourceVersion
    )
    assert (status.status.doubled, status.metadata.generation) == (4, 2)
    with pytest.raises(Conflict):
        await client.patch_status(
            Widget, key, {"doubled": 5}, resource_version=patched.metadata.resourceVersion
        )
    with pytest.raises(Conflict):
        await client.delete(Widget, key, uid="00000000-0000-0000-0000-000000000000")
    await client.delete(Widget, key, uid=created.metadata.uid)
    await client.delete(Widget, key)
    with pytest.raises(NotFound):
        await client.get(Widget, key)


async def test_lists_come_in_pages_of_one_moment(api: ApiHarness) -> None:
    for number in range(7):
        await api.create_widget(f"w{number}")
    pages = [page async for page in api.client.list_pages(Widget, api.namespace, limit=3)]
    assert [len(page.items) for page in pages] == [3, 3, 1]
    assert len({page.resource_version for page in pages}) == 1
    assert len(await api.client.list(Widget, api.namespace)) == 7


async def test_watch_delivers_the_changes_since_a_revision(api: ApiHarness, key: Key) -> None:
    first = await api.create_widget("a", size=1)
    await api.client.patch(Widget, key, {"spec": {"size": 2}})
    await api.client.delete(Widget, key)
    events = []
    async with asyncio.timeout(30):
        async for change in api.client.watch(Widget, first.metadata.resourceVersion, api.namespace):
            if change.object is not None:
                events.append((change.type, change.object.metadata.name))
            if change.type == "DELETED":
                break
    assert events == [("MODIFIED", "a"), ("DELETED", "a")]


async def test_undeclared_fields_survive_an_update(real_api: ApiHarness) -> None:
    key = Key(real_api.namespace, "cm")
    raw: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "cm",
            "namespace": key.namespace,
            "labels": {"a": "b"},
            "annotations": {"x": "y"},
        },
        "data": {"k": "v"},
        "binaryData": {"blob": "AAEC"},
        "immutable": False,
    }
    path = f"/api/v1/namespaces/{key.namespace}/configmaps"
    await real_api.transport.send(
        Request("POST", path, body=msgspec.json.encode(raw), content_type="application/json")
    )
    configmap = await real_api.client.get(ConfigMap, key)
    configmap.data = {"k": "new"}
    await real_api.client.update(configmap)
    stored = msgspec.json.decode(await real_api.transport.send(Request("GET", f"{path}/cm")))
    assert stored["data"] == {"k": "new"}
    assert stored["binaryData"] == {"blob": "AAEC"}
    assert stored["immutable"] is False
    assert stored["metadata"]["labels"] == {"a": "b"}
    with pytest.raises(Conflict):
        await real_api.client.update(configmap)


async def test_undeclared_fields_in_list_items_and_nested_structs_survive() -> None:
    fake = FakeApi()
    client = Client(fake)
    path = Thing.definition.path("n")
    ports = [
        {"name": "b", "number": 2, "future": "kept"},
        {"name": "a", "number": 1, "future": "also"},
    ]
    fake.create(
        path,
        {
            "metadata": {"name": "t", "namespace": "n"},
            "spec": {"name": "x", "ports": ports, "window": {"low": 1, "odd": 7}, "newer": [1]},
        },
    )
    thing = await client.get(Thing, Key("n", "t"))
    thing.spec = msgspec.structs.replace(thing.spec, ports=list(reversed(thing.spec.ports))[:1])
    await client.update(thing)
    spec = fake.objects[f"{path}/t"]["spec"]
    assert spec["newer"] == [1]
    assert spec["window"]["odd"] == 7
    assert spec["ports"] == [{"name": "a", "number": 1, "future": "also"}]


async def test_explicit_defaults_and_undeclared_fields_in_maps_of_structs_survive() -> None:
    fake = FakeApi()
    client = Client(fake)
    path = Holder.definition.path("n")
    fake.create(
        path,
        {
            "metadata": {"name": "h", "namespace": "n"},
            "spec": {"on": False, "parts": {"x": {"name": "p", "number": 1, "odd": 7}}},
        },
    )
    await client.update(await client.get(Holder, Key("n", "h")))
    assert fake.objects[f"{path}/h"]["spec"] == {
        "on": False,
        "parts": {"x": {"name": "p", "number": 1, "odd": 7}},
    }


async def test_server_side_apply_json_patch_and_discovery_on_the_real_api_server(
    real_api: ApiHarness,
) -> None:
    key = Key(real_api.namespace, "a")
    applied = {
        "apiVersion": "kubewright.test/v1",
        "kind": "Widget",
        "metadata": {"name": "a", "namespace": key.namespace},
        "spec": {"size": 5},
    }
    assert (
        await real_api.client.patch(Widget, key, applied, patch_type="apply", force=True)
    ).spec.size == 5
    replaced = await real_api.client.patch(
        Widget, key, [{"op": "replace", "path": "/spec/size", "value": 6}], patch_type="json"
    )
    assert replaced.spec.size == 6
    with pytest.raises(Invalid, match="1000"):
        await real_api.client.patch(Widget, key, {"spec": {"size": 5000}})
    assert await real_api.client.is_served(Widget)
    assert not await real_api.client.is_served(Unknown)
    with pytest.raises(KindMissing):
        await real_api.client.list(Unknown, key.namespace)


async def test_page_that_is_too_large_is_requested_in_smaller_ones() -> None:
    fake = FakeApi()
    for number in range(20):
        fake.add(
            Widget(metadata=ObjectMeta(name=f"w{number}", namespace="n"), spec=WidgetSpec(size=1))
        )
    fake.fail_next("GET", "widgets", ResponseTooLarge("too much"))
    assert len(await Client(fake).list(Widget, "n")) == 20
    assert [
        dict(part.split("=") for part in r.query.split("&"))["limit"] for r in fake.requests
    ] == ["500", "62"]


async def test_page_after_large_objects_has_as_many_as_fit_into_4_mib() -> None:
    fake = FakeApi()
    for number in range(12):
        metadata = ObjectMeta(
            name=f"w{number:02}",
            namespace="n",
            annotations={"text": "x" * 1_000_000} if number < 8 else {},
        )
        fake.add(Widget(metadata=metadata, spec=WidgetSpec(size=1)))
    pages = [page async for page in Client(fake).list_pages(Widget, "n", limit=6)]
    # The second page is chosen by the size of the first, and the third by that of the second.
    assert [len(page.items) for page in pages] == [6, 4, 2]


async def test_list_after_a_timeout_begins_with_a_smaller_page() -> None:
    transport = FakeApi()
    client = Client(transport)
    transport.add(Widget(metadata=ObjectMeta(name="w", namespace="n"), spec=WidgetSpec(size=1)))
    transport.fail_next("GET", "widgets", TimedOut("no answer"))
    with pytest.raises(TimedOut):
        await client.list(Widget, "n")
    for _ in range(2):
        assert len(await client.list(Widget, "n")) == 1
    assert [
        dict(part.split("=") for part in r.query.split("&"))["limit"] for r in transport.requests
    ] == ["500", "62", "500"]


def test_secret_is_decoded_and_hidden_in_repr() -> None:
    secret = Secret.decode(
        b'{"metadata":{"name":"s","namespace":"n"},"data":{"password":"aHVudGVyMg=="}}'
    )
    assert secret.data == {"password": b"hunter2"}
    assert "hunter2" not in repr(secret)
    assert secret.encode()["data"] == {"password": "aHVudGVyMg=="}


def test_owner_reference_has_the_controller_fields() -> None:
    widget = Widget(metadata=ObjectMeta(name="w", uid="u-1"))
    assert msgspec.to_builtins(new_owner_reference(widget)) == {
        "apiVersion": "kubewright.test/v1",
        "kind": "Widget",
        "name": "w",
        "uid": "u-1",
        "controller": True,
        "blockOwnerDeletion": True,
    }
