"""What Prometheus sees: controller-runtime's own names, labels and buckets, so that existing dashboards work, and a few of ours.

One `Metrics` is made by main and handed on; there is no global registry. The event loop is the only writer and the
scrape runs on it too, so the values are plain numbers without locks: an increment costs 0.1 µs and an observation
0.3 µs, where prometheus_client's own need 0.5 µs and 1 to 3 µs (its histogram walks the 40 buckets one by one).
Instruments of an application can be prometheus_client's: register them on `metrics.registry`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from operator import mul
from typing import Any, Generic, Literal, TypeVar

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

Result = Literal["success", "error", "requeue", "requeue_after"]
RESULTS: tuple[Result, ...] = ("success", "error", "requeue", "requeue_after")

MOST_PRIORITIES = 25
OTHER_PRIORITIES = "exceeded_cardinality_limit"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# fmt: off
RECONCILE_BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
)
QUEUE_BUCKETS = tuple(accumulate([10e-9, *[10.0] * 11], mul))  # by multiplication as in Go: some end in 9.999999999999999e-06
LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# fmt: on


class Value:
    """One number with its labels: a counter, or a gauge."""

    __slots__ = ("read", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.read: Callable[[], float] | None = None

    def inc(self, amount: float = 1.0) -> None:
        """Add to it."""
        self.value += amount

    def dec(self, amount: float = 1.0) -> None:
        """Take from it; for gauges only."""
        self.value -= amount

    def set(self, value: float) -> None:
        """Replace it; for gauges only."""
        self.value = value

    def set_function(self, read: Callable[[], float]) -> None:
        """Ask `read` at each scrape from now on; for gauges only."""
        self.read = read

    def sample(self) -> tuple[float]:
        """What a scrape shows; not-a-number where `read` fails, since one sick cache must not hide all other series."""
        try:
            return (self.value if self.read is None else self.read(),)
        except Exception:
            return (math.nan,)


class Distribution:
    """How often values fell into which bucket, and their sum: one histogram with its labels."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value; a bucket includes its upper bound."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def sample(self) -> tuple[list[tuple[str, float]], float]:
        """What a scrape shows: the buckets, each of which holds all smaller ones, and the sum."""
        return list(
            zip([*map(floatToGoString, self.bounds), "+Inf"], accumulate(self.counts), strict=True)
        ), self.sum


Child = TypeVar("Child", Value, Distribution)


class Family(Collector, Generic[Child]):
    """All series of one metric name; a series appears when its labels are first asked for.

    Not prometheus_client's own: those add a `_created` series to each, which controller-runtime does not have.
    """

    def __init__(
        self,
        form: type[Metric],
        name: str,
        help: str,
        label_names: Sequence[str],
        make: Callable[[], Child],
    ) -> None:
        self.form: Callable[..., Any] = form
        self.name, self.help, self.label_names = name, help, label_names
        self.make: Callable[[], Child] = make
        self.children: dict[tuple[str, ...], Child] = {}

    def labels(self, *values: str) -> Child:
        """The series with these label values, in the order of the label names. Keep it where the call is frequent."""
        child = self.children.get(values)
        if child is None:
            if len(values) != len(self.label_names):
                raise ValueError(
                    f"{self.name} has the labels {', '.join(self.label_names) or '(none)'}, not {values}"
                )
            child = self.children[values] = self.make()
        return child

    def describe(self) -> Iterable[Metric]:
        """The name alone, so that registering does not read any value."""
        return [self.form(self.name, self.help, labels=self.label_names)]

    def collect(self) -> Iterable[Metric]:
        """The metric with all its series, read now."""
        family = self.form(self.name, self.help, labels=self.label_names)
        for labels, child in self.children.items():
            family.add_metric(labels, *child.sample())
        return [family]


class ControllerMetrics:
    """What one controller tells. Its series are found once, and exist from the start at 0, so that rates have a beginning."""

    def __init__(self, metrics: Metrics, name: str, concurrency: int) -> None:
        self.results: dict[Result, Value] = {
            result: metrics.reconcile_total.labels(name, result) for result in RESULTS
        }
        self.errors = metrics.reconcile_errors.labels(name)
        self.terminal_errors = metrics.terminal_reconcile_errors.labels(name)
        self.panics = metrics.reconcile_panics.labels(name)
        self.timeouts = metrics.reconcile_timeouts.labels(name)
        self.seconds = metrics.reconcile_seconds.labels(name)
        self.workers = metrics.active_workers.labels(name)
        self.status_writes = metrics.status_writes.labels(name)
        self.status_unchanged = metrics.status_unchanged.labels(name)
        metrics.max_concurrent_reconciles.labels(name).set(concurrency)

    def active(self, change: int) -> None:
        """A worker took up a key (1), or put it down (-1)."""
        self.workers.inc(change)

    def took(self, seconds: float) -> None:
        """A key was worked on for so long."""
        self.seconds.observe(seconds)

    def count(self, result: Result, *, terminal: bool = False, unexpected: bool = False) -> None:
        """How a reconcile ended; `unexpected` is what a panic is in Go: an exception that nobody meant to raise."""
        self.results[result].inc()
        if result == "error":
            self.errors.inc()
        if terminal:
            self.terminal_errors.inc()
        if unexpected:
            self.panics.inc()

    def timed_out(self) -> None:
        """A reconcile was stopped because it took too long."""
        self.timeouts.inc()

    def wrote(self) -> None:
        """A status was written."""
        self.status_writes.inc()

    def unchanged(self) -> None:
        """A status was right already."""
        self.status_unchanged.inc()


