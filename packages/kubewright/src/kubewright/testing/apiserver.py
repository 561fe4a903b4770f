"""A real kube-apiserver for tests, which can be killed and started again on the same port."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from .http import HttpClient
from .port import ReservedPort
from .process import Process
from .wait import eventually

_START_TIMEOUT_SECONDS = 60.0
GRACE_SECONDS = 5.0
# A test's API server has a small heap, so Go's default collects it many times a second: about 15 % of its CPU in a profile.
# A cluster's has gigabytes, and collects seldom. GOGC of the environment goes before.
_GOGC_PERCENT = "400"


class StartFailed(Exception):
    """A part of the control plane did not come up: which, why, and the end of its log."""


class ApiServer:
    """One kube-apiserver; `folder` holds the keys and certificates that the control plane wrote, and gets the log."""

    def __init__(
        self,
        binary: Path,
        folder: Path,
        etcd_url: str,
        admin_tls: ssl.SSLContext,
        flags: Sequence[str],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.admin_tls = admin_tls
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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start it, and return when it is ready."""
        self.process.start()
        try:
            await eventually(self._check_ready_or_exited, within=_START_TIMEOUT_SECONDS, every=0.05)
        except AssertionError as not_ready:
            await self.process.kill()
            raise StartFailed(
                f"kube-apiserver did not start: {not_ready}. The end of its log:\n{self.process.read_log_tail()}"
            ) from None
        if not self.process.is_running:
            raise StartFailed(
                f"kube-apiserver did not start: it ended by itself. The end of its log:\n{self.process.read_log_tail()}"
            )

    async def stop(self) -> None:
        """End it for good."""
        await self.terminate()
        self.port.release()

    async def terminate(self) -> None:
        """Ask it to end, and insist after a grace: open watches would keep it for a minute."""
        await self.process.stop(GRACE_SECONDS)

    async def kill(self) -> None:
        """Kill it (SIGKILL): no goodbye on any connection but the kernel's."""
        await self.process.kill()

    def admin_client(self) -> HttpClient:
        """A connection for plain calls as an administrator."""
        return HttpClient(self.url, self.admin_tls)

    async def _check_ready_or_exited(self) -> bool:
        """True when waiting for it has an end; raises what keeps it from serving."""
        if self.process.is_running:
            await asyncio.to_thread(self.check_ready)
        return True

    def check_ready(self) -> None:
        """Raise unless it serves; the default namespace comes a moment after /readyz says yes."""
        with self.admin_client() as https:
            https.call("GET", "/readyz")
            https.call("GET", "/api/v1/namespaces/default")


def _standard_flags(folder: Path, port: int, etcd_url: str) -> list[str]:
    """The flags of every API server here."""
    return [
        f"--etcd-servers={etcd_url}",
        "--bind-address=127.0.0.1",
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
