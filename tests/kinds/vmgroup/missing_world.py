"""A vCenter that loses and finds VMs, and a manager with the real inventory, index and plan.

The vCenter keeps VMs that its inventory does not show: on a removed host, not found yet after a
restore, or hidden from the account. Clones and other tasks end at once; what may happen while they
run is the subject of simulation.py.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from support.inventory_builder import DEFAULT_ROWS, enter_update
from vsphere_operators.kinds.vmgroup.absence import AbsenceTracker
from vsphere_operators.kinds.vmgroup.clone_state import CloneTask, CloneTaskTracker, with_task
from vsphere_operators.kinds.vmgroup.group_memory import GroupMemoryStore
from vsphere_operators.kinds.vmgroup.model import (
    Action,
    Clone,
    CreateFolder,
    Destroy,
    PowerOff,
    PowerOn,
    ReplicaRecord,
)
from vsphere_operators.kinds.vmgroup.observation import GroupObserver, PlanInput
from vsphere_operators.kinds.vmgroup.ownership import (
    FolderClaim,
    OwnershipIndex,
    OwnershipMark,
    mark_to_extra_config,
)
from vsphere_operators.kinds.vmgroup.plan import plan
from vsphere_operators.kinds.vmgroup.step import GroupInput
from vsphere_operators.vsphere.faults import NotFound, Rejected
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.inventory_reload import InventoryReload
from vsphere_operators.vsphere.model import Host, VirtualMachine
from vsphere_operators.vsphere.updates import ObjectUpdate, Ref
from vsphere_operators.vsphere.vm_calls import VmConfig

from .replica_builder import DESIRED
from .simulation_model import GROUP_ID, VCENTER_ID

TIMEOUT_SECONDS = 300.0
# Everything that is missing comes back earlier than it counts as deleted.
RETURN_SECONDS = 250.0
HOSTS = ("host-1", "host-2", "host-3")


@dataclass
class WorldVm:
    ref: str
    mark: OwnershipMark
    instance_uuid: str
    host: str
    power: str = "poweredOn"
    # In the inventory, but the account does not see it.
    hidden: bool = False
    # On a host, but not in the inventory until then.
    missing_until: float = 0.0
    # Destroyed, and in the inventory again after a restore.
    returned: bool = False


class MissingWorld:
    """One group with its vCenter, its status and its manager."""

    def __init__(self, replicas: int) -> None:
        self.now, self.last_number = 1000.0, 10
        self.vms: list[WorldVm] = []
        self.backup: list[WorldVm] = []
        self.hosts = set(HOSTS)
        self.folder_ref = ""
        self.tasks: list[ObjectUpdate] = []
        self.records: tuple[ReplicaRecord, ...] = ()
        self.last_known_refs: dict[str, str] = {}
        self.replicas = self.max_vms = replicas
        self.clone_count = 0
        # The inventory shows a VM, and its mark only after `read_marks`.
        self.delays_marks = False
        self.start_manager()

    # The manager

    def start_manager(self) -> None:
        self.inventory, self.configs = Inventory("vc"), dict[str, VmConfig]()
        self.vcenter = make_any(
            inventory=self.inventory,
            clock=self.clock,
            watching_since=self.now,
            is_inventory_of_session=True,
            task_limiter=SimpleNamespace(free_slots=10),
            disks=SimpleNamespace(disks={}),
            vm_configs=SimpleNamespace(values=self.configs, get=self.configs.get, unreadable=set()),
            vm_calls=self,
        )
        self.index = OwnershipIndex(self.vcenter, lambda uid: None)
        self.absences = AbsenceTracker(
            self.vcenter, TIMEOUT_SECONDS, lambda: datetime.fromtimestamp(self.now, UTC)
        )
        self.memory_store, self.clones = GroupMemoryStore(self.clock), CloneTaskTracker(self.clock)
        self.observer = GroupObserver(
            self.vcenter, self.index, self.clones, self.memory_store, self.absences
        )
        self.inventory.connect(self.absences.on_vm_change, VirtualMachine, include_related=False)
        self.inventory.connect(self.absences.on_host_change, Host, include_related=False)
        self.inventory.connect(self.index.on_vm_change, VirtualMachine)
        self.load()

    def clock(self) -> float:
        return self.now

    def load(self) -> None:
        """Log in and read everything."""
        reload = InventoryReload(self.inventory, "A")
        reload.add(self.list_updates())
        reload.commit()
        self.vcenter.watching_since, self.watching = self.now, True

    def read_marks(self) -> None:
        for vm in self.vms:
            if vm.ref in self.index.unread_refs:
                self.configs[vm.ref] = VmConfig(mark_to_extra_config(vm.mark))
                self.index.on_vm_config_change(vm.ref)

    async def read_properties(self, type_name: str, ref: str, paths: list[str]) -> object:
        vm = next((vm for vm in self.vms if vm.ref == ref), None)
        if vm is None or vm.missing_until:
            raise NotFound(ref)
        if vm.hidden:
            raise Rejected(ref)
        return {}

    def reconcile(self) -> PlanInput:
        """Plan and store until there are actions; send them only if the session is alive."""
        memory = self.memory_store.for_group(GROUP_ID.uid)
        while True:
            observation = self.observe()
            if observation.refs_to_read and self.watching:
                run_at_once(self.absences.read(observation.refs_to_read))
                observation = self.observe()
            new_plan = plan(observation.desired, observation.observed, self.new_name)
            if not new_plan.write_status_first:
                break
            memory.expect_records(observation.observed.records, new_plan.records)
            self.records = new_plan.records
        if self.watching:
            for action in new_plan.actions:
                self.execute(action)
        self.records = tuple(with_task(record, memory) for record in new_plan.records)
        names = {record.name for record in self.records}
        refs = {name: vm.ref for name, vm in observation.vms_by_replica.items()}
        self.last_known_refs = {
            name: ref for name, ref in (self.last_known_refs | refs).items() if name in names
        }
        self.check_vm_count()
        return observation

    def observe(self) -> PlanInput:
        group = GroupInput(
            group_id=GROUP_ID,
            desired=replace(DESIRED, replicas=self.replicas, template="", template_name="t"),
            generation=1,
            records=self.records,
            log=lambda line: None,
            record_event=lambda *event: None,
            vcenter=VCENTER_ID,
            loaded_at=0.0,
            folder_ref=self.folder_ref,
            folder_claim=FolderClaim(group_id=GROUP_ID, folder_key="", created_at=""),
            may_exist=lambda group_id: True,
            list_other_groups=lambda: (),
            last_known_refs=self.last_known_refs,
        )
        return self.observer.observe(group)

    def new_name(self) -> str:
        return f"web-replica-{self.next_number():08d}"

    def next_number(self) -> int:
        self.last_number += 1
        return self.last_number

    def execute(self, action: Action) -> None:
        match action:
            case CreateFolder():
                self.folder_ref = f"group-v{self.next_number()}"
                self.publish(self.build_folder_update())
            case Clone(record=record):
                self.clone(record)
            case PowerOn(vm=vm) | PowerOff(vm=vm) | Destroy(vm=vm):
                target = next(other for other in self.vms if other.ref == vm.ref)
                assert not target.hidden
                assert not target.missing_until
                if isinstance(action, Destroy):
                    return self.destroy(target)
                target.power = "poweredOn" if isinstance(action, PowerOn) else "poweredOff"
                self.publish(self.build_vm_update(target))
            case _:
                raise AssertionError(f"unexpected: {action}")

    def clone(self, record: ReplicaRecord) -> None:
        mark = OwnershipMark(
            group_id=GROUP_ID,
            replica_name=record.name,
            sequence_number=record.sequence_number,
            fingerprint=record.fingerprint,
        )
        host = sorted(self.hosts)[self.clone_count % len(self.hosts)]
        vm = WorldVm(f"vm-{self.next_number()}", mark, record.instance_uuid, host)
        self.vms.append(vm)
        self.clone_count += 1
        task = f"task-{self.next_number()}"
        self.clones.tasks[task] = CloneTask(
            ref=task, template=record.template, state="success", ended_at=self.now
        )
        self.memory_store.for_group(GROUP_ID.uid).record_clone(record, "accepted", task)
        self.publish(self.build_vm_update(vm))
        self.check_vm_count()

    def destroy(self, vm: WorldVm) -> None:
        """By the manager: a task reports it."""
        self.delete(vm)
        self.tasks.append(
            ObjectUpdate(
                "enter",
                "Task",
                f"task-{self.next_number()}",
                {
                    "info.state": "success",
                    "info.descriptionId": "VirtualMachine.destroy",
                    "info.entity": Ref("VirtualMachine", vm.ref),
                    "info.entityName": vm.mark.replica_name,
                },
            )
        )
        self.publish(self.tasks[-1])

    # vCenter and its users

    def publish(self, update: ObjectUpdate) -> None:
        if self.watching:
            self.inventory.apply([update])

    def end_session(self) -> None:
        self.watching = False

    def delete(self, vm: WorldVm) -> None:
        self.vms.remove(vm)
        if not vm.missing_until and not vm.hidden:
            self.publish(ObjectUpdate("leave", "VirtualMachine", vm.ref))

    def set_hidden(self, vm: WorldVm, hidden: bool) -> None:
        if vm.missing_until:
            return
        was_shown, vm.hidden = not vm.hidden, hidden
        if hidden and was_shown:
            self.publish(ObjectUpdate("leave", "VirtualMachine", vm.ref))
        elif not hidden and not was_shown:
            self.publish(self.build_vm_update(vm))

    def remove_host(self, host: str) -> None:
        """The VMs leave first, and the host with a later update."""
        self.hosts.discard(host)
        for vm in self.vms:
            if vm.host == host and not vm.missing_until:
                vm.missing_until = self.now + RETURN_SECONDS
                if not vm.hidden:
                    self.publish(ObjectUpdate("leave", "VirtualMachine", vm.ref))
        if self.watching:
            self.reconcile()
        self.publish(ObjectUpdate("leave", "HostSystem", host))

    def add_host(self, host: str) -> None:
        self.hosts.add(host)
        self.publish(self.build_host_update(host))
        self.register_found_vms([vm for vm in self.vms if vm.host == host and vm.missing_until])

    def register_found_vms(self, vms: list[WorldVm]) -> None:
        """They get new references, and have lost the permissions that were set on them."""
        for vm in vms:
            vm.ref, vm.missing_until, vm.hidden = f"vm-{self.next_number()}", 0.0, False
            self.publish(self.build_vm_update(vm))

    def back_up(self) -> None:
        self.backup = [vm for vm in self.vms if not vm.missing_until]

    def restore(self) -> None:
        """All sessions end. VMs created since are not found yet, those destroyed since are back."""
        self.end_session()
        for vm in self.vms:
            if vm not in self.backup and not vm.missing_until:
                vm.missing_until = self.now + RETURN_SECONDS
        for vm in self.backup:
            if vm.instance_uuid not in {other.instance_uuid for other in self.vms}:
                vm.returned, vm.hidden, vm.missing_until = True, False, 0.0
                self.vms.append(vm)
        self.tasks.clear()

    def advance_time(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [vm for vm in self.vms if 0.0 < vm.missing_until <= end]:
            first = min(due, key=lambda vm: vm.missing_until)
            self.now = max(self.now, first.missing_until - 1.0)
            if first.host in self.hosts:
                self.register_found_vms([vm for vm in due if vm.host in self.hosts])
            else:
                self.add_host(first.host)
            self.reconcile()
        self.now = end

    # The inventory as the account sees it

    def list_updates(self) -> list[ObjectUpdate]:
        updates = [enter_update(*row) for row in DEFAULT_ROWS if row[1] not in HOSTS]
        updates += [self.build_host_update(host) for host in sorted(self.hosts)]
        owner: dict[str, Any] = {"owner": Ref("ComputeResource", "domain-c1")}
        updates += [
            ObjectUpdate("modify", "ResourcePool", ref, owner)
            for ref in ("resgroup-1", "resgroup-2")
        ]
        updates.append(
            ObjectUpdate(
                "modify",
                "VirtualMachine",
                "vm-1",
                {"config.template": True, "runtime.host": Ref("HostSystem", "host-1")},
            )
        )
        if self.folder_ref:
            updates.append(self.build_folder_update())
        shown = [vm for vm in self.vms if not vm.hidden and not vm.missing_until]
        return [*updates, *self.tasks, *map(self.build_vm_update, shown)]

    def build_folder_update(self) -> ObjectUpdate:
        return enter_update("Folder", self.folder_ref, GROUP_ID.folder_name, "group-v2")

    def build_host_update(self, host: str) -> ObjectUpdate:
        return enter_update(
            "HostSystem",
            host,
            host,
            "domain-c1",
            runtime__connectionState="connected",
            runtime__inMaintenanceMode=False,
        )

    def build_vm_update(self, vm: WorldVm) -> ObjectUpdate:
        if self.delays_marks:
            self.configs.pop(vm.ref, None)
        else:
            self.configs[vm.ref] = VmConfig(mark_to_extra_config(vm.mark))
        return enter_update(
            "VirtualMachine",
            vm.ref,
            vm.mark.replica_name,
            self.folder_ref,
            config__instanceUuid=vm.instance_uuid,
            runtime__host=Ref("HostSystem", vm.host),
            runtime__powerState=vm.power,
            runtime__connectionState="connected",
            summary__config__numCpu=DESIRED.cpus,
            summary__config__memorySizeMB=DESIRED.memory_mb,
        )

    # Invariants

    def scale(self, replicas: int) -> None:
        self.replicas = replicas
        self.max_vms = max(self.max_vms, replicas)

    def list_own_vms(self) -> list[WorldVm]:
        """All that exist, seen or not; what a restore brought back was counted before."""
        return [vm for vm in self.vms if not vm.returned]

    def check_vm_count(self) -> None:
        count = len(self.list_own_vms())
        assert count <= self.max_vms, f"{count} VMs, {self.max_vms} allowed"
        # After a scale-down, a record that is kept may still get its VM again.
        self.max_vms = max(self.replicas, min(self.max_vms, max(count, len(self.records))))


def make_any(**fields: Any) -> Any:
    return SimpleNamespace(**fields)


def run_at_once(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")
