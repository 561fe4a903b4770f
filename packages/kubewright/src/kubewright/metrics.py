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

ReconcileResult = Literal["success", "error", "requeue", "requeue_after"]
_RECONCILE_RESULTS: tuple[ReconcileResult, ...] = ("success", "error", "requeue", "requeue_after")

_MAX_PRIORITIES = 25
_OTHER_PRIORITIES = "exceeded_cardinality_limit"
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# fmt: off
RECONCILE_BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
)
_QUEUE_BUCKETS = tuple(accumulate([10e-9, *[10.0] * 11], mul))  # by multiplication as in Go: some end in 9.999999999999999e-06
_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# fmt: on


class ScalarSeries:
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


class HistogramSeries:
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


SeriesT = TypeVar("SeriesT", ScalarSeries, HistogramSeries)


class MetricFamily(Collector, Generic[SeriesT]):
    """All series of one metric name; a series appears when its labels are first asked for.

    Not prometheus_client's own: those add a `_created` series to each, which controller-runtime does not have.
    """

    def __init__(
        self,
        form: type[Metric],
        name: str,
        help: str,
        label_names: Sequence[str],
        make: Callable[[], SeriesT],
    ) -> None:
        self.family_type: Callable[..., Any] = form
        self.name, self.help, self.label_names = name, help, label_names
        self._new_series: Callable[[], SeriesT] = make
        self.series: dict[tuple[str, ...], SeriesT] = {}

    def labels(self, *values: str) -> SeriesT:
        """The series with these label values, in the order of the label names. Keep it where the call is frequent."""
        child = self.series.get(values)
        if child is None:
            if len(values) != len(self.label_names):
                raise ValueError(
                    f"{self.name} has the labels {', '.join(self.label_names) or '(none)'}, not {values}"
                )
            child = self.series[values] = self._new_series()
        return child

    def describe(self) -> Iterable[Metric]:
        """The name alone, so that registering does not read any value."""
        return [self.family_type(self.name, self.help, labels=self.label_names)]

    def collect(self) -> Iterable[Metric]:
        """The metric with all its series, read now."""
        family = self.family_type(self.name, self.help, labels=self.label_names)
        for labels, child in self.series.items():
            family.add_metric(labels, *child.sample())
        return [family]


class ControllerMetrics:
    """What one controller tells. Its series are found once, and exist from the start at 0, so that rates have a beginning."""

    def __init__(self, metrics: Metrics, name: str, concurrency: int) -> None:
        self.results: dict[ReconcileResult, ScalarSeries] = {
            result: metrics._reconcile_total.labels(name, result) for result in _RECONCILE_RESULTS
        }
        self.errors = metrics._reconcile_errors.labels(name)
        self._terminal_errors = metrics._terminal_reconcile_errors.labels(name)
        self.panics = metrics._reconcile_panics.labels(name)
        self.timeouts = metrics._reconcile_timeouts.labels(name)
        self._reconcile_seconds = metrics._reconcile_seconds.labels(name)
        self._active_workers = metrics._active_workers.labels(name)
        self.status_writes = metrics.status_writes.labels(name)
        self._status_unchanged = metrics._status_unchanged.labels(name)
        metrics._max_concurrent_reconciles.labels(name).set(concurrency)

    def add_active_workers(self, change: int) -> None:
        """A worker took up a key (1), or put it down (-1)."""
        self._active_workers.inc(change)

    def observe_duration(self, seconds: float) -> None:
        """A key was worked on for so long."""
        self._reconcile_seconds.observe(seconds)

    def count_result(
        self, result: ReconcileResult, *, terminal: bool = False, unexpected: bool = False
    ) -> None:
        """How a reconcile ended; `unexpected` is what a panic is in Go: an exception that nobody meant to raise."""
        self.results[result].inc()
        if result == "error":
            self.errors.inc()
        if terminal:
            self._terminal_errors.inc()
        if unexpected:
            self.panics.inc()

    def count_timeout(self) -> None:
        """A reconcile was stopped because it took too long."""
        self.timeouts.inc()

    def count_status_write(self) -> None:
        """A status was written."""
        self.status_writes.inc()

    def count_status_unchanged(self) -> None:
        """A status was right already."""
        self._status_unchanged.inc()


