"""Everything that the demo starts, in order, and its end in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from http.client import HTTPException
from pathlib import Path

from kubewright.testing import eventually
from kubewright.testing.binaries import find_binaries
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.http import HttpError, write_kubeconfig
from kubewright.testing.process import Process

from . import fixtures
from .cleanup import DemoFolder
from .log import find_metrics_address
from .snapshot import Snapshot, read_snapshot

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "testenv"))
import simulator  # noqa: E402

BINARIES = ROOT / ".testenv/bin"
DEMO_FOLDERS = ROOT / ".testenv/demo"
SYSTEM_NAMESPACE, SERVICE_ACCOUNT = "vsphere-operators-system", "controller-manager"
TOKEN_SECONDS = 7 * 24 * 3600
STATS_INTERVAL_SECONDS = 3
STOP_TIMEOUT_SECONDS = 10.0
USER, PASSWORD = "demo@vsphere.local", "demo"

PrintLine = Callable[[str], None]


class DemoEnvironment:
    """One demo's processes. Started in the main thread, they end with it, whatever happens to it."""

    def __init__(self, folder: DemoFolder, print_line: PrintLine) -> None:
        self.folder, self.print_line = folder, print_line
        self.control_plane = ControlPlane(
            find_binaries(folders=[BINARIES]), folder=folder.path / "cluster"
        )
        self.vcenter = simulator.SimulatedVCenter(
            BINARIES / "vcsim",
            folder.path / "vcsim",
            *fixtures.vcsim_flags(),
            user=USER,
            password=PASSWORD,
        )
        self.log_file = folder.path / "manager.log"
        self.manager: Process | None = None

    async def start(self) -> None:
        """All of it; each step tells how long it took."""
        await self.run_step(
            "etcd and kube-apiserver, and a simulated vCenter", self.start_servers()
        )
        await self.run_step("CRDs, roles and nodes", self.prepare_cluster())
        await self.run_step("the manager, as its service account", self.start_manager())
        await self.run_step(
            "the samples", asyncio.to_thread(self.control_plane.apply, ROOT / "config/samples")
        )

    async def start_servers(self) -> None:
        """Both sides at once."""
        await asyncio.gather(self.control_plane.start(), self.start_vcenter())

    async def run_step(self, what: str, work: Awaitable[object]) -> None:
        """One step, with the processes written down after it."""
        began = time.monotonic()
        await work
        self.folder.record_processes(self.pids)
        self.print_line(f"{time.monotonic() - began:5.1f} s  {what}")

    @property
    def pids(self) -> list[int]:
        """What runs."""
        processes = [
            self.control_plane.etcd.process,
            self.control_plane.apiserver.process,
            self.vcenter.process,
            self.manager,
        ]
        return [each.pid for each in processes if each is not None and each.is_running]

    async def start_vcenter(self) -> None:
        """The vCenter, with loads that make the answers of GPUInfo certain."""
        await self.vcenter.start()
        for worker in fixtures.ALL_WORKERS:
            await self.vcenter.move_vm(worker.name, worker.host)
            await self.vcenter.set_stats(
                worker.name, overallCpuDemand=worker.cpu_demand_mhz, guestMemoryUsage=512
            )
        await self.vcenter.attach_disk(fixtures.DISK_NAME, fixtures.WORKER.name)

    async def prepare_cluster(self) -> None:
        """What an administrator does once; then what the cluster would have by itself."""
        applied = (
            asyncio.to_thread(
                self.control_plane.kubectl, "apply", "-k", str(ROOT / "config" / part)
            )
            for part in ("crd", "rbac")
        )
        await asyncio.gather(*applied, asyncio.to_thread(self.create_fixtures))
        await asyncio.to_thread(
            self.control_plane.kubectl,
            "wait",
            "--for=condition=Established",
            "crd",
            "--all",
            "--timeout=60s",
        )

    def create_fixtures(self) -> None:
        """Nodes, the volume and the Pod. A node's taint goes, which the node controller would take off when its kubelet is ready."""
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
                https.call(
                    "PATCH", f"/api/v1/nodes/{worker.name}", {"spec": {"taints": None}}, merge
                )

    async def start_manager(self) -> None:
        """The manager with the rights of config/rbac, the vCenter's credentials as a mounted Secret, and nothing of our environment."""
        token = await asyncio.to_thread(
            self.control_plane.create_service_account_token,
            SYSTEM_NAMESPACE,
            SERVICE_ACCOUNT,
            TOKEN_SECONDS,
        )
        config = write_kubeconfig(
            self.folder.path / "manager.kubeconfig",
            self.control_plane.url,
            self.control_plane.ca.certificate,
            SERVICE_ACCOUNT,
            token,
        )
        flags = [
            f"-kubeconfig={config}",
            f"-vcenter-credentials={self.write_credentials()}",
            f"-vcenter-ca-file={self.vcenter.certificate}",
            "-leader-elect",
            f"-leader-election-namespace={SYSTEM_NAMESPACE}",
            "-metrics-addr=127.0.0.1:0",
            f"-stats-interval={STATS_INTERVAL_SECONDS}s",
        ]
        program = [
            shutil.which("env") or "env",
            "-i",
            f"HOME={self.folder.path}",
            sys.executable,
            "-m",
            "vsphere_operators.main",
            *flags,
        ]
        self.manager = Process("manager", program, self.log_file)
        self.manager.start()
        await eventually(self.is_manager_started, within=60, every=0.1)

    def write_credentials(self) -> Path:
        """A folder like a mounted Secret vc-creds."""
        folder = self.folder.path / "vc-creds"
        folder.mkdir(mode=0o700)
        given = {
            "GOVMOMI_URL": self.vcenter.url,
            "GOVMOMI_USERNAME": USER,
            "GOVMOMI_PASSWORD": PASSWORD,
        }
        for key, text in given.items():
            (folder / key).write_text(text)
        return folder

    def is_manager_started(self) -> bool:
        """Whether its workers have started."""
        self.exit_if_manager_ended()
        return self.log_file.exists() and "Starting workers" in self.log_file.read_text()

    def exit_if_manager_ended(self) -> None:
        """End the demo if the manager has ended, with its last words: nothing that is shown would be true any more."""
        if self.manager is None or not self.manager.is_running:
            raise SystemExit(
                f"the manager has ended by itself. The end of its log:\n{self.manager.read_log_tail() if self.manager else ''}"
            )

    def write_env_file(self) -> Path:
        """What another shell reads: the cluster for kubectl, the vCenter for `kubectl vsphere --vcenter`, the metrics for the doctor."""
        given = {
            "KUBECONFIG": self.control_plane.admin_kubeconfig,
            "GOVMOMI_URL": self.vcenter.url,
            "GOVMOMI_USERNAME": USER,
            "GOVMOMI_PASSWORD": PASSWORD,
            "VC_CA_FILE": self.vcenter.certificate,
            "METRICS_ADDR": find_metrics_address(self.log_file),
        }
        lines = [f"export {name}={shlex.quote(str(value))}" for name, value in given.items()]
        file = self.folder.path / "env"
        file.write_text(
            "\n".join(
                [
                    *lines,
                    f"export PATH={shlex.quote(f'{BINARIES}:{Path(sys.executable).parent}')}:$PATH",
                    "",
                ]
            )
        )
        return file

    async def read_snapshot(self) -> Snapshot:
        """What the cluster says now."""
        self.exit_if_manager_ended()
        try:
            return await asyncio.to_thread(read_snapshot, self.control_plane, self.log_file)
        except (OSError, HTTPException) as error:
            raise SystemExit(
                f"the API server of the demo does not answer any more: {error or type(error).__name__}"
            ) from None

    async def stop(self) -> None:
        """End what was started, and nothing else; the folder goes last."""
        if self.manager is not None:
            await self.manager.stop(STOP_TIMEOUT_SECONDS)
        await self.vcenter.stop()
        await self.control_plane.stop()
        self.folder.remove()


async def try_action(deed: Callable[[], Awaitable[object]]) -> None:
    """Do it if it can be done: who uses the demo from another shell may have been first, or removed what it is done to."""
    with contextlib.suppress(HttpError, simulator.ControlError):
        await deed()
