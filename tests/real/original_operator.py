"""What the original VmGroup operator leaves in vCenter: folders and VMs, named as it names them."""

from __future__ import annotations

import random
from string import ascii_lowercase
from typing import Any

from pyVmomi import vim

from simulator import SimulatedVCenter
from support.vmgroup_client import PARENT_FOLDER, TEMPLATE

from .vsphere_user import VSphereUser, wait_for_result

MB_PER_GB = 1024


async def create_original_vms(
    vcenter: SimulatedVCenter,
    namespace: str,
    group: str,
    *,
    count: int,
    cpu: int = 1,
    memory: int = 1,
) -> list[str]:
    """Clone the template as the original operator does, powered on; returns the references."""
    suffixes = ["".join(random.choices(ascii_lowercase, k=8)) for _ in range(count)]
    names = [f"{group}-replica-{suffix}" for suffix in suffixes]
    return await clone_into_folder(
        vcenter, f"{namespace}-{group}", names, cpu=cpu, memory_mb=memory * MB_PER_GB
    )


async def clone_into_folder(
    vcenter: SimulatedVCenter,
    folder_name: str,
    names: list[str],
    *,
    cpu: int = 1,
    memory_mb: int = MB_PER_GB,
) -> list[str]:
    """Clones of the template in a folder below the parent folder, which is created if needed."""
    entities = await vcenter.entities()

    def find(path: str) -> str:
        return next((entity["ref"] for entity in entities if entity["path"] == path), "")

    pool = next(entity["ref"] for entity in entities if entity["type"] == "ResourcePool")
    template = next(entity["ref"] for entity in entities if entity["name"] == TEMPLATE)
    folder_ref = find(f"{PARENT_FOLDER}/{folder_name}")

    def clone_all(parent: Any) -> list[str]:
        stub = parent._stub
        folder = vim.Folder(folder_ref, stub) if folder_ref else parent.CreateFolder(folder_name)
        spec = vim.vm.CloneSpec(
            location=vim.vm.RelocateSpec(pool=vim.ResourcePool(pool, stub)),
            config=vim.vm.ConfigSpec(numCPUs=cpu, memoryMB=memory_mb),
            powerOn=True,
            template=False,
        )
        source = vim.VirtualMachine(template, stub)
        clones = [wait_for_result(source.CloneVM_Task(folder, name, spec)) for name in names]
        return [str(clone._moId) for clone in clones]

    refs: list[str] = await VSphereUser(vcenter).call_on(clone_all, find(PARENT_FOLDER), vim.Folder)
    return refs
