"""The facts of a Node, and which changes enqueue which GPUInfos."""

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
    node_manifest,
    run_gpuinfo_manager,
)
from vsphere_operators.kinds.gpuinfo.maintenance_windows import parse_calendar
from vsphere_operators.kinds.gpuinfo.node import NEXT_MAINTENANCE_KEY, NodeContext, build_facts
from vsphere_operators.kinds.gpuinfo.ranking import Ranking
from vsphere_operators.kinds.gpuinfo.rules import (
    NodeFacts,
    Query,
    Rejection,
    Requirement,
    SelectionRules,
)
from vsphere_operators.kinds.gpuinfo.types import GPUInfo
from vsphere_operators.vsphere.model import (
    AssignableDevice,
    AssignableHardware,
    AssignedDevice,
    GraphicsDevice,
    Host,
    PassthroughDevice,
    VirtualMachine,
)
from vsphere_operators.vsphere.scheduled_tasks import MaintenanceTask
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


def make_facts(node: Node | None = None, context: NodeContext = CONTEXT) -> NodeFacts:
    return build_facts(node or make_node(), context, GPU_RESOURCES, None, NOW)


@pytest.mark.parametrize(
    ("node", "context", "rejection_for_all"),
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
            replace(CONTEXT, rejection_for_all=Rejection.VCENTER_UNREACHABLE),
            Rejection.VCENTER_UNREACHABLE,
        ),
        (
            make_node(),
            NodeContext(rejection_for_all=Rejection.VM_AMBIGUOUS),
            Rejection.VM_AMBIGUOUS,
        ),
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
def test_first_rejection_that_applies_is_the_blocker(
    node: Node, context: NodeContext, rejection_for_all: Rejection | None
) -> None:
    assert make_facts(node, context).rejection_for_all is rejection_for_all


def test_gpus_of_a_node() -> None:
    nic = PassthroughDevice(name="Ethernet", pci_id="0000:5e:00.0", vendor_ids=(0x8086,))
    flex = PassthroughDevice(name="Flex 170", pci_id="0000:3b:00.0", vendor_ids=(0x8086,))
    dynamic = PassthroughDevice(name="A100", vendor_ids=(0x10DE,))
    host = replace(
        HOST,
        graphics=(GraphicsDevice("Flex 170", "0000:3b:00.0", "direct", 16 << 20, ("vm-1",)),),
        vgpu_profiles=("a", "b"),
    )
    facts = make_facts(
        make_node(allocatable={"nvidia.com/mig-1g.5gb": "2", "nvidia.com/gpu": "0", "cpu": "4"})
    )
    assert facts.gpus == ("node: nvidia.com/mig-1g.5gb 2",)
    assert make_facts(context=replace(CONTEXT, devices=(nic,))).has_gpu is False
    facts = make_facts(context=replace(CONTEXT, host=host, devices=(VGPU, nic, flex, dynamic)))
    assert facts.gpus == (
        "vm: vGPU grid_a100-10c",
        "vm: passthrough Flex 170",
        "vm: dynamic passthrough A100",
    )
    assert facts.host_devices == (
        "Flex 170 at 0000:3b:00.0, direct, 16 GB, in use by 1 VM",
        "vGPU types: a, b",
    )


def test_assignable_hardware_shows_free_devices_if_vcenter_reports_their_ids() -> None:
    graphics = (GraphicsDevice("A100", "0000:3b:00.0", "direct", 40 << 20),)
    identified = tuple(
        AssignableDevice("A100", "NVIDIA", "", f"0000:{number}:00.0") for number in ("3b", "3c")
    )
    unidentified = AssignableDevice("Flex", "Intel", "fast")
    hardware = AssignableHardware((*identified, unidentified, unidentified), ("pod-8",))
    host = replace(
        HOST,
        graphics=graphics,
        assigned_devices=(AssignedDevice("vm-7", "0000:3b:00.0"), AssignedDevice("vm-8", "")),
    )
    context = replace(CONTEXT, host=host, assignable_hardware=hardware)
    assert make_facts(context=context).host_devices == (
        "A100 at 0000:3b:00.0, direct, 40 GB, in use by 1 VM",
        "assignable: 2 x A100, 1 in use, 1 free",
        "assignable: 2 x Flex (fast)",
        "assignable group: pod-8",
        "assigned to VMs: 2",
    )


def test_earliest_maintenance_of_all_sources_wins() -> None:
    entries, _ = parse_calendar({"w": "host=esxi-1 start=2026-11-20T00:00:00Z length=4h"})
    context = replace(CONTEXT, calendar_entries=entries)
    assert maintenance_source(make_facts(context=context)) == "calendar w line 1"
    planned = MaintenanceTask("host-1", datetime(2026, 11, 19, tzinfo=UTC), "patch day")
    context = replace(context, maintenance_tasks=(planned,))
    assert (
        maintenance_source(make_facts(context=context))
        == 'scheduled task "patch day" of vCenter vc-1'
    )
    context = replace(
        context, host=replace(HOST, attributes={NEXT_MAINTENANCE_KEY: "2026-11-18T00:00:00Z"})
    )
    assert maintenance_source(make_facts(context=context)) == "custom attribute of host esxi-1"
    annotated = make_node(annotations={NEXT_MAINTENANCE_KEY: "2026-11-17T00:00:00Z"})
    assert maintenance_source(make_facts(annotated, context)) == "Node annotation"
    assert (
        maintenance_source(
            make_facts(make_node(annotations={NEXT_MAINTENANCE_KEY: "soon"}), context)
        )
        == "custom attribute of host esxi-1"
    )


