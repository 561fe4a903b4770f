"""Each way a watch can end, on the fake and in virtual time. real/ has the same on the real API
server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import parse_qs

import pytest

from kubewright.builtin import Pod
from kubewright.cache import Origin, Store
from kubewright.client import Client
from kubewright.errors import (
    Forbidden,
    Gone,
    KindMissing,
    ServerError,
    TimedOut,
    TooManyRequests,
    Unreachable,
    error_from_status,
)
from kubewright.kind import Key, ObjectMeta
from kubewright.log import Log
from kubewright.metrics import Metrics
from kubewright.reflector import MAX_BACKOFF_SECONDS, Reflector
from kubewright.testing import eventually
from kubewright.testing.fake import FakeApi
from kubewright.transport import Request

from .support.widget_kind import Widget, WidgetSpec

pytestmark = pytest.mark.looptime


class ReflectorHarness:
    use_watch_list = True

    def __init__(self) -> None:
        self.api = FakeApi()
        self.client = Client(self.api)
        self.metrics = Metrics()
        self.store: Store[Widget] = Store(Widget.definition, Log("test"))
        self.changes: list[tuple[str, bool, Origin]] = []
        self.store.changed.connect(
            lambda key, old, new, origin: self.changes.append((key.name, new is None, origin))
        )
        loop = asyncio.get_running_loop()
        self.reflector = Reflector(
            Widget,
            self.store,
            self.client,
            self.metrics,
            Log("test"),
            use_watch_list=self.use_watch_list,
            clock=loop.time,
        )

    def add_widget(self, name: str, size: int = 0) -> None:
        self.api.add(
            Widget(metadata=ObjectMeta(name=name, namespace="n"), spec=WidgetSpec(size=size))
        )

    def stored_names(self) -> set[str]:
        return {key.name for key in self.store.objects}

    def count_lists(self) -> int:
        return int(self.metrics.lists.labels("widgets.kubewright.test").value)

    def fail_next_watch(self, error: Exception) -> None:
        """A list before the watch succeeds."""
        errors = [error]
        self.api.faults.append(
            lambda request: errors.pop() if errors and "watch=1" in request.query else None
        )

    def count_watches(self) -> int:
        return sum("watch=1" in request.query for request in self.api.requests)


@pytest.fixture(params=[True, False], ids=["stream", "pages"], autouse=True)
def use_watch_list(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Every test runs with both ways to list."""
    monkeypatch.setattr(ReflectorHarness, "use_watch_list", request.param)
    use_watch_list: bool = request.param
    return use_watch_list


@asynccontextmanager
async def run_reflector(*names: str) -> AsyncIterator[ReflectorHarness]:
    harness = ReflectorHarness()
    for name in names:
        harness.add_widget(name)
    task = asyncio.create_task(harness.reflector.run())
    try:
        yield harness
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_list_comes_first_and_then_the_changes() -> None:
    async with run_reflector("a", "b") as harness:
        await harness.reflector.synced.wait()
        assert harness.changes == [
            ("a", False, Origin.INITIAL_LIST),
            ("b", False, Origin.INITIAL_LIST),
        ]
        await eventually(harness.count_watches)
        harness.add_widget("c")
        await harness.client.delete(Widget, Key("n", "a"))
        await eventually(lambda: harness.stored_names() == {"b", "c"})
        assert harness.changes[2:] == [("c", False, Origin.WATCH), ("a", True, Origin.WATCH)]


async def test_watch_that_the_server_ends_continues_from_the_last_revision() -> None:
    async with run_reflector("a") as harness:
        await eventually(harness.count_watches)
        harness.api.close_watches()
        harness.add_widget("b")
        await eventually(lambda: harness.stored_names() == {"a", "b"})
        await eventually(lambda: harness.count_watches() >= 2)
        assert harness.count_lists() == 1


