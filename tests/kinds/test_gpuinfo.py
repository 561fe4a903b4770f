"""The answer as plain calls, the names that people rely on, and the controller on an API server and an inventory in memory."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright import Key, Terminal
from kubewright.builtin import Event, Node
from kubewright.crd import crds
from kubewright.rbac import manager_rules
from kubewright.testing import eventually
from vsphere_operators.choosing import Load, NodeFacts, Question, Rules
from vsphere_operators.facts import NEXT_MAINTENANCE, Simulation
from vsphere_operators.kinds.gpuinfo import (
    NONE_AVAILABLE,
    Answer,
    Candidate,
    GPUInfo,
    GPUInfoSpec,
    GPUInfoStatus,
    label_of,
    question_of,
    status_of,
    words_for,
)
from vsphere_operators.maintenance import Window, entries_of
from vsphere_operators.vcenter.faults import Unreachable
from vsphere_operators.vcenter.updates import Ref

from .nodestage import NOW, VGPU, NodeStage, choosing

SAMPLES = Path(__file__).parents[2] / "config/samples"
RULES = Rules()


def facts(name: str, **other: Any) -> NodeFacts:
    given = {"host": "esxi-1", "vm": name, "vcenter": "vc-1", "memory_mb": 8192, "load": Load(87, 327), **other}
    return NodeFacts(name=name, **given)


def window(hours: float) -> Window:
    return Window(NOW + timedelta(hours=hours), NOW + timedelta(hours=hours + 4), "Node annotation")


def test_the_answer_in_the_contracts_words_with_the_facts_beside_it() -> None:
    best = facts("n1", gpus=("vm: vGPU a",), maintenance=window(399.5), host_devices=("A100",))
    status = status_of(Answer(Question(100, True), best, [best], {"GPUMissing": 3}), RULES, NOW, simulated=False)
    assert status == GPUInfoStatus(
        suitableNodeName="n1",
        suitableHostName="esxi-1",
        nodeMemoryUsage=327,
        nodeCPUUsage=87,
        availableAcceleratorTime=399,
        candidates=[
            Candidate(
                node="n1",
                host="esxi-1",
                vm="n1",
                vcenter="vc-1",
                availableHours=399,
                nextMaintenance=NOW + timedelta(hours=399.5),
                maintenanceSource="Node annotation",
                cpuDemandMHz=87,
                guestMemoryMB=327,
                freeMemoryMB=7865,
                gpus=["vm: vGPU a"],
                hostDevices=["A100"],
            )
        ],
        refused={"GPUMissing": 3},
    )


def test_none_available_has_zeros_and_the_counts() -> None:
    answer = Answer(Question(100, True), None, [], {"NotReady": 1, "GPUMissing": 2})
    assert status_of(answer, RULES, NOW, simulated=False) == GPUInfoStatus(
        suitableNodeName=NONE_AVAILABLE,
        suitableHostName=NONE_AVAILABLE,
        nodeMemoryUsage=0,
        nodeCPUUsage=0,
        availableAcceleratorTime=0,
        refused={"NotReady": 1, "GPUMissing": 2},
    )
    assert words_for(GPUInfoSpec(desAccTime=1, gpuRequired=True), answer, simulated=False) == (
        "NoneAvailable",
        "none of 3 nodes suits: 1 NotReady, 2 GPUMissing.",
    )


def test_the_chosen_one_comes_first_and_only_a_few_follow() -> None:
    nodes = [facts(f"n{number}") for number in range(9)]
    shown = Answer(Question(0, False), nodes[6], nodes, {}).shown
    assert [each.name for each in shown] == ["n6", "n0", "n1", "n2", "n3"]


def test_bad_and_missing_specs_are_said_in_words() -> None:
    with pytest.raises(Terminal, match=r"spec\.desAccTime is -5; set it to the hours"):
        question_of(GPUInfoSpec(desAccTime=-5))
    assert question_of(GPUInfoSpec()) == Question(0, False)
    _, words = words_for(GPUInfoSpec(), Answer(Question(0, False), None, [], {}), simulated=True)
    assert "the cluster has no nodes" in words
    assert "spec.desAccTime and spec.gpuRequired is not set" in words
    assert "simulated" in words


def test_the_timer_is_at_the_moment_when_something_changes() -> None:
    held, other = facts("n1", maintenance=window(2.5)), facts("n2", maintenance=window(1.25))
    after = Answer(Question(1, False), held, [held, other], {}).again_after_seconds(RULES, NOW, 60.0)
    assert after == pytest.approx(900, abs=0.1)  # n2 is shown, and falls below 1 h
    assert Answer(Question(1, False), held, [held], {}).again_after_seconds(RULES, NOW, 60.0) == pytest.approx(1800, abs=0.1)
    soon = facts("n3", maintenance=window(1.001))
    assert Answer(Question(0, False), held, [held, soon], {}).again_after_seconds(RULES, NOW, 60.0) == 60.0
    assert Answer(Question(0, False), facts("n4"), [facts("n4")], {}).again_after_seconds(RULES, NOW, 60.0) is None


def test_labels_are_legal_and_never_the_same() -> None:
    assert label_of(Key("team-a", "big.job")) == "gpuinfo.topology.corinternal.com/team-a.big.job"
    long = [label_of(Key("n" * 63, "x" * length)).partition("/")[2] for length in (100, 101)]
    assert all(len(name) == 63 for name in long)
    assert long[0] != long[1]


def test_the_crd_has_the_names_that_people_rely_on() -> None:
    (crd,) = crds([GPUInfo])
    version = crd["spec"]["versions"][0]
    assert crd["spec"]["names"] | {"plural": "gpuinfoes", "shortNames": ["gpu"], "kind": "GPUInfo"} == crd["spec"]["names"]
    assert [column["name"] for column in version["additionalPrinterColumns"]][:2] == ["Desired Access Time (Hrs)", "GPU Required"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert "required" not in spec
    assert "minimum" not in spec["properties"]["desAccTime"]


def test_the_samples_are_the_contracts() -> None:
    found = {}
    for file in sorted(SAMPLES.glob("topology_v1_gpuinfo*.yaml")):
        sample = yaml.safe_load(file.read_text())
        found[sample["metadata"]["name"]] = (sample["spec"]["desAccTime"], sample["spec"]["gpuRequired"])
    assert found == {"gpuinfo-sample": (100, True), "gpu1": (100, True), "gpu2": (250, True), "gpu3": (75, True), "gpu4": (200, True)}


async def three_nodes(stage: NodeStage) -> None:
    """Two without and one with a GPU, on two hosts."""
    stage.host(1)
    stage.host(2)
    for number, host, demand, devices in ((1, 1, 500, ()), (2, 2, 900, ()), (3, 2, 700, (VGPU,))):
        stage.vm(number, host, demand, devices=devices)
        stage.node(number)
    stage.load()


async def chosen(stage: NodeStage, name: str, node: str) -> GPUInfoStatus:
    """The status, once it names this node."""
    reason = "NoneAvailable" if node == NONE_AVAILABLE else "NodeChosen"
    info, _ = await stage.ready(GPUInfo, name, reason, lambda status: status.suitableNodeName == node, within=5)
    return info.status


async def test_everything_that_can_happen_to_a_node_moves_the_answer() -> None:
    stage = NodeStage()
    await three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=100, gpuRequired=False)
    stage.create(GPUInfo, "gpu", desAccTime=100, gpuRequired=True)
    async with choosing(stage, interval_seconds=1) as controller:
        assert (await chosen(stage, "gpu", "node-3")).refused == {"GPUMissing": 2}
        first = await chosen(stage, "plain", "node-1")
        assert (first.suitableHostName, first.nodeCPUUsage, first.nodeMemoryUsage, first.availableAcceleratorTime) == (
            "esxi-1",
            500,
            1024,
            8760,
        )
        await stage.patch_node(1, {"spec": {"unschedulable": True}})
        assert (await chosen(stage, "plain", "node-2")).refused == {"Unschedulable": 1, "GPUPresent": 1}
        await stage.patch_node(1, {"spec": {"unschedulable": None}})
        await chosen(stage, "plain", "node-1")
        await stage.patch_node(1, {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "status")
        assert ((await chosen(stage, "plain", "node-2")).refused or {})["NotReady"] == 1
        await stage.patch_node(1, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "status")
        await chosen(stage, "plain", "node-1")
        stage.modify("VirtualMachine", "vm-1", runtime__powerState="poweredOff", summary__quickStats__overallCpuDemand=0)
        assert ((await chosen(stage, "plain", "node-2")).refused or {})["PoweredOff"] == 1
        stage.modify("HostSystem", "host-2", runtime__inMaintenanceMode=True)
        none = await chosen(stage, "plain", NONE_AVAILABLE)
        assert none.refused == {"PoweredOff": 1, "HostInMaintenance": 2}
        assert (none.suitableHostName, none.nodeCPUUsage, none.availableAcceleratorTime, none.candidates) == (NONE_AVAILABLE, 0, 0, None)
        stage.modify("HostSystem", "host-2", runtime__inMaintenanceMode=False)
        await chosen(stage, "plain", "node-2")
        controller.nodes.plan(entries_of({"w": "host=esxi-2 start=2026-11-17T00:00:00Z length=4h"})[0])
        assert (await chosen(stage, "plain", NONE_AVAILABLE)).refused == {"PoweredOff": 1, "TooLittleTime": 2}
        controller.nodes.plan([])
        await chosen(stage, "plain", "node-2")
        stage.modify("HostSystem", "host-2", runtime__connectionState="notResponding")
        assert (await chosen(stage, "plain", NONE_AVAILABLE)).refused == {"PoweredOff": 1, "HostDisconnected": 2}
        stage.leave("VirtualMachine", "vm-1")
        await stage.ready(GPUInfo, "plain", "NoneAvailable", lambda status: status.refused.get("VMNotFound") == 1, within=90)
        events = [event.message for event in await stage.client.list(Event) if event.involvedObject.name == "plain"]
        assert any('"node-2" is the best of 1 nodes that suit, of 3. Before: node-1.' in message for message in events)


async def test_small_moves_of_load_neither_move_nor_write_the_answer() -> None:
    stage = NodeStage()
    await three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with choosing(stage):
        await chosen(stage, "plain", "node-1")
        before = stage.writes()
        stage.demand(2, 450)
        stage.demand(1, 510)
        stage.demand(3, 5)
        await asyncio.sleep(0.05)
        assert stage.writes() == before
        stage.demand(2, 300)
        await chosen(stage, "plain", "node-2")
        stage.demand(2, 300 + 401)
        await stage.ready(GPUInfo, "plain", "NodeChosen", lambda status: status.nodeCPUUsage in (701, 510))


async def test_a_vm_that_moves_takes_the_host_name_along() -> None:
    stage = NodeStage()
    await three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with choosing(stage):
        await chosen(stage, "plain", "node-1")
        stage.modify("VirtualMachine", "vm-1", runtime__host=Ref("HostSystem", "host-2"))
        await stage.ready(GPUInfo, "plain", "NodeChosen", lambda status: status.suitableHostName == "esxi-2")


@pytest.mark.looptime
async def test_time_alone_moves_hours_and_answer_and_a_window_that_ends_gives_the_node_back() -> None:
    stage = NodeStage()
    await three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=10, gpuRequired=False)
    async with choosing(stage) as controller:
        await chosen(stage, "plain", "node-1")
        start = (stage.clock() + timedelta(hours=12, minutes=30)).isoformat()
        controller.nodes.plan(entries_of({"w": f"node=node-1 start={start} length=4h"})[0])
        await stage.ready(GPUInfo, "plain", "NodeChosen", lambda status: status.availableAcceleratorTime == 12)
        await asyncio.sleep(1790)
        assert (await stage.get(GPUInfo, "plain")).status.availableAcceleratorTime == 12
        await asyncio.sleep(10)
        await stage.ready(GPUInfo, "plain", "NodeChosen", lambda status: status.availableAcceleratorTime == 11, within=1)
        await asyncio.sleep(2 * 3600)
        assert (await chosen(stage, "plain", "node-2")).refused == {"TooLittleTime": 1, "GPUPresent": 1}
        await asyncio.sleep(13.9 * 3600)
        assert (await stage.get(GPUInfo, "plain")).status.suitableNodeName == "node-2"
        await asyncio.sleep(0.1 * 3600)
        assert (await chosen(stage, "plain", "node-1")).availableAcceleratorTime == 8760


async def test_no_answer_is_given_before_everything_is_known() -> None:
    stage = NodeStage()
    stage.host(1)
    stage.vm(1, 1, 100, devices=None)
    stage.node(1)
    stage.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with choosing(stage) as controller:
        await eventually(lambda: controller.nodes.ranking.facts)
        assert (await stage.get(GPUInfo, "plain")).status == GPUInfoStatus()
        stage.load()
        await eventually(lambda: controller.nodes.pending == {"node-1"})
        await asyncio.sleep(0.05)
        assert (await stage.get(GPUInfo, "plain")).status == GPUInfoStatus()
        stage.vcenter.devices.known["vm-1"] = ()
        for listener in stage.vcenter.devices.listeners:
            listener("vm-1")
        await chosen(stage, "plain", "node-1")


async def test_an_outage_keeps_the_last_answer_and_says_so() -> None:
    stage = NodeStage()
    await three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with choosing(stage):
        await chosen(stage, "plain", "node-1")
        stage.vcenter.collector.heard_at -= 60
        stage.vcenter.failed(Unreachable("vCenter does not answer"))
        info, ready = await stage.ready(GPUInfo, "plain", "VCenterUnreachable")
        assert ready.status == "False"
        assert info.status.suitableNodeName == "node-1"
        stage.vcenter.heard()
        await chosen(stage, "plain", "node-1")


async def test_negative_hours_and_unreadable_times_are_said_and_the_rest_goes_on() -> None:
    stage = NodeStage()
    await three_nodes(stage)
    stage.create(GPUInfo, "wrong", desAccTime=-1, gpuRequired=False)
    stage.create(GPUInfo, "empty")
    async with choosing(stage):
        wrong, ready = await stage.ready(GPUInfo, "wrong", "NegativeTime")
        assert ready.status == "False"
        assert wrong.status.suitableNodeName is None
        await chosen(stage, "empty", "node-1")
        await stage.patch_node(1, {"metadata": {"annotations": {NEXT_MAINTENANCE: "next tuesday"}}})
        await stage.patch_node(2, {"status": {"allocatable": {"example.com/gpu": "1"}}}, "status")
        await eventually(lambda: len(stage.complaints) == 2)
        assert [(name, reason) for name, reason, _ in stage.complaints] == [
            ("node-1", "MaintenanceUnreadable"),
            ("node-2", "UnknownGPUResource"),
        ]
        assert '"next tuesday" is not a time of RFC 3339' in stage.complaints[0][2]
        stage.demand(1, 501)
        assert len(stage.complaints) == 2
        await chosen(stage, "empty", "node-1")


async def test_simulated_numbers_are_the_same_for_the_same_seed_and_said_in_the_status() -> None:
    stage = NodeStage()
    await three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=100, gpuRequired=False)
    hours, gpu = zip(*(Simulation("7").of(f"node-{number}") for number in (1, 2, 3)), strict=True)
    assert all(300 <= each <= 400 for each in hours)
    assert {Simulation("7").of(f"n{number}")[1] for number in range(20)} == {True, False}
    async with choosing(stage, simulation=Simulation("7")):
        info, ready = await stage.ready(GPUInfo, "plain", "NoneAvailable" if all(gpu) else "NodeChosen")
        assert info.status.simulated is True
        assert "simulated" in ready.message
        if not all(gpu):
            assert info.status.availableAcceleratorTime in hours


async def test_the_chosen_node_carries_a_label_while_it_is_the_answer() -> None:
    stage = NodeStage()
    await three_nodes(stage)
    stage.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    label = label_of(Key("default", "plain"))

    async def labelled() -> list[str]:
        return [node.metadata.name for node in await stage.client.list(Node) if node.metadata.labels.get(label) == "true"]

    async def only(*names: str) -> bool:
        return await labelled() == list(names)

    async with choosing(stage, labels=True) as controller:
        await eventually(lambda: only("node-1"))
        rules = manager_rules([controller])
        assert next(rule for rule in rules if rule["resources"] == ["nodes"])["verbs"] == ["list", "patch", "watch"]
        await stage.patch_node(1, {"spec": {"unschedulable": True}})
        await eventually(lambda: only("node-2"))
        await stage.client.delete(GPUInfo, Key("default", "plain"))
        await eventually(only)


async def test_without_labels_nodes_are_only_read() -> None:
    stage = NodeStage()
    stage.load()
    async with choosing(stage) as controller:
        rules = manager_rules([controller])
        assert next(rule for rule in rules if rule["resources"] == ["nodes"])["verbs"] == ["list", "watch"]
        assert not any("patch" in rule["verbs"] for rule in rules if rule["resources"] == ["gpuinfoes"])
