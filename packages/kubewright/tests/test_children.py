"""A controller keeps its children: applied once, repaired, pruned, never those of another owner."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubewright.api import core_v1
from kubewright.builtin import ConfigMap, Event
from kubewright.errors import ConfigError, NotFound, Retry
from kubewright.kind import Key, ObjectMeta, OwnerReference
from kubewright.outcome import Done, Waiting
from kubewright.ownership import CONTROLLER_LABEL
from kubewright.selection import select
from kubewright.testing import eventually

from .support.api_harness import ApiHarness
from .support.parents import Deployment, Parent, config_map, deployment, get, run_parent
from .support.widget_kind import Widget

# FakeApi does not have the validation of built-in kinds.
needs_builtin_validation = pytest.mark.parametrize("api", ["real"], indirect=True)


async def exists(api: ApiHarness, kind: type[Any], name: str) -> bool:
    try:
        await get(api, kind, name)
    except NotFound:
        return False
    return True


async def is_gone(api: ApiHarness, kind: type[Any], name: str) -> bool:
    return not await exists(api, kind, name)


async def has_data(api: ApiHarness, expected: dict[str, str], name: str = "config") -> bool:
    return bool((await get(api, ConfigMap, name)).data == expected)


async def wait_for_rest(parent: Parent) -> int:
    """Wait until no reconcile follows another; returns how many there were."""
    runs, quiet_rounds = -1, 0
    # Not one long round: on a busy machine, what came in meanwhile is only handled after it.
    while quiet_rounds < 3:
        quiet_rounds = quiet_rounds + 1 if runs == parent.runs else 0
        runs = parent.runs
        await asyncio.sleep(0.1)
    return runs


async def test_child_gets_namespace_owner_label_and_field_manager(api: ApiHarness) -> None:
    owner = await api.create_widget()
    async with run_parent(api, Parent(config_map())) as transport:
        await api.wait_for_ready(reason="Applied")
    child = await get(api, ConfigMap, "config")
    assert child.data == {"a": "1"}
    assert child.metadata.labels == {CONTROLLER_LABEL: "widget"}
    assert child.metadata.ownerReferences == [
        OwnerReference(
            apiVersion="kubewright.test/v1",
            kind="Widget",
            name="a",
            uid=owner.metadata.uid,
            controller=True,
            blockOwnerDeletion=True,
        )
    ]
    apply = next(request for request in transport.requests if request.method == "PATCH")
    assert apply.query == "fieldManager=widget"


async def test_result_has_the_live_objects_and_their_readiness(api: ApiHarness) -> None:
    await api.create_widget()
    desired = deployment(replicas=2)
    parent = Parent(config_map(), None, desired)
    async with run_parent(api, parent):
        await eventually(lambda: parent.results)
    children = parent.results[0]
    live = children.live(desired)
    assert (live.spec.replicas, live.metadata.namespace) == (2, api.namespace)
    assert [type(child) for child in children] == [ConfigMap, Deployment]
    assert not children.ready
    (waiting,) = children.not_ready
    assert str(waiting) == "Deployment web: 0/2 replicas created"
    assert children.outcome().reason == "ChildrenNotReady"
    assert children.outcome().message == "Deployment web: 0/2 replicas created"
    with pytest.raises(KeyError, match="was not passed to apply"):
        children.live(config_map("other"))


async def test_children_are_listed_by_kind_and_owner(api: ApiHarness) -> None:
    owner = await api.create_widget()
    await api.create_widget("b")
    metadata = ObjectMeta(namespace=api.namespace, name="foreign")
    await api.client.create(ConfigMap(metadata=metadata))
    parent = Parent()
    parent.build = lambda widget: [config_map(f"config-{widget.metadata.name}")]
    async with run_parent(api, parent):
        await eventually(lambda: len(parent.children_of(owner, ConfigMap)) == 1)
    (child,) = parent.children_of(owner, ConfigMap)
    assert child.metadata.name == "config-a"


async def test_nothing_is_sent_at_rest(api: ApiHarness) -> None:
    await api.create_widget(size=1)
    parent = Parent(config_map(), deployment())
    async with run_parent(api, parent) as transport:
        await api.wait_for_ready()
        await wait_for_rest(parent)
        assert len(transport.child_writes()) == 2
        await api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"size": 2}})
        # A status of a Deployment changes its version, but nothing of ours.
        await api.client.patch_status(
            Deployment, Key(api.namespace, "web"), {"replicas": 1, "observedGeneration": 1}
        )
        await eventually(lambda: parent.results[-1].live(deployment()).status.replicas == 1)
        await wait_for_rest(parent)
        assert len(transport.child_writes()) == 2


async def test_own_writes_of_children_do_not_enqueue_the_owner(api: ApiHarness) -> None:
    parent = Parent()
    parent.build = lambda widget: [
        config_map(f"{widget.metadata.name}-{number}") for number in range(3)
    ]
    async with run_parent(api, parent) as transport:
        for number in range(10):
            await api.create_widget(f"w{number}")
        await eventually(lambda: len(transport.child_writes()) == 30)
        await wait_for_rest(parent)
        assert parent.runs == 10


async def test_nothing_at_all_is_sent_after_a_restart(api: ApiHarness) -> None:
    await api.create_widget()
    async with run_parent(api, Parent(config_map(), deployment())):
        await api.wait_for_ready()
    parent = Parent(config_map(), deployment())
    async with run_parent(api, parent) as transport:
        await eventually(lambda: parent.results)
        await wait_for_rest(parent)
        assert transport.child_writes() == []
        assert len(parent.child_applier.memory) == 2
        # The memory of this process is complete: drift is noticed as before.
        await api.client.patch(ConfigMap, Key(api.namespace, "config"), {"data": {"a": "9"}})
        await eventually(lambda: has_data(api, {"a": "1"}))


async def test_drift_while_no_manager_runs_is_repaired(api: ApiHarness) -> None:
    await api.create_widget()
    async with run_parent(api, Parent(config_map(), deployment())):
        await api.wait_for_ready()
    containers = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "x"}]
    await api.client.patch(Deployment, Key(api.namespace, "web"), containers, patch_type="json")
    parent = Parent(config_map(), deployment())
    async with run_parent(api, parent) as transport:

        async def is_repaired() -> bool:
            live = await get(api, Deployment, "web")
            return bool(live.spec.template.spec.containers[0].image == "web:1")

        await eventually(is_repaired)
        assert {path.rpartition("/")[2] for _, path in transport.child_writes()} == {"web"}


async def test_field_that_a_new_release_no_longer_sets_is_removed(api: ApiHarness) -> None:
    await api.create_widget()
    async with run_parent(api, Parent(config_map(a="1", b="2"), deployment(hostname="x"))):
        await api.wait_for_ready()
    async with run_parent(api, Parent(config_map(a="1"), deployment())):
        await eventually(lambda: has_data(api, {"a": "1"}))

        async def has_no_hostname() -> bool:
            live = await get(api, Deployment, "web")
            return live.spec.template.spec.hostname is None

        await eventually(has_no_hostname)


async def test_deleted_child_is_created_again(api: ApiHarness) -> None:
    await api.create_widget()
    async with run_parent(api, Parent(config_map())):
        await api.wait_for_ready()
        first = await get(api, ConfigMap, "config")
        await api.client.delete(ConfigMap, first.key)
        await eventually(lambda: has_data(api, {"a": "1"}))
        assert (await get(api, ConfigMap, "config")).metadata.uid != first.metadata.uid


async def test_field_taken_by_another_manager_is_taken_back_with_an_event(api: ApiHarness) -> None:
    await api.create_widget()
    async with run_parent(api, Parent(deployment(replicas=2))):
        await api.wait_for_ready()
        await steal_replicas(api)

        async def is_repaired() -> bool:
            return bool((await get(api, Deployment, "web")).spec.replicas == 2)

        await eventually(is_repaired)

        async def find_event() -> Event | None:
            events = await api.client.list(Event, api.namespace)
            return next((event for event in events if event.reason == "FieldConflict"), None)

        event = await eventually(find_event)
        assert event is not None
        assert (event.type, event.involvedObject.kind) == ("Warning", "Widget")
        assert f'Deployment {api.namespace}/web: .spec.replicas is managed by "thief"' in (
            event.message
        )


async def steal_replicas(api: ApiHarness) -> None:
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 7},
    }
    await api.client.patch(
        Deployment,
        Key(api.namespace, "web"),
        manifest,
        patch_type="apply",
        field_manager="thief",
        force=True,
    )


async def test_without_force_the_conflict_is_the_reason_of_ready(api: ApiHarness) -> None:
    await api.create_widget()
    async with run_parent(api, Parent(deployment(replicas=2), force=False)):
        await api.wait_for_ready(reason="Applied")
        await steal_replicas(api)
        condition = await api.wait_for_ready(reason="FieldConflict")
        assert '.spec.replicas is managed by "thief"' in condition.message
        assert (await get(api, Deployment, "web")).spec.replicas == 7


async def test_child_that_is_renamed_or_not_passed_is_pruned(api: ApiHarness) -> None:
    await api.create_widget(size=1)
    parent = Parent()
    parent.build = lambda widget: [config_map(f"config-{widget.spec.size}")]
    async with run_parent(api, parent):
        await eventually(lambda: exists(api, ConfigMap, "config-1"))
        foreign = config_map("config-9", api.namespace)
        await api.client.create(foreign)
        await api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"size": 2}})
        await eventually(lambda: exists(api, ConfigMap, "config-2"))
        await eventually(lambda: is_gone(api, ConfigMap, "config-1"))
        parent.build = lambda widget: []
        await api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"size": 3}})
        await eventually(lambda: is_gone(api, ConfigMap, "config-2"))
        assert await exists(api, ConfigMap, "config-9")


async def test_object_with_owner_but_without_label_is_not_pruned(api: ApiHarness) -> None:
    owner = await api.create_widget()
    reference = OwnerReference(
        apiVersion="kubewright.test/v1",
        kind="Widget",
        name="a",
        uid=owner.metadata.uid,
        controller=True,
    )
    metadata = ObjectMeta(name="mine", namespace=api.namespace, ownerReferences=[reference])
    await api.client.create(ConfigMap(metadata=metadata))
    async with run_parent(api, Parent(config_map())):
        await api.wait_for_ready()
    assert await exists(api, ConfigMap, "mine")


async def test_nothing_is_pruned_on_request_or_after_a_failed_apply(api: ApiHarness) -> None:
    await api.create_widget(size=1)
    parent = Parent(prune=False)
    parent.build = lambda widget: [config_map(f"config-{widget.spec.size}")]
    async with run_parent(api, parent):
        await eventually(lambda: exists(api, ConfigMap, "config-1"))
        await api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"size": 2}})
        await eventually(lambda: exists(api, ConfigMap, "config-2"))
    assert await exists(api, ConfigMap, "config-1")
    await api.client.create(config_map("config", api.namespace))
    async with run_parent(api, Parent(config_map())):
        await api.wait_for_ready(reason="ChildNotOwned")
    assert await exists(api, ConfigMap, "config-1")


@needs_builtin_validation
async def test_invalid_child_is_the_reason_of_ready(api: ApiHarness) -> None:
    await api.create_widget()
    async with run_parent(api, Parent(config_map("Not A Name"))):
        condition = await api.wait_for_ready(reason="InvalidChild")
    assert "metadata.name" in condition.message


async def test_object_of_another_client_is_not_taken_over(api: ApiHarness) -> None:
    await api.client.create(config_map("config", api.namespace, theirs="1"))
    await api.create_widget()
    async with run_parent(api, Parent(config_map())):
        condition = await api.wait_for_ready(reason="ChildNotOwned")
        assert condition.message == (
            f"ConfigMap {api.namespace}/config exists and does not belong to Widget "
            f"{api.namespace}/a. Rename or delete it, or pass adopt=True to apply to take it over"
        )
        assert await has_data(api, {"theirs": "1"})
        # The owner waits for that object, although it does not name the owner.
        await api.client.delete(ConfigMap, Key(api.namespace, "config"))
        await api.wait_for_ready(reason="Applied", within=3)


async def test_object_that_the_cache_does_not_have_is_not_taken_over(api: ApiHarness) -> None:
    """The object is created while the manager applies its child."""
    owner = await api.create_widget()
    parent = Parent(config_map())
    async with run_parent(api, parent):
        await api.wait_for_ready()
        await api.client.delete(ConfigMap, Key(api.namespace, "config"))
        await eventually(lambda: has_data(api, {"a": "1"}))
        await wait_for_rest(parent)
        store = parent.cache.store(ConfigMap)
        await api.client.create(config_map("late", api.namespace, theirs="1"))
        await eventually(lambda: Key(api.namespace, "late") in store.objects)
        del store.objects[Key(api.namespace, "late")]
        with pytest.raises(Retry, match="exists and does not belong to Widget"):
            await parent.apply(owner, config_map("late"))
    assert await has_data(api, {"theirs": "1"}, "late")


async def test_apply_never_lands_on_a_later_object_of_that_name(api: ApiHarness) -> None:
    """The cache is behind: the child was replaced by another client, or deleted."""
    owner = await api.create_widget()
    parent = Parent(config_map())
    key = Key(api.namespace, "config")
    async with run_parent(api, parent):
        await api.wait_for_ready()
        store = parent.cache.store(ConfigMap)
        parent.build = lambda widget: []
        stale = store.objects[key]
        await api.client.delete(ConfigMap, key)
        await eventually(lambda: key not in store.objects)
        store.objects[key] = stale
        await parent.apply(owner, config_map(a="2"))
        assert await has_data(api, {"a": "2"})

        await api.client.delete(ConfigMap, key)
        await eventually(lambda: is_gone(api, ConfigMap, "config"))
        await api.client.create(config_map("config", api.namespace, theirs="1"))
        await eventually(lambda: key in store.objects)
        store.objects[key] = stale
        with pytest.raises(Retry, match="does not belong to Widget"):
            await parent.apply(owner, config_map(a="2"))
        assert await has_data(api, {"theirs": "1"})


async def test_adopt_takes_over_an_object_without_a_controller(api: ApiHarness) -> None:
    await api.client.create(config_map("config", api.namespace, a="0", theirs="1"))
    owner = await api.create_widget()
    async with run_parent(api, Parent(config_map(), adopt=True)):
        await api.wait_for_ready(reason="Applied")
    child = await get(api, ConfigMap, "config")
    assert child.data == {"a": "1", "theirs": "1"}
    assert [reference.uid for reference in child.metadata.ownerReferences] == [owner.metadata.uid]


async def test_child_of_another_controller_is_never_adopted(api: ApiHarness) -> None:
    await api.create_widget("other")
    await api.create_widget("a")
    parent = Parent(config_map(), adopt=True)
    async with run_parent(api, parent):

        async def ready_reasons() -> set[str]:
            conditions = [
                (await api.get_widget(name)).status.condition("Ready") for name in ("other", "a")
            ]
            return {condition.reason for condition in conditions if condition}

        await eventually(lambda: _equals(ready_reasons, {"Applied", "ChildNotOwned"}))


async def _equals(read: Any, expected: Any) -> bool:
    return bool(await read() == expected)


async def test_child_that_is_being_deleted_is_waited_for_and_created_again(api: ApiHarness) -> None:
    await api.create_widget()
    async with run_parent(api, Parent(config_map())):
        await api.wait_for_ready(reason="Applied")
        first = await get(api, ConfigMap, "config")
        hold = {"metadata": {"finalizers": ["kubewright.test/hold"]}}
        await api.client.patch(ConfigMap, first.key, hold)
        await api.client.delete(ConfigMap, first.key)
        condition = await api.wait_for_ready(reason="ChildrenNotReady")
        assert condition.message == (
            "ConfigMap config: being deleted; it is created again afterwards"
        )
        await api.client.patch(ConfigMap, first.key, {"metadata": {"finalizers": None}})
        await api.wait_for_ready(reason="Applied")
        assert (await get(api, ConfigMap, "config")).metadata.uid != first.metadata.uid


async def test_child_of_a_deleted_owner_of_that_name_is_waited_for(api: ApiHarness) -> None:
    """No garbage collector runs here, so the child stays."""
    await api.create_widget()
    async with run_parent(api, Parent(config_map())):
        await api.wait_for_ready()
        child = await get(api, ConfigMap, "config")
        await api.client.delete(Widget, Key(api.namespace, "a"))
        await api.create_widget()

        async def find_message() -> str:
            condition = (await api.get_widget()).status.condition("Ready")
            return condition.message if condition else ""

        parent_message = "waiting for its deletion, since it belongs to a deleted Widget"
        await eventually(lambda: _contains(find_message, parent_message))
        await api.client.delete(ConfigMap, child.key)
        await api.wait_for_ready(reason="Applied")


async def _contains(read: Any, text: str) -> bool:
    return text in await read()


@needs_builtin_validation
async def test_immutable_field_is_named_and_nothing_is_deleted(api: ApiHarness) -> None:
    await api.create_widget()
    async with run_parent(api, Parent(deployment(app="web"))):
        await api.wait_for_ready(reason="Applied")
    first = await get(api, Deployment, "web")
    async with run_parent(api, Parent(deployment(app="other"))):
        condition = await api.wait_for_ready(reason="ImmutableField")
        assert f"Deployment {api.namespace}/web: spec.selector cannot be changed" in (
            condition.message
        )
        assert "name it in recreate" in condition.message
    assert (await get(api, Deployment, "web")).metadata.uid == first.metadata.uid


@needs_builtin_validation
async def test_recreate_replaces_an_object_with_an_immutable_field(api: ApiHarness) -> None:
    await api.create_widget()
    async with run_parent(api, Parent(deployment(app="web"))):
        await api.wait_for_ready(reason="Applied")
    first = await get(api, Deployment, "web")
    child = deployment(app="other")
    async with run_parent(api, Parent(child, recreate=[child])):

        async def is_recreated() -> bool:
            return bool((await get(api, Deployment, "web")).metadata.uid != first.metadata.uid)

        await eventually(is_recreated)
    assert (await get(api, Deployment, "web")).spec.selector == {"matchLabels": {"app": "other"}}


@needs_builtin_validation
async def test_recreate_deletes_nothing_for_invalid_content(api: ApiHarness) -> None:
    await api.create_widget()
    async with run_parent(api, Parent(deployment())):
        await api.wait_for_ready(reason="Applied")
    first = await get(api, Deployment, "web")
    child = deployment(hostname="not a name!")
    async with run_parent(api, Parent(child, recreate=[child])):
        condition = await api.wait_for_ready(reason="InvalidChild")
        assert "spec.template.spec.hostname" in condition.message
    assert (await get(api, Deployment, "web")).metadata.uid == first.metadata.uid


async def test_mistakes_of_the_author_are_refused(api: ApiHarness) -> None:
    owner = await api.create_widget()
    parent = Parent(kinds=[ConfigMap])
    own_map = select(ConfigMap, label_selector="a=b")(metadata=ObjectMeta(name="config"))
    generated = ConfigMap(metadata=ObjectMeta(generateName="x-"))
    async with run_parent(api, parent):
        await eventually(lambda: parent.results)
        for children, message in (
            ([config_map(), config_map()], "is passed twice"),
            ([own_map, config_map()], "is passed twice"),
            ([generated], "needs metadata.name, not generateName"),
            ([deployment()], r"add self.owns\(Deployment\) to __init__"),
            ([config_map(namespace="elsewhere")], "cross_namespace=True"),
        ):
            with pytest.raises(ConfigError, match=message):
                await parent.apply(owner, *children)


async def test_two_calls_at_once_send_each_child_once(api: ApiHarness) -> None:
    owner = await api.create_widget()
    parent = Parent(prune=False)
    async with run_parent(api, parent) as transport:
        await eventually(lambda: parent.results)
        await asyncio.gather(
            *(parent.apply(owner, config_map(), config_map("b")) for _ in range(3))
        )
        assert len(transport.child_writes()) == 2


async def test_client_that_changes_a_field_again_and_again_is_named(api: ApiHarness) -> None:
    await api.create_widget()
    parent = Parent(config_map())
    async with run_parent(api, parent):
        await api.wait_for_ready(reason="Applied")
        for number in range(11):
            patch = {"data": {"a": f"x{number}"}}
            await api.client.patch(ConfigMap, Key(api.namespace, "config"), patch)
            if number < 10:
                await eventually(lambda: has_data(api, {"a": "1"}))
        condition = await api.wait_for_ready(reason="ChildContested")
        assert "another client changed .data.a 11 times within 60 s" in condition.message


async def test_memory_goes_with_the_child_and_with_the_owner(api: ApiHarness) -> None:
    await api.create_widget("a")
    await api.create_widget("b", size=1)
    parent = Parent()
    parent.build = lambda widget: [
        config_map(f"{widget.metadata.name}-{i}") for i in range(1 if widget.spec.size == 2 else 2)
    ]
    async with run_parent(api, parent):
        memory = parent.child_applier.memory
        await eventually(lambda: len(memory) == 4)
        await api.client.patch(Widget, Key(api.namespace, "b"), {"spec": {"size": 2}})
        await eventually(lambda: len(memory) == 3)
        await api.client.delete(Widget, Key(api.namespace, "a"))
        await eventually(lambda: len(memory) == 1)


async def test_selection_of_own_children_keeps_the_cache_small(api: ApiHarness) -> None:
    await api.client.create(config_map("foreign", api.namespace))
    await api.create_widget()
    own = select(ConfigMap, label_selector=f"{CONTROLLER_LABEL}=widget")
    parent = Parent(config_map(), kinds=[own])
    async with run_parent(api, parent):
        await api.wait_for_ready(reason="Applied")
        key = Key(api.namespace, "config")
        assert list(parent.cache.store(own).objects) == [key]
        assert parent.runs == 1
        await api.client.patch(ConfigMap, key, {"data": {"a": "9"}})
        await eventually(lambda: has_data(api, {"a": "1"}))
        # Without the label it leaves the selection, and is found by a conflict.
        await api.client.patch(ConfigMap, key, {"metadata": {"labels": None}})

        async def has_label() -> bool:
            return CONTROLLER_LABEL in (await get(api, ConfigMap, "config")).metadata.labels

        await eventually(has_label)
        await api.client.delete(ConfigMap, key)
        await eventually(lambda: has_data(api, {"a": "1"}))
        parent.build = lambda widget: [config_map("foreign")]
        await api.client.patch(Widget, Key(api.namespace, "a"), {"spec": {"size": 2}})
        await api.wait_for_ready(reason="ChildNotOwned")


async def test_children_without_content_in_the_cache_are_refused(api: ApiHarness) -> None:
    owner = await api.create_widget()
    parent = Parent(kinds=[select(ConfigMap, metadata_only=True)])
    async with run_parent(api, parent):
        await eventually(lambda: parent.results)
        with pytest.raises(ConfigError, match="ConfigMap cannot be applied with metadata_only"):
            await parent.apply(owner, config_map())


async def test_foreign_object_that_is_being_deleted_is_waited_for(api: ApiHarness) -> None:
    """It names no owner, so nothing but the name connects it to the widget."""
    metadata = ObjectMeta(
        namespace=api.namespace, name="config", finalizers=["kubewright.test/hold"]
    )
    foreign = await api.client.create(ConfigMap(metadata=metadata))
    await api.client.delete(ConfigMap, foreign.key)
    await api.create_widget("a")
    await api.create_widget("b")
    async with run_parent(api, Parent(config_map())):
        await api.wait_for_ready("a", reason="ChildrenNotReady")
        await api.wait_for_ready("b", reason="ChildrenNotReady")
        await api.client.patch(ConfigMap, foreign.key, {"metadata": {"finalizers": None}})

        async def reasons() -> set[str]:
            widgets = [await api.get_widget(name) for name in "ab"]
            return {w.status.conditions[0].reason for w in widgets}

        # Both were woken: one has the child now, and the other reports its owner.
        await eventually(lambda: _equals(reasons, {"Applied", "ChildNotOwned"}))


async def test_two_owners_that_apply_one_name_at_the_same_time(api: ApiHarness) -> None:
    await api.create_widget("a")
    await api.create_widget("b")
    parent = Parent(config_map())
    async with run_parent(api, parent):

        async def reasons() -> list[str]:
            widgets = [await api.get_widget(name) for name in "ab"]
            return sorted(c.reason for w in widgets for c in w.status.conditions)

        await eventually(lambda: _equals(reasons, ["Applied", "ChildNotOwned"]))
        events = {reason for name in "ab" for _, reason in await api.list_events(name)}
    assert "Error" not in events


async def test_contested_child_does_not_stop_the_repair_of_others(api: ApiHarness) -> None:
    await api.create_widget()
    parent = Parent(config_map(), config_map("other"))
    async with run_parent(api, parent):
        await api.wait_for_ready(reason="Applied")
        for number in range(11):
            patch = {"data": {"a": f"x{number}"}}
            await api.client.patch(ConfigMap, Key(api.namespace, "config"), patch)
            if number < 10:
                await eventually(lambda: has_data(api, {"a": "1"}))
        await api.wait_for_ready(reason="ChildContested")
        await api.client.delete(ConfigMap, Key(api.namespace, "other"))
        await eventually(lambda: exists(api, ConfigMap, "other"))


async def test_second_apply_of_a_reconcile_does_not_prune_the_first(api: ApiHarness) -> None:
    class Twice(Parent):
        async def reconcile(self, widget: Widget) -> Done:
            await self.apply(widget, config_map("one"), prune=False)
            await self.apply(widget, config_map("two"))
            return Done("Applied")

    await api.create_widget()
    async with run_parent(api, Twice()):
        condition = await api.wait_for_ready(reason="ConfigError")
        assert "the second call would delete ConfigMap" in condition.message
        assert await exists(api, ConfigMap, "one")


async def test_child_outside_of_the_owned_selection_is_refused(api: ApiHarness) -> None:
    await api.create_widget()
    parent = Parent(config_map(), kinds=[select(ConfigMap, label_selector="app=web")])
    async with run_parent(api, parent):
        condition = await api.wait_for_ready(reason="ConfigError")
    assert "is outside of the selection that owns() declares (app=web)" in condition.message


async def test_other_class_of_an_owned_resource_is_named(api: ApiHarness) -> None:
    await api.create_widget()
    parent = Parent(core_v1.ConfigMap(metadata=ObjectMeta(name="config")), kinds=[ConfigMap])
    async with run_parent(api, parent):
        condition = await api.wait_for_ready(reason="ConfigError")
    assert "kubewright.api.core_v1.ConfigMap is not declared, but owns() has" in condition.message


@needs_builtin_validation
async def test_invalid_child_keeps_the_status_of_the_owner(api: ApiHarness) -> None:
    class Counting(Parent):
        async def reconcile(self, widget: Widget) -> Done | Waiting:
            widget.status.doubled = 4
            return await super().reconcile(widget)

    await api.create_widget()
    async with run_parent(api, Counting(deployment("Not A Name"))):
        await api.wait_for_ready(reason="InvalidChild")
    assert (await api.get_widget()).status.doubled == 4