async def test_silent_watch_reconnects_without_a_list() -> None:
    async with run_reflector("a") as harness:
        await eventually(harness.count_watches)
        harness.fail_next_watch(TimedOut("silent"))
        harness.api.close_watches()
        harness.add_widget("b")
        await eventually(lambda: harness.stored_names() == {"a", "b"}, within=60)
        assert harness.count_lists() == 1
        assert harness.metrics.watch_restarts.labels("widgets.kubewright.test", "silent").value == 1


async def test_two_silent_watches_lead_to_a_list_a_metric_and_a_problem() -> None:
    async with run_reflector("a") as harness:
        await eventually(harness.count_watches)
        harness.add_widget("b")
        await eventually(lambda: "b" in harness.stored_names())
        reflector, silent = harness.reflector, harness.api
        silent.are_watches_silent = True
        silent.close_watches()
        await eventually(lambda: harness.count_watches() == 2)
        await harness.client.delete(Widget, Key("n", "a"))
        harness.add_widget("c")
        await asyncio.sleep(130)
        assert (harness.count_lists(), reflector.problem) == (1, "")
        await eventually(lambda: harness.stored_names() == {"b", "c"}, within=20)
        assert reflector.is_silent
        assert "receive nothing" in reflector.problem
        assert "proxy_buffering off" in reflector.problem
        # Lists go on, and neither they nor accepted watches count as a sign of life.
        harness.add_widget("d")
        await eventually(lambda: "d" in harness.stored_names(), within=80)
        assert reflector.problem
        assert reflector.age_seconds > 150
        assert harness.metrics.watch_restarts.labels("widgets.kubewright.test", "silent").value >= 2
        silent.are_watches_silent = False
        await asyncio.sleep(70)
        assert reflector.problem
        harness.add_widget("e")
        await eventually(lambda: not reflector.problem)
        assert (reflector.is_silent, reflector.age_seconds < 1) == (False, True)


async def test_watch_that_ends_with_the_manager_is_not_silent() -> None:
    async with run_reflector("a") as harness:
        harness.api.are_watches_silent = True
        await eventually(lambda: harness.count_watches() == 2, within=80)
        await asyncio.sleep(1)
    assert (harness.reflector.is_silent, harness.reflector.problem) == (False, "")


async def test_short_silent_watches_lead_to_few_lists(use_watch_list: bool) -> None:
    async with run_reflector("a") as harness:
        for _ in range(100):
            await asyncio.sleep(2)
            harness.api.close_watches()
        assert harness.count_watches() > 50
        assert 2 <= harness.count_lists() <= 5
        # A streamed list shows that a watch can deliver lines.
        assert harness.reflector.is_silent or use_watch_list


def watch_timeouts(harness: ReflectorHarness) -> list[int]:
    return [
        int(parse_qs(request.query)["timeoutSeconds"][0])
        for request in harness.api.requests
        if "watch=1" in request.query
    ]


async def test_watch_that_receives_an_error_is_not_silent(
    monkeypatch: pytest.MonkeyPatch, use_watch_list: bool
) -> None:
    async def send_error(
        request: Request, *, idle_timeout_seconds: float, on_open: Callable[[], None]
    ) -> AsyncIterator[bytes]:
        harness.api.requests.append(request)
        on_open()
        yield b'{"type": "ERROR", "object": {"code": 500, "message": "no leader"}}'

    async with run_reflector("a") as harness:
        monkeypatch.setattr(harness.api, "stream_lines", send_error)
        await asyncio.sleep(300)
        assert harness.count_watches() > 20
        assert min(watch_timeouts(harness)) >= 300
        assert (harness.count_lists(), harness.reflector.is_silent) == (1 + use_watch_list, False)
        assert "no leader" in harness.reflector.problem


async def test_idle_watch_that_a_proxy_ends_is_followed_by_shorter_ones() -> None:
    async with run_reflector("a") as harness:
        await eventually(harness.count_watches)
        await asyncio.sleep(35)
        harness.api.close_watches()
        await asyncio.sleep(15 * 26)
        assert watch_timeouts(harness)[0] >= 300
        assert set(watch_timeouts(harness)[1:]) == {26}
        assert (harness.count_lists(), harness.reflector.problem) == (1, "")
        assert harness.reflector.age_seconds <= 26


