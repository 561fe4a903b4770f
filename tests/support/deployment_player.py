"""Runs the manager of a Deployment as a process, with what its Pod would have.

There is no container runtime on a control plane without nodes. Flags, variables, Secrets and
ConfigMaps are those of the Deployment in the API server. Different from a Pod are the ports, the
files, which are in a folder, and the addresses of vCenters. The manager gets a new process when the
Pod template changes, and the Pods are ready while the process is.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

from kubewright.client import Client
from kubewright.kubeconfig import load_config
from kubewright.testing.cluster_access import HttpError
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.kubelet import RUNNING, FakeKubelet, PodState, fake_kubelet, waiting
from kubewright.transport import Transport
from simulator import SimulatedVCenter

from .manager_process import SERVICE_ACCOUNT, SYSTEM_NAMESPACE, ManagerProcess, fetch_url

DEPLOYMENT = "vsphere-operators-controller-manager"
_DEPLOYMENT_PATH = f"/apis/apps/v1/namespaces/{SYSTEM_NAMESPACE}/deployments/{DEPLOYMENT}"
_POLL_SECONDS = 0.3
# Between probes of a manager that is ready.
_PROBE_SECONDS = 2.0
_STOP_SECONDS = 20
Json = dict[str, Any]


class DeploymentPlayer:
    """One process for the Deployment, whatever its number of replicas."""

    def __init__(self, plane: ControlPlane, vcenter: SimulatedVCenter, folder: Path) -> None:
        self._plane, self._vcenter, self._folder = plane, vcenter, folder
        self._template: Json = {}
        self._is_ready = False
        self._probed_at = 0.0
        # One connection for all calls: a TLS handshake costs more CPU time than the call.
        self._https = plane.apiserver.admin_client()
        self._metrics_port, self._health_port = (_find_free_port() for _ in range(2))
        self.manager: ManagerProcess | None = None
        folder.mkdir()

    async def run(self, kubelet: FakeKubelet) -> None:
        """Follow the Deployment until cancelled."""
        try:
            while True:
                template = await asyncio.to_thread(self._read_template)
                if template != self._template:
                    await self._report(kubelet, ready=False)
                    await self._restart(template)
                elif (ready := await self._check_ready()) != self._is_ready:
                    await self._report(kubelet, ready=ready)
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            await self._stop()
            self._https.connection.close()

    async def _report(self, kubelet: FakeKubelet, *, ready: bool) -> None:
        self._is_ready = ready
        await kubelet.update(lambda pod: self.pod_state())

    def pod_state(self) -> PodState:
        return RUNNING if self._is_ready else waiting("ContainerCreating")

    async def _restart(self, template: Json) -> None:
        await self._stop()
        if template:
            flags = await asyncio.to_thread(self._prepare, template["spec"])
            self.manager = ManagerProcess(
                self._folder / "manager.log", *flags, environ={"POD_NAMESPACE": SYSTEM_NAMESPACE}
            )
            self.manager.start()
        self._template = template

    async def _stop(self) -> None:
        if self.manager is not None:
            await self.manager.stop(_STOP_SECONDS)
        self.manager = None

    async def _check_ready(self) -> bool:
        if self.manager is None or not self.manager.is_running:
            return False
        if self._is_ready and time.monotonic() - self._probed_at < _PROBE_SECONDS:
            return True
        self._probed_at = time.monotonic()
        try:
            url = f"http://127.0.0.1:{self._health_port}/readyz"
            return await asyncio.to_thread(fetch_url, url) == (200, "ok")
        except (URLError, OSError):
            return False

    def _read_template(self) -> Json:
        """The Pod template; {} without a Deployment."""
        return dict(self._get(_DEPLOYMENT_PATH).get("spec", {}).get("template", {}))

    def _get(self, path: str) -> Json:
        try:
            return dict(self._https.call("GET", path))
        except HttpError as error:
            if error.status == 404:
                return {}
            raise

    def _prepare(self, spec: Json) -> list[str]:
        """Mount the volumes, and return the flags of the container for this machine."""
        (container,) = spec["containers"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for mount in container["volumeMounts"]:
            self._mount(volumes[mount["name"]], self._folder / mount["mountPath"].lstrip("/"))
        kubeconfig = self._plane.write_service_account_kubeconfig(
            SYSTEM_NAMESPACE, SERVICE_ACCOUNT, self._folder / "kubeconfig"
        )
        flags = [self._translate(flag) for flag in container["args"]]
        if not any(flag.startswith("-vcenter-ca-file") for flag in flags):
            flags.append(f"-vcenter-ca-file={self._vcenter.certificate}")
        return [*flags, f"-kubeconfig={kubeconfig}", "-webhook-port=0"]

    def _translate(self, flag: str) -> str:
        for pod_port, port in ((":8443", self._metrics_port), (":8081", self._health_port)):
            if flag.endswith(f"-bind-address={pod_port}"):
                return flag.replace(pod_port, f"127.0.0.1:{port}")
        return flag.replace("=/etc/", f"={self._folder}/etc/")

    def write_pod_command(self, file: Path) -> None:
        """A script for `kubectl exec ... -- /manager`: the manager, with the files of the Pod."""
        program = f"{sys.executable} -m vsphere_operators.main"
        environ = f"HOME={self._folder} PYTHONPATH={os.environ.get('PYTHONPATH', '')}"
        file.write_text(
            "#!/bin/sh\n"
            "for flag; do\n"
            "  shift\n"
            '  set -- "$@" "$(echo "$flag" | sed'
            f" -e 's#=:8443$#=127.0.0.1:{self._metrics_port}#'"
            f" -e 's#=:8081$#=127.0.0.1:{self._health_port}#'"
            f" -e 's#=/etc/#={self._folder}/etc/#')\"\n"
            "done\n"
            f'exec env -i {environ} POD_NAMESPACE={SYSTEM_NAMESPACE} {program} "$@"'
            f" -kubeconfig={self._folder}/kubeconfig"
            f" -vcenter-ca-file={self._vcenter.certificate}\n"
        )
        file.chmod(0o755)

    def _mount(self, volume: Json, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for path, content in self._list_files(volume):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        if (folder / "GOVMOMI_URL").exists():
            # The page's names of a vCenter and of its user stand for those of the simulator.
            (folder / "GOVMOMI_URL").write_text(self._vcenter.url)
            (folder / "GOVMOMI_USERNAME").write_text(self._vcenter.user)
            (folder / "GOVMOMI_PASSWORD").write_text(self._vcenter.password)

    def _list_files(self, volume: Json) -> Iterator[tuple[str, bytes]]:
        if "projected" in volume:
            for source in volume["projected"]["sources"]:
                yield from self._list_files(source)
        elif "secret" in volume:
            source = volume["secret"]
            name = source.get("secretName") or source["name"]
            data = self._get(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/{name}").get("data")
            files = {key: base64.b64decode(value) for key, value in (data or {}).items()}
            yield from _select_items(source, files)
        elif "configMap" in volume:
            source = volume["configMap"]
            path = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{source['name']}"
            data = self._get(path).get("data") or {}
            yield from _select_items(source, {key: text.encode() for key, text in data.items()})


def _select_items(source: Json, files: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    items = source.get("items") or [{"key": key, "path": key} for key in files]
    for item in items:
        if item["key"] in files:
            yield item["path"], files[item["key"]]


def _find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@asynccontextmanager
async def play_deployment(
    plane: ControlPlane, vcenter: SimulatedVCenter, folder: Path
) -> AsyncIterator[DeploymentPlayer]:
    """Run the manager whenever the Deployment exists, on one Node."""
    connection = await asyncio.to_thread(
        load_config, str(plane.admin_kubeconfig), environ={}, home=Path("/")
    )
    transport = Transport(connection)
    player = DeploymentPlayer(plane, vcenter, folder)
    try:
        async with fake_kubelet(
            Client(transport),
            namespace=SYSTEM_NAMESPACE,
            pod_state=lambda pod: player.pod_state(),
        ) as kubelet:
            task = asyncio.create_task(player.run(kubelet))
            try:
                yield player
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
    finally:
        await transport.close()
