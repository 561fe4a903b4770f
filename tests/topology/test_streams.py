"""Streams of events to many clients, some of which do not read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from kubewright.endpoint import Endpoint
from kubewright.log import Log
from kubewright.metrics import Metrics
from kubewright.testing import eventually
from support.topology_cluster import read_event
from vsphere_operators.topology import model, streams
from vsphere_operators.topology.metrics import TopologyMetrics
from vsphere_operators.topology.store import TopologyStore
from vsphere_operators.topology.streams import EventStreams

MANAGER = model.Manager(version="1", identity="test", isLeader=True)


def make_vm(number: int, name: str = "") -> model.VM:
    return model.VM(
        id=f"vc/vm-{number}",
        name=name or f"vm-{number}",
        host="",
        power="poweredOn",
        isTemplate=False,
        datastores=(),
    )


class StreamServer:
    """The streams of a store that the test changes."""

    def __init__(self, max_removed_ids: int = 1000, **options: Any) -> None:
        self.store = TopologyStore("e", lambda: MANAGER, max_removed_ids=max_removed_ids)
        self.metrics = Metrics()
        self.streams = EventStreams(
            self.store, TopologyMetrics(self.metrics), Log("topology"), **options
        )
        self.endpoint = Endpoint(
            "a test", "127.0.0.1:0", advice="", max_connections=300, max_in_flight=300
        )
        self.endpoint.add_get("/events", self._handle)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        return await self.streams.handle(request, {})

    def put(self, *items: model.Item) -> None:
        for item in items:
            self.store.put(item)
        self.store.publish()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.endpoint.port}/events"

    def read_metric(self, name: str) -> float:
        text = self.metrics.exposition()[0].decode()
        return float(next(line for line in text.splitlines() if line.startswith(name)).split()[-1])


@asynccontextmanager
async def run_streams(**options: Any) -> AsyncIterator[tuple[StreamServer, aiohttp.ClientSession]]:
    server = StreamServer(**options)
    await server.endpoint.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield server, session
    finally:
        await server.streams.close()
        await server.endpoint.stop()


async def test_heartbeats_come_while_nothing_changes() -> None:
    async with (
        run_streams(heartbeat_seconds=0.01) as (server, session),
        session.get(server.address) as response,
    ):
        for _ in range(3):
            event, data = await read_event(response)
            assert event == "heartbeat"
            assert data["revision"] == "e-0"
            assert data["manager"]["isLeader"] is True


async def test_heartbeats_come_although_nothing_is_published_often() -> None:
    async def publish_nothing(server: StreamServer) -> None:
        while True:
            server.store.publish()
            await asyncio.sleep(0.001)

    async with (
        run_streams(heartbeat_seconds=0.05) as (server, session),
        session.get(server.address) as response,
    ):
        publishing = asyncio.create_task(publish_nothing(server))
        event, _ = await asyncio.wait_for(read_event(response), 60)
        publishing.cancel()
        assert event == "heartbeat"


async def test_client_is_reset_if_removals_after_its_revision_are_forgotten() -> None:
    async with (
        run_streams(max_removed_ids=1) as (server, session),
        session.get(server.address) as response,
    ):
        await eventually(lambda: server.read_metric("vsphere_topology_clients") == 1)
        server.put(*map(make_vm, range(3)))
        await read_event(response)
        for number in range(3):
            server.store.remove("vms", f"vc/vm-{number}")
        server.store.publish()
        event, _ = await read_event(response)
        assert event == "reset"


async def test_events_of_one_client_are_coalesced() -> None:
    async with run_streams() as (server, session), session.get(server.address) as response:
        await eventually(lambda: server.read_metric("vsphere_topology_clients") == 1)
        loop = asyncio.get_running_loop()
        # Before the first event, which this process may receive late.
        began = loop.time()
        server.put(make_vm(1, "first"))
        _, data = await read_event(response)
        for number in range(50):
            server.put(make_vm(1, f"name-{number}"), make_vm(2, f"name-{number}"))
        _, data = await read_event(response)
        # The newest state of both, once, and not before a fifth of a second has passed.
        assert [vm["name"] for vm in data["changed"]["vms"]] == ["name-49", "name-49"]
        assert data["revision"] == server.store.revision
        assert loop.time() - began >= 0.15


async def test_large_change_comes_in_parts() -> None:
    async with run_streams() as (server, session):
        server.put(*(make_vm(number, "x" * 1000) for number in range(600)))
        async with session.get(server.address, params={"since": "e-0"}) as response:
            numbers, revisions = list[str](), list[str]()
            while len(numbers) < 600:
                _, data = await read_event(response)
                numbers += [vm["id"] for vm in data["changed"]["vms"]]
                revisions.append(data["revision"])
        assert numbers == [f"vc/vm-{number}" for number in range(600)]
        assert len(revisions) == 3
        # A client that connects again with the revision of a part gets exactly the others.
        async with session.get(server.address, params={"since": revisions[0]}) as response:
            _, data = await read_event(response)
            assert data["revision"] == revisions[1]
            first = data["changed"]["vms"][0]["id"]
        assert int(first.rpartition("-")[2]) == int(revisions[0].rpartition("-")[2])


async def test_one_client_too_many_gets_503() -> None:
    async with run_streams(max_clients=2, heartbeat_seconds=0.1) as (server, session):
        streams = [await session.get(server.address) for _ in range(2)]
        await eventually(lambda: server.read_metric("vsphere_topology_clients") == 2)
        async with session.get(server.address) as response:
            assert response.status == 503
            assert response.headers["Retry-After"] == "30"
            assert "2 clients receive changes already" in await response.text()
        streams[0].close()
        await eventually(lambda: server.read_metric("vsphere_topology_clients") == 1)
        async with session.get(server.address) as response:
            assert response.status == 200
        streams[1].close()


@pytest.mark.parametrize("write_timeout_seconds", [0.5, 600.0])
async def test_slow_client_is_dropped_and_others_do_not_wait(
    write_timeout_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_MIN_INTERVAL_SECONDS", 0.01)
    async with run_streams(write_timeout_seconds=write_timeout_seconds, heartbeat_seconds=0.1) as (
        server,
        session,
    ):
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, ("127.0.0.1", server.endpoint.port))
        await loop.sock_sendall(slow, b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
        async with session.get(server.address) as response:
            await eventually(lambda: server.read_metric("vsphere_topology_clients") == 2)
            # 250 kB each, more than the buffers of the connection after some rounds. A client that
            # waited for the slow one would not get past them before the write timeout.
            for number in range(80):
                server.put(*(make_vm(n, f"{number:0>1000}") for n in range(240)))
                event = ""
                while event != "change":
                    event, data = await read_event(response)
                assert len(data["changed"]["vms"]) == 240
            dropped = "vsphere_topology_dropped_clients_total"
            if write_timeout_seconds < 1:
                await eventually(lambda: server.read_metric(dropped) == 1)
            else:
                assert server.read_metric(dropped) == 0
        slow.close()
        await eventually(lambda: server.read_metric("vsphere_topology_clients") == 0)


async def test_end_of_the_server_ends_the_streams() -> None:
    async with run_streams() as (server, session), session.get(server.address) as response:
        await eventually(lambda: server.read_metric("vsphere_topology_clients") == 1)
        await server.streams.close()
        with pytest.raises(aiohttp.ClientError):
            await response.content.read()