async def test_quiet_kind_without_bookmarks_is_not_a_problem() -> None:
    async with run_reflector("a") as harness:
        problems = list[str]()
        harness.reflector.problem_changed.connect(
            lambda: problems.append(harness.reflector.problem)
        )
        ages = list[float]()
        for _ in range(120):
            await asyncio.sleep(30)
            ages.append(harness.reflector.age_seconds)
        assert problems == []
        assert max(ages) < 110
        assert harness.count_lists() == 1
        timeouts = watch_timeouts(harness)
        assert timeouts[1:21] == [30] * 20
        # A long watch is tried again from time to time.
        assert 4 <= sum(timeout >= 300 for timeout in timeouts) <= 7
        harness.add_widget("b")
        await eventually(lambda: "b" in harness.stored_names())


async def test_410_lists_again_and_finds_missed_deletions() -> None:
    async with run_reflector("a", "b") as harness:
        await eventually(harness.count_watches)
        harness.api.fail_next("GET", "widgets", Unreachable("down"), times=3)
        harness.api.close_watches()
        await harness.client.delete(Widget, Key("n", "a"))
        harness.add_widget("c")
        harness.api.compact()
        await eventually(lambda: harness.stored_names() == {"b", "c"}, within=120)
        assert harness.count_lists() == 2
        assert ("a", True, Origin.WATCH) in harness.changes


async def test_outage_is_retried_with_bounded_back_off_and_loses_nothing() -> None:
    async with run_reflector("a") as harness:
        await eventually(harness.count_watches)
        before, has_problem = len(harness.api.requests), list[bool]()
        harness.reflector.problem_changed.connect(
            lambda: has_problem.append(bool(harness.reflector.problem))
        )
        harness.api.fail_next("GET", "widgets", Unreachable("down"), times=12)
        harness.api.close_watches()
        harness.add_widget("b")
        started = asyncio.get_running_loop().time()
        await eventually(lambda: harness.reflector.problem)
        assert "retrying: down" in harness.reflector.problem
        await eventually(lambda: harness.stored_names() == {"a", "b"}, within=600)
        took = asyncio.get_running_loop().time() - started
        # One of them is the check of the server's revision.
        assert len(harness.api.requests) - before == 14
        assert 40 < took < 12 * MAX_BACKOFF_SECONDS * 1.2
        assert harness.reflector.problem == ""
        assert has_problem == [True, False]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            KindMissing("404 page not found"),
            "waiting for its CRD. To install it, run: kubectl apply --server-side -k config/crd",
        ),
        (
            Forbidden('widgets is forbidden: User "x" cannot list'),
            "kubectl apply --server-side -k config/rbac",
        ),
        (ServerError("etcd is unwell"), "retrying: etcd is unwell"),
    ],
)
async def test_failed_list_is_reported_with_its_fix_and_retried(
    error: Exception, message: str
) -> None:
    harness = ReflectorHarness()
    harness.add_widget("a")
    harness.api.fail_next("GET", "widgets", error, times=3)
    task = asyncio.create_task(harness.reflector.run())
    await eventually(lambda: message in harness.reflector.problem)
    assert not harness.reflector.synced.is_set()
    await eventually(harness.reflector.synced.is_set, within=60)
    assert harness.stored_names() == {"a"}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_fix_for_a_kind_without_crd_depends_on_its_owner() -> None:
    harness, missing = ReflectorHarness(), KindMissing("404 page not found")
    assert "kubewright run --install" in harness.reflector.describe_problem(missing)
    pods: Store[Pod] = Store(Pod.definition, Log("test"))
    reflector = Reflector(Pod, pods, harness.client, harness.metrics, Log("test"))
    assert reflector.describe_problem(missing) == (
        "the kind pods is not installed; waiting for its CRD. "
        "Install the operator or the CRD that provides it"
    )


