"""The page of metrics, from the families that are registered."""

from __future__ import annotations

from kubewright.metrics import Metrics
from kubewright.series import MetricFamily, SeriesT
from kubewright.webhook.server import WebhookMetrics
from vsphere_operators.kinds.vmgroup.metrics import VmGroupMetrics
from vsphere_operators.topology.metrics import TopologyMetrics
from vsphere_operators.vcenters.inventory_gauges import list_metrics
from vsphere_operators.vcenters.metrics import VCenterMetrics
from vsphere_operators.version import register_build_info

from .page import code, page, table

_INTRODUCTION = """
The manager serves `/metrics` in the text format of Prometheus. Names, labels and buckets of the
first table are those of controller-runtime, so its dashboards and alerts work unchanged. To read
them over TLS, see [TLS](../howto/tls.md). For the most useful ones, see
[debug](../howto/debug.md#key-metrics).
"""
_TITLES_BY_PREFIX = {
    "controller_runtime_": "Metrics of controller-runtime",
    "workqueue_": "Metrics of controller-runtime",
    "rest_client_": "Metrics of controller-runtime",
    "leader_election_": "Metrics of controller-runtime",
    "kubewright_": "Metrics of kubewright",
    "vsphere_topology_": "Topology",
    "vsphere_operators_": "The manager",
    "vsphere_vmgroup": "VmGroup",
    "vsphere_": "vCenter",
}
_INVENTORY_TEXT = """
Served only with `-inventory-metrics`, only by the leader, and only while the vCenter is available.
All are gauges. A value that vCenter does not report has no sample. See
[monitor](../howto/monitor.md).
"""
_WEBHOOKS_TEXT = """
`controller_runtime_webhook_` and `kubewright_webhook_` exist only with webhooks (`-webhooks`), and
`vsphere_topology_` only with the page (`-ui-bind-address`).
"""


class _RecordingMetrics(Metrics):
    """Records each family that is registered."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, str]] = []
        super().__init__()

    def register(self, family: MetricFamily[SeriesT]) -> MetricFamily[SeriesT]:
        self.rows.append(
            (family.name, family.family_type, ", ".join(family.label_names), family.help)
        )
        return super().register(family)


def _process_rows(metrics: Metrics) -> list[tuple[str, str, str, str]]:
    """The metrics of prometheus_client about the process and about Python."""
    families = [*metrics.process_registry.collect(), *metrics.registry.collect()]
    return [
        (
            # prometheus_client adds the suffix of a counter when it exports it.
            family.name + ("_total" if family.type == "counter" else ""),
            family.type,
            ", ".join(family.samples[0].labels) if family.samples else "",
            family.documentation,
        )
        for family in families
        if family.name.startswith(("process_", "python_"))
    ]


def _title_of(name: str) -> str:
    return next(title for start, title in _TITLES_BY_PREFIX.items() if name.startswith(start))


def _record_metrics() -> _RecordingMetrics:
    metrics = _RecordingMetrics()
    metrics.register_shard_metrics()
    register_build_info(metrics)
    VCenterMetrics(metrics)
    TopologyMetrics(metrics)
    VmGroupMetrics(metrics)
    WebhookMetrics(metrics, ())
    return metrics


def list_metric_names() -> set[str]:
    """The names of all metrics that the page lists."""
    metrics = _record_metrics()
    return {
        *(row[0] for row in (*metrics.rows, *_process_rows(metrics))),
        *(name for name, _, _ in list_metrics()),
    }


def render() -> str:
    metrics = _record_metrics()
    columns = ("metric", "type", "labels", "description")
    parts = [_INTRODUCTION]
    for title in dict.fromkeys(_TITLES_BY_PREFIX.values()):
        rows = [row for row in metrics.rows if _title_of(row[0]) == title]
        parts += [f"## {title}", table(columns, ((code(name), *cells) for name, *cells in rows))]
    parts += [
        "## Inventory",
        _INVENTORY_TEXT,
        table(
            ("metric", "labels", "description"),
            ((code(name), ", ".join(labels), help) for name, labels, help in list_metrics()),
        ),
        "## Process and Python",
        table(columns, ((code(name), *cells) for name, *cells in _process_rows(metrics))),
        _WEBHOOKS_TEXT,
    ]
    return page("Metrics", *parts)
