"""Which replicas are deleted when the cached configuration of their VMs may be outdated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from msgspec.structs import replace

from support.inventory_builder import make_inventory
from vsphere_operators.kinds.vmgroup.observation import PlanInput
from vsphere_operators.kinds.vmgroup.reconciler import GroupReconciler
from vsphere_operators.kinds.vmgroup.step import GroupInput
from vsphere_operators.vsphere.faults import Unreachable

from .replica_builder import DESIRED, make_observed, make_vm


class FakeVCenter:
    """Has four replicas where three are desired; a refresh shows the volume of a VM."""

    def __init__(self, volumes: dict[str, str], *, vcenter_answers: bool = True) -> None:
        self.volume_by_vm, self.vcenter_answers = volumes, vcenter_answers
        self.refreshed_refs: list[list[str]] = []
        vcenter = SimpleNamespace(
            inventory=make_inventory(), vm_configs=SimpleNamespace(refresh=self.refresh)
        )
        unused = cast("Any", None)
        self.reconciler = GroupReconciler(
            cast("Any", vcenter), cast("Any", self), unused, unused, unused, unused
        )

    async def refresh(self, refs: list[str]) -> None:
        self.refreshed_refs.append(refs)
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
        group = cast("Any", SimpleNamespace(records=(), group_id=SimpleNamespace(name="web")))
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
