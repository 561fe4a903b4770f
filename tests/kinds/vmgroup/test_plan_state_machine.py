"""Anything may happen at any time, and the process may die between any two steps: never one VM too many, and all ends well."""

from __future__ import annotations

from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.model import DesiredState, Rollout
from vsphere_operators.kinds.vmgroup.replica import has_desired_size

from .simulation import MAX_START_DELAY_SECONDS, MAX_VISIBILITY_DELAY_SECONDS, GroupSimulation
from .simulation_model import CallOutcome, SimulatedVm

SUCCESSFUL_OUTCOME = CallOutcome()
CALL_OUTCOMES = st.builds(
    CallOutcome,
    duration_seconds=st.sampled_from([0.5, 2.0, 8.0, 30.0]),
    fails=st.sampled_from([False, False, False, True]),
    start_delay_seconds=st.floats(0.0, MAX_START_DELAY_SECONDS),
    visibility_delay_seconds=st.floats(0.0, MAX_VISIBILITY_DELAY_SECONDS),
    answer_is_lost=st.sampled_from([False, False, True]),
)
ROLLOUTS = st.builds(
    Rollout,
    max_surge=st.integers(0, 2),
    max_unavailable=st.integers(0, 2),
    strategy=st.sampled_from(["RollingUpdate", "RollingUpdate", "OnDelete"]),
)
SPEC_CHANGES = st.fixed_dictionaries(
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


def with_spec(wish: DesiredState, spec: dict[str, Any]) -> DesiredState:
    """The wish after an edit; the fingerprint goes with the template."""
    wish = replace(wish, **spec)
    return replace(wish, fingerprint=f"of {wish.template}")


class CrashStateMachine(RuleBasedStateMachine):
    """The process dies, answers are lost, calls come late, and the size of the group changes. The world checks after each of its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.simulation = GroupSimulation(
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
        self.foreign_vms: dict[str, SimulatedVm] = {}

    @initialize(spec=SPEC_CHANGES)
    def create_group(self, spec: dict[str, Any]) -> None:
        self.simulation.edit_spec(with_spec(self.simulation.stored.desired, spec))
        self.simulation.restart_manager()

    # The manager

    @rule(outcomes=st.lists(CALL_OUTCOMES, min_size=1, max_size=4))
    def reconcile(self, outcomes: list[CallOutcome]) -> None:
        self.run_reconcile(outcomes, None)

    @rule(outcomes=st.lists(CALL_OUTCOMES, min_size=1, max_size=4), after=st.integers(0, 5))
    def reconcile_and_crash(self, outcomes: list[CallOutcome], after: int) -> None:
        self.run_reconcile(outcomes, after)

    def run_reconcile(self, chances: list[CallOutcome], crash_after: int | None) -> None:
        if not self.simulation.is_finished:
            turn = iter(chances * 20)
            self.simulation.reconcile(lambda: next(turn), crash_after)

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0, 12.0]))
    def wait(self, seconds: float) -> None:
        self.simulation.advance_time(seconds)

    @rule(replicas=st.integers(1, 4))
    def scale(self, replicas: int) -> None:
        if not self.simulation.is_finished:
            self.simulation.edit_spec(replace(self.simulation.stored.desired, replicas=replicas))
            self.simulation.manager.cached_group = self.simulation.stored

    @precondition(lambda self: len(self.simulation.versions) > 8)
    @rule(policy=st.sampled_from(["Destroy", "Orphan"]), enabled=st.sampled_from([False, True]))
    def delete_group(self, policy: Any, enabled: bool) -> None:
        if enabled and not self.simulation.is_finished:
            self.simulation.edit_spec(
                replace(self.simulation.stored.desired, deleting=True, deletion_policy=policy)
            )

    @invariant()
    def check_state(self) -> None:
        self.simulation.check_vm_count()
        for ref, machine in self.foreign_vms.items():
            assert self.simulation.vms[ref] is machine
            assert machine.power == "poweredOn"

    # The end

    def teardown(self) -> None:
        world = self.simulation
        for ref in [
            ref
            for ref, each in world.vms.items()
            if not each.is_owned and ref not in self.foreign_vms
        ]:
            del world.vms[ref]
        for machine in world.list_owned_vms():
            machine.foreign_disks, machine.broken = (), False
        if not world.is_finished:
            world.edit_spec(replace(world.stored.desired, paused=False, blocker=""))
        self.settle()

    def settle(self) -> None:
        world = self.simulation
        for _ in range(300):
            if world.is_finished:
                return self.check_finished()
            world.manager.cached_group = world.stored
            world.reconcile(lambda: SUCCESSFUL_OUTCOME)
            world.advance_time(1.0)
            if (
                self.is_in_desired_state()
                and not world.vm_tasks
                and not world.list_running_clones()
            ):
                return self.check_stable()
        raise AssertionError(f"not right after 300 steps: {world.make_plan()}")

    def check_finished(self) -> None:
        assert not self.simulation.list_running_clones()

    def is_in_desired_state(self) -> bool:
        world, wish = self.simulation, self.simulation.stored.desired
        vms = [world.observe_vm(each) for each in world.list_owned_vms()]
        replaced = wish.rollout.strategy == "RollingUpdate"
        return (
            not wish.deleting
            and len(vms) == len(world.stored.records) == wish.replicas
            and not any(each.terminating for each in world.stored.records)
            and all(vm.power == wish.power and has_desired_size(wish, vm) for vm in vms)
            and all(vm.fingerprint == wish.fingerprint or not replaced for vm in vms)
        )

    def check_stable(self) -> None:
        world = self.simulation
        for _ in range(3):
            world.advance_time(20.0)
            world.manager.cached_group = world.stored
            before = world.mutation_count
            made = world.reconcile(lambda: SUCCESSFUL_OUTCOME)
            assert (made.actions, world.mutation_count) == ((), before)
        assert (made.phase, made.message) == ("RUNNING", "successfully reconciled VmGroup")
        assert made.counts.ready == made.counts.current == world.stored.desired.replicas


class UserChangeStateMachine(CrashStateMachine):
    """Beside that: people, and an API server that answers with the past."""

    @rule(versions_back=st.integers(0, 4))
    def restart_with_stale_object(self, versions_back: int) -> None:
        self.simulation.restart_manager(
            self.simulation.versions[max(0, len(self.simulation.versions) - 1 - versions_back)]
        )

    @rule()
    def refresh_cache(self) -> None:
        self.simulation.manager.cached_group = self.simulation.stored

    # People

    @rule(spec=SPEC_CHANGES)
    def edit_spec(self, spec: dict[str, Any]) -> None:
        if not self.simulation.is_finished:
            self.simulation.edit_spec(with_spec(self.simulation.stored.desired, spec))

    @precondition(lambda self: self.simulation.list_owned_vms())
    @rule(
        data=st.data(),
        user_action=st.sampled_from(
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
    def change_vm(self, data: st.DataObject, user_action: str) -> None:
        world = self.simulation
        machine = data.draw(
            st.sampled_from(sorted(world.list_owned_vms(), key=lambda each: each.ref))
        )
        if user_action == "delete":
            del world.vms[machine.ref]
        elif user_action == "copy":
            world.copy_vm(machine)
        elif user_action in ("attach", "detach") and not any(
            each.vm is machine for each in world.vm_tasks
        ):
            machine.foreign_disks = ("pvc-1",) if user_action == "attach" else ()
        elif user_action in ("break", "heal"):
            machine.broken = user_action == "break"
        elif user_action in ("rename", "move") and machine.visible_at <= world.now:
            machine.inventory_name, machine.folder = (
                (f"mine {machine.ref}", machine.folder)
                if user_action == "rename"
                else (machine.inventory_name, "group-v0")
            )
        elif not any(each.vm is machine for each in world.vm_tasks):
            self.change_power_or_size(machine, user_action)

    def change_power_or_size(self, machine: SimulatedVm, hand: str) -> None:
        if hand == "off":
            machine.power = "poweredOff"
        elif hand == "suspend":
            machine.power = "suspended"
        elif hand == "resize":
            machine.cpus = 4

    @precondition(lambda self: self.simulation.folder_ref)
    @rule()
    def add_foreign_vm(self) -> None:
        machine = self.simulation.add_foreign_vm("theirs")
        self.foreign_vms[machine.ref] = machine

    @precondition(lambda self: self.simulation.folder_ref and self.simulation.stored.records)
    @rule(data=st.data())
    def add_vm_with_replica_name(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([each.name for each in self.simulation.stored.records]))
        if not any(each.inventory_name == name for each in self.simulation.vms.values()):
            self.simulation.add_foreign_vm(name)

    @rule(template=st.sampled_from(["vm-t1", "vm-t2"]), seconds=st.sampled_from([2.0, 20.0]))
    def clone_template(self, template: str, seconds: float) -> None:
        if self.simulation.folder_ref:
            self.simulation.clone_template_as_user(template, seconds)

    @precondition(lambda self: self.simulation.folder_ref)
    @rule(enabled=st.sampled_from([False, False, True]))
    def delete_folder(self, enabled: bool) -> None:
        if enabled:
            world = self.simulation
            world.vms = {
                ref: each for ref, each in world.vms.items() if each.folder != world.folder_ref
            }
            self.foreign_vms = {
                ref: each for ref, each in self.foreign_vms.items() if ref in world.vms
            }
            world.folder_ref = ""


# Shrinking takes minutes; take Phase.shrink in when a failure is to be understood.
DERANDOMIZED = settings(
    stateful_step_count=40, derandomize=True, deadline=None, database=None, phases=[Phase.generate]
)
TestCrashes = CrashStateMachine.TestCase
TestCrashes.settings = settings(DERANDOMIZED, max_examples=250)
TestAnyTime = UserChangeStateMachine.TestCase
TestAnyTime.settings = settings(DERANDOMIZED, max_examples=250)
