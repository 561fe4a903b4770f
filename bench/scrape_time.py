"""The CPU time of a scrape of the inventory, written as text and with prometheus_client.

python -m bench.scrape_time       # 1,000 hosts and 2,000 VMs in memory; a few seconds
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from vsphere_operators.vcenters.inventory_metrics import (
    InventoryMetrics,
    InventoryMetricsOptions,
    VmRoles,
)
from vsphere_operators.vsphere.updates import Ref

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.fake_environment import FakeEnvironment

_HOSTS, _VMS, _CLUSTERS, _ROUNDS = 1000, 2000, 10, 15


def _fill_inventory() -> FakeEnvironment:
    environment = FakeEnvironment()
    for number in range(_CLUSTERS):
        environment.enter("ClusterComputeResource", f"domain-c{number}", name=f"cluster-{number}")
    for number in range(_HOSTS):
        environment.enter(
            "HostSystem",
            f"host-{number}",
            name=f"esxi-{number:04}.rainpole.com",
            parent=Ref("ClusterComputeResource", f"domain-c{number % _CLUSTERS}"),
            runtime__connectionState="connected",
            summary__hardware__cpuMhz=2000,
            summary__hardware__numCpuCores=64,
            summary__hardware__memorySize=2**39,
            summary__hardware__vendor="Dell Inc.",
            summary__hardware__model="PowerEdge R740",
            summary__quickStats__overallCpuUsage=20_000,
            summary__quickStats__overallMemoryUsage=300_000,
        )
    for number in range(_VMS):
        environment.enter(
            "VirtualMachine",
            f"vm-{number}",
            name=f"tkg-cluster-worker-{number}",
            runtime__host=Ref("HostSystem", f"host-{number % _HOSTS}"),
            runtime__powerState="poweredOn",
            runtime__connectionState="connected",
            summary__config__numCpu=4,
            summary__config__memorySizeMB=8192,
            summary__quickStats__overallCpuUsage=1000,
            summary__quickStats__overallCpuDemand=1000,
            summary__quickStats__guestMemoryUsage=1000,
            summary__quickStats__overallCpuReadiness=2,
            summary__quickStats__balloonedMemory=0,
            summary__quickStats__swappedMemory=0,
        )
    environment.mark_loaded()
    return environment


class _SameSamples(Collector):
    """A collector of prometheus_client with the samples of a text."""

    def __init__(self, text: str) -> None:
        self._families = list(text_string_to_metric_families(text))

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            names = list(family.samples[0].labels)
            gauge = GaugeMetricFamily(family.name, family.documentation, labels=names)
            for sample in family.samples:
                gauge.add_metric([sample.labels[name] for name in names], sample.value)
            yield gauge


def _measure(render: Callable[[], object]) -> str:
    seconds = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        render()
        seconds.append(time.process_time() - began)
    return f"{1000 * statistics.median(seconds):.0f} ms (fastest {1000 * min(seconds):.0f} ms)"


def main() -> None:
    collector = InventoryMetrics(
        [_fill_inventory().vcenter],
        InventoryMetricsOptions(all_vms=True),
        is_active=lambda: True,
        read_vm_roles=lambda vcenter: VmRoles(),
        read_volume_handles=set,
    )
    text = collector.render()
    registry = CollectorRegistry()
    registry.register(_SameSamples(text))
    samples = sum(not line.startswith("#") for line in text.splitlines())
    print(f"{_HOSTS} hosts, {_VMS} VMs: {samples} samples, {len(text) / 1e6:.1f} MB")
    print(f"as text           {_measure(collector.render)}")
    print(f"prometheus_client {_measure(lambda: generate_latest(registry))}")


if __name__ == "__main__":
    main()
