from __future__ import annotations

import math

import pytest
from prometheus_client import Counter
from prometheus_client.parser import text_string_to_metric_families

from kubewright.metrics import RECONCILE_BUCKETS, ControllerMetrics, Metrics, QueueMetrics

# Facts of controller-runtime v0.25: name -> (type, labels).
CONTROLLER_RUNTIME_METRICS = {
    "controller_runtime_reconcile_total": ("counter", {"controller", "result"}),
    "controller_runtime_reconcile_errors_total": ("counter", {"controller"}),
    "controller_runtime_terminal_reconcile_errors_total": ("counter", {"controller"}),
    "controller_runtime_reconcile_panics_total": ("counter", {"controller"}),
    "controller_runtime_reconcile_timeouts_total": ("counter", {"controller"}),
    "controller_runtime_reconcile_time_seconds": ("histogram", {"controller"}),
    "controller_runtime_max_concurrent_reconciles": ("gauge", {"controller"}),
    "controller_runtime_active_workers": ("gauge", {"controller"}),
    "workqueue_depth": ("gauge", {"name", "controller", "priority"}),
    "workqueue_adds_total": ("counter", {"name", "controller"}),
    "workqueue_queue_duration_seconds": ("histogram", {"name", "controller"}),
    "workqueue_work_duration_seconds": ("histogram", {"name", "controller"}),
    "workqueue_unfinished_work_seconds": ("gauge", {"name", "controller"}),
    "workqueue_longest_running_processor_seconds": ("gauge", {"name", "controller"}),
    "workqueue_retries_total": ("counter", {"name", "controller"}),
    "rest_client_requests_total": ("counter", {"code", "method", "host"}),
    "leader_election_master_status": ("gauge", {"name"}),
}
KUBEWRIGHT_METRICS = {
    "kubewright_watch_age_seconds": ("gauge", {"kind"}),
    "kubewright_watch_restarts_total": ("counter", {"kind", "reason"}),
    "kubewright_lists_total": ("counter", {"kind"}),
    "kubewright_undecodable_total": ("counter", {"kind"}),
    "kubewright_cached_objects": ("gauge", {"kind"}),
    "kubewright_events_dropped_total": ("counter", set()),
    "kubewright_status_writes_total": ("counter", {"controller"}),
    "kubewright_status_unchanged_total": ("counter", {"controller"}),
    "kubewright_event_loop_lag_seconds": ("histogram", set()),
}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def record_everything(metrics: Metrics) -> None:
    ControllerMetrics(metrics, "hostinfo", 4)
    QueueMetrics(metrics, "hostinfo").depth_by_priority[0].inc()
    metrics.requests.labels("200", "GET", "api:6443").inc()
    metrics.leader_status.labels("ns/lease").set(1)
    metrics.watch_age.labels("hostinfoes").set_function(lambda: 1.5)
    metrics.cached_objects.labels("hostinfoes").set_function(lambda: 7)
    metrics.watch_restarts.labels("hostinfoes", "gone").inc()
    metrics.lists.labels("hostinfoes").inc()
    metrics.undecodable.labels("hostinfoes").inc()


