"""The write policy of quickStats as plain calls on a clock of our own, and its promises on generated histories."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright.testing import eventually
from vsphere_operators.vsphere.model import Host, HostStats, VirtualMachine, VirtualMachineStats
from vsphere_operators.vsphere.stats_throttle import SLOT_COUNT, StatsThrottle, slot_of

INTERVAL_SECONDS = 60.0
CHANGE_THRESHOLD = 0.05
HOST = Host(
    ref="host-12",
    name="esxi-1",
    connection="connected",
    cpu_mhz=2000,
    cpu_cores=10,
    memory_bytes=100_000 * 2**20,
    stats=HostStats(cpu_usage_mhz=5000, memory_usage_mb=40_000),
)
VM = VirtualMachine(
    ref="vm-7",
    name="node-1",
    cpus=4,
    memory_mb=8192,
    stats=VirtualMachineStats(cpu_usage_mhz=100, cpu_demand_mhz=100, guest_memory_mb=1000),
)


class FakeClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def make_throttle(
    host: Host | VirtualMachine, clock: FakeClock, change_threshold: float = CHANGE_THRESHOLD
) -> StatsThrottle:
    pace = StatsThrottle(INTERVAL_SECONDS, change_threshold, clock)
    assert pace.should_publish(None, host)
    return pace


def with_load(host: Host, cpu_mhz: int | None, memory_mb: int | None = 40_000) -> Host:
    return replace(host, stats=HostStats(cpu_usage_mhz=cpu_mhz, memory_usage_mb=memory_mb))


def collect_due(pace: StatsThrottle, clock: FakeClock, seconds: float) -> list[tuple[float, str]]:
    """What is told while so many seconds pass, a second at a time."""
    told = []
    for _ in range(round(seconds)):
        clock.seconds += 1
        told += [(clock.seconds, ref) for ref in pace.take_due()]
    return told


def test_small_change_is_published_once_in_its_slot() -> None:
    clock = FakeClock()
    pace = make_throttle(HOST, clock)
    assert not pace.should_publish(HOST, with_load(HOST, 5999))
    told = collect_due(pace, clock, 3 * INTERVAL_SECONDS)
    assert [ref for _, ref in told] == ["host-12"]
    assert told[0][0] <= 1000 + INTERVAL_SECONDS + 1


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
def test_large_change_is_published_at_once(
    cpu_mhz: int | None, memory_mb: int, now: bool
) -> None:
    assert (
        make_throttle(HOST, FakeClock()).should_publish(HOST, with_load(HOST, cpu_mhz, memory_mb))
        is now
    )


def test_small_changes_add_up_to_a_large_one() -> None:
    pace = make_throttle(HOST, FakeClock())
    assert not pace.should_publish(HOST, with_load(HOST, 5600))
    assert pace.should_publish(with_load(HOST, 5600), with_load(HOST, 6200))
    assert not pace.should_publish(with_load(HOST, 6200), with_load(HOST, 5600))


def test_number_that_changed_back_is_not_published() -> None:
    clock = FakeClock()
    pace = make_throttle(HOST, clock)
    pace.should_publish(HOST, with_load(HOST, 5500))
    pace.should_publish(with_load(HOST, 5500), HOST)
    assert collect_due(pace, clock, 2 * INTERVAL_SECONDS) == []


def test_other_changes_are_published_with_the_newest_numbers() -> None:
    clock = FakeClock()
    pace = make_throttle(HOST, clock)
    assert not pace.should_publish(HOST, with_load(HOST, 5500))
    renamed = replace(with_load(HOST, 5600), name="esxi-2")
    assert pace.should_publish(with_load(HOST, 5500), renamed)
    assert collect_due(pace, clock, 2 * INTERVAL_SECONDS) == []
    assert not pace.should_publish(renamed, with_load(renamed, 6600))


def test_dependency_change_is_published_at_once() -> None:
    clock = FakeClock()
    pace = make_throttle(HOST, clock)
    assert pace.should_publish(HOST, HOST)
    assert pace.should_publish(HOST, with_load(HOST, 5001), dependency_changed=True)
    assert collect_due(pace, clock, 2 * INTERVAL_SECONDS) == []


def test_host_that_left_is_forgotten() -> None:
    clock = FakeClock()
    pace = make_throttle(HOST, clock)
    pace.should_publish(HOST, with_load(HOST, 5500))
    assert pace.should_publish(with_load(HOST, 5500), None)
    assert collect_due(pace, clock, 2 * INTERVAL_SECONDS) == []
    assert not pace.published_stats
    assert not any(pace.pending_by_slot)


def test_stats_of_vms_are_throttled_too() -> None:
    clock = FakeClock()
    pace = make_throttle(VM, clock)
    assert not pace.should_publish(
        VM,
        replace(
            VM,
            stats=VirtualMachineStats(cpu_usage_mhz=400, cpu_demand_mhz=500, guest_memory_mb=1400),
        ),
    )
    assert pace.should_publish(
        VM,
        replace(
            VM,
            stats=VirtualMachineStats(cpu_usage_mhz=100, cpu_demand_mhz=501, guest_memory_mb=1000),
        ),
    )
    assert pace.should_publish(
        VM,
        replace(
            VM,
            stats=VirtualMachineStats(cpu_usage_mhz=100, cpu_demand_mhz=501, guest_memory_mb=1410),
        ),
    )
    assert not any(pace.pending_by_slot)


def test_without_a_total_changes_wait_for_the_slot() -> None:
    bare = Host(ref="host-1", stats=HostStats(cpu_usage_mhz=1, memory_usage_mb=1))
    assert not make_throttle(bare, FakeClock()).should_publish(
        bare, replace(bare, stats=HostStats(cpu_usage_mhz=99_999, memory_usage_mb=99_999))
    )


def test_interval_0_publishes_every_change() -> None:
    pace = StatsThrottle(0, CHANGE_THRESHOLD, FakeClock())
    assert pace.should_publish(None, HOST)
    assert pace.should_publish(HOST, with_load(HOST, 5001))
    assert pace.take_due() == []


def test_clock_jump_publishes_everything_pending_once() -> None:
    clock = FakeClock()
    pace = make_throttle(HOST, clock)
    pace.should_publish(HOST, with_load(HOST, 5500))
    clock.seconds += 86_400
    assert pace.take_due() == ["host-12"]
    assert pace.take_due() == []


@pytest.mark.parametrize("pattern", ["host-{}", "vm-{}", "host-1{:05}"])
@pytest.mark.parametrize("step", [1, 3, 7])
def test_slots_are_spread_evenly(pattern: str, step: int) -> None:
    filled = Counter(slot_of(pattern.format(n)) for n in range(10, 10 + 1200 * step, step))
    assert len(filled) == SLOT_COUNT
    assert max(filled.values()) <= 2 * 1200 / SLOT_COUNT


def test_1000_simultaneous_changes_are_spread_over_the_interval() -> None:
    clock = FakeClock()
    pace = StatsThrottle(INTERVAL_SECONDS, CHANGE_THRESHOLD, clock)
    hosts = [replace(HOST, ref=f"host-{n}") for n in range(1000)]
    assert all(pace.should_publish(None, host) for host in hosts)
    assert not any(pace.should_publish(host, with_load(host, 5100)) for host in hosts)
    told = collect_due(pace, clock, INTERVAL_SECONDS)
    assert sorted(ref for _, ref in told) == sorted(host.ref for host in hosts)
    assert max(Counter(second for second, _ in told).values()) <= 2 * 1000 / SLOT_COUNT


def test_thousands_of_changes_are_cheap() -> None:
    clock = FakeClock()
    pace = StatsThrottle(INTERVAL_SECONDS, CHANGE_THRESHOLD, clock)
    pairs = [
        (replace(HOST, ref=f"host-{n}"), with_load(replace(HOST, ref=f"host-{n}"), 5100))
        for n in range(10_000)
    ]
    for host, _ in pairs:
        pace.should_publish(None, host)
    started = time.process_time()
    for host, later in pairs:
        pace.should_publish(host, later)
    collect_due(pace, clock, INTERVAL_SECONDS)
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
    """At most one telling an interval for small moves alone; nothing waits longer than an interval and a tick; told is what was newest."""
    clock = FakeClock()
    pace = StatsThrottle(INTERVAL_SECONDS, CHANGE_THRESHOLD, clock)
    history = ThrottleHistory(pace, clock)
    for seconds, which, usage, what in steps:
        history.advance_clock(seconds)
        history.apply_change(f"host-{which}", usage, what)
    history.advance_clock(INTERVAL_SECONDS + 1)
    assert history.unpublished_since == {}


class ThrottleHistory:
    """Plays changes to a Pace and judges what it tells, by rules written down a second time and otherwise."""

    def __init__(self, pace: StatsThrottle, clock: FakeClock) -> None:
        self.throttle, self.clock = pace, clock
        self.hosts: dict[str, Host] = {}
        self.published_stats: dict[str, HostStats] = {}
        self.unpublished_since: dict[str, float] = {}
        self.slot_published_at: dict[str, float] = {}

    def apply_change(self, ref: str, usage: int, what: str) -> None:
        old = self.hosts.get(ref)
        new: Host | None = None
        if old is None:
            new = with_load(replace(HOST, ref=ref), usage)
        elif what != "leave":
            new = with_load(replace(old, name=old.name + "x") if what == "rename" else old, usage)
        at_once = self.throttle.should_publish(old, new)
        if new is None:
            self.hosts.pop(ref, None)
            self.slot_published_at.pop(ref, None)
            self.unpublished_since.pop(ref, None)
            return
        self.hosts[ref] = new
        only_load = old is not None and old.name == new.name and old != new
        assert at_once is not (
            only_load
            and abs(usage - (self.published_stats[ref].cpu_usage_mhz or 0))
            <= 20_000 * CHANGE_THRESHOLD
        )
        if at_once:
            self.mark_published(ref)
        elif new.stats == self.published_stats[ref]:
            self.unpublished_since.pop(ref, None)
        else:
            self.unpublished_since.setdefault(ref, self.clock.seconds)

    def mark_published(self, ref: str) -> None:
        self.published_stats[ref] = self.hosts[ref].stats
        self.unpublished_since.pop(ref, None)

    def advance_clock(self, seconds: float) -> None:
        end = self.clock.seconds + seconds
        while self.clock.seconds < end:
            self.clock.seconds = min(end, self.clock.seconds + 1)
            for ref in self.throttle.take_due():
                assert ref in self.unpublished_since
                # A tick may come up to a second late, so two slots of one entity may be seen that much closer.
                assert (
                    self.clock.seconds - self.slot_published_at.get(ref, -1e9)
                    > INTERVAL_SECONDS - 1
                )
                self.slot_published_at[ref] = self.clock.seconds
                self.mark_published(ref)
            assert all(
                self.clock.seconds - since <= INTERVAL_SECONDS + 1
                for since in self.unpublished_since.values()
            )


async def test_run_publishes_due_changes() -> None:
    pace = StatsThrottle(0.3, CHANGE_THRESHOLD)
    told: list[str] = []
    pace.should_publish(None, HOST)
    pace.should_publish(HOST, with_load(HOST, 5500))
    task = asyncio.create_task(pace.run(told.append))
    await eventually(lambda: told)
    task.cancel()
    assert told == ["host-12"]


def test_shown_stats_are_the_published_ones() -> None:
    clock = FakeClock()
    pace = make_throttle(HOST, clock)
    near = with_load(HOST, 5100)
    assert not pace.should_publish(HOST, near)
    assert pace.with_published_stats(near) == HOST
    clock.seconds += INTERVAL_SECONDS
    assert pace.take_due() == [HOST.ref]
    assert pace.with_published_stats(near) is near
    far = with_load(HOST, 15_000)
    assert pace.should_publish(near, far)
    assert pace.with_published_stats(far) is far
    assert pace.with_published_stats(replace(HOST, ref="host-unknown")).ref == "host-unknown"
