"""Labels and the condition of Nodes: what is written, when, and what is left alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kubewright import Key, Manager, Options, controller
from kubewright.builtin import Event, Node, NodeCondition
from kubewright.errors import ApiError, Forbidden, Invalid, KubewrightError
from kubewright.log import Log
from kubewright.testing import eventually
from kubewright.transport import Request
from support.fake_environment import FAKE_CONNECTION, FakeEnvironment
from support.fake_node_cluster import FakeNodeCluster
from support.fake_time import fake_time_without_io
from vsphere_operators.build import connect_node_labels
from vsphere_operators.node_labels.cleanup import NodeLabelCleanup
from vsphere_operators.node_labels.condition import HOST_PRESSURE
from vsphere_operators.node_labels.controller import NodeLabelController
from vsphere_operators.node_labels.labels import HOST_LABEL, read_labels
from vsphere_operators.node_labels.writer import NodeWriter
from vsphere_operators.vcenters.node_matching import parse_provider_id
from vsphere_operators.vsphere.faults import Unreachable
from vsphere_operators.vsphere.updates import Ref
from vsphere_operators.vsphere.vcenter import VCenter

NO_PRESSURE = ("False", "NoPressure")


class LabeledCluster(FakeNodeCluster):
    """Two hosts, and Nodes on the first."""

    def __init__(self, nodes: int = 1) -> None:
        super().__init__()
        self.add_host(1)
        self.add_host(2)
        for number in range(1, nodes + 1):
            self.add_vm(number, 1, 100)
            self.add_node(number)
        self.mark_loaded()

    def move_vm(self, host: int) -> None:
        self.modify("VirtualMachine", "vm-1", runtime__host=Ref("HostSystem", f"host-{host}"))

    def set_readiness(self, percent: int) -> None:
        self.modify("VirtualMachine", "vm-1", summary__quickStats__overallCpuReadiness=percent)

    def set_task(self, state: str) -> None:
        self.enter(
            "Task",
            "task-1",
            info__state=state,
            info__descriptionId="HostSystem.enterMaintenanceMode",
            info__entity=Ref("HostSystem", "host-1"),
        )

    async def read_node(self, number: int = 1) -> Node:
        return await self.client.get(Node, Key("", f"node-{number}"))

    async def host_label(self) -> str:
        return (await self.read_node()).metadata.labels.get(HOST_LABEL, "")

    async def condition(self) -> NodeCondition | None:
        conditions = (await self.read_node()).status.conditions
        return next((entry for entry in conditions if entry.type == HOST_PRESSURE), None)

    async def wait_for_label(self, value: str, *, within: float = 30) -> None:
        async def has_label() -> bool:
            return await self.host_label() == value

        await eventually(has_label, within=within, every=within / 300)

    async def wait_for_condition(self, *expected: str, within: float = 30) -> NodeCondition:
        async def find() -> NodeCondition | None:
            condition = await self.condition()
            if condition and (condition.status, condition.reason) == expected:
                return condition
            return None

        result: NodeCondition | None = await eventually(find, within=within, every=within / 300)
        assert result is not None
        return result

    def count_writes(self) -> tuple[int, int]:
        """Patches of Nodes, and of their status."""
        paths = [request.path for request in self.api.writes() if "/nodes/" in request.path]
        status = sum(path.endswith("/status") for path in paths)
        return len(paths) - status, status


@asynccontextmanager
async def run_labeler(
    cluster: FakeNodeCluster,
    vcenters: dict[str, VCenter] | None = None,
    *,
    enabled: bool = True,
    namespace: str = "system",
    interval_seconds: float = 60.0,
) -> AsyncIterator[None]:
    """Run a manager with -label-nodes, or one that cleans up after it."""
    manager = Manager(FAKE_CONNECTION, Options(metrics_bind_address="0"), transport=cluster.api)
    writer = NodeWriter(manager.client, namespace)
    if enabled:
        labeler = NodeLabelController(
            vcenters or {"vc-1": cluster.vcenter}, writer, interval_seconds, cluster.monotonic_clock
        )
        manager.add(labeler)
        connect_node_labels(labeler)
    else:
        # Something has to keep the Nodes in the cache, as GPUInfo does in the real manager.
        manager.add(controller(Node, _ignore_node))
        manager.add_runnable(
            NodeLabelCleanup(manager.cache, writer, manager.recorder, Log("labels")),
            leader_only=True,
        )
    stop = asyncio.Event()
    task = asyncio.create_task(manager.run(stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def _ignore_node(node: Node) -> None:
    pass


async def test_labels_follow_a_vmotion_and_nothing_is_written_at_rest() -> None:
    cluster = LabeledCluster()
    await cluster.patch_node(1, {"metadata": {"labels": {"zone": "a"}}})
    async with run_labeler(cluster):
        await cluster.wait_for_label("esxi-1")
        condition = await cluster.wait_for_condition(*NO_PRESSURE)
        assert condition.lastTransitionTime is not None
        before = cluster.count_writes()
        cluster.move_vm(2)
        await cluster.wait_for_label("esxi-2")
        cluster.set_cpu_demand(1, 5000)
        cluster.set_readiness(3)
        await asyncio.sleep(0.1)
        # One write of the labels, and none of the condition.
        assert cluster.count_writes() == (before[0] + 1, before[1])
        node = await cluster.read_node()
        assert node.metadata.labels["zone"] == "a"
        assert [entry.type for entry in node.status.conditions] == ["Ready", HOST_PRESSURE]


async def test_renamed_and_shared_names_change_the_labels() -> None:
    cluster = LabeledCluster()
    async with run_labeler(cluster):
        await cluster.wait_for_label("esxi-1")
        cluster.modify("HostSystem", "host-1", name="esxi 1")
        await eventually(lambda: _starts_with(cluster, "esxi-1-"))
        cluster.modify("HostSystem", "host-1", name="esxi-1")
        await cluster.wait_for_label("esxi-1")
        cluster.modify("HostSystem", "host-2", name="esxi-1")
        await eventually(lambda: _starts_with(cluster, "esxi-1-"))


async def _starts_with(cluster: LabeledCluster, prefix: str) -> bool:
    return (await cluster.host_label()).startswith(prefix)


@fake_time_without_io
async def test_condition_has_hysteresis_and_one_write_per_interval() -> None:
    cluster = LabeledCluster()
    async with run_labeler(cluster):
        await cluster.wait_for_condition(*NO_PRESSURE)
        cluster.set_readiness(25)
        await asyncio.sleep(59)
        assert (await cluster.condition()) is not None
        _, before = cluster.count_writes()
        assert before == 1
        condition = await cluster.wait_for_condition("True", "CPUReady")
        assert condition.message == (
            'VM "node-1" on host "esxi-1" waited for a CPU 25% of the time. The limit is 10%.'
        )
        for percent in (26, 23, 27, 24) * 60:
            cluster.set_readiness(percent)
            await asyncio.sleep(1)
        assert cluster.count_writes()[1] == 2
        for percent in (60, 20) * 60:
            cluster.set_readiness(percent)
            await asyncio.sleep(1)
        # 120 s of large changes: at most one write in each interval.
        assert cluster.count_writes()[1] in (4, 5)
        cluster.set_readiness(4)
        await cluster.wait_for_condition(*NO_PRESSURE, within=130)


@fake_time_without_io
async def test_condition_is_not_repeated_after_a_restart_and_keeps_its_transition_time() -> None:
    cluster = LabeledCluster()
    cluster.set_readiness(25)
    async with run_labeler(cluster):
        before = await cluster.wait_for_condition("True", "CPUReady", within=100)
    cluster.set_readiness(6)
    async with run_labeler(cluster):
        await eventually(lambda: _has_message(cluster, "6%"), within=10)
        condition = await cluster.condition()
        assert condition is not None
        assert (condition.status, condition.lastTransitionTime) == (
            "True",
            before.lastTransitionTime,
        )
        # On another host it is not known yet.
        cluster.move_vm(2)
        await cluster.wait_for_condition(*NO_PRESSURE, within=70)


async def _has_message(cluster: LabeledCluster, text: str) -> bool:
    condition = await cluster.condition()
    return condition is not None and text in condition.message


@fake_time_without_io
async def test_maintenance_is_reported_while_entered_and_afterwards() -> None:
    cluster = LabeledCluster()
    async with run_labeler(cluster, interval_seconds=1):
        await cluster.wait_for_condition(*NO_PRESSURE)
        cluster.set_task("running")
        await cluster.wait_for_condition("True", "EnteringMaintenance")
        cluster.modify("HostSystem", "host-1", runtime__inMaintenanceMode=True)
        cluster.set_task("success")
        condition = await cluster.wait_for_condition("True", "InMaintenance")
        assert condition.message == 'Host "esxi-1" is in maintenance mode.'
        cluster.modify("HostSystem", "host-1", runtime__inMaintenanceMode=False)
        await cluster.wait_for_condition(*NO_PRESSURE)


@fake_time_without_io
async def test_unreachable_vcenter_keeps_labels_and_makes_the_condition_unknown() -> None:
    cluster = LabeledCluster()
    async with run_labeler(cluster, interval_seconds=1):
        await cluster.wait_for_condition(*NO_PRESSURE)
        cluster.vcenter.problem = Unreachable("no route")
        cluster.leave("VirtualMachine", "vm-1")
        cluster.vcenter.state_changed.emit()
        condition = await cluster.wait_for_condition("Unknown", "VCenterUnavailable")
        assert condition.message.startswith('vCenter "vc-1" has been unavailable since 20')
        await asyncio.sleep(600)
        assert await cluster.host_label() == "esxi-1"
        cluster.vcenter.on_response()
        # The VM is gone for sure now, but it may come back.
        await asyncio.sleep(59)
        assert await cluster.host_label() == "esxi-1"
        await cluster.wait_for_label("")
        node = await cluster.read_node()
        assert read_labels(node.metadata.labels) == {}
        assert [entry.type for entry in node.status.conditions] == ["Ready"]


@fake_time_without_io
async def test_maintenance_that_vcenter_does_not_report_is_unknown() -> None:
    cluster = LabeledCluster()
    async with run_labeler(cluster, interval_seconds=1):
        await cluster.wait_for_condition(*NO_PRESSURE)
        cluster.modify("HostSystem", "host-1", runtime__inMaintenanceMode=None)
        condition = await cluster.wait_for_condition("Unknown", "MaintenanceUnknown")
        assert '"esxi-1"' in condition.message
        assert await cluster.host_label() == "esxi-1"
        cluster.modify("HostSystem", "host-1", runtime__inMaintenanceMode=False)
        await cluster.wait_for_condition(*NO_PRESSURE)


@fake_time_without_io
async def test_disconnected_host_is_unknown() -> None:
    cluster = LabeledCluster()
    async with run_labeler(cluster, interval_seconds=1):
        await cluster.wait_for_condition(*NO_PRESSURE)
        cluster.modify("HostSystem", "host-1", runtime__connectionState="notResponding")
        condition = await cluster.wait_for_condition("Unknown", "HostDisconnected")
        assert condition.message == 'vCenter "vc-1" has no connection to host "esxi-1".'
        assert await cluster.host_label() == "esxi-1"


@fake_time_without_io
async def test_nothing_is_written_for_a_node_without_a_vm_or_a_vcenter_that_is_loading() -> None:
    cluster = FakeNodeCluster()
    cluster.add_node(1)
    async with run_labeler(cluster):
        await asyncio.sleep(300)
        cluster.mark_loaded()
        await asyncio.sleep(300)
    assert [request for request in cluster.api.writes() if "/nodes/" in request.path] == []


@fake_time_without_io
async def test_ambiguous_vm_removes_the_labels_and_explains_why() -> None:
    cluster = LabeledCluster()
    async with run_labeler(cluster, interval_seconds=1):
        await cluster.wait_for_condition(*NO_PRESSURE)
        uuid = parse_provider_id((await cluster.read_node()).spec.providerID)[0]
        cluster.add_vm(7, 2, 100, config__uuid=uuid)
        await cluster.wait_for_label("", within=70)
        condition = await cluster.wait_for_condition("Unknown", "VMAmbiguous")
        assert condition.message.startswith("2 VMs have the uuid of the Node: ")
        await eventually(lambda: _has_event(cluster, "VMAmbiguous"))
        cluster.leave("VirtualMachine", "vm-7")
        await cluster.wait_for_label("esxi-1")


async def _has_event(cluster: FakeNodeCluster, reason: str, text: str = "") -> bool:
    events = await cluster.client.list(Event)
    return any(event.reason == reason and text in event.message for event in events)


@fake_time_without_io
async def test_label_of_another_client_is_kept_and_reported() -> None:
    cluster = LabeledCluster()
    await cluster.patch_node(1, {"metadata": {"labels": {HOST_LABEL: "mine"}}})
    async with run_labeler(cluster):
        await eventually(lambda: _has_event(cluster, "LabelConflict", HOST_LABEL))
        # The condition does not depend on the label.
        await cluster.wait_for_condition(*NO_PRESSURE)
        assert await cluster.host_label() == "mine"
        await cluster.patch_node(1, {"metadata": {"labels": {HOST_LABEL: None}}})
        await cluster.wait_for_label("esxi-1")


CLUSTER_LABEL = "topology.corinternal.com/cluster"
DATACENTER_LABEL = "topology.corinternal.com/datacenter"


@fake_time_without_io
async def test_foreign_label_does_not_block_the_others_and_is_reported_once() -> None:
    cluster = LabeledCluster()
    cluster.enter("Datacenter", "datacenter-1", name="dc-1")
    cluster.enter("Folder", "group-h1", name="host", parent=Ref("Datacenter", "datacenter-1"))
    for name in ("domain-c1", "domain-c2"):
        parent = Ref("Folder", "group-h1")
        cluster.enter("ClusterComputeResource", name, name=name, parent=parent)
    for number in (1, 2):
        parent = Ref("ClusterComputeResource", f"domain-c{number}")
        cluster.modify("HostSystem", f"host-{number}", parent=parent)
    await cluster.patch_node(1, {"metadata": {"labels": {HOST_LABEL: "mine"}}})
    async with run_labeler(cluster):

        async def has_labels(*expected: str) -> bool:
            labels = (await cluster.read_node()).metadata.labels
            names = (HOST_LABEL, CLUSTER_LABEL, DATACENTER_LABEL)
            return tuple(labels.get(name) for name in names) == expected

        await eventually(lambda: has_labels("mine", "domain-c1", "dc-1"))
        cluster.move_vm(2)
        await eventually(lambda: has_labels("mine", "domain-c2", "dc-1"))
        await asyncio.sleep(1000)
        assert await has_labels("mine", "domain-c2", "dc-1")
        writes = cluster.count_writes()
        await asyncio.sleep(1000)
        assert cluster.count_writes() == writes
        events = [
            event for event in await cluster.client.list(Event) if event.reason == "LabelConflict"
        ]
        assert [event.count for event in events] == [1]
        assert f'.metadata.labels.{HOST_LABEL} (set by "' in events[0].message
        await cluster.patch_node(1, {"metadata": {"labels": {HOST_LABEL: None}}})
        await eventually(lambda: has_labels("esxi-2", "domain-c2", "dc-1"))


@fake_time_without_io
async def test_conflict_that_comes_back_is_reported_again() -> None:
    cluster = LabeledCluster()

    async def count_conflicts() -> int:
        events = await cluster.client.list(Event)
        return sum(event.count for event in events if event.reason == "LabelConflict")

    async with run_labeler(cluster):
        for number in (1, 2):
            await cluster.wait_for_label("esxi-1")
            await cluster.patch_node(1, {"metadata": {"labels": {HOST_LABEL: "mine"}}})

            async def is_reported(expected: int = number) -> bool:
                return await count_conflicts() == expected

            await eventually(is_reported)
            await cluster.patch_node(1, {"metadata": {"labels": {HOST_LABEL: None}}})


@fake_time_without_io
async def test_forbidden_labels_do_not_delay_the_condition() -> None:
    cluster = LabeledCluster()
    path = Node.definition.path("", "node-1")

    def forbid_labels(request: Request) -> Exception | None:
        is_forbidden = request.method == "PATCH" and request.path == path
        return Forbidden("no") if is_forbidden else None

    cluster.api.faults.append(forbid_labels)
    cluster.set_readiness(25)
    async with run_labeler(cluster):
        # The figure counts after a minute, not when the labels are tried again.
        await cluster.wait_for_condition("True", "CPUReady", within=70)
        attempts = cluster.count_writes()[0]
        for percent in (60, 20) * 30:
            cluster.set_readiness(percent)
            await asyncio.sleep(1)
        assert cluster.count_writes()[0] == attempts == 1


@fake_time_without_io
async def test_shared_names_keep_their_values_while_another_vcenter_is_not_loaded() -> None:
    cluster, other = LabeledCluster(nodes=2), FakeEnvironment()
    other.enter("HostSystem", "host-1", name="esxi-1")
    other.mark_loaded()
    vcenters = {"vc-1": cluster.vcenter, "vc-2": other.vcenter}
    async with run_labeler(cluster, vcenters):
        await eventually(lambda: _starts_with(cluster, "esxi-1-"))
        shared = await cluster.host_label()
        cluster.modify("VirtualMachine", "vm-2", runtime__host=Ref("HostSystem", "host-2"))
        await asyncio.sleep(10)
    # The manager starts again, and cannot read the other vCenter.
    unreachable = FakeEnvironment()
    unreachable.vcenter.problem = Unreachable("no route")
    vcenters["vc-2"] = unreachable.vcenter
    async with run_labeler(cluster, vcenters):
        before = cluster.count_writes()[0]
        await asyncio.sleep(300)
        assert await cluster.host_label() == shared
        assert cluster.count_writes()[0] == before
        # A Node that moves to the host gets the value that others have there.
        cluster.modify("VirtualMachine", "vm-2", runtime__host=Ref("HostSystem", "host-1"))
        await asyncio.sleep(10)
        assert (await cluster.read_node(2)).metadata.labels[HOST_LABEL] == shared
        # Now it is certain that no other host has the name.
        unreachable.mark_loaded()
        unreachable.vcenter.inventory_loaded.emit()
        await cluster.wait_for_label("esxi-1")


@fake_time_without_io
async def test_two_managers_with_different_vcenters_leave_each_other_alone() -> None:
    cluster, other = LabeledCluster(), FakeEnvironment()
    other.mark_loaded()
    async with (
        run_labeler(cluster),
        run_labeler(cluster, {"vc-2": other.vcenter}, namespace="other"),
    ):
        await cluster.wait_for_condition(*NO_PRESSURE)
        await asyncio.sleep(120)
        assert await cluster.host_label() == "esxi-1"
        before = cluster.count_writes()
        for number in range(20):
            cluster.move_vm(2 - number % 2)
            await cluster.wait_for_label(f"esxi-{2 - number % 2}")
        assert cluster.count_writes() == (before[0] + 20, before[1])
        other.vcenter.problem = Unreachable("no route")
        other.vcenter.state_changed.emit()
        await asyncio.sleep(10)
        await cluster.wait_for_condition(*NO_PRESSURE)


@fake_time_without_io
async def test_missing_permission_is_explained() -> None:
    cluster = LabeledCluster()
    path = Node.definition.path("", "node-1")
    cluster.api.fail_next("PATCH", path, Forbidden("no"), times=1)
    async with run_labeler(cluster):
        await eventually(
            lambda: _has_event(cluster, "NodeWriteForbidden", "config/components/label-nodes")
        )
        # The permission may be granted later.
        await cluster.wait_for_label("esxi-1", within=310)


@fake_time_without_io
async def test_cleanup_removes_only_what_this_manager_has_set() -> None:
    cluster = LabeledCluster(nodes=2)
    await cluster.patch_node(2, {"metadata": {"labels": {HOST_LABEL: "mine"}}})
    async with run_labeler(cluster):
        await cluster.wait_for_label("esxi-1")
        await cluster.wait_for_condition(*NO_PRESSURE)
        await eventually(lambda: _has_event(cluster, "LabelConflict"))
    async with run_labeler(cluster, enabled=False):
        await cluster.wait_for_label("")
        await asyncio.sleep(300)
        writes = cluster.count_writes()
        await asyncio.sleep(300)
        assert cluster.count_writes() == writes
    for number in (1, 2):
        node = await cluster.read_node(number)
        assert [entry.type for entry in node.status.conditions] == ["Ready"]
        assert node.metadata.labels.get(HOST_LABEL) == (None if number == 1 else "mine")


@fake_time_without_io
async def test_cleanup_leaves_another_installation_alone_silently() -> None:
    cluster = LabeledCluster()
    async with run_labeler(cluster, namespace="other"):
        await cluster.wait_for_condition(*NO_PRESSURE)
        before = cluster.count_writes()
        async with run_labeler(cluster, enabled=False):
            await asyncio.sleep(600)
        assert cluster.count_writes() == before
        assert await cluster.host_label() == "esxi-1"
        assert not await _has_event(cluster, "NodeLabelLeft")


@fake_time_without_io
async def test_cleanup_without_permission_is_reported_once_and_tried_again() -> None:
    cluster = LabeledCluster(nodes=2)
    async with run_labeler(cluster):
        await cluster.wait_for_condition(*NO_PRESSURE)
        await asyncio.sleep(10)
    cluster.api.fail_next("PATCH", "/nodes/", Forbidden("no"), times=1000)
    before = sum(cluster.count_writes())
    async with run_labeler(cluster, enabled=False):
        await eventually(lambda: _has_event(cluster, "NodeLabelLeft", 'in namespace "system"'))
        await asyncio.sleep(600)
        # One request a minute, however many Nodes there are.
        assert sum(cluster.count_writes()) - before <= 12
        events = [
            event for event in await cluster.client.list(Event) if event.reason == "NodeLabelLeft"
        ]
        assert {event.involvedObject.name for event in events} == {"node-1", "node-2"}
        assert [event.count for event in events] == [1, 1]
        cluster.api.faults.clear()
        await cluster.wait_for_label("", within=70)


@fake_time_without_io
@pytest.mark.parametrize("error", [Forbidden("denied by a webhook"), Invalid("no"), ApiError("x")])
async def test_node_that_cannot_be_patched_does_not_stop_the_cleanup_of_others(
    error: KubewrightError,
) -> None:
    cluster = LabeledCluster(nodes=6)
    async with run_labeler(cluster):
        await asyncio.sleep(10)
    # More than those after which a scan ends.
    for number in (1, 2, 3, 5):
        cluster.api.fail_next("PATCH", f"/nodes/node-{number}", error, times=1000)

    async def list_labeled() -> set[int]:
        nodes = [(number, await cluster.read_node(number)) for number in range(1, 7)]
        return {number for number, node in nodes if read_labels(node.metadata.labels)}

    async def has_only_rejected() -> bool:
        return await list_labeled() == {1, 2, 3, 5}

    async with run_labeler(cluster, enabled=False):
        assert await list_labeled() == set(range(1, 7))
        await eventually(has_only_rejected, within=130, every=0.5)
        await asyncio.sleep(300)
        events = [
            event for event in await cluster.client.list(Event) if event.reason == "NodeLabelLeft"
        ]
        rejected = {f"node-{number}" for number in (1, 2, 3, 5)}
        is_forbidden = isinstance(error, Forbidden)
        assert {event.involvedObject.name for event in events} == (
            rejected if is_forbidden else set()
        )
        assert all(event.count == 1 for event in events)
        cluster.api.faults.clear()

        async def is_clean() -> bool:
            return await list_labeled() == set()

        await eventually(is_clean, within=130, every=0.5)
