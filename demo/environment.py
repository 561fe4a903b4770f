"""Starts everything that the demo needs, and stops it in reverse order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path

from kubewright.testing.binaries import find_binaries
from kubewright.testing.cluster_access import HttpError, write_kubeconfig
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.go_module import build_module
from vsphere_operators.kubectl.topology_commands import PAGE_VARIABLE

from . import fixtures
from .cleanup import DemoFolder
from .manager import DemoManager
from .snapshot import Snapshot, read_snapshot
from .workloads import create_workloads

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "testenv"))
import simulator  # noqa: E402

_BINARIES = ROOT / ".testenv/bin"
DEMO_FOLDERS = ROOT / ".testenv/demo"
# What the manager may read in addition if it serves the page.
_PAGE_ROLE = ROOT / "config/components/page/role.yaml"
_SYSTEM_NAMESPACE, _SERVICE_ACCOUNT = "vsphere-operators-system", "controller-manager"
_TOKEN_SECONDS = 7 * 24 * 3600
_STATS_INTERVAL_SECONDS = 3
_USER, _PASSWORD = "demo@vsphere.local", "demo"

PrintLine = Callable[[str], None]


def find_demo_binaries() -> dict[str, Path]:
    """The programs that the demo starts; missing ones are built, which takes minutes."""
    (vcsim,) = build_module(ROOT / "testenv/vcsim", _BINARIES)
    return {**find_binaries(folders=[_BINARIES]), "vcsim": vcsim}


class DemoEnvironment:
    """The processes of one demo. Started by the main thread, they end with it in any case."""

    def __init__(
        self, folder: DemoFolder, binaries: Mapping[str, Path], print_line: PrintLine
    ) -> None:
        self._folder, self._print_line = folder, print_line
        self.control_plane = ControlPlane(binaries, folder=folder.path / "cluster")
        self.vcenter = simulator.SimulatedVCenter(
            binaries["vcsim"],
            folder.path / "vcsim",
            *fixtures.vcsim_flags(),
            user=_USER,
            password=_PASSWORD,
        )
        self._manager = DemoManager(
            folder.path,
            self._manager_flags,
            self._record_processes,
            serves_page=_PAGE_ROLE.exists(),
        )
        self._supervision: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Prints a line for each step, with the time it took."""
        await self._run_step(
            "etcd, kube-apiserver and a simulated vCenter",
            asyncio.gather(self.control_plane.start(), self._start_vcenter()),
        )
        await self._run_step("CRDs, roles and nodes", self._prepare_cluster())
        await self._run_step("the manager, as its service account", self._start_manager())
        self._supervision = asyncio.create_task(self._manager.supervise())
        await self._run_step(
            "the samples", asyncio.to_thread(self.control_plane.apply, ROOT / "config/samples")
        )

    async def _run_step(self, name: str, work: Awaitable[object]) -> None:
        began = time.monotonic()
        await work
        self._record_processes()
        self._print_line(f"{time.monotonic() - began:5.1f} s  {name}")

    def _record_processes(self) -> None:
        processes = [
            self.control_plane.etcd.process,
            self.control_plane.apiserver.process,
            self.vcenter.process,
            self._manager.process,
        ]
        self._folder.record_processes(
            process.pid for process in processes if process and process.is_running
        )

    async def _start_vcenter(self) -> None:
        """Sets loads and hosts so that the node of each GPUInfo is certain."""
        await self.vcenter.start()
        for host in fixtures.HOSTS:
            for path, value in fixtures.HOST_HARDWARE.items():
                await self.vcenter.set_property(host, path, value)
        for worker in fixtures.ALL_WORKERS:
            await self.vcenter.move_vm(worker.name, worker.host)
            await self.vcenter.set_stats(
                worker.name, overallCpuDemand=worker.cpu_demand_mhz, guestMemoryUsage=512
            )
        await self.vcenter.attach_disk(fixtures.DISK_NAME, fixtures.WORKER.name)
        await self.vcenter.create_disk(
            fixtures.ORPHANED_DISK_NAME, datastore=fixtures.ORPHANED_DISK_DATASTORE
        )

    async def _prepare_cluster(self) -> None:
        """Installs CRDs and roles, and creates what a real cluster would have."""
        manifests = [("-k", ROOT / "config/crd"), ("-k", ROOT / "config/rbac")]
        if _PAGE_ROLE.exists():
            manifests.append(("-f", _PAGE_ROLE))
        applied = (
            asyncio.to_thread(self.control_plane.kubectl, "apply", option, str(path))
            for option, path in manifests
        )
        await asyncio.gather(*applied, asyncio.to_thread(self._create_fixtures))
        await asyncio.to_thread(self.control_plane.wait_for_crds)

    def _create_fixtures(self) -> None:
        self.control_plane.apply(
            json.dumps({"apiVersion": "v1", "kind": "List", "items": list(fixtures.manifests())})
        )
        merge = {"Content-Type": "application/merge-patch+json"}
        with self.control_plane.apiserver.admin_client() as https:
            for worker in fixtures.ALL_WORKERS:
                https.call(
                    "PATCH",
                    f"/api/v1/nodes/{worker.name}/status",
                    fixtures.ready_status_patch(),
                    merge,
                )
                # The API server taints a new Node as not ready; no node controller runs here to
                # remove the taint.
                https.call(
                    "PATCH", f"/api/v1/nodes/{worker.name}", {"spec": {"taints": None}}, merge
                )
            create_workloads(https)

    async def _start_manager(self) -> None:
        """Starts the manager as in a Pod: service account and mounted Secret."""
        token = await asyncio.to_thread(
            self.control_plane.create_service_account_token,
            _SYSTEM_NAMESPACE,
            _SERVICE_ACCOUNT,
            _TOKEN_SECONDS,
        )
        write_kubeconfig(
            self._manager_kubeconfig,
            self.control_plane.url,
            self.control_plane.ca.certificate,
            _SERVICE_ACCOUNT,
            token,
        )
        self._write_credentials()
        await self._manager.start()

    @property
    def _manager_kubeconfig(self) -> Path:
        return self._folder.path / "manager.kubeconfig"

    @property
    def _credentials_folder(self) -> Path:
        return self._folder.path / "vc-creds"

    def _manager_flags(self) -> list[str]:
        return [
            f"-kubeconfig={self._manager_kubeconfig}",
            f"-vcenter-credentials={self._credentials_folder}",
            f"-vcenter-ca-file={self.vcenter.certificate}",
            "-leader-elect",
            f"-leader-election-namespace={_SYSTEM_NAMESPACE}",
            "-inventory-metrics",
            f"-stats-interval={_STATS_INTERVAL_SECONDS}s",
        ]

    def _write_credentials(self) -> None:
        """Writes a folder like a mounted Secret vc-creds."""
        self._credentials_folder.mkdir(mode=0o700)
        credentials = {
            "GOVMOMI_URL": self.vcenter.url,
            "GOVMOMI_USERNAME": _USER,
            "GOVMOMI_PASSWORD": _PASSWORD,
        }
        for key, text in credentials.items():
            (self._credentials_folder / key).write_text(text)

    def write_env_file(self) -> Path:
        """Writes the variables for another shell: cluster and vCenter."""
        variables: dict[str, Path | str] = {
            "KUBECONFIG": self.control_plane.admin_kubeconfig,
            "GOVMOMI_URL": self.vcenter.url,
            "GOVMOMI_USERNAME": _USER,
            "GOVMOMI_PASSWORD": _PASSWORD,
            "VC_CA_FILE": self.vcenter.certificate,
            # A manager that a user starts there picks a free port: 8080 may be in use.
            "METRICS_ADDR": ":0",
        }
        if self._manager.metrics_url:
            variables["DEMO_METRICS_URL"] = self._manager.metrics_url
        if self._manager.page_url:
            variables[PAGE_VARIABLE] = self._manager.page_url
        lines = [f"export {name}={shlex.quote(str(value))}" for name, value in variables.items()]
        path = shlex.quote(f"{_BINARIES}:{Path(sys.executable).parent}")
        file = self._folder.path / "env"
        file.write_text("\n".join([*lines, f"export PATH={path}:$PATH", ""]))
        return file

    async def read_snapshot(self) -> Snapshot:
        try:
            snapshot = await asyncio.to_thread(read_snapshot, self.control_plane, self._manager.log)
        except (OSError, HTTPException) as error:
            raise SystemExit(
                f"The API server of the demo does not respond: {error or type(error).__name__}"
            ) from None
        return replace(snapshot, manager=self._manager.state)

    async def stop(self) -> None:
        """Stops the processes of this demo and removes its folder."""
        if self._supervision is not None:
            self._supervision.cancel()
            await asyncio.gather(self._supervision, return_exceptions=True)
        await self._manager.stop()
        await self.vcenter.stop()
        await self.control_plane.stop()
        self._folder.remove()


async def try_action(action: Callable[[], Awaitable[object]]) -> None:
    # A user of the demo may have done the same in another shell, removed the object, or stopped the
    # simulator; the next action may succeed.
    with contextlib.suppress(HttpError, simulator.ControlError, OSError):
        await action()
