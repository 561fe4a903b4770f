"""Node -> VM -> host: who is found, what is made of it, and that one change wakes exactly those whose answer it changes."""

from __future__ import annotations

import asyncio
import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from kinds.nodestage import NOW, RESOURCES, VGPU, NodeStage, choosing, node_body, uuid_of
from kubewright import Key
from kubewright.builtin import Node
from kubewright.testing import eventually
from vsphere_operators.kinds.gpuinfo.controller import GPUInfo
from vsphere_operators.kinds.gpuinfo.maintenance import parse_calendar
from vsphere_operators.kinds.gpuinfo.matching import match_node, parse_provider_id
from vsphere_operators.kinds.gpuinfo.node import NEXT_MAINTENANCE_KEY, NodeContext, build_facts
from vsphere_operators.kinds.gpuinfo.ranking import Ranking
from vsphere_operators.kinds.gpuinfo.rules import NodeFacts, Rejection, Requirement, SelectionRules
from vsphere_operators.vsphere.model import (
    AssignableDevice,
    AssignableHardware,
    AssignedDevice,
    GraphicsDevice,
    Host,
    PassthroughDevice,
    VirtualMachine,
)
from vsphere_operators.vsphere.scheduled_tasks import PlannedMaintenance
from vsphere_operators.vsphere.updates import Ref

HOST = Host(ref="host-1", name="esxi-1", connection="connected")
VM = VirtualMachine(
    ref="vm-1",
    name="node-1",
    host="host-1",
    connection="connected",
    power="poweredOn",
    cpus=4,
    memory_mb=8192,
)
AROUND = NodeContext(vcenter_name="vc-1", vm=VM, host=HOST)


def node(number: int = 1, **other: Any) -> Node:
    return Node.decode(json.dumps(node_body(number, **other)).encode())


def facts(of: Node | None = None, around: NodeContext = AROUND) -> NodeFacts:
    return build_facts(of or node(), around, RESOURCES, None, NOW)


def test_a_provider_id_in_both_byte_orders() -> None:
    assert parse_provider_id("vsphere://42030011-2233-4455-6677-8899AABBCCDD") == (
        "42030011-2233-4455-6677-8899aabbccdd",
        "11000342-3322-5544-6677-8899aabbccdd",
    )
    assert (
        parse_provider_id("aws:///eu/i-1")
        == parse_provider_id("")
        == parse_provider_id("vsphere://nonsense")
        == ()
    )


def test_a_vm_is_found_by_uuid_then_swapped_then_by_name_and_never_among_two() -> None:
    stage = NodeStage()
    vcenters = [stage.vcenter]
    stage.load()
    assert match_node(node(), vcenters).blocker is Rejection.VM_NOT_FOUND
    stage.vm(9, 1, 100, name="node-1")
    assert match_node(node(), vcenters).vm == stage.vcenter.inventory.vms["vm-9"]
    stage.vm(
        8, 1, 100, name="swapped", config__uuid=parse_provider_id(f"vsphere://{uuid_of(1)}")[1]
    )
    assert match_node(node(), vcenters).vm == stage.vcenter.inventory.vms["vm-8"]
    stage.vm(1, 1, 100, name="other")
    assert match_node(node(), vcenters).vm == stage.vcenter.inventory.vms["vm-1"]
    stage.vm(2, 1, 100, config__uuid=uuid_of(1))
    assert match_node(node(), vcenters).blocker is Rejection.VM_AMBIGUOUS
    stage.modify("VirtualMachine", "vm-2", config__template=True)
    assert match_node(node(), vcenters).blocker is None


def test_a_vm_that_is_not_found_may_be_in_a_vcenter_that_does_not_answer() -> None:
    assert match_node(node(), [NodeStage().vcenter]).blocker is Rejection.VCENTER_UNREACHABLE


@pytest.mark.parametrize(
    ("of", "around", "obstacle"),
    [
        (node(ready="False"), AROUND, Rejection.NOT_READY),
        (node(ready="Unknown", unschedulable=True), AROUND, Rejection.NOT_READY),
        (node(unschedulable=True), AROUND, Rejection.UNSCHEDULABLE),
        (
            node(taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]),
            AROUND,
            Rejection.UNSCHEDULABLE,
        ),
        (
            node(taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]),
            AROUND,
            Rejection.UNSCHEDULABLE,
        ),
        (node(taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]), AROUND, None),
        (
            node(),
            replace(AROUND, blocker=Rejection.VCENTER_UNREACHABLE),
            Rejection.VCENTER_UNREACHABLE,
        ),
        (node(), NodeContext(blocker=Rejection.VM_AMBIGUOUS), Rejection.VM_AMBIGUOUS),
        (node(), NodeContext(), Rejection.VM_NOT_FOUND),
        (node(), replace(AROUND, vm=replace(VM, power="poweredOff")), Rejection.POWERED_OFF),
        (node(), replace(AROUND, vm=replace(VM, power="suspended")), Rejection.POWERED_OFF),
        (
            node(),
            replace(AROUND, vm=replace(VM, connection="inaccessible")),
            Rejection.VM_UNAVAILABLE,
        ),
        (
            node(),
            replace(AROUND, host=replace(HOST, connection="notResponding")),
            Rejection.HOST_DISCONNECTED,
        ),
        (node(), replace(AROUND, host=None), Rejection.HOST_DISCONNECTED),
        (
            node(),
            replace(AROUND, host=replace(HOST, in_maintenance=True)),
            Rejection.HOST_IN_MAINTENANCE,
        ),
        (node(), AROUND, None),
    ],
)
def test_what_no_question_can_lift(
    of: Node, around: NodeContext, obstacle: Rejection | None
) -> None:
    assert facts(of, around).blocker is obstacle


