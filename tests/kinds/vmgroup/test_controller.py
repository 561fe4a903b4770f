"""The status and the Events of VmGroups in an outage of their vCenter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NoReturn, cast

import pytest
from msgspec.structs import replace

from kubewright import Cache, Key, NotSynced, Stream
from kubewright.errors import NotFound
from kubewright.log import Log
from kubewright.metrics import Metrics
from kubewright.testing import eventually
from support.fake_environment import FakeEnvironment, run_manager
from vsphere_operators.build import _build_group_reconciler
from vsphere_operators.kinds.vmgroup.api_reader import ApiReader
from vsphere_operators.kinds.vmgroup.controller import VmGroupController
from vsphere_operators.kinds.vmgroup.limits import NamespaceLimits
from vsphere_operators.kinds.vmgroup.metrics import VmGroupMetrics
from vsphere_operators.kinds.vmgroup.ownership import GroupId
from vsphere_operators.kinds.vmgroup.reconciler import GroupReconciler
from vsphere_operators.kinds.vmgroup.step import GroupInput
from vsphere_operators.kinds.vmgroup.types import VmGroup
from vsphere_operators.vcenters.registry import VCenterRegistry
from vsphere_operators.vsphere.faults import (
    CertificateRefused,
    Denied,
    Unreachable,
    WrongLogin,
)

KEY = Key("default", "web")
STATUS = {
    "phase": "RUNNING",
    "currentReplicas": 1,
    "desiredReplicas": 1,
    "vcenter": "vc-1",
    "observedGeneration": 1,
    "replicas": [
        {
            "name": "web-replica-a",
            "slot": 0,
            "instanceUUID": "u",
            "state": "Present",
            "moRef": "vm-1",
        }
    ],
    "folder": {"ref": "group-v9", "path": "/DC0/vm/vm-operator/default-web"},
}


class EventLog:
    """Records Events instead of sending them."""

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}

    def event(self, obj: Any, type: str, reason: str, message: str) -> None:
        self.messages[reason] = message


class GroupEnvironment(FakeEnvironment):
    def __init__(self) -> None:
        super().__init__()
        self.events = EventLog()
        self.controllers: list[VmGroupController] = []

    def build_controller(self, vcenters: VCenterRegistry, cache: Cache) -> VmGroupController:
        changes, api_reader = Stream(), ApiReader(self.client)
        reconciler = _build_group_reconciler(
            self.vcenter,
            api_reader,
            changes,
            lambda: True,
            300.0,
            VmGroupMetrics(Metrics()).for_vcenter("vc-1"),
        )
        controller = VmGroupController(
            vcenters,
            {"vc-1": reconciler},
            changes,
            cache,
            api_reader,
            lambda namespace: NamespaceLimits(),
            cast("Any", self.events),
            "c1",
        )
        self.controllers.append(controller)
        return controller

    async def create_group(self, status: dict[str, Any] | None = None, **spec: object) -> None:
        self.create(VmGroup, "web", cpu=1, memory=1, replicas=1, template="t", **spec)
        if status is not None:
            await self.client.patch(
                VmGroup, KEY, {"metadata": {"finalizers": [VmGroupController.finalizer]}}
            )
            await self.client.patch_status(VmGroup, KEY, status)

    async def is_deleted(self, name: str) -> bool:
        try:
            await self.get(VmGroup, name)
        except NotFound:
            return True
        return False

    async def wait_for_group(self, reason: str, *, generation: int, message: str = "") -> VmGroup:
        group, _ = await self.wait_for_ready(
            VmGroup,
            "web",
            reason,
            lambda status: (
                status.observedGeneration == generation and message in status.lastMessage
            ),
        )
        return group


@asynccontextmanager
async def run_group_manager() -> AsyncIterator[GroupEnvironment]:
    environment = GroupEnvironment()
    async with run_manager(environment, environment.build_controller):
        yield environment


async def test_a_group_that_is_scaled_during_an_outage_is_pending() -> None:
    async with run_group_manager() as environment:
        environment.mark_loaded()
        vcenter = environment.vcenter
        vcenter.clock = lambda: vcenter.inventory_watcher.last_response_at + 1e6
        vcenter.on_failure(Unreachable("vCenter vc-1 did not respond in time"))
        await environment.create_group(STATUS)
        await environment.wait_for_group("VCenterUnreachable", generation=1)
        await environment.client.patch(VmGroup, KEY, {"spec": {"replicas": 3}})
        group = await environment.wait_for_group("VCenterUnreachable", generation=2)
        assert (group.status.phase, group.status.desiredReplicas) == ("PENDING", 3)
        assert group.status.lastMessage == (
            "vCenter vc-1 did not respond in time. The status was accurate until "
            f"{vcenter.accurate_until:%Y-%m-%dT%H:%M:%SZ}. "
            "The group continues as soon as vCenter responds."
        )
        await environment.client.delete(VmGroup, KEY)
        group = await environment.wait_for_group("VCenterUnreachable", generation=3)
        assert group.status.phase == "PENDING"
        assert "The status was accurate until" in group.status.lastMessage
        assert "run: kubectl patch vmgroup web -n default" in group.status.lastMessage
        assert [replica.name for replica in group.status.replicas] == ["web-replica-a"]


async def test_a_group_that_is_created_during_an_outage_is_pending() -> None:
    async with run_group_manager() as environment:
        environment.vcenter.on_failure(Unreachable("vCenter vc-1 did not respond in time."))
        await environment.create_group()
        group = await environment.wait_for_group("VCenterUnreachable", generation=1)
        assert (group.status.phase, group.status.lastMessage) == (
            "PENDING",
            "vCenter vc-1 did not respond in time. "
            "The group continues as soon as vCenter responds.",
        )


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (Denied("no permission"), "VCenterDenied"),
        (WrongLogin("wrong password"), "VCenterLoginFailed"),
        (CertificateRefused("expired"), "VCenterCertificateRefused"),
    ],
)
@pytest.mark.parametrize("generation", [1, 2])
async def test_what_only_a_user_can_fix_is_an_error(
    problem: Denied | CertificateRefused, reason: str, generation: int
) -> None:
    async with run_group_manager() as environment:
        environment.vcenter.on_failure(problem)
        await environment.create_group(STATUS)
        if generation == 2:
            await environment.client.patch(VmGroup, KEY, {"spec": {"replicas": 3}})
        group = await environment.wait_for_group(reason, generation=generation)
        assert group.status.phase == "ERROR"


async def test_a_deletion_is_reported_before_vcenter_responds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release = asyncio.Event()

    async def hang(reconciler: GroupReconciler, group: GroupInput) -> NoReturn:
        await release.wait()
        raise NotSynced("vCenter vc-1 did not respond in time", requeue_after_seconds=60.0)

    monkeypatch.setattr(GroupReconciler, "run_step", hang)
    async with run_group_manager() as environment:
        await environment.create_group(STATUS)
        await environment.client.delete(VmGroup, KEY)
        environment.mark_loaded()
        try:
            group = await environment.wait_for_group("Progressing", generation=2)
        finally:
            release.set()
        assert (group.status.phase, group.status.lastMessage) == (
            "PENDING",
            "Deleting the group; 1 replica left",
        )


async def test_a_paused_group_that_is_deleted_names_the_command_to_continue() -> None:
    async with run_group_manager() as environment:
        # A folder without VMs: nothing is read from vCenter.
        await environment.create_group({**STATUS, "replicas": []}, paused=True)
        await environment.client.delete(VmGroup, KEY)
        environment.mark_loaded()
        group = await environment.wait_for_group("Progressing", generation=2)
        assert (group.status.phase, group.status.lastMessage) == (
            "PENDING",
            "Paused: Deleting the group; 0 replicas left. Unset spec.paused to continue: "
            "kubectl patch vmgroup web -n default --type merge "
            """-p '{"spec":{"paused":false}}'""",
        )
        await environment.client.patch(VmGroup, KEY, {"spec": {"paused": False}})
        await eventually(lambda: environment.is_deleted("web"))


async def test_the_event_of_a_group_that_was_deleted_without_its_vcenter() -> None:
    async with run_group_manager() as environment:
        environment.vcenter.on_failure(Unreachable("vCenter vc-1 did not respond in time"))
        await environment.create_group(STATUS, deletionPolicy="Orphan")
        await environment.client.delete(VmGroup, KEY)
        await eventually(lambda: "VMsLeft" in environment.events.messages)
        assert environment.events.messages["VMsLeft"] == (
            "The group was deleted without its vCenter (VCenterUnreachable). "
            "Folder left: /DC0/vm/vm-operator/default-web. "
            'VMs left in vCenter "vc-1": web-replica-a.'
        )


@pytest.mark.parametrize(
    ("group_id", "may_exist"),
    [
        (GroupId(cluster_id="c1", namespace="default", name="web", uid=""), True),
        (GroupId(cluster_id="c1", namespace="default", name="web", uid="older"), False),
        (GroupId(cluster_id="c1", namespace="default", name="db", uid=""), False),
        # The groups of other clusters are not known.
        (GroupId(cluster_id="c2", namespace="default", name="db", uid=""), True),
    ],
)
async def test_which_groups_exist(group_id: GroupId, may_exist: bool) -> None:
    async with run_group_manager() as environment:
        await environment.create_group()
        uid = (await environment.get(VmGroup, "web")).metadata.uid
        group_id = replace(group_id, uid=group_id.uid or uid)
        controller = environment.controllers[0]
        await eventually(lambda: controller._may_exist(group_id) is may_exist)


async def test_a_group_in_a_namespace_that_is_not_watched_may_exist() -> None:
    environment = GroupEnvironment()
    cache = Cache(Log("test"))
    vcenters = VCenterRegistry({"vc-1": environment.vcenter}, [], cache, 60.0, 0.05)
    controller = environment.build_controller(vcenters, cache)
    cache.store(VmGroup).finish_list(set(), 7, "default", force=False)
    for namespace, may_exist in (("default", False), ("other", True)):
        group_id = GroupId(cluster_id="c1", namespace=namespace, name="web", uid="u")
        assert controller._may_exist(group_id) is may_exist
