"""Who is chosen to go, when what is known of VMs may be older than the choice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.model import Plan
from vsphere_operators.kinds.vmgroup.reconciler import GroupInput, GroupReconciler, Observation
from vsphere_operators.vsphere.faults import Unreachable

from .replica_builder import DESIRED, make_observed, make_vm


class FakeReconciler(GroupReconciler):
    """Sees four replicas where three are wanted; that a volume is attached to one is seen when it has been read again."""

    def __init__(self, volumes: dict[str, str], *, vcenter_answers: bool = True) -> None:
        self.volume_by_vm, self.vcenter_answers = volumes, vcenter_answers
        self.refreshed_refs: list[list[str]] = []
        vcenter = SimpleNamespace(inventory=None, vm_configs=SimpleNamespace(refresh=self.refresh))
        super().__init__(cast("Any", SimpleNamespace(vcenter=vcenter)))

    async def refresh(self, refs: list[str]) -> None:
        self.refreshed_refs.append(refs)
        if not self.vcenter_answers:
            raise Unreachable("gone")

    def observe(self, case: Any, sight: Any) -> Observation:
        read = (
            {ref for refs in self.refreshed_refs for ref in refs} if self.vcenter_answers else set()
        )
        vms = [
            replace(each, foreign_disks=(self.volume_by_vm[each.ref],))
            if each.ref in read & self.volume_by_vm.keys()
            else each
            for each in VMS
        ]
        return Observation(
            desired=DESIRED,
            observed=make_observed(vms),
            folder=None,
            placement=None,
            parent_folder="",
            folder_name="",
            blocker_reason="",
            vms_by_replica={},
        )

    def _make_name_generator(self, case: GroupInput) -> Any:
        return None

    async def terminating_names(self) -> set[str]:
        """The names of those that are let go."""
        made: Plan = (await self.observe_and_plan(cast("Any", None), cast("Any", None)))[1]
        return {each.name for each in made.records if each.terminating}


VMS = [make_vm(slot) for slot in range(4)]


async def test_who_is_chosen_has_been_read_just_now_whoever_it_becomes() -> None:
    looking = FakeReconciler({"vm-3": "pvc-a", "vm-2": "pvc-b"})
    assert await looking.terminating_names() == {"r1"}
    assert looking.refreshed_refs == [["vm-3"], ["vm-2"], ["vm-1"]]


async def test_a_vcenter_that_does_not_answer_is_asked_once_for_each() -> None:
    looking = FakeReconciler({"vm-3": "pvc-a"}, vcenter_answers=False)
    assert await looking.terminating_names() == {"r3"}
    assert looking.refreshed_refs == [["vm-3"]]
