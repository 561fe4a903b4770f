"""One control plane for the whole run, and N new objects in a namespace for each turn."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from prometheus_client.parser import text_string_to_metric_families

from bench.process_stats import cpu_seconds
from bench.workload import SAMPLES, Workload
from kubewright import Client, Object, ObjectMeta
from kubewright.crd import build_crds
from kubewright.kubeconfig import load_config
from kubewright.testing import eventually
from kubewright.testing.binaries import find_binaries
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.process import Process
from kubewright.transport import Request, Transport
from kubewright.yaml_text import to_yaml

ROOT = Path(__file__).parents[1]
BINARIES = ROOT / ".testenv" / "bin"
CRDS = ROOT / "config/crd/bases"
CREATE_CONCURRENCY = 16
_DELETE_BATCH_SIZE = 2000
_WRITE_VERBS = {"APPLY", "CREATE", "DELETE", "DELETECOLLECTION", "PATCH", "POST", "PUT", "UPDATE"}
_IDLE_CPU_SHARE = 0.15
_IDLE_SAMPLE_SECONDS = 0.5
IDLE_TIMEOUT_SECONDS = 20.0
# A garbage collection of the API server takes more than a second, a third of a turn. It runs before
# each turn, so that no contender pays for the garbage of another, and automatically only above this
# limit.
MANUAL_GC: Mapping[str, str] = MappingProxyType({"GOGC": "off", "GOMEMLIMIT": "3GiB"})


_CONTENDER_KUBECONFIG = "contender.kubeconfig"
_CONTENDER_MANIFESTS = """
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
    """The run cannot continue."""


@dataclass(frozen=True)
class SampleSet:
    """A namespace with N objects without status, and the resourceVersion after the last create."""

    namespace: str
    count: int
    resource_version: str


class BenchCluster:
    """Creates, reads and deletes samples through the API server."""

    def __init__(
        self,
        control_plane: ControlPlane,
        transport: Transport,
        workload: Workload,
        helpers: Sequence[Process] = (),
    ) -> None:
        """`helpers` are other processes of the benchmark, such as a simulated vCenter."""
        self.control_plane, self.transport, self.workload = control_plane, transport, workload
        self._helpers = helpers
        self.client = Client(transport, field_manager="bench")
        self.contender_kubeconfig = control_plane.folder / _CONTENDER_KUBECONFIG

    def with_workload(self, workload: Workload) -> BenchCluster:
        """The same API server with other objects."""
        return BenchCluster(self.control_plane, self.transport, workload, self._helpers)

    async def install(self) -> None:
        """Installs the kind and the account of the contenders; returns when the kind is served."""
        await install_contender(self.control_plane, to_yaml(*build_crds([self.workload.kind])))
        await eventually(lambda: self.get_resource_version("default"), within=30)

    async def create_samples(self, namespace: str, count: int) -> SampleSet:
        await asyncio.to_thread(self.control_plane.create_namespace, namespace)
        numbers = iter(range(1, count + 1))
        async with asyncio.TaskGroup() as group:
            for _ in range(CREATE_CONCURRENCY):
                group.create_task(self._create_remaining(namespace, numbers))
        return SampleSet(namespace, count, await self.get_resource_version(namespace))

    async def _create_remaining(self, namespace: str, numbers: Iterator[int]) -> None:
        for number in numbers:
            metadata = ObjectMeta(namespace=namespace, name=_sample_name(number))
            await self.client.create(self.workload.create(metadata, number))

    async def get_resource_version(self, namespace: str) -> str:
        """The current resourceVersion of the API server."""
        return await anext(
            page.resource_version
            async for page in self.client.list_pages(self.workload.kind, namespace, limit=1)
        )

    async def list_resource_versions(
        self, namespace: str, kind: type[Object] | None = None
    ) -> dict[str, str]:
        return {
            item.metadata.name: item.metadata.resourceVersion
            for item in await self.client.list(kind or self.workload.kind, namespace)
        }

    async def delete_samples(self, samples: SampleSet) -> None:
        """Deletes the objects of a turn, so that each turn has a store of the same size."""
        for kind in (self.workload.kind, *self.workload.child_kinds):
            await self._delete_all(kind, samples.namespace)
        await self.wait_until_idle()

    async def _delete_all(self, kind: type[Object], namespace: str) -> None:
        path = kind.definition.path(namespace)
        while await self.list_resource_versions(namespace, kind):
            await self.transport.send(
                Request(
                    "DELETE",
                    path,
                    query=f"limit={_DELETE_BATCH_SIZE}",
                    operation="clear the namespace",
                    timeout_seconds=120,
                )
            )

    async def collect_garbage(self) -> None:
        """Collects the garbage of the API server, so that each turn starts with the same heap."""
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
        """Waits until the control plane is idle: its garbage collection outlasts the responses."""
        deadline = time.monotonic() + IDLE_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            before, since = self.cpu_seconds(), time.monotonic()
            await asyncio.sleep(_IDLE_SAMPLE_SECONDS)
            if self.cpu_seconds() - before < _IDLE_CPU_SHARE * (time.monotonic() - since):
                return

    def cpu_seconds(self) -> float:
        """CPU time of etcd and the API server."""
        return cpu_seconds(self.control_plane.etcd.process.pid) + self.apiserver_cpu_seconds()

    def apiserver_cpu_seconds(self) -> float:
        return cpu_seconds(self.control_plane.apiserver.process.pid)

    def helper_cpu_seconds(self) -> float:
        return sum(cpu_seconds(process.pid) for process in self._helpers)


