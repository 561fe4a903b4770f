"""Children that cannot have an owner reference: the controller's finalizer deletes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from kubewright.builtin import ConfigMap, Namespace
from kubewright.errors import ConfigError, NotFound
from kubewright.kind import Key, ObjectMeta
from kubewright.outcome import Waiting
from kubewright.ownership import CONTROLLER_LABEL, OWNER_ANNOTATION, OWNER_UID_LABEL
from kubewright.rbac import controller_permissions, manager_rules
from kubewright.testing import eventually

from .support.api_harness import ApiHarness
from .support.parents import Deployment, Parent, config_map, run_parent
from .support.widget_kind import Widget

_FINALIZER = "kubewright.dev/widget"


@pytest.fixture
async def other_namespace(api: ApiHarness) -> AsyncIterator[str]:
    name = f"{api.namespace}-other"
    await api.client.create(Namespace(metadata=ObjectMeta(name=name)))
    yield name
    for child in await api.client.list(ConfigMap, name):
        await api.client.patch(ConfigMap, child.key, {"metadata": {"finalizers": None}})
        await api.client.delete(ConfigMap, child.key)
    with suppress(NotFound):
        await api.client.delete(Namespace, Key("", name))


async def test_child_in_another_namespace_goes_before_its_owner(
    api: ApiHarness, other_namespace: str
) -> None:
    owner = await api.create_widget()
    parent = Parent(config_map(namespace=other_namespace), config_map("near"), cross_namespace=True)
    key = Key(other_namespace, "config")
    async with run_parent(api, parent, namespaces=(api.namespace, other_namespace)):
        await api.wait_for_ready(reason="Applied")
        child = await api.client.get(ConfigMap, key)
        assert child.metadata.ownerReferences == []
        assert child.metadata.labels == {
            CONTROLLER_LABEL: "widget",
            OWNER_UID_LABEL: owner.metadata.uid,
        }
        assert child.metadata.annotations[OWNER_ANNOTATION] == f"{api.namespace}/a"
        near = await api.client.get(ConfigMap, Key(api.namespace, "near"))
        assert OWNER_UID_LABEL not in near.metadata.labels
        assert near.metadata.ownerReferences
        assert (await api.get_widget()).metadata.finalizers == [_FINALIZER]

        await api.client.delete(ConfigMap, key)
        await eventually(lambda: exists(api, key))

        hold = {"metadata": {"finalizers": ["kubewright.test/hold"]}}
        await api.client.patch(ConfigMap, key, hold)
        await api.client.delete(Widget, owner.key)
        condition = await api.wait_for_ready(reason="DeletingChildren")
        assert condition.message == f"Waiting for the deletion of ConfigMap {key}"
        await api.client.patch(ConfigMap, key, {"metadata": {"finalizers": None}})
        await eventually(lambda: is_gone(api, owner.key))
    assert not await exists(api, key)


async def exists(api: ApiHarness, key: Key) -> bool:
    try:
        await api.client.get(ConfigMap, key)
    except NotFound:
        return False
    return True


async def is_gone(api: ApiHarness, key: Key) -> bool:
    try:
        await api.client.get(Widget, key)
    except NotFound:
        return True
    return False


async def test_pruned_and_cluster_scoped_children(api: ApiHarness) -> None:
    owner = await api.create_widget(size=1)
    name = f"{api.namespace}-child"
    parent = Parent(kinds=[Namespace], cross_namespace=True)
    parent.build = lambda widget: [
        Namespace(metadata=ObjectMeta(name=f"{name}-{widget.spec.size}"))
    ]
    async with run_parent(api, parent):
        await api.wait_for_ready(reason="Applied")
        child = await api.client.get(Namespace, Key("", f"{name}-1"))
        assert child.metadata.annotations[OWNER_ANNOTATION] == f"{api.namespace}/a"
        await api.client.patch(Widget, owner.key, {"spec": {"size": 2}})

        async def is_pruned() -> bool:
            # On the real API server, no controller finishes the deletion of a namespace.
            namespaces = await api.client.list(Namespace)
            return all(
                namespace.metadata.deletionTimestamp
                for namespace in namespaces
                if namespace.metadata.name == f"{name}-1"
            )

        await eventually(is_pruned)
        second = await api.client.get(Namespace, Key("", f"{name}-2"))
        assert second.metadata.deletionTimestamp is None


async def test_finalize_of_the_author_runs_before_the_children_go(
    api: ApiHarness, other_namespace: str
) -> None:
    steps: list[str] = []
    key = Key(other_namespace, "config")

    class Author(Parent):
        finalizer = "kubewright.test/author"

        async def finalize(self, obj: Widget) -> Waiting | None:
            steps.append("finalize with child" if await exists(api, key) else "finalize without")
            return (
                Waiting("Cleaning", "Cleaning", requeue_after_seconds=0) if len(steps) < 2 else None
            )

    owner = await api.create_widget()
    parent = Author(config_map(namespace=other_namespace), cross_namespace=True)
    async with run_parent(api, parent, namespaces=(api.namespace, other_namespace)):
        await api.wait_for_ready(reason="Applied")
        assert (await api.get_widget()).metadata.finalizers == ["kubewright.test/author"]
        await api.client.delete(Widget, owner.key)
        await eventually(lambda: is_gone(api, owner.key))
    assert set(steps) == {"finalize with child"}
    assert not await exists(api, key)


async def test_child_in_a_namespace_that_is_not_watched_is_refused(api: ApiHarness) -> None:
    owner = await api.create_widget()
    parent = Parent(cross_namespace=True)
    async with run_parent(api, parent):
        await eventually(lambda: parent.results)
        with pytest.raises(ConfigError, match="add the namespace to -watch-namespaces"):
            await parent.apply(owner, config_map(namespace="elsewhere"))


def test_role_permits_to_apply_and_delete_children_and_nothing_more() -> None:
    rules = manager_rules([Parent(kinds=[ConfigMap, Deployment])])
    by_resource = {rule["resources"][0]: rule["verbs"] for rule in rules}
    assert by_resource == {
        "configmaps": ["create", "delete", "list", "patch", "watch"],
        "deployments": ["create", "delete", "list", "patch", "watch"],
        "events": ["create", "patch"],
        "widgets": ["list", "watch"],
        "widgets/finalizers": ["update"],
        "widgets/status": ["patch", "update"],
    }
    with_finalizer = controller_permissions(Parent(kinds=[Namespace], cross_namespace=True))
    assert any(
        permission.kind is Widget and permission.verbs == ("patch",) and not permission.subresource
        for permission in with_finalizer
    )


async def test_owner_of_the_same_name_in_another_namespace_is_another_one(
    api: ApiHarness, other_namespace: str
) -> None:
    metadata = ObjectMeta(namespace=other_namespace, name="a")
    other = await api.client.create(Widget(metadata=metadata))
    parent = Parent(kinds=(ConfigMap,), cross_namespace=True)
    wanted_by = {api.namespace, other_namespace}
    parent.build = lambda widget: (
        [config_map(namespace=other_namespace)] if widget.metadata.namespace in wanted_by else []
    )
    key = Key(other_namespace, "config")
    async with run_parent(api, parent, namespaces=(api.namespace, other_namespace)):
        await eventually(lambda: exists(api, key))
        await api.create_widget()
        condition = await api.wait_for_ready(reason="ChildNotOwned")
        assert "is controlled by Widget a" in condition.message
        wanted_by.remove(other_namespace)
        await api.client.patch(Widget, other.key, {"spec": {"size": 1}})
        await api.wait_for_ready(reason="Applied")
        await api.client.delete(Widget, Key(api.namespace, "a"))
        await eventually(lambda: is_gone(api, Key(api.namespace, "a")))
        await api.client.delete(Widget, other.key)
        await eventually(lambda: is_gone(api, other.key))


async def test_child_of_a_live_owner_in_another_namespace_is_not_adopted(
    api: ApiHarness, other_namespace: str
) -> None:
    parent = Parent(config_map(namespace=other_namespace), cross_namespace=True, adopt=True)
    async with run_parent(api, parent, namespaces=(api.namespace, other_namespace)):
        await api.create_widget("a")
        await api.wait_for_ready("a", reason="Applied")
        await api.create_widget("b")
        condition = await api.wait_for_ready("b", reason="ChildNotOwned")
        assert f"is a child of {api.namespace}/a, not of" in condition.message
        child = await api.client.get(ConfigMap, Key(other_namespace, "config"))
        assert child.metadata.annotations[OWNER_ANNOTATION] == f"{api.namespace}/a"
        for name in "ab":
            key = Key(api.namespace, name)
            await api.client.delete(Widget, key)
            await eventually(lambda: is_gone(api, key))  # noqa: B023


async def test_finalizer_of_an_earlier_release_is_reported(
    api: ApiHarness, other_namespace: str
) -> None:
    await api.create_widget()
    namespaces = (api.namespace, other_namespace)
    child = config_map(namespace=other_namespace)
    async with run_parent(api, Parent(child, cross_namespace=True), namespaces=namespaces):
        await api.wait_for_ready(reason="Applied")
    async with run_parent(api, Parent(), namespaces=namespaces):
        await api.client.delete(Widget, Key(api.namespace, "a"))
        condition = await api.wait_for_ready(reason="FinalizerNotDeclared")
        assert f"The finalizer {_FINALIZER} is from a release that owned kinds" in condition.message
    async with run_parent(api, Parent(cross_namespace=True), namespaces=namespaces):
        await eventually(lambda: is_gone(api, Key(api.namespace, "a")))
    assert not await exists(api, Key(other_namespace, "config"))
