"""What happens in a history: a random event after another, and at the end a recovery.

`run_history(seed)` raises AssertionError if an invariant is violated, or if a group does not
become correct and quiet after all disturbances have ended.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid5

from vsphere_operators.kinds.vmgroup.ownership import _UUID_NAMESPACE, folder_name, replica_name
from vsphere_operators.vsphere.updates import ObjectUpdate
from vsphere_operators.vsphere.vm_calls import CloneSpec

from .api import NAMESPACE
from .appliance import DISCOVERED_FOLDER, PARENT_FOLDER, TEMPLATES, Appliance, Vm, VmFolder
from .world import RETURN_SECONDS, World

EVENTS_PER_HISTORY = 70
MAX_GROUPS = 3


class History:
    """The events of one world."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.random, self.last_group = self.world.random, 0
        # The last backup of each vCenter, and of the API server.
        self.backups: dict[str, Any] = {}
        self.statuses: dict[str, Any] = {}

    @property
    def appliance(self) -> Appliance:
        return self.world.served

    def list_names(self) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.world.api.objects.values()]

    def choose_name(self) -> str:
        names = self.list_names()
        return self.random.choice(names) if names else ""

    def choose_vm(self, *, idle: bool = True) -> Vm | None:
        """A VM of a group that users see."""
        vms = [
            vm
            for vm in self.appliance.vms
            if vm.owner
            and not vm.missing_until
            and not vm.visible_at
            and (not idle or not (vm.clone or self.appliance.find_task_of(vm)))
        ]
        return self.random.choice(vms) if vms else None

    def is_recorded(self) -> bool:
        """Whether the status of every group has all its VMs, and no clone is only in its records.

        Otherwise nothing would be left that knows of a VM that leaves the inventory.
        """
        recorded = {
            (uid, replica["name"])
            for uid, obj in self.world.list_groups().items()
            for replica in obj.get("status", {}).get("replicas", ())
        }
        groups = self.world.list_groups()
        return all(
            vm.owner not in groups
            or (
                (vm.owner, vm.replica) in recorded
                # Until the manager has seen it, the record has another VM that was deleted.
                and (not vm.returned or bool(vm.missing_until) or self.is_known(vm))
            )
            for _, vm in self.world.list_vms()
        )

    def is_idle(self, uid: str) -> bool:
        """Whether nothing of the group is in progress, and all its VMs are visible."""
        world = self.world
        calls = [*world.pending, *(call for _, call in world.late)]
        return (
            not any(owner == uid for owner, _ in world.list_clones())
            and all(
                (vm.owner != uid)
                or (
                    appliance is world.served
                    and appliance.is_seen(vm)
                    and not vm.clone
                    and not vm.inaccessible
                    and not appliance.find_task_of(vm)
                )
                for appliance, vm in world.list_vms()
            )
            and all(call.is_read for call in calls)
        )

    # The manager and its servers

    async def run_manager(self) -> bool:
        await self.world.run_manager(self.random.choice([2, 5, 10]))
        return True

    async def wait(self) -> bool:
        await self.world.advance(self.random.choice([0.5, 1.0, 3.0, 12.0]))
        return True

    async def wait_long(self) -> bool:
        await self.world.run_manager(320, stride=20)
        return True

    async def reconcile(self) -> bool:
        """Start the reconcile of a group, which may stop at any call."""
        return await self.start_reconcile(self.random.choice([0, 1, 2, 4, 8]))

    async def start_reconcile(self, answers: int, *, until_write: bool = False) -> bool:
        world, manager = self.world, self.world.manager
        if self.random.random() < 0.7:
            # A manager that is up to date, and has what it needs.
            manager.receive_objects(1000)
            manager.vcenter.receive(1000)
            manager.start_poll()
            await world.settle()
            for call in [call for call in world.pending if call.name in ("login", "load", "read")]:
                call.answer()
                await world.settle()
        keys = sorted(manager.store.objects)
        if not keys:
            return False
        manager.start_reconcile(self.random.choice(keys))
        await world.settle()
        for _ in range(answers):
            calls = [call for call in world.pending if not until_write or call.is_read]
            if not calls:
                break
            self.random.choice(calls).answer()
            await world.settle()
        return True

    async def interrupt(self) -> bool:
        """A reconcile stops at a call that changes something: no answer, or no manager any more."""
        world = self.world
        await self.start_reconcile(12, until_write=True)
        calls = [call for call in world.pending if not call.is_read]
        if not calls:
            return False
        call = self.random.choice(calls)
        if self.random.random() < 0.3:
            call.perform()
        roll = self.random.random()
        if roll < 0.4:
            return await self.crash()
        if roll < 0.7:
            world.lose(call)
            await world.settle()
        return True

    async def perform_call(self) -> bool:
        """A server performs a call; the answer is on its way."""
        calls = [call for call in self.world.pending if not call.is_performed]
        if calls:
            self.random.choice(calls).perform()
        return bool(calls)

    async def answer_call(self) -> bool:
        if self.world.pending:
            self.random.choice(self.world.pending).answer()
            await self.world.settle()
            return True
        return False

    async def lose_answer(self) -> bool:
        if self.world.pending:
            self.world.lose(self.random.choice(self.world.pending))
            await self.world.settle()
            return True
        return False

    async def receive_updates(self) -> bool:
        self.world.manager.vcenter.receive(self.random.choice([1, 2, 1000]))
        await self.world.settle()
        return True

    async def receive_objects(self) -> bool:
        self.world.manager.receive_objects(self.random.choice([1, 2, 1000]))
        await self.world.settle()
        return True

    async def crash(self) -> bool:
        """With a first list that may be old."""
        await self.world.start_manager(stale_events=self.random.choice([0, 0, 0, 1, 4]))
        return True

    async def end_session(self) -> bool:
        self.appliance.end_sessions()
        return True

    # Users of Kubernetes

    def choose_spec(self) -> dict[str, Any]:
        chance = self.random
        surge = chance.randint(0, 2)
        return {
            # Small enough that most requests fit, and large enough that some do not.
            "replicas": chance.randint(1, 4),
            "cpu": chance.choice([1, 1, 2, 3]),
            "memory": chance.choice([1, 1, 2, 3]),
            "template": chance.choice(["t", "t", "t", "t2"]),
            "paused": chance.random() < 0.2,
            "powerState": chance.choice(["poweredOn", "poweredOn", "poweredOff"]),
            "rollout": {
                "maxSurge": surge,
                "maxUnavailable": chance.randint(0 if surge else 1, 2),
                "strategy": chance.choice(["RollingUpdate", "RollingUpdate", "OnDelete"]),
            },
        }

    async def create_group(self) -> bool:
        if len(self.list_names()) >= MAX_GROUPS:
            return False
        self.last_group += 1
        # Also under the name of a group that existed.
        name = f"g{self.random.randint(1, self.last_group)}"
        if name in self.list_names():
            name = f"g{self.last_group}"
        if name in self.list_names():
            return False
        self.world.api.create_group(name, self.choose_spec() | {"paused": False})
        return True

    async def edit_group(self) -> bool:
        name = self.choose_name()
        if name:
            spec = self.choose_spec()
            fields = self.random.sample(sorted(spec), self.random.randint(1, 3))
            self.world.api.edit(name, **{field: spec[field] for field in fields})
        return bool(name)

    async def scale_group(self) -> bool:
        """Also of a paused group, which keeps its VMs."""
        name = self.choose_name()
        if name:
            self.world.api.edit(
                name, replicas=self.random.randint(1, 4), paused=self.random.random() < 0.3
            )
        return bool(name)

    async def delete_group(self) -> bool:
        name = self.choose_name()
        if name:
            self.world.api.edit(name, deletionPolicy=self.random.choice(["Destroy", "Orphan"]))
            self.world.api.delete(self.world.api.path_of(name), {})
        return bool(name)

    async def remove_finalizer(self) -> bool:
        """By hand: the VMs stay."""
        name = self.choose_name()
        if not name:
            return False
        uid = self.world.api.objects[self.world.api.path_of(name)]["metadata"]["uid"]
        if not self.is_idle(uid) or not self.is_recorded():
            return False
        self.world.api.remove_finalizers(name)
        return True

    async def restore_object(self) -> bool:
        """From a backup without status, or with an old one, while no manager runs."""
        name, world = self.choose_name(), self.world
        if not name:
            return False
        obj = world.api.objects[world.api.path_of(name)]
        uid = obj["metadata"]["uid"]
        if not self.is_idle(uid) or "deletionTimestamp" in obj["metadata"]:
            return False
        world.api.set_status(name, self.statuses.get(uid, {}) if self.random.random() < 0.5 else {})
        await world.start_manager()
        stored = world.list_groups()[uid].get("status", {}).get("replicas", ())
        world.allowed_counts[uid] = max(world.allowed_counts.get(uid, 0), len(stored))
        # Until the status is rebuilt, nothing but the VMs shows what exists.
        await world.run_manager(3)
        return True

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
        if vm.owner:
            vm.returned = True
            self.world.allowed_counts[vm.owner] = self.world.allowed_counts.get(vm.owner, 0) + 1

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

    # The address of the vCenter

    async def rename_vcenter(self) -> bool:
        """The same vCenter under another name and address."""
        names = ["vc", "vc.corp.local", "10.0.0.5"]
        names.remove(self.world.vcenter_name)
        self.world.vcenter_name = self.random.choice(names)
        await self.world.start_manager()
        return True

    async def swap_vcenter(self) -> bool:
        """Another vCenter at the same address, while the manager runs or not."""
        world = self.world
        first, second = world.appliances
        world.served = second if world.served is first else first
        if self.random.random() < 0.5:
            await world.start_manager()
        world.raise_allowed_usage()
        return True

    # Administrators of vCenter

    async def remove_host(self) -> bool:
        appliance = self.appliance
        hosts = sorted(appliance.hosts.keys() - {"host-1"})
        if not hosts or not self.is_recorded():
            return False
        host = self.random.choice(hosts)
        for vm in [vm for vm in appliance.vms if vm.host == host and not vm.missing_until]:
            appliance.publish_leave(vm)
            if vm.clone is not None:
                appliance.vms.remove(vm)
            else:
                vm.missing_until = self.world.now + RETURN_SECONDS
        del appliance.hosts[host]
        if self.random.random() < 0.5:
            # The VMs leave first.
            self.world.manager.vcenter.receive(1000)
            await self.world.answer_all()
        appliance.publish(ObjectUpdate("leave", "HostSystem", host))
        return True

    async def add_host(self) -> bool:
        missing = sorted({"host-2", "host-3"} - self.appliance.hosts.keys())
        if missing:
            self.world.add_host(self.appliance, self.random.choice(missing))
        return bool(missing)

    async def disconnect_host(self) -> bool:
        appliance, host = self.appliance, self.random.choice(sorted(self.appliance.hosts))
        is_connected = appliance.hosts[host] == "connected"
        appliance.hosts[host] = "disconnected" if is_connected else "connected"
        appliance.publish(appliance.build_host_update(host))
        for vm in appliance.vms:
            if vm.host == host:
                appliance.publish_vm(vm)
        return True

    async def hide_vm(self) -> bool:
        """The account loses a permission, or gets it back."""
        vm = self.choose_vm()
        if vm is None or not self.is_recorded() or not self.is_known(vm):
            return False
        self.set_hidden(vm, not vm.hidden)
        return True

    def is_known(self, vm: Vm) -> bool:
        """Whether its reference is stored: without it, a VM that stays hidden counts as deleted."""
        obj = self.world.list_groups().get(vm.owner, {})
        return not obj or any(
            (replica["name"], replica.get("moRef")) == (vm.replica, vm.ref)
            for replica in obj.get("status", {}).get("replicas", ())
        )

    def set_hidden(self, vm: Vm, hidden: bool) -> None:
        was_seen = self.appliance.is_seen(vm)
        vm.hidden = hidden
        if was_seen and hidden:
            self.appliance.publish_leave(vm)
        else:
            self.appliance.publish_vm(vm)
        self.world.raise_allowed_usage()

    async def hide_folder(self) -> bool:
        folders = [folder for folder in self.appliance.folders.values() if folder.managed]
        if not folders or not self.is_recorded():
            return False
        folder = self.random.choice(folders)
        inside = [vm for vm in self.appliance.vms if vm.folder == folder.ref]
        if any(vm.clone or not self.is_known(vm) for vm in inside):
            return False
        self.set_folder_hidden(self.appliance, folder, not folder.hidden)
        return True

    def set_folder_hidden(self, appliance: Appliance, folder: VmFolder, hidden: bool) -> None:
        inside = [vm for vm in appliance.vms if vm.folder == folder.ref and not vm.missing_until]
        folder.hidden = hidden
        for vm in inside:
            if hidden:
                appliance.publish_leave(vm)
            else:
                appliance.publish_vm(vm)
        update = appliance.build_folder_update(folder)
        appliance.publish(ObjectUpdate("leave", "Folder", folder.ref) if hidden else update)
        self.world.raise_allowed_usage()

    # Users of vCenter

    async def suspend_vm(self) -> bool:
        return self.change_vm(lambda vm: setattr(vm, "power", "suspended"), needs_power=True)

    async def power_vm(self) -> bool:
        power = self.random.choice(["poweredOn", "poweredOff"])
        return self.change_vm(lambda vm: setattr(vm, "power", power))

    async def break_vm(self) -> bool:
        return self.change_vm(lambda vm: setattr(vm, "inaccessible", not vm.inaccessible))

    async def rename_vm(self) -> bool:
        return self.change_vm(lambda vm: setattr(vm, "name", f"mine {vm.ref}"))

    async def move_vm(self) -> bool:
        folder = self.random.choice([DISCOVERED_FOLDER, *self.appliance.folders])
        return self.change_vm(lambda vm: setattr(vm, "folder", folder))

    async def resize_vm(self) -> bool:
        await self.world.finish_work()

        def resize(vm: Vm) -> None:
            vm.cpus, vm.resized = 4, True

        is_changed = self.change_vm(resize, changes_config=True, is_known=True)
        await self.world.finish_work()
        return is_changed

    async def attach_disk(self) -> bool:
        def attach(vm: Vm) -> None:
            vm.disk = "" if vm.disk else "pvc-1/data.vmdk"
            vm.disk_attached_at = self.world.now

        return self.change_vm(attach, changes_config=True)

    def change_vm(
        self,
        change: Callable[[Vm], None],
        *,
        needs_power: bool = False,
        changes_config: bool = False,
        is_known: bool = False,
    ) -> bool:
        vm = self.choose_vm()
        if vm is None or (needs_power and vm.power != "poweredOn"):
            return False
        was_seen = self.appliance.is_seen(vm)
        change(vm)
        vm.change_version += changes_config
        if was_seen and not self.appliance.is_seen(vm):
            self.appliance.publish_leave(vm)
        self.appliance.publish_vm(vm)
        self.world.raise_allowed_usage(is_known=is_known)
        return True

    async def delete_vm(self) -> bool:
        """With a task, or by unregistering it."""
        vm = self.choose_vm()
        if vm is None:
            return False
        if self.random.random() < 0.6:
            task = self.appliance.add_task("destroy", vm.ref, 0.0, fails=False)
            self.appliance.finish(task, "")
        self.appliance.remove_vm(vm)
        return True

    async def delete_folder(self) -> bool:
        folders = [folder for folder in self.appliance.folders.values() if folder.managed]
        if not folders:
            return False
        folder = self.random.choice(folders)
        vms = [vm for vm in self.appliance.vms if vm.folder == folder.ref]
        # vCenter rejects it with TaskInProgress while a VM in it has a task.
        if any(vm.clone or vm.missing_until or self.appliance.find_task_of(vm) for vm in vms):
            return False
        for vm in vms:
            self.appliance.remove_vm(vm)
        del self.appliance.folders[folder.ref]
        self.appliance.publish(ObjectUpdate("leave", "Folder", folder.ref))
        return True

    # Strangers

    def choose_stranger_name(self) -> str:
        group = self.choose_name() or "g1"
        letters = "".join(self.random.choice("abcdefgh") for _ in range(8))
        records: list[str] = [
            replica["name"]
            for obj in self.world.list_groups().values()
            for replica in obj.get("status", {}).get("replicas", ())
        ]
        return self.random.choice(
            [f"stranger-{letters}", replica_name(group, letters), *records[:1]]
        )

    async def clone_template(self) -> bool:
        """Into the folder of a group if there is one; the clone may take long."""
        appliance = self.appliance
        managed = [ref for ref, folder in appliance.folders.items() if folder.managed]
        folder = self.random.choice(managed or list(appliance.folders))
        spec = CloneSpec(
            template=self.random.choice(list(TEMPLATES.values())),
            folder=folder,
            name=self.choose_stranger_name(),
            resource_pool="resgroup-1",
            cpus=1,
            memory_mb=1024,
            instance_uuid=str(uuid5(_UUID_NAMESPACE, f"stranger {appliance.numbers}")),
        )
        appliance.start_clone(
            spec,
            "",
            seconds=self.random.choice([2.0, 20.0, 90.0]),
            fails=False,
            shown_after=0.3,
            visibility_delay=0.0,
        )
        return True

    async def copy_vm(self) -> bool:
        """A copy of a replica has its extraConfig, and an instanceUuid of its own."""
        vm = self.choose_vm()
        if vm is None:
            return False
        folder = self.random.choice([vm.folder, DISCOVERED_FOLDER])
        name = f"copy of {vm.name} {vm.ref}"
        self.world.add_user_vm(self.appliance, name, folder, dict(vm.extra_config))
        return True

    async def add_stranger(self) -> bool:
        """A VM without mark; or a folder, which may get the reference of one that was lost."""
        folders = [ref for ref, folder in self.appliance.folders.items() if folder.managed]
        if self.random.random() < 0.5 or not folders:
            name = f"finance-{self.random.getrandbits(20)}"
            folder = self.appliance.add_folder(name, DISCOVERED_FOLDER, managed=False)
            self.world.add_user_vm(self.appliance, f"{name}-vm", folder.ref)
            return True
        parent, name = self.random.choice(folders), self.choose_stranger_name()
        if any(vm.name == name and vm.folder == parent for vm in self.appliance.vms):
            return False
        self.world.add_user_vm(self.appliance, name, parent)
        return True

    async def add_group_folder(self) -> bool:
        """A user makes the folder of a group first."""
        name = folder_name(NAMESPACE, self.choose_name() or "g1")
        folders = self.appliance.folders.values()
        if any((folder.name, folder.parent) == (name, PARENT_FOLDER) for folder in folders):
            return False
        self.appliance.add_folder(name, PARENT_FOLDER, managed=True)
        return True

    async def rename_folder(self) -> bool:
        folders = [folder for folder in self.appliance.folders.values() if folder.managed]
        if not folders:
            return False
        folder = self.random.choice(folders)
        folder.name = f"renamed-{folder.ref}"
        if not folder.hidden:
            self.appliance.publish(self.appliance.build_folder_update(folder))
        return True


