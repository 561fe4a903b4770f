"""The run of a group, once for each step, with a crash of the process before or in that step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.model import DesiredState

from .simulation import GroupSimulation
from .simulation_model import CallOutcome

DESIRED = DesiredState(
    cpus=1,
    memory_mb=1024,
    replicas=3,
    uid="uid-1",
    template="vm-t1",
    template_name="t",
    fingerprint="of vm-t1",
)


def scale_to(replicas: int) -> Callable[[GroupSimulation], None]:
    return lambda simulation: simulation.edit_spec(
        replace(simulation.stored.desired, replicas=replicas)
    )


def delete_and_power_off(simulation: GroupSimulation) -> None:
    first, second, *_ = sorted(simulation.list_owned_vms(), key=lambda vm: vm.ref)
    del simulation.vms[first.ref]
    second.power = "poweredOff"


def set_missing_template(simulation: GroupSimulation) -> None:
    simulation.edit_spec(
        replace(
            simulation.stored.desired,
            template="",
            fingerprint="of nothing",
            clone_blocker='no template "x"',
        )
    )


def set_other_template(simulation: GroupSimulation) -> None:
    simulation.edit_spec(
        replace(
            simulation.stored.desired, template="vm-t2", fingerprint="of vm-t2", clone_blocker=""
        )
    )


def delete_group(simulation: GroupSimulation) -> None:
    simulation.edit_spec(replace(simulation.stored.desired, deleting=True))


LIFECYCLE = (
    scale_to(3),
    scale_to(5),
    delete_and_power_off,
    scale_to(2),
    set_missing_template,
    set_other_template,
    delete_group,
)


class LifecycleRun:
    """One run of the lifecycle, with at most one crash."""

    def __init__(self, crash_after: int | None, outcome: CallOutcome, skip_settling: bool) -> None:
        self.simulation, self.crash_after, self.call_outcome, self.skip_settling = (
            GroupSimulation(DESIRED),
            crash_after,
            outcome,
            skip_settling,
        )
        self.foreign_vm_ref = ""

    def run(self) -> None:
        for event in LIFECYCLE:
            # A crash may leave too few VMs for this step.
            if event is not delete_and_power_off or len(self.simulation.list_owned_vms()) >= 2:
                event(self.simulation)
            self.settle()
            if self.simulation.folder_ref and not self.foreign_vm_ref:
                self.foreign_vm_ref = self.simulation.add_foreign_vm("foreign").ref
        self.skip_settling = False
        self.settle()

    def settle(self) -> None:
        """Reconcile until nothing is left to do; with `skip_settling`, only until the crash."""
        for _ in range(60):
            if self.simulation.is_finished or (self.reconcile_once() and self.skip_settling):
                return
            self.simulation.advance_time(1.0)
            if self.simulation.vm_tasks or self.simulation.list_unfinished_clones():
                continue
            plan = self.simulation.make_plan()
            if not plan.write_status_first and not plan.actions and plan.phase != "PENDING":
                return
        raise AssertionError(f"not settled: {self.simulation.make_plan()}")

    def reconcile_once(self) -> bool:
        """Returns whether the process crashed."""
        simulation = self.simulation
        simulation.manager.cached_group = simulation.stored
        manager, left = (
            simulation.manager,
            None if self.crash_after is None else self.crash_after - simulation.step_count,
        )
        simulation.reconcile(lambda: self.call_outcome, left)
        crashed = simulation.manager is not manager
        if crashed:
            self.crash_after = None
        return crashed


def count_steps(outcome: CallOutcome) -> int:
    run = LifecycleRun(None, outcome, skip_settling=False)
    run.run()
    return run.simulation.step_count


@pytest.mark.parametrize("skips_settling", [False, True])
@pytest.mark.parametrize(
    "outcome",
    [
        CallOutcome(),
        CallOutcome(duration_seconds=8.0),
        CallOutcome(duration_seconds=8.0, start_delay_seconds=8.0),
        CallOutcome(start_delay_seconds=8.0, visibility_delay_seconds=4.0),
        CallOutcome(duration_seconds=8.0, shown_after=0.3),
        CallOutcome(duration_seconds=8.0, start_delay_seconds=8.0, shown_after=0.0),
    ],
    ids=["fast", "slow", "late", "late and not visible", "shown early", "late and shown early"],
)
def test_a_crash_at_any_step_does_no_harm(outcome: CallOutcome, skips_settling: bool) -> None:
    steps = count_steps(outcome)
    # Otherwise the lifecycle got shorter, and the test proves less.
    assert steps > 30
    for crash_after in range(steps):
        run = LifecycleRun(crash_after, outcome, skips_settling)
        run.run()
        assert run.crash_after is None, "the crash was not reached"
        assert run.simulation.is_finished, f"crash after step {crash_after}"
        assert [vm.ref for vm in run.simulation.vms.values()] == [run.foreign_vm_ref]
