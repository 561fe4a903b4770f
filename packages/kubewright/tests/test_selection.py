"""`select`: what is declared, what is requested, and what a manager keeps of it."""

from __future__ import annotations

import copy
from typing import Any
from urllib.parse import parse_qs

import msgspec
import pytest

from kubewright.builtin import ConfigMap, Namespace, Pod, Secret
from kubewright.client import Client
from kubewright.controller import Controller
from kubewright.crd import build_crds
from kubewright.errors import ConfigError
from kubewright.kind import Key, ObjectMeta, Resource, Spec, kind
from kubewright.manager import Manager, Options
from kubewright.rbac import manager_rules
from kubewright.responses import UndecodableObject, decode_page
from kubewright.selection import declared_kind, select
from kubewright.testing import eventually
from kubewright.testing.fake import FakeApi

from .support.api_harness import FAKE_CONNECTION, ApiHarness, run_manager
from .support.widget_kind import Friend, Widget, WidgetSpec, WidgetStatus, double

RED = select(Widget, label_selector="color=red")
RED_METADATA = select(Widget, label_selector="color=red", metadata_only=True)


class StrictSpec(Spec):
    size: int


@kind("kubewright.test/v1")
class Strict(Resource[StrictSpec, WidgetStatus]):
    """A kind with a required field."""


def test_selection_is_a_subclass_that_decodes_to_itself() -> None:
    red = RED.decode(b'{"metadata":{"name":"a"},"spec":{"size":2}}')
    assert isinstance(red, Widget)
    assert (type(red), red.spec.size) == (RED, 2)
    assert RED.definition.name == "Widget"
    assert RED.__name__ == "Widget[color=red]"
    assert declared_kind(RED) is declared_kind(Widget) is Widget


