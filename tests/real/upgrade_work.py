"""What VmGroups do while one manager replaces another: tasks in progress, and adopted VMs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

from kubewright.testing import eventually
from support.simulator_state import SimulatorVm, read_simulator_state
from support.vmgroup_client import group_folder_path, has_replica_name, list_group_vms

from .original_operator import create_original_vms
from .release_upgrade import NAMESPACE, ObjectId, UpgradeSite


class PendingWork:
    """The tasks that run while managers change: a clone, and two deletions of a VM."""

    def __init__(self, site: UpgradeSite, number: int) -> None:
        self.vcenter, self.groups = site.vcenter, site.groups
        self.cloning, self.deleting, self.scaling = (
            f"{work}-{number}" for work in ("cloning", "deleting", "scaling")
        )
        self.names = {self.cloning, self.deleting, self.scaling}

    async def begin(self) -> None:
        await self.vcenter.hold_clones(50)
        await self.vcenter.hold_calls("Destroy_Task", "task", count=2)
        self.scaled_refs = {vm.ref for vm in await self._list_vms(self.scaling)}
        self.deleted_uid = (await self.groups.get(self.deleting))["metadata"]["uid"]
        await self.groups.create(self.cloning, replicas=1)
        await self.groups.delete(self.deleting)
        await self.groups.patch_spec(self.scaling, replicas=1)

        async def are_held() -> bool:
            return len(await self.vcenter.held_calls()) == 3

        await eventually(are_held, within=60)

    async def _list_vms(self, group: str) -> list[SimulatorVm]:
        uid = (await self.groups.get(group))["metadata"]["uid"]
        return await list_group_vms(self.vcenter, uid)

    async def finish(self) -> None:
        """Release the tasks, and check that they end as one VM, one VM and none."""
        await self.vcenter.release_calls()
        await self.groups.wait_until_deleted(self.deleting)
        assert await list_group_vms(self.vcenter, self.deleted_uid) == []
        folders = {entity["path"] for entity in await self.vcenter.entities()}
        assert group_folder_path(NAMESPACE, self.deleting) not in folders
        for name in (self.cloning, self.scaling):
            await self.groups.wait_for_phase(name, "RUNNING", predicate=_has_one_replica)
        (clone,) = await self._list_vms(self.cloning)
        assert has_replica_name(self.cloning, clone)
        uid = (await self.groups.get(self.cloning))["metadata"]["uid"]
        assert (await read_simulator_state(self.vcenter)).peak_by_uid[uid] == 1
        (kept,) = await self._list_vms(self.scaling)
        assert kept.ref in self.scaled_refs


def _has_one_replica(status: dict[str, Any]) -> bool:
    return bool(status.get("currentReplicas") == status.get("desiredReplicas") == 1)


@dataclass
class AdoptedGroup:
    """A group that has adopted two VMs of the original operator."""

    site: UpgradeSite
    name: str
    # The instanceUuids before the adoption, by the names of the VMs.
    original_uuids: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> ObjectId:
        return ("vmgroup", self.name)

    @property
    def origin_fields(self) -> set[str]:
        """The paths of `adoptedFrom` in the status."""
        return {f"replicas.{name}.adoptedFrom" for name in self.original_uuids}

    async def create(self) -> None:
        await create_original_vms(self.site.vcenter, NAMESPACE, self.name, count=2)
        self.original_uuids = await self.read_instance_uuids()
        assert len(self.original_uuids) == 2
        await self.site.groups.create(self.name, replicas=2)

        async def is_adoptable() -> bool:
            adoption = (await self.site.groups.get(self.name)).get("status", {}).get("adoption", {})
            return [vm["verdict"] for vm in adoption.get("vms", [])] == ["Adoptable"] * 2

        await eventually(is_adoptable, within=60, every=0.2)
        await self._run_adopt("--yes")
        await self.site.groups.wait_for_phase(
            self.name, "RUNNING", predicate=lambda status: status.get("currentReplicas") == 2
        )
        assert await self.read_origins() == self.original_uuids

    async def undo(self) -> None:
        """Undo the adoption: no VM is created or deleted, and each has its old instanceUuid."""
        names = (await self.read_instance_uuids()).keys()
        await self._run_adopt("--undo", "--yes")
        uuids = await self.read_instance_uuids()
        assert uuids.keys() == names
        assert {name: uuids[name] for name in self.original_uuids} == self.original_uuids
        assert await self.read_origins() == {}

    async def read_instance_uuids(self) -> dict[str, str]:
        """The instanceUuids of the VMs in the group's folder, by their names."""
        folder = group_folder_path(NAMESPACE, self.name)
        vms = (await read_simulator_state(self.site.vcenter)).vms
        return {vm.name: vm.instance_uuid for vm in vms if vm.folder == folder}

    async def read_origins(self) -> dict[str, str]:
        """`adoptedFrom` of the replicas that have it, as the API server returns it."""
        objects = await asyncio.to_thread(self.site.read_objects)
        return {
            replica["name"]: replica["adoptedFrom"]
            for replica in objects[self.key]["status"]["replicas"]
            if replica.get("adoptedFrom")
        }

    async def wait_for_origins(self) -> None:
        """Wait until the API server returns `adoptedFrom`, some time after its CRD has it."""

        async def are_returned() -> bool:
            return await self.read_origins() == self.original_uuids

        await eventually(are_returned, within=30, every=0.2)

    async def _run_adopt(self, *flags: str) -> None:
        """`kubectl vsphere adopt` of this version."""
        command = [sys.executable, "-m", "vsphere_operators.kubectl", "adopt", self.name]
        done = await asyncio.to_thread(
            subprocess.run,
            [*command, "-n", NAMESPACE, *flags],
            env={**os.environ, "KUBECONFIG": str(self.site.plane.admin_kubeconfig)},
            capture_output=True,
            text=True,
            timeout=150,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
