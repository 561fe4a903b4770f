"""A second start with objects that are done: number of writes, and CPU of the idle process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from bench.cluster import BenchCluster, BenchError, SampleSet
from bench.contender import RUNTIME, contender_process
from bench.process_stats import cpu_seconds
from bench.run import run_process
from kubewright.testing import eventually
from kubewright.testing.process import Process

RECONCILES_METRIC, _WRITES_METRIC = (
    "controller_runtime_reconcile_total",
    "kubewright_status_writes_total",
)
RECONCILE_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class RestartResult:
    objects: int
    reconciles: int
    status_writes: int
    changed_objects: int
    idle_seconds: float
    idle_cpu_percent: float
    """In percent of one core."""


def find_metrics_port(process: Process) -> int:
    """The port of /metrics in the log, 0 before it is logged."""
    if not process.is_running:
        raise BenchError(
            f"{process.name} exited unexpectedly at its second start. The end of its log:\n"
            f"{process.read_log_tail()}"
        )
    for line in process.log.read_bytes().splitlines():
        record = msgspec.json.decode(line)
        if record.get("msg") == "serving metrics":
            return int(record["port"])
    return 0


async def read_counters(
    session: aiohttp.ClientSession, port: int, names: Iterable[str]
) -> list[int]:
    """The sum of all series of each counter, from one scrape."""
    async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
        text = await response.text()
    samples = [
        sample for family in text_string_to_metric_families(text) for sample in family.samples
    ]
    return [int(sum(sample.value for sample in samples if sample.name == name)) for name in names]


async def measure_restart(
    cluster: BenchCluster, samples: SampleSet, rest_seconds: float
) -> RestartResult:
    """Starts the runtime with objects that have their status, and waits until it is idle."""
    # Objects and counters are compared after the idle time, so that a late write counts too.
    before = await cluster.list_resource_versions(samples.namespace)
    process = contender_process(RUNTIME, cluster, samples)
    async with run_process(process), aiohttp.ClientSession() as session:
        port = await eventually(
            lambda: find_metrics_port(process), within=RECONCILE_TIMEOUT_SECONDS
        )

        async def all_seen() -> bool:
            return (await read_counters(session, port, [RECONCILES_METRIC]))[0] >= samples.count

        await eventually(all_seen, within=RECONCILE_TIMEOUT_SECONDS, every=0.2)
        percent = await measure_idle_cpu(process, rest_seconds)
        reconciles, writes = await read_counters(session, port, [RECONCILES_METRIC, _WRITES_METRIC])
    after = await cluster.list_resource_versions(samples.namespace)
    changed = sum(after.get(name) != revision for name, revision in before.items())
    return RestartResult(samples.count, reconciles, writes, changed, rest_seconds, percent)


async def measure_idle_cpu(process: Process, seconds: float) -> float:
    """CPU of the idle process in percent of one core."""
    used, since = cpu_seconds(process.pid), time.monotonic()
    await asyncio.sleep(seconds)
    return 100 * (cpu_seconds(process.pid) - used) / (time.monotonic() - since)
