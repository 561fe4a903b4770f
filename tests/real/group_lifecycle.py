"""The lifecycle of one group, in which a manager may be killed at any call, and its invariants.

    create 3, add foreign VMs, scale to 5, delete one VM and power one off, scale to 2,
    set a missing template, set another template, delete

The state is read from the simulator and the API server. At each change, the simulator counts the
VMs with the group's mark plus the clones in progress. That number may never exceed what the group
may have.
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
# A manager that does not come back must not hang the run: crash, start, then convergence.
TIMEOUT_SECONDS = 2 * CONVERGENCE_SECONDS
OTHER_TEMPLATE = "vm-operator-template-2"
GROUP_NAME = "life"


@dataclass
class GroupLifecycle:
    """One group in a namespace of its own; `run` raises AssertionError if an invariant fails."""

    control_plane: ControlPlane
    vcenter: SimulatedVCenter
    namespace: str
    injector: CrashInjector
    uid: str = ""
    # VMs that do not belong to the group, by reference, as they were at first.
    foreign_vms: dict[str, SimulatorVm] = field(default_factory=dict)
    current_step: str = ""

    @property
    def groups(self) -> VmGroupClient:
        return VmGroupClient(self.control_plane, self.namespace)

    @property
    def folder(self) -> str:
        return group_folder_path(self.namespace, GROUP_NAME)

    async def run(self) -> None:
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

    # Steps

    async def create_group(self) -> None:
        """Three replicas; then foreign VMs, one of them a copy of a replica with its mark."""
        await self.vcenter.create_vm(f"{self.namespace}-foreign-1", folder=PARENT_FOLDER, on=True)
        self.foreign_vms = {vm.ref: vm for vm in (await read_simulator_state(self.vcenter)).vms}
        self.uid = (await self.groups.create(GROUP_NAME))["metadata"]["uid"]
        await self.wait_until(lambda: self.is_in_desired_state(3))
        await self.check_vm_peak(3)
        replica = (await self.list_owned_vms())[0]
        new_refs = [
            await self.vcenter.create_vm(f"{self.namespace}-foreign-2", folder=self.folder),
            await VSphereUser(self.vcenter).clone(replica.ref, f"{GROUP_NAME}-replica-copy"),
        ]
        self.foreign_vms |= {
            vm.ref: vm
            for vm in (await read_simulator_state(self.vcenter)).vms
            if vm.ref in new_refs
        }
        assert [vm.folder for vm in self.foreign_vms.values() if vm.ref in new_refs] == [
            self.folder
        ] * 2
        await self.vcenter.reset_census_peaks()

    async def scale_up(self) -> None:
        await self.check_vm_peak(3)
        await self.groups.patch_spec(GROUP_NAME, replicas=5)
        await self.wait_until(lambda: self.is_in_desired_state(5))
        await self.check_vm_peak(5)

    async def delete_and_power_off(self) -> None:
        """A user deletes one VM and powers off another."""
        deleted, stopped = (await self.list_owned_vms())[:2]
        await asyncio.gather(
            self.vcenter.delete(deleted.ref), self.vcenter.set_power(stopped.ref, False)
        )
        await self.wait_until(lambda: self.is_in_desired_state(5))
        assert stopped.ref in {vm.ref for vm in await self.list_owned_vms()}
        await self.check_vm_peak(5)

    async def scale_down(self) -> None:
        await self.groups.patch_spec(GROUP_NAME, replicas=2)
        await self.wait_until(lambda: self.is_in_desired_state(2))
        await self.check_vm_peak(5)
        await self.vcenter.reset_census_peaks()

    async def set_missing_template(self) -> None:
        """Set a template that does not exist: running VMs are not touched."""
        before = {vm.ref for vm in await self.list_owned_vms()}
        await self.groups.patch_spec(GROUP_NAME, template="doesNotExist")
        await self.wait_until(self.has_template_error)
        assert {vm.ref for vm in await self.list_owned_vms()} == before

    async def set_other_template(self) -> None:
        """Set another template: all replicas are replaced."""
        before = {vm.ref for vm in await self.list_owned_vms()}
        await self.groups.patch_spec(GROUP_NAME, template=OTHER_TEMPLATE)
        await self.wait_until(lambda: self.is_in_desired_state(2))
        assert before & {vm.ref for vm in await self.list_owned_vms()} == set(), (
            "a replica of the old template remains"
        )
        await self.check_vm_peak(2)

    async def delete_group(self) -> None:
        """Delete the foreign VMs, unchanged until then, and the group with its VMs and folder."""
        await self.check_foreign_vms()
        for ref in self.foreign_refs_in_folder:
            await self.vcenter.delete(ref)
            del self.foreign_vms[ref]
        await self.vcenter.reset_census_peaks()
        await self.groups.delete(GROUP_NAME)
        await self.wait_until(self.is_deleted)
        await self.check_foreign_vms()
        await self.check_vm_peak(2)

    # Checks

    @property
    def foreign_refs_in_folder(self) -> list[str]:
        return [ref for ref, vm in self.foreign_vms.items() if vm.folder == self.folder]

    async def list_owned_vms(self) -> list[SimulatorVm]:
        return [
            vm
            for vm in await list_group_vms(self.vcenter, self.uid)
            if vm.ref not in self.foreign_vms
        ]

    async def is_in_desired_state(self, replicas: int) -> bool:
        """Whether the group has exactly these VMs, and its status reports it."""
        state, group = await read_simulator_state(self.vcenter), await self.groups.get(GROUP_NAME)
        vms = await self.list_owned_vms()
        has_desired_vms = all(
            vm.power == "poweredOn"
            and vm.folder == self.folder
            and has_replica_name(GROUP_NAME, vm)
            for vm in vms
        )
        clones_in_progress = [clone for clone in state.clones if clone.folder == self.folder]
        return (
            len(vms) == replicas
            and has_desired_vms
            and not clones_in_progress
            and is_running(group)
            and group["spec"]["replicas"] == replicas
        )

    async def has_template_error(self) -> bool:
        """Whether the group reports the missing template."""
        group = await self.groups.get(GROUP_NAME)
        return has_phase(group, "ERROR") and "doesNotExist" in group["status"]["lastMessage"]

    async def is_deleted(self) -> bool:
        """Whether the object, its VMs and its folder are gone."""
        if await self.groups.find(GROUP_NAME):
            return False
        folders = {
            entity["path"] for entity in await self.vcenter.entities() if entity["type"] == "Folder"
        }
        left = [*await self.list_owned_vms(), *(folders & {self.folder})]
        assert not left, f"the object is gone, but not {left}"
        return True

    async def wait_until(self, check: Callable[[], Awaitable[bool]]) -> None:
        """Wait until the check holds, within CONVERGENCE_SECONDS of the step or of a restart."""
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        try:
            await eventually(check, within=TIMEOUT_SECONDS, every=0.05)
        except AssertionError as error:
            raise AssertionError(
                f"{self.current_step}: {error}; {await self.describe_state()}"
            ) from error
        await self.injector.wait_for_restart()
        seconds = loop.time() - max(started_at, self.injector.restarted_at or 0.0)
        assert seconds <= CONVERGENCE_SECONDS, f"{self.current_step}: it took {seconds:.1f} s"

    async def describe_state(self) -> dict[str, Any]:
        """The current state, for error messages."""
        group = await self.groups.find(GROUP_NAME) or {}
        vms = [(vm.ref, vm.name, vm.power) for vm in await self.list_owned_vms()]
        return {
            "vms": vms,
            "spec": group.get("spec"),
            "status": group.get("status"),
            "calls": list(map(str, self.injector.calls[-8:])),
        }

    async def check_vm_peak(self, most: int) -> None:
        """Since the last reset there were never more VMs and clones, without copies by users."""
        copies = sum(
            vm.marks.get("vsphere-operators.uid") == self.uid for vm in self.foreign_vms.values()
        )
        counted = (await read_simulator_state(self.vcenter)).peak_by_uid.get(self.uid, 0) - copies
        assert counted <= most, (
            f"{self.current_step}: {counted} VMs and clones at once, and {most} are allowed"
        )

    async def check_foreign_vms(self) -> None:
        now = {vm.ref: vm for vm in (await read_simulator_state(self.vcenter)).vms}
        assert {ref: now.get(ref) for ref in self.foreign_vms} == self.foreign_vms

    def check_call_targets(self) -> None:
        """No call was sent to a foreign VM, except to clone a template."""
        others = [
            call
            for call in self.injector.calls
            if call.target in self.foreign_vms and call.operation != "CloneVM_Task"
        ]
        assert others == []
