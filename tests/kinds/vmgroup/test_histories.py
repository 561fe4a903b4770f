"""A sample of the generated histories; `make histories` runs 10,000."""

from __future__ import annotations

import random

import pytest

from vsphere_operators.kinds.vmgroup import reconciler

from .history.events import run_history


@pytest.mark.parametrize("first_seed", range(0, 20, 10))
def test_invariants_hold_and_every_group_recovers(first_seed: int) -> None:
    worlds = [run_history(seed) for seed in range(first_seed, first_seed + 10)]
    assert sum(world.counts["sent clone"] for world in worlds) > 10


def test_replica_names_are_random_again_after_a_history() -> None:
    run_history(0, events=1)
    assert vars(reconciler)["random"] is random
