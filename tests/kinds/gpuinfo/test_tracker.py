"""Node -> VM -> host: who is found, what is made of it, and that one change wakes exactly those whose answer it changes."""

from __future__ import annotations

import asyncio
import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from kubewright import Key
from kubewright.builtin import Node
from kubewright.testing import eventually
from support.fake_node_cluster import (
    GPU_RESOURCES,
    NOW,
    VGPU,
    FakeNodeCluster,
    bios_uuid_of,
    node_manifest,
    run_gpuinfo_manager,
)
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
CONTEXT = NodeContext(vcenter_name="vc-1", vm=VM, host=HOST)


def make_node(number: int = 1, **other: Any) -> Node:
    return Node.decode(json.dumps(node_manifest(number, **other)).encode())


def make_facts(of: Node | None = None, context: NodeContext = CONTEXT) -> NodeFacts:
    return build_facts(of or make_node(), context, GPU_RESOURCES, None, NOW)


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
    stage = FakeNodeCluster()
    vcenters = [stage.vcenter]
    stage.mark_loaded()
    assert match_node(make_node(), vcenters).blocker is Rejection.VM_NOT_FOUND
    stage.add_vm(9, 1, 100, name="node-1")
    assert match_node(make_node(), vcenters).vm == stage.vcenter.inventory.vms["vm-9"]
    stage.add_vm(
        8, 1, 100, name="swapped", config__uuid=parse_provider_id(f"vsphere://{bios_uuid_of(1)}")[1]
    )
    assert match_node(make_node(), vcenters).vm == stage.vcenter.inventory.vms["vm-8"]
    stage.add_vm(1, 1, 100, name="other")
    assert match_node(make_node(), vcenters).vm == stage.vcenter.inventory.vms["vm-1"]
    stage.add_vm(2, 1, 100, config__uuid=bios_uuid_of(1))
    assert match_node(make_node(), vcenters).blocker is Rejection.VM_AMBIGUOUS
    stage.modify("VirtualMachine", "vm-2", config__template=True)
    assert match_node(make_node(), vcenters).blocker is None


def test_a_vm_that_is_not_found_may_be_in_a_vcenter_that_does_not_answer() -> None:
    assert (
        match_node(make_node(), [FakeNodeCluster().vcenter]).blocker
        is Rejection.VCENTER_UNREACHABLE
    )


@pytest.mark.parametrize(
    ("of", "around", "obstacle"),
    [
        (make_node(ready="False"), CONTEXT, Rejection.NOT_READY),
        (make_node(ready="Unknown", unschedulable=True), CONTEXT, Rejection.NOT_READY),
        (make_node(unschedulable=True), CONTEXT, Rejection.UNSCHEDULABLE),
        (
            make_node(
                taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
            ),
            CONTEXT,
            Rejection.UNSCHEDULABLE,
        ),
        (
            make_node(taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]),
            CONTEXT,
            Rejection.UNSCHEDULABLE,
        ),
        (make_node(taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]), CONTEXT, None),
        (
            make_node(),
            replace(CONTEXT, blocker=Rejection.VCENTER_UNREACHABLE),
            Rejection.VCENTER_UNREACHABLE,
        ),
        (make_node(), NodeContext(blocker=Rejection.VM_AMBIGUOUS), Rejection.VM_AMBIGUOUS),
        (make_node(), NodeContext(), Rejection.VM_NOT_FOUND),
        (make_node(), replace(CONTEXT, vm=replace(VM, power="poweredOff")), Rejection.POWERED_OFF),
        (make_node(), replace(CONTEXT, vm=replace(VM, power="suspended")), Rejection.POWERED_OFF),
        (
            make_node(),
            replace(CONTEXT, vm=replace(VM, connection="inaccessible")),
            Rejection.VM_UNAVAILABLE,
        ),
        (
            make_node(),
            replace(CONTEXT, host=replace(HOST, connection="notResponding")),
            Rejection.HOST_DISCONNECTED,
        ),
        (make_node(), replace(CONTEXT, host=None), Rejection.HOST_DISCONNECTED),
        (
            make_node(),
            replace(CONTEXT, host=replace(HOST, in_maintenance=True)),
            Rejection.HOST_IN_MAINTENANCE,
        ),
        (make_node(), CONTEXT, None),
    ],
)
def test_what_no_question_can_lift(
    of: Node, around: NodeContext, obstacle: Rejection | None
) -> None:
    assert make_facts(of, around).blocker is obstacle


