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
from kubewright.testing.binaries import find
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.http import Refused, write_kubeconfig
from kubewright.testing.process import Process

from . import scene
from .leftovers import Folder
from .log import metrics_address
from .snapshot import Snapshot, read

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "testenv"))
import simulator  # noqa: E402

BINARIES = ROOT / ".testenv/bin"
FOLDERS = ROOT / ".testenv/demo"
SYSTEM, SERVICE_ACCOUNT = "vsphere-operators-system", "controller-manager"
TOKEN_SECONDS = 7 * 24 * 3600
STATS_INTERVAL_SECONDS = 3
GRACE_SECONDS = 10.0
USER, PASSWORD = "demo@vsphere.local", "demo"

Say = Callable[[str], None]


class Stage:
    """One demo's processes. Started in the main thread, they end with it, whatever happens to it."""

    def __init__(self, folder: Folder, say: Say) -> None:
        self.folder, self.say = folder, say
        self.plane = ControlPlane(find(folders=[BINARIES]), folder=folder.path / "cluster")
        self.vcenter = simulator.VCenter(BINARIES / "vcsim", folder.path / "vcsim", *scene.vcenter_flags(), user=USER, password=PASSWORD)
        self.log = folder.path / "manager.log"
        self.manager: Process | None = None

    async def start(self) -> None:
        """All of it; each step tells how long it took."""
        await self.step("etcd and kube-apiserver, and a simulated vCenter", self.build())
        await self.step("CRDs, roles and nodes", self.furnish())
        await self.step("the manager, as its service account", self.start_manager())
        await self.step("the samples", asyncio.to_thread(self.plane.apply, ROOT / "config/samples"))

    async def build(self) -> None:
        """Both sides at once."""
        await asyncio.gather(self.plane.start(), self.start_vcenter())

    async def step(self, what: str, work: Awaitable[object]) -> None:
        """One step, with the processes written down after it."""
        began = time.monotonic()
        await work
        self.folder.note(self.pids)
        self.say(f"{time.monotonic() - began:5.1f} s  {what}")

    @property
    def pids(self) -> list[int]:
        """What runs."""
        processes = [self.plane.etcd.process, self.plane.apiserver.process, self.vcenter.process, self.manager]
        return [each.pid for each in processes if each is not None and each.running]

    async def start_vcenter(self) -> None:
        """The vCenter, with loads that make the answers of GPUInfo certain."""
        await self.vcenter.start()
        for worker in scene.CAST:
            await self.vcenter.move(worker.name, worker.host)
            await self.vcenter.stats(worker.name, overallCpuDemand=worker.demand_mhz, guestMemoryUsage=512)
        await self.vcenter.attach_disk(scene.DISK, scene.WORKER.name)

    async def furnish(self) -> None:
        """What an administrator does once; then what the cluster would have by itself."""
        applied = (asyncio.to_thread(self.plane.kubectl, "apply", "-k", str(ROOT / "config" / part)) for part in ("crd", "rbac"))
        await asyncio.gather(*applied, asyncio.to_thread(self.populate))
        await asyncio.to_thread(self.plane.kubectl, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")

    def populate(self) -> None:
        """Nodes, the volume and the Pod. A node's taint goes, which the node controller would take off when its kubelet is ready."""
        self.plane.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(scene.manifests())}))
        merge = {"Content-Type": "application/merge-patch+json"}
        with self.plane.apiserver.https() as https:
            for worker in scene.CAST:
                https.call("PATCH", f"/api/v1/nodes/{worker.name}/status", scene.ready(), merge)
                https.call("PATCH", f"/api/v1/nodes/{worker.name}", {"spec": {"taints": None}}, merge)

    async def start_manager(self) -> None:
        """The manager with the rights of config/rbac, the vCenter's credentials as a mounted Secret, and nothing of our environment."""
        token = await asyncio.to_thread(self.plane.service_account_token, SYSTEM, SERVICE_ACCOUNT, TOKEN_SECONDS)
        config = write_kubeconfig(
            self.folder.path / "manager.kubeconfig", self.plane.url, self.plane.authority.certificate, SERVICE_ACCOUNT, token
        )
        flags = [
            f"-kubeconfig={config}",
            f"-vcenter-credentials={self.credentials()}",
            f"-vcenter-ca-file={self.vcenter.certificate}",
            "-leader-elect",
            f"-leader-election-namespace={SYSTEM}",
            "-metrics-addr=127.0.0.1:0",
            f"-stats-interval={STATS_INTERVAL_SECONDS}s",
        ]
        program = [shutil.which("env") or "env", "-i", f"HOME={self.folder.path}", sys.executable, "-m", "vsphere_operators.main", *flags]
        self.manager = Process("manager", program, self.log)
        self.manager.start()
        await eventually(self.manager_works, within=60, every=0.1)

    def credentials(self) -> Path:
        """A folder like a mounted Secret vc-creds."""
        folder = self.folder.path / "vc-creds"
        folder.mkdir(mode=0o700)
        given = {"GOVMOMI_URL": self.vcenter.url, "GOVMOMI_USERNAME": USER, "GOVMOMI_PASSWORD": PASSWORD}
        for key, text in given.items():
            (folder / key).write_text(text)
        return folder

    def manager_works(self) -> bool:
        """Whether its workers have started."""
        self.refuse_without_manager()
        return self.log.exists() and "Starting workers" in self.log.read_text()

    def refuse_without_manager(self) -> None:
        """End the demo if the manager has ended, with its last words: nothing that is shown would be true any more."""
        if self.manager is None or not self.manager.running:
            raise SystemExit(f"the manager has ended by itself. The end of its log:\n{self.manager.tail() if self.manager else ''}")

    def shell(self) -> Path:
        """What another shell reads: the cluster for kubectl, the vCenter for `kubectl vsphere --vcenter`, the metrics for the doctor."""
        given = {
            "KUBECONFIG": self.plane.admin_kubeconfig,
            "GOVMOMI_URL": self.vcenter.url,
            "GOVMOMI_USERNAME": USER,
            "GOVMOMI_PASSWORD": PASSWORD,
            "VC_CA_FILE": self.vcenter.certificate,
            "METRICS_ADDR": metrics_address(self.log),
        }
        lines = [f"export {name}={shlex.quote(str(value))}" for name, value in given.items()]
        file = self.folder.path / "env"
        file.write_text("\n".join([*lines, f"export PATH={shlex.quote(f'{BINARIES}:{Path(sys.executable).parent}')}:$PATH", ""]))
        return file

    async def look(self) -> Snapshot:
        """What the cluster says now."""
        self.refuse_without_manager()
        try:
            return await asyncio.to_thread(read, self.plane, self.log)
        except (OSError, HTTPException) as error:
            raise SystemExit(f"the API server of the demo does not answer any more: {error or type(error).__name__}") from None

    async def stop(self) -> None:
        """End what was started, and nothing else; the folder goes last."""
        if self.manager is not None:
            await self.manager.stop(GRACE_SECONDS)
        await self.vcenter.stop()
        await self.plane.stop()
        self.folder.remove()


async def attempt(deed: Callable[[], Awaitable[object]]) -> None:
    """Do it if it can be done: who uses the demo from another shell may have been first, or removed what it is done to."""
    with contextlib.suppress(Refused, simulator.Refused):
        await deed()
