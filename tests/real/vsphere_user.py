"""A user of vCenter that changes VMs with pyVmomi's own client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyVmomi import vim

from simulator import SimulatedVCenter
from support.pyvmomi_session import PyVmomiSession

TASK_TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.02
MARK_KEYS = ("cluster", "namespace", "name", "uid", "replica", "slot", "fingerprint")


@dataclass(frozen=True)
class VSphereUser:
    """Logs in for each action; VMs and folders are given by reference."""

    vcenter: SimulatedVCenter

    async def call_on(
        self, action: Callable[[Any], Any], ref: str, kind: Any = vim.VirtualMachine
    ) -> Any:
        """Run an action on an object; waits for a task and returns its result."""
        async with PyVmomiSession(self.vcenter) as session:
            return await asyncio.to_thread(
                lambda: wait_for_result(action(kind(ref, session.instance._stub)))
            )

    async def read_host(self, ref: str) -> str:
        return str(await self.call_on(lambda vm: vm.runtime.host._moId, ref))

    async def resize(self, ref: str, cpus: int) -> None:
        """Change the vCPUs of a VM that is off."""
        await self.call_on(lambda vm: vm.ReconfigVM_Task(vim.vm.ConfigSpec(numCPUs=cpus)), ref)

    async def suspend(self, ref: str) -> None:
        await self.call_on(lambda vm: vm.SuspendVM_Task(), ref)

    async def rename(self, ref: str, name: str) -> None:
        await self.call_on(lambda vm: vm.Rename_Task(name), ref)

    async def move_to_parent_folder(self, ref: str) -> None:
        await self.call_on(lambda vm: vm.parent.parent.MoveIntoFolder_Task([vm]), ref)

    async def move_to_folder(self, ref: str, folder: str) -> None:
        await self.call_on(lambda vm: vim.Folder(folder, vm._stub).MoveIntoFolder_Task([vm]), ref)

    async def migrate(self, ref: str, host: str) -> None:
        await self.call_on(
            lambda vm: vm.RelocateVM_Task(vim.vm.RelocateSpec(host=vim.HostSystem(host, vm._stub))),
            ref,
        )

    async def remove_mark(self, ref: str) -> None:
        options = [
            vim.option.OptionValue(key=f"vsphere-operators.{key}", value="") for key in MARK_KEYS
        ]
        await self.call_on(
            lambda vm: vm.ReconfigVM_Task(vim.vm.ConfigSpec(extraConfig=options)), ref
        )

    async def clone(self, ref: str, name: str) -> str:
        """Clone a VM into its folder, with its extraConfig. Returns the reference of the copy."""
        spec = vim.vm.CloneSpec(location=vim.vm.RelocateSpec(), powerOn=False, template=False)
        return str(
            (await self.call_on(lambda vm: vm.CloneVM_Task(vm.parent, name, spec), ref))._moId
        )


def wait_for_result(response: Any) -> Any:
    """The response; if it is a task, its result."""
    if not isinstance(response, vim.Task):
        return response
    deadline = time.monotonic() + TASK_TIMEOUT_SECONDS
    while response.info.state in ("queued", "running"):
        assert time.monotonic() < deadline, f"{response.info.descriptionId} did not end"
        time.sleep(POLL_SECONDS)
    assert response.info.state == "success", response.info.error
    return response.info.result
