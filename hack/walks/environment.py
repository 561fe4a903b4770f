"""The parent's environment: API server, simulated vCenter and the traced manager."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.operator import SERVICE_ACCOUNT, install_manifests

from . import tracer

_SYSTEM = "vsphere-operators-system"
# From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1
TEMPLATE = "vm-operator-template"
NODES = {f"worker-{n}": f"42030000-0000-4000-8000-00000000000{n}" for n in range(1, 5)}
_VCSIM_FLAGS = (
    "--clusters=1",
    "--hosts=3",
    "--standalone-hosts=3",
    "--vms=0",
    f"--template={TEMPLATE}",
    "--folder=vm-operator",
    "--gpu-vm=worker-3=vgpu",
    "--gpu-vm=worker-4=passthrough",
    *(f"--node={name}={uuid}" for name, uuid in NODES.items()),
)


class Api:
    """The API server, called as administrator."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane, self._client = plane, plane.apiserver.admin_client()

    def call(self, verb: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """One call; a PATCH is a merge patch."""
        content_type = "application/merge-patch+json" if verb == "PATCH" else "application/json"
        return self._client.call(verb, path, body, {"Content-Type": content_type})


class Simulator:
    """vcsim, and its control endpoint."""

    def __init__(self, ready: Mapping[str, str]) -> None:
        self.url, self.certificate = ready["url"], ready["certificate"]
        self.control = ready["control"]

    def call(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """A change where there is a body, else a question."""
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.control + path, data)) as response:
            return json.load(response)

    def empty_hosts(self) -> list[str]:
        """Hosts on which no VM of a VmGroup or of a Node is placed."""
        entities = self.call("/entities")
        kinds = {entity["path"]: entity["type"] for entity in entities}
        standalone = [
            entity["name"]
            for entity in entities
            if entity["type"] == "HostSystem"
            and kinds.get(entity["path"].rpartition("/")[0]) != "ClusterComputeResource"
        ]
        # The template is on the first host, and so are its clones.
        return standalone[1:]


def _end_with_parent() -> None:
    """Let the kernel end this process with its parent: a killed run leaves nothing behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@contextmanager
def _child(
    command: Sequence[str], log: Path, environ: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A child process with its log in a file, ended afterwards."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env=dict(environ), preexec_fn=_end_with_parent
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def control_plane(root: Path) -> Iterator[Api]:
    """An etcd and a kube-apiserver with our CRDs, roles and service account."""
    programs = ("etcd", "kube-apiserver", "kubectl")
    plane = ControlPlane({name: root / ".testenv/bin" / name for name in programs})
    plane.start_sync()
    try:
        install_manifests(plane, root / "config/crd", root / "config/rbac")
        yield Api(plane)
    finally:
        plane.stop_sync()


@contextmanager
def simulator(root: Path, folder: Path) -> Iterator[Simulator]:
    """A vCenter with what all walks need."""
    folder.mkdir()
    log = folder / "vcsim.log"
    command = [str(root / ".testenv/bin/vcsim"), f"--state={folder}", "--user=user", *_VCSIM_FLAGS]
    with _child(command, log, {"VCSIM_PASSWORD": "pass"}) as process:
        ready = wait_for(lambda: _ready_line(log, process), 30, "vcsim is ready")
        yield Simulator(json.loads(ready))


def _ready_line(log: Path, process: subprocess.Popen[bytes]) -> str:
    """The line with the addresses of vcsim, "" before it is there."""
    if process.poll() is not None:
        raise SystemExit(f"vcsim ended:\n{log.read_text()}")
    lines = log.read_text().splitlines(keepends=True)
    complete = (line for line in lines if line.startswith('{"certificate"') and line.endswith("\n"))
    return next(complete, "")


def wait_for(check: Callable[[], Any], within: float, what: str) -> Any:
    """The first true answer of `check`."""
    deadline = time.monotonic() + within
    while not (answer := check()):
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {within:g} s: {what}")
        time.sleep(0.05)
    return answer


def start_manager(
    stack: ExitStack, root: Path, folder: Path, api: Api, vcenter: Simulator
) -> subprocess.Popen[bytes]:
    """The manager as in config/manager: leader election, service account, credential files."""
    credentials = folder / "vc-creds"
    credentials.mkdir()
    values = {"URL": vcenter.url, "USERNAME": "user", "PASSWORD": "pass"}
    for key, value in values.items():
        (credentials / f"GOVMOMI_{key}").write_text(value)
    kubeconfig = folder / "kubeconfig"
    api.plane.write_service_account_kubeconfig(_SYSTEM, SERVICE_ACCOUNT, kubeconfig)
    flags = [
        f"-kubeconfig={kubeconfig}",
        "-metrics-addr=127.0.0.1:0",
        "-health-probe-bind-address=127.0.0.1:0",
        f"-vcenter-credentials={credentials}",
        f"-vcenter-ca-file={vcenter.certificate}",
    ]
    python_path = os.pathsep.join(str((root / package).parent) for package in tracer.OURS)
    environ = {"PYTHONPATH": python_path, "HOME": str(folder)}
    # -P keeps the folder of the script out of sys.path.
    script = [sys.executable, "-P", str(Path(tracer.__file__).resolve())]
    command = [*script, str(root), str(folder / "trace"), *flags]
    return stack.enter_context(_child(command, folder / "manager.log", environ))
