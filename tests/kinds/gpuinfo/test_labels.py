"""The label on the selected Node, its permissions, and the cleanup when labeling is off."""

from __future__ import annotations

import asyncio

import pytest

from kubewright import Key
from kubewright.builtin import ConfigMap, Event, Node
from kubewright.errors import Conflict, Forbidden
from kubewright.rbac import manager_rules
from kubewright.testing import eventually
from support.fake_node_cluster import (
    FakeNodeCluster,
    add_three_nodes,
    run_gpuinfo_manager,
    wait_for_node,
)
from vsphere_operators.kinds.gpuinfo.label_slots import LabelLimits
from vsphere_operators.kinds.gpuinfo.labels import FINALIZER, _find_gpuinfo_labels, build_label_key
from vsphere_operators.kinds.gpuinfo.types import GPUInfo


async def test_selected_node_has_the_label() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    label = build_label_key(Key("default", "plain"))

    async def list_labeled() -> list[str]:
        return [
            node.metadata.name
            for node in await cluster.client.list(Node)
            if node.metadata.labels.get(label) == "true"
        ]

    async def is_only_on(*names: str) -> bool:
        return await list_labeled() == list(names)

    async with run_gpuinfo_manager(cluster, labels=True) as controller:
        await eventually(lambda: is_only_on("node-1"))
        rules = manager_rules([controller])
        assert next(rule for rule in rules if rule["resources"] == ["nodes"])["verbs"] == [
            "list",
            "patch",
            "watch",
        ]
        await cluster.patch_node(1, {"spec": {"unschedulable": True}})
        await eventually(lambda: is_only_on("node-2"))
        await cluster.client.delete(GPUInfo, Key("default", "plain"))
        await eventually(is_only_on)


async def has_label_counts(cluster: FakeNodeCluster, counts: dict[str, int]) -> bool:
    return counts == {
        node.metadata.name: len(labels)
        for node in await cluster.client.list(Node)
        if (labels := list(_find_gpuinfo_labels(node)))
    }


async def list_unlabeled(cluster: FakeNodeCluster, count: int) -> list[str]:
    """The GPUInfos with a message about a missing label."""
    infos = [await cluster.get(GPUInfo, f"plain-{number}") for number in range(count)]
    return [
        info.metadata.name
        for info in infos
        if (ready := info.status.condition("Ready")) and "is not labeled" in ready.message
    ]


@pytest.mark.looptime(noop_cycles=4)
@pytest.mark.parametrize(
    ("limits", "flag"),
    [
        (LabelLimits(per_node=3, interval_seconds=0), "-labels-per-node"),
        (LabelLimits(per_namespace=3, interval_seconds=0), "-labels-per-namespace"),
    ],
)
async def test_number_of_labels_is_limited(limits: LabelLimits, flag: str) -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    for number in range(8):
        cluster.create(GPUInfo, f"plain-{number}", desAccTime=1, gpuRequired=False)

    async def has_unlabeled(count: int) -> bool:
        return len(await list_unlabeled(cluster, 8)) == count

    async with run_gpuinfo_manager(cluster, labels=True, label_limits=limits):
        await eventually(lambda: has_unlabeled(5), within=20)
        assert await has_label_counts(cluster, {"node-1": 3})
        name, *_ = await list_unlabeled(cluster, 8)
        info, ready = await cluster.wait_for_ready(GPUInfo, name, "NodeChosen")
        assert info.status.suitableNodeName == "node-1"
        assert "has the maximum of 3" in ready.message or "have the maximum of 3" in ready.message
        assert flag in ready.message
        await eventually(lambda: has_event(cluster, name, "LabelLimitReached"), within=20)
        labeled = {f"plain-{number}" for number in range(8)} - set(await list_unlabeled(cluster, 8))
    # A new manager keeps the labels where they are.
    async with run_gpuinfo_manager(cluster, labels=True, label_limits=limits):
        await asyncio.sleep(30)
        assert labeled.isdisjoint(await list_unlabeled(cluster, 8))
        assert await has_label_counts(cluster, {"node-1": 3})
        # A place that becomes free is taken.
        await cluster.client.delete(GPUInfo, Key("default", min(labeled)))
        await eventually(lambda: has_label_counts(cluster, {"node-1": 2}), within=20)
        await eventually(lambda: has_label_counts(cluster, {"node-1": 3}), within=90)


