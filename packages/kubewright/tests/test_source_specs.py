"""The specifications of controller-runtime's EnqueueRequestForOwner (16) and
EnqueueRequestsFromMapFunc (4), as tests of `owns` and `watches(map_func=...)`.

They are in the order of pkg/handler/eventhandler_test.go. A GenericEvent has no object of the API
server behind it; what comes nearest here is the response to one of our own writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubewright.builtin import Node, Pod
from kubewright.cache import Cache, Store
from kubewright.controller import Controller, controller
from kubewright.errors import ConfigError
from kubewright.kind import Key, Object, ObjectMeta, OwnerReference, kind
from kubewright.log import Log
from kubewright.source import MappedKindSource, OwnedKindSource
from kubewright.workqueue import WorkQueue

from .support.widget_kind import Widget, double


@kind("apps/v1", external=True)
class ReplicaSet(Object):
    """The owner in most specifications."""


@kind("autoscaling/v1", external=True)
class HorizontalPodAutoscaler(Object):
    """An owner with several versions."""


class Pods:
    """The Pods in a cache, and the keys that their changes enqueue."""

    def __init__(self, owner: type[Object], source: OwnedKindSource | MappedKindSource) -> None:
        cache: Cache = Cache(Log("test"))
        self.queue: WorkQueue[Key] = WorkQueue()
        self.store: Store[Pod] = cache.store(Pod)
        source.attach(cache.store(owner), cache, self.queue.add)
        self.store.advance_revision(1)
        self._revision = 1

    def put(self, *owners: OwnerReference, **metadata: Any) -> None:
        self._revision += 1
        self.store.put(make_pod(self._revision, *owners, **metadata))

    def delete(self) -> None:
        self._revision += 1
        self.store.remove(Key("biz", "baz"), self._revision)

    async def take_keys(self) -> list[str]:
        keys: list[str] = []
        while len(self.queue):
            entry = await self.queue.get()
            assert entry is not None
            keys.append(str(entry[0]))
            self.queue.done(entry[0])
        return sorted(keys)


def make_pod(revision: int, *owners: OwnerReference, **metadata: Any) -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name="baz",
            namespace="biz",
            resourceVersion=str(revision),
            ownerReferences=list(owners),
            **metadata,
        )
    )


def owner_ref(
    name: str = "foo-parent",
    owner_kind: str = "ReplicaSet",
    api_version: str = "apps/v1",
    *,
    is_controller: bool = False,
) -> OwnerReference:
    return OwnerReference(
        apiVersion=api_version, kind=owner_kind, name=name, uid=name, controller=is_controller
    )


def owned_pods(owner: type[Object] = ReplicaSet, *, any_owner: bool = True) -> Pods:
    # EnqueueRequestForOwner takes all owners by default, `owns` only the controller.
    return Pods(owner, OwnedKindSource(Pod, any_owner=any_owner))


async def test_owner_01_of_a_created_object() -> None:
    pods = owned_pods()
    pods.put(owner_ref())
    assert await pods.take_keys() == ["biz/foo-parent"]


async def test_owner_02_of_a_deleted_object() -> None:
    pods = owned_pods()
    pods.put(owner_ref())
    await pods.take_keys()
    pods.delete()
    assert await pods.take_keys() == ["biz/foo-parent"]


async def test_owner_03_owners_of_both_objects_of_an_update() -> None:
    pods = owned_pods()
    pods.put(owner_ref("foo1-parent"))
    await pods.take_keys()
    pods.put(owner_ref("foo2-parent"))
    assert await pods.take_keys() == ["biz/foo1-parent", "biz/foo2-parent"]


async def test_owner_04_once_if_both_objects_of_an_update_have_it() -> None:
    pods = owned_pods()
    pods.put(owner_ref())
    await pods.take_keys()
    pods.put(owner_ref(), labels={"a": "b"})
    assert await pods.take_keys() == ["biz/foo-parent"]


async def test_owner_05_of_a_generic_event() -> None:
    pods = owned_pods()
    pods.store.apply_own_write(make_pod(5, owner_ref()))
    assert await pods.take_keys() == ["biz/foo-parent"]


async def test_owner_06_of_another_group_or_kind_is_not_enqueued() -> None:
    pods = owned_pods()
    pods.put(
        owner_ref("foo1-parent", api_version="extensions/v1"),
        owner_ref("foo2-parent", "Deployment"),
    )
    assert await pods.take_keys() == []


async def test_owner_07_of_another_version_is_enqueued() -> None:
    pods = owned_pods(HorizontalPodAutoscaler)
    pods.put(owner_ref(owner_kind="HorizontalPodAutoscaler", api_version="autoscaling/v2"))
    assert await pods.take_keys() == ["biz/foo-parent"]


async def test_owner_08_that_is_cluster_scoped() -> None:
    pods = owned_pods(Node)
    pods.put(owner_ref("node-1", "Node", "v1"))
    assert await pods.take_keys() == ["node-1"]


async def test_owner_09_is_missing() -> None:
    pods = owned_pods()
    pods.put()
    assert await pods.take_keys() == []


async def test_owner_10_controller_only_is_the_first_controller() -> None:
    pods = owned_pods(any_owner=False)
    pods.put(
        owner_ref("foo1-parent"),
        owner_ref("foo2-parent", is_controller=True),
        owner_ref("foo3-parent"),
        owner_ref("foo4-parent", is_controller=True),
        owner_ref("foo5-parent"),
    )
    assert await pods.take_keys() == ["biz/foo2-parent"]


async def test_owner_11_controller_only_without_a_controller() -> None:
    pods = owned_pods(any_owner=False)
    pods.put(owner_ref("foo1-parent"), owner_ref("foo2-parent"), owner_ref("foo3-parent"))
    assert await pods.take_keys() == []


async def test_owner_12_controller_only_without_an_owner() -> None:
    pods = owned_pods(any_owner=False)
    pods.put()
    assert await pods.take_keys() == []


async def test_owner_13_all_owners() -> None:
    pods = owned_pods()
    pods.put(owner_ref("foo1-parent"), owner_ref("foo2-parent"), owner_ref("foo3-parent"))
    assert await pods.take_keys() == ["biz/foo1-parent", "biz/foo2-parent", "biz/foo3-parent"]


async def test_owner_14_of_an_object_that_does_not_exist() -> None:
    pods = owned_pods()
    pods.delete()
    assert await pods.take_keys() == []


def test_owner_15_without_an_owner_kind() -> None:
    with pytest.raises(ConfigError, match=r"write class Ownerless\(Controller\[YourKind\]\)"):
        type("Ownerless", (Controller,), {})()


async def test_owner_16_with_an_invalid_api_version() -> None:
    pods = owned_pods()
    pods.put(owner_ref(api_version="apps/v1/fail"))
    assert await pods.take_keys() == []


async def test_controller_of_another_kind_hides_owners_that_are_not_the_controller() -> None:
    pods = owned_pods(any_owner=False)
    pods.put(owner_ref("job", "Job", "batch/v1", is_controller=True), owner_ref())
    assert await pods.take_keys() == []


def two_keys(pod: Pod) -> list[Key]:
    return [Key("foo", f"{pod.metadata.labels.get('app', 'pod')}-bar"), Key("biz", "baz")]


async def test_map_01_function_is_applied_to_a_created_object() -> None:
    pods = Pods(Widget, MappedKindSource(Pod, two_keys))
    pods.put()
    assert await pods.take_keys() == ["biz/baz", "foo/pod-bar"]


async def test_map_02_function_is_applied_to_a_deleted_object() -> None:
    pods = Pods(Widget, MappedKindSource(Pod, two_keys))
    pods.put()
    await pods.take_keys()
    pods.delete()
    assert await pods.take_keys() == ["biz/baz", "foo/pod-bar"]


async def test_map_03_function_is_applied_to_both_objects_of_an_update() -> None:
    pods = Pods(Widget, MappedKindSource(Pod, two_keys))
    pods.put(labels={"app": "a"})
    await pods.take_keys()
    pods.put(labels={"app": "b"})
    assert await pods.take_keys() == ["biz/baz", "foo/a-bar", "foo/b-bar"], "biz/baz only once"


async def test_map_04_function_is_applied_to_a_generic_event() -> None:
    pods = Pods(Widget, MappedKindSource(Pod, two_keys))
    pods.store.apply_own_write(make_pod(5))
    assert await pods.take_keys() == ["biz/baz", "foo/pod-bar"]


@pytest.mark.parametrize(
    ("map_func", "expected"),
    [(lambda pod: Key("n", "one"), ["n/one"]), (lambda pod: None, []), (lambda pod: (), [])],
)
async def test_map_function_may_return_one_key_or_none(
    map_func: Callable[[Pod], Any], expected: list[str]
) -> None:
    pods = Pods(Widget, MappedKindSource(Pod, map_func))
    pods.put()
    assert await pods.take_keys() == expected


async def test_map_function_that_fails_enqueues_no_object_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pods = Pods(Widget, MappedKindSource(Pod, lambda pod: pod.spec.nowhere))
    pods.put()
    assert await pods.take_keys() == []
    assert "a listener failed" in caplog.text


@pytest.mark.parametrize(
    "arguments", [{}, {"index_by": lambda w: "a", "map_func": lambda p: Key("n", "a")}]
)
def test_watches_takes_either_an_index_or_a_function(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"watches\(Pod\) takes either index_by or map_func"):
        controller(Widget, double).watches(Pod, **arguments)