def maintenance_source(facts: NodeFacts) -> str:
    return facts.next_window.source if facts.next_window else ""


async def test_random_changes_enqueue_every_object_with_another_selection() -> None:
    """The selection of each object that is not enqueued is compared with one made from scratch."""
    chance, cluster, rules = random.Random(11), FakeNodeCluster(), SelectionRules()
    for number in range(3):
        cluster.add_host(number)
    for number in range(12):
        cluster.add_vm(
            number, number % 3, chance.randint(0, 3000), devices=(VGPU,) if number % 3 == 0 else ()
        )
        cluster.add_node(number)
    cluster.mark_loaded()
    async with run_gpuinfo_manager(cluster, rules=rules) as controller:
        tracker, selections = controller.tracker, controller.selections
        await eventually(lambda: len(tracker.ranking.facts) == 12)
        enqueued, changed = set[Key](), list[str]()
        selections._enqueue = enqueued.add
        tracker.facts_changed.connect(
            lambda old, new: changed.extend({facts.name for facts in (old, new) if facts})
        )
        selected: dict[Key, tuple[Requirement, str]] = {}
        for number in range(60):
            requirement = Requirement(chance.choice([0, 10, 100, 9000]), chance.random() < 0.5)
            selected[Key("default", f"q{number}")] = (requirement, "")
        for step in range(300):
            for key, (requirement, current_node) in selected.items():
                if key in enqueued or not step:
                    query = Query(requirement, rules, NOW)
                    best = tracker.ranking.select_node(query, current_node)
                    selected[key] = (requirement, best.name if best else "")
                    selections.add(key, requirement, best)
            enqueued.clear()
            changed.clear()
            number = chance.randrange(12)
            apply_random_change(cluster, chance, number)
            assert set(changed) <= {f"node-{number}"}
            fresh = Ranking()
            for name, facts in tracker.ranking.facts.items():
                fresh.set_facts(name, facts)
            for key, (requirement, current_node) in selected.items():
                best = fresh.select_node(Query(requirement, rules, NOW), current_node)
                assert key in enqueued or (best.name if best else "") == current_node


def apply_random_change(cluster: FakeNodeCluster, chance: random.Random, number: int) -> None:
    if chance.randrange(4) == 0:
        cluster.modify(
            "VirtualMachine",
            f"vm-{number}",
            runtime__powerState=chance.choice(["poweredOn", "poweredOff"]),
        )
    else:
        cluster.set_cpu_demand(number, chance.randint(0, 3000))


async def test_deleted_node_leaves_nothing_behind() -> None:
    cluster = FakeNodeCluster()
    cluster.add_host(1)
    cluster.add_vm(1, 1, 100)
    cluster.add_node(1)
    cluster.mark_loaded()
    cluster.create(GPUInfo, "plain", desAccTime=1, gpuRequired=False)
    async with run_gpuinfo_manager(cluster) as controller:
        tracker = controller.tracker
        await cluster.wait_for_ready(GPUInfo, "plain", "NodeChosen")
        assert set(tracker._nodes_by_host) == {"vc-1/host-1"}
        await cluster.client.delete(Node, Key("", "node-1"))
        await cluster.wait_for_ready(GPUInfo, "plain", "NoneAvailable")
        assert not {
            *tracker._nodes_by_host,
            *tracker._nodes_by_vm,
            *tracker._nodes_by_uuid,
            *tracker._vm_and_host_by_node,
            *tracker._reported_warnings,
            *tracker.ranking.facts,
        }


async def test_calendar_is_matched_once_per_node_and_host_and_timers_are_at_most_an_hour() -> None:
    cluster = FakeNodeCluster()
    for number in (1, 2):
        cluster.add_host(number)
    cluster.add_vm(1, 1, 100)
    cluster.add_node(1)
    cluster.mark_loaded()
    async with run_gpuinfo_manager(cluster) as controller:
        tracker = controller.tracker
        await eventually(lambda: tracker.ranking.facts)
        next_year = (cluster.clock() + timedelta(days=360)).isoformat()
        tracker.on_calendar_change(
            parse_calendar({"w": f"host=esxi-? start={next_year} length=4h"})[0]
        )
        matched = list[tuple[str, str]]()
        match = tracker._calendar._match_entries

        def match_entries(host: str, node: str) -> Any:
            matched.append((host, node))
            return match(host, node)

        tracker._calendar._match_entries = match_entries  # type: ignore[method-assign]
        cluster.set_cpu_demand(1, 5000)
        assert matched == []
        cluster.modify("VirtualMachine", "vm-1", runtime__host=Ref("HostSystem", "host-2"))
        assert matched == [("esxi-2", "node-1")]
        assert tracker._timer is not None
        assert tracker._timer.when() - asyncio.get_running_loop().time() <= 3600
        tracker._on_timer()
        assert tracker.ranking.facts["node-1"].next_window is not None
        await cluster.client.delete(Node, Key("", "node-1"))
        await eventually(lambda: not tracker._calendar.entries_by_node)


async def test_expired_calendar_lines_are_dropped() -> None:
    cluster = FakeNodeCluster()
    cluster.mark_loaded()
    async with run_gpuinfo_manager(cluster) as controller:
        expired = "host=esxi-* start=2001-01-01T00:00:00Z length=4h"
        controller.tracker.on_calendar_change(
            parse_calendar(
                {
                    "w": f"{expired}\n{expired} repeats=weekly\n"
                    + expired.replace("host=esxi-*", "node=n")
                }
            )[0]
        )
        assert [entry.repeats for entry, _ in controller.tracker._calendar.glob_entries] == [
            "weekly"
        ]
        assert controller.tracker._calendar.entries_by_name == {}
