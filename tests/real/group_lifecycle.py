"""The life of one group, told so that a manager may die in it at any call: what people do, and what must be true at every instant.

    create 3, strangers come, scale 5, one VM deleted and one powered off outside, scale 2, bad template, another one, delete

The truth is the simulator's and the API server's. The simulator counts, at each change of its own, VMs with the group's mark plus
clones under way with it; the most that it ever counted may not be more than the group may have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.simulator_state import SimulatorVm, read_simulator_state
from support.vmgroup_client import (
    PARENT_FOLDER,
    VmGroupClient,
    group_folder_path,
    has_phase,
    has_replica_name,
    is_running,
    list_group_vms,
)

from .crash_injection import CrashInjector
from .vsphere_user import VSphereUser

CONVERGENCE_SECONDS = 60.0
# A manager that never comes back must not hang the run: the death, the start, and then the promise.
TIMEOUT_SECONDS = 2 * CONVERGENCE_SECONDS
OTHER_TEMPLATE = "vm-operator-template-2"
GROUP_NAME = "life"


@dataclass
class GroupLifecycle:
    """One group in a namespace of its own; `play` raises AssertionError with what was not true."""

    control_plane: ControlPlane
    vcenter: SimulatedVCenter
    namespace: str
    injector: CrashInjector
    uid: str = ""
    foreign_vms: dict[str, SimulatorVm] = field(default_factory=dict)
    """By reference, as they were: VMs of other people."""
    current_step: str = ""

    @property
    def groups(self) -> VmGroupClient:
        return VmGroupClient(self.control_plane, self.namespace)

    @property
    def folder(self) -> str:
        return group_folder_path(self.namespace, GROUP_NAME)

    async def run(self) -> None:
        """All of it."""
        for step in (
            self.create_group,
            self.scale_up,
            self.delete_and_power_off,
            self.scale_down,
            self.set_missing_template,
            self.set_other_template,
            self.delete_group,
        ):
            self.current_step = step.__name__
            await step()
        await self.injector.wait_for_restart()
        self.check_call_targets()

    # What people do

    async def create_group(self) -> None:
        """Three replicas; then strangers move in, one of them a copy of a replica, mark and all."""
        await self.vcenter.create_vm(f"{self.namespace}-beside", folder=PARENT_FOLDER, on=True)
        self.foreign_vms = {vm.ref: vm for vm in (await read_simulator_state(self.vcenter)).vms}
        self.uid = (await self.groups.create(GROUP_NAME))["metadata"]["uid"]
        await self.wait_until(lambda: self.is_in_desired_state(3))
        await self.check_vm_peak(3)
        replica = (await self.list_owned_vms())[0]
        came = [
            await self.vcenter.create_vm(f"{self.namespace}-stranger", folder=self.folder),
            await VSphereUser(self.vcenter).clone(replica.ref, f"{GROUP_NAME}-replica-copy"),
        ]
        self.foreign_vms |= {
            vm.ref: vm for vm in (await read_simulator_state(self.vcenter)).vms if vm.ref in came
        }
        assert [vm.folder for vm in self.foreign_vms.values() if vm.ref in came] == [
            self.folder
        ] * 2
        await self.vcenter.reset_census_peaks()

    async def scale_up(self) -> None:
        """Two more."""
        await self.check_vm_peak(3)
        await self.groups.patch_spec(GROUP_NAME, replicas=5)
        await self.wait_until(lambda: self.is_in_desired_state(5))
        await self.check_vm_peak(5)

    async def delete_and_power_off(self) -> None:
        """One is deleted and one powered off by a person."""
        lost, stopped = (await self.list_owned_vms())[:2]
        await asyncio.gather(
            self.vcenter.delete(lost.ref), self.vcenter.set_power(stopped.ref, False)
        )
        await self.wait_until(lambda: self.is_in_desired_state(5))
        assert stopped.ref in {vm.ref for vm in await self.list_owned_vms()}
        await self.check_vm_peak(5)

    async def scale_down(self) -> None:
        """Three too many."""
        await self.groups.patch_spec(GROUP_NAME, replicas=2)
        await self.wait_until(lambda: self.is_in_desired_state(2))
        await self.check_vm_peak(5)
        await self.vcenter.reset_census_peaks()

    async def set_missing_template(self) -> None:
        """A template that nobody has: nothing that works is touched."""
        before = {vm.ref for vm in await self.list_owned_vms()}
        await self.groups.patch_spec(GROUP_NAME, template="doesNotExist")
        await self.wait_until(self.has_template_error)
        assert {vm.ref for vm in await self.list_owned_vms()} == before

    async def set_other_template(self) -> None:
        """Another template, to which the replicas roll."""
        before = {vm.ref for vm in await self.list_owned_vms()}
        await self.groups.patch_spec(GROUP_NAME, template=OTHER_TEMPLATE)
        await self.wait_until(lambda: self.is_in_desired_state(2))
        assert before & {vm.ref for vm in await self.list_owned_vms()} == set(), (
            "a replica of the old template is left"
        )
        await self.check_vm_peak(2)

    async def delete_group(self) -> None:
        """The strangers leave the folder, as they came; the group goes, and takes all that is its own along."""
        await self.check_foreign_vms()
        for ref in self.foreign_refs_in_folder:
            await self.vcenter.delete(ref)
            del self.foreign_vms[ref]
        await self.vcenter.reset_census_peaks()
        await self.groups.delete(GROUP_NAME)
        await self.wait_until(self.is_deleted)
        await self.check_foreign_vms()
        await self.check_vm_peak(2)

    # What is true

    @property
    def foreign_refs_in_folder(self) -> list[str]:
        """Strangers in the group's folder."""
        return [ref for ref, each in self.foreign_vms.items() if each.folder == self.folder]

    async def list_owned_vms(self) -> list[SimulatorVm]:
        """The group's VMs."""
        return [
            vm
            for vm in await list_group_vms(self.vcenter, self.uid)
            if vm.ref not in self.foreign_vms
        ]

    async def is_in_desired_state(self, replicas: int) -> bool:
        """Whether there are exactly so many, all as they should be, and the group says so."""
        seen, group = await read_simulator_state(self.vcenter), await self.groups.get(GROUP_NAME)
        ours = await self.list_owned_vms()
        good = all(
            vm.power == "poweredOn"
            and vm.folder == self.folder
            and has_replica_name(GROUP_NAME, vm)
            for vm in ours
        )
        under_way = [clone for clone in seen.clones if clone.folder == self.folder]
        return (
            len(ours) == replicas
            and good
            and not under_way
            and is_running(group)
            and group["spec"]["replicas"] == replicas
        )

    async def has_template_error(self) -> bool:
        """Whether the group names the template that is missing."""
        group = await self.groups.get(GROUP_NAME)
        return has_phase(group, "ERROR") and "doesNotExist" in group["status"]["lastMessage"]

    async def is_deleted(self) -> bool:
        """Whether nothing of the group is left, here or there."""
        if await self.groups.find(GROUP_NAME):
            return False
        folders = {
            entity["path"] for entity in await self.vcenter.entities() if entity["type"] == "Folder"
        }
        left = [*await self.list_owned_vms(), *(folders & {self.folder})]
        assert not left, f"the object is gone, but not {left}"
        return True

    async def wait_until(self, check: Callable[[], Awaitable[bool]]) -> None:
        """Wait until it is true; it must be within the promised time of this step's begin, or of the restart that came in it."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await eventually(check, within=TIMEOUT_SECONDS, every=0.05)
        except AssertionError as never:
            raise AssertionError(
                f"{self.current_step}: {never}; {await self.describe_state()}"
            ) from never
        await self.injector.wait_for_restart()
        seconds = loop.time() - max(began, self.injector.restarted_at or 0.0)
        assert seconds <= CONVERGENCE_SECONDS, f"{self.current_step}: it took {seconds:.1f} s"

    async def describe_state(self) -> dict[str, Any]:
        """What there is, for words about what went wrong."""
        group = await self.groups.find(GROUP_NAME) or {}
        vms = [(vm.ref, vm.name, vm.power) for vm in await self.list_owned_vms()]
        return {
            "vms": vms,
            "spec": group.get("spec"),
            "status": group.get("status"),
            "calls": list(map(str, self.injector.calls[-8:])),
        }

    async def check_vm_peak(self, most: int) -> None:
        """There were never more VMs and clones under way than this, copies by people apart, since the last reset."""
        copies = sum(
            vm.marks.get("vsphere-operators.uid") == self.uid for vm in self.foreign_vms.values()
        )
        counted = (await read_simulator_state(self.vcenter)).peak_by_uid.get(self.uid, 0) - copies
        assert counted <= most, (
            f"{self.current_step}: {counted} VMs and clones at once, and {most} are allowed"
        )

    async def check_foreign_vms(self) -> None:
        """They are as they were."""
        now = {vm.ref: vm for vm in (await read_simulator_state(self.vcenter)).vms}
        assert {ref: now.get(ref) for ref in self.foreign_vms} == self.foreign_vms

    def check_call_targets(self) -> None:
        """No call ever went to somebody else's VM; a template may be cloned."""
        others = [
            call
            for call in self.injector.calls
            if call.target in self.foreign_vms and call.operation != "CloneVM_Task"
        ]
        assert others == []
