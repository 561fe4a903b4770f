"""The page of metrics, from the instruments as they register themselves."""

from __future__ import annotations

from typing import Any

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from kubewright.metrics import MetricFamily, Metrics, SeriesT
from kubewright.webhook.server import WebhookMetrics
from vsphere_operators.vcenters.metrics import VCenterMetrics

from .page import code, page, table

INTRODUCTION = """
`/metrics`, in Prometheus' text format. Names, labels and buckets of the first table are controller-runtime's own, so its dashboards and
alerts work unchanged. How to read it over TLS: [TLS](../howto/tls.md). What to watch:
[debug](../howto/debug.md#key-metrics).
"""
TITLES_BY_PREFIX = {
    "controller_runtime_": "As controller-runtime has them",
    "workqueue_": "As controller-runtime has them",
    "rest_client_": "As controller-runtime has them",
    "leader_election_": "As controller-runtime has them",
    "kubewright_": "The runtime's own",
    "vsphere_": "vCenter",
}
WEBHOOKS_TEXT = "`controller_runtime_webhook_` and `kubewright_webhook_` exist only where there are webhooks: here with `-webhooks`."


class RecordingMetrics(Metrics):
    """The same instruments, and a list of them."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, str]] = []
        super().__init__()

    def register(self, family: MetricFamily[SeriesT]) -> MetricFamily[SeriesT]:
        """Note it down as well."""
        types: dict[Any, str] = {CounterMetricFamily: "counter", GaugeMetricFamily: "gauge"}
        sort = types.get(family.family_type, "histogram")
        self.rows.append((family.name, sort, ", ".join(family.label_names), family.help))
        return super().register(family)


def process_rows(metrics: Metrics) -> list[tuple[str, str, str, str]]:
    """What prometheus_client tells of the process and of Python."""
    found = [*metrics.process_registry.collect(), *metrics.registry.collect()]
    alone = [each for each in found if each.name.startswith(("process_", "python_"))]
    ends = {"counter": "_total"}
    return [
        (
            each.name + ends.get(each.type, ""),
            each.type,
            ", ".join(each.samples[0].labels) if each.samples else "",
            each.documentation,
        )
        for each in alone
    ]


def title_of(name: str) -> str:
    """Under which heading a metric stands."""
    return next(title for start, title in TITLES_BY_PREFIX.items() if name.startswith(start))


def render() -> str:
    """The page."""
    metrics = RecordingMetrics()
    VCenterMetrics(metrics)
    WebhookMetrics(metrics, ())
    head = ("metric", "type", "labels", "what")
    parts = [INTRODUCTION]
    for title in dict.fromkeys(TITLES_BY_PREFIX.values()):
        chosen = [each for each in metrics.rows if title_of(each[0]) == title]
        parts += [f"## {title}", table(head, ((code(name), *rest) for name, *rest in chosen))]
    parts += [
        "## The process and Python",
        table(head, ((code(name), *rest) for name, *rest in process_rows(metrics))),
        WEBHOOKS_TEXT,
    ]
    return page("Metrics", *parts)