def test_what_makes_a_node_one_with_a_gpu() -> None:
    nic = PassthroughDevice(name="Ethernet", pci_id="0000:5e:00.0", vendor_ids=(0x8086,))
    flex = PassthroughDevice(name="Flex 170", pci_id="0000:3b:00.0", vendor_ids=(0x8086,))
    dynamic = PassthroughDevice(name="A100", vendor_ids=(0x10DE,))
    host = replace(
        HOST,
        graphics=(GraphicsDevice("Flex 170", "0000:3b:00.0", "direct", 16 << 20, ("vm-1",)),),
        vgpu_profiles=("a", "b"),
    )
    found = facts(
        node(allocatable={"nvidia.com/mig-1g.5gb": "2", "nvidia.com/gpu": "0", "cpu": "4"})
    )
    assert found.gpus == ("node: nvidia.com/mig-1g.5gb 2",)
    assert facts(around=replace(AROUND, devices=(nic,))).has_gpu is False
    shown = facts(around=replace(AROUND, host=host, devices=(VGPU, nic, flex, dynamic)))
    assert shown.gpus == (
        "vm: vGPU grid_a100-10c",
        "vm: passthrough Flex 170",
        "vm: dynamic passthrough A100",
    )
    assert shown.host_devices == (
        "Flex 170 at 0000:3b:00.0, direct, 16 GB, in use by 1 VM",
        "vGPU types: a, b",
    )


def test_the_hardware_that_a_host_assigns_is_shown_with_what_is_free_where_vcenter_tells() -> None:
    graphics = (GraphicsDevice("A100", "0000:3b:00.0", "direct", 40 << 20),)
    known = tuple(
        AssignableDevice("A100", "NVIDIA", "", f"0000:{number}:00.0") for number in ("3b", "3c")
    )
    unknown = AssignableDevice("Flex", "Intel", "fast")
    hardware = AssignableHardware((*known, unknown, unknown), ("pod-8",))
    host = replace(
        HOST,
        graphics=graphics,
        assigned_devices=(AssignedDevice("vm-7", "0000:3b:00.0"), AssignedDevice("vm-8", "")),
    )
    around = replace(AROUND, host=host, assignable_hardware=hardware)
    assert facts(around=around).host_devices == (
        "A100 at 0000:3b:00.0, direct, 40 GB, in use by 1 VM",
        "assignable: 2 x A100, 1 in use, 1 free",
        "assignable: 2 x Flex (fast)",
        "assignable group: pod-8",
        "assigned to VMs: 2",
    )


def test_the_earliest_of_all_sources_wins() -> None:
    entries, _ = parse_calendar({"w": "host=esxi-1 start=2026-11-20T00:00:00Z length=4h"})
    around = replace(AROUND, calendar_entries=entries)
    assert source(facts(around=around)) == "calendar w line 1"
    planned = PlannedMaintenance("host-1", datetime(2026, 11, 19, tzinfo=UTC), "patch day")
    around = replace(around, scheduled_maintenance=(planned,))
    assert source(facts(around=around)) == 'scheduled task "patch day" of vCenter vc-1'
    around = replace(
        around, host=replace(HOST, attributes={NEXT_MAINTENANCE_KEY: "2026-11-18T00:00:00Z"})
    )
    assert source(facts(around=around)) == "custom attribute of host esxi-1"
    told = node(annotations={NEXT_MAINTENANCE_KEY: "2026-11-17T00:00:00Z"})
    assert source(facts(told, around)) == "Node annotation"
    assert (
        source(facts(node(annotations={NEXT_MAINTENANCE_KEY: "soon"}), around))
        == "custom attribute of host esxi-1"
    )


def source(of: NodeFacts) -> str:
    return of.maintenance.source if of.maintenance else ""


