"""Starts everything that the demo needs, and stops it in reverse order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from http.client import HTTPException
from pathlib import Path

from kubewright.testing import eventually
from kubewright.testing.binaries import find_binaries
from kubewright.testing.cluster_access import HttpError, write_kubeconfig
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.process import Process

from . import fixtures
from .cleanup import DemoFolder
from .snapshot import Snapshot, read_snapshot

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "testenv"))
import simulator  # noqa: E402

_BINARIES = ROOT / ".testenv/bin"
DEMO_FOLDERS = ROOT / ".testenv/demo"
_SYSTEM_NAMESPACE, _SERVICE_ACCOUNT = "vsphere-operators-system", "controller-manager"
_TOKEN_SECONDS = 7 * 24 * 3600
_STATS_INTERVAL_SECONDS = 3
_STOP_TIMEOUT_SECONDS = 10.0
_USER, _PASSWORD = "demo@vsphere.local", "demo"

PrintLine = Callable[[str], None]


class DemoEnvironment:
    """The processes of one demo. Started by the main thread, they end with it in any case."""

    def __init__(self, folder: DemoFolder, print_line: PrintLine) -> None:
        self._folder, self._print_line = folder, print_line
        self.control_plane = ControlPlane(
            find_binaries(folders=[_BINARIES]), folder=folder.path / "cluster"
        )
        self.vcenter = simulator.SimulatedVCenter(
            _BINARIES / "vcsim",
            folder.path / "vcsim",
            *fixtures.vcsim_flags(),
            user=_USER,
            password=_PASSWORD,
        )
        self._log_file = folder.path / "manager.log"
        self._manager: Process | None = None

    async def start(self) -> None:
        """Prints a line for each step, with the time it took."""
        await self._run_step(
            "etcd, kube-apiserver and a simulated vCenter",
            asyncio.gather(self.control_plane.start(), self._start_vcenter()),
        )
        await self._run_step("CRDs, roles and nodes", self._prepare_cluster())
        await self._run_step("the manager, as its service account", self._start_manager())
        await self._run_step(
            "the samples", asyncio.to_thread(self.control_plane.apply, ROOT / "config/samples")
        )

    async def _run_step(self, name: str, work: Awaitable[object]) -> None:
        began = time.monotonic()
        await work
        self._folder.record_processes(self._running_pids())
        self._print_line(f"{time.monotonic() - began:5.1f} s  {name}")

    def _running_pids(self) -> list[int]:
        processes = [
            self.control_plane.etcd.process,
            self.control_plane.apiserver.process,
            self.vcenter.process,
            self._manager,
        ]
        return [process.pid for process in processes if process and process.is_running]

    async def _start_vcenter(self) -> None:
        """Sets loads and hosts so that the node of each GPUInfo is certain."""
        await self.vcenter.start()
        for worker in fixtures.ALL_WORKERS:
            await self.vcenter.move_vm(worker.name, worker.host)
            await self.vcenter.set_stats(
                worker.name, overallCpuDemand=worker.cpu_demand_mhz, guestMemoryUsage=512
            )
        await self.vcenter.attach_disk(fixtures.DISK_NAME, fixtures.WORKER.name)

    async def _prepare_cluster(self) -> None:
        """Installs CRDs and roles, and creates what a real cluster would have."""
        applied = (
            asyncio.to_thread(
                self.control_plane.kubectl, "apply", "-k", str(ROOT / "config" / part)
            )
            for part in ("crd", "rbac")
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

    async def _start_manager(self) -> None:
        """Starts the manager as in a Pod: service account, mounted Secret, clean environment."""
        token = await asyncio.to_thread(
            self.control_plane.create_service_account_token,
            _SYSTEM_NAMESPACE,
            _SERVICE_ACCOUNT,
            _TOKEN_SECONDS,
        )
        config = write_kubeconfig(
            self._folder.path / "manager.kubeconfig",
            self.control_plane.url,
            self.control_plane.ca.certificate,
            _SERVICE_ACCOUNT,
            token,
        )
        flags = [
            f"-kubeconfig={config}",
            f"-vcenter-credentials={self._write_credentials()}",
            f"-vcenter-ca-file={self.vcenter.certificate}",
            "-leader-elect",
            f"-leader-election-namespace={_SYSTEM_NAMESPACE}",
            "-metrics-addr=127.0.0.1:0",
            f"-stats-interval={_STATS_INTERVAL_SECONDS}s",
        ]
        program = [
            shutil.which("env") or "env",
            "-i",
            f"HOME={self._folder.path}",
            # Of the environment of the demo, the manager gets only PYTHONPATH.
            f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}",
            sys.executable,
            "-m",
            "vsphere_operators.main",
            *flags,
        ]
        self._manager = Process("manager", program, self._log_file)
        self._manager.start()
        await eventually(self._is_manager_started, within=60, every=0.1)

    def _write_credentials(self) -> Path:
        """Writes a folder like a mounted Secret vc-creds."""
        folder = self._folder.path / "vc-creds"
        folder.mkdir(mode=0o700)
        credentials = {
            "GOVMOMI_URL": self.vcenter.url,
            "GOVMOMI_USERNAME": _USER,
            "GOVMOMI_PASSWORD": _PASSWORD,
        }
        for key, text in credentials.items():
            (folder / key).write_text(text)
        return folder

    def _is_manager_started(self) -> bool:
        self._exit_if_manager_ended()
        return self._log_file.exists() and "Starting workers" in self._log_file.read_text()

    def _exit_if_manager_ended(self) -> None:
        """Ends the demo: without a manager it would show old data."""
        if self._manager is None or not self._manager.is_running:
            tail = self._manager.read_log_tail() if self._manager else ""
            raise SystemExit(f"The manager exited unexpectedly. The end of its log:\n{tail}")

    def write_env_file(self) -> Path:
        """Writes the variables for another shell: cluster and vCenter."""
        variables = {
            "KUBECONFIG": self.control_plane.admin_kubeconfig,
            "GOVMOMI_URL": self.vcenter.url,
            "GOVMOMI_USERNAME": _USER,
            "GOVMOMI_PASSWORD": _PASSWORD,
            "VC_CA_FILE": self.vcenter.certificate,
            # A manager that a user starts there picks a free port: 8080 may be in use.
            "METRICS_ADDR": ":0",
        }
        lines = [f"export {name}={shlex.quote(str(value))}" for name, value in variables.items()]
        path = shlex.quote(f"{_BINARIES}:{Path(sys.executable).parent}")
        file = self._folder.path / "env"
        file.write_text("\n".join([*lines, f"export PATH={path}:$PATH", ""]))
        return file

    async def read_snapshot(self) -> Snapshot:
        self._exit_if_manager_ended()
        try:
            return await asyncio.to_thread(read_snapshot, self.control_plane, self._log_file)
        except (OSError, HTTPException) as error:
            raise SystemExit(
                f"The API server of the demo does not respond: {error or type(error).__name__}"
            ) from None

    async def stop(self) -> None:
        """Stops the processes of this demo and removes its folder."""
        if self._manager is not None:
            await self._manager.stop(_STOP_TIMEOUT_SECONDS)
        await self.vcenter.stop()
        await self.control_plane.stop()
        self._folder.remove()


async def try_action(action: Callable[[], Awaitable[object]]) -> None:
    # A user of the demo may have done the same in another shell, or removed the object.
    with contextlib.suppress(HttpError, simulator.ControlError):
        await action()
