"""The Prometheus metrics: controller-runtime's names, labels and buckets, so that existing
dashboards work, and some of our own.

The program creates one `Metrics` and passes it on; there is no global registry. An application may
also use the instruments of prometheus_client: register them on `metrics.registry`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Literal, get_args

from .log import Log
from .series import HistogramSeries, MetricFamily, ScalarSeries, SeriesT
from .tls import ServingCertificate

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

ReconcileResult = Literal["success", "error", "requeue", "requeue_after"]
_RECONCILE_RESULTS: tuple[ReconcileResult, ...] = get_args(ReconcileResult)

# controller-runtime's bound for the values of the label `priority`, and its name for the others.
_MAX_PRIORITIES = 25
_OTHER_PRIORITIES = "exceeded_cardinality_limit"
_LOOP_LAG_INTERVAL_SECONDS = 5.0
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# fmt: off
RECONCILE_BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0,
)
# Multiplied as in Go, so that the labels are equal to the last digit: le="9.999999999999999e-06".
_QUEUE_BUCKETS = tuple(accumulate([10e-9, *[10.0] * 11], mul))
_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# fmt: on


class ControllerMetrics:
    """The series of one controller. They exist from the start with 0, so that rates are right."""

    def __init__(self, metrics: Metrics, name: str, concurrency: int = 1) -> None:
        self.results: dict[ReconcileResult, ScalarSeries] = {
            result: metrics._reconcile_total.labels(name, result) for result in _RECONCILE_RESULTS
        }
        self.errors = metrics._reconcile_errors.labels(name)
        self.terminal_errors = metrics._terminal_reconcile_errors.labels(name)
        self.panics = metrics._reconcile_panics.labels(name)
        self.timeouts = metrics._reconcile_timeouts.labels(name)
        self.reconcile_seconds = metrics._reconcile_seconds.labels(name)
        self.active_workers = metrics._active_workers.labels(name)
        self.status_writes = metrics._status_writes.labels(name)
        self.status_unchanged = metrics._status_unchanged.labels(name)
        metrics._max_concurrent_reconciles.labels(name).set(concurrency)


class _DepthByPriority(dict[int, ScalarSeries]):
    """The series of each priority, created when it is first used: a lookup is in the hot path."""

    def __init__(self, family: MetricFamily[ScalarSeries], name: str) -> None:
        self._family, self._name = family, name

    def __missing__(self, priority: int) -> ScalarSeries:
        if len(self) >= _MAX_PRIORITIES:
            return self._family.labels(self._name, self._name, _OTHER_PRIORITIES)
        self[priority] = self._family.labels(self._name, self._name, str(priority))
        return self[priority]


class QueueMetrics:
    """The series of one work queue. As in controller-runtime, `name` and `controller` are equal."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self.depth_by_priority = _DepthByPriority(metrics._queue_depth, name)
        self.adds = metrics._queue_adds.labels(name, name)
        self.retries = metrics._queue_retries.labels(name, name)
        self.queue_seconds = metrics._queue_seconds.labels(name, name)
        self.work_seconds = metrics._work_seconds.labels(name, name)
        self.read_unfinished_seconds: Callable[[], Sequence[float]] = list
        """How many seconds each key has been in progress; set by the queue, called at a scrape."""
        unfinished = metrics._unfinished_seconds.labels(name, name)
        unfinished.set_function(lambda: sum(self.read_unfinished_seconds()))
        longest = metrics._longest_running_seconds.labels(name, name)
        longest.set_function(lambda: max(self.read_unfinished_seconds(), default=0.0))


