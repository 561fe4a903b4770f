"""The dashboard of the manager itself."""

from __future__ import annotations

from .model import JOB_SELECTOR, Dashboard, Panel, Query, Section
from .promql import p99, rate

_STATE = Section(
    "State",
    (
        Panel(
            "Managers up",
            "Managers that Prometheus can scrape.",
            "short",
            (Query(f"sum(up{{{JOB_SELECTOR}}})"),),
            type="stat",
            width=4,
            height=4,
        ),
        Panel(
            "Leaders",
            "Managers that hold the lease. Must be 1.",
            "short",
            (Query(f"sum(leader_election_master_status{{{JOB_SELECTOR}}})"),),
            type="stat",
            width=4,
            height=4,
        ),
        Panel(
            "Silent watches",
            "Kinds of which the watch receives nothing. Must be 0.",
            "short",
            (Query(f"sum(kubewright_watch_silent{{{JOB_SELECTOR}}})"),),
            type="stat",
            width=4,
            height=4,
        ),
        Panel(
            "Running since",
            "Start of the manager that was started last.",
            "dateTimeFromNow",
            (Query(f"max(process_start_time_seconds{{{JOB_SELECTOR}}}) * 1000"),),
            type="stat",
            width=4,
            height=4,
        ),
        Panel(
            "Memory",
            "Resident memory of each manager.",
            "bytes",
            (Query(f"process_resident_memory_bytes{{{JOB_SELECTOR}}}", "{{instance}}"),),
            type="stat",
            width=4,
            height=4,
        ),
        Panel(
            "CPU",
            "CPU of each manager, in cores.",
            "percentunit",
            (Query(rate("process_cpu_seconds_total", "instance"), "{{instance}}"),),
            type="stat",
            width=4,
            height=4,
        ),
    ),
)
_RECONCILES = Section(
    "Reconciles",
    (
        Panel(
            "Reconciles",
            "Finished reconciles by controller and result.",
            "ops",
            (
                Query(
                    rate("controller_runtime_reconcile_total", "controller", "result"),
                    "{{controller}} {{result}}",
                ),
            ),
        ),
        Panel(
            "Errors",
            "Reconciles that failed and are retried, and those that wait for a change.",
            "ops",
            (
                Query(
                    rate("controller_runtime_reconcile_errors_total", "controller"),
                    "{{controller}}",
                ),
                Query(
                    rate("controller_runtime_terminal_reconcile_errors_total", "controller"),
                    "{{controller}} terminal",
                ),
            ),
        ),
        Panel(
            "Time of a reconcile, p99",
            "99 % of the reconciles take at most this long.",
            "s",
            (
                Query(
                    p99("controller_runtime_reconcile_time_seconds", "controller"),
                    "{{controller}}",
                ),
            ),
        ),
        Panel(
            "Queue depth",
            "Objects that wait for a worker.",
            "short",
            (Query(f"sum by (controller) (workqueue_depth{{{JOB_SELECTOR}}})", "{{controller}}"),),
        ),
        Panel(
            "Time in the queue, p99",
            "99 % of the objects wait at most this long for a worker.",
            "s",
            (Query(p99("workqueue_queue_duration_seconds", "controller"), "{{controller}}"),),
        ),
        Panel(
            "Longest running reconcile",
            "How long the oldest reconcile has been running.",
            "s",
            (
                Query(
                    "max by (controller) "
                    f"(workqueue_longest_running_processor_seconds{{{JOB_SELECTOR}}})",
                    "{{controller}}",
                ),
            ),
        ),
        Panel(
            "Status writes",
            "Statuses that were written, and reconciles that changed nothing.",
            "ops",
            (
                Query(rate("kubewright_status_writes_total", "controller"), "{{controller}}"),
                Query(
                    rate("kubewright_status_unchanged_total", "controller"),
                    "{{controller}} unchanged",
                ),
            ),
        ),
        Panel(
            "Active workers",
            "Share of the workers of each controller that are busy.",
            "percentunit",
            (
                Query(
                    f"max by (controller) (controller_runtime_active_workers{{{JOB_SELECTOR}}} / "
                    f"controller_runtime_max_concurrent_reconciles{{{JOB_SELECTOR}}})",
                    "{{controller}}",
                ),
            ),
        ),
        Panel(
            "Event loop lag, p99",
            "How late timers run. Above 0.25 s the process is blocked or has too little CPU.",
            "s",
            (
                Query(
                    p99("kubewright_event_loop_lag_seconds", "instance"),
                    "{{instance}}",
                ),
            ),
        ),
    ),
)
_KUBERNETES = Section(
    "Kubernetes API",
    (
        Panel(
            "Requests",
            "Requests to the API server by status code and method.",
            "reqps",
            (Query(rate("rest_client_requests_total", "code", "method"), "{{code}} {{method}}"),),
        ),
        Panel(
            "Age of watches",
            "Seconds since each watch last received data. Bookmarks arrive about once a minute.",
            "s",
            (Query(f"max by (kind) (kubewright_watch_age_seconds{{{JOB_SELECTOR}}})", "{{kind}}"),),
        ),
        Panel(
            "Cached objects",
            "Objects in memory by kind.",
            "short",
            (Query(f"max by (kind) (kubewright_cached_objects{{{JOB_SELECTOR}}})", "{{kind}}"),),
        ),
        Panel(
            "Lists",
            "Full lists. Frequent ones mean that watches fail.",
            "ops",
            (Query(rate("kubewright_lists_total", "kind"), "{{kind}}"),),
        ),
        Panel(
            "Dropped Events",
            "Kubernetes Events that were not written.",
            "ops",
            (Query(rate("kubewright_events_dropped_total", "instance"), "{{instance}}"),),
        ),
        Panel(
            "Certificates",
            "When the certificates that the manager serves expire.",
            "dateTimeFromNow",
            (
                Query(
                    f"min by (server) (kubewright_certificate_expiry_seconds{{{JOB_SELECTOR}}})"
                    " * 1000",
                    "{{server}}",
                ),
            ),
            type="stat",
        ),
    ),
)
MANAGER = Dashboard(
    "manager",
    "vSphere operators / Manager",
    "Whether the manager works: leader, reconciles, queues, watches and resources.",
    (_STATE, _RECONCILES, _KUBERNETES),
)

DASHBOARDS = (MANAGER,)
