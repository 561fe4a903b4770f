"""One life of a group, once for each of its steps with the process dying just before it, or in the middle of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.model import DesiredState

from .parts import Chance
from .world import World

WISH = DesiredState(
    cpus=1,
    memory_mb=1024,
    replicas=3,
    uid="uid-1",
    template="vm-t1",
    template_name="t",
    fingerprint="of vm-t1",
)


def scaled(replicas: int) -> Callable[[World], None]:
    return lambda world: world.edit(replace(world.stored.wish, replicas=replicas))


def hands(world: World) -> None:
    first, second, *_ = sorted(world.genuine(), key=lambda each: each.ref)
    del world.machines[first.ref]
    second.power = "poweredOff"


def bad_template(world: World) -> None:
    world.edit(
        replace(world.stored.wish, template="", fingerprint="of nothing", blocker='no template "x"')
    )


def mended(world: World) -> None:
    world.edit(replace(world.stored.wish, template="vm-t2", fingerprint="of vm-t2", blocker=""))


def deleted(world: World) -> None:
    world.edit(replace(world.stored.wish, deleting=True))


LIFE = (scaled(3), scaled(5), hands, scaled(2), bad_template, mended, deleted)


class Life:
    """The scenario, with at most one death."""

    def __init__(self, dies_after: int | None, chance: Chance, hurries: bool) -> None:
        self.world, self.dies_after, self.chance, self.hurries = (
            World(WISH),
            dies_after,
            chance,
            hurries,
        )
        self.stranger = ""

    def run(self) -> None:
        for event in LIFE:
            if event is not hands or len(self.world.genuine()) >= 2:
                event(self.world)
            self.settle()
            if self.world.folder and not self.stranger:
                self.stranger = self.world.add("theirs").ref
        self.hurries = False
        self.settle()

    def settle(self) -> None:
        """Until nothing is to be done; after the death, in a hurry, not at all."""
        for _ in range(60):
            if self.world.finished or (self.step() and self.hurries):
                return
            self.world.pass_time(1.0)
            plan = self.world.think()
            if (
                not plan.write_status_first
                and not plan.actions
                and not self.world.jobs
                and not self.world.under_way()
                and plan.phase != "PENDING"
            ):
                return
        raise AssertionError(f"not settled: {self.world.think()}")

    def step(self) -> bool:
        """Whether it died."""
        world = self.world
        world.manager.view = world.stored
        manager, left = (
            world.manager,
            None if self.dies_after is None else self.dies_after - world.steps,
        )
        world.reconcile(lambda: self.chance, left)
        died = world.manager is not manager
        if died:
            self.dies_after = None
        return died


def whole_life(chance: Chance) -> int:
    life = Life(None, chance, hurries=False)
    life.run()
    return life.world.steps


@pytest.mark.parametrize("hurries", [False, True])
@pytest.mark.parametrize(
    "chance",
    [
        Chance(),
        Chance(seconds=8.0),
        Chance(seconds=8.0, late_seconds=8.0),
        Chance(late_seconds=8.0, sight_seconds=4.0),
    ],
    ids=["quick", "slow", "late", "late and out of sight"],
)
def test_whatever_step_it_dies_at_the_group_lives_and_ends_as_it_should(
    chance: Chance, hurries: bool
) -> None:
    steps = whole_life(chance)
    assert steps > 30
    for dies_after in range(steps):
        life = Life(dies_after, chance, hurries)
        life.run()
        assert life.dies_after is None, "the death was not reached"
        assert life.world.finished, f"dies after {dies_after}"
        assert [each.ref for each in life.world.machines.values()] == [life.stranger]
