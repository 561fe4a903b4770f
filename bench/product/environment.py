"""One API server and one simulated vCenter for the whole race.

A contender gets these environment variables: KUBECONFIG; the address and login of the vCenter in
GOVMOMI_URL, GOVMOMI_USERNAME, GOVMOMI_PASSWORD and VC_CA_FILE; and in FACTS the path of a JSON file
with the facts of each host and VM, as the manager stored them.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bench.cluster import (
    BINARIES,
    CRDS,
    BenchCluster,
    SampleSet,
    connect_as_admin,
    create_control_plane,
    install_contender,
)
from bench.gpu_real import bios_uuid
from bench.product.contenders import Contender
from bench.workload import WatchedObject, Workload
from kubewright import Object, ObjectMeta
from kubewright.testing.process import Process
from vsphere_operators.kinds.hostinfo import HostInfo, HostInfoSpec
from vsphere_operators.kinds.vminfo import VMInfo, VMInfoSpec

sys.path.insert(0, str(Path(__file__).parents[2] / "testenv"))
from simulator import SimulatedVCenter

_HOSTS_PER_CLUSTER = 10
TEMPLATE = "vm-operator-template"
NODES = 500
"""How many VMs are Nodes, with `with_nodes`."""


@dataclass(frozen=True)
class Environment:
    hosts: BenchCluster
    """The API server, with HostInfos as its objects."""
    vms: BenchCluster
    """The same API server, with VMInfos as its objects."""
    vcenter: SimulatedVCenter
    host_names: Sequence[str]
    vm_names: Sequence[str]
    folder: Path

    @property
    def facts_file(self) -> Path:
        return self.folder / "facts.json"

    def write_facts(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        """The facts are by kind, and by the name of the host or VM."""
        self.facts_file.write_bytes(msgspec.json.encode(facts))

    def cluster_for(self, kind: type[Object]) -> BenchCluster:
        return self.vms if kind is VMInfo else self.hosts

    def create_process(self, contender: Contender) -> Process:
        log = self.folder / f"{contender.slug}-{time.monotonic_ns()}.log"
        environ = {
            **os.environ,
            "KUBECONFIG": str(self.hosts.contender_kubeconfig),
            "GOVMOMI_URL": self.vcenter.url,
            "GOVMOMI_USERNAME": self.vcenter.user,
            "GOVMOMI_PASSWORD": self.vcenter.password,
            "VC_CA_FILE": str(self.vcenter.certificate),
            "FACTS": str(self.facts_file),
        }
        # Without cached bytecode, each start compiles 190 modules of ours.
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        return Process(contender.name, contender.command, log, environ)


@asynccontextmanager
async def new_objects(
    cluster: BenchCluster, namespace: str, count: int
) -> AsyncIterator[SampleSet]:
    """N objects without status. The API server has collected its garbage; deleted at the end."""
    samples = await cluster.create_samples(namespace, count)
    try:
        await cluster.collect_garbage()
        yield samples
    finally:
        await cluster.delete_samples(samples)


@asynccontextmanager
async def open_environment(
    folder: Path, hosts: int, vms: int, *, with_nodes: bool = False
) -> AsyncIterator[Environment]:
    per_cluster = min(hosts, _HOSTS_PER_CLUSTER)
    clusters = hosts // per_cluster
    vcenter = SimulatedVCenter(
        BINARIES / "vcsim",
        folder / "vcsim",
        f"--clusters={clusters}",
        f"--hosts={per_cluster}",
        f"--vms={vms // clusters}",
        "--standalone-hosts=0",
        "--host-pattern=esxi-%04d.rainpole.com",
        f"--template={TEMPLATE}",
        "--folder=vm-operator",
        *(
            f"--node=node-{number}={bios_uuid(number)}"
            for number in range(NODES if with_nodes else 0)
        ),
    )
    async with create_control_plane() as plane:
        transport = connect_as_admin(plane)
        try:
            await vcenter.start()
            await install_contender(plane, CRDS)
            await asyncio.to_thread(plane.wait_for_crds)
            names = await _read_names(vcenter)
            helpers = (vcenter.process,)
            yield Environment(
                BenchCluster(plane, transport, _host_workload(names["HostSystem"]), helpers),
                BenchCluster(plane, transport, _vm_workload(names["VirtualMachine"]), helpers),
                vcenter,
                names["HostSystem"],
                names["VirtualMachine"],
                folder,
            )
        finally:
            await vcenter.stop()
            await transport.close()


async def _read_names(vcenter: SimulatedVCenter) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for entity in await vcenter.entities():
        # The peers need not support templates.
        if entity["name"] != TEMPLATE:
            names.setdefault(entity["type"], []).append(entity["name"])
    return {kind: sorted(of_kind) for kind, of_kind in names.items()}


def _host_workload(names: Sequence[str]) -> Workload:
    def create(metadata: ObjectMeta, number: int) -> HostInfo:
        hostname = names[(number - 1) % len(names)]
        return HostInfo(metadata=metadata, spec=HostInfoSpec(hostname=hostname))

    return Workload(HostInfo, create, _is_ready)


def _vm_workload(names: Sequence[str]) -> Workload:
    def create(metadata: ObjectMeta, number: int) -> VMInfo:
        nodename = names[(number - 1) % len(names)]
        return VMInfo(metadata=metadata, spec=VMInfoSpec(nodename=nodename))

    return Workload(VMInfo, create, _is_ready)


def _is_ready(obj: WatchedObject) -> bool:
    status = obj.status
    return (
        status is not None
        and status.observedGeneration == obj.metadata.generation
        and any(item.type == "Ready" and item.status == "True" for item in status.conditions)
    )
