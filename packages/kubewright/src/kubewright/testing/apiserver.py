"""A real kube-apiserver for tests, which can be killed and restarted on the same port."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Self

from .cluster_access import HttpClient, IdleConnections
from .pins import parse_version, read_version
from .process import Process, ReservedPort
from .wait import eventually

_START_TIMEOUT_SECONDS = 60.0
GRACE_SECONDS = 5.0
# An API server in a test has a small heap, so with Go's default (100) the garbage collector runs
# many times a second, and takes about 15 % of its CPU. GOGC in the environment overrides this.
_GOGC_PERCENT = "400"


class StartFailed(Exception):
    """A part of the control plane did not start; the message has the end of its log."""


class ApiServer:
    """One kube-apiserver; `folder` has the keys and certificates that the control plane wrote."""

    def __init__(
        self,
        binary: Path,
        folder: Path,
        etcd_url: str,
        admin_tls: ssl.SSLContext,
        flags: Sequence[str],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.admin_tls, self._idle_connections = admin_tls, IdleConnections()
        self._binary = binary
        self._gates: list[str] | None = None
        self.port = ReservedPort()
        self.url = f"https://127.0.0.1:{self.port.number}"
        arguments = [str(binary), *_standard_flags(folder, self.port.number, etcd_url), *flags]
        log = folder / f"kube-apiserver-{self.port.number}.log"
        self.process = Process(
            "kube-apiserver",
            arguments,
            log,
            {"GOGC": _GOGC_PERCENT, **os.environ, **(environ or {})},
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the server, and return when it is ready."""
        if self._gates is None:
            # In a thread: it runs the binary.
            self._gates = await asyncio.to_thread(_feature_gates_of, self._binary)
            # Before the flags of the caller, which may set the same gates.
            self.process.arguments[1:1] = self._gates
        self.process.start()
        try:
            await eventually(self._check_ready_or_exited, within=_START_TIMEOUT_SECONDS, every=0.05)
            problem = "" if self.process.is_running else "the process exited"
        except AssertionError as not_ready:
            await self.process.kill()
            problem = str(not_ready)
        if problem:
            raise StartFailed(
                f"kube-apiserver did not start: {problem}. "
                f"The end of its log:\n{self.process.read_log_tail()}"
            )

    async def stop(self) -> None:
        """Terminate the server, and release its port."""
        await self.terminate()
        self.port.release()

    async def terminate(self) -> None:
        self._idle_connections.close()
        # Open watches would delay a graceful shutdown by a minute, so it is killed after a while.
        await self.process.stop(GRACE_SECONDS)

    async def kill(self) -> None:
        """Kill the server with SIGKILL: it closes no connection gracefully."""
        await self.process.kill()
        self._idle_connections.close()

    def admin_client(self) -> HttpClient:
        return HttpClient(self.url, self.admin_tls, idle=self._idle_connections)

    async def _check_ready_or_exited(self) -> bool:
        """Raise while the server is starting; return when it is ready, or has exited."""
        if self.process.is_running:
            await asyncio.to_thread(self._check_ready)
        return True

    def _check_ready(self) -> None:
        with self.admin_client() as client:
            client.call("GET", "/readyz")
            # The server creates the default namespace a moment after it reports ready.
            client.call("GET", "/api/v1/namespaces/default")


@lru_cache
def _feature_gates_of(binary: Path) -> list[str]:
    """The flag for the alpha features that we use; a server does not start with an unknown one."""
    version = parse_version(read_version("kube-apiserver", binary))
    return ["--feature-gates=ShardedListAndWatch=true"] if version >= (1, 36) else []


def _standard_flags(folder: Path, port: int, etcd_url: str) -> list[str]:
    return [
        f"--etcd-servers={etcd_url}",
        "--bind-address=127.0.0.1",
        # By default the address of the default route, which a machine without a network lacks.
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        "--permit-port-sharing",
        f"--tls-cert-file={folder / 'serving.crt'}",
        f"--tls-private-key-file={folder / 'serving.key'}",
        f"--client-ca-file={folder / 'ca.crt'}",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
        f"--service-account-key-file={folder / 'service-accounts.pub'}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
        "--allow-privileged",
        "--profiling=false",
    ]