class QueueMetrics:
    """What one work queue tells. As in controller-runtime, the queue's name is also its `controller` label."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self.name = name
        self.depths = metrics._queue_depth
        self._depth_by_priority: dict[int, ScalarSeries] = {}
        self._adds = metrics._queue_adds.labels(name, name)
        self._retries = metrics._queue_retries.labels(name, name)
        self._queue_seconds = metrics._queue_seconds.labels(name, name)
        self._work_seconds = metrics._work_seconds.labels(name, name)
        self.read_unfinished_seconds: Callable[[], Sequence[float]] = list
        """For how many seconds each key in work has been so; asked at each scrape. The queue's owner sets it."""
        metrics.unfinished_seconds.labels(name, name).set_function(
            lambda: sum(self.read_unfinished_seconds())
        )
        metrics._longest_running_seconds.labels(name, name).set_function(
            lambda: max(self.read_unfinished_seconds(), default=0.0)
        )

    def on_add(self, priority: int) -> None:
        """A key began to wait."""
        self._adds.inc()
        self._depth_for(priority).inc()

    def on_priority_raised(self, before: int, priority: int) -> None:
        """A key that waits got a higher priority."""
        self._depth_for(before).dec()
        self._depth_for(priority).inc()

    def on_get(self, priority: int, waited_seconds: float) -> None:
        """A worker took up a key."""
        self._depth_for(priority).dec()
        self._queue_seconds.observe(waited_seconds)

    def on_done(self, worked_seconds: float) -> None:
        """A worker is done with a key."""
        self._work_seconds.observe(worked_seconds)

    def on_retry(self) -> None:
        """A key comes back later."""
        self._retries.inc()

    def _depth_for(self, priority: int) -> ScalarSeries:
        """How many keys of this priority wait; past 25 priorities the rest share one series, which bounds their number."""
        found = self._depth_by_priority.get(priority)
        if found is None:
            known = len(self._depth_by_priority) < _MAX_PRIORITIES
            found = self.depths.labels(
                self.name, self.name, str(priority) if known else _OTHER_PRIORITIES
            )
            if known:
                self._depth_by_priority[priority] = found
        return found