def _sample_name(number: int) -> str:
    # The number is also the size.
    return f"sample-{number:06}"


async def count_write_requests(transport: Transport, kinds: Iterable[type[Object]]) -> int:
    """Write requests for these kinds since the API server started."""
    body = await transport.send(Request("GET", "/metrics", operation="read metrics"))
    resources = {kind.definition.plural for kind in kinds}
    return int(
        sum(
            sample.value
            for family in text_string_to_metric_families(body.decode())
            if family.name == "apiserver_request"
            for sample in family.samples
            if sample.name == "apiserver_request_total"
            and sample.labels.get("verb") in _WRITE_VERBS
            and sample.labels.get("resource") in resources
        )
    )


async def install_contender(plane: ControlPlane, *manifests: Path | str) -> Path:
    """Apply the manifests, create the account of the contenders, and write its kubeconfig."""
    await asyncio.to_thread(plane.apply, *manifests, _CONTENDER_MANIFESTS)
    path = plane.folder / _CONTENDER_KUBECONFIG
    return await asyncio.to_thread(
        plane.write_service_account_kubeconfig, "default", "contender", path
    )


def connect_as_admin(plane: ControlPlane) -> Transport:
    connection = load_config(str(plane.admin_kubeconfig), environ=os.environ, home=Path.home())
    return Transport(connection, user_agent="bench")


def create_control_plane(environ: Mapping[str, str] = MANUAL_GC) -> ControlPlane:
    """`environ` configures the garbage collector of the API server."""
    return ControlPlane(
        find_binaries(folders=[BINARIES]),
        # A thousand Services need as many addresses.
        extra_args=["--profiling", "--service-cluster-ip-range=10.0.0.0/16"],
        environ=environ,
    )


@asynccontextmanager
async def open_cluster(
    workload: Workload = SAMPLES, *, environ: Mapping[str, str] = MANUAL_GC
) -> AsyncIterator[BenchCluster]:
    """`environ` configures the garbage collector of the API server."""
    async with create_control_plane(environ) as plane:
        transport = connect_as_admin(plane)
        cluster = BenchCluster(plane, transport, workload)
        try:
            await cluster.install()
            yield cluster
        finally:
            await transport.close()