async def test_retry_after_is_respected() -> None:
    harness = ReflectorHarness()
    harness.api.fail_next("GET", "widgets", TooManyRequests("slow down", retry_after=33))
    task = asyncio.create_task(harness.reflector.run())
    started = asyncio.get_running_loop().time()
    await eventually(harness.reflector.synced.is_set, within=60)
    assert asyncio.get_running_loop().time() - started >= 33
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_undecodable_object_is_counted_and_the_watch_goes_on() -> None:
    harness = ReflectorHarness()
    harness.add_widget("a")
    harness.api.create(
        Widget.definition.path("n"),
        {"metadata": {"name": "bad", "namespace": "n"}, "spec": {"size": "huge"}},
    )
    task = asyncio.create_task(harness.reflector.run())
    await eventually(harness.reflector.synced.is_set)
    await eventually(harness.count_watches)
    harness.add_widget("z")
    await eventually(lambda: harness.stored_names() == {"a", "bad", "z"})
    assert harness.metrics.undecodable.labels("widgets.kubewright.test").value == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_list_of_a_server_restored_from_a_backup_replaces_the_cache() -> None:
    async with run_reflector("a", "b") as harness:
        await eventually(harness.count_watches)
        harness.api.objects.pop(f"{Widget.definition.path('n')}/b")
        harness.api.history.clear()
        harness.api.revision -= 500
        for stored in harness.api.objects.values():
            stored["metadata"]["resourceVersion"] = str(harness.api.revision)
        harness.api.oldest_revision = 10**9
        harness.api.close_watches()
        await eventually(lambda: harness.stored_names() == {"a"}, within=60)
        harness.api.oldest_revision = 0
        harness.add_widget("new")
        await eventually(lambda: harness.stored_names() == {"a", "new"}, within=60)


async def test_age_of_a_watch_grows_while_it_is_silent() -> None:
    async with run_reflector("a") as harness:
        await eventually(harness.count_watches)
        await asyncio.sleep(50)
        assert harness.reflector.age_seconds == pytest.approx(50, abs=1)
        harness.add_widget("b")
        await eventually(lambda: harness.reflector.age_seconds < 1)


async def test_watch_that_goes_back_in_time_leads_to_a_new_list() -> None:
    async with run_reflector("a") as harness:
        await eventually(harness.count_watches)
        harness.api.revision -= 500
        harness.add_widget("b")
        await eventually(lambda: harness.stored_names() == {"a", "b"}, within=60)
        assert harness.count_lists() >= 2


async def test_list_that_is_always_gone_is_not_a_busy_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    harness = ReflectorHarness()
    harness.api.fail_next("GET", "widgets", Gone("expired"), times=10**6)
    task = asyncio.create_task(harness.reflector.run())
    await asyncio.sleep(60)
    assert 5 < len(harness.api.requests) < 20
    assert "the continue token of the list expired, listing again" in caplog.text
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_list_that_is_gone_at_the_start_pauses_once() -> None:
    harness = ReflectorHarness()
    harness.api.fail_next("GET", "widgets", Gone("expired"))
    started_at = asyncio.get_running_loop().time()
    task = asyncio.create_task(harness.reflector.run())
    await eventually(harness.reflector.synced.is_set)
    # The first back-off is 0.5 s, with 20 % of jitter; two of them took at least 1.2 s.
    assert asyncio.get_running_loop().time() - started_at < 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("retry_after", ["soon", 86400, float("inf"), -5, None, {"a": 1}])
async def test_retry_after_of_the_server_is_bounded(retry_after: object) -> None:
    harness = ReflectorHarness()
    harness.add_widget("a")
    body = {"kind": "Status", "message": "slow down", "details": {"retryAfterSeconds": retry_after}}
    harness.api.fail_next("GET", "widgets", error_from_status(429, body, operation="list"))
    task = asyncio.create_task(harness.reflector.run())
    await eventually(harness.reflector.synced.is_set, within=61)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
