"""Carries out what a plan says, in one vCenter: starts operations, remembers them, and takes their ends as they come.

Questions and answers:

Does anything wait here?  Only for the answer that a task has begun. Its end comes through the inventory and wakes the group.
What if the process is stopped between the look at the lease and the call?  Then the call is late, and does no harm: design, A4.
What is remembered when no answer comes?  That the clone may be under way: `sent` says "unanswered" from before the call is made.
What is looked at before a VM is destroyed?  The object, fresh from the API server; the VM, fresh from vCenter: its mark, its identity and
    whether it has somebody's disk; then the lease. A folder likewise, and it must be empty.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ...vsphere.faults import Busy, NotFound, Unreachable, VCenterError, meaning_of_name
from ...vsphere.model import Folder, Task
from ...vsphere.task_limiter import Operation
from ...vsphere.vcenter import VCenter
from ...vsphere.vm_calls import CloneOrder
from .clone_state import Sent
from .clone_tasks import CloneTasks
from .expectations import GLOW_SECONDS, Effect, Glow, Memory
from .failures import verdict_on
from .messages import line_of
from .model import Clone, CreateFolder, Destroy, DestroyFolder, PowerOff, PowerOn, Reconfigure, Record, Trouble, Vm, Wish
from .ownership import Group, Mark, mark_of, options_of, owned_by
from .ownership_index import Owners
from .placement import Site

FOLDER = "(folder)"
"""Stands in memory for the group's folder, where replicas stand by name; no VM can be called so in a record."""


Change = PowerOn | PowerOff | Reconfigure | Destroy


class Held(Exception):
    """The last look before something final shows that it must not be done now."""


class Started(Struct, frozen=True):
    """What a task is for."""

    group: Group
    name: str
    doing: str
    vm: str = ""
    effect: Effect | None = None
    before: str = ""


class Job(Struct, frozen=True, kw_only=True):
    """The group that is worked for, and what it needs beside a plan's action."""

    group: Group
    memory: Memory
    say: Callable[[str], None]
    """Writes a line into the log."""
    may_act: Callable[[], None]
    """Raises unless the lease is certainly ours; asked immediately before each call."""
    confirm: Callable[[str], Awaitable[bool]]
    """Whether the object, fresh from the API server, still wants this replica gone; "" asks for the folder."""
    options: dict[str, str] = {}
    """extraConfig beside the mark."""
    linked: bool = False
    storage_policy: str = ""

    @property
    def owner(self) -> str:
        """Who asks for room."""
        return f"{self.group.namespace}/{self.group.name}"