class Metrics:
    """Every instrument of the runtime, on a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._register_reconcile_metrics()
        self._register_queue_metrics()
        self._register_client_metrics()
        self._register_runtime_metrics()
        self.process_registry = CollectorRegistry()
        ProcessCollector(registry=self.process_registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def _register_reconcile_metrics(self) -> None:
        """controller-runtime's pkg/internal/controller/metrics."""
        by = ["controller"]
        self._reconcile_total = self.new_counter(
            "controller_runtime_reconcile_total",
            "Total number of reconciliations per controller",
            [*by, "result"],
        )
        self._reconcile_errors = self.new_counter(
            "controller_runtime_reconcile_errors_total",
            "Total number of reconciliation errors per controller",
            by,
        )
        self._terminal_reconcile_errors = self.new_counter(
            "controller_runtime_terminal_reconcile_errors_total",
            "Total number of terminal reconciliation errors per controller",
            by,
        )
        self._reconcile_panics = self.new_counter(
            "controller_runtime_reconcile_panics_total",
            "Total number of reconciliation panics per controller",
            by,
        )
        self._reconcile_timeouts = self.new_counter(
            "controller_runtime_reconcile_timeouts_total",
            "Total number of reconciliation timeouts per controller",
            by,
        )
        self._reconcile_seconds = self.new_histogram(
            "controller_runtime_reconcile_time_seconds",
            "Length of time per reconciliation per controller",
            by,
            RECONCILE_BUCKETS,
        )
        self._max_concurrent_reconciles = self.new_gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum number of concurrent reconciles per controller",
            by,
        )
        self._active_workers = self.new_gauge(
            "controller_runtime_active_workers",
            "Number of currently used workers per controller",
            by,
        )

    def _register_queue_metrics(self) -> None:
        """controller-runtime's pkg/internal/metrics/workqueue.go."""
        by = ["name", "controller"]
        self._queue_depth = self.new_gauge(
            "workqueue_depth",
            "Current depth of workqueue by workqueue and priority",
            [*by, "priority"],
        )
        self._queue_adds = self.new_counter(
            "workqueue_adds_total", "Total number of adds handled by workqueue", by
        )
        self._queue_seconds = self.new_histogram(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested",
            by,
            _QUEUE_BUCKETS,
        )
        self._work_seconds = self.new_histogram(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes.",
            by,
            _QUEUE_BUCKETS,
        )
        self.unfinished_seconds = self.new_gauge(
            "workqueue_unfinished_work_seconds",
            "How many seconds of work has been done that is in progress and hasn't been observed by work_duration. Large values "
            "indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
            by,
        )
        self._longest_running_seconds = self.new_gauge(
            "workqueue_longest_running_processor_seconds",
            "How many seconds has the longest running processor for workqueue been running.",
            by,
        )
        self._queue_retries = self.new_counter(
            "workqueue_retries_total",
            "Total number of items added to the workqueue with a non-zero delay (rate-limited requeues, explicit RequeueAfter or "
            "AddAfter calls)",
            by,
        )

    def _register_client_metrics(self) -> None:
        """controller-runtime's pkg/metrics: calls to the API server, and the lease."""
        self.request_total = self.new_counter(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ["code", "method", "host"],
        )
        self._leader_status = self.new_gauge(
            "leader_election_master_status",
            "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is "
            "the string used to identify the lease. Please make sure to group by name.",
            ["name"],
        )

    def _register_runtime_metrics(self) -> None:
        """What controller-runtime does not tell: whether the watches live, and what was not written."""
        self._watch_age = self.new_gauge(
            "kubewright_watch_age_seconds",
            "Seconds since the watch last showed a sign of life",
            ["kind"],
        )
        self.watch_restarts = self.new_counter(
            "kubewright_watch_restarts_total",
            "Number of times a watch was started again, by what ended it",
            ["kind", "reason"],
        )
        self._list_total = self.new_counter(
            "kubewright_lists_total", "Number of full lists read from the API server", ["kind"]
        )
        self.undecodable_total = self.new_counter(
            "kubewright_undecodable_total",
            "Number of objects that do not fit their class",
            ["kind"],
        )
        self._cached_objects = self.new_gauge(
            "kubewright_cached_objects", "Number of objects in the cache", ["kind"]
        )
        self.events_dropped = self.new_counter(
            "kubewright_events_dropped_total",
            "Number of Kubernetes Events given up because they came too fast or could not be sent",
        ).labels()
        self.status_writes = self.new_counter(
            "kubewright_status_writes_total", "Number of statuses written", ["controller"]
        )
        self._status_unchanged = self.new_counter(
            "kubewright_status_unchanged_total",
            "Number of reconciles after which the status was right already",
            ["controller"],
        )
        self._loop_lag = self.new_histogram(
            "kubewright_event_loop_lag_seconds",
            "How late the event loop was in running a timer",
            [],
            _LAG_BUCKETS,
        ).labels()

    def new_counter(
        self, name: str, help: str, label_names: Sequence[str] = ()
    ) -> MetricFamily[ScalarSeries]:
        """Register a counter."""
        return self.register(
            MetricFamily(CounterMetricFamily, name, help, label_names, ScalarSeries)
        )

    def new_gauge(
        self, name: str, help: str, label_names: Sequence[str] = ()
    ) -> MetricFamily[ScalarSeries]:
        """Register a gauge."""
        return self.register(MetricFamily(GaugeMetricFamily, name, help, label_names, ScalarSeries))

    def new_histogram(
        self, name: str, help: str, label_names: Sequence[str], buckets: Sequence[float]
    ) -> MetricFamily[HistogramSeries]:
        """Register a histogram."""
        return self.register(
            MetricFamily(
                HistogramMetricFamily, name, help, label_names, lambda: HistogramSeries(buckets)
            )
        )

    def register(self, family: MetricFamily[SeriesT]) -> MetricFamily[SeriesT]:
        """The same family, which is now part of every scrape."""
        self.registry.register(family)
        return family

    def for_controller(self, name: str, concurrency: int = 1) -> ControllerMetrics:
        """What the controller of this name tells."""
        return ControllerMetrics(self, name, concurrency)

    def for_queue(self, name: str) -> QueueMetrics:
        """What the work queue of this name tells."""
        return QueueMetrics(self, name)

    def count_request(self, code: str, host: str, method: str) -> None:
        """A call to the API server was answered, or was not: then the code is `<error>`."""
        self.request_total.labels(code, method, host).inc()

    def set_leader(self, name: str, *, leading: bool) -> None:
        """The lease became ours, or somebody else's."""
        self._leader_status.labels(name).set(1.0 if leading else 0.0)

    def register_watch(
        self, kind: str, *, age: Callable[[], float], objects: Callable[[], float]
    ) -> None:
        """Say how to read, at each scrape, the seconds since the kind's watch showed life and the size of its cache."""
        self._watch_age.labels(kind).set_function(age)
        self._cached_objects.labels(kind).set_function(objects)

    def count_watch_restart(self, kind: str, reason: str) -> None:
        """A watch ended and is started again."""
        self.watch_restarts.labels(kind, reason).inc()

    def count_list(self, kind: str) -> None:
        """All objects of a kind were read anew."""
        self._list_total.labels(kind).inc()

    def count_undecodable(self, kind: str) -> None:
        """An object came that does not fit its class."""
        self.undecodable_total.labels(kind).inc()

    def count_dropped_event(self) -> None:
        """A Kubernetes Event was given up."""
        self.events_dropped.inc()

    def observe_loop_lag(self, seconds: float) -> None:
        """The event loop ran a timer so much too late."""
        self._loop_lag.observe(seconds)

    def exposition(self) -> tuple[bytes, str]:
        """All series but process_* as text, and its content type. OpenMetrics would take twice as long and say nothing more."""
        return generate_latest(self.registry), _CONTENT_TYPE

    def process_exposition(self) -> bytes:
        """The process_* series, to be put behind the others; read from files, so call it in a thread."""
        return generate_latest(self.process_registry)
