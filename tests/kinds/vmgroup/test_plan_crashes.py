"""One life of a group, once for each of its steps with the process dying just before it, or in the middle of it."""

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
    return lambda world: world.edit_spec(replace(world.stored.desired, replicas=replicas))


def delete_and_power_off(world: GroupSimulation) -> None:
    first, second, *_ = sorted(world.list_owned_vms(), key=lambda each: each.ref)
    del world.vms[first.ref]
    second.power = "poweredOff"


def set_missing_template(world: GroupSimulation) -> None:
    world.edit_spec(
        replace(
            world.stored.desired, template="", fingerprint="of nothing", blocker='no template "x"'
        )
    )


def set_other_template(world: GroupSimulation) -> None:
    world.edit_spec(
        replace(world.stored.desired, template="vm-t2", fingerprint="of vm-t2", blocker="")
    )


def delete_group(world: GroupSimulation) -> None:
    world.edit_spec(replace(world.stored.desired, deleting=True))


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
    """The scenario, with at most one death."""

    def __init__(self, dies_after: int | None, chance: CallOutcome, skip_settling: bool) -> None:
        self.simulation, self.crash_after, self.call_outcome, self.skip_settling = (
            GroupSimulation(DESIRED),
            dies_after,
            chance,
            skip_settling,
        )
        self.foreign_vm_ref = ""

    def run(self) -> None:
        for event in LIFECYCLE:
            if event is not delete_and_power_off or len(self.simulation.list_owned_vms()) >= 2:
                event(self.simulation)
            self.settle()
            if self.simulation.folder_ref and not self.foreign_vm_ref:
                self.foreign_vm_ref = self.simulation.add_foreign_vm("theirs").ref
        self.skip_settling = False
        self.settle()

    def settle(self) -> None:
        """Until nothing is to be done; after the death, in a hurry, not at all."""
        for _ in range(60):
            if self.simulation.is_finished or (self.reconcile_once() and self.skip_settling):
                return
            self.simulation.advance_time(1.0)
            plan = self.simulation.make_plan()
            if (
                not plan.write_status_first
                and not plan.actions
                and not self.simulation.vm_tasks
                and not self.simulation.list_running_clones()
                and plan.phase != "PENDING"
            ):
                return
        raise AssertionError(f"not settled: {self.simulation.make_plan()}")

    def reconcile_once(self) -> bool:
        """Whether it died."""
        world = self.simulation
        world.manager.cached_group = world.stored
        manager, left = (
            world.manager,
            None if self.crash_after is None else self.crash_after - world.step_count,
        )
        world.reconcile(lambda: self.call_outcome, left)
        died = world.manager is not manager
        if died:
            self.crash_after = None
        return died


def count_steps(chance: CallOutcome) -> int:
    life = LifecycleRun(None, chance, skip_settling=False)
    life.run()
    return life.simulation.step_count


@pytest.mark.parametrize("hurries", [False, True])
@pytest.mark.parametrize(
    "chance",
    [
        CallOutcome(),
        CallOutcome(duration_seconds=8.0),
        CallOutcome(duration_seconds=8.0, start_delay_seconds=8.0),
        CallOutcome(start_delay_seconds=8.0, visibility_delay_seconds=4.0),
    ],
    ids=["quick", "slow", "late", "late and out of sight"],
)
def test_whatever_step_it_dies_at_the_group_lives_and_ends_as_it_should(
    chance: CallOutcome, hurries: bool
) -> None:
    steps = count_steps(chance)
    assert steps > 30
    for dies_after in range(steps):
        life = LifecycleRun(dies_after, chance, hurries)
        life.run()
        assert life.crash_after is None, "the death was not reached"
        assert life.simulation.is_finished, f"dies after {dies_after}"
        assert [each.ref for each in life.simulation.vms.values()] == [life.foreign_vm_ref]
