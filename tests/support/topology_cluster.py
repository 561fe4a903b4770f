"""A manager that serves the topology of a fake cluster, and a client of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from kubewright import Manager, Options
from kubewright.authorization import Authorizer
from kubewright.builtin import Node, PersistentVolume
from kubewright.log import Log
from kubewright.testing import eventually
from vsphere_operators.build import connect_gpuinfo, connect_registry
from vsphere_operators.kinds.clusterinfo import ClusterInfoController
from vsphere_operators.kinds.datastoreinfo import DatastoreInfoController
from vsphere_operators.kinds.fcdinfo import FCDInfoController
from vsphere_operators.kinds.gpuinfo.controller import GPUInfoController
from vsphere_operators.kinds.gpuinfo.rules import SelectionRules
from vsphere_operators.kinds.gpuinfo.tracker import NodeTracker
from vsphere_operators.kinds.hostinfo import HostInfoController
from vsphere_operators.kinds.vmgroup import VmGroup
from vsphere_operators.kinds.vminfo import VMInfoController
from vsphere_operators.topology.server import TopologyServer
from vsphere_operators.topology.service import add_topology
from vsphere_operators.vcenters.config import VCenterConfig
from vsphere_operators.vcenters.registry import VCenterRegistry

from .fake_environment import ADDRESS, FAKE_CONNECTION
from .fake_node_cluster import GPU_RESOURCES, FakeNodeCluster


class TopologyClient:
    """Requests to the server of a test."""

    def __init__(self, server: TopologyServer, session: aiohttp.ClientSession) -> None:
        self.server, self.session = server, session

    @property
    def address(self) -> str:
        scheme = "https" if self.server.endpoint.certificate is not None else "http"
        return f"{scheme}://127.0.0.1:{self.server.endpoint.port}"

    def request(
        self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> Any:
        return self.session.request(
            method, self.address + path, headers=headers, ssl=False, allow_redirects=False
        )

    async def status_of(self, path: str, method: str = "GET", **headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.request(path, method, named) as response:
            await response.read()
            return int(response.status)

    async def get(self, path: str) -> Any:
        async with self.request(path) as response:
            assert response.status == 200, await response.text()
            return msgspec.json.decode(await response.read())

    async def find(self, collection: str, item_id: str) -> dict[str, Any] | None:
        items = (await self.get("/topology"))[collection]
        return next((item for item in items if item["id"] == item_id), None)

    async def wait_for(self, collection: str, item_id: str, **fields: object) -> dict[str, Any]:
        """Wait until the object has these values."""

        async def find_object() -> dict[str, Any] | None:
            item = await self.find(collection, item_id)
            is_equal = item is not None and all(
                item.get(name) == value for name, value in fields.items()
            )
            return item if is_equal else None

        item: dict[str, Any] | None = await eventually(find_object)
        assert item is not None
        return item


async def read_event(response: aiohttp.ClientResponse) -> tuple[str, dict[str, Any]]:
    """The next event of a stream: its type and its data."""
    fields = {}
    async with asyncio.timeout(60):
        while line := (await response.content.readline()).decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            fields[name] = value
    return fields.get("event", ""), msgspec.json.decode(fields.get("data", "{}"))


@asynccontextmanager
async def run_topology(
    cluster: FakeNodeCluster,
    bind_address: str = "127.0.0.1:0",
    *,
    ui_folder: Path | None = None,
    authorizer: Authorizer | None = None,
    watch_namespaces: tuple[str, ...] = (),
) -> AsyncIterator[TopologyClient]:
    """Run a manager with the info kinds and the topology until the block ends."""
    options = Options(metrics_bind_address="0", watch_namespaces=watch_namespaces)
    manager = Manager(FAKE_CONNECTION, options, transport=cluster.api)
    if authorizer is not None:
        manager.authorizer = authorizer  # type: ignore[assignment]
    registry = VCenterRegistry(
        {"vc-1": cluster.vcenter}, [VCenterConfig("vc-1", ADDRESS)], manager.cache, 60.0, 0.05
    )
    connect_registry(registry)
    tracker = NodeTracker(
        manager.cache,
        registry.vcenters_by_name,
        cluster.clock,
        cluster.record_warning,
        log=Log("nodes"),
        gpu_resource_globs=GPU_RESOURCES,
    )
    controller = GPUInfoController(
        tracker,
        registry.vcenters_by_name,
        SelectionRules(),
        manager.recorder,
        interval_seconds=60.0,
        change_fraction=0.05,
    )
    connect_gpuinfo(controller, manager.cache)
    # VmGroups are only read here: the tests write their status.
    controller.reads(Node, PersistentVolume, VmGroup)
    manager.add(controller)
    manager.add(FCDInfoController(registry, manager.cache))
    manager.add(HostInfoController(registry))
    manager.add(VMInfoController(registry))
    manager.add(DatastoreInfoController(registry, manager.cache))
    manager.add(ClusterInfoController(registry, tracker))
    server = add_topology(
        manager,
        registry,
        controller,
        SelectionRules(),
        bind_address=bind_address,
        certificate_dir="",
    )
    if ui_folder is not None:
        server._ui_folder = ui_folder
    stop = asyncio.Event()
    task = asyncio.create_task(manager.run(stop))
    try:
        async with aiohttp.ClientSession() as session:
            await eventually(lambda: task.done() or server.endpoint.port)
            if task.done():
                await task
            yield TopologyClient(server, session)
    finally:
        stop.set()
        await task
