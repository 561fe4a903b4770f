"""Anything may happen at any time, and the process may die between any two steps: never one VM too many, and all ends well."""

from __future__ import annotations

from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.model import DesiredState, Rollout
from vsphere_operators.kinds.vmgroup.replica import has_desired_size

from .parts import Chance, Machine
from .world import LATEST_BEGIN_SECONDS, LATEST_SIGHT_SECONDS, World

KIND = Chance()
CHANCES = st.builds(
    Chance,
    seconds=st.sampled_from([0.5, 2.0, 8.0, 30.0]),
    fails=st.sampled_from([False, False, False, True]),
    late_seconds=st.floats(0.0, LATEST_BEGIN_SECONDS),
    sight_seconds=st.floats(0.0, LATEST_SIGHT_SECONDS),
    answer_is_lost=st.sampled_from([False, False, True]),
)
ROLLOUTS = st.builds(
    Rollout,
    max_surge=st.integers(0, 2),
    max_unavailable=st.integers(0, 2),
    strategy=st.sampled_from(["RollingUpdate", "RollingUpdate", "OnDelete"]),
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(1, 6),
        "cpus": st.integers(1, 2),
        "memory_mb": st.sampled_from([1024, 2048]),
        "template": st.sampled_from(["vm-t1", "vm-t2"]),
        "power": st.sampled_from(["poweredOn", "poweredOn", "poweredOff"]),
        "paused": st.sampled_from([False, False, True]),
        "blocker": st.sampled_from(["", "", 'no template "t"']),
        "rollout": ROLLOUTS,
    },
)


def changed(wish: DesiredState, spec: dict[str, Any]) -> DesiredState:
    """The wish after an edit; the fingerprint goes with the template."""
    wish = replace(wish, **spec)
    return replace(wish, fingerprint=f"of {wish.template}")


