"""A real etcd and kube-apiserver on free ports: a cluster without nodes, ready in a few seconds.

    async with ControlPlane(assets.find()) as plane:
        plane.kubeconfig(path)              # what the code under test is given
        plane.kubectl("get", "namespaces")  # what the test itself uses
        await plane.kill_apiserver()

RBAC is on, and service account tokens are signed and verified. The ServiceAccount admission plugin is off, so that a Pod can be
created without a controller that makes service accounts. Nothing runs Pods, collects garbage or ends the deletion of a namespace,
unless `controllers` asks for kube-controller-manager.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import tempfile
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from ..x509 import generate_signing_keys
from .apiserver import GRACE_SECONDS, ApiServer
from .ca import CertificateAuthority, write_private_file
from .etcd import Etcd
from .http import create_tls_context, write_kubeconfig
from .namespaces import remove_namespace
from .process import Process

_ADMIN_GROUP = "system:masters"
# Longer than any wait that a test asks kubectl for.
_KUBECTL_TIMEOUT_SECONDS = 120.0
AuditLevel = Literal["Metadata", "Request", "RequestResponse"]


class KubectlFailed(Exception):
    """kubectl ended with an error, or not at all: the command and its own words."""


class ControlPlane:
    """One etcd and one kube-apiserver; `async with` it, or use start_sync and stop_sync where no loop runs."""

    def __init__(
        self,
        binaries: Mapping[str, Path],
        *,
        audit: bool = False,
        audit_level: AuditLevel = "Metadata",
        controllers: Sequence[str] = (),
        extra_args: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        """`extra_args` and `environ` are for the API server, beside what it has anyway; `folder` is for all files, and goes at the end."""
        self.binaries = binaries
        self.folder = folder or Path(tempfile.mkdtemp(prefix="kubewright-"))
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.ca = CertificateAuthority("kubewright-test")
        self._audit_log = self.folder / "audit.jsonl"
        self._write_files(audit_level)
        self.admin_tls = create_tls_context(
            self.ca.certificate, self.folder / "admin.crt", self.folder / "admin.key"
        )
        self.bearer_tls = create_tls_context(self.ca.certificate)
        self.etcd = Etcd(binaries["etcd"], self.folder)
        self.apiserver = self.create_apiserver(
            self.etcd.url, [*self._audit_flags(audit), *extra_args], environ
        )
        self.admin_kubeconfig = self.write_kubeconfig(self.folder / "admin.kubeconfig")
        self._controller_manager = (
            self._create_controller_manager(controllers) if controllers else None
        )

    def _write_files(self, audit_level: AuditLevel) -> None:
        """Write what the API servers read when they start."""
        self.ca.issue_serving_certificate("127.0.0.1", "localhost").write(
            self.folder / "serving.crt", self.folder / "serving.key"
        )
        self.ca.issue_client_certificate("admin", (_ADMIN_GROUP,)).write(
            self.folder / "admin.crt", self.folder / "admin.key"
        )
        (self.folder / "ca.crt").write_bytes(self.ca.certificate)
        public, private = generate_signing_keys()
        (self.folder / "service-accounts.pub").write_bytes(public)
        write_private_file(self.folder / "service-accounts.key", private)
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": audit_level}],
        }
        (self.folder / "audit-policy.json").write_text(json.dumps(policy))

    def _audit_flags(self, audit: bool) -> list[str]:
        """The flags that write the audit log in one file, however long."""
        policy = self.folder / "audit-policy.json"
        return (
            [
                f"--audit-policy-file={policy}",
                f"--audit-log-path={self._audit_log}",
                "--audit-log-maxsize=100000",
            ]
            if audit
            else []
        )

    def _create_controller_manager(self, controllers: Sequence[str]) -> Process:
        """kube-controller-manager with these controllers only, such as `namespace-controller`."""
        flags = [
            f"--kubeconfig={self.admin_kubeconfig}",
            f"--controllers={','.join(controllers)}",
            "--leader-elect=false",
            "--secure-port=0",
            "--bind-address=127.0.0.1",
        ]
        binary = str(self.binaries["kube-controller-manager"])
        return Process(
            "kube-controller-manager", [binary, *flags], self.folder / "kube-controller-manager.log"
        )

    # Life and death

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
        """Start all parts, and return when the API server is ready."""
        try:
            await self.etcd.start()
            await self.apiserver.start()
            if self._controller_manager:
                self._controller_manager.start()
        except BaseException as error:
            if not self.etcd.process.is_running:
                error.add_note(
                    f"etcd has ended by itself. The end of its log:\n{self.etcd.process.read_log_tail()}"
                )
            await self.stop()
            raise

    async def stop(self) -> None:
        """End all parts and remove their files."""
        if self._controller_manager:
            await self._controller_manager.stop(GRACE_SECONDS)
        await self.apiserver.stop()
        await self.etcd.stop(GRACE_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_sync(self) -> None:
        """`start` for a place without an event loop, such as a fixture of a whole test session."""
        run_in_new_loop(self.start())

    def stop_sync(self) -> None:
        """`stop` for a place without an event loop."""
        run_in_new_loop(self.stop())

    # Faults

    async def kill_apiserver(self) -> None:
        """Kill the API server (SIGKILL); its port refuses connections until it is started again."""
        await self.apiserver.kill()

    async def start_apiserver(self) -> None:
        """Start the API server again, on the same port and the same data."""
        await self.apiserver.start()

    async def restart_apiserver(self) -> None:
        """End the API server and start it again: its watch cache then begins at the present."""
        await self.apiserver.terminate()
        await self.apiserver.start()

    async def compact_etcd(self) -> int:
        """Forget all revisions before the newest. Alone it gives no 410: the watch cache still answers, so restart the API server too."""
        return await self.etcd.compact()

    def create_apiserver(
        self,
        etcd_url: str,
        extra_args: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> ApiServer:
        """One more API server with the same authority and keys; `etcd_url` may lead through a TcpProxy, which makes it stale on demand."""
        return ApiServer(
            self.binaries["kube-apiserver"],
            self.folder,
            etcd_url,
            self.admin_tls,
            extra_args,
            environ,
        )

    # Access

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return self.apiserver.url

    def write_kubeconfig(
        self, path: Path, user: str = "admin", groups: tuple[str, ...] = (), server: str = ""
    ) -> Path:
        """Write a kubeconfig with a client certificate: `admin` may do everything, anybody else what RBAC gives.

        `server` leads elsewhere than to the API server itself, such as to a TcpProxy.
        """
        credential = self.ca.issue_client_certificate(
            user, (_ADMIN_GROUP,) if user == "admin" else groups
        )
        return write_kubeconfig(path, server or self.url, self.ca.certificate, user, credential)

    def write_service_account_kubeconfig(
        self, namespace: str, name: str, path: Path, server: str = ""
    ) -> Path:
        """Write a kubeconfig with a token of this service account, which has to exist."""
        token = self.create_service_account_token(namespace, name)
        return write_kubeconfig(path, server or self.url, self.ca.certificate, name, token)

    def create_service_account_token(
        self, namespace: str, name: str, expiration_seconds: int = 3600
    ) -> str:
        """A token by TokenRequest; the API server gives none for less than 600 s."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": expiration_seconds},
        }
        with self.apiserver.admin_client() as https:
            answer = https.call(
                "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request
            )
        return str(answer["status"]["token"])

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as admin and return what it prints.

        It blocks the thread: where the API server needs the test's own loop for the answer, as for a webhook, use asyncio.to_thread.
        """
        return self.run_kubectl(*arguments, stdin=stdin).stdout

    def run_kubectl(
        self, *arguments: str, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The same, with what it prints besides, such as warnings; nothing is left in the home of whoever runs the tests."""
        command = [
            str(self.binaries["kubectl"]),
            f"--kubeconfig={self.admin_kubeconfig}",
            f"--cache-dir={self.folder / 'kubectl'}",
            *arguments,
        ]
        try:
            done = subprocess.run(
                command,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=_KUBECTL_TIMEOUT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise KubectlFailed(
                f"kubectl {' '.join(arguments)}: it had not ended after {_KUBECTL_TIMEOUT_SECONDS:g} s"
            ) from None
        if done.returncode:
            raise KubectlFailed(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done

    def apply(self, *manifests: Path | str) -> str:
        """Apply files, folders (a Path) or YAML text (a str), in this order."""
        printed = [
            self.kubectl("apply", "-f", str(manifest))
            if isinstance(manifest, Path)
            else self.kubectl("apply", "-f", "-", stdin=manifest)
            for manifest in manifests
        ]
        return "".join(printed)

    def create_namespace(self, name: str) -> None:
        """Create a namespace."""
        with self.apiserver.admin_client() as https:
            https.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    def remove_namespace(self, name: str) -> None:
        """Delete a namespace and all that is in it, finalizers or not: nothing else here does."""
        with self.apiserver.admin_client() as https:
            remove_namespace(https, name)

    def read_audit_events(self) -> list[dict[str, Any]]:
        """The audit log so far; empty unless the plane was made with audit=True."""
        return (
            [json.loads(line) for line in self._audit_log.read_text().splitlines()]
            if self._audit_log.exists()
            else []
        )


def run_in_new_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run it in a loop of its own and leave the thread's current loop as it is: that one belongs to the test framework."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(work)
