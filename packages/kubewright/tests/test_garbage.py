from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from kubewright.garbage import GarbageCollector, tune_garbage_collector

DAY_SECONDS = 24 * 3600.0


class Node:
    """Part of a cycle of two."""

    def __init__(self) -> None:
        self.other: Node | None = None


def make_cycle() -> Node:
    first, second = Node(), Node()
    first.other, second.other = second, first
    return first


class FakeClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture(autouse=True)
def collector_of_the_tests() -> Iterator[None]:
    threshold, callbacks = gc.get_threshold(), gc.callbacks.copy()
    yield
    gc.set_threshold(*threshold)
    gc.callbacks[:] = callbacks
    gc.unfreeze()


def test_new_cycles_are_collected() -> None:
    collector, node = GarbageCollector(), make_cycle()
    reference = weakref.ref(node)
    del node
    collector._collect()
    assert reference() is None


def test_what_survives_is_visited_once_a_day_only() -> None:
    clock = FakeClock()
    collector, node = GarbageCollector(clock), make_cycle()
    collector._collect()
    assert gc.get_freeze_count() > 0
    reference = weakref.ref(node)
    del node
    collector._collect()
    assert reference() is not None
    clock.seconds = DAY_SECONDS
    collector._collect()
    assert reference() is None
    # The next one is a day later.
    node = make_cycle()
    collector._collect()
    reference = weakref.ref(node)
    del node
    clock.seconds += DAY_SECONDS - 1
    collector._collect()
    assert reference() is not None


def test_interval_grows_while_collections_are_short() -> None:
    clock = FakeClock()
    collector = GarbageCollector(clock)
    intervals = []
    for _ in range(7):
        collector._collect()
        intervals.append(collector._interval_seconds)
    assert intervals == [2, 4, 8, 16, 30, 30, 30]

    def advance(phase: str, info: dict[str, int]) -> None:
        clock.seconds += 0.02

    gc.callbacks.append(advance)
    try:
        collector._collect()
    finally:
        gc.callbacks.remove(advance)
    assert collector._interval_seconds == 1


def test_tuning_leaves_no_automatic_full_collection() -> None:
    tune_garbage_collector()
    assert gc.get_threshold()[2] > 100_000
    assert gc.get_freeze_count() > 0


def test_many_survivors_are_frozen_before_the_next_collection_by_time() -> None:
    tune_garbage_collector()
    gc.collect()
    gc.freeze()
    few = [[] for _ in range(40_000)]  # type: list[list[int]]
    gc.collect(1)
    before = gc.get_freeze_count()
    gc.collect(1)
    assert gc.get_freeze_count() == before
    many = [[] for _ in range(20_000)]  # type: list[list[int]]
    gc.collect(1)
    assert gc.get_freeze_count() - before >= len(few) + len(many)
