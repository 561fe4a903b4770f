"""The `manager` command as a child process, and what it did according to the API server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from urllib.error import HTTPError

from kubewright.testing import eventually
from kubewright.testing.cluster_access import HttpError
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.process import Process

from .forked_process import can_fork, fork_manager

SYSTEM_NAMESPACE = "vsphere-operators-system"
SERVICE_ACCOUNT = "controller-manager"
MANAGER_USER = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{SERVICE_ACCOUNT}"
LEASE_NAME = "vsphere-operators-leader"
MYCUSTOMRESOURCES_PATH = "/apis/poc.test.domain/v1/namespaces/{namespace}/mycustomresources"
FREE_PORT_FLAGS = ("-metrics-addr=127.0.0.1:0", "-health-probe-bind-address=127.0.0.1:0")
_MAIN_MODULE = "vsphere_operators.main"
UNVERIFIED_TLS = ssl._create_unverified_context()  # the manager's own certificate is self-signed


class ManagerProcess(Process):
    """One manager with its log, without the environment of the tests.

    It is forked from a process that has imported the manager. `new_interpreter` starts it as a user
    does instead.
    """

    _is_forked = False

    def __init__(
        self,
        log: Path,
        *flags: str,
        environ: Mapping[str, str] | None = None,
        module: str = _MAIN_MODULE,
        new_interpreter: bool = False,
    ) -> None:
        # PYTHONPATH decides which checkout is tested.
        base = {"HOME": str(log.parent), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        variables = [f"{name}={value}" for name, value in {**base, **(environ or {})}.items()]
        program = [
            shutil.which("env") or "env",
            "-i",
            *variables,
            sys.executable,
            "-m",
            module,
        ]
        super().__init__("manager", [*program, *flags], log)
        self._flags, self._environ = flags, {"HOME": base["HOME"], **(environ or {})}
        self._is_forked = module == _MAIN_MODULE and not new_interpreter and can_fork(self._environ)

    def start(self) -> None:
        if self._is_forked:
            child = fork_manager(self._flags, self._environ, self.log)
            self.child = cast("subprocess.Popen[bytes]", child)
        else:
            super().start()

    @property
    def log_text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    @property
    def log_records(self) -> list[dict[str, Any]]:
        """The lines of the log that are JSON."""
        return [
            json.loads(line)
            for line in self.log_text.splitlines()
            if line.startswith("{") and line.endswith("}")
        ]

    async def wait_for_log(self, text: str, *, within: float = 60) -> str:
        """Waits until the text is in the log; returns the log."""
        try:
            await eventually(lambda: text in self.log_text, within=within)
        except AssertionError:
            raise AssertionError(
                f"{text!r} not in the log within {within:g} s:\n{self.log_text}"
            ) from None
        return self.log_text

    async def wait_for_exit(self, *, within: float = 60) -> int:
        """Returns the exit code."""
        await eventually(lambda: not self.is_running, within=within)
        assert self.child
        return self.child.returncode

    @property
    def user_agent(self) -> str:
        return f"vsphere-operators/{self.pid} (kubewright)"

    def url(self, path: str) -> str:
        purpose = "serving metrics" if path == "/metrics" else "serving health probes"
        line = next(line for line in self.log_records if line["msg"] == purpose)
        return f"{'https' if line['tls'] else 'http'}://127.0.0.1:{line['port']}{path}"

    async def http_get(self, path: str, token: str = "") -> tuple[int, str]:
        return await asyncio.to_thread(fetch_url, self.url(path), token)

    async def wait_until_ready(self, *, within: float = 60) -> None:
        async def ready() -> bool:
            return await self.http_get("/readyz") == (200, "ok")

        await eventually(ready, within=within)

    async def read_metric(self, name: str) -> dict[str, float]:
        """The values of a metric by their labels, as they are written."""
        (series,) = await self.read_metrics(name)
        return series

    async def read_metrics(self, *names: str) -> list[dict[str, float]]:
        """The values of several metrics at the same time."""
        _, body = await self.http_get("/metrics")
        return [
            {
                labels: float(value)
                for labels, value in re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", body, re.MULTILINE)
            }
            for name in names
        ]

    async def count_reconciles(self, controller: str = "mycustomresource") -> int:
        series = await self.read_metric("controller_runtime_reconcile_total")
        return int(
            sum(value for labels, value in series.items() if f'controller="{controller}"' in labels)
        )


def fetch_url(url: str, token: str = "") -> tuple[int, str]:
    """Status and body of a GET, for any status."""
    request = urllib.request.Request(
        url, headers={"Authorization": f"Bearer {token}"} if token else {}
    )
    try:
        with urllib.request.urlopen(
            request, context=UNVERIFIED_TLS if url.startswith("https") else None
        ) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


@asynccontextmanager
async def run_manager(
    log: Path,
    *flags: str,
    environ: Mapping[str, str] | None = None,
    new_interpreter: bool = False,
) -> AsyncIterator[ManagerProcess]:
    """A manager that is started, and killed at the end."""
    manager = ManagerProcess(log, *flags, environ=environ, new_interpreter=new_interpreter)
    manager.start()
    try:
        yield manager
    finally:
        await manager.kill()


@asynccontextmanager
async def run_ready_manager(
    log: Path, kubeconfig: Path, *flags: str
) -> AsyncIterator[ManagerProcess]:
    """A manager with started workers."""
    async with run_manager(log, f"--kubeconfig={kubeconfig}", *FREE_PORT_FLAGS, *flags) as manager:
        # A leader that another test killed may hold the lease for 15 s.
        await manager.wait_for_log("Starting workers", within=40)
        await manager.wait_until_ready()
        yield manager


def get_resource(plane: ControlPlane, namespace: str, name: str) -> dict[str, Any]:
    with plane.apiserver.admin_client() as https:
        return dict(
            https.call("GET", f"{MYCUSTOMRESOURCES_PATH.format(namespace=namespace)}/{name}")
        )


def create_resource(plane: ControlPlane, namespace: str, name: str, **body: Any) -> None:
    manifest = {
        "apiVersion": "poc.test.domain/v1",
        "kind": "MyCustomResource",
        "metadata": {"name": name},
        **body,
    }
    with plane.apiserver.admin_client() as https:
        https.call("POST", MYCUSTOMRESOURCES_PATH.format(namespace=namespace), manifest)


def ready_condition(resource: dict[str, Any]) -> dict[str, Any]:
    """The Ready condition, {} if the object has none."""
    return next(
        (c for c in resource.get("status", {}).get("conditions", ()) if c["type"] == "Ready"), {}
    )


async def wait_for_status(
    plane: ControlPlane, namespace: str, name: str, reason: str, *, within: float = 60
) -> dict[str, Any]:
    """The status as soon as Ready has this reason for the current generation."""

    def read_status() -> dict[str, Any] | None:
        resource = get_resource(plane, namespace, name)
        current = (
            ready_condition(resource).get("reason") == reason
            and resource["status"]["observedGeneration"] == resource["metadata"]["generation"]
        )
        return dict(resource["status"]) if current else None

    status = await eventually(lambda: asyncio.to_thread(read_status), within=within, every=0.05)
    return status or {}


def create_pod(plane: ControlPlane, namespace: str, name: str) -> None:
    """Creates a Pod; no kubelet runs it."""
    pod = {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    with plane.apiserver.admin_client() as https:
        https.call("POST", f"/api/v1/namespaces/{namespace}/pods", pod)


def delete_pod(plane: ControlPlane, namespace: str, name: str) -> None:
    # Without a grace period: no kubelet would end it.
    with plane.apiserver.admin_client() as https:
        https.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")


def get_lease(plane: ControlPlane) -> dict[str, Any]:
    """The spec of the leader's lease, {} before the first leader."""
    with plane.apiserver.admin_client() as https:
        try:
            return dict(
                https.call(
                    "GET",
                    "/apis/coordination.k8s.io/v1"
                    f"/namespaces/{SYSTEM_NAMESPACE}/leases/{LEASE_NAME}",
                )["spec"]
            )
        except HttpError:
            return {}


def list_mutations(plane: ControlPlane, manager: ManagerProcess) -> list[dict[str, Any]]:
    """The audit events of this manager's writes, except those of its lease."""
    return [
        event
        for event in plane.read_audit_events(manager.user_agent)
        if event.get("userAgent") == manager.user_agent
        and event["verb"] not in ("get", "list", "watch")
        and event["objectRef"]["resource"] not in ("leases", "tokenreviews", "subjectaccessreviews")
    ]


async def wait_for_mutations(plane: ControlPlane, manager: ManagerProcess, count: int = 1) -> None:
    """Wait for audit events of writes: the API server stores them after its response."""
    await eventually(lambda: len(list_mutations(plane, manager)) >= count)


def format_audit_event(event: dict[str, Any]) -> str:
    involved, code = event["objectRef"], event.get("responseStatus", {}).get("code", "")
    path = "/".join(
        filter(
            None,
            (
                involved["resource"],
                involved.get("subresource"),
                involved.get("namespace"),
                involved.get("name"),
            ),
        )
    )
    return f"{event['requestReceivedTimestamp']} {event['verb']} {path} {code}"
