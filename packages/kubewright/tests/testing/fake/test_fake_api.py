"""What tests use of FakeApi itself; `test_transcripts.py` compares its responses."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import yaml

from kubewright.client import Client
from kubewright.errors import (
    ConfigError,
    Gone,
    Invalid,
    KindMissing,
    NotFound,
    ServerError,
    Unreachable,
)
from kubewright.kind import Key, Object, ObjectMeta, kind
from kubewright.testing.fake import FakeApi, cel_rules
from kubewright.transport import Request

from ...support.corpora import find_corpus
from ...support.thing_kind import OldThing, Port, Range, Thing, ThingSpec
from ...support.widget_kind import Widget, WidgetSpec

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def make_thing(**spec: Any) -> Thing:
    metadata = ObjectMeta(name="a", namespace="default")
    return Thing(metadata=metadata, spec=ThingSpec(**{"name": "a", **spec}))


async def test_declared_kind_is_validated_pruned_and_gets_defaults() -> None:
    api = FakeApi(kinds=[Thing])
    client = Client(api)
    with pytest.raises(Invalid, match=r"spec.replicas in body should be greater than or equal"):
        await client.create(make_thing(replicas=-1))
    with pytest.raises(Invalid) as caught:
        await client.create(make_thing(window=Range(low=5, high=1)))
    [cause] = caught.value.causes
    assert (cause.field, cause.message) == (
        "spec.window",
        "Invalid value: low must not be above high",
    )
    path = Thing.definition.path("default")
    stored = api.create(path, {"metadata": {"name": "a"}, "spec": {"name": "a", "unknown": 1}})
    assert "unknown" not in stored["spec"]
    assert stored["spec"]["replicas"] == 3
    with pytest.raises(Invalid, match="size cannot shrink"):
        await client.patch(Thing, Key("default", "a"), {"spec": {"size": 0}})


async def test_versions_of_a_kind_are_one_object() -> None:
    client = Client(FakeApi(kinds=[Thing, OldThing]))
    await client.create(make_thing(ports=[Port(name="http", number=80)]))
    old = await client.get(OldThing, Key("default", "a"))
    assert old.spec.name == "a"
    await client.patch(OldThing, Key("default", "a"), {"spec": {"name": "b"}})
    assert (await client.get(Thing, Key("default", "a"))).spec.name == "b"


async def test_kind_that_nothing_declares_accepts_any_object() -> None:
    @kind("anything.test/v1")
    class Anything(Object):
        content: Any = None

    client = Client(FakeApi())
    created = await client.create(
        Anything(metadata=ObjectMeta(name="a", namespace="default"), content={"x": [1]})
    )
    assert created.content == {"x": [1]}
    assert not await client.is_served(Anything)
    strict = Client(FakeApi(only_known_kinds=True))
    with pytest.raises(KindMissing):
        await strict.create(Anything(metadata=ObjectMeta(name="a", namespace="default")))


async def test_objects_go_with_their_crd() -> None:
    api = FakeApi(kinds=[Widget], only_known_kinds=True)
    client = Client(api)
    assert await client.is_served(Widget)
    await client.create(Widget(metadata=ObjectMeta(name="a", namespace="default")))
    api.delete(f"{CRDS}/{Widget.definition.group_resource}", {})
    with pytest.raises(KindMissing):
        await client.get(Widget, Key("default", "a"))
    assert api.objects == {}


async def test_added_object_is_stored_with_its_status_and_uid() -> None:
    api = FakeApi(kinds=[Widget])
    metadata = ObjectMeta(name="a", namespace="default", uid="u", generation=7)
    widget = Widget(metadata=metadata, spec=WidgetSpec(size=1))
    widget.status.doubled = 2
    api.add(widget)
    stored = await Client(api).get(Widget, widget.key)
    assert (stored.status.doubled, stored.metadata.uid, stored.metadata.generation) == (2, "u", 7)


async def test_subresource_that_is_not_implemented_is_an_error_with_that_message() -> None:
    api = FakeApi()
    containers = [{"name": "a", "image": "a"}]
    pod = {"metadata": {"name": "a"}, "spec": {"containers": containers}}
    api.create("/api/v1/namespaces/default/pods", pod)
    request = Request("GET", "/api/v1/namespaces/default/pods/a/log", operation="read the log")
    with pytest.raises(ServerError, match="FakeApi does not implement pods/log"):
        await api.send(request)


async def test_injected_fault_is_raised_once() -> None:
    api = FakeApi()
    client = Client(api)
    api.fail_next("GET", "widgets", Unreachable("down"))
    with pytest.raises(Unreachable):
        await client.get(Widget, Key("default", "a"))
    with pytest.raises(NotFound):
        await client.get(Widget, Key("default", "a"))


async def test_continue_token_expires_with_a_compaction() -> None:
    api = FakeApi()
    for name in "abc":
        api.add(Widget(metadata=ObjectMeta(name=name, namespace="default")))
    pages = Client(api).list_pages(Widget, "default", limit=1)
    await anext(pages)
    api.store("MODIFIED", next(iter(api.objects)), next(iter(api.objects.values())))
    api.compact()
    with pytest.raises(Gone):
        await anext(pages)


def test_rules_without_their_package_name_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    cel_rules._environment.cache_clear()
    cel_rules._compile.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install 'kubewright\[testing\]'"):
        FakeApi(kinds=[Thing])
    cel_rules._environment.cache_clear()


def test_crds_of_other_operators_are_accepted_with_their_rules() -> None:
    class Loader(yaml.CSafeLoader):
        """Reads `=`, a type of its own in YAML 1.1, as text."""

    Loader.add_constructor("tag:yaml.org,2002:value", lambda _, node: node.value)
    count = 0
    for file in sorted(find_corpus("crds").rglob("*.yaml")):
        # One operator has each CRD in two files.
        api = FakeApi()
        for document in yaml.load_all(file.read_text(), Loader):
            if document and document["kind"] == "CustomResourceDefinition":
                api.create(CRDS, document)
        count += len(api.objects)
    assert count > 50