class Crashes(RuleBasedStateMachine):
    """The process dies, answers are lost, calls come late, and the size of the group changes. The world checks after each of its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(
            DesiredState(
                cpus=1,
                memory_mb=1024,
                replicas=3,
                uid="uid-1",
                template="vm-t1",
                template_name="t",
                fingerprint="of vm-t1",
            )
        )
        self.strangers: dict[str, Machine] = {}

    @initialize(spec=SPECS)
    def begin(self, spec: dict[str, Any]) -> None:
        self.world.edit(changed(self.world.stored.wish, spec))
        self.world.restart()

    # The manager

    @rule(chances=st.lists(CHANCES, min_size=1, max_size=4))
    def reconcile(self, chances: list[Chance]) -> None:
        self.run(chances, None)

    @rule(chances=st.lists(CHANCES, min_size=1, max_size=4), after=st.integers(0, 5))
    def reconcile_and_die(self, chances: list[Chance], after: int) -> None:
        self.run(chances, after)

    def run(self, chances: list[Chance], crash_after: int | None) -> None:
        if not self.world.finished:
            turn = iter(chances * 20)
            self.world.reconcile(lambda: next(turn), crash_after)

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0, 12.0]))
    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(replicas=st.integers(1, 4))
    def scale(self, replicas: int) -> None:
        if not self.world.finished:
            self.world.edit(replace(self.world.stored.wish, replicas=replicas))
            self.world.manager.view = self.world.stored

    @precondition(lambda self: len(self.world.history) > 8)
    @rule(policy=st.sampled_from(["Destroy", "Orphan"]), sure=st.sampled_from([False, True]))
    def delete_the_group(self, policy: Any, sure: bool) -> None:
        if sure and not self.world.finished:
            self.world.edit(replace(self.world.stored.wish, deleting=True, deletion_policy=policy))

    @invariant()
    def holds(self) -> None:
        self.world.check()
        for ref, machine in self.strangers.items():
            assert self.world.machines[ref] is machine
            assert machine.power == "poweredOn"

    # The end

    def teardown(self) -> None:
        world = self.world
        for ref in [
            ref
            for ref, each in world.machines.items()
            if not each.is_ours and ref not in self.strangers
        ]:
            del world.machines[ref]
        for machine in world.genuine():
            machine.disks, machine.broken = (), False
        if not world.finished:
            world.edit(replace(world.stored.wish, paused=False, blocker=""))
        self.settle()

    def settle(self) -> None:
        world = self.world
        for _ in range(300):
            if world.finished:
                return self.finished()
            world.manager.view = world.stored
            world.reconcile(lambda: KIND)
            world.pass_time(1.0)
            if self.is_right() and not world.jobs and not world.under_way():
                return self.rests()
        raise AssertionError(f"not right after 300 steps: {world.think()}")

    def finished(self) -> None:
        assert not self.world.under_way()

    def is_right(self) -> bool:
        world, wish = self.world, self.world.stored.wish
        vms = [world.vm_of(each) for each in world.genuine()]
        replaced = wish.rollout.strategy == "RollingUpdate"
        return (
            not wish.deleting
            and len(vms) == len(world.stored.records) == wish.replicas
            and not any(each.terminating for each in world.stored.records)
            and all(vm.power == wish.power and has_desired_size(wish, vm) for vm in vms)
            and all(vm.fingerprint == wish.fingerprint or not replaced for vm in vms)
        )

    def rests(self) -> None:
        world = self.world
        for _ in range(3):
            world.pass_time(20.0)
            world.manager.view = world.stored
            before = world.mutations
            made = world.reconcile(lambda: KIND)
            assert (made.actions, world.mutations) == ((), before)
        assert (made.phase, made.message) == ("RUNNING", "successfully reconciled VmGroup")
        assert made.counts.ready == made.counts.current == world.stored.wish.replicas


class AnyTime(Crashes):
    """Beside that: people, and an API server that answers with the past."""

    @rule(back=st.integers(0, 4))
    def restart_with_an_old_object(self, back: int) -> None:
        self.world.restart(self.world.history[max(0, len(self.world.history) - 1 - back)])

    @rule()
    def hear_of_the_newest(self) -> None:
        self.world.manager.view = self.world.stored

    # People

    @rule(spec=SPECS)
    def edit(self, spec: dict[str, Any]) -> None:
        if not self.world.finished:
            self.world.edit(changed(self.world.stored.wish, spec))

    @precondition(lambda self: self.world.genuine())
    @rule(
        data=st.data(),
        hand=st.sampled_from(
            [
                "delete",
                "off",
                "suspend",
                "rename",
                "move",
                "resize",
                "copy",
                "attach",
                "detach",
                "break",
                "heal",
            ]
        ),
    )
    def touch(self, data: st.DataObject, hand: str) -> None:
        world = self.world
        machine = data.draw(st.sampled_from(sorted(world.genuine(), key=lambda each: each.ref)))
        if hand == "delete":
            del world.machines[machine.ref]
        elif hand == "copy":
            world.copy(machine)
        elif hand in ("attach", "detach") and not any(
            each.machine is machine for each in world.jobs
        ):
            machine.disks = ("pvc-1",) if hand == "attach" else ()
        elif hand in ("break", "heal"):
            machine.broken = hand == "break"
        elif hand in ("rename", "move") and machine.visible_at <= world.now:
            machine.shown_name, machine.folder = (
                (f"mine {machine.ref}", machine.folder)
                if hand == "rename"
                else (machine.shown_name, "group-v0")
            )
        elif not any(each.machine is machine for each in world.jobs):
            self.change(machine, hand)

    def change(self, machine: Machine, hand: str) -> None:
        if hand == "off":
            machine.power = "poweredOff"
        elif hand == "suspend":
            machine.power = "suspended"
        elif hand == "resize":
            machine.cpus = 4

    @precondition(lambda self: self.world.folder)
    @rule()
    def drop_a_vm_into_the_folder(self) -> None:
        machine = self.world.add("theirs")
        self.strangers[machine.ref] = machine

    @precondition(lambda self: self.world.folder and self.world.stored.records)
    @rule(data=st.data())
    def take_a_name(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([each.name for each in self.world.stored.records]))
        if not any(each.shown_name == name for each in self.world.machines.values()):
            self.world.add(name)

    @rule(template=st.sampled_from(["vm-t1", "vm-t2"]), seconds=st.sampled_from([2.0, 20.0]))
    def clone_the_template(self, template: str, seconds: float) -> None:
        if self.world.folder:
            self.world.person_clones_template(template, seconds)

    @precondition(lambda self: self.world.folder)
    @rule(sure=st.sampled_from([False, False, True]))
    def delete_the_folder(self, sure: bool) -> None:
        if sure:
            world = self.world
            world.machines = {
                ref: each for ref, each in world.machines.items() if each.folder != world.folder
            }
            self.strangers = {
                ref: each for ref, each in self.strangers.items() if ref in world.machines
            }
            world.folder = ""


# Shrinking takes minutes; take Phase.shrink in when a failure is to be understood.
FIXED = settings(
    stateful_step_count=40, derandomize=True, deadline=None, database=None, phases=[Phase.generate]
)
TestCrashes = Crashes.TestCase
TestCrashes.settings = settings(FIXED, max_examples=250)
TestAnyTime = AnyTime.TestCase
TestAnyTime.settings = settings(FIXED, max_examples=250)
