"""Backups of vCenters and of single VMs, and what follows when they are restored."""

from __future__ import annotations

import copy
from uuid import uuid5

from vsphere_operators.kinds.vmgroup.ownership import _UUID_NAMESPACE

from .appliance import DISCOVERED_FOLDER
from .model import Task, Vm
from .vcenter_users import VCenterUsers
from .world import RETURN_SECONDS


class Restores(VCenterUsers):
    async def back_up(self) -> bool:
        """vCenter, and the statuses in the API server."""
        appliance = self.appliance
        self.backups[appliance.instance_uuid] = (
            [(vm, vm.ref, vm.name, vm.folder) for vm in appliance.vms if not vm.missing_until],
            copy.deepcopy(appliance.folders),
            dict(appliance.numbers),
        )
        self.statuses = {
            uid: obj.get("status", {}) for uid, obj in self.world.list_groups().items()
        }
        return True

    async def restore_vcenter(self) -> bool:
        """VMs created since are not found yet, those destroyed since are back."""
        appliance, world = self.appliance, self.world
        backup = self.backups.get(appliance.instance_uuid)
        if backup is None or not self.is_recorded():
            return False
        vms, folders, numbers = backup
        appliance.end_sessions()
        for task in appliance.tasks.values():
            if task.vm is not None and task.vm.clone is task and task.vm in appliance.vms:
                appliance.vms.remove(task.vm)
        appliance.tasks.clear()
        appliance.folders, appliance.numbers = copy.deepcopy(folders), dict(numbers)
        vms_of_backup = {vm for vm, *_ in vms}
        for vm in appliance.vms:
            if vm.folder not in folders:
                vm.folder = DISCOVERED_FOLDER
            if vm not in vms_of_backup and not vm.missing_until:
                vm.missing_until = world.now + RETURN_SECONDS
        for vm, ref, name, folder in vms:
            if vm.missing_until:
                continue
            if vm not in appliance.vms:
                uuids = {other.instance_uuid for other in appliance.vms}
                if vm.clone or vm.instance_uuid in uuids or vm.host not in appliance.hosts:
                    continue
                self.bring_back(vm)
            vm.ref, vm.name, vm.folder = ref, name, folder
        world.raise_allowed_usage()
        return True

    def bring_back(self, vm: Vm) -> None:
        self.appliance.vms.append(vm)
        vm.hidden, vm.missing_until, vm.clone, vm.visible_at = False, 0.0, None, 0.0
        vm.inaccessible = False
        vm.returned = vm.is_unread = bool(vm.owner)

    async def restore_vm(self) -> bool:
        """A backup of one VM is restored: into its folder, with its uuid if that is free."""
        appliance = self.appliance
        if not appliance.destroyed:
            return False
        vm = appliance.destroyed.pop()
        if vm in appliance.vms or vm.clone or vm.host not in appliance.hosts:
            return False
        if any(vm.name == other.name and vm.folder == other.folder for other in appliance.vms):
            return False
        vm.ref = appliance.new_ref("vm")
        if vm.folder not in appliance.folders:
            vm.folder = DISCOVERED_FOLDER
        if any(vm.instance_uuid == other.instance_uuid for other in appliance.vms):
            # vCenter keeps uuids unique. It is no replica any more.
            vm.instance_uuid = str(uuid5(_UUID_NAMESPACE, vm.ref))
            vm.owner = ""
        self.bring_back(vm)
        vm.visible_at = self.world.now
        appliance.publish_vm(vm)
        self.world.raise_allowed_usage()
        return True

    async def reuse_task(self) -> bool:
        """A vCenter is restored to before two clones, and the second one's task is used again.

        The second VM exists, and no manager has stored that. The first is known to be missing:
        without that, a manager cannot know of the restore.
        """
        world, appliance, name = self.world, self.appliance, self.choose_name()
        if not name or not await self.back_up():
            return False
        before = list(appliance.vms)
        if await self.run_clone_of(name) is None:
            return False
        await world.run_manager(5)
        task = await self.run_clone_of(name)
        is_first_known = any(
            vm not in before and self.is_known(vm) and vm.power == "poweredOn"
            for vm in self.list_idle_vms()
        )
        if task is None or not is_first_known or not await self.restore_vcenter():
            return False
        if self.random.random() < 0.5:
            await world.run_manager(self.random.choice([2, 12]))
        # Other clients have started the tasks before it, unless the manager has.
        number = int(task.ref.removeprefix("task-"))
        appliance.numbers["task"] = max(appliance.numbers["task"], number - 1)
        match self.random.choice(["clone", "other task", "own clone", "own clone"]):
            case "clone":
                seconds, fails = self.random.choice([0.5, 20.0]), self.random.random() < 0.7
                self.start_foreign_clone(task.entity, seconds, fails=fails)
            case "other task":
                appliance.add_task("powerOn", task.entity, 20.0, fails=False)
            case _:
                await self.lose_clone()
        if self.random.random() < 0.5:
            await world.start_manager()
        await world.run_manager(self.random.choice([12, 30]))
        return True

    async def run_clone_of(self, name: str) -> Task | None:
        """One more replica of a group. Nothing is stored after the task of its clone."""
        world, path = self.world, self.world.api.path_of(name)
        if path not in world.api.objects:
            return None
        replicas = world.api.objects[path]["spec"]["replicas"]
        world.api.edit(name, paused=False, replicas=min(4, replicas + 1))
        for _ in range(6):
            await self.reconcile_group(name)
            await world.answer_all()
            status = world.api.objects.get(path, {}).get("status", {})
            for replica in status.get("replicas", ()):
                task = self.appliance.tasks.get(replica.get("task", ""))
                if replica.get("state") == "Cloning" and task and task.state == "running":
                    while not task.ended_at:
                        await world.advance(1.0)
                    return task
        return None

    async def reconcile_group(self, name: str) -> None:
        """Start the reconcile of a group, by a manager that is up to date."""
        manager = self.world.manager
        manager.receive_objects(1000)
        manager.vcenter.receive(1000)
        for key in [key for key in manager.store.objects if key.name == name]:
            manager.start_reconcile(key)
        await self.world.settle()

    async def lose_clone(self) -> None:
        """A manager sends a clone and dies; its VM is not needed any more."""
        world, name = self.world, self.choose_name()
        world.api.edit(name, paused=False, replicas=4)
        for _ in range(20):
            await self.reconcile_group(name)
            while calls := [call for call in world.pending if call.name != "clone"]:
                calls[0].answer()
                await world.settle()
            if world.pending:
                break
            await world.advance(1.0)
        for call in world.pending:
            call.perform()
        # What is allowed follows from each spec that the group had.
        world.check()
        if name in self.list_names():
            policy = self.random.choice(["", "Destroy", "Orphan"])
            world.api.edit(name, replicas=1, deletionPolicy=policy or "Destroy")
            if policy:
                world.api.delete(world.api.path_of(name), {})
        await world.start_manager()
