"""Random events and crashes in any order: there is never a VM too many, and the group recovers.

`make test-long` runs more of them.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from support.sample import STATE_MACHINE_SETTINGS
from vsphere_operators.kinds.vmgroup.model import DesiredState, Rollout
from vsphere_operators.kinds.vmgroup.replica import has_desired_size

from .simulation import MAX_START_DELAY_SECONDS, MAX_VISIBILITY_DELAY_SECONDS, GroupSimulation
from .simulation_model import CallOutcome, SimulatedVm

SUCCESSFUL_OUTCOME = CallOutcome()
CALL_OUTCOMES = st.builds(
    CallOutcome,
    duration_seconds=st.sampled_from([0.5, 2.0, 8.0, 30.0]),
    # Rare enough that most histories make progress.
    fails=st.sampled_from([False, False, False, True]),
    start_delay_seconds=st.floats(0.0, MAX_START_DELAY_SECONDS),
    visibility_delay_seconds=st.floats(0.0, MAX_VISIBILITY_DELAY_SECONDS),
    answer_is_lost=st.sampled_from([False, False, True]),
    shown_after=st.sampled_from([0.0, 0.3, 1.0]),
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
        "clone_blocker": st.sampled_from(["", "", 'no template "t"']),
        "rollout": ROLLOUTS,
    },
)


def with_spec(desired: DesiredState, spec: dict[str, Any]) -> DesiredState:
    """The desired state after an edit; the fingerprint follows the template."""
    desired = replace(desired, **spec)
    return replace(desired, fingerprint=f"of {desired.template}")


class CrashStateMachine(RuleBasedStateMachine):
    """Crashes, lost responses, late calls and scaling. The simulation checks after each step."""

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

    # Most histories begin with VMs: otherwise few of them would ever have one to change.
    @initialize(spec=SPEC_CHANGES, seconds=st.sampled_from([0, 4, 12, 12, 12]))
    def create_group(self, spec: dict[str, Any], seconds: int) -> None:
        desired = replace(self.simulation.stored.desired, replicas=spec.get("replicas", 3))
        self.simulation.edit_spec(desired)
        self.simulation.restart_manager()
        self.run_manager([SUCCESSFUL_OUTCOME], seconds)
        self.simulation.edit_spec(with_spec(desired, spec))

    # The manager

    @rule(outcomes=st.lists(CALL_OUTCOMES, min_size=1, max_size=4))
    def reconcile(self, outcomes: list[CallOutcome]) -> None:
        self.run_reconcile(outcomes, None)

    @rule(outcomes=st.lists(CALL_OUTCOMES, min_size=1, max_size=4), after=st.integers(0, 5))
    def reconcile_and_crash(self, outcomes: list[CallOutcome], after: int) -> None:
        self.run_reconcile(outcomes, after)

    @rule(outcomes=st.lists(CALL_OUTCOMES, min_size=1, max_size=3), seconds=st.integers(2, 15))
    def run_manager(self, outcomes: list[CallOutcome], seconds: int) -> None:
        """A manager that works for a while and sees every change of the object."""
        for _ in range(seconds):
            self.simulation.manager.cached_group = self.simulation.stored
            self.run_reconcile(outcomes, None)
            self.simulation.advance_time(1.0)

    def run_reconcile(self, outcomes: list[CallOutcome], crash_after: int | None) -> None:
        if not self.simulation.is_finished:
            next_outcomes = iter(outcomes * 20)
            self.simulation.reconcile(lambda: next(next_outcomes), crash_after)

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0, 12.0]))
    def wait(self, seconds: float) -> None:
        self.simulation.advance_time(seconds)

    @rule(replicas=st.integers(1, 4))
    def scale(self, replicas: int) -> None:
        if not self.simulation.is_finished:
            self.simulation.edit_spec(replace(self.simulation.stored.desired, replicas=replicas))
            self.simulation.manager.cached_group = self.simulation.stored

    # Not at once: a deleted group has few events left.
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
        for ref, vm in self.foreign_vms.items():
            assert self.simulation.vms[ref] is vm
            assert vm.power == "poweredOn"

    # The end: all problems are removed, and the group has to recover

    def teardown(self) -> None:
        simulation = self.simulation
        for ref in [
            ref
            for ref, vm in simulation.vms.items()
            if not vm.is_owned and ref not in self.foreign_vms
        ]:
            del simulation.vms[ref]
        for vm in simulation.list_owned_vms():
            vm.foreign_disks, vm.unavailable = (), False
        if not simulation.is_finished:
            simulation.edit_spec(replace(simulation.stored.desired, paused=False, clone_blocker=""))
        # The invariants hold all the time; convergence needs an end of the disturbances.
        self.settle()

    def settle(self) -> None:
        simulation = self.simulation
        for _ in range(300):
            if simulation.is_finished:
                return self.check_finished()
            simulation.manager.cached_group = simulation.stored
            simulation.reconcile(lambda: SUCCESSFUL_OUTCOME)
            simulation.advance_time(1.0)
            if (
                self.is_in_desired_state()
                and not simulation.vm_tasks
                # A user's clone too: a VM that was adopted meanwhile may be its VM.
                and not any(call.state in ("wire", "running") for call in simulation.clone_calls)
            ):
                return self.check_stable()
        raise AssertionError(f"not in the desired state after 300 steps: {simulation.make_plan()}")

    def check_finished(self) -> None:
        assert not self.simulation.list_unfinished_clones()

    def is_in_desired_state(self) -> bool:
        simulation, desired = self.simulation, self.simulation.stored.desired
        vms = [simulation.observe_vm(vm) for vm in simulation.list_owned_vms()]
        replaced = desired.rollout.strategy == "RollingUpdate"
        return (
            not desired.deleting
            and len(vms) == len(simulation.stored.records) == desired.replicas
            and not any(record.terminating for record in simulation.stored.records)
            and all(vm.power == desired.power and has_desired_size(desired, vm) for vm in vms)
            and all(vm.fingerprint == desired.fingerprint or not replaced for vm in vms)
        )

    def check_stable(self) -> None:
        simulation = self.simulation
        # Longer than all back-offs of the simulation.
        for _ in range(3):
            simulation.advance_time(20.0)
            simulation.manager.cached_group = simulation.stored
            before = simulation.mutation_count
            new_plan = simulation.reconcile(lambda: SUCCESSFUL_OUTCOME)
            assert (new_plan.actions, simulation.mutation_count) == ((), before)
        assert (new_plan.phase, new_plan.message) == ("RUNNING", "successfully reconciled VmGroup")
        assert (
            new_plan.counts.ready == new_plan.counts.current == simulation.stored.desired.replicas
        )


class UserChangeStateMachine(CrashStateMachine):
    """In addition: users, and an API server that returns old versions."""

    @rule(versions_back=st.integers(0, 4))
    def restart_with_stale_object(self, versions_back: int) -> None:
        self.simulation.restart_manager(
            self.simulation.versions[max(0, len(self.simulation.versions) - 1 - versions_back)]
        )

    @rule()
    def refresh_cache(self) -> None:
        self.simulation.manager.cached_group = self.simulation.stored

    # Users

    @rule(spec=SPEC_CHANGES)
    def edit_spec(self, spec: dict[str, Any]) -> None:
        if not self.simulation.is_finished:
            self.simulation.edit_spec(with_spec(self.simulation.stored.desired, spec))

    # Records are all that is known of a clone without a VM, so that nothing can replace them. A
    # manager that runs may be about to send more, so it is stopped, as for a restore from backup.
    @precondition(lambda self: not self.simulation.has_invisible_vm)
    @rule()
    def wipe_status(self) -> None:
        if not self.simulation.is_finished:
            self.simulation.wipe_status()
            self.simulation.restart_manager()

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
        simulation = self.simulation
        vm = data.draw(st.sampled_from(sorted(simulation.list_owned_vms(), key=lambda vm: vm.ref)))
        if vm.is_being_cloned:
            # vCenter rejects this with TaskInProgress.
            return
        if user_action == "delete":
            del simulation.vms[vm.ref]
        elif user_action == "copy":
            simulation.copy_vm(vm)
        elif user_action in ("attach", "detach") and not any(
            task.vm is vm for task in simulation.vm_tasks
        ):
            vm.foreign_disks = ("pvc-1",) if user_action == "attach" else ()
        elif user_action in ("break", "heal"):
            vm.unavailable = user_action == "break"
        elif user_action in ("rename", "move") and vm.visible_at <= simulation.now:
            vm.inventory_name, vm.folder = (
                (f"mine {vm.ref}", vm.folder)
                if user_action == "rename"
                else (vm.inventory_name, "group-v0")
            )
        elif not any(task.vm is vm for task in simulation.vm_tasks):
            self.change_power_or_size(vm, user_action)

    def change_power_or_size(self, vm: SimulatedVm, user_action: str) -> None:
        if user_action == "off":
            vm.power = "poweredOff"
        elif user_action == "suspend" and vm.power == "poweredOn":
            vm.power = "suspended"
        elif user_action == "resize":
            vm.cpus = 4

    @precondition(lambda self: self.simulation.folder_ref)
    @rule()
    def add_foreign_vm(self) -> None:
        vm = self.simulation.add_foreign_vm("foreign")
        self.foreign_vms[vm.ref] = vm

    @precondition(lambda self: self.simulation.folder_ref and self.simulation.stored.records)
    @rule(data=st.data())
    def add_vm_with_replica_name(self, data: st.DataObject) -> None:
        name = data.draw(
            st.sampled_from([record.name for record in self.simulation.stored.records])
        )
        if not any(vm.inventory_name == name for vm in self.simulation.vms.values()):
            self.simulation.add_foreign_vm(name)

    @rule(template=st.sampled_from(["vm-t1", "vm-t2"]), seconds=st.sampled_from([2.0, 20.0, 90.0]))
    def clone_template(self, template: str, seconds: float) -> None:
        if self.simulation.folder_ref:
            self.simulation.clone_template_as_user(template, seconds)

    @precondition(lambda self: self.simulation.folder_ref)
    @rule(enabled=st.sampled_from([False, False, True]))
    def delete_folder(self, enabled: bool) -> None:
        simulation = self.simulation
        # vCenter rejects it with TaskInProgress while a VM in it is being cloned.
        if enabled and not any(vm.is_being_cloned for vm in simulation.vms.values()):
            simulation.vms = {
                ref: vm for ref, vm in simulation.vms.items() if vm.folder != simulation.folder_ref
            }
            self.foreign_vms = {
                ref: vm for ref, vm in self.foreign_vms.items() if ref in simulation.vms
            }
            simulation.folder_ref = ""


TestCrashes = CrashStateMachine.TestCase
TestCrashes.settings = STATE_MACHINE_SETTINGS
TestAnyTime = UserChangeStateMachine.TestCase
TestAnyTime.settings = STATE_MACHINE_SETTINGS
