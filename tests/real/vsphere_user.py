"""What a person does to VMs in the vSphere Client, by pyVmomi's own client."""

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
    """One person, who logs in for each deed; VMs and folders are named by reference."""

    vcenter: SimulatedVCenter

    async def call_on(
        self, deed: Callable[[Any], Any], ref: str, kind: Any = vim.VirtualMachine
    ) -> Any:
        """One deed on an object; a task is waited for, and its result returned."""
        async with PyVmomiSession(self.vcenter) as truth:
            return await asyncio.to_thread(
                lambda: wait_for_result(deed(kind(ref, truth.instance._stub)))
            )

    async def read_host(self, ref: str) -> str:
        """The reference of the host that it runs on."""
        return str(await self.call_on(lambda vm: vm.runtime.host._moId, ref))

    async def resize(self, ref: str, cpus: int) -> None:
        """Give a VM that is off other vCPUs."""
        await self.call_on(lambda vm: vm.ReconfigVM_Task(vim.vm.ConfigSpec(numCPUs=cpus)), ref)

    async def suspend(self, ref: str) -> None:
        """Suspend a VM."""
        await self.call_on(lambda vm: vm.SuspendVM_Task(), ref)

    async def rename(self, ref: str, name: str) -> None:
        """Rename a VM."""
        await self.call_on(lambda vm: vm.Rename_Task(name), ref)

    async def move_to_parent_folder(self, ref: str) -> None:
        """Move a VM into the folder above its own."""
        await self.call_on(lambda vm: vm.parent.parent.MoveIntoFolder_Task([vm]), ref)

    async def move_to_folder(self, ref: str, folder: str) -> None:
        """Move a VM into a folder."""
        await self.call_on(lambda vm: vim.Folder(folder, vm._stub).MoveIntoFolder_Task([vm]), ref)

    async def migrate(self, ref: str, host: str) -> None:
        """Move a running VM to another host."""
        await self.call_on(
            lambda vm: vm.RelocateVM_Task(vim.vm.RelocateSpec(host=vim.HostSystem(host, vm._stub))),
            ref,
        )

    async def remove_mark(self, ref: str) -> None:
        """Take the mark away."""
        options = [
            vim.option.OptionValue(key=f"vsphere-operators.{key}", value="") for key in MARK_KEYS
        ]
        await self.call_on(
            lambda vm: vm.ReconfigVM_Task(vim.vm.ConfigSpec(extraConfig=options)), ref
        )

    async def clone(self, ref: str, name: str) -> str:
        """Clone a VM beside itself: the copy has its extraConfig. Returns the copy's reference."""
        spec = vim.vm.CloneSpec(location=vim.vm.RelocateSpec(), powerOn=False, template=False)
        return str(
            (await self.call_on(lambda vm: vm.CloneVM_Task(vm.parent, name, spec), ref))._moId
        )


def wait_for_result(answer: Any) -> Any:
    """The answer, or the result of the task that it is."""
    if not isinstance(answer, vim.Task):
        return answer
    deadline = time.monotonic() + TASK_TIMEOUT_SECONDS
    while answer.info.state in ("queued", "running"):
        assert time.monotonic() < deadline, f"{answer.info.descriptionId} did not end"
        time.sleep(POLL_SECONDS)
    assert answer.info.state == "success", answer.info.error
    return answer.info.result
