"""Serves the events of a model with 1,000 hosts and 2,000 VMs that change twice a second."""

from __future__ import annotations

import asyncio
import gc

from aiohttp import web

from kubewright.endpoint import Endpoint
from kubewright.log import Log
from kubewright.metrics import Metrics
from vsphere_operators.topology import model
from vsphere_operators.topology.metrics import TopologyMetrics
from vsphere_operators.topology.store import TopologyStore
from vsphere_operators.topology.streams import EventStreams

_MANAGER = model.Manager(version="0", identity="bench", isLeader=True)


def _change_objects(store: TopologyStore, turn: int) -> None:
    for number in range(1000):
        store.put(
            model.Host(
                id=f"vc/host-{number}",
                name=f"esxi-{number}.rainpole.com",
                datacenter="vc/datacenter-1",
                cluster="vc/domain-c1",
                connection="connected",
                maintenance="",
                cpuMHz=80_000,
                cpuUsageMHz=turn if number % 10 == turn % 10 else 0,
                memoryMB=500_000,
                memoryUsageMB=1000,
                pressure=(),
            )
        )
    for number in range(0, 2000):
        store.put(
            model.VM(
                id=f"vc/vm-{number}",
                name=f"vm-{number}",
                host=f"vc/host-{number // 2}",
                power="poweredOn",
                cpus=4,
                memoryMB=8192,
                cpuUsageMHz=turn if number % 10 == turn % 10 else 0,
                isTemplate=False,
                datastores=("vc/datastore-1",),
            )
        )
    store.publish()


async def _serve() -> None:
    gc.freeze()
    store = TopologyStore("bench", lambda: _MANAGER)
    streams = EventStreams(store, TopologyMetrics(Metrics()), Log("topology"))
    endpoint = Endpoint(
        "a benchmark", "127.0.0.1:0", advice="", max_connections=300, max_in_flight=300
    )

    async def handle(request: web.Request) -> web.StreamResponse:
        return await streams.handle(request, {})

    endpoint.add_get("/events", handle)
    await endpoint.start()
    print(endpoint.port, flush=True)
    turn = 0
    while True:
        turn += 1
        _change_objects(store, turn)
        await asyncio.sleep(0.5)


if __name__ == "__main__":
    asyncio.run(_serve())
