"""One vCenter: what exists in it, what an account sees of it, and what it accepts.

It checks the name of a clone only when the VM appears, shows the VM long before or later than the
end of the task, and gives references that were assigned after a backup to other objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid5

from vsphere_operators.kinds.vmgroup.ownership import _UUID_NAMESPACE, mark_from_extra_config
from vsphere_operators.vsphere.faults import Busy, Denied, NotAuthenticated, NotFound, Rejected
from vsphere_operators.vsphere.updates import ObjectUpdate
from vsphere_operators.vsphere.vm_calls import CloneSpec

from .account_view import HOSTS, PARENT_FOLDER, TEMPLATES, AccountView
from .model import Identity, Task, Vm, VmFolder

# Where vCenter puts VMs that it finds on a host.
DISCOVERED_FOLDER = "group-v1"
TASK_KEPT_SECONDS = 600.0


class Appliance(AccountView):
    """`choose` draws the course of each task, and `report` is called for a forbidden action."""

    def __init__(
        self,
        instance_uuid: str,
        clock: Callable[[], float],
        choose: Callable[[], dict[str, Any]],
        report: Callable[[str], None],
    ) -> None:
        super().__init__(clock)
        self.instance_uuid, self.report = instance_uuid, report
        self._choose = choose
        self.session_epoch = 1
        self.numbers = {"vm": 100, "group-v": 100, "task": 100}
        self.destroyed: list[Vm] = []
        self.counts = {"clone": 0, "destroy": 0, "foreign clone": 0}

    def new_ref(self, kind: str) -> str:
        self.numbers[kind] += 1
        return f"{kind}{'' if kind == 'group-v' else '-'}{self.numbers[kind]}"

    def check_session(self, epoch: int) -> None:
        if epoch != self.session_epoch:
            raise NotAuthenticated("the session is not authenticated", fault="NotAuthenticated")

    def end_sessions(self) -> None:
        self.session_epoch, self.watches = self.session_epoch + 1, []

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
        if folder.hidden:
            raise Denied("no permission", fault="NoPermission")
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
        if folder.hidden:
            raise Denied("no permission", fault="NoPermission")
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

    def set_identity(self, ref: str, identity: Identity) -> str:
        vm = self.find(ref)
        if vm.clone is not None or self.find_task_of(vm):
            raise Busy("another task runs", fault="TaskInProgress")
        if str(vm.change_version) != identity.change_version:
            raise Busy("the VM has changed", fault="ConcurrentAccess")
        if vm.inaccessible:
            raise Rejected("the VM is inaccessible", fault="InvalidState")
        course = self._choose()
        task = self.add_task("identify", ref, min(8.0, course["seconds"]), fails=course["fails"])
        task.vm, task.identity = vm, identity
        return task.ref

    def find_task_of(self, vm: Vm) -> Task | None:
        return next(
            (task for task in self.tasks.values() if task.vm is vm and task.state == "running"),
            None,
        )

    def add_task(self, method: str, entity: str, seconds: float, *, fails: bool) -> Task:
        task = Task(self.new_ref("task"), method, entity, self.now + seconds, fails)
        # A missing VM may have the same reference.
        registered = [vm for vm in self.vms if vm.ref == entity and self.is_registered(vm)]
        task.entity_name = registered[0].name if registered else ""
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
            elif owner:
                self.report(f"{spec.name} of {owner} is cloned, and {twins[0].label} exists")
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
            case "identify":
                self.apply_identity(task, vm)
            case "destroy":
                self.finish(task, "")
                return self.remove_vm(vm)
        self.publish_vm(vm)

    def apply_identity(self, task: Task, vm: Vm) -> None:
        identity = task.identity
        assert identity is not None
        options = vm.extra_config | identity.extra_config
        vm.extra_config = {key: value for key, value in options.items() if value}
        vm.instance_uuid, vm.change_version = identity.instance_uuid, vm.change_version + 1
        mark = mark_from_extra_config(vm.extra_config)
        vm.owner = mark.group_id.uid if mark else ""
        vm.replica = mark.replica_name if mark else ""
        outcome = "adopt" if mark and mark.origin else "give back"
        self.counts[outcome] = self.counts.get(outcome, 0) + 1

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
