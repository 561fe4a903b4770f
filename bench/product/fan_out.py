"""One host changes, and N objects name it: the time until all statuses are right.

Only contenders that follow the vCenter take part.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace

from bench.process_stats import cpu_seconds
from bench.product.contenders import Contender
from bench.product.environment import Environment, new_objects
from bench.product.equal_work import Reference
from bench.run import ObjectWatch, measure_process
from bench.workload import Workload
from kubewright import ObjectMeta
from vsphere_operators.kinds.hostinfo import HostInfo, HostInfoSpec

_CHANGES = 3
_TIMEOUT_SECONDS = 60.0
_CPU_USAGES = (100, 2100)
# The manager may delay a change of usage if it has just written another one.
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class FanOut:
    count: int

    async def measure(
        self, environment: Environment, reference: Reference, contender: Contender, name: str
    ) -> dict[str, float]:
        host = environment.host_names[0]
        cluster = environment.hosts.with_workload(
            _workload_naming(host, environment.hosts.workload)
        )
        stored = reference.statuses["HostInfo"][host]
        async with new_objects(cluster, name, self.count) as samples:
            process = environment.create_process(contender)
            async with measure_process(cluster, process, samples):
                watched = replace(
                    samples, resource_version=await cluster.get_resource_version(name)
                )
                objects = ObjectWatch(cluster, watched).changed_objects()
                seconds, cpu_before = [], cpu_seconds(process.pid)
                for number in range(2 * _CHANGES):
                    await asyncio.sleep(_PAUSE_SECONDS)
                    usage = _CPU_USAGES[number % 2]
                    began = time.monotonic()
                    await environment.vcenter.set_stats(host, overallCpuUsage=usage)
                    pending = {f"sample-{index:06}" for index in range(1, self.count + 1)}
                    async with asyncio.timeout(_TIMEOUT_SECONDS):
                        async for obj in objects:
                            if obj.status and obj.status.freeCPU == stored["totalCPU"] - usage:
                                pending.discard(obj.metadata.name)
                            if not pending:
                                break
                    seconds.append(time.monotonic() - began)
                cpu_used = cpu_seconds(process.pid) - cpu_before
                await objects.aclose()
            # Restore the usage of the reference.
            await environment.vcenter.set_stats(
                host, overallCpuUsage=stored["totalCPU"] - stored["freeCPU"]
            )
        ordered = sorted(seconds)
        return {
            "all_s": ordered[len(ordered) // 2],
            "cpu_ms": 1000 * cpu_used / (len(seconds) * self.count),
        }


def _workload_naming(host: str, workload: Workload) -> Workload:
    def create(metadata: ObjectMeta, number: int) -> HostInfo:
        return HostInfo(metadata=metadata, spec=HostInfoSpec(hostname=host))

    return replace(workload, create=create)
