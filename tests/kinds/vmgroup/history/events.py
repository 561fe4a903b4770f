"""What happens in a history: a random event after another, and at the end a recovery.

`run_history(seed)` raises AssertionError if an invariant is violated, or if a group does not
become correct and quiet after all disturbances have ended.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from unittest.mock import patch

from vsphere_operators.kinds.vmgroup import reconciler

from .adoptions import Adoptions
from .appliance import DISCOVERED_FOLDER
from .kubernetes_users import KubernetesUsers
from .restores import Restores
from .wire import Call
from .world import World

EVENTS_PER_HISTORY = 70


class History(KubernetesUsers, Restores, Adoptions):
    """All events; here are those of the manager and its servers."""

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

    async def start_reconcile(
        self, answers: int, *, stop_at: Callable[[Call], bool] = lambda call: False, name: str = ""
    ) -> bool:
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
        keys = sorted(key for key in manager.store.objects if name in ("", key.name))
        if not keys:
            return False
        manager.start_reconcile(self.random.choice(keys))
        await world.settle()
        for _ in range(answers):
            calls = [call for call in world.pending if not stop_at(call)]
            if not calls:
                break
            self.random.choice(calls).answer()
            await world.settle()
        return True

    async def interrupt(self) -> bool:
        """A reconcile stops at a call that changes something: no answer, or no manager any more."""
        world = self.world
        await self.start_reconcile(12, stop_at=lambda call: not call.is_read)
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

    async def check_slowly(self) -> bool:
        """What is read before a destroy takes seconds; meanwhile a user adds something to it."""
        world, name = self.world, self.choose_name()
        if not name:
            return False
        uid = world.api.objects[world.api.path_of(name)]["metadata"]["uid"]
        world.api.edit(name, replicas=1)
        # Of a group without VMs, it is the folder that is destroyed.
        is_folder = self.random.random() < 0.3
        if is_folder:
            world.api.edit(name, deletionPolicy="Destroy", paused=False)
            world.api.delete(world.api.path_of(name), {})
        slow = self.random.choice(["GET", "GET", "read"])
        for _ in range(30 if is_folder else 12):
            await world.answer_all()
            world.manager.receive_objects(1000)
            world.manager.vcenter.receive(1000)
            await self.start_reconcile(12, stop_at=lambda call: call.name == slow, name=name)
            if any(call.name == slow for call in world.pending) and not (
                is_folder and any(vm.owner == uid for vm in self.appliance.vms)
            ):
                break
            await world.advance(1.0)
        else:
            return False
        self.add_to_terminating(uid)
        await world.advance(self.random.choice([0.5, 3.0]))
        await world.answer_all()
        return True

    async def withdraw_clone(self) -> bool:
        """A clone is sent, with or without an answer, and then its VM is not needed any more."""
        world, name = self.world, self.choose_name()
        if not name:
            return False
        world.api.edit(name, replicas=self.random.randint(2, 4), paused=False)
        for _ in range(8):
            await self.start_reconcile(12, stop_at=lambda call: call.name == "clone", name=name)
            calls = [call for call in world.pending if call.name == "clone"]
            if calls:
                break
        else:
            return False
        call = self.random.choice(calls)
        if self.random.random() < 0.5:
            world.lose(call)
        else:
            call.answer()
        await world.settle()
        # What is allowed follows from each spec that the group had.
        world.check()
        if name not in self.list_names():
            return True
        policy = self.random.choice(["", "Destroy", "Orphan"])
        if policy:
            world.api.edit(name, deletionPolicy=policy)
            world.api.delete(world.api.path_of(name), {})
        else:
            world.api.edit(name, replicas=1)
        await world.run_manager(2)
        return True

    async def grow_together(self) -> bool:
        """Of two groups, the older one grows while the younger one stores that it does."""
        world, names = self.world, self.list_names()
        if len(names) < 2:
            return False
        older, younger = sorted(
            self.random.sample(names, 2),
            key=lambda name: world.api.objects[world.api.path_of(name)]["metadata"]["uid"],
        )
        await world.finish_work()
        for name in (younger, older):
            if name not in self.list_names():
                return False
            world.api.edit(name, replicas=self.random.randint(2, 4), paused=False)
            await self.start_reconcile(12, stop_at=lambda call: not call.is_read, name=name)
        while world.pending:
            self.random.choice(world.pending).answer()
            await world.settle()
        return True

    async def withdraw_surge(self) -> bool:
        """A user resizes a VM, which needs a replacement then; resizes it back; and resizes it.

        The write that drops the new record is performed, and its answer is lost.
        """
        world, name = self.world, self.choose_name()
        if not name:
            return False
        rollout = {"maxSurge": 1, "maxUnavailable": 0, "strategy": "RollingUpdate"}
        world.api.edit(name, paused=False, rollout=rollout)
        await world.run_manager(10)
        obj = world.api.objects.get(world.api.path_of(name))
        vms = [vm for vm in self.list_idle_vms() if obj and vm.owner == obj["metadata"]["uid"]]
        if obj is None or not vms or vms[0].cpus != obj["spec"]["cpu"]:
            return False
        vm, cpus = vms[0], vms[0].cpus
        for new_cpus in (4, cpus):
            self.set_cpus(vm, new_cpus)
            world.manager.vcenter.receive(1000)
            await self.start_reconcile(12, stop_at=lambda call: not call.is_read, name=name)
            writes = [call for call in world.pending if call.name in ("PATCH", "PUT")]
            if not writes:
                return False
            writes[0].perform()
            if new_cpus == cpus:
                world.lose(writes[0])
            else:
                writes[0].answer()
            await world.settle()
        self.set_cpus(vm, 4)
        world.manager.vcenter.receive(1000)
        for key in [key for key in world.manager.store.objects if key.name == name]:
            # Without what was stored.
            world.manager.start_reconcile(key)
        await world.answer_all()
        return True

    async def move_new_vm(self) -> bool:
        """An administrator moves a VM to where the account sees nothing, when its clone has ended.

        Its reference is stored, and its record is not yet Present.
        """
        world, appliance = self.world, self.appliance
        vms = [vm for vm in appliance.vms if vm.owner and vm.clone and self.is_known(vm)]
        if not vms:
            return False
        vm = self.random.choice(vms)
        while vm.clone is not None and vm in appliance.vms and self.appliance is appliance:
            await world.advance(0.5)
        if vm not in self.list_idle_vms() or not self.is_recorded() or not self.is_known(vm):
            return False
        vm.folder = DISCOVERED_FOLDER
        self.set_hidden(vm, True)
        if self.random.random() < 0.5:
            await self.wait_long()
        return True

    async def restart_stale(self) -> bool:
        """A VM is deleted and cloned again; a manager starts with a list from before that.

        vCenter shows the new VM, and its clone has not ended.
        """
        world, appliance, vm = self.world, self.appliance, self.choose_vm()
        if vm is None or not self.is_known(vm) or not appliance.is_seen(vm):
            return False
        revision = world.api.revision
        self.delete(vm)
        for _ in range(15):
            await world.run_manager(1)
            if any(other.clone and other.replica == vm.replica for other in appliance.vms):
                break
        else:
            return False
        await world.start_manager(stale_events=len(world.api.events_after(revision)))
        for _ in range(3):
            await world.answer_all()
            world.manager.start_poll()
            await world.answer_all()
            for key in list(world.manager.store.objects):
                world.manager.start_reconcile(key)
        await world.answer_all()
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
        """With a first list that may be old, or the caches of a standby."""
        if self.world.standby is not None and self.random.random() < 0.8:
            self.world.standby.receive_objects(self.random.choice([0, 1000, 1000]))
            await self.world.fail_over()
            return True
        await self.world.start_manager(stale_events=self.random.choice([0, 0, 0, 1, 4]))
        return True

    async def start_standby(self) -> bool:
        if self.world.standby is not None:
            return False
        await self.world.start_standby()
        return True

    async def end_session(self) -> bool:
        self.appliance.end_sessions()
        return True


WEIGHTS: dict[str, int] = {
    "run_manager": 14,
    "reconcile": 12,
    "interrupt": 8,
    "check_slowly": 3,
    "grow_together": 3,
    "withdraw_clone": 3,
    "withdraw_surge": 2,
    "restart_stale": 2,
    "answer_call": 14,
    "perform_call": 6,
    "lose_answer": 3,
    "receive_updates": 5,
    "receive_objects": 5,
    "wait": 7,
    "wait_long": 1,
    "crash": 4,
    "start_standby": 2,
    "end_session": 3,
    "create_group": 5,
    "edit_group": 6,
    "scale_group": 5,
    "delete_group": 2,
    "remove_finalizer": 1,
    "restore_object": 1,
    "back_up": 3,
    "restore_vcenter": 2,
    "reuse_task": 2,
    "restore_vm": 2,
    "rename_vcenter": 2,
    "swap_vcenter": 1,
    "remove_host": 2,
    "add_host": 2,
    "disconnect_host": 2,
    "hide_vm": 3,
    "hide_folder": 1,
    "move_new_vm": 2,
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
    "add_original_vms": 2,
    "adopt_originals": 4,
    "request_adoption": 4,
    "undo_adoption": 2,
    "remove_request": 1,
}


async def run_events(history: History, count: int) -> None:
    world = history.world
    await world.start_manager()
    if history.random.random() < 0.4:
        # For a group that is about to be created.
        await history.add_original_vms()
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
        world = history.world
        try:
            await run_events(history, events)
            await recover(history)
        finally:
            # The engine continues after a cancellation, and would wait for an answer.
            await world.stop_standby()
            await world.manager.kill()
        for appliance in world.appliances:
            for name, count in appliance.counts.items():
                world.counts[f"vCenter {name}"] += count
        return world

    names = random.Random(seed)
    # Names of replicas are reproducible, and random again in other tests of this process.
    with patch.object(reconciler, "random", SimpleNamespace(SystemRandom=lambda: names)):
        return asyncio.run(run())