def read_samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = metrics.exposition()[0].decode()
    return {
        (s.name, frozenset(s.labels.items())): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def sample_value(metrics: Metrics, series: str, /, **labels: str) -> float:
    return read_samples(metrics)[series, frozenset(labels.items())]


@pytest.mark.parametrize(
    ("name", "type_and_labels"), [*CONTROLLER_RUNTIME_METRICS.items(), *KUBEWRIGHT_METRICS.items()]
)
def test_names_types_and_labels(
    metrics: Metrics, name: str, type_and_labels: tuple[str, set[str]]
) -> None:
    series_type, expected_labels = type_and_labels
    record_everything(metrics)
    text = metrics.exposition()[0].decode()
    assert f"# TYPE {name} {series_type}\n" in text
    series = f"{name}_count" if series_type == "histogram" else name
    labels = [
        {label for label, _ in pairs}
        for (sample, pairs) in read_samples(metrics)
        if sample == series
    ]
    assert labels
    assert all(label_names == expected_labels for label_names in labels)


def test_no_created_series_and_process_series_are_separate(metrics: Metrics) -> None:
    record_everything(metrics)
    text = metrics.exposition()[0].decode()
    assert "_created" not in text
    assert {"python_info", "python_gc_collections_total"} <= {
        name for name, _ in read_samples(metrics)
    }
    assert b"\nprocess_cpu_seconds_total " in metrics.process_exposition()


def bucket_bounds(metrics: Metrics, name: str) -> list[float]:
    return [
        float(dict(labels)["le"])
        for sample, labels in read_samples(metrics)
        if sample == f"{name}_bucket"
    ]


def test_buckets_of_reconciles(metrics: Metrics) -> None:
    ControllerMetrics(metrics, "x", 1)
    bounds = bucket_bounds(metrics, "controller_runtime_reconcile_time_seconds")
    assert bounds == [*RECONCILE_BUCKETS, math.inf]
    assert len(bounds) == 41
    assert (bounds[0], bounds[17], bounds[39]) == (0.005, 1.0, 60.0)


@pytest.mark.parametrize(
    "name", ["workqueue_queue_duration_seconds", "workqueue_work_duration_seconds"]
)
def test_buckets_of_queues_are_gos_to_the_last_digit(metrics: Metrics, name: str) -> None:
    QueueMetrics(metrics, "x")
    assert bucket_bounds(metrics, name) == [
        1e-08, 1e-07, 1e-06, 9.999999999999999e-06, 9.999999999999999e-05, 0.001, 0.01, 0.1, 1.0,
        10.0, 100.0, 1000.0, math.inf,
    ]  # fmt: skip


def test_histogram_counts_like_prometheus(metrics: Metrics) -> None:
    controller = ControllerMetrics(metrics, "x", 1)
    for seconds in (0.001, 0.005, 0.0051, 61.0):
        controller.reconcile_seconds.observe(seconds)
    name = "controller_runtime_reconcile_time_seconds"
    buckets = [
        sample_value(metrics, f"{name}_bucket", controller="x", le=le)
        for le in ("0.005", "0.01", "60.0", "+Inf")
    ]
    assert buckets == [2, 3, 3, 4]
    assert sample_value(metrics, f"{name}_count", controller="x") == 4
    assert sample_value(metrics, f"{name}_sum", controller="x") == pytest.approx(61.0111)


def test_every_result_starts_at_zero(metrics: Metrics) -> None:
    ControllerMetrics(metrics, "x", 4)
    for result in ("success", "error", "requeue", "requeue_after"):
        assert (
            sample_value(
                metrics, "controller_runtime_reconcile_total", controller="x", result=result
            )
            == 0
        )
    assert (
        sample_value(metrics, "controller_runtime_max_concurrent_reconciles", controller="x") == 4
    )


def test_series_of_a_controller(metrics: Metrics) -> None:
    controller = ControllerMetrics(metrics, "x", 1)
    controller.results["success"].inc()
    controller.results["error"].inc(2)
    controller.errors.inc(2)
    controller.terminal_errors.inc()
    controller.panics.inc()
    controller.timeouts.inc()
    controller.active_workers.inc()
    controller.status_writes.inc()
    controller.status_unchanged.inc()
    for name, expected in [("errors", 2), ("panics", 1), ("timeouts", 1)]:
        assert (
            sample_value(metrics, f"controller_runtime_reconcile_{name}_total", controller="x")
            == expected
        )
    assert (
        sample_value(metrics, "controller_runtime_terminal_reconcile_errors_total", controller="x")
        == 1
    )
    assert (
        sample_value(metrics, "controller_runtime_reconcile_total", controller="x", result="error")
        == 2
    )
    assert sample_value(metrics, "controller_runtime_active_workers", controller="x") == 1
    assert sample_value(metrics, "kubewright_status_writes_total", controller="x") == 1
    assert sample_value(metrics, "kubewright_status_unchanged_total", controller="x") == 1


def test_series_of_a_queue(metrics: Metrics) -> None:
    queue = QueueMetrics(metrics, "x")
    queue.read_unfinished_seconds = lambda: [1.0, 2.5]
    queue.adds.inc(2)
    queue.depth_by_priority[-100].inc()
    queue.depth_by_priority[-100].dec()
    queue.depth_by_priority[0].inc()
    queue.queue_seconds.observe(0.5)
    queue.work_seconds.observe(2.0)
    queue.retries.inc()
    labels = {"name": "x", "controller": "x"}
    assert sample_value(metrics, "workqueue_depth", priority="0", **labels) == 1
    assert sample_value(metrics, "workqueue_depth", priority="-100", **labels) == 0
    assert sample_value(metrics, "workqueue_adds_total", **labels) == 2
    assert sample_value(metrics, "workqueue_retries_total", **labels) == 1
    assert sample_value(metrics, "workqueue_queue_duration_seconds_sum", **labels) == 0.5
    assert sample_value(metrics, "workqueue_work_duration_seconds_sum", **labels) == 2.0
    assert sample_value(metrics, "workqueue_unfinished_work_seconds", **labels) == 3.5
    assert sample_value(metrics, "workqueue_longest_running_processor_seconds", **labels) == 2.5


def test_priorities_are_bounded(metrics: Metrics) -> None:
    queue = QueueMetrics(metrics, "x")
    for priority in range(40):
        queue.depth_by_priority[priority].inc()
    assert (
        sample_value(
            metrics,
            "workqueue_depth",
            name="x",
            controller="x",
            priority="exceeded_cardinality_limit",
        )
        == 15
    )
    assert len([1 for name, _ in read_samples(metrics) if name == "workqueue_depth"]) == 26


def test_functions_are_called_at_each_scrape(metrics: Metrics) -> None:
    ages = iter([1.0, 2.0])
    metrics.watch_age.labels("pods").set_function(lambda: next(ages))
    metrics.cached_objects.labels("pods").set_function(lambda: 1 / 0)
    assert sample_value(metrics, "kubewright_watch_age_seconds", kind="pods") == 1.0
    assert sample_value(metrics, "kubewright_watch_age_seconds", kind="pods") == 2.0
    assert math.isnan(sample_value(metrics, "kubewright_cached_objects", kind="pods"))


def test_series_of_the_lease_and_of_requests(metrics: Metrics) -> None:
    metrics.leader_status.labels("ns/a").set(1)
    assert sample_value(metrics, "leader_election_master_status", name="ns/a") == 1
    metrics.leader_status.labels("ns/a").set(0)
    metrics.requests.labels("<error>", "GET", "h").inc()
    metrics.events_dropped.inc()
    metrics.loop_lag.observe(0.2)
    assert sample_value(metrics, "leader_election_master_status", name="ns/a") == 0
    assert (
        sample_value(metrics, "rest_client_requests_total", code="<error>", host="h", method="GET")
        == 1
    )
    assert sample_value(metrics, "kubewright_events_dropped_total") == 1
    assert sample_value(metrics, "kubewright_event_loop_lag_seconds_bucket", le="0.25") == 1


def test_wrong_number_of_labels_is_rejected(metrics: Metrics) -> None:
    with pytest.raises(ValueError, match="code, method, host"):
        metrics.requests.labels("200")


def test_registries_are_separate_and_take_metrics_of_the_application(metrics: Metrics) -> None:
    Counter("logins", "Logins.", registry=metrics.registry).inc()
    metrics.lists.labels("pods").inc()
    assert sample_value(metrics, "logins_total") == 1
    assert ("kubewright_lists_total", frozenset({("kind", "pods")})) not in read_samples(Metrics())


def test_content_type(metrics: Metrics) -> None:
    assert metrics.exposition()[1] == "text/plain; version=0.0.4; charset=utf-8"
