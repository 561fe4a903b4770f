"""The place where all contenders compete: one control plane for the whole run, and for each turn N fresh objects in a namespace."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.process_stats import cpu_seconds
from bench.sample import Sample, SampleSpec
from kubewright import Client, ObjectMeta
from kubewright.crd import build_crds
from kubewright.kubeconfig import load_config
from kubewright.testing import eventually
from kubewright.testing.binaries import find_binaries
from kubewright.testing.controlplane import ControlPlane
from kubewright.transport import Request, Transport
from kubewright.yaml_text import to_yaml

BINARIES = Path(__file__).parents[1] / ".testenv" / "bin"
CREATE_CONCURRENCY = 16
DELETE_BATCH_SIZE = 2000
IDLE_CPU_SHARE = 0.15
IDLE_SAMPLE_SECONDS = 0.5
IDLE_TIMEOUT_SECONDS = 20.0
# One collection of the API server's garbage costs it more than a second, a third of a turn: whoever is at work then would pay for everybody
# before. It collects when it is told to, before each turn, and by itself only where a turn needs more memory than this.
MANUAL_GC_ENVIRONMENT = {"GOGC": "off", "GOMEMLIMIT": "3GiB"}


CONTENDER_MANIFESTS = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: contender, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: contender}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: contender, namespace: default}]
"""


class BenchError(Exception):
    """The run cannot go on: what happened, in plain words."""


@dataclass(frozen=True)
class SampleSet:
    """One namespace with N objects that have no status yet, and the revision at which all of them were there."""

    namespace: str
    count: int
    resource_version: str


class BenchCluster:
    """Makes and clears grounds, and looks at them, always through the API server."""

    def __init__(self, control_plane: ControlPlane, transport: Transport) -> None:
        self.control_plane, self.transport = control_plane, transport
        self.client = Client(transport, field_manager="arena")
        self.contender_kubeconfig = control_plane.folder / "contender.kubeconfig"

    async def install(self) -> None:
        """Install the kind and the account of the contenders, and return when the kind is served."""
        await asyncio.to_thread(
            self.control_plane.apply, to_yaml(*build_crds([Sample])), CONTENDER_MANIFESTS
        )
        await asyncio.to_thread(
            self.control_plane.write_service_account_kubeconfig,
            "default",
            "contender",
            self.contender_kubeconfig,
        )
        await eventually(lambda: self.get_resource_version("default"), within=30)

    async def create_samples(self, namespace: str, count: int) -> SampleSet:
        """A fresh namespace with that many fresh objects."""
        await asyncio.to_thread(self.control_plane.create_namespace, namespace)
        numbers = iter(range(1, count + 1))
        async with asyncio.TaskGroup() as group:
            for _ in range(CREATE_CONCURRENCY):
                group.create_task(self.create_remaining(namespace, numbers))
        return SampleSet(namespace, count, await self.get_resource_version(namespace))

    async def create_remaining(self, namespace: str, numbers: Iterator[int]) -> None:
        """Create objects until none is left to create."""
        for number in numbers:
            await self.client.create(
                Sample(
                    metadata=ObjectMeta(namespace=namespace, name=sample_name(number)),
                    spec=SampleSpec(size=number),
                )
            )

    async def get_resource_version(self, namespace: str) -> str:
        """The revision at which the API server is now, as a list tells it."""
        return await anext(
            page.resource_version
            async for page in self.client.list_pages(Sample, namespace, limit=1)
        )

    async def list_resource_versions(self, namespace: str) -> dict[str, str]:
        """The resourceVersion of each object."""
        return {
            item.metadata.name: item.metadata.resourceVersion
            for item in await self.client.list(Sample, namespace)
        }

    async def delete_samples(self, ground: SampleSet) -> None:
        """Delete the objects of a turn, so that the next one finds a store of the same size, and wait for the server to be quiet."""
        path = Sample.definition.path(ground.namespace)
        while await self.list_resource_versions(ground.namespace):
            await self.transport.send(
                Request(
                    "DELETE",
                    path,
                    query=f"limit={DELETE_BATCH_SIZE}",
                    operation="clear the namespace",
                    timeout_seconds=120,
                )
            )
        await self.wait_until_idle()

    async def collect_garbage(self) -> None:
        """Let the API server collect its garbage, so that every turn begins with the same heap, and digest that."""
        await self.transport.send(
            Request(
                "GET",
                "/debug/pprof/heap",
                query="gc=1",
                operation="collect garbage",
                timeout_seconds=60,
            )
        )
        await self.wait_until_idle()

    async def wait_until_idle(self) -> None:
        """Wait until the control plane has digested what was asked of it; its own garbage collection goes on after the last answer."""
        deadline = time.monotonic() + IDLE_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            before, since = self.cpu_seconds(), time.monotonic()
            await asyncio.sleep(IDLE_SAMPLE_SECONDS)
            if self.cpu_seconds() - before < IDLE_CPU_SHARE * (time.monotonic() - since):
                return

    def cpu_seconds(self) -> float:
        """What etcd and the API server have used."""
        return cpu_seconds(self.control_plane.etcd.process.pid) + cpu_seconds(
            self.control_plane.apiserver.process.pid
        )


def sample_name(number: int) -> str:
    """The name of an object by its number, which is also its size."""
    return f"sample-{number:06}"


@asynccontextmanager
async def open_cluster() -> AsyncIterator[BenchCluster]:
    """An arena that lasts as long as the `async with`; nothing of it stays behind."""
    async with ControlPlane(
        find_binaries(folders=[BINARIES]), extra_args=["--profiling"], environ=MANUAL_GC_ENVIRONMENT
    ) as plane:
        connection = load_config(str(plane.admin_kubeconfig), environ=os.environ, home=Path.home())
        transport = Transport(connection, user_agent="bench-arena")
        made = BenchCluster(plane, transport)
        try:
            await made.install()
            yield made
        finally:
            await transport.close()
