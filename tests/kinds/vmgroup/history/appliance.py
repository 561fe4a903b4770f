"""One vCenter: what exists in it, what an account sees of it, and what it accepts.

It checks the name of a clone only when the VM appears, shows the VM long before or later than the
end of the task, and gives references that were assigned after a backup to other objects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid5

from support.inventory_builder import DEFAULT_ROWS, enter_update
from vsphere_operators.kinds.vmgroup.ownership import _UUID_NAMESPACE
from vsphere_operators.vsphere.faults import (
    Busy,
    Denied,
    NotAuthenticated,
    NotFound,
    Rejected,
)
from vsphere_operators.vsphere.updates import DISK_TYPE, TYPE_KEY, ObjectUpdate, Ref, Value
from vsphere_operators.vsphere.vm_calls import CloneSpec

HOSTS = ("host-1", "host-2", "host-3")
TEMPLATES = {"t": "vm-1", "t2": "vm-2"}
PARENT_FOLDER = "group-v2"
# Where vCenter puts VMs that it finds on a host.
DISCOVERED_FOLDER = "group-v1"
TASK_KEPT_SECONDS = 600.0


@dataclass(eq=False)
class Vm:
    ref: str
    name: str
    folder: str
    instance_uuid: str
    extra_config: dict[str, str]
    host: str
    cpus: int
    memory_mb: int
    # The uid of the group for which the manager cloned it, "" if a user made it; and its replica.
    owner: str = ""
    replica: str = ""
    power: str = "poweredOff"
    change_version: int = 1
    disk: str = ""
    disk_attached_at: float = 0.0
    # In the inventory, but the account does not see it.
    hidden: bool = False
    # Not in the inventory: its host was removed, or vCenter restored. It comes back at that time.
    missing_until: float = 0.0
    inaccessible: bool = False
    visible_at: float = 0.0
    # While its clone runs.
    clone: Task | None = None
    # A user brought it back after it was destroyed, or made it larger.
    returned: bool = False
    resized: bool = False

    @property
    def size(self) -> tuple[int, int, int]:
        return 1, self.cpus, self.memory_mb

    @property
    def label(self) -> str:
        return f"{self.ref} {self.name!r} of {self.owner or 'a user'}"


@dataclass(eq=False)
class VmFolder:
    ref: str
    name: str
    parent: str
    # Whether it was created by a manager, or has the name of a group's folder.
    managed: bool
    hidden: bool = False


@dataclass(eq=False)
class Task:
    ref: str
    method: str
    entity: str
    ends_at: float
    fails: bool
    state: Literal["running", "success", "error"] = "running"
    fault: str = ""
    ended_at: float = 0.0
    vm: Vm | None = None
    size: tuple[int, int] = (0, 0)
    spec: CloneSpec | None = None
    owner: str = ""
    # When a clone shows its VM; after its end, the VM is visible later.
    shown_at: float = 0.0
    visibility_delay: float = 0.0
    folder: str = ""


@dataclass(eq=False)
class Watch:
    """The updates that a manager has not received yet, each with the time of the change."""

    queue: deque[tuple[float, ObjectUpdate]] = field(default_factory=deque)


class Appliance:
    """`choose` draws the course of each task, and `report` is called for a forbidden action."""

    def __init__(
        self,
        instance_uuid: str,
        clock: Callable[[], float],
        choose: Callable[[], dict[str, Any]],
        report: Callable[[str], None],
    ) -> None:
        self.instance_uuid, self.clock, self.report = instance_uuid, clock, report
        self._choose = choose
        self.vms: list[Vm] = []
        self.folders: dict[str, VmFolder] = {}
        self.tasks: dict[str, Task] = {}
        self.hosts = dict.fromkeys(HOSTS, "connected")
        self.watch: Watch | None = None
        self.session_epoch = 1
        self.numbers = {"vm": 100, "group-v": 100, "task": 100}
        self.destroyed: list[Vm] = []
        self.counts = {"clone": 0, "destroy": 0, "foreign clone": 0}

    @property
    def now(self) -> float:
        return self.clock()

    def new_ref(self, kind: str) -> str:
        self.numbers[kind] += 1
        return f"{kind}{'' if kind == 'group-v' else '-'}{self.numbers[kind]}"

    def check_session(self, epoch: int) -> None:
        if epoch != self.session_epoch:
            raise NotAuthenticated("the session is not authenticated", fault="NotAuthenticated")

    def end_sessions(self) -> None:
        self.session_epoch, self.watch = self.session_epoch + 1, None

    # What an account sees

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
        if self.watch is not None:
            self.watch.queue.append((self.now, update))

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
        state = self.hosts[host]
        return enter_update("HostSystem", host, host, "domain-c1", runtime__connectionState=state)

    def build_folder_update(self, folder: VmFolder) -> ObjectUpdate:
        return enter_update("Folder", folder.ref, folder.name, folder.parent)

    def build_task_update(self, task: Task) -> ObjectUpdate:
        error: dict[str, Value] = {"fault": {TYPE_KEY: task.fault}} if task.fault else {}
        return ObjectUpdate(
            "enter",
            "Task",
            task.ref,
            {
                "info.state": task.state,
                "info.descriptionId": f"VirtualMachine.{task.method}",
                "info.entity": Ref("VirtualMachine", task.entity),
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

    # Calls of the manager. `sent_at` is when the manager sent it, `owner` its group.

    def create_folder(self, parent: str, name: str) -> str:
        if parent != PARENT_FOLDER:
            self.report(f"a folder is created in {parent}")
        if any((item.name, item.parent) == (name, parent) for item in self.folders.values()):
            raise Rejected("the name exists", fault="DuplicateName")
        return self.add_folder(name, parent, managed=True).ref

    def add_folder(self, name: str, parent: str, *, managed: bool) -> VmFolder:
        folder = VmFolder(self.new_ref("group-v"), name, parent, managed)
        self.folders[folder.ref] = folder
        self.publish(self.build_folder_update(folder))
        return folder

    def destroy_folder(self, ref: str, sent_at: float) -> str:
        folder = self.folders.get(ref)
        if folder is None:
            raise NotFound(f"{ref} does not exist", fault="ManagedObjectNotFound")
        if not folder.managed:
            self.report(f"the folder {folder.name!r} of a user is destroyed")
        if any(vm.clone for vm in self.vms if vm.folder == ref):
            raise Busy("a clone runs", fault="TaskInProgress")
        for vm in [vm for vm in self.vms if vm.folder == ref and self.is_registered(vm)]:
            # Within 2 s before the call, it is unregistered: a documented limit.
            if vm.visible_at <= sent_at - 2.0:
                self.report(f"{vm.label} is unregistered with its folder")
            self.vms.remove(vm)
            self.publish_leave(vm)
        del self.folders[ref]
        self.publish(ObjectUpdate("leave", "Folder", ref))
        return self.add_task("destroy", ref, 0.5, fails=False).ref

    def clone(self, spec: CloneSpec, owner: str) -> str:
        folder = self.folders.get(spec.folder)
        if folder is None or spec.template not in TEMPLATES.values():
            raise NotFound(f"{spec.folder} does not exist", fault="ManagedObjectNotFound")
        if not folder.managed:
            self.report(f"a clone is sent into the folder {folder.name!r} of a user")
        self.counts["clone"] += 1
        return self.start_clone(spec, owner, **self._choose()).ref

    def start_clone(
        self,
        spec: CloneSpec,
        owner: str,
        *,
        seconds: float,
        fails: bool,
        shown_after: float,
        visibility_delay: float,
    ) -> Task:
        task = self.add_task("clone", spec.template, seconds, fails=fails)
        task.spec, task.owner, task.folder = spec, owner, spec.folder
        task.shown_at, task.visibility_delay = self.now + shown_after * seconds, visibility_delay
        return task

    def change(self, method: str, ref: str, sent_at: float, size: tuple[int, int] = (0, 0)) -> str:
        """powerOn, powerOff, reconfigure or destroy."""
        vm = self.find(ref)
        if not vm.owner:
            self.report(f"{method} of {vm.label}")
        if vm.clone is not None:
            self.report(f"{method} of {vm.label} before its clone has ended")
            raise Busy("a clone runs", fault="TaskInProgress")
        if self.find_task_of(vm):
            raise Busy("another task runs", fault="TaskInProgress")
        allowed = {
            "powerOn": vm.power != "poweredOn",
            "powerOff": vm.power == "poweredOn",
            "reconfigure": vm.power == "poweredOff",
            "destroy": vm.power != "poweredOn",
        }
        if not allowed[method] or vm.inaccessible:
            raise Rejected(f"{method} while {vm.power}", fault="InvalidPowerState")
        if method == "destroy":
            self.counts["destroy"] += 1
            if vm.disk and vm.disk_attached_at <= sent_at - 2.0:
                self.report(f"{vm.label} is destroyed with the disk {vm.disk} of a user")
        course = self._choose()
        task = self.add_task(method, ref, min(8.0, course["seconds"]), fails=course["fails"])
        task.vm, task.size = vm, size
        return task.ref

    def find_task_of(self, vm: Vm) -> Task | None:
        return next(
            (task for task in self.tasks.values() if task.vm is vm and task.state == "running"),
            None,
        )

    def add_task(self, method: str, entity: str, seconds: float, *, fails: bool) -> Task:
        task = Task(self.new_ref("task"), method, entity, self.now + seconds, fails)
        self.tasks[task.ref] = task
        self.publish(self.build_task_update(task))
        return task

    # Time

    def advance(self) -> Iterator[Task]:
        """Continue all tasks; yields those that have ended."""
        for vm in self.vms:
            if 0.0 < vm.visible_at <= self.now:
                vm.visible_at = 0.0
                self.publish_vm(vm)
        for task in list(self.tasks.values()):
            if task.state != "running":
                if self.now - task.ended_at > TASK_KEPT_SECONDS:
                    del self.tasks[task.ref]
                    self.publish(ObjectUpdate("leave", "Task", task.ref))
                continue
            if task.method == "clone" and task.vm is None and task.shown_at <= self.now:
                self.show_clone(task)
            if task.state == "running" and task.ends_at <= self.now:
                self.end_task(task)
                yield task

    def show_clone(self, task: Task) -> None:
        spec = task.spec
        assert spec is not None
        if task.folder not in self.folders or any(
            vm.name == spec.name and vm.folder == task.folder and self.is_registered(vm)
            for vm in self.vms
        ):
            return self.finish(task, "DuplicateName")
        uuid, owner = spec.instance_uuid, task.owner
        twins = [vm for vm in self.vms if vm.instance_uuid == uuid and self.is_registered(vm)]
        if twins:
            # vCenter keeps uuids unique.
            uuid = str(uuid5(_UUID_NAMESPACE, f"duplicate {task.ref}"))
            if any(vm.returned for vm in twins):
                # A user restored the VM after the clone was sent: now there is a stray one.
                owner = ""
        host = HOSTS[self.numbers["vm"] % 3]
        task.vm = Vm(
            self.new_ref("vm"),
            spec.name,
            task.folder,
            uuid,
            dict(spec.extra_config),
            host if host in self.hosts else "host-1",
            spec.cpus,
            spec.memory_mb,
            owner,
            spec.name if owner else "",
            clone=task,
        )
        if task.shown_at >= task.ends_at and task.visibility_delay:
            task.vm.visible_at = self.now + task.visibility_delay
        self.vms.append(task.vm)
        self.publish_vm(task.vm)

    def end_task(self, task: Task) -> None:
        vm = task.vm
        if task.fails or (vm is not None and vm not in self.vms) or (vm and vm.missing_until):
            if task.method == "clone" and vm in self.vms:
                assert vm is not None
                self.vms.remove(vm)
                self.publish_leave(vm)
            return self.finish(task, "GenericVmConfigFault")
        if task.method == "clone":
            self.end_clone(task)
        elif vm is not None:
            self.apply_effect(task, vm)
        if task.state == "running":
            self.finish(task, "")

    def end_clone(self, task: Task) -> None:
        vm, spec = task.vm, task.spec
        if vm is None or spec is None:
            return self.finish(task, "DuplicateName")
        vm.clone, vm.power = None, "poweredOn" if spec.power_on else "poweredOff"
        self.publish_vm(vm)

    def apply_effect(self, task: Task, vm: Vm) -> None:
        match task.method:
            case "powerOn":
                vm.power = "poweredOn"
            case "powerOff":
                vm.power = "poweredOff"
            case "reconfigure":
                (vm.cpus, vm.memory_mb), vm.change_version = task.size, vm.change_version + 1
            case "destroy":
                self.finish(task, "")
                return self.remove_vm(vm)
        self.publish_vm(vm)

    def remove_vm(self, vm: Vm) -> None:
        self.vms.remove(vm)
        self.destroyed.append(vm)
        self.publish_leave(vm)

    def finish(self, task: Task, fault: str) -> None:
        task.state, task.fault = "error" if fault else "success", fault
        task.ended_at = self.now
        if task.vm is not None:
            task.vm.clone = None
        self.publish(self.build_task_update(task))
