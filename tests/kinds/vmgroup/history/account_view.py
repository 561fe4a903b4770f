"""What an account sees of a vCenter: updates of the inventory, and reads."""

from __future__ import annotations

from collections.abc import Callable

from support.inventory_builder import DEFAULT_ROWS, enter_update
from vsphere_operators.vsphere.faults import Denied, NotFound
from vsphere_operators.vsphere.updates import DISK_TYPE, TYPE_KEY, ObjectUpdate, Ref, Value

from .model import Task, Vm, VmFolder, Watch

HOSTS = ("host-1", "host-2", "host-3")
TEMPLATES = {"t": "vm-1", "t2": "vm-2"}
PARENT_FOLDER = "group-v2"

# Where vCenter has another name than the method of the history.
DESCRIPTIONS = {"identify": "reconfigure"}


class AccountView:
    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.vms: list[Vm] = []
        self.folders: dict[str, VmFolder] = {}
        self.tasks: dict[str, Task] = {}
        self.hosts = dict.fromkeys(HOSTS, "connected")
        self.watches: list[Watch] = []

    @property
    def now(self) -> float:
        return self.clock()

    def is_registered(self, vm: Vm) -> bool:
        return not vm.missing_until

    def is_seen(self, vm: Vm) -> bool:
        folder = self.folders.get(vm.folder)
        return not (
            vm.hidden
            or vm.missing_until
            or vm.visible_at > self.now
            or (folder is not None and folder.hidden)
        )

    def find(self, ref: str) -> Vm:
        """A VM by reference, for a call of the account."""
        vm = next((vm for vm in self.vms if vm.ref == ref and self.is_registered(vm)), None)
        if vm is None:
            raise NotFound(f"{ref} does not exist", fault="ManagedObjectNotFound")
        folder = self.folders.get(vm.folder)
        if vm.hidden or (folder is not None and folder.hidden):
            raise Denied("no permission", fault="NoPermission")
        return vm

    def publish(self, update: ObjectUpdate) -> None:
        for watch in self.watches:
            watch.queue.append((self.now, update))

    def publish_vm(self, vm: Vm) -> None:
        if self.is_seen(vm):
            self.publish(self.build_vm_update(vm))

    def publish_leave(self, vm: Vm) -> None:
        self.publish(ObjectUpdate("leave", "VirtualMachine", vm.ref))

    def list_updates(self) -> list[ObjectUpdate]:
        updates = [enter_update(*row) for row in DEFAULT_ROWS if row[1] not in (*HOSTS, "vm-1")]
        owner: dict[str, Value] = {"owner": Ref("ComputeResource", "domain-c1")}
        updates += [
            ObjectUpdate("modify", "ResourcePool", ref, owner)
            for ref in ("resgroup-1", "resgroup-2")
        ]
        updates += [self.build_host_update(host) for host in self.hosts]
        for name, ref in TEMPLATES.items():
            updates.append(
                enter_update(
                    "VirtualMachine",
                    ref,
                    name,
                    PARENT_FOLDER,
                    config__template=True,
                    runtime__host=Ref("HostSystem", "host-1"),
                    runtime__connectionState="connected",
                )
            )
        updates += [
            self.build_folder_update(folder)
            for folder in self.folders.values()
            if not folder.hidden
        ]
        updates += [self.build_task_update(task) for task in self.tasks.values()]
        return updates + [self.build_vm_update(vm) for vm in self.vms if self.is_seen(vm)]

    def build_host_update(self, host: str) -> ObjectUpdate:
        return enter_update(
            "HostSystem",
            host,
            host,
            "domain-c1",
            runtime__connectionState=self.hosts[host],
            runtime__inMaintenanceMode=False,
        )

    def build_folder_update(self, folder: VmFolder) -> ObjectUpdate:
        return enter_update("Folder", folder.ref, folder.name, folder.parent)

    def build_task_update(self, task: Task) -> ObjectUpdate:
        description = DESCRIPTIONS.get(task.method, task.method)
        error: dict[str, Value] = {"fault": {TYPE_KEY: task.fault}} if task.fault else {}
        return ObjectUpdate(
            "enter",
            "Task",
            task.ref,
            {
                "info.state": task.state,
                "info.descriptionId": f"VirtualMachine.{description}",
                "info.entity": Ref("VirtualMachine", task.entity),
                "info.entityName": task.entity_name,
                "info.error": error or None,
            },
        )

    def build_vm_update(self, vm: Vm) -> ObjectUpdate:
        # vCenter reports no configuration of a VM with inaccessible files.
        config: dict[str, Value] = {
            "config.instanceUuid": vm.instance_uuid,
            "summary.config.numCpu": vm.cpus,
            "summary.config.memorySizeMB": vm.memory_mb,
            "summary.config.vmPathName": f"[fast] {vm.replica or vm.name}/x.vmx",
            "config.changeVersion": str(vm.change_version),
        }
        if vm.inaccessible:
            config["config.instanceUuid"] = config["config.changeVersion"] = None
        connected = self.hosts.get(vm.host) == "connected"
        return ObjectUpdate(
            "enter",
            "VirtualMachine",
            vm.ref,
            {
                "name": vm.name,
                "parent": Ref("Folder", vm.folder),
                "runtime.host": Ref("HostSystem", vm.host),
                "runtime.powerState": vm.power,
                "runtime.connectionState": "inaccessible"
                if vm.inaccessible
                else "connected"
                if connected
                else "disconnected",
                **config,
            },
        )

    def read(self, type_name: str, ref: str, paths: list[str]) -> ObjectUpdate | None:
        """RetrievePropertiesEx of one object; None if it does not exist."""
        if type_name == "Folder":
            folder = self.folders.get(ref)
            if folder is None:
                return None
            if folder.hidden:
                return ObjectUpdate("enter", type_name, ref, {}, tuple(paths))
            return ObjectUpdate("enter", type_name, ref, {"childEntity": self.list_children(ref)})
        try:
            vm = self.find(ref)
        except NotFound:
            return None
        except Denied:
            return ObjectUpdate("enter", type_name, ref, {}, tuple(paths))
        config_paths = [path for path in paths if path.startswith("config.")]
        if vm.inaccessible and config_paths:
            return ObjectUpdate("enter", type_name, ref, {"name": vm.name}, tuple(config_paths))
        directory = vm.replica or vm.name
        disks: list[dict[str, Value]] = [
            {TYPE_KEY: DISK_TYPE, "backing": {"fileName": f"[fast] {file}"}}
            for file in (f"{directory}/x.vmdk", vm.disk)
            if file
        ]
        options: list[dict[str, Value]] = [
            {"key": key, "value": value} for key, value in vm.extra_config.items()
        ]
        values: dict[str, Value] = {
            "name": vm.name,
            "parent": Ref("Folder", vm.folder),
            "config.template": False,
            "config.changeVersion": str(vm.change_version),
            "config.instanceUuid": vm.instance_uuid,
            "config.files.vmPathName": f"[fast] {directory}/x.vmx",
            "config.extraConfig": tuple(options),
            "config.hardware.device": tuple(disks),
        }
        return ObjectUpdate("enter", type_name, ref, {path: values[path] for path in paths})

    def list_children(self, ref: str) -> tuple[Value, ...]:
        return tuple(
            Ref("ManagedEntity", child.ref)
            for child in (*self.vms, *self.folders.values())
            if (child.parent if isinstance(child, VmFolder) else child.folder) == ref
            and (isinstance(child, VmFolder) or self.is_registered(child))
        )
