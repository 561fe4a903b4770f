"""The Prometheus metrics of the topology."""

from __future__ import annotations

from kubewright.metrics import Metrics


class TopologyMetrics:
    """Registered only if the topology is served."""

    def __init__(self, metrics: Metrics) -> None:
        self.clients = metrics.new_gauge(
            "vsphere_topology_clients", "Number of clients that receive changes of the topology"
        ).labels()
        self.dropped_clients = metrics.new_counter(
            "vsphere_topology_dropped_clients_total",
            "Number of clients that were disconnected because they did not read",
        ).labels()
        self.omitted_vms = metrics.new_gauge(
            "vsphere_topology_omitted_vms", "Number of VMs above the limit of the topology"
        ).labels()