WEIGHTS: dict[str, int] = {
    "run_manager": 14,
    "reconcile": 12,
    "interrupt": 8,
    "answer_call": 14,
    "perform_call": 6,
    "lose_answer": 3,
    "receive_updates": 5,
    "receive_objects": 5,
    "wait": 7,
    "wait_long": 1,
    "crash": 4,
    "end_session": 3,
    "create_group": 5,
    "edit_group": 6,
    "scale_group": 5,
    "delete_group": 2,
    "remove_finalizer": 1,
    "restore_object": 1,
    "back_up": 3,
    "restore_vcenter": 2,
    "restore_vm": 2,
    "rename_vcenter": 2,
    "swap_vcenter": 1,
    "remove_host": 2,
    "add_host": 2,
    "disconnect_host": 2,
    "hide_vm": 3,
    "hide_folder": 1,
    "suspend_vm": 4,
    "power_vm": 2,
    "break_vm": 1,
    "rename_vm": 1,
    "move_vm": 1,
    "resize_vm": 2,
    "attach_disk": 3,
    "delete_vm": 3,
    "delete_folder": 1,
    "clone_template": 4,
    "copy_vm": 1,
    "add_stranger": 2,
    "add_group_folder": 1,
    "rename_folder": 1,
}


async def run_events(history: History, count: int) -> None:
    world = history.world
    await world.start_manager()
    await history.create_group()
    if history.random.random() < 0.5:
        await history.create_group()
    # Most histories begin with VMs: otherwise few of them would ever have one to change.
    world.faults = False
    await world.run_manager(history.random.choice([0, 4, 10, 10]))
    world.faults = True
    names, weights = list(WEIGHTS), list(WEIGHTS.values())
    for _ in range(count):
        name = history.random.choices(names, weights)[0]
        world.events.append(f"{world.now:g} {name}")
        event: Callable[[], Awaitable[bool]] = getattr(history, name)
        if await event():
            world.counts[name] += 1
        world.check()


def run_history(seed: int, events: int = EVENTS_PER_HISTORY) -> World:
    """One history; raises AssertionError if an invariant is violated, or a group stays wrong."""
    from .recovery import recover

    async def run() -> World:
        history = History(seed)
        await run_events(history, events)
        await recover(history)
        for appliance in history.world.appliances:
            for name, count in appliance.counts.items():
                history.world.counts[f"vCenter {name}"] += count
        await history.world.manager.kill()
        return history.world

    return asyncio.run(run())