def test_equal_selections_are_one_class() -> None:
    assert select(Widget, label_selector="color == red") is RED
    assert select(Widget, label_selector="color=blue") is not RED
    assert select(Widget, namespaces=("b", "a")) is select(Widget, namespaces=["a", "b", "a"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "has no selector, namespace, transform or metadata_only; use Widget itself"),
        ({"label_selector": "a b"}, "label selector"),
        ({"field_selector": "metadata.name"}, "field selector"),
        ({"namespaces": "kube-system"}, "must be a sequence"),
        ({"namespaces": ("",)}, "an empty name"),
    ],
)
def test_declaration_that_cannot_work_is_rejected(arguments: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        select(Widget, **arguments)


def test_cluster_scoped_kind_and_selection_of_a_selection_are_rejected() -> None:
    with pytest.raises(ConfigError, match="cluster-scoped"):
        select(Namespace, namespaces=("a",))
    with pytest.raises(ConfigError, match="is a selection already"):
        select(RED, metadata_only=True)


@pytest.mark.parametrize("kind", [Widget, Strict, Secret, ConfigMap])
def test_metadata_only_object_has_metadata_and_raises_for_other_fields(kind: Any) -> None:
    view = select(kind, metadata_only=True)
    full = b'{"metadata":{"name":"a"},"spec":{"size":2},"data":{"a":"Yg=="},"status":{}}'
    for raw in (b'{"metadata":{"name":"a"}}', full):
        obj = view.decode(raw)
        assert obj.metadata.name == "a"
        assert obj.encode()["metadata"] == {"name": "a"}
        assert obj.encode().keys() == {"apiVersion", "kind", "metadata"}
        assert isinstance(obj, kind)
        assert copy.deepcopy(obj) == obj
        assert "metadata only" in repr(obj)
        field = obj.data if hasattr(kind, "data") else obj.spec
        with pytest.raises(AttributeError, match="metadata_only=True"):
            _ = field.size
        with pytest.raises(AttributeError, match="metadata_only=True"):
            bool(field)
        with pytest.raises(AttributeError, match="metadata_only=True"):
            _ = field["a"]


def decode_transformed(transform: Any) -> Any:
    body = b'{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"},"spec":{}}]}'
    [item] = decode_page(select(Widget, transform=transform), body).items
    return item


def test_transform_that_cannot_be_used_is_reported_as_undecodable() -> None:
    def fail(widget: Widget) -> Widget:
        raise KeyError("size")

    def forget(widget: Widget) -> None:
        widget.spec = WidgetSpec()

    def rename(widget: Widget) -> Widget:
        return msgspec.structs.replace(widget, metadata=ObjectMeta(name="b"))

    messages = []
    for transform in (fail, forget, rename):
        item = decode_transformed(transform)
        assert isinstance(item, UndecodableObject)
        assert item.metadata.name == "a"
        messages.append(item.message)
    assert messages == [
        "fail failed: KeyError: 'size'",
        "forget returned NoneType, not the object",
        "rename changed the name, namespace, uid or resourceVersion",
    ]


async def test_selectors_are_part_of_list_and_watch() -> None:
    fake = FakeApi()
    client = Client(fake)
    on_node = select(
        Pod, label_selector="app=web", field_selector="spec.nodeName=n1", namespaces=("a", "b")
    )
    await client.list(on_node, label_selector="tier=prod")
    assert [request.path for request in fake.requests] == [
        "/api/v1/namespaces/a/pods",
        "/api/v1/namespaces/b/pods",
    ]
    query = parse_qs(fake.requests[0].query)
    assert query["labelSelector"] == ["app=web,tier=prod"]
    assert query["fieldSelector"] == ["spec.nodeName=n1"]


def test_rules_and_crds_are_those_of_the_kind() -> None:
    class RedController(Controller[Widget]):
        kind = RED

        def __init__(self) -> None:
            self.reads(select(Friend, metadata_only=True))

    assert RedController.kind is RED
    rules = {rule["resources"][0]: rule["verbs"] for rule in manager_rules([RedController()])}
    assert rules["widgets"] == rules["friends"] == ["list", "watch"]
    assert build_crds([declared_kind(RED)]) == build_crds([Widget])


def test_namespaces_of_the_manager_and_of_the_selection_are_intersected() -> None:
    def watched_namespaces(kind: type[Widget], *limit: str) -> list[str]:
        manager = Manager(FAKE_CONNECTION, Options(watch_namespaces=limit), transport=FakeApi())
        return [reflector.namespace for reflector in manager.watches.build_reflectors(kind)]

    selected = select(Widget, namespaces=("a", "b"))
    assert watched_namespaces(selected) == ["a", "b"]
    assert watched_namespaces(selected, "b", "c") == ["b"]
    assert watched_namespaces(RED, "b", "c") == ["b", "c"]
    assert watched_namespaces(RED) == [""]
    with pytest.raises(ConfigError, match=r"outside .*-watch-namespaces=c.*add one of a, b"):
        watched_namespaces(selected, "c")


class WidgetController(Controller[Widget]):
    """Keeps three views of its kind."""

    def __init__(self) -> None:
        self.reads(RED, RED_METADATA)

    async def reconcile(self, widget: Widget) -> None:
        await double(widget)


async def test_each_selection_follows_what_it_selects(api: ApiHarness) -> None:
    client, namespace = api.client, api.namespace

    def names(kind: type[Widget]) -> set[str]:
        return {widget.metadata.name for widget in manager.cache.all(kind)}

    async def paint(name: str, color: str) -> None:
        labels = {"labels": {"color": color}}
        await client.patch(Widget, Key(namespace, name), {"metadata": labels})

    for name in ("a", "b"):
        await api.create_widget(name, size=3)
    await paint("a", "red")
    async with run_manager(api, WidgetController()) as manager:
        await eventually(lambda: (names(Widget), names(RED)) == ({"a", "b"}, {"a"}))
        await eventually(lambda: names(RED_METADATA) == {"a"})
        await paint("b", "red")
        await paint("a", "blue")
        await eventually(lambda: names(RED) == names(RED_METADATA) == {"b"})
        assert names(Widget) == {"a", "b"}
        await paint("a", "red")
        await eventually(lambda: names(RED) == names(RED_METADATA) == {"a", "b"})
        assert all(widget.spec.size == 3 for widget in manager.cache.all(RED))
        metrics = manager.metrics.exposition()[0].decode()
        resource = "widgets.kubewright.test"
        for name in (resource, f"{resource}[color=red]", f"{resource}[color=red; metadata only]"):
            assert f'kubewright_cached_objects{{kind="{name}"}} 2.0' in metrics


async def test_controller_of_a_selection_reconciles_only_what_is_selected(
    api: ApiHarness,
) -> None:
    class RedController(Controller[Widget]):
        kind = RED

        async def reconcile(self, widget: Widget) -> None:
            await double(widget)

    for name in ("a", "b"):
        await api.create_widget(name, size=3)
    key = Key(api.namespace, "a")
    await api.client.patch(Widget, key, {"metadata": {"labels": {"color": "red"}}})
    async with run_manager(api, RedController()):
        await api.wait_for_ready("a")
        await api.client.patch(
            Widget, Key(api.namespace, "b"), {"metadata": {"labels": {"color": "red"}}}
        )
        await api.wait_for_ready("b")
    assert (await api.get_widget("b")).status.doubled == 6


async def test_own_writes_and_deletes_are_visible_at_once(api: ApiHarness) -> None:
    seen: list[Any] = []

    class FriendController(Controller[Friend]):
        def __init__(self) -> None:
            self.reads(Widget, RED)

        async def reconcile(self, friend: Friend) -> None:
            if seen:
                return
            client, cache, key = self.client, self.cache, Key(friend.metadata.namespace, "w")
            labels = {"color": "red"}
            metadata = ObjectMeta(name="w", namespace=key.namespace, labels=labels)
            for _ in range(20):
                created = await client.create(Widget(metadata=metadata))
                for view in (Widget, RED):
                    stored = cache.get(view, key)
                    assert stored is not None
                    seen.append(stored.metadata.uid == created.metadata.uid)
                await client.patch(Widget, key, {"metadata": {"labels": {"color": None}}})
                seen.append(cache.get(RED, key) is None)
                await client.patch(RED, key, {"metadata": {"labels": labels}})
                seen.append(cache.get(Widget, key) is not None)
                await client.delete(Widget, key)
                seen.extend(cache.get(view, key) is None for view in (Widget, RED))

    async with run_manager(api, FriendController()) as manager:
        friend = Friend(metadata=ObjectMeta(name="f", namespace=api.namespace))
        await api.client.create(friend)

        async def is_ready() -> bool:
            stored = await api.client.get(Friend, friend.key)
            return stored.status.condition("Ready") is not None

        await eventually(is_ready)
        assert seen == [True] * 120
        await eventually(lambda: not manager.cache.all(Widget) and not manager.cache.all(RED))
