"""The label on the selected Node, its permissions, and the cleanup when labelling is off."""

from __future__ import annotations

import asyncio

import pytest

from kubewright import Key
from kubewright.builtin import ConfigMap, Event, Node
from kubewright.errors import Conflict, Forbidden
from kubewright.rbac import manager_rules
from kubewright.testing import eventually
from support.fake_node_cluster import FakeNodeCluster, add_three_nodes, run_gpuinfo_manager
from vsphere_operators.kinds.gpuinfo.labels import FINALIZER, _find_gpuinfo_labels, build_label_key
from vsphere_operators.kinds.gpuinfo.types import GPUInfo


async def test_selected_node_has_the_label() -> None:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    cluster.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    label = build_label_key(Key("default", "plain"))

    async def list_labelled() -> list[str]:
        return [
            node.metadata.name
            for node in await cluster.client.list(Node)
            if node.metadata.labels.get(label) == "true"
        ]

    async def is_only_on(*names: str) -> bool:
        return await list_labelled() == list(names)

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


async def list_labelled_nodes(cluster: FakeNodeCluster) -> list[str]:
    label = build_label_key(Key("default", "plain"))
    return [
        node.metadata.name
        for node in await cluster.client.list(Node)
        if label in node.metadata.labels
    ]


async def is_label_only_on(cluster: FakeNodeCluster, *names: str) -> bool:
    return await list_labelled_nodes(cluster) == list(names)


@pytest.mark.looptime
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


@pytest.mark.looptime
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


@pytest.mark.looptime
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


@pytest.mark.looptime
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
    labelled = [node for node in await cluster.client.list(Node) if _find_gpuinfo_labels(node)]
    return bool(labelled) and (await cluster.get(GPUInfo, "plain")).metadata.finalizers == [
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