class Workshop:
    """One vCenter, and all groups in it. `wake` hears which group should look again, by uid."""

    def __init__(self, vcenter: VCenter, wake: Callable[[str], None]) -> None:
        self.vcenter, self.wake, self.clock = vcenter, wake, vcenter.clock
        self.owners = Owners(vcenter, wake)
        self.clones = CloneTasks(vcenter.clock)
        self.memories: dict[str, Memory] = {}
        self.started: dict[str, Started] = {}
        vcenter.inventory.listeners.append(self.clones.hear)
        vcenter.operations.listeners.append(self.ended)

    def memory(self, uid: str) -> Memory:
        """What is remembered of a group."""
        return self.memories.setdefault(uid, Memory(self.clock))

    def forget(self, group: Group) -> None:
        """The group is gone."""
        self.memories.pop(group.uid, None)
        self.vcenter.operations.withdraw(f"{group.namespace}/{group.name}")

    def sent_tasks(self) -> set[str]:
        """The clone tasks that this process knows to be a record's."""
        return {sent.task for memory in self.memories.values() for sent in memory.sent.values() if sent.task}

    async def clone(self, job: Job, action: Clone, wish: Wish, site: Site, folder: str) -> None:
        """Send a stored record."""
        record, memory, hands = action.record, job.memory, self.vcenter.hands
        mark = Mark(group=job.group, replica=record.name, slot=record.slot, fingerprint=record.fingerprint)
        order = CloneOrder(
            template=record.template,
            folder=folder,
            name=record.name,
            pool=site.pool,
            datastore=site.datastore,
            cpus=wish.cpus,
            memory_mb=wish.memory_mb,
            instance_uuid=record.instance_uuid,
            options={**job.options, **options_of(mark)},
            power_on=action.power_on,
            linked=job.linked,
            storage_policy=job.storage_policy,
        )

        async def call() -> Any:
            snapshot = await hands.snapshot_of(order.template) if order.linked else None
            job.may_act()
            job.say(line_of(action))
            memory.sent[record.name] = self.unanswered(record)
            return await hands.clone(order, snapshot)

        started = Started(job.group, record.name, f'cloning "{record.name}" from template "{action.template_name}"')
        try:
            task = await self.start(job, started, call)
        except VCenterError as error:
            self.clone_refused(job, record, error)
            raise
        except BaseException:
            if memory.sent[record.name].outcome == "unanswered":
                memory.sent[record.name] = self.unanswered(record)
            raise
        memory.sent[record.name] = Sent(attempt=record.attempt, outcome="answered", task=task, at_seconds=self.clock())
        self.clones.ours.add(task)

    def unanswered(self, record: Record) -> Sent:
        """It may be under way from now on."""
        return Sent(attempt=record.attempt, outcome="unanswered", at_seconds=self.clock())

    def clone_refused(self, job: Job, record: Record, error: VCenterError) -> None:
        """Whether vCenter said no, said nothing, or was not asked at all."""
        sent = job.memory.sent[record.name]
        if sent.outcome != "unanswered":
            return
        outcome = "unanswered" if isinstance(error, Unreachable) else "refused"
        job.memory.sent[record.name] = replace(sent, outcome=outcome, at_seconds=self.clock())

    async def change(self, job: Job, action: Change) -> None:
        """Start a change of one VM."""
        vm, hands = action.vm, self.vcenter.hands
        match action:
            case PowerOn():
                await self.on_vm(job, action, "powering on", "poweredOn", lambda: hands.power_on(vm.ref))
            case PowerOff():
                await self.on_vm(job, action, "powering off", "poweredOff", lambda: hands.power_off(vm.ref))
            case Reconfigure(cpus=cpus, memory_mb=memory_mb):
                await self.on_vm(job, action, "resizing", "resized", lambda: hands.resize(vm.ref, cpus, memory_mb))
            case Destroy():
                await self.on_vm(job, action, "destroying", "destroyed", lambda: hands.destroy(vm.ref))

    async def on_vm(self, job: Job, action: Change, verb: str, effect: Effect, act: Callable[[], Awaitable[Any]]) -> None:
        """The way of all changes of a VM: look closely if it is final, ask the lease, call."""
        vm = action.vm
        machine = self.vcenter.inventory.machines.get(vm.ref)
        before = machine.config_version if machine else ""

        async def call() -> Any:
            if effect == "destroyed":
                await self.look_closely(job, vm)
            job.may_act()
            job.say(line_of(action))
            return await act()

        started = Started(job.group, vm.name, f'{verb} "{vm.name}"', vm.ref, effect, before)
        job.memory.busy.add(vm.ref)
        try:
            await self.start(job, started, call)
        except (NotFound, Held):
            # What is gone needs nothing; what was held back is planned anew from what was seen.
            self.vcenter.belongings.want(vm.ref)
        finally:
            if not any(each.vm == vm.ref for each in self.started.values()):
                job.memory.busy.discard(vm.ref)

    async def look_closely(self, job: Job, vm: Vm) -> None:
        """Raise Held unless vCenter and the API server, both asked now, say that this VM is ours, is to go, and carries no one's disk."""
        closeup = await self.vcenter.hands.closeup(vm.ref)
        if not owned_by(mark_of(closeup.belongings.options), closeup.instance_uuid, job.group) or closeup.has_foreign_disks:
            raise Held
        if not await job.confirm(vm.name):
            raise Held

    async def create_folder(self, job: Job, parent: str, name: str) -> None:
        """Make the group's folder; that it is there already is as good."""

        async def call() -> str:
            job.may_act()
            job.say(line_of(CreateFolder()))
            return await self.vcenter.hands.create_folder(parent, name)

        try:
            made = await self.vcenter.session.call(call)
        except VCenterError as error:
            self.folder_refused(job, parent, name, error)
            raise
        job.memory.worked(FOLDER)
        job.memory.folder = (made, self.clock() + GLOW_SECONDS)

    def folder_refused(self, job: Job, parent: str, name: str, error: VCenterError) -> None:
        """A folder of that name that is not seen yet will be; anything else of that name is in the way."""
        inventory = self.vcenter.inventory
        same = [each for each in inventory.children(parent) if each.name == name]
        if error.fault == "DuplicateName" and any(isinstance(each, Folder) for each in same):
            return
        if error.fault == "DuplicateName" and same:
            words = f"{inventory.path(same[0].ref)} has the name of the group's folder and is none; rename or move it"
            job.memory.failed(FOLDER, Trouble(words, True, "FolderNameTaken"))
            return
        self.failed(job, Started(job.group, FOLDER, f'creating the folder "{name}"'), error)

    async def destroy_folder(self, job: Job, action: DestroyFolder) -> None:
        """Start destroying the group's folder, if it is empty at this moment."""
        ref = action.folder.ref

        async def call() -> Any:
            if not await self.vcenter.hands.is_empty(ref) or not await job.confirm(""):
                raise Held
            job.may_act()
            job.say(line_of(action))
            return await self.vcenter.hands.destroy_folder(ref)

        if ref in job.memory.busy:
            return
        job.memory.busy.add(ref)
        try:
            await self.start(job, Started(job.group, FOLDER, f'destroying the folder "{action.folder.name}"', ref, "destroyed"), call)
        except (NotFound, Held):
            return
        finally:
            if not any(each.vm == ref for each in self.started.values()):
                job.memory.busy.discard(ref)

    async def start(self, job: Job, started: Started, call: Callable[[], Awaitable[Any]]) -> str:
        """Start an operation, and take note of a refusal; returns its task. What is gone already needs no change."""
        try:
            operation = await self.vcenter.operations.start(job.owner, started.doing, call)
        except VCenterError as error:
            waits, gone = isinstance(error, Busy) and not error.fault, isinstance(error, NotFound) and started.effect is not None
            if not waits and not gone:
                self.failed(job, started, error)
            raise
        self.started[operation.task] = started
        if operation.task not in self.vcenter.operations.running:
            # Its end was there before its name.
            self.ended(operation, self.vcenter.inventory.tasks.get(operation.task))
        return operation.task

    def failed(self, job: Job, started: Started, error: VCenterError) -> None:
        """A call was refused, or not answered."""
        passing = isinstance(error, Busy | Unreachable)
        told = verdict_on(started.doing, error.fault, str(error), passing=passing)
        job.memory.failed(started.name, Trouble(told.words, told.lasting, told.reason))

    def ended(self, operation: Operation, task: Task | None) -> None:
        """An operation has ended; None is an end that nobody can tell any more."""
        started = self.started.pop(operation.task, None)
        if started is None:
            return
        memory = self.memory(started.group.uid)
        memory.busy.discard(started.vm)
        if task is not None and task.state == "success":
            memory.worked(started.name)
            if started.effect is not None:
                memory.glows[started.vm] = Glow(started.effect, self.clock() + GLOW_SECONDS, started.before)
        elif task is not None:
            passing = issubclass(meaning_of_name(task.fault), Busy | Unreachable)
            told = verdict_on(started.doing, task.fault, task.message or task.fault, passing=passing)
            memory.failed(started.name, Trouble(told.words, told.lasting, told.reason))
        self.wake(started.group.uid)
