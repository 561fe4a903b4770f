"""A start with GPUInfos and 500 Nodes, until all GPUInfos have selected a Node.

Only the manager runs: no other operator selects Nodes in this way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bench.cluster import CREATE_CONCURRENCY, BenchCluster
from bench.gpu_real import create_node
from bench.product.cold_start import cold_start_figures
from bench.product.contenders import Contender
from bench.product.environment import NODES, Environment, new_objects
from bench.product.equal_work import Reference
from bench.run import measure_process
from bench.workload import WatchedObject, Workload
from kubewright import ObjectMeta
from kubewright.transport import Request
from vsphere_operators.kinds.gpuinfo.types import GPUInfo, GPUInfoSpec


@dataclass(frozen=True)
class GPUInfos:
    count: int

    async def measure(
        self, environment: Environment, reference: Reference, contender: Contender, name: str
    ) -> dict[str, float]:
        cluster = environment.hosts.with_workload(_WORKLOAD)
        async with _new_nodes(cluster), new_objects(cluster, name, self.count) as samples:
            process = environment.create_process(contender)
            async with measure_process(cluster, process, samples) as run:
                pass
        return cold_start_figures(run, self.count)


@asynccontextmanager
async def _new_nodes(cluster: BenchCluster) -> AsyncIterator[None]:
    numbers = iter(range(NODES))

    async def create() -> None:
        for number in numbers:
            await create_node(cluster.client, number)

    try:
        await asyncio.gather(*(create() for _ in range(CREATE_CONCURRENCY)))
        yield
    finally:
        await cluster.transport.send(
            Request("DELETE", "/api/v1/nodes", operation="delete the Nodes", timeout_seconds=60)
        )


def _create(metadata: ObjectMeta, number: int) -> GPUInfo:
    return GPUInfo(
        metadata=metadata, spec=GPUInfoSpec(desAccTime=number, gpuRequired=number % 2 == 0)
    )


def _has_selected_node(obj: WatchedObject) -> bool:
    status = obj.status
    return status is not None and bool(status.suitableNodeName)


_WORKLOAD = Workload(GPUInfo, _create, _has_selected_node)
