"""The parent's environment: API server, simulated vCenter and the traced manager."""

from __future__ import annotations

import asyncio
import base64
import ctypes
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from . import tracer

_SYSTEM, _ACCOUNT = "vsphere-operators-system", "controller-manager"
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

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.url: str = cluster["server"]
        self.authority: str = cluster["certificate-authority-data"]
        pair = folder / "admin.pem"
        keys = ("client-certificate-data", "client-key-data")
        pair.write_bytes(b"\n".join(base64.b64decode(user[key]) for key in keys))
        self._tls = ssl.create_default_context(cadata=base64.b64decode(self.authority).decode())
        self._tls.load_cert_chain(pair)

    def call(self, verb: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """One call; a PATCH is a merge patch."""
        kind = "application/merge-patch+json" if verb == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": kind}, method=verb)
        try:
            with urllib.request.urlopen(request, timeout=30, context=self._tls) as response:
                return json.load(response)
        except HTTPError as error:
            raise SystemExit(f"{verb} {path}: {error.code} {error.read().decode()}") from None

    def write_kubeconfig(self, path: Path, namespace: str, account: str) -> Path:
        """A kubeconfig with a token of this service account."""
        token_path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer = self.call("POST", token_path, {"spec": {"expirationSeconds": 3600}})
        cluster = {"server": self.url, "certificate-authority-data": self.authority}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": answer["status"]["token"]}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(config))
        return path


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
def control_plane(root: Path, folder: Path) -> Iterator[Api]:
    """An etcd and a kube-apiserver with our CRDs, roles and service account."""
    from kubewright.testing.controlplane import ControlPlane

    programs = ("etcd", "kube-apiserver", "kubectl")
    binaries = {name: root / ".testenv/bin" / name for name in programs}
    with asyncio.Runner() as runner:
        plane = ControlPlane(binaries)
        runner.run(plane.__aenter__())
        try:
            kubeconfig = plane.write_kubeconfig(folder / "admin.kubeconfig")
            api = Api(kubeconfig, folder)
            kubectl = [str(binaries["kubectl"]), f"--kubeconfig={kubeconfig}"]
            cache = f"--cache-dir={folder / 'kubectl'}"
            for part in ("crd", "rbac"):
                apply = [*kubectl, cache, "apply", "-k", str(root / "config" / part)]
                subprocess.run(apply, check=True, stdout=subprocess.DEVNULL)
            wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"]
            subprocess.run([*kubectl, cache, *wait], check=True, stdout=subprocess.DEVNULL)
            yield api
        finally:
            runner.run(plane.__aexit__(None, None, None))


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
    flags = [
        f"-kubeconfig={api.write_kubeconfig(folder / 'kubeconfig', _SYSTEM, _ACCOUNT)}",
        "-metrics-addr=127.0.0.1:0",
        "-health-probe-bind-address=127.0.0.1:0",
        f"-vcenter-credentials={credentials}",
        f"-vcenter-ca-file={vcenter.certificate}",
    ]
    python_path = os.pathsep.join(str(root / part.rstrip("/")) for part in source_folders())
    environ = {"PYTHONPATH": python_path, "HOME": str(folder)}
    # -P keeps the folder of the script out of sys.path.
    script = [sys.executable, "-P", str(Path(tracer.__file__).resolve())]
    command = [*script, str(root), str(folder / "trace"), *flags]
    return stack.enter_context(_child(command, folder / "manager.log", environ))


def source_folders() -> list[str]:
    """The folders that PYTHONPATH needs: those in which our packages are."""
    return [str(Path(package).parent) for package in tracer.OURS]