class QueueMetrics:
    """What one work queue tells. As in controller-runtime, the queue's name is also its `controller` label."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self.name = name
        self.depths = metrics.queue_depth
        self.by_priority: dict[int, Value] = {}
        self.adds = metrics.queue_adds.labels(name, name)
        self.retries = metrics.queue_retries.labels(name, name)
        self.waited_seconds = metrics.queue_seconds.labels(name, name)
        self.worked_seconds = metrics.work_seconds.labels(name, name)
        self.unfinished: Callable[[], Sequence[float]] = list
        """For how many seconds each key in work has been so; asked at each scrape. The queue's owner sets it."""
        metrics.unfinished_seconds.labels(name, name).set_function(lambda: sum(self.unfinished()))
        metrics.longest_running_seconds.labels(name, name).set_function(
            lambda: max(self.unfinished(), default=0.0)
        )

    def added(self, priority: int) -> None:
        """A key began to wait."""
        self.adds.inc()
        self.depth(priority).inc()

    def lifted(self, before: int, priority: int) -> None:
        """A key that waits got a higher priority."""
        self.depth(before).dec()
        self.depth(priority).inc()

    def taken(self, priority: int, waited_seconds: float) -> None:
        """A worker took up a key."""
        self.depth(priority).dec()
        self.waited_seconds.observe(waited_seconds)

    def finished(self, worked_seconds: float) -> None:
        """A worker is done with a key."""
        self.worked_seconds.observe(worked_seconds)

    def retried(self) -> None:
        """A key comes back later."""
        self.retries.inc()

    def depth(self, priority: int) -> Value:
        """How many keys of this priority wait; past 25 priorities the rest share one series, which bounds their number."""
        found = self.by_priority.get(priority)
        if found is None:
            known = len(self.by_priority) < MOST_PRIORITIES
            found = self.depths.labels(
                self.name, self.name, str(priority) if known else OTHER_PRIORITIES
            )
            if known:
                self.by_priority[priority] = found
        return found