class Metrics:
    """Every metric of the runtime, on a registry of its own."""

    def __init__(self) -> None:
        self._families: dict[str, MetricFamily[ScalarSeries] | MetricFamily[HistogramSeries]] = {}
        self._registry: CollectorRegistry | None = None
        self._process_registry: CollectorRegistry | None = None
        self._text_collectors: list[Callable[[], str]] = []
        self._log = Log("metrics")
        self._register_reconcile_metrics()
        self._register_queue_metrics()
        self._register_client_metrics()
        self._register_own_metrics()

    @property
    def registry(self) -> CollectorRegistry:
        """For instruments of prometheus_client, and for reading values."""
        if self._registry is None:
            # Imported for the first scrape: it takes 30 ms and 4 MiB.
            from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector

            self._registry = registry = CollectorRegistry()
            for family in self._families.values():
                registry.register(family)
            PlatformCollector(registry=registry)
            GCCollector(registry=registry)
        return self._registry

    def _register_reconcile_metrics(self) -> None:
        # Names and help texts of controller-runtime, pkg/internal/controller/metrics.
        labels = ["controller"]
        self._reconcile_total = self.new_counter(
            "controller_runtime_reconcile_total",
            "Total number of reconciliations per controller",
            [*labels, "result"],
        )
        self._reconcile_errors = self.new_counter(
            "controller_runtime_reconcile_errors_total",
            "Total number of reconciliation errors per controller",
            labels,
        )
        self._terminal_reconcile_errors = self.new_counter(
            "controller_runtime_terminal_reconcile_errors_total",
            "Total number of terminal reconciliation errors per controller",
            labels,
        )
        self._reconcile_panics = self.new_counter(
            "controller_runtime_reconcile_panics_total",
            "Total number of reconciliation panics per controller",
            labels,
        )
        self._reconcile_timeouts = self.new_counter(
            "controller_runtime_reconcile_timeouts_total",
            "Total number of reconciliation timeouts per controller",
            labels,
        )
        self._reconcile_seconds = self.new_histogram(
            "controller_runtime_reconcile_time_seconds",
            "Length of time per reconciliation per controller",
            labels,
            RECONCILE_BUCKETS,
        )
        self._max_concurrent_reconciles = self.new_gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum number of concurrent reconciles per controller",
            labels,
        )
        self._active_workers = self.new_gauge(
            "controller_runtime_active_workers",
            "Number of currently used workers per controller",
            labels,
        )

    def _register_queue_metrics(self) -> None:
        # Names and help texts of controller-runtime, pkg/internal/metrics/workqueue.go.
        labels = ["name", "controller"]
        self._queue_depth = self.new_gauge(
            "workqueue_depth",
            "Current depth of workqueue by workqueue and priority",
            [*labels, "priority"],
        )
        self._queue_adds = self.new_counter(
            "workqueue_adds_total", "Total number of adds handled by workqueue", labels
        )
        self._queue_seconds = self.new_histogram(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested",
            labels,
            _QUEUE_BUCKETS,
        )
        self._work_seconds = self.new_histogram(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes.",
            labels,
            _QUEUE_BUCKETS,
        )
        self._unfinished_seconds = self.new_gauge(
            "workqueue_unfinished_work_seconds",
            "How many seconds of work has been done that is in progress and hasn't been observed "
            "by work_duration. Large values indicate stuck threads. One can deduce the number of "
            "stuck threads by observing the rate at which this increases.",
            labels,
        )
        self._longest_running_seconds = self.new_gauge(
            "workqueue_longest_running_processor_seconds",
            "How many seconds has the longest running processor for workqueue been running.",
            labels,
        )
        self._queue_retries = self.new_counter(
            "workqueue_retries_total",
            "Total number of items added to the workqueue with a non-zero delay (rate-limited "
            "requeues, explicit RequeueAfter or AddAfter calls)",
            labels,
        )

    def _register_client_metrics(self) -> None:
        # Names and help texts of controller-runtime, pkg/metrics.
        self.requests = self.new_counter(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ["code", "method", "host"],
        )
        self.leader_status = self.new_gauge(
            "leader_election_master_status",
            "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, "
            "1 indicates master. 'name' is the string used to identify the lease. Please make sure "
            "to group by name.",
            ["name"],
        )

    def register_shard_metrics(self) -> None:
        """Only a manager with shards has these."""
        self.shards_owned = self.new_gauge(
            "kubewright_shards_owned", "Number of shards that this replica holds"
        ).labels()
        self.shards_taken = self.new_counter(
            "kubewright_shards_taken_total",
            "Number of shards that this replica has taken, by hand-overs and take-overs",
        ).labels()
        self.shard_stop_seconds = self.new_histogram(
            "kubewright_shard_stop_seconds",
            "How long the running reconciles of a shard took to end before a hand-over",
            [],
            RECONCILE_BUCKETS,
        ).labels()

    def _register_own_metrics(self) -> None:
        self.watch_age = self.new_gauge(
            "kubewright_watch_age_seconds",
            "Seconds since the watch last received data",
            ["kind"],
        )
        self.watch_silent = self.new_gauge(
            "kubewright_watch_silent",
            "1 if the watches receive nothing, so that only lists find changes; otherwise 0",
            ["kind"],
        )
        self.watch_restarts = self.new_counter(
            "kubewright_watch_restarts_total",
            "Number of times a watch was restarted, by the reason",
            ["kind", "reason"],
        )
        self.lists = self.new_counter(
            "kubewright_lists_total", "Number of full lists read from the API server", ["kind"]
        )
        self.undecodable = self.new_counter(
            "kubewright_undecodable_total",
            "Number of objects that did not decode",
            ["kind"],
        )
        self.cached_objects = self.new_gauge(
            "kubewright_cached_objects", "Number of objects in the cache", ["kind"]
        )
        self.events_dropped = self.new_counter(
            "kubewright_events_dropped_total",
            "Number of Kubernetes Events dropped because of the rate limit or a failed request",
        ).labels()
        self._certificate_expiry = self.new_gauge(
            "kubewright_certificate_expiry_seconds",
            "Expiry of the certificate that the server presents, in seconds since 1970",
            ["server"],
        )
        self._status_writes = self.new_counter(
            "kubewright_status_writes_total", "Number of statuses written", ["controller"]
        )
        self._status_unchanged = self.new_counter(
            "kubewright_status_unchanged_total",
            "Number of reconciles that did not change the status",
            ["controller"],
        )
        self.loop_lag = self.new_histogram(
            "kubewright_event_loop_lag_seconds",
            "How late the event loop was in running a timer",
            [],
            _LAG_BUCKETS,
        ).labels()

    async def measure_loop_lag(self) -> None:
        # A blocking call anywhere in the process makes this timer late.
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LOOP_LAG_INTERVAL_SECONDS
            await asyncio.sleep(_LOOP_LAG_INTERVAL_SECONDS)
            self.loop_lag.observe(loop.time() - due)

    def new_counter(
        self, name: str, help: str, label_names: Sequence[str] = ()
    ) -> MetricFamily[ScalarSeries]:
        return self.register(MetricFamily("counter", name, help, label_names, ScalarSeries))

    def new_gauge(
        self, name: str, help: str, label_names: Sequence[str] = ()
    ) -> MetricFamily[ScalarSeries]:
        return self.register(MetricFamily("gauge", name, help, label_names, ScalarSeries))

    def new_histogram(
        self, name: str, help: str, label_names: Sequence[str], buckets: Sequence[float]
    ) -> MetricFamily[HistogramSeries]:
        return self.register(
            MetricFamily("histogram", name, help, label_names, lambda: HistogramSeries(buckets))
        )

    def register(self, family: MetricFamily[SeriesT]) -> MetricFamily[SeriesT]:
        """Make the family part of every scrape, and return it."""
        if family.name in self._families:
            raise ValueError(f"there are two metrics with the name {family.name}")
        self._families[family.name] = family
        if self._registry is not None:
            self._registry.register(family)
        return family

    def watch_certificate(self, server: str, certificate: ServingCertificate) -> None:
        """Report the expiry of the server's certificate; NaN while it has no certificate."""
        self._certificate_expiry.labels(server).set_function(
            lambda: certificate.expires_at.timestamp() if certificate.expires_at else math.nan
        )

    def add_text_collector(self, render: Callable[[], str]) -> None:
        """Add what `render` returns, in the text format, to every scrape.

        For thousands of series; exposition.py has the functions that write them.
        """
        self._text_collectors.append(render)

    def exposition(self) -> tuple[bytes, str]:
        """All series but process_* as text, and the content type."""
        # The OpenMetrics format would take twice as long and contain nothing more.
        from prometheus_client import generate_latest

        parts = [generate_latest(self.registry)]
        for render in self._text_collectors:
            try:
                # A lone surrogate in a name must not fail the scrape.
                parts.append(render().encode("utf-8", "replace"))
            except Exception as error:
                self._log.error("a collector failed; its metrics are missing", error=error)
        return b"".join(parts), _CONTENT_TYPE

    def process_exposition(self) -> bytes:
        """The process_* series. They are read from /proc, so call this in a thread."""
        from prometheus_client import generate_latest

        return generate_latest(self.process_registry)

    @property
    def process_registry(self) -> CollectorRegistry:
        if self._process_registry is None:
            from prometheus_client import CollectorRegistry, ProcessCollector

            self._process_registry = CollectorRegistry()
            ProcessCollector(registry=self._process_registry)
        return self._process_registry
