"""Events by administrators and users of vCenter, and by strangers."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid5

from vsphere_operators.kinds.vmgroup.ownership import _UUID_NAMESPACE, folder_name, replica_name
from vsphere_operators.vsphere.updates import ObjectUpdate
from vsphere_operators.vsphere.vm_calls import CloneSpec

from .account_view import PARENT_FOLDER, TEMPLATES
from .api import NAMESPACE, terminating_replicas
from .appliance import DISCOVERED_FOLDER, Appliance
from .base import HistoryBase
from .model import Vm, VmFolder
from .world import RETURN_SECONDS


class VCenterUsers(HistoryBase):
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
        if not self.is_recorded():
            return False
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
        inside = [vm for vm in appliance.vms if vm.host == host and not vm.missing_until]
        if any(not vm.clone and not self.is_known(vm) for vm in inside):
            # The account would never see its VM, which then counts as deleted.
            return False
        for vm in inside:
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
        # The clone for a replica and the VM that a user has restored do not have one name now.
        self.world.raise_allowed_usage(is_known=True)
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
        if any(vm.clone or not self.is_known(vm) for vm in inside) or any(
            # The account would never see its VM, which then counts as deleted.
            spec.folder == folder.ref
            for _, spec in self.world.list_clones()
        ):
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

        vm = self.choose_vm()
        if vm is not None:
            self.set_cpus(vm, 4)
        await self.world.finish_work()
        return vm is not None

    def set_cpus(self, vm: Vm, cpus: int) -> None:
        vm.cpus_before = min(vm.cpus, vm.cpus_before or vm.cpus)
        vm.cpus, vm.change_version = cpus, vm.change_version + 1
        vm.is_unread = not self.world.is_mark_read(vm)
        self.appliance.publish_vm(vm)
        self.world.raise_allowed_usage(is_known=not vm.is_unread)

    async def attach_disk(self) -> bool:
        def attach(vm: Vm) -> None:
            vm.disk = "" if vm.disk else "pvc-1/data.vmdk"
            vm.disk_attached_at = self.world.now

        return self.change_vm(attach, changes_config=True)

    def add_to_terminating(self, uid: str) -> None:
        """Disks to the VMs of a group that are to be destroyed, and a VM to an empty folder."""
        appliance, obj = self.appliance, self.world.list_groups().get(uid, {})
        names = terminating_replicas(obj)
        for vm in appliance.vms:
            if vm.owner == uid and vm.replica in names and not vm.disk and not vm.clone:
                vm.disk, vm.disk_attached_at = "pvc-1/data.vmdk", self.world.now
                vm.change_version += 1
                appliance.publish_vm(vm)
        folder = (obj.get("status", {}).get("folder") or {}).get("ref", "")
        if folder in appliance.folders and not appliance.list_children(folder):
            name = f"moved-{self.random.getrandbits(20)}"
            self.world.add_user_vm(appliance, name, folder)

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
        if vm is not None:
            self.delete(vm)
        return vm is not None

    def delete(self, vm: Vm) -> None:
        if self.random.random() < 0.6:
            task = self.appliance.add_task("destroy", vm.ref, 0.0, fails=False)
            self.appliance.finish(task, "")
        self.appliance.remove_vm(vm)

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
        template = self.random.choice(list(TEMPLATES.values()))
        self.start_foreign_clone(template, self.random.choice([2.0, 20.0, 90.0]), fails=False)
        return True

    def start_foreign_clone(self, template: str, seconds: float, *, fails: bool) -> None:
        appliance = self.appliance
        folders = [DISCOVERED_FOLDER, *appliance.folders]
        managed = [ref for ref, folder in appliance.folders.items() if folder.managed]
        folder = self.random.choice(managed or folders)
        if folder == DISCOVERED_FOLDER:
            folder = self.random.choice(list(appliance.folders))
        spec = CloneSpec(
            template=template,
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
            seconds=seconds,
            fails=fails,
            shown_after=0.3,
            visibility_delay=0.0,
        )

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