def test_what_makes_a_node_one_with_a_gpu() -> None:
    nic = PassthroughDevice(name="Ethernet", pci_id="0000:5e:00.0", vendor_ids=(0x8086,))
    flex = PassthroughDevice(name="Flex 170", pci_id="0000:3b:00.0", vendor_ids=(0x8086,))
    dynamic = PassthroughDevice(name="A100", vendor_ids=(0x10DE,))
    host = replace(
        HOST,
        graphics=(GraphicsDevice("Flex 170", "0000:3b:00.0", "direct", 16 << 20, ("vm-1",)),),
        vgpu_profiles=("a", "b"),
    )
    found = make_facts(
        make_node(allocatable={"nvidia.com/mig-1g.5gb": "2", "nvidia.com/gpu": "0", "cpu": "4"})
    )
    assert found.gpus == ("node: nvidia.com/mig-1g.5gb 2",)
    assert make_facts(context=replace(CONTEXT, devices=(nic,))).has_gpu is False
    shown = make_facts(context=replace(CONTEXT, host=host, devices=(VGPU, nic, flex, dynamic)))
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
    around = replace(CONTEXT, host=host, assignable_hardware=hardware)
    assert make_facts(context=around).host_devices == (
        "A100 at 0000:3b:00.0, direct, 40 GB, in use by 1 VM",
        "assignable: 2 x A100, 1 in use, 1 free",
        "assignable: 2 x Flex (fast)",
        "assignable group: pod-8",
        "assigned to VMs: 2",
    )


def test_the_earliest_of_all_sources_wins() -> None:
    entries, _ = parse_calendar({"w": "host=esxi-1 start=2026-11-20T00:00:00Z length=4h"})
    around = replace(CONTEXT, calendar_entries=entries)
    assert maintenance_source(make_facts(context=around)) == "calendar w line 1"
    planned = PlannedMaintenance("host-1", datetime(2026, 11, 19, tzinfo=UTC), "patch day")
    around = replace(around, scheduled_maintenance=(planned,))
    assert (
        maintenance_source(make_facts(context=around))
        == 'scheduled task "patch day" of vCenter vc-1'
    )
    around = replace(
        around, host=replace(HOST, attributes={NEXT_MAINTENANCE_KEY: "2026-11-18T00:00:00Z"})
    )
    assert maintenance_source(make_facts(context=around)) == "custom attribute of host esxi-1"
    told = make_node(annotations={NEXT_MAINTENANCE_KEY: "2026-11-17T00:00:00Z"})
    assert maintenance_source(make_facts(told, around)) == "Node annotation"
    assert (
        maintenance_source(
            make_facts(make_node(annotations={NEXT_MAINTENANCE_KEY: "soon"}), around)
        )
        == "custom attribute of host esxi-1"
    )


def maintenance_source(of: NodeFacts) -> str:
    return of.maintenance.source if of.maintenance else ""


async def test_random_changes_wake_everybody_whose_answer_differs_and_touch_one_node_each() -> None:
    """Each answer that is not woken is compared with one that is computed from nothing."""
    chance, stage, rules = random.Random(11), FakeNodeCluster(), SelectionRules()
    for number in range(3):
        stage.add_host(number)
    for number in range(12):
        stage.add_vm(
            number, number % 3, chance.randint(0, 3000), devices=(VGPU,) if number % 3 == 0 else ()
        )
        stage.add_node(number)
    stage.mark_loaded()
    async with run_gpuinfo_manager(stage, rules=rules) as controller:
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
            apply_random_change(stage, chance, number)
            assert set(heard) <= {f"node-{number}"}
            fresh = Ranking()
            for name, each in nodes.ranking.facts.items():
                fresh.set_facts(name, each)
            for key, (question, before) in answers.items():
                chosen = fresh.choose(question, before, rules, NOW)
                assert key in woken or (chosen.name if chosen else "") == before


def apply_random_change(stage: FakeNodeCluster, chance: random.Random, number: int) -> None:
    """One of the things that happen to a VM."""
    what = chance.randrange(4)
    if what == 0:
        stage.modify(
            "VirtualMachine",
            f"vm-{number}",
            runtime__powerState=chance.choice(["poweredOn", "poweredOff"]),
        )
    else:
        stage.set_cpu_demand(number, chance.randint(0, 3000))


async def test_a_node_that_goes_leaves_nothing_behind() -> None:
    stage = FakeNodeCluster()
    stage.add_host(1)
    stage.add_vm(1, 1, 100)
    stage.add_node(1)
    stage.mark_loaded()
    stage.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(stage) as controller:
        nodes = controller.tracker
        await stage.wait_for_ready(GPUInfo, "plain", "NodeChosen")
        assert set(nodes.nodes_by_host) == {"vc-1/host-1"}
        await stage.client.delete(Node, Key("", "node-1"))
        await stage.wait_for_ready(GPUInfo, "plain", "NoneAvailable")
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
    stage = FakeNodeCluster()
    for number in (1, 2):
        stage.add_host(number)
    stage.add_vm(1, 1, 100)
    stage.add_node(1)
    stage.mark_loaded()
    async with run_gpuinfo_manager(stage) as controller:
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
        stage.set_cpu_demand(1, 5000)
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
    stage = FakeNodeCluster()
    stage.mark_loaded()
    async with run_gpuinfo_manager(stage) as controller:
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