class Metrics:
    """Every instrument of the runtime, on a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconcile_instruments()
        self.queue_instruments()
        self.outside_instruments()
        self.own_instruments()
        self.process_registry = CollectorRegistry()
        ProcessCollector(registry=self.process_registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def reconcile_instruments(self) -> None:
        """controller-runtime's pkg/internal/controller/metrics."""
        by = ["controller"]
        self.reconcile_total = self.counters(
            "controller_runtime_reconcile_total",
            "Total number of reconciliations per controller",
            [*by, "result"],
        )
        self.reconcile_errors = self.counters(
            "controller_runtime_reconcile_errors_total",
            "Total number of reconciliation errors per controller",
            by,
        )
        self.terminal_reconcile_errors = self.counters(
            "controller_runtime_terminal_reconcile_errors_total",
            "Total number of terminal reconciliation errors per controller",
            by,
        )
        self.reconcile_panics = self.counters(
            "controller_runtime_reconcile_panics_total",
            "Total number of reconciliation panics per controller",
            by,
        )
        self.reconcile_timeouts = self.counters(
            "controller_runtime_reconcile_timeouts_total",
            "Total number of reconciliation timeouts per controller",
            by,
        )
        self.reconcile_seconds = self.histograms(
            "controller_runtime_reconcile_time_seconds",
            "Length of time per reconciliation per controller",
            by,
            RECONCILE_BUCKETS,
        )
        self.max_concurrent_reconciles = self.gauges(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum number of concurrent reconciles per controller",
            by,
        )
        self.active_workers = self.gauges(
            "controller_runtime_active_workers",
            "Number of currently used workers per controller",
            by,
        )

    def queue_instruments(self) -> None:
        """controller-runtime's pkg/internal/metrics/workqueue.go."""
        by = ["name", "controller"]
        self.queue_depth = self.gauges(
            "workqueue_depth",
            "Current depth of workqueue by workqueue and priority",
            [*by, "priority"],
        )
        self.queue_adds = self.counters(
            "workqueue_adds_total", "Total number of adds handled by workqueue", by
        )
        self.queue_seconds = self.histograms(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested",
            by,
            QUEUE_BUCKETS,
        )
        self.work_seconds = self.histograms(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes.",
            by,
            QUEUE_BUCKETS,
        )
        self.unfinished_seconds = self.gauges(
            "workqueue_unfinished_work_seconds",
            "How many seconds of work has been done that is in progress and hasn't been observed by work_duration. Large values "
            "indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
            by,
        )
        self.longest_running_seconds = self.gauges(
            "workqueue_longest_running_processor_seconds",
            "How many seconds has the longest running processor for workqueue been running.",
            by,
        )
        self.queue_retries = self.counters(
            "workqueue_retries_total",
            "Total number of items added to the workqueue with a non-zero delay (rate-limited requeues, explicit RequeueAfter or "
            "AddAfter calls)",
            by,
        )

    def outside_instruments(self) -> None:
        """controller-runtime's pkg/metrics: calls to the API server, and the lease."""
        self.requests = self.counters(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ["code", "method", "host"],
        )
        self.leader_status = self.gauges(
            "leader_election_master_status",
            "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is "
            "the string used to identify the lease. Please make sure to group by name.",
            ["name"],
        )

    def own_instruments(self) -> None:
        """What controller-runtime does not tell: whether the watches live, and what was not written."""
        self.watch_age = self.gauges(
            "kubewright_watch_age_seconds",
            "Seconds since the watch last showed a sign of life",
            ["kind"],
        )
        self.watch_restarts = self.counters(
            "kubewright_watch_restarts_total",
            "Number of times a watch was started again, by what ended it",
            ["kind", "reason"],
        )
        self.lists = self.counters(
            "kubewright_lists_total", "Number of full lists read from the API server", ["kind"]
        )
        self.undecodable_total = self.counters(
            "kubewright_undecodable_total",
            "Number of objects that do not fit their class",
            ["kind"],
        )
        self.cached_objects = self.gauges(
            "kubewright_cached_objects", "Number of objects in the cache", ["kind"]
        )
        self.events_dropped = self.counters(
            "kubewright_events_dropped_total",
            "Number of Kubernetes Events given up because they came too fast or could not be sent",
        ).labels()
        self.status_writes = self.counters(
            "kubewright_status_writes_total", "Number of statuses written", ["controller"]
        )
        self.status_unchanged = self.counters(
            "kubewright_status_unchanged_total",
            "Number of reconciles after which the status was right already",
            ["controller"],
        )
        self.loop_lag = self.histograms(
            "kubewright_event_loop_lag_seconds",
            "How late the event loop was in running a timer",
            [],
            LAG_BUCKETS,
        ).labels()

    def counters(self, name: str, help: str, label_names: Sequence[str] = ()) -> Family[Value]:
        """Register a counter."""
        return self.registered(Family(CounterMetricFamily, name, help, label_names, Value))

    def gauges(self, name: str, help: str, label_names: Sequence[str] = ()) -> Family[Value]:
        """Register a gauge."""
        return self.registered(Family(GaugeMetricFamily, name, help, label_names, Value))

    def histograms(
        self, name: str, help: str, label_names: Sequence[str], buckets: Sequence[float]
    ) -> Family[Distribution]:
        """Register a histogram."""
        return self.registered(
            Family(HistogramMetricFamily, name, help, label_names, lambda: Distribution(buckets))
        )

    def registered(self, family: Family[Child]) -> Family[Child]:
        """The same family, which is now part of every scrape."""
        self.registry.register(family)
        return family

    def controller(self, name: str, concurrency: int = 1) -> ControllerMetrics:
        """What the controller of this name tells."""
        return ControllerMetrics(self, name, concurrency)

    def queue(self, name: str) -> QueueMetrics:
        """What the work queue of this name tells."""
        return QueueMetrics(self, name)

    def request(self, code: str, host: str, method: str) -> None:
        """A call to the API server was answered, or was not: then the code is `<error>`."""
        self.requests.labels(code, method, host).inc()

    def leader(self, name: str, *, leading: bool) -> None:
        """The lease became ours, or somebody else's."""
        self.leader_status.labels(name).set(1.0 if leading else 0.0)

    def watch(self, kind: str, *, age: Callable[[], float], objects: Callable[[], float]) -> None:
        """Say how to read, at each scrape, the seconds since the kind's watch showed life and the size of its cache."""
        self.watch_age.labels(kind).set_function(age)
        self.cached_objects.labels(kind).set_function(objects)

    def watch_restarted(self, kind: str, reason: str) -> None:
        """A watch ended and is started again."""
        self.watch_restarts.labels(kind, reason).inc()

    def listed(self, kind: str) -> None:
        """All objects of a kind were read anew."""
        self.lists.labels(kind).inc()

    def undecodable(self, kind: str) -> None:
        """An object came that does not fit its class."""
        self.undecodable_total.labels(kind).inc()

    def event_dropped(self) -> None:
        """A Kubernetes Event was given up."""
        self.events_dropped.inc()

    def lag(self, seconds: float) -> None:
        """The event loop ran a timer so much too late."""
        self.loop_lag.observe(seconds)

    def exposition(self) -> tuple[bytes, str]:
        """All series but process_* as text, and its content type. OpenMetrics would take twice as long and say nothing more."""
        return generate_latest(self.registry), CONTENT_TYPE

    def process_exposition(self) -> bytes:
        """The process_* series, to be put behind the others; read from files, so call it in a thread."""
        return generate_latest(self.process_registry)
