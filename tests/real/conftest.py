"""A control plane with an audit log, on which the manager is installed as its users install it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kubewright.client import Client
from kubewright.kubeconfig import load_config
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.kubelet import fake_kubelet
from kubewright.transport import Transport
from simulator import SimulatedVCenter
from support.info_client import run_vcenter_manager, write_credentials
from support.manager_process import SERVICE_ACCOUNT, SYSTEM_NAMESPACE, ManagerProcess

from .crash_run import run_simulator
from .gpu_cluster import NODE_UUIDS, GpuCluster


@pytest.fixture(scope="package")
def control_plane(binaries: dict[str, Path]) -> Iterator[ControlPlane]:
    """In place of the plugin's: this one keeps an audit log.

    It ends with the last test of this folder: an idle control plane takes CPU time, too.
    """
    plane = ControlPlane(binaries, audit=True)
    plane.start_sync()
    yield plane
    plane.stop_sync()


@pytest.fixture(scope="session")
def config(pytestconfig: pytest.Config) -> Path:
    """The folder of manifests."""
    return pytestconfig.rootpath / "config"


@pytest.fixture(scope="package")
def installed(control_plane: ControlPlane, config: Path) -> ControlPlane:
    """CRDs and roles exactly as they are generated, in the namespace that they name."""
    control_plane.create_namespace(SYSTEM_NAMESPACE)
    control_plane.kubectl("apply", "-k", str(config / "crd"))
    control_plane.kubectl("apply", "-k", str(config / "rbac"))
    control_plane.wait_for_crds()
    return control_plane


@pytest.fixture
async def kubelet(control_plane: ControlPlane) -> AsyncIterator[None]:
    """Marks the Pods of Deployments as running, so that `helm --wait` returns."""
    kubeconfig = str(control_plane.admin_kubeconfig)
    connection = await asyncio.to_thread(load_config, kubeconfig, environ={}, home=Path("/"))
    transport = Transport(connection)
    async with fake_kubelet(Client(transport)):
        yield
    await transport.close()


@pytest.fixture
def manager_kubeconfig(installed: ControlPlane, tmp_path: Path) -> Path:
    """The kubeconfig of the manager's own service account."""
    return installed.write_service_account_kubeconfig(
        SYSTEM_NAMESPACE, SERVICE_ACCOUNT, tmp_path / "kubeconfig"
    )


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    """Where a manager logs to."""
    return tmp_path / "manager.log"


@pytest.fixture
async def simulator(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    """The vCenter of a test; modules that need other flags have a fixture of the same name."""
    async with run_simulator(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim"
    ) as simulator:
        yield simulator


@pytest.fixture
async def gpu_vcenter(
    pytestconfig: pytest.Config, tmp_path: Path
) -> AsyncIterator[SimulatedVCenter]:
    """A vCenter with the VMs of four Nodes, two of them with a GPU."""
    nodes = [f"--node={name}={uuid}" for name, uuid in NODE_UUIDS.items()]
    flags = (
        "--clusters=1",
        "--hosts=3",
        "--vms=0",
        "--gpu-vm=worker-3=vgpu",
        "--gpu-vm=worker-4=passthrough",
        *nodes,
    )
    vcenter = SimulatedVCenter(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim", *flags
    )
    try:
        await vcenter.start()
        for number, name in enumerate(NODE_UUIDS, 1):
            await vcenter.set_stats(name, overallCpuDemand=number * 1000, guestMemoryUsage=512)
        yield vcenter
    finally:
        await vcenter.stop()


@pytest.fixture
async def cluster(installed: ControlPlane, namespace: str) -> AsyncIterator[GpuCluster]:
    """The four Nodes; one of them has no providerID."""
    cluster = GpuCluster(installed, namespace)
    try:
        for name, uuid in NODE_UUIDS.items():
            await cluster.add_node(name, "" if name == "worker-2" else f"vsphere://{uuid.upper()}")
        yield cluster
    finally:
        await cluster.remove_nodes()


@pytest.fixture
async def gpu_manager(
    gpu_vcenter: SimulatedVCenter,
    log_file: Path,
    manager_kubeconfig: Path,
    tmp_path: Path,
    cluster: GpuCluster,
) -> AsyncIterator[ManagerProcess]:
    """A manager in front of both."""
    credentials = write_credentials(tmp_path / "vc-creds", gpu_vcenter)
    async with run_vcenter_manager(
        log_file, manager_kubeconfig, credentials, gpu_vcenter.certificate, "--stats-interval=2s"
    ) as manager:
        yield manager
