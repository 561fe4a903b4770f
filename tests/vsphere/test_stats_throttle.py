"""When quickStats are released: single cases, and guarantees on generated histories."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from unittest.mock import Mock, call

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright.testing import eventually
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.model import (
    Datastore,
    Host,
    HostStats,
)
from vsphere_operators.vsphere.stats_throttle import (
    BUCKET_COUNT,
    StatsThrottle,
    ThrottledEntity,
    bucket_of,
)

INTERVAL_SECONDS = 60.0
CHANGE_FRACTION = 0.05
HOST = Host(
    ref="host-12",
    name="esxi-1",
    connection="connected",
    cpu_mhz=2000,
    cpu_cores=10,
    memory_bytes=100_000 * 2**20,
    stats=HostStats(cpu_usage_mhz=5000, memory_usage_mb=40_000),
)


class FakeClock:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def new_throttle(clock: FakeClock, change_fraction: float = CHANGE_FRACTION) -> StatsThrottle:
    return StatsThrottle(Inventory("lab"), Mock(), INTERVAL_SECONDS, change_fraction, clock)


def make_throttle(
    host: Host, clock: FakeClock, change_fraction: float = CHANGE_FRACTION
) -> StatsThrottle:
    throttle = new_throttle(clock, change_fraction)
    assert throttle._record_change(None, host)
    return throttle


def with_load(host: Host, cpu_mhz: int | None, memory_mb: int | None = 40_000) -> Host:
    return replace(host, stats=HostStats(cpu_usage_mhz=cpu_mhz, memory_usage_mb=memory_mb))


def collect_due(
    throttle: StatsThrottle, clock: FakeClock, seconds: float
) -> list[tuple[float, str]]:
    """What is released in this many seconds, one second at a time."""
    released = []
    for _ in range(round(seconds)):
        clock.seconds += 1
        released += [(clock.seconds, ref) for ref in throttle._take_due()]
    return released


def test_small_change_is_released_once_in_its_bucket() -> None:
    clock = FakeClock()
    throttle = make_throttle(HOST, clock)
    assert not throttle._record_change(HOST, with_load(HOST, 5999))
    released = collect_due(throttle, clock, 3 * INTERVAL_SECONDS)
    assert [ref for _, ref in released] == ["host-12"]
    assert released[0][0] <= 1000 + INTERVAL_SECONDS + 1


@pytest.mark.parametrize(
    ("cpu_mhz", "memory_mb", "now"),
    [
        (6000, 40_000, False),
        (6001, 40_000, True),
        (3999, 40_000, True),
        (5000, 45_000, False),
        (5000, 45_001, True),
        (None, 40_000, True),
    ],
)
def test_large_change_is_released_at_once(cpu_mhz: int | None, memory_mb: int, now: bool) -> None:
    assert (
        make_throttle(HOST, FakeClock())._record_change(HOST, with_load(HOST, cpu_mhz, memory_mb))
        is now
    )


def test_small_changes_add_up_to_a_large_one() -> None:
    throttle = make_throttle(HOST, FakeClock())
    assert not throttle._record_change(HOST, with_load(HOST, 5600))
    assert throttle._record_change(with_load(HOST, 5600), with_load(HOST, 6200))
    assert not throttle._record_change(with_load(HOST, 6200), with_load(HOST, 5600))


def test_number_that_changed_back_is_not_released() -> None:
    clock = FakeClock()
    throttle = make_throttle(HOST, clock)
    throttle._record_change(HOST, with_load(HOST, 5500))
    throttle._record_change(with_load(HOST, 5500), HOST)
    assert collect_due(throttle, clock, 2 * INTERVAL_SECONDS) == []


def test_other_changes_are_released_with_the_newest_numbers() -> None:
    clock = FakeClock()
    throttle = make_throttle(HOST, clock)
    assert not throttle._record_change(HOST, with_load(HOST, 5500))
    renamed = replace(with_load(HOST, 5600), name="esxi-2")
    assert throttle._record_change(with_load(HOST, 5500), renamed)
    assert collect_due(throttle, clock, 2 * INTERVAL_SECONDS) == []
    assert not throttle._record_change(renamed, with_load(renamed, 6600))


def test_dependency_change_is_released_at_once() -> None:
    clock = FakeClock()
    throttle = make_throttle(HOST, clock)
    assert throttle._record_change(HOST, HOST)
    assert throttle._record_change(HOST, with_load(HOST, 5001), related_object_changed=True)
    assert collect_due(throttle, clock, 2 * INTERVAL_SECONDS) == []


def test_host_that_left_is_forgotten() -> None:
    clock = FakeClock()
    throttle = make_throttle(HOST, clock)
    throttle._record_change(HOST, with_load(HOST, 5500))
    assert throttle._record_change(with_load(HOST, 5500), None)
    assert collect_due(throttle, clock, 2 * INTERVAL_SECONDS) == []
    assert not throttle.released_stats
    assert not any(throttle.pending_by_bucket)


def test_change_that_is_due_has_a_listener_of_its_own() -> None:
    clock, on_release, on_due = FakeClock(), Mock(), Mock()
    inventory = Inventory("lab")
    inventory.hosts[HOST.ref] = HOST
    throttle = StatsThrottle(inventory, on_release, 60, CHANGE_FRACTION, clock, on_due=on_due)
    throttle._record_change(None, HOST)
    throttle._record_change(HOST, with_load(HOST, 5500))
    clock.seconds += 61
    throttle._release_due()
    assert on_due.call_args_list == [call(HOST)]
    throttle.release_ref(HOST.ref)
    assert on_release.call_args_list == [call(HOST)]


def test_without_a_total_changes_wait_for_the_bucket() -> None:
    bare = Host(ref="host-1", stats=HostStats(cpu_usage_mhz=1, memory_usage_mb=1))
    assert not make_throttle(bare, FakeClock())._record_change(
        bare, replace(bare, stats=HostStats(cpu_usage_mhz=99_999, memory_usage_mb=99_999))
    )


def test_interval_0_releases_every_change() -> None:
    throttle = StatsThrottle(Inventory("lab"), Mock(), 0, CHANGE_FRACTION, FakeClock())
    assert throttle._record_change(None, HOST)
    assert throttle._record_change(HOST, with_load(HOST, 5001))
    assert throttle._take_due() == []


def test_clock_jump_releases_everything_pending_once() -> None:
    clock = FakeClock()
    throttle = make_throttle(HOST, clock)
    throttle._record_change(HOST, with_load(HOST, 5500))
    clock.seconds += 86_400
    assert throttle._take_due() == ["host-12"]
    assert throttle._take_due() == []


@pytest.mark.parametrize("pattern", ["host-{}", "vm-{}", "host-1{:05}"])
@pytest.mark.parametrize("step", [1, 3, 7])
def test_buckets_are_spread_evenly(pattern: str, step: int) -> None:
    filled = Counter(bucket_of(pattern.format(n)) for n in range(10, 10 + 1200 * step, step))
    assert len(filled) == BUCKET_COUNT
    assert max(filled.values()) <= 2 * 1200 / BUCKET_COUNT


def test_1000_simultaneous_changes_are_spread_over_the_interval() -> None:
    clock = FakeClock()
    throttle = new_throttle(clock)
    hosts = [replace(HOST, ref=f"host-{n}") for n in range(1000)]
    assert all(throttle._record_change(None, host) for host in hosts)
    assert not any(throttle._record_change(host, with_load(host, 5100)) for host in hosts)
    released = collect_due(throttle, clock, INTERVAL_SECONDS)
    assert sorted(ref for _, ref in released) == sorted(host.ref for host in hosts)
    assert max(Counter(second for second, _ in released).values()) <= 2 * 1000 / BUCKET_COUNT


def test_thousands_of_changes_are_cheap() -> None:
    clock = FakeClock()
    throttle = new_throttle(clock)
    pairs = [
        (replace(HOST, ref=f"host-{n}"), with_load(replace(HOST, ref=f"host-{n}"), 5100))
        for n in range(10_000)
    ]
    for host, _ in pairs:
        throttle._record_change(None, host)
    started = time.process_time()
    for host, later in pairs:
        throttle._record_change(host, later)
    collect_due(throttle, clock, INTERVAL_SECONDS)
    assert time.process_time() - started < 1.0


STEPS = st.lists(
    st.tuples(
        st.floats(0.1, 25.0),
        st.integers(0, 2),
        st.integers(0, 10_000),
        st.sampled_from(["move", "move", "move", "rename", "leave"]),
    ),
    max_size=60,
)


@given(STEPS)
def test_guarantees_hold_on_any_history(steps: list[tuple[float, int, int, str]]) -> None:
    """Small changes are released once per interval at most, with the newest numbers."""
    clock = FakeClock()
    throttle = new_throttle(clock)
    history = ThrottleHistory(throttle, clock)
    for seconds, which, usage, what in steps:
        history.advance_clock(seconds)
        history.apply_change(f"host-{which}", usage, what)
    history.advance_clock(INTERVAL_SECONDS + 1)
    assert history.unreleased_since == {}


class ThrottleHistory:
    """Feeds changes to a StatsThrottle, and checks it against an independent set of rules."""

    def __init__(self, throttle: StatsThrottle, clock: FakeClock) -> None:
        self.throttle, self.clock = throttle, clock
        self.hosts: dict[str, Host] = {}
        self.released_stats: dict[str, HostStats] = {}
        self.unreleased_since: dict[str, float] = {}
        self.bucket_released_at: dict[str, float] = {}

    def apply_change(self, ref: str, usage: int, what: str) -> None:
        old = self.hosts.get(ref)
        new: Host | None = None
        if old is None:
            new = with_load(replace(HOST, ref=ref), usage)
        elif what != "leave":
            new = with_load(replace(old, name=old.name + "x") if what == "rename" else old, usage)
        at_once = self.throttle._record_change(old, new)
        if new is None:
            self.hosts.pop(ref, None)
            self.bucket_released_at.pop(ref, None)
            self.unreleased_since.pop(ref, None)
            return
        self.hosts[ref] = new
        only_load = old is not None and old.name == new.name and old != new
        assert at_once is not (
            only_load
            and abs(usage - (self.released_stats[ref].cpu_usage_mhz or 0))
            <= 20_000 * CHANGE_FRACTION
        )
        if at_once:
            self.mark_released(ref)
        elif new.stats == self.released_stats[ref]:
            self.unreleased_since.pop(ref, None)
        else:
            self.unreleased_since.setdefault(ref, self.clock.seconds)

    def mark_released(self, ref: str) -> None:
        self.released_stats[ref] = self.hosts[ref].stats
        self.unreleased_since.pop(ref, None)

    def advance_clock(self, seconds: float) -> None:
        end = self.clock.seconds + seconds
        while self.clock.seconds < end:
            self.clock.seconds = min(end, self.clock.seconds + 1)
            for ref in self.throttle._take_due():
                assert ref in self.unreleased_since
                # A tick may come up to a second late, so two publications may be that much closer.
                assert (
                    self.clock.seconds - self.bucket_released_at.get(ref, -1e9)
                    > INTERVAL_SECONDS - 1
                )
                self.bucket_released_at[ref] = self.clock.seconds
                self.mark_released(ref)
            assert all(
                self.clock.seconds - since <= INTERVAL_SECONDS + 1
                for since in self.unreleased_since.values()
            )


async def test_run_releases_due_changes() -> None:
    inventory, released = Inventory("lab"), list[ThrottledEntity]()
    inventory.hosts[HOST.ref] = HOST
    throttle = StatsThrottle(inventory, released.append, 0.3, CHANGE_FRACTION)
    throttle._record_change(None, HOST)
    throttle._record_change(HOST, with_load(HOST, 5500))
    task = asyncio.create_task(throttle.run())
    await eventually(lambda: released)
    task.cancel()
    assert released == [HOST]


def test_shown_stats_are_the_released_ones() -> None:
    clock = FakeClock()
    throttle = make_throttle(HOST, clock)
    small_change = with_load(HOST, 5100)
    assert not throttle._record_change(HOST, small_change)
    assert throttle.with_released_stats(small_change) == HOST
    clock.seconds += INTERVAL_SECONDS
    assert throttle._take_due() == [HOST.ref]
    assert throttle.with_released_stats(small_change) is small_change
    far = with_load(HOST, 15_000)
    assert throttle._record_change(small_change, far)
    assert throttle.with_released_stats(far) is far
    assert throttle.with_released_stats(replace(HOST, ref="host-unknown")).ref == "host-unknown"


DATASTORE = Datastore(
    ref="datastore-3",
    name="nfs-1",
    accessible=True,
    capacity_bytes=1000,
    free_bytes=500,
    uncommitted_bytes=200,
)


def test_small_changes_of_free_and_uncommitted_space_are_delayed() -> None:
    clock = FakeClock()
    throttle = new_throttle(clock)
    assert throttle._record_change(None, DATASTORE)
    smaller = replace(DATASTORE, free_bytes=460, uncommitted_bytes=240)
    assert not throttle._record_change(DATASTORE, smaller)
    assert throttle.with_released_stats(smaller) == DATASTORE
    clock.seconds += INTERVAL_SECONDS + 1
    assert throttle._take_due() == ["datastore-3"]
    assert throttle.with_released_stats(smaller) is smaller


@pytest.mark.parametrize(
    "changes",
    [
        {"free_bytes": 440},
        {"uncommitted_bytes": 260},
        {"uncommitted_bytes": None},
        {"accessible": False},
        {"free_bytes": 499, "name": "nfs-2"},
    ],
)
def test_other_changes_of_a_datastore_are_released_at_once(changes: dict[str, object]) -> None:
    throttle = new_throttle(FakeClock())
    throttle._record_change(None, DATASTORE)
    assert throttle._record_change(DATASTORE, replace(DATASTORE, **changes))
