"""The custom resources of the benchmark, and a control plane that keeps them between runs.

Creating 100,000 objects and their first statuses takes minutes. So the data of etcd is copied once
all objects exist (`created`), and once all statuses are written (`settled`). Later runs start from
a copy.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.cluster import BINARIES, CRDS, connect_as_admin, install_contender
from kubewright import Client, ObjectMeta
from kubewright.errors import TooManyRequests
from kubewright.testing import eventually
from kubewright.testing.binaries import find_binaries
from kubewright.testing.controlplane import ControlPlane
from kubewright.transport import Transport
from vsphere_operators.kinds.clusterinfo import ClusterInfo, ClusterInfoSpec
from vsphere_operators.kinds.datastoreinfo import DatastoreInfo, DatastoreInfoSpec
from vsphere_operators.kinds.fcdinfo import FCDInfo, FCDInfoSpec
from vsphere_operators.kinds.hostinfo import HostInfo, HostInfoSpec
from vsphere_operators.kinds.vminfo import VMInfo, VMInfoSpec

NAMESPACES = 50
_CONNECTIONS = 48
_PROGRESS_SECONDS = 10.0
_STOP_SECONDS = 30.0
KINDS = (VMInfo, HostInfo, FCDInfo, DatastoreInfo, ClusterInfo)


@dataclass(frozen=True)
class Names:
    """The names in vCenter that the objects refer to."""

    hosts: Sequence[str]
    vms: Sequence[str]
    datastores: Sequence[str]
    clusters: Sequence[str]
    disks: Sequence[str]

    @classmethod
    def of(cls, entities: Sequence[dict[str, str]], disks: Sequence[str]) -> Names:
        def of_type(type_name: str) -> list[str]:
            return [entity["name"] for entity in entities if entity["type"] == type_name]

        return cls(
            of_type("HostSystem"),
            of_type("VirtualMachine"),
            of_type("Datastore"),
            of_type("ClusterComputeResource"),
            disks,
        )


def namespace_of(number: int) -> str:
    return f"team-{number % NAMESPACES:02}"


def build_objects(names: Names, count: int) -> Iterator[Any]:
    """2 objects for each host, 1 for each datastore, cluster and disk, and VMInfos up to the count.

    With 2,500 hosts and 45,000 VMs, 100,000 objects contain 93,550 VMInfos, about two for each VM.
    """
    total = 0

    def metadata(prefix: str) -> ObjectMeta:
        nonlocal total
        total += 1
        return ObjectMeta(namespace=namespace_of(total), name=f"{prefix}-{total:06}")

    for name in (*names.hosts, *names.hosts):
        yield HostInfo(metadata=metadata("host"), spec=HostInfoSpec(hostname=name))
    for name in names.datastores:
        yield DatastoreInfo(metadata=metadata("store"), spec=DatastoreInfoSpec(datastore=name))
    for name in names.clusters:
        yield ClusterInfo(metadata=metadata("cluster"), spec=ClusterInfoSpec(cluster=name))
    for name in names.disks:
        yield FCDInfo(metadata=metadata("disk"), spec=FCDInfoSpec(pvId=name))
    for number in range(count - total):
        name = names.vms[number % len(names.vms)]
        yield VMInfo(metadata=metadata("vm"), spec=VMInfoSpec(nodename=name))


async def create_objects(client: Client, objects: Iterator[Any], count: int) -> None:
    created, began = 0, time.monotonic()

    async def work() -> None:
        nonlocal created
        for obj in objects:
            await client.create(obj)
            created += 1

    async def report() -> None:
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            rate = created / (time.monotonic() - began)
            print(f"    {created} of {count} objects created, {rate:.0f}/s", flush=True)

    reporting = asyncio.create_task(report())
    try:
        await asyncio.gather(*(work() for _ in range(_CONNECTIONS)))
    finally:
        reporting.cancel()


@dataclass(frozen=True)
class Cluster:
    plane: ControlPlane
    transport: Transport
    client: Client
    kubeconfig: Path
    etcd_data: Path

    async def fill_watch_caches(self) -> None:
        """Let the API server read all objects from etcd, which it does at the first request for a
        kind. A manager usually starts when the API server has done that long ago.
        """
        for kind in KINDS:
            await eventually(partial(self._receive_event, kind), within=300)

    async def _receive_event(self, kind: type[Any]) -> bool:
        try:
            async for _ in self.client.watch(kind, "", send_initial_events=True):
                return True
        except TooManyRequests:
            # The message is "storage is (re)initializing": the cache is being filled.
            pass
        return False

    async def save(self, target: Path) -> None:
        """Stop the cluster and copy the data of etcd. The cluster cannot be used afterwards."""
        await self.transport.close()
        await self.plane.apiserver.terminate()
        await self.plane.etcd.process.stop(_STOP_SECONDS)
        await asyncio.to_thread(_copy_folder, self.etcd_data, target)


def _copy_folder(source: Path, target: Path) -> None:
    incomplete = target.with_suffix(".partial")
    shutil.rmtree(incomplete, ignore_errors=True)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, incomplete)
    incomplete.rename(target)


@asynccontextmanager
async def open_cluster(folder: Path, data: Path | None = None) -> AsyncIterator[Cluster]:
    """A control plane with the data of an earlier one, or an empty one. Its CA and its key of
    service account tokens are new.
    """
    if data is not None:
        await asyncio.to_thread(_copy_folder, data, folder / "etcd")
    plane = ControlPlane(
        find_binaries(folders=[BINARIES]),
        folder=folder,
        extra_args=["--profiling"],
    )
    async with plane:
        transport = connect_as_admin(plane)
        try:
            kubeconfig = await install_contender(plane, CRDS)
            client = Client(transport, field_manager="bench")
            yield Cluster(plane, transport, client, kubeconfig, folder / "etcd")
        finally:
            await transport.close()
