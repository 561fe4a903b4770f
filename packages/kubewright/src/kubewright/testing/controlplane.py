"""A real etcd and kube-apiserver on free ports: a cluster without nodes, ready in a few seconds.

    async with ControlPlane(find_binaries()) as plane:
        plane.write_kubeconfig(path)        # for the code under test
        plane.kubectl("get", "namespaces")  # for the test itself
        await plane.apiserver.kill()

RBAC is enabled, and service account tokens are signed and verified. The ServiceAccount admission
plugin is disabled, so that a Pod can be created without a controller that creates service accounts.
Nothing runs Pods. Nothing collects garbage, creates Pods of Deployments or finishes the deletion of
a namespace, unless `controllers` starts kube-controller-manager.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Coroutine, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

from ..x509 import generate_signing_keys
from .apiserver import GRACE_SECONDS, ApiServer
from .ca import CertificateAuthority, write_key_pair, write_private_file
from .cluster_access import HttpClient, HttpError, create_tls_context, write_kubeconfig
from .controller_manager import ControllerManager
from .etcd import Etcd
from .namespaces import remove_namespace

_ADMIN_GROUP = "system:masters"
# Longer than any `kubectl wait` of a test.
_KUBECTL_TIMEOUT_SECONDS = 120.0
_CRD_TIMEOUT_SECONDS, _CRD_INTERVAL_SECONDS = 60.0, 0.05


class KubectlFailed(Exception):
    """kubectl failed or timed out; the message has the command and its output."""


class ControlPlane:
    """One etcd and one kube-apiserver.

    Use it with `async with`, or with start_sync and stop_sync where no event loop runs.
    """

    def __init__(
        self,
        binaries: Mapping[str, Path],
        *,
        audit: bool = False,
        controllers: Sequence[str] = (),
        extra_args: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        """`extra_args` and `environ` are added to those of the API server.

        `controllers` are those of kube-controller-manager, for example `DEFAULT_CONTROLLERS`.
        All files are in `folder`, which is removed at the end.
        """
        self.binaries = binaries
        self.folder = folder or Path(tempfile.mkdtemp(prefix="kubewright-"))
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.ca = CertificateAuthority("kubewright-test")
        self._audit_log = self.folder / "audit.jsonl"
        self._write_files()
        self.admin_tls = create_tls_context(
            self.ca.certificate, self.folder / "admin.crt", self.folder / "admin.key"
        )
        self.bearer_tls = create_tls_context(self.ca.certificate)
        self.etcd = Etcd(binaries["etcd"], self.folder)
        self.apiserver = self.create_apiserver(
            self.etcd.url, [*self._audit_flags(audit), *extra_args], environ
        )
        self.admin_kubeconfig = self.write_kubeconfig(self.folder / "admin.kubeconfig")
        self._controller_manager: ControllerManager | None = None
        if controllers:
            self._controller_manager = ControllerManager(
                binaries["kube-controller-manager"],
                self.folder,
                self.admin_kubeconfig,
                controllers,
            )

    def _write_files(self) -> None:
        for name, pair in (
            ("serving", self.ca.issue_serving_certificate("127.0.0.1", "localhost")),
            ("admin", self.ca.issue_client_certificate("admin", (_ADMIN_GROUP,))),
        ):
            write_key_pair(pair, self.folder / f"{name}.crt", self.folder / f"{name}.key")
        (self.folder / "ca.crt").write_bytes(self.ca.certificate)
        public, private = generate_signing_keys()
        (self.folder / "service-accounts.pub").write_bytes(public)
        write_private_file(self.folder / "service-accounts.key", private)

    def _audit_flags(self, audit: bool) -> list[str]:
        if not audit:
            return []
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata"}],
        }
        policy_file = self.folder / "audit-policy.json"
        policy_file.write_text(json.dumps(policy))
        return [
            f"--audit-policy-file={policy_file}",
            f"--audit-log-path={self._audit_log}",
            # In megabytes: a rotated log would be incomplete.
            "--audit-log-maxsize=100000",
        ]

    # Start and stop

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start all processes, and return when the API server is ready."""
        try:
            await self.etcd.start()
            await self.apiserver.start()
            if self._controller_manager:
                self._controller_manager.start()
                with self.apiserver.admin_client() as client:
                    await asyncio.to_thread(self._controller_manager.wait_until_ready, client)
        except BaseException as error:
            if not self.etcd.process.is_running:
                error.add_note(
                    f"etcd exited. The end of its log:\n{self.etcd.process.read_log_tail()}"
                )
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop all processes and remove their files."""
        if self._controller_manager:
            await self._controller_manager.stop()
        await self.apiserver.stop()
        await self.etcd.stop(GRACE_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_sync(self) -> None:
        """Start without an event loop, as in a fixture of the whole test session."""
        run_in_new_loop(self.start())

    def stop_sync(self) -> None:
        run_in_new_loop(self.stop())

    def restart_controllers(self) -> None:
        """Let the controllers read the served kinds again, after CRDs were installed.

        The garbage collector otherwise needs up to 30 s to notice a new kind.
        """
        if self._controller_manager:
            with self.apiserver.admin_client() as client:
                self._controller_manager.restart(client)

    async def restart_apiserver(self) -> None:
        """Restart the API server: its watch cache then starts at the latest revision.

        After `etcd.compact()` only that makes it answer 410: its old watch cache has all revisions.
        """
        await self.apiserver.terminate()
        await self.apiserver.start()

    def create_apiserver(
        self,
        etcd_url: str,
        extra_args: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> ApiServer:
        """Another API server with the same CA and keys.

        With a TcpProxy in `etcd_url` a test can make its data stale.
        """
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
        return self.apiserver.url

    def write_kubeconfig(
        self, path: Path, user: str = "admin", groups: tuple[str, ...] = (), server: str = ""
    ) -> Path:
        """Write a kubeconfig with a client certificate.

        The user `admin` may do everything, other users what RBAC grants. `server` replaces the URL
        of the API server, for example with that of a TcpProxy.
        """
        credential = self.ca.issue_client_certificate(
            user, (_ADMIN_GROUP,) if user == "admin" else groups
        )
        return write_kubeconfig(path, server or self.url, self.ca.certificate, user, credential)

    def write_service_account_kubeconfig(
        self, namespace: str, name: str, path: Path, server: str = ""
    ) -> Path:
        """Write a kubeconfig with a token of an existing service account."""
        token = self.create_service_account_token(namespace, name)
        return write_kubeconfig(path, server or self.url, self.ca.certificate, name, token)

    def create_service_account_token(
        self, namespace: str, name: str, expiration_seconds: int = 3600
    ) -> str:
        """A token of the TokenRequest API; the API server rejects less than 600 s."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": expiration_seconds},
        }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        with self.apiserver.admin_client() as client:
            return str(client.call("POST", path, request)["status"]["token"])

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as admin and return its output.

        This blocks the thread. If the API server calls a webhook in the event loop of the test,
        use asyncio.to_thread.
        """
        return self.run_kubectl(*arguments, stdin=stdin).stdout

    def run_kubectl(
        self, *arguments: str, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as admin; the result also has its standard error, such as warnings."""
        command = [
            str(self.binaries["kubectl"]),
            f"--kubeconfig={self.admin_kubeconfig}",
            # Not in the home folder: the next control plane has other APIs.
            f"--cache-dir={self.folder / 'kubectl'}",
            *arguments,
        ]
        try:
            process = subprocess.run(
                command,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=_KUBECTL_TIMEOUT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise KubectlFailed(
                f"kubectl {' '.join(arguments)}: did not end within {_KUBECTL_TIMEOUT_SECONDS:g} s"
            ) from None
        if process.returncode:
            raise KubectlFailed(f"kubectl {' '.join(arguments)}: {process.stderr.strip()}")
        return process

    def apply(self, *manifests: Path | str) -> str:
        """Apply manifests in order: a Path is a file or a folder, a str is YAML."""
        return "".join(
            self.kubectl("apply", "-f", str(manifest))
            if isinstance(manifest, Path)
            else self.kubectl("apply", "-f", "-", stdin=manifest)
            for manifest in manifests
        )

    def wait_for_crds(self, *names: str) -> None:
        """Block until the API server serves the kinds of these CRDs, or of all.

        `kubectl wait` fails if a CRD that was just created has no conditions yet. Each kind is
        listed once: the API server initializes its storage at the first request. If that is the
        deletion of the CRD, kube-apiserver 1.36 may forget the deletion for 5 minutes.
        """
        deadline = time.monotonic() + _CRD_TIMEOUT_SECONDS
        with self.apiserver.admin_client() as client:
            while missing := _find_unserved_crds(client, names):
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"not served after {_CRD_TIMEOUT_SECONDS:g} s: {', '.join(missing)}"
                    )
                time.sleep(_CRD_INTERVAL_SECONDS)

    def create_namespace(self, name: str) -> None:
        with self.apiserver.admin_client() as client:
            client.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    def remove_namespace(self, name: str) -> None:
        """Delete a namespace and everything in it, ignoring finalizers."""
        with self.apiserver.admin_client() as client:
            remove_namespace(client, self.etcd, name)

    def read_audit_events(self, containing: str = "") -> list[dict[str, Any]]:
        """The audit log so far; empty without audit=True.

        With `containing`, only events with this text: parsing a long log takes seconds.
        """
        if not self._audit_log.exists():
            return []
        lines = self._audit_log.read_text().splitlines()
        return [json.loads(line) for line in lines if containing in line]


def _find_unserved_crds(client: HttpClient, names: Sequence[str]) -> list[str]:
    items = client.call("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
    crds = {crd["metadata"]["name"]: crd for crd in items}
    return [name for name in names or crds if not (name in crds and _is_served(client, crds[name]))]


def _is_served(client: HttpClient, crd: dict[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions") or ()
    if not any((item["type"], item["status"]) == ("Established", "True") for item in conditions):
        return False
    spec = crd["spec"]
    version = next(item["name"] for item in spec["versions"] if item["served"])
    try:
        client.call("GET", f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1")
    except HttpError as error:
        # 404: not known yet. 429: "storage is (re)initializing". Others are the kind's own, as of a
        # conversion webhook that does not run.
        return error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS)
    return True


def run_in_new_loop(work: Coroutine[Any, Any, None]) -> None:
    # The current loop of the thread belongs to the test framework.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(work)
