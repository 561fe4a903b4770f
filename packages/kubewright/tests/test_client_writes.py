"""Server-side apply, dry run, field managers, deletions and subresources."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kubewright.api.batch_v1 import Job, JobSpec
from kubewright.api.core_v1 import Container, PodSpec, PodTemplateSpec
from kubewright.api_requests import delete_options, patch_request, request_for
from kubewright.builtin import ConfigMap, Namespace, Pod
from kubewright.client import Client
from kubewright.crd import build_crds
from kubewright.definition import KindDefinition
from kubewright.errors import AlreadyExists, ApplyConflict, Conflict, NotFound, error_from_status
from kubewright.kind import Key, Object, ObjectMeta, kind
from kubewright.selection import select
from kubewright.testing.fake import FakeApi
from kubewright.transport import Request

from .support.api_harness import ApiHarness
from .support.widget_kind import Widget, WidgetSpec, WidgetStatus

WIDGET = Widget.definition
KEY = Key("n", "a")
CRDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@kind("v1", external=True)
class ServiceAccount(Object):
    """An account for Pods."""


def make_widget(namespace: str, name: str = "a", **spec: Any) -> Widget:
    return Widget(metadata=ObjectMeta(name=name, namespace=namespace), spec=WidgetSpec(**spec))


def make_configmap(namespace: str, name: str = "a", **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace), data=data)


def applied_body(obj: Object, subresource: str = "") -> dict[str, Any]:
    request = patch_request(
        obj.definition, obj.key, obj, patch_type="apply", subresource=subresource, query={}
    )
    assert request.body is not None
    body: dict[str, Any] = msgspec.json.decode(request.body)
    return body


def test_applied_object_has_the_fields_that_are_set_and_nothing_of_the_server() -> None:
    widget = Widget(
        metadata=ObjectMeta(
            name="a",
            namespace="n",
            uid="u",
            resourceVersion="5",
            generation=3,
            labels={"app": "web"},
        ),
        spec=WidgetSpec(size=2),
        status=WidgetStatus(doubled=4),
    )
    type_meta = {"apiVersion": "kubewright.test/v1", "kind": "Widget"}
    metadata = {"name": "a", "namespace": "n", "labels": {"app": "web"}}
    assert applied_body(widget) == {**type_meta, "metadata": metadata, "spec": {"size": 2}}
    assert applied_body(widget, "status") == {
        **type_meta,
        "metadata": metadata,
        "status": {"conditions": [], "doubled": 4},
    }
    assert "spec" not in applied_body(make_widget("n"))


def test_applied_dict_gets_its_type() -> None:
    patch = {"spec": {"size": 1}}
    request = patch_request(WIDGET, KEY, patch, patch_type="apply", subresource="", query={})
    assert request.operation == "apply widgets.kubewright.test n/a"
    assert msgspec.json.decode(request.body or b"") == {
        "apiVersion": "kubewright.test/v1",
        "kind": "Widget",
        **patch,
    }


@pytest.mark.parametrize(
    ("patch", "patch_type", "force", "message"),
    [
        (make_widget("n"), "merge", False, "a patch of type merge is a dict, not a Widget"),
        ([], "merge", False, "a patch of type merge is a dict, not a list"),
        ({}, "json", False, "a patch of type json is a list of dicts, not a dict"),
        ([], "apply", False, "a patch of type apply is a dict or an Object, not a list"),
        ({}, "merge", True, "force is for"),
        (make_widget("n", ""), "apply", False, r"apply needs metadata\.name"),
    ],
)
async def test_wrong_combination_is_an_error_before_a_request(
    patch: Any, patch_type: Any, force: bool, message: str
) -> None:
    fake = FakeApi()
    with pytest.raises(TypeError, match=message):
        await Client(fake).patch(Widget, KEY, patch, patch_type=patch_type, force=force)
    assert not fake.requests


async def test_apply_creates_changes_and_removes_what_it_no_longer_sets(
    api: ApiHarness,
) -> None:
    client, namespace = api.client, api.namespace
    created = await client.apply(make_configmap(namespace, a="1", b="2"))
    assert created.metadata.uid
    again = await client.apply(make_configmap(namespace, a="1", b="2"))
    assert again.metadata.resourceVersion == created.metadata.resourceVersion
    await client.patch(ConfigMap, created.key, {"data": {"c": "3"}}, field_manager="other")
    changed = await client.apply(make_configmap(namespace, a="9"))
    assert changed.data == {"a": "9", "c": "3"}


async def test_apply_of_an_object_that_was_read_changes_only_what_is_set(
    api: ApiHarness,
) -> None:
    client = api.client
    created = await client.apply(make_widget(api.namespace, size=1))
    await client.patch(Widget, created.key, {"spec": {"friend": "joe"}}, field_manager="other")
    applied = await client.apply(created)
    assert (applied.spec.size, applied.spec.friend) == (1, "joe")
    status = Widget(metadata=created.metadata, status=WidgetStatus(doubled=2))
    assert (await client.apply(status, subresource="status")).status.doubled == 2


async def test_conflict_of_an_apply_names_each_manager_and_its_fields(
    api: ApiHarness,
) -> None:
    client, namespace = api.client, api.namespace
    await client.apply(make_configmap(namespace, a="1", b="2"), field_manager="one")
    await client.patch(
        ConfigMap, Key(namespace, "a"), {"data": {"c": "3"}}, field_manager='two "quoted"'
    )
    ours = make_configmap(namespace, a="x", b="2", c="y")
    with pytest.raises(ApplyConflict) as raised:
        await client.apply(ours, field_manager="three")
    assert set(raised.value.conflicts) == {("one", ".data.a"), ('two "quoted"', ".data.c")}
    message = str(raised.value)
    assert f"apply configmaps {namespace}/a: " in message
    assert 'field manager "one" owns .data.a' in message
    assert "Do not set these fields, or apply with force=True" in message
    taken = await client.apply(ours, field_manager="three", force=True)
    assert taken.data == {"a": "x", "b": "2", "c": "y"}


def test_conflict_without_causes_is_not_an_apply_conflict() -> None:
    body = {"reason": "Conflict", "message": "modified", "details": {"causes": [{"reason": "x"}]}}
    assert type(error_from_status(409, body, operation="patch")) is Conflict


async def test_dry_run_stores_nothing(api: ApiHarness) -> None:
    client, namespace = api.client, api.namespace
    kept, key = await client.create(make_configmap(namespace, "kept", a="1")), Key(namespace, "new")
    assert (await client.create(make_configmap(namespace, "new"), dry_run=True)).metadata.uid
    assert (await client.apply(make_configmap(namespace, "new"), dry_run=True)).metadata.uid
    with pytest.raises(NotFound):
        await client.get(ConfigMap, key)
    with pytest.raises(AlreadyExists):
        await client.create(make_configmap(namespace, "kept"), dry_run=True)
    patch = {"data": {"a": "2"}}
    assert (await client.patch(ConfigMap, kept.key, patch, dry_run=True)).data == {"a": "2"}
    await client.update(kept, dry_run=True)
    await client.delete(ConfigMap, kept.key, dry_run=True)
    await client.delete_collection(ConfigMap, namespace, dry_run=True)
    stored = await client.get(ConfigMap, kept.key)
    assert stored.metadata.resourceVersion == kept.metadata.resourceVersion


async def test_field_manager_of_each_write(api: ApiHarness) -> None:
    client, namespace = api.client, api.namespace
    widget = await client.create(make_widget(namespace), field_manager="creator")
    widget = await client.patch(Widget, widget.key, {"spec": {"size": 1}}, field_manager="patcher")
    await client.patch_status(Widget, widget.key, {"doubled": 2}, field_manager="reporter")
    widget = await client.get(Widget, widget.key)
    widget.spec = WidgetSpec(size=1, friend="joe")
    await client.update(widget, field_manager="updater")
    await client.patch(Widget, widget.key, {"metadata": {"labels": {"a": "b"}}})
    raw = await api.transport.send(Request("GET", WIDGET.path(*widget.key)))
    managers = {entry["manager"] for entry in msgspec.json.decode(raw)["metadata"]["managedFields"]}
    assert managers >= {"patcher", "reporter", "updater", "kubewright"}


async def test_update_of_a_new_object_is_refused_with_the_verb_to_use() -> None:
    fake = FakeApi()
    with pytest.raises(ValueError, match=r"has no resourceVersion.* use apply"):
        await Client(fake).update(make_widget("n"))
    assert not fake.requests


async def test_update_of_a_selected_object_keeps_undeclared_fields(api: ApiHarness) -> None:
    red = select(Widget, label_selector="color=red")
    widget = make_widget(api.namespace, size=1)
    widget.metadata = msgspec.structs.replace(widget.metadata, labels={"color": "red"})
    key = (await api.client.create(widget)).key
    selected = await api.client.get(red, key)
    selected.spec = WidgetSpec(size=2)
    updated = await api.client.update(selected)
    assert (type(updated), updated.spec.size) == (red, 2)
    assert updated.metadata.labels == {"color": "red"}


async def test_update_of_a_view_without_all_fields_is_refused() -> None:
    def drop_spec(widget: Widget) -> Widget:
        return msgspec.structs.replace(widget, spec=WidgetSpec())

    fake = FakeApi()
    for view in (select(Widget, metadata_only=True), select(Widget, transform=drop_spec)):
        obj = view(metadata=ObjectMeta(name="a", namespace="n", resourceVersion="5"))
        with pytest.raises(TypeError, match="does not have all fields"):
            await Client(fake).update(obj)
    assert not fake.requests


def test_options_of_a_delete_are_in_its_body() -> None:
    assert delete_options(propagation_policy="Background") == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
    }
    assert delete_options(
        uid="u",
        resource_version="5",
        propagation_policy="Orphan",
        grace_period_seconds=0,
        dry_run=True,
    ) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "5"},
        "propagationPolicy": "Orphan",
        "gracePeriodSeconds": 0,
        "dryRun": ["All"],
    }


async def test_propagation_policy_and_grace_period(api: ApiHarness) -> None:
    client, namespace = api.client, api.namespace
    widget = await client.create(make_widget(namespace))
    await client.delete(Widget, widget.key, propagation_policy="Foreground")
    assert (await client.get(Widget, widget.key)).metadata.finalizers == ["foregroundDeletion"]
    pod = Key(namespace, "p")
    await create_pod(api, "p", node="node-1")
    await client.delete(Pod, pod)
    assert (await client.get(Pod, pod)).metadata.deletionTimestamp is not None
    await client.delete(Pod, pod, grace_period_seconds=0)
    with pytest.raises(NotFound):
        await client.get(Pod, pod)


async def test_deleted_job_leaves_no_pods(real_api: ApiHarness) -> None:
    client, key = real_api.client, Key(real_api.namespace, "j")
    pod = PodSpec(restartPolicy="Never", containers=[Container(name="c", image="i")])
    spec = JobSpec(template=PodTemplateSpec(spec=pod))
    await client.create(Job(metadata=ObjectMeta(name="j", namespace=key.namespace), spec=spec))
    await client.delete(Job, key)
    # With the API server's own default it would wait for the garbage collector, which removes the
    # owner reference from its Pods.
    with pytest.raises(NotFound):
        await client.get(Job, key)


async def create_pod(api: ApiHarness, name: str, *, node: str = "", **metadata: Any) -> None:
    pod = {
        "metadata": {"name": name, **metadata},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    }
    body = msgspec.json.encode(pod)
    path = Pod.definition.path(api.namespace)
    await api.transport.send(Request("POST", path, body=body, content_type="application/json"))


async def test_collection_is_deleted_page_by_page(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubewright.client.PAGE_SIZE", 3)
    client, namespace = api.client, api.namespace
    for number in range(8):
        labels = {"app": "web"} if number else {}
        metadata = ObjectMeta(
            name=f"w{number}",
            namespace=namespace,
            labels=labels,
            finalizers=["kubewright.test/hold"] if number == 1 else [],
        )
        await client.create(Widget(metadata=metadata))
    await client.delete_collection(Widget, namespace, field_selector="metadata.name=w7")
    await client.delete_collection(select(Widget, label_selector="app=web"), namespace)
    remaining = {w.metadata.name: w for w in await client.list(Widget, namespace)}
    assert remaining.keys() == {"w0", "w1"}
    assert remaining["w1"].metadata.deletionTimestamp is not None


async def test_collection_of_all_namespaces_is_refused() -> None:
    fake = FakeApi()
    with pytest.raises(TypeError, match="needs a namespace"):
        await Client(fake).delete_collection(Widget)
    assert not fake.requests


async def test_eviction_and_token(api: ApiHarness) -> None:
    client, namespace = api.client, api.namespace
    await create_pod(api, "p", node="node-1")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    response = await client.create_subresource(Pod, Key(namespace, "p"), "eviction", eviction)
    assert response["status"] == "Success"
    assert (await client.get(Pod, Key(namespace, "p"))).metadata.deletionTimestamp is not None
    account = ServiceAccount(metadata=ObjectMeta(name="sa", namespace=namespace))
    await client.create(account)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    response = await client.create_subresource(ServiceAccount, account.key, "token", request)
    assert response["status"]["token"]


class RecordingCache:
    def __init__(self) -> None:
        self.written: list[tuple[type[Object], str]] = []
        self.deleted: list[tuple[str, Key, str]] = []

    def apply_own_write(self, obj: Object, raw: bytes) -> None:
        self.written.append((type(obj), obj.metadata.name))

    def apply_own_delete(self, definition: KindDefinition, key: Key, uid: str) -> None:
        self.deleted.append((definition.plural, key, uid))


async def test_cache_is_notified_of_writes_and_removals(api: ApiHarness, key: Key) -> None:
    cache = RecordingCache()
    client = Client(api.transport, cache=cache)
    metadata = ObjectMeta(name="a", namespace=api.namespace, finalizers=["kubewright.test/hold"])
    uid = (await client.create(Widget(metadata=metadata))).metadata.uid
    await client.patch_status(Widget, key, {"doubled": 2})
    await client.delete(Widget, key)
    assert (cache.written, cache.deleted) == ([(Widget, "a")] * 3, [])
    # Without its last finalizer the object is gone, although the response to the patch has it.
    await client.patch(Widget, key, {"metadata": {"finalizers": None}})
    assert (len(cache.written), cache.deleted) == (3, [("widgets", key, uid)])
    second = (await client.create(make_widget(api.namespace))).metadata.uid
    await client.delete(Widget, key)
    assert cache.deleted[1:] == [("widgets", key, second)]
    await client.delete(Widget, key)
    assert len(cache.deleted) == 2
    await client.delete(Widget, key, uid=second)
    assert cache.deleted[2:] == [("widgets", key, second)]


async def test_cache_is_not_notified_of_a_dry_run_or_of_another_subresource(
    real_api: ApiHarness,
) -> None:
    cache, namespace = RecordingCache(), real_api.namespace
    client = Client(real_api.transport, cache=cache)
    await create_pod(real_api, "p", node="node-1")
    await client.create(make_widget(namespace), dry_run=True)
    await client.delete(Pod, Key(namespace, "p"), dry_run=True)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    await client.create_subresource(Pod, Key(namespace, "p"), "eviction", eviction)
    await client.patch(
        Pod,
        Key(namespace, "p"),
        {"spec": {"ephemeralContainers": []}},
        subresource="ephemeralcontainers",
    )
    assert (cache.written, cache.deleted) == ([], [])


@pytest.mark.parametrize("is_metadata_only", [False, True])
async def test_removed_and_marked_objects_are_distinguished(
    api: ApiHarness, is_metadata_only: bool
) -> None:
    client, namespace = api.client, api.namespace

    def view(kind: type[Object]) -> type[Object]:
        return select(kind, metadata_only=True) if is_metadata_only else kind

    async def is_removed(kind: type[Object], name: str, **options: Any) -> bool:
        cache = RecordingCache()
        await Client(api.transport, cache=cache).delete(view(kind), Key(namespace, name), **options)
        try:
            await client.get(kind, Key(namespace, name))
        except NotFound:
            assert len(cache.deleted) == 1
            return True
        assert not cache.deleted
        assert len(cache.written) == 1
        return False

    await client.create(make_configmap(namespace))
    assert await is_removed(ConfigMap, "a")
    await create_pod(api, "pending")
    assert await is_removed(Pod, "pending")
    await create_pod(api, "held", finalizers=["kubewright.test/hold"])
    assert not await is_removed(Pod, "held")
    await create_pod(api, "running", node="node-1")
    assert not await is_removed(Pod, "running")
    assert await is_removed(Pod, "running", grace_period_seconds=0)
    await client.create(make_widget(namespace))
    assert not await is_removed(Widget, "a", propagation_policy="Foreground")
    await client.patch(Pod, Key(namespace, "held"), {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("is_metadata_only", [False, True])
async def test_namespace_that_terminates_is_not_removed(
    api: ApiHarness, is_metadata_only: bool
) -> None:
    kind = select(Namespace, metadata_only=True) if is_metadata_only else Namespace
    cache, name = RecordingCache(), f"{api.namespace}-{int(is_metadata_only)}"
    client = Client(api.transport, cache=cache)
    await api.client.create(Namespace(metadata=ObjectMeta(name=name)))
    await client.delete(kind, Key("", name))
    assert (await api.client.get(Namespace, Key("", name))).status.phase == "Terminating"
    assert (cache.written, cache.deleted) == ([(kind, name)], [])


@pytest.mark.parametrize("response", [b"ok", b'{"kind":"Status","status":"Success"}', b"{}"])
async def test_response_without_an_object_changes_nothing_in_the_cache(
    response: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send(request: Request) -> bytes:
        return response

    fake, cache = FakeApi(), RecordingCache()
    monkeypatch.setattr(fake, "send", send)
    await Client(fake, cache=cache).delete(ConfigMap, KEY)
    assert (cache.written, cache.deleted) == ([], [])


async def read_managers(api: ApiHarness, obj: Object) -> dict[str, Any]:
    """The fields of each manager, as stored."""
    request = request_for("GET", obj.definition, obj.key)
    stored = msgspec.json.decode(await api.client.transport.send(request))
    return {
        f"{entry['manager']} {entry.get('subresource', '')}": entry["fieldsV1"]
        for entry in stored["metadata"]["managedFields"]
    }


async def test_replaced_status_changes_nothing_else_and_takes_no_other_field(
    api: ApiHarness,
) -> None:
    client, namespace = api.client, api.namespace
    widget = make_widget(namespace, size=3)
    created = await client.create(widget, field_manager="creator")
    patch = {"metadata": {"labels": {"app": "web"}, "finalizers": ["kubewright.test/hold"]}}
    labelled = await client.patch(Widget, created.key, patch, field_manager="labeller")
    before = await read_managers(api, created)
    # The label and the finalizer are not in the request: the server keeps its own metadata.
    sent = replace(
        created,
        metadata=replace(created.metadata, resourceVersion=labelled.metadata.resourceVersion),
        spec=WidgetSpec(size=9),
        status=WidgetStatus(doubled=6),
    )
    written = await client.replace_status(sent, field_manager="operator")
    assert (written.spec.size, written.status.doubled) == (3, 6)
    assert written.metadata.labels == {"app": "web"}
    assert written.metadata.finalizers == ["kubewright.test/hold"]
    assert written.metadata.generation == 1
    managers = await read_managers(api, created)
    assert managers.pop("operator status")["f:status"].keys() >= {"f:doubled"}
    assert managers == before


async def test_status_of_another_version_or_of_a_successor_is_not_replaced(
    api: ApiHarness,
) -> None:
    client, namespace = api.client, api.namespace
    old = await client.create(make_widget(namespace, size=1))
    await client.patch(Widget, old.key, {"spec": {"size": 2}})
    with pytest.raises(Conflict):
        await client.replace_status(old)
    await client.delete(Widget, old.key)
    with pytest.raises(NotFound):
        await client.replace_status(old)
    new = await client.create(make_widget(namespace, size=1))
    version = new.metadata.resourceVersion
    stale = replace(old, metadata=replace(old.metadata, resourceVersion=version))
    with pytest.raises(Conflict):
        await client.replace_status(stale)


async def test_status_without_a_version_or_of_a_part_of_the_object_is_not_replaced() -> None:
    fake = FakeApi()
    with pytest.raises(ValueError, match="no resourceVersion"):
        await Client(fake).replace_status(make_widget("n"))
    part = select(Widget, transform=lambda widget: widget)
    with pytest.raises(TypeError, match="does not have all fields"):
        await Client(fake).replace_status(part(metadata=ObjectMeta(name="a", resourceVersion="1")))
    assert not fake.requests


async def test_condition_has_one_owner_as_a_whole(api: ApiHarness) -> None:
    if isinstance(api.transport, FakeApi):
        # Without a schema, the list of conditions would have one owner.
        api.transport.create(CRDS_PATH, build_crds([Widget])[0])
    client = api.client
    created = await client.create(make_widget(api.namespace))
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "R",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await client.patch_status(
        Widget, created.key, {"conditions": [condition]}, field_manager="operator"
    )
    conditions = (await read_managers(api, created))["operator status"]["f:status"]["f:conditions"]
    assert conditions['k:{"type":"Ready"}'] == {}