@pytest.mark.looptime(noop_cycles=4)
async def test_lower_limit_removes_labels() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    for number in range(8):
        cluster.create(GPUInfo, f"plain-{number}", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(cluster, labels=True):
        await eventually(lambda: has_label_counts(cluster, {"node-1": 8}), within=20)
    limits = LabelLimits(per_node=2, interval_seconds=0)
    async with run_gpuinfo_manager(cluster, labels=True, label_limits=limits):
        await eventually(lambda: has_label_counts(cluster, {"node-1": 2}), within=20)


@pytest.mark.looptime(noop_cycles=4)
async def test_label_moves_at_most_once_per_interval() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    limits = LabelLimits(interval_seconds=300)
    async with run_gpuinfo_manager(cluster, labels=True, label_limits=limits):
        await eventually(lambda: is_label_only_on(cluster, "node-1"), within=20)
        began = asyncio.get_running_loop().time()
        writes = count_label_writes(cluster)
        # A selection that changes all the time causes one removal, and no move.
        for turn in range(20):
            cordoned = 1 + turn % 2
            await cluster.patch_node(cordoned, {"spec": {"unschedulable": True}})
            await cluster.patch_node(3 - cordoned, {"spec": {"unschedulable": False}})
            await wait_for_node(cluster, "plain", f"node-{3 - cordoned}")
        assert count_label_writes(cluster) == writes + 1
        assert await is_label_only_on(cluster)
        _, ready = await cluster.wait_for_ready(GPUInfo, "plain", "NodeChosen")
        assert "is labeled later: -label-move-interval (5m0s)" in ready.message
        await eventually(lambda: is_label_only_on(cluster, "node-1"), within=310)
        assert asyncio.get_running_loop().time() - began >= 299
        assert not await has_event(cluster, "plain", "LabelLimitReached")


@pytest.mark.looptime(noop_cycles=4)
async def test_new_objects_in_turn_cause_no_more_writes_than_the_limit() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    limits = LabelLimits(per_namespace=2, interval_seconds=300)
    async with run_gpuinfo_manager(cluster, labels=True, label_limits=limits):
        for number in range(20):
            cluster.create(GPUInfo, f"plain-{number}", desAccTime=1, gpuRequired=False)
            await wait_for_node(cluster, f"plain-{number}", "node-1")
            await asyncio.sleep(1)
            await cluster.client.delete(GPUInfo, Key("default", f"plain-{number}"))
            await asyncio.sleep(1)
        assert count_label_writes(cluster) == 4


def count_label_writes(cluster: FakeNodeCluster) -> int:
    return sum(
        request.method == "PATCH" and b"gpuinfo.topology" in (request.body or b"")
        for request in cluster.api.requests
        if "/nodes/" in request.path
    )


async def list_labeled_nodes(cluster: FakeNodeCluster) -> list[str]:
    label = build_label_key(Key("default", "plain"))
    return [
        node.metadata.name
        for node in await cluster.client.list(Node)
        if label in node.metadata.labels
    ]


async def is_label_only_on(cluster: FakeNodeCluster, *names: str) -> bool:
    return await list_labeled_nodes(cluster) == list(names)


@pytest.mark.looptime(noop_cycles=4)
async def test_label_is_removed_when_no_node_is_selected_any_more() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "plain", desAccTime=100, gpuRequired=False)
    calendar = Key("ops", "maintenance")
    cluster.api.create(
        ConfigMap.definition.path("ops"),
        {"metadata": {"name": "maintenance", "namespace": "ops"}, "data": {}},
    )
    async with run_gpuinfo_manager(cluster, calendar=calendar, labels=True):
        await eventually(lambda: is_label_only_on(cluster, "node-1"), within=20)
        await asyncio.sleep(20)
        await cluster.client.delete(ConfigMap, calendar)
        await cluster.wait_for_ready(
            GPUInfo,
            "plain",
            "CalendarUnreadable",
            lambda status: status.suitableNodeName == "node-1",
        )
        assert await is_label_only_on(cluster, "node-1")
        await cluster.client.patch(
            GPUInfo, Key("default", "plain"), {"spec": {"gpuRequired": True}}
        )
        await cluster.wait_for_ready(
            GPUInfo, "plain", "CalendarUnreadable", lambda status: status.suitableNodeName is None
        )
        assert await is_label_only_on(cluster)


