"""A second start with objects that have their status: the time until the contender is idle.

It is idle when it has used little CPU for a while, on a machine that was not busy either: it may
otherwise wait for the API server, or for a turn on a core. The resourceVersions of the objects and
the counters of the API server show whether it has written anything.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass

from bench.cluster import BenchError, count_write_requests
from bench.process_stats import cpu_seconds, machine_cpu_seconds, memory_bytes
from bench.product.contenders import Contender
from bench.product.environment import Environment, new_objects
from bench.product.equal_work import Reference
from bench.run import measure_process, run_process
from kubewright.testing.process import Process
from vsphere_operators.kinds.hostinfo import HostInfo

_SAMPLE_SECONDS = 0.1
_IDLE_SAMPLES = 20
# A manager at rest uses less than 1 %, and a whole restart with 1,000 objects about 0.2 s of CPU.
_IDLE_CPU_SHARE = 0.03
# Of all cores.
_QUIET_MACHINE_SHARE = 0.5
_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class Restart:
    count: int

    async def measure(
        self, environment: Environment, reference: Reference, contender: Contender, name: str
    ) -> dict[str, float]:
        cluster = environment.hosts
        async with new_objects(cluster, name, self.count) as samples:
            async with measure_process(cluster, environment.create_process(contender), samples):
                pass
            await cluster.collect_garbage()
            before = await cluster.list_resource_versions(samples.namespace)
            requests = await count_write_requests(cluster.transport, [HostInfo])
            process = environment.create_process(contender)
            async with run_process(process):
                seconds, cpu = await _wait_until_idle(process)
                resident, peak = memory_bytes(process.pid)
            after = await cluster.list_resource_versions(samples.namespace)
            return {
                "idle_s": seconds,
                "cpu_s": cpu,
                "peak_mib": peak / 2**20,
                "rss_mib": resident / 2**20,
                "changed": sum(after.get(key) != version for key, version in before.items()),
                "requests": await count_write_requests(cluster.transport, [HostInfo]) - requests,
            }


async def _wait_until_idle(process: Process) -> tuple[float, float]:
    """Seconds and CPU seconds from the start until the process is idle."""
    started = time.monotonic()
    samples = [(0.0, 0.0, machine_cpu_seconds())]
    while time.monotonic() - started < _TIMEOUT_SECONDS:
        await asyncio.sleep(_SAMPLE_SECONDS)
        if not process.is_running:
            raise BenchError(
                f"{process.name} exited unexpectedly. The end of its log:\n"
                f"{process.read_log_tail()}"
            )
        samples.append(
            (time.monotonic() - started, cpu_seconds(process.pid), machine_cpu_seconds())
        )
        if len(samples) > _IDLE_SAMPLES:
            since, cpu_before, machine_before = samples[-_IDLE_SAMPLES - 1]
            now, cpu_now, machine_now = samples[-1]
            all_cores = (now - since) * (os.cpu_count() or 1)
            is_quiet = machine_now - machine_before < _QUIET_MACHINE_SHARE * all_cores
            if is_quiet and cpu_now - cpu_before < _IDLE_CPU_SHARE * (now - since):
                return since, cpu_before
    raise BenchError(f"{process.name} was not idle within {_TIMEOUT_SECONDS:g} s")
