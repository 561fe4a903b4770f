"""The dashboards of the manager and of its calls to vCenter."""

from __future__ import annotations

from .model import JOB_SELECTOR, Dashboard, Panel, Query, Section


def _p99(metric: str, label: str, selector: str = JOB_SELECTOR) -> str:
    rate = f"rate({metric}_bucket{{{selector}}}[$__rate_interval])"
    return f"histogram_quantile(0.99, sum by ({label}, le) ({rate}))"


def _rate(metric: str, *labels: str, selector: str = JOB_SELECTOR) -> str:
    return f"sum by ({', '.join(labels)}) (rate({metric}{{{selector}}}[$__rate_interval]))"


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
            (Query(_rate("process_cpu_seconds_total", "instance"), "{{instance}}"),),
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
                    _rate("controller_runtime_reconcile_total", "controller", "result"),
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
                    _rate("controller_runtime_reconcile_errors_total", "controller"),
                    "{{controller}}",
                ),
                Query(
                    _rate("controller_runtime_terminal_reconcile_errors_total", "controller"),
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
                    _p99("controller_runtime_reconcile_time_seconds", "controller"),
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
            (Query(_p99("workqueue_queue_duration_seconds", "controller"), "{{controller}}"),),
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
                Query(_rate("kubewright_status_writes_total", "controller"), "{{controller}}"),
                Query(
                    _rate("kubewright_status_unchanged_total", "controller"),
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
                    _p99("kubewright_event_loop_lag_seconds", "instance"),
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
            (Query(_rate("rest_client_requests_total", "code", "method"), "{{code}} {{method}}"),),
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
            (Query(_rate("kubewright_lists_total", "kind"), "{{kind}}"),),
        ),
        Panel(
            "Dropped Events",
            "Kubernetes Events that were not written.",
            "ops",
            (Query(_rate("kubewright_events_dropped_total", "instance"), "{{instance}}"),),
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

_VCENTER = 'vcenter=~"$vcenter"'
VCENTER_API = Dashboard(
    "vcenter-api",
    "vSphere operators / vCenter API",
    "How the manager talks to vCenter: availability, calls, errors and the inventory.",
    (
        Section(
            "State",
            (
                Panel(
                    "vCenter up",
                    "1 if the inventory is loaded and current.",
                    "short",
                    (Query(f"max by (vcenter) (vsphere_vcenter_up{{{_VCENTER}}})", "{{vcenter}}"),),
                    type="stat",
                    width=6,
                    height=4,
                ),
                Panel(
                    "Login rejected",
                    "1 if vCenter rejects the credentials.",
                    "short",
                    (
                        Query(
                            f"max by (vcenter) (vsphere_vcenter_login_rejected{{{_VCENTER}}})",
                            "{{vcenter}}",
                        ),
                    ),
                    type="stat",
                    width=6,
                    height=4,
                ),
                Panel(
                    "Sessions",
                    "Open sessions: one for each manager and vCenter.",
                    "short",
                    (
                        Query(
                            f"sum by (vcenter) (vsphere_vcenter_sessions{{{_VCENTER}}})",
                            "{{vcenter}}",
                        ),
                    ),
                    type="stat",
                    width=6,
                    height=4,
                ),
                Panel(
                    "Logins since the start",
                    "Each login after the first means that a session was lost.",
                    "short",
                    (
                        Query(
                            f"max by (vcenter) (vsphere_vcenter_logins{{{_VCENTER}}})",
                            "{{vcenter}}",
                        ),
                    ),
                    type="stat",
                    width=6,
                    height=4,
                ),
            ),
        ),
        Section(
            "Calls",
            (
                Panel(
                    "Calls by method",
                    "Calls to vCenter. WaitForUpdatesEx returns every 15 s or with a change.",
                    "reqps",
                    (
                        Query(
                            _rate("vsphere_vcenter_calls_total", "method", selector=_VCENTER),
                            "{{method}}",
                        ),
                    ),
                    width=12,
                ),
                Panel(
                    "Calls by outcome",
                    "How calls to vCenter ended.",
                    "reqps",
                    (
                        Query(
                            _rate(
                                "vsphere_vcenter_calls_total",
                                "vcenter",
                                "outcome",
                                selector=_VCENTER,
                            ),
                            "{{vcenter}} {{outcome}}",
                        ),
                    ),
                    width=12,
                ),
                Panel(
                    "Time of a call, p99",
                    "99 % of the calls take at most this long, without WaitForUpdatesEx.",
                    "s",
                    (
                        Query(
                            _p99(
                                "vsphere_vcenter_call_duration_seconds",
                                "method",
                                f'{_VCENTER},method!="WaitForUpdatesEx"',
                            ),
                            "{{method}}",
                        ),
                    ),
                    width=12,
                ),
                Panel(
                    "Undecodable values",
                    "Values of vCenter that were left unset because they could not be decoded.",
                    "short",
                    (
                        Query(
                            "sum by (type, property) "
                            f"(vsphere_vcenter_undecodable_values_total{{{_VCENTER}}})"
                            " or vector(0)",
                            "{{type}} {{property}}",
                        ),
                    ),
                    width=12,
                ),
            ),
        ),
        Section(
            "Inventory",
            (
                Panel(
                    "Age",
                    "Seconds since the last response of the property collector. Above 30 s the "
                    "inventory is out of date.",
                    "s",
                    (
                        Query(
                            f"min by (vcenter) (vsphere_inventory_age_seconds{{{_VCENTER}}})",
                            "{{vcenter}}",
                        ),
                    ),
                ),
                Panel(
                    "Objects",
                    "Objects in the inventory by type.",
                    "short",
                    (
                        Query(
                            f"max by (vcenter, type) (vsphere_inventory_objects{{{_VCENTER}}})",
                            "{{vcenter}} {{type}}",
                        ),
                    ),
                ),
                Panel(
                    "Updates",
                    "Changes that vCenter reports by type.",
                    "ops",
                    (
                        Query(
                            _rate(
                                "vsphere_inventory_updates_total",
                                "type",
                                "kind",
                                selector=_VCENTER,
                            ),
                            "{{type}} {{kind}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
    variables={"vcenter": "vsphere_vcenter_up"},
)

DASHBOARDS = (MANAGER, VCENTER_API)
