"""A start with N objects that have no status."""

from __future__ import annotations

from dataclasses import dataclass

from bench.product.contenders import Contender
from bench.product.environment import Environment, new_objects
from bench.product.equal_work import Reference
from bench.run import Run, measure_process
from vsphere_operators.kinds.hostinfo import HostInfo
from vsphere_operators.kinds.vminfo import VMInfo


@dataclass(frozen=True)
class ColdStart:
    kind: type[HostInfo] | type[VMInfo]
    count: int

    async def measure(
        self, environment: Environment, reference: Reference, contender: Contender, name: str
    ) -> dict[str, float]:
        cluster = environment.cluster_for(self.kind)
        async with new_objects(cluster, name, self.count) as samples:
            process = environment.create_process(contender)
            async with measure_process(cluster, process, samples) as run:
                pass
            await reference.check(cluster, samples, contender.name)
        return cold_start_figures(run, self.count)


def cold_start_figures(run: Run, count: int) -> dict[str, float]:
    start, first, done = run.started, run.first_status, run.done
    working = done.time - run.first_write.time
    figures = {
        "first_status_s": first.time - start.time,
        "done_s": done.time - start.time,
        "cpu_s": done.contender_seconds,
        "cpu_first_s": first.contender_seconds,
        "cpu_ms": 1000 * done.contender_seconds / count,
        "peak_mib": run.peak_rss_bytes / 2**20,
        "rss_mib": run.rss_bytes / 2**20,
        "apiserver_ms": 1000 * (done.apiserver_seconds - start.apiserver_seconds) / count,
        "writes": run.writes / count,
        "others": done.other_processes_share_since(start),
    }
    if count > 1:
        figures["statuses_per_s"] = (count - 1) / working
        cpu_used = done.contender_seconds - run.first_write.contender_seconds
        figures["cpu_working_ms"] = 1000 * cpu_used / count
    return figures