async def test_random_changes_wake_everybody_whose_answer_differs_and_touch_one_node_each() -> None:
    """Each answer that is not woken is compared with one that is computed from nothing."""
    chance, stage, rules = random.Random(11), NodeStage(), SelectionRules()
    for number in range(3):
        stage.host(number)
    for number in range(12):
        stage.vm(
            number, number % 3, chance.randint(0, 3000), devices=(VGPU,) if number % 3 == 0 else ()
        )
        stage.node(number)
    stage.load()
    async with choosing(stage, rules=rules) as controller:
        nodes, questions = controller.tracker, controller.subscriptions
        await eventually(lambda: len(nodes.ranking.facts) == 12)
        woken, heard = set[Key](), list[str]()
        questions.wake = woken.add
        nodes.listeners.append(lambda old, new: heard.append((new or old).name))  # type: ignore[union-attr]
        answers: dict[Key, tuple[Requirement, str]] = {}
        for number in range(60):
            question = Requirement(chance.choice([0, 10, 100, 9000]), chance.random() < 0.5)
            answers[Key("default", f"q{number}")] = (question, "")
        for step in range(300):
            for key, (question, before) in answers.items():
                if key in woken or not step:
                    chosen = nodes.ranking.choose(question, before, rules, NOW)
                    answers[key] = (question, chosen.name if chosen else "")
                    questions.subscribe(key, question, chosen)
            woken.clear()
            heard.clear()
            number = chance.randrange(12)
            change(stage, chance, number)
            assert set(heard) <= {f"node-{number}"}
            fresh = Ranking()
            for name, each in nodes.ranking.facts.items():
                fresh.set_facts(name, each)
            for key, (question, before) in answers.items():
                chosen = fresh.choose(question, before, rules, NOW)
                assert key in woken or (chosen.name if chosen else "") == before


def change(stage: NodeStage, chance: random.Random, number: int) -> None:
    """One of the things that happen to a VM."""
    what = chance.randrange(4)
    if what == 0:
        stage.modify(
            "VirtualMachine",
            f"vm-{number}",
            runtime__powerState=chance.choice(["poweredOn", "poweredOff"]),
        )
    else:
        stage.demand(number, chance.randint(0, 3000))


async def test_a_node_that_goes_leaves_nothing_behind() -> None:
    stage = NodeStage()
    stage.host(1)
    stage.vm(1, 1, 100)
    stage.node(1)
    stage.load()
    stage.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with choosing(stage) as controller:
        nodes = controller.tracker
        await stage.ready(GPUInfo, "plain", "NodeChosen")
        assert set(nodes.nodes_by_host) == {"vc-1/host-1"}
        await stage.client.delete(Node, Key("", "node-1"))
        await stage.ready(GPUInfo, "plain", "NoneAvailable")
        assert not {
            *nodes.nodes_by_host,
            *nodes.nodes_by_vm,
            *nodes.nodes_by_uuid,
            *nodes.node_locations,
            *nodes.reported_warnings,
            *nodes.ranking.facts,
        }


async def test_a_line_is_matched_once_for_a_node_and_its_host_and_no_timer_is_longer_than_an_hour() -> (
    None
):
    stage = NodeStage()
    for number in (1, 2):
        stage.host(number)
    stage.vm(1, 1, 100)
    stage.node(1)
    stage.load()
    async with choosing(stage) as controller:
        nodes = controller.tracker
        await eventually(lambda: nodes.ranking.facts)
        next_year = (stage.clock() + timedelta(days=360)).isoformat()
        nodes.set_calendar_entries(
            parse_calendar({"w": f"host=esxi-? start={next_year} length=4h"})[0]
        )
        searched = list[tuple[str, str]]()
        search = nodes.schedule.match_entries

        def match_entries(host: str, node: str) -> Any:
            searched.append((host, node))
            return search(host, node)

        nodes.schedule.match_entries = match_entries  # type: ignore[method-assign]
        stage.demand(1, 5000)
        assert searched == []
        stage.modify("VirtualMachine", "vm-1", runtime__host=Ref("HostSystem", "host-2"))
        assert searched == [("esxi-2", "node-1")]
        assert nodes.timer is not None
        assert nodes.timer.when() - asyncio.get_running_loop().time() <= 3600
        nodes.on_timer()
        assert nodes.ranking.facts["node-1"].maintenance is not None
        await stage.client.delete(Node, Key("", "node-1"))
        await eventually(lambda: not nodes.schedule.entries_by_node)


async def test_a_line_that_is_over_costs_nobody_a_look() -> None:
    stage = NodeStage()
    stage.load()
    async with choosing(stage) as controller:
        over = "host=esxi-* start=2001-01-01T00:00:00Z length=4h"
        controller.tracker.set_calendar_entries(
            parse_calendar(
                {
                    "w": f"{over}\n{over} repeats=weekly\nnode=node-1 start=2001-01-01T00:00:00Z length=4h"
                }
            )[0]
        )
        assert [entry.repeats for entry, _ in controller.tracker.schedule.glob_entries] == [
            "weekly"
        ]
        assert controller.tracker.schedule.entries_by_name == {}
