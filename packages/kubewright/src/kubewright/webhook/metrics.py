"""What Prometheus sees of webhooks: controller-runtime's names and labels; its buckets are Prometheus' defaults there, and so here."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..metrics import Metrics

_LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class WebhookMetrics:
    """The instruments of one endpoint; they exist only where there are webhooks."""

    def __init__(self, metrics: Metrics, paths: Iterable[str]) -> None:
        by = ["webhook"]
        self.requests = metrics.new_counter(
            "controller_runtime_webhook_requests_total",
            "Total number of admission requests by HTTP status code.",
            [*by, "code"],
        )
        self._latency = metrics.new_histogram(
            "controller_runtime_webhook_latency_seconds",
            "Histogram of the latency of processing admission requests",
            by,
            _LATENCY_BUCKETS,
        )
        self.in_flight = metrics.new_gauge(
            "controller_runtime_webhook_requests_in_flight",
            "Current number of admission requests being served.",
            by,
        )
        self.panics = metrics.new_counter(
            "controller_runtime_webhook_panics_total", "Total number of webhook panics"
        ).labels()
        self._expiry = metrics.new_gauge(
            "kubewright_webhook_certificate_expiry_seconds",
            "When the serving certificate of our own CA expires, in seconds since 1970",
        )
        for path in paths:
            self.in_flight.labels(path)
            for code in ("200", "500"):
                self.requests.labels(path, code)

    def record_start(self, path: str) -> None:
        """A request is being answered."""
        self.in_flight.labels(path).inc()

    def record_end(self, path: str, code: int, seconds: float) -> None:
        """It was, after so long."""
        self.in_flight.labels(path).dec()
        self.requests.labels(path, str(code)).inc()
        self._latency.labels(path).observe(seconds)

    def record_panic(self) -> None:
        """User code raised what nobody meant to raise: what is a panic in Go."""
        self.panics.inc()

    def set_expiry_function(self, read: Callable[[], float]) -> None:
        """Say how to read, at each scrape, when the serving certificate expires."""
        self._expiry.labels().set_function(read)
