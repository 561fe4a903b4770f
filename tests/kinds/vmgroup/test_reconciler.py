"""Which replicas are deleted when the cached configuration of their VMs may be outdated, and when
the next step is due."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from kubewright import NotSynced
from kubewright.log import Log
from support.inventory_builder import make_inventory
from vsphere_operators.kinds.vmgroup.group_memory import GroupMemoryStore
from vsphere_operators.kinds.vmgroup.model import Clone, OperationFailure, PowerOff
from vsphere_operators.kinds.vmgroup.observation import PlanInput
from vsphere_operators.kinds.vmgroup.ownership import GroupId
from vsphere_operators.kinds.vmgroup.reconciler import GroupReconciler
from vsphere_operators.kinds.vmgroup.step import GroupInput, VCenterId
from vsphere_operators.vsphere.faults import Busy, Unreachable, VCenterError
from vsphere_operators.vsphere.task_limiter import WAITING_OWNER_SECONDS, TaskLimiter
from vsphere_operators.vsphere.vm_calls import CloneSpec

from .replica_builder import DESIRED, make_observed, make_record, make_vm


class FakeVCenter:
    """Has four replicas where three are desired; a refresh shows the volume of a VM."""

    def __init__(self, volumes: dict[str, str], *, vcenter_answers: bool = True) -> None:
        self.volume_by_vm, self.vcenter_answers = volumes, vcenter_answers
        self.refreshed_refs: list[list[str]] = []
        # The inventory is loaded again during a refresh.
        self.loads_during_refresh = False
        self.vcenter = vcenter = SimpleNamespace(
            inventory=make_inventory(),
            vm_configs=SimpleNamespace(refresh=self.refresh),
            watching_since=50.0,
        )
        unused = cast("Any", None)
        self.reconciler = GroupReconciler(
            cast("Any", vcenter), cast("Any", self), unused, unused, unused, unused, unused
        )

    async def refresh(self, refs: list[str]) -> None:
        self.refreshed_refs.append(refs)
        if self.loads_during_refresh:
            self.vcenter.watching_since += 1.0
        if not self.vcenter_answers:
            raise Unreachable("gone")

    def observe(self, group: GroupInput) -> PlanInput:
        read = (
            {ref for refs in self.refreshed_refs for ref in refs} if self.vcenter_answers else set()
        )
        vms = [
            replace(vm, foreign_disks=(self.volume_by_vm[vm.ref],))
            if vm.ref in read & self.volume_by_vm.keys()
            else vm
            for vm in VMS
        ]
        return PlanInput(
            desired=DESIRED,
            observed=make_observed(vms),
            placement=None,
            parent_folder="",
            blocker_reason="",
            vms_by_replica={},
        )

    async def terminating_names(self) -> set[str]:
        """The replicas that the plan selects for deletion."""
        group = cast(
            "Any",
            SimpleNamespace(records=(), group_id=SimpleNamespace(name="web"), loaded_at=50.0),
        )
        _, plan = await self.reconciler._observe_and_plan(group)
        return {record.name for record in plan.records if record.terminating}


VMS = [make_vm(number) for number in range(4)]


async def test_a_vm_is_read_again_before_it_is_selected_for_deletion() -> None:
    vcenter = FakeVCenter({"vm-3": "pvc-a", "vm-2": "pvc-b"})
    assert await vcenter.terminating_names() == {"r1"}
    assert vcenter.refreshed_refs == [["vm-3"], ["vm-2"], ["vm-1"]]


async def test_a_vm_is_read_once_if_vcenter_is_unreachable() -> None:
    vcenter = FakeVCenter({"vm-3": "pvc-a"}, vcenter_answers=False)
    assert await vcenter.terminating_names() == {"r3"}
    assert vcenter.refreshed_refs == [["vm-3"]]


async def test_nothing_is_decided_from_two_loads_of_the_inventory() -> None:
    # The second may be of another vCenter than the one that was checked for this group.
    vcenter = FakeVCenter({"vm-3": "pvc-a"})
    vcenter.loads_during_refresh = True
    with pytest.raises(NotSynced):
        await vcenter.terminating_names()


@pytest.mark.parametrize(
    ("error", "calls"), [(Unreachable("no response"), 1), (Busy("another operation"), 2)]
)
async def test_a_step_ends_when_vcenter_does_not_respond(error: VCenterError, calls: int) -> None:
    # Each further call would wait for its timeout, and the status would not be written until then.
    changed: list[object] = []

    async def change_vm(group: GroupInput, action: object) -> None:
        changed.append(action)
        raise error

    reconciler = GroupReconciler(
        cast("Any", SimpleNamespace(inventory=make_inventory())),
        cast("Any", None),
        cast("Any", SimpleNamespace(change_vm=change_vm)),
        cast("Any", None),
        GroupMemoryStore(clock=lambda: 1000.0),
        cast("Any", None),
        cast("Any", None),
    )
    group = cast("Any", SimpleNamespace(group_id=SimpleNamespace(uid="uid-1")))
    actions = [PowerOff(make_vm(number)) for number in range(2)]
    assert not await reconciler._execute(group, cast("Any", None), actions, {})
    assert len(changed) == calls


async def test_what_is_known_of_an_earlier_vm_is_forgotten_before_a_clone() -> None:
    events: list[str] = []

    async def clone(group: GroupInput, action: Clone, spec: CloneSpec) -> None:
        events.append(f"clone {spec.instance_uuid}")

    reconciler = GroupReconciler(
        cast("Any", SimpleNamespace(inventory=make_inventory())),
        cast("Any", None),
        cast("Any", SimpleNamespace(clone=clone)),
        cast("Any", None),
        GroupMemoryStore(clock=lambda: 1000.0),
        cast("Any", None),
        cast("Any", SimpleNamespace(forget_vm=lambda uuid: events.append(f"forget {uuid}"))),
    )
    group_id = GroupId(cluster_id="c1", namespace="team-a", name="web", uid="uid-1")
    group = SimpleNamespace(
        group_id=group_id, linked_clone=False, storage_policy="", cloud_init=None
    )
    plan_input = PlanInput(
        desired=DESIRED,
        observed=make_observed(),
        placement=cast("Any", SimpleNamespace(resource_pool="resgroup-1", datastore="")),
        parent_folder="",
        blocker_reason="",
        vms_by_replica={},
    )
    record = make_record(0, attempt=2, state="Planned")
    await reconciler._execute(
        cast("Any", group), plan_input, [Clone(record, "t", power_on=True)], {}
    )
    assert events == [f"forget {record.instance_uuid}", f"clone {record.instance_uuid}"]


async def test_a_group_in_phase_error_keeps_its_place_in_the_queue_for_a_task_slot() -> None:
    # r0 has failed for good, and r1 waits. The limiter forgets an owner that does not try again.
    inventory, uid = make_inventory(), "uid-1"
    limiter = TaskLimiter(inventory, Log("test"), max_running_tasks=0)
    memory_store = GroupMemoryStore(clock=lambda: 1000.0)
    for _ in range(6):
        memory_store.for_group(uid).record_failure("r0", OperationFailure("broken", permanent=True))
    observation = PlanInput(
        desired=replace(DESIRED, replicas=2),
        observed=make_observed(
            [make_vm(0, power="poweredOff"), make_vm(1, power="poweredOff")],
            failures=memory_store.for_group(uid).active_failures(),
        ),
        placement=None,
        parent_folder="",
        blocker_reason="",
        vms_by_replica={},
    )

    async def change_vm(group: GroupInput, action: object) -> None:
        with limiter.reserve_slot(uid):
            pytest.fail("no slot is free")

    reconciler = GroupReconciler(
        cast(
            "Any", SimpleNamespace(inventory=inventory, task_limiter=limiter, watching_since=50.0)
        ),
        cast("Any", SimpleNamespace(observe=lambda group: observation)),
        cast("Any", SimpleNamespace(change_vm=change_vm)),
        cast("Any", None),
        memory_store,
        cast("Any", None),
        cast("Any", None),
    )
    group = SimpleNamespace(
        group_id=SimpleNamespace(name="web", uid=uid),
        generation=0,
        records=observation.observed.records,
        resource_version="1",
        loaded_at=50.0,
        cloud_init=None,
        log=lambda line: None,
        vcenter=VCenterId(name="vc", instance_uuid=""),
    )
    result = await reconciler.run_step(cast("Any", group))
    assert result.plan.phase == "ERROR"
    assert limiter.is_waiting(uid)
    assert result.requeue_after_seconds is not None
    assert result.requeue_after_seconds < WAITING_OWNER_SECONDS