@pytest.mark.looptime(noop_cycles=4)
async def test_label_that_another_client_moves_is_moved_back() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "plain", desAccTime=100, gpuRequired=False)
    label = build_label_key(Key("default", "plain"))
    async with run_gpuinfo_manager(cluster, labels=True):
        await eventually(lambda: is_label_only_on(cluster, "node-1"), within=20)
        await cluster.patch_node(1, {"metadata": {"labels": {label: None}}})
        await eventually(lambda: is_label_only_on(cluster, "node-1"), within=20)
        await cluster.patch_node(2, {"metadata": {"labels": {label: "true"}}})
        await eventually(lambda: is_label_only_on(cluster, "node-1"), within=20)


@pytest.mark.looptime(noop_cycles=4)
async def test_cleanup_removes_labels_and_finalizers_or_records_an_event() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(cluster, labels=True):
        await eventually(lambda: has_leftovers(cluster), within=20)
    cluster.api.fail_next("PATCH", Node.definition.path("", "node-1"), Forbidden("no"), times=1)
    async with run_gpuinfo_manager(cluster):
        await eventually(lambda: has_event(cluster, "node-1", "LabelLeft"), within=20)
        assert (await cluster.get(GPUInfo, "plain")).metadata.finalizers == []
        await eventually(lambda: has_no_labels(cluster), within=60)


@pytest.mark.looptime(noop_cycles=4)
async def test_cleanup_retries_conflicts_and_reports_a_forbidden_finalizer() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(cluster, labels=True):
        await eventually(lambda: has_leftovers(cluster), within=20)
    gpuinfo_path = GPUInfo.definition.path("default", "plain")
    cluster.api.fail_next("PATCH", gpuinfo_path, Forbidden("no"), times=1)
    node_path = Node.definition.path("", "node-1")
    cluster.api.fail_next("PATCH", node_path, Conflict("changed"), times=1)
    async with run_gpuinfo_manager(cluster):
        await eventually(lambda: has_event(cluster, "plain", "FinalizerLeft"), within=20)
        await eventually(lambda: has_no_labels(cluster), within=60)
        await eventually(lambda: has_no_finalizers(cluster), within=60)


async def has_no_finalizers(cluster: FakeNodeCluster) -> bool:
    return (await cluster.get(GPUInfo, "plain")).metadata.finalizers == []


async def has_leftovers(cluster: FakeNodeCluster) -> bool:
    labeled = [node for node in await cluster.client.list(Node) if _find_gpuinfo_labels(node)]
    return bool(labeled) and (await cluster.get(GPUInfo, "plain")).metadata.finalizers == [
        FINALIZER
    ]


async def has_no_labels(cluster: FakeNodeCluster) -> bool:
    return not any(_find_gpuinfo_labels(node) for node in await cluster.client.list(Node))


async def has_event(cluster: FakeNodeCluster, name: str, reason: str) -> bool:
    return any(
        event.involvedObject.name == name and event.reason == reason
        for event in await cluster.client.list(Event)
    )


async def test_without_labels_nodes_are_only_read() -> None:
    cluster = FakeNodeCluster()
    cluster.mark_loaded()
    async with run_gpuinfo_manager(cluster) as controller:
        rules = manager_rules([controller])
        assert next(rule for rule in rules if rule["resources"] == ["nodes"])["verbs"] == [
            "list",
            "watch",
        ]
        assert not any(
            "patch" in rule["verbs"] for rule in rules if rule["resources"] == ["gpuinfoes"]
        )
