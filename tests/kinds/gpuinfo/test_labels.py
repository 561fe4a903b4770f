"""The label on the chosen Node, the rights for it, and what becomes of it when labelling is switched off."""

from __future__ import annotations

import asyncio

import pytest

from kubewright import Key
from kubewright.builtin import ConfigMap, Event, Node
from kubewright.errors import Forbidden
from kubewright.rbac import manager_rules
from kubewright.testing import eventually
from support.fake_node_cluster import FakeNodeCluster, add_three_nodes, run_gpuinfo_manager
from vsphere_operators.kinds.gpuinfo.controller import GPUInfo
from vsphere_operators.kinds.gpuinfo.labels import FINALIZER, build_label_key, find_gpuinfo_labels


async def test_the_chosen_node_carries_a_label_while_it_is_the_answer() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    label = build_label_key(Key("default", "plain"))

    async def labelled() -> list[str]:
        return [
            node.metadata.name
            for node in await stage.client.list(Node)
            if node.metadata.labels.get(label) == "true"
        ]

    async def only(*names: str) -> bool:
        return await labelled() == list(names)

    async with run_gpuinfo_manager(stage, labels=True) as controller:
        await eventually(lambda: only("node-1"))
        rules = manager_rules([controller])
        assert next(rule for rule in rules if rule["resources"] == ["nodes"])["verbs"] == [
            "list",
            "patch",
            "watch",
        ]
        await stage.patch_node(1, {"spec": {"unschedulable": True}})
        await eventually(lambda: only("node-2"))
        await stage.client.delete(GPUInfo, Key("default", "plain"))
        await eventually(only)


async def list_labelled_nodes(stage: FakeNodeCluster) -> list[str]:
    label = build_label_key(Key("default", "plain"))
    return [
        node.metadata.name
        for node in await stage.client.list(Node)
        if label in node.metadata.labels
    ]


async def is_label_only_on(stage: FakeNodeCluster, *names: str) -> bool:
    return await list_labelled_nodes(stage) == list(names)


@pytest.mark.looptime
async def test_the_label_goes_with_an_answer_that_is_taken_back() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=100, gpuRequired=False)
    calendar = Key("ops", "maintenance")
    stage.api.create(
        ConfigMap.definition.path("ops"),
        {"metadata": {"name": "maintenance", "namespace": "ops"}, "data": {}},
    )
    async with run_gpuinfo_manager(stage, calendar=calendar, labels=True):
        await eventually(lambda: is_label_only_on(stage, "node-1"), within=20)
        await asyncio.sleep(20)
        await stage.client.delete(ConfigMap, calendar)
        await stage.wait_for_ready(
            GPUInfo,
            "plain",
            "CalendarUnreadable",
            lambda status: status.suitableNodeName == "node-1",
        )
        assert await is_label_only_on(stage, "node-1")
        await stage.client.patch(GPUInfo, Key("default", "plain"), {"spec": {"gpuRequired": True}})
        await stage.wait_for_ready(
            GPUInfo, "plain", "CalendarUnreadable", lambda status: status.suitableNodeName is None
        )
        assert await is_label_only_on(stage)


@pytest.mark.looptime
async def test_a_label_that_a_person_moves_is_moved_back() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=100, gpuRequired=False)
    label = build_label_key(Key("default", "plain"))
    async with run_gpuinfo_manager(stage, labels=True):
        await eventually(lambda: is_label_only_on(stage, "node-1"), within=20)
        await stage.patch_node(1, {"metadata": {"labels": {label: None}}})
        await eventually(lambda: is_label_only_on(stage, "node-1"), within=20)
        await stage.patch_node(2, {"metadata": {"labels": {label: "true"}}})
        await eventually(lambda: is_label_only_on(stage, "node-1"), within=20)


@pytest.mark.looptime
async def test_what_labelling_left_is_taken_off_or_told() -> None:
    stage = FakeNodeCluster()
    add_three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(stage, labels=True):
        await eventually(lambda: has_leftovers(stage), within=20)
    stage.api.fail_next("PATCH", Node.definition.path("", "node-1"), Forbidden("no"), times=1)
    async with run_gpuinfo_manager(stage):
        await eventually(lambda: has_event(stage, "node-1", "LabelLeft"), within=20)
        assert (await stage.get(GPUInfo, "plain")).metadata.finalizers == []
        await eventually(lambda: has_no_labels(stage), within=60)


async def has_leftovers(stage: FakeNodeCluster) -> bool:
    labelled = [node for node in await stage.client.list(Node) if find_gpuinfo_labels(node)]
    return bool(labelled) and (await stage.get(GPUInfo, "plain")).metadata.finalizers == [FINALIZER]


async def has_no_labels(stage: FakeNodeCluster) -> bool:
    return not any(find_gpuinfo_labels(node) for node in await stage.client.list(Node))


async def has_event(stage: FakeNodeCluster, name: str, reason: str) -> bool:
    return any(
        each.involvedObject.name == name and each.reason == reason
        for each in await stage.client.list(Event)
    )


async def test_without_labels_nodes_are_only_read() -> None:
    stage = FakeNodeCluster()
    stage.mark_loaded()
    async with run_gpuinfo_manager(stage) as controller:
        rules = manager_rules([controller])
        assert next(rule for rule in rules if rule["resources"] == ["nodes"])["verbs"] == [
            "list",
            "watch",
        ]
        assert not any(
            "patch" in rule["verbs"] for rule in rules if rule["resources"] == ["gpuinfoes"]
        )
