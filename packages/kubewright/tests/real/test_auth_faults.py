"""Files of the service account are rotated while the manager runs: the token, and the CA.

The API server rejects the old token, or has a certificate that the old CA did not sign.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kubewright.controller import controller
from kubewright.kubeconfig import load_config
from kubewright.testing import eventually
from kubewright.testing.cluster_access import HttpClient, HttpError
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.proxy import HttpProxy, TcpProxy

from ..support.api_harness import ApiHarness, run_manager
from ..support.widget_kind import Widget, double
from .proxied_manager import WIDGETS_PATH, connect_through, wait_until_reconciled

RBAC_MANIFESTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: manager, namespace: %(namespace)s}
rules:
- {apiGroups: [kubewright.test], resources: [widgets], verbs: [list, watch]}
- {apiGroups: [kubewright.test], resources: [widgets/status], verbs: [patch, update]}
- {apiGroups: [""], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: manager, namespace: %(namespace)s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: manager}
subjects: [{kind: ServiceAccount, name: manager, namespace: %(namespace)s}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: manager, namespace: %(namespace)s}
"""


@dataclass(frozen=True)
class TokenFile:
    """Tokens of one service account. Each is bound to a Secret, and is invalid without it."""

    control_plane: ControlPlane
    namespace: str
    path: Path

    def issue(self, secret_name: str) -> None:
        """Write a token that is valid as long as the Secret of this name exists."""
        with self.control_plane.apiserver.admin_client() as https:
            secret = https.call(
                "POST",
                f"/api/v1/namespaces/{self.namespace}/secrets",
                {"metadata": {"name": secret_name}},
            )
            bound = {
                "kind": "Secret",
                "apiVersion": "v1",
                "name": secret_name,
                "uid": secret["metadata"]["uid"],
            }
            request = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"boundObjectRef": bound},
            }
            response = https.call(
                "POST",
                f"/api/v1/namespaces/{self.namespace}/serviceaccounts/manager/token",
                request,
            )
        new_file = self.path.with_name(f".{secret_name}")
        new_file.write_text(response["status"]["token"])
        new_file.replace(self.path)

    async def rotate(self) -> None:
        """Replace the token, and wait until the API server rejects the old one."""
        # The API server caches a successful authentication for 10 s.
        old = self.path.read_text()
        self.issue("second-token")
        with self.control_plane.apiserver.admin_client() as https:
            https.call("DELETE", f"/api/v1/namespaces/{self.namespace}/secrets/first-token")
        await eventually(lambda: asyncio.to_thread(self.is_rejected, old), within=30, every=0.5)

    def is_rejected(self, token: str) -> bool:
        with HttpClient(self.control_plane.url, self.control_plane.bearer_tls) as https:
            try:
                https.call("GET", "/api", headers={"Authorization": f"Bearer {token}"})
            except HttpError as error:
                return error.status == 401
        return False


@pytest.fixture
async def token_file(
    control_plane: ControlPlane, real_api: ApiHarness, tmp_path: Path
) -> TokenFile:
    control_plane.apply(RBAC_MANIFESTS % {"namespace": real_api.namespace})
    token = TokenFile(control_plane, real_api.namespace, tmp_path / "token")
    token.issue("first-token")
    return token


@pytest.fixture
async def api(
    real_api: ApiHarness, http_proxy: HttpProxy, token_file: TokenFile, tmp_path: Path
) -> ApiHarness:
    """The manager connects through the proxy, as the service account of the token file."""
    config = json.loads(http_proxy.write_kubeconfig(tmp_path / "config").read_text())
    config["users"][0]["user"] = {"tokenFile": str(token_file.path)}
    (tmp_path / "config").write_text(json.dumps(config))
    return await connect_through(real_api, tmp_path / "config")


async def test_manager_writes_with_the_new_token(
    api: ApiHarness, http_proxy: HttpProxy, token_file: TokenFile
) -> None:
    async with run_manager(api, controller(Widget, double)) as manager:
        await api.create_widget("before", size=1)
        await wait_until_reconciled(api, manager)
        await token_file.rotate()
        await api.create_widget("after", size=2)
        await wait_until_reconciled(api, manager)
    writes = http_proxy.find_requests("PUT", "*/widgets/after/status")
    assert [(write.status, write.has_authorization) for write in writes] == [
        (401, True),
        (200, True),
    ]


async def test_manager_watches_with_the_new_token(
    api: ApiHarness, http_proxy: HttpProxy, token_file: TokenFile
) -> None:
    async with run_manager(api, controller(Widget, double)) as manager:
        await api.create_widget("before", size=1)
        await wait_until_reconciled(api, manager)
        await token_file.rotate()
        assert http_proxy.abort_watches(WIDGETS_PATH) == 1
        await api.create_widget("after", size=2)
        await wait_until_reconciled(api, manager)
    assert 401 in [
        request.status for request in http_proxy.find_requests("GET", WIDGETS_PATH, watch=True)
    ]


async def test_manager_follows_the_ca_of_the_service_account(
    real_api: ApiHarness,
    control_plane: ControlPlane,
    http_proxy: HttpProxy,
    token_file: TokenFile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # In place of a minute.
    monkeypatch.setattr("kubewright.api_credentials._FILE_RELOAD_SECONDS", 0.5)
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(http_proxy.ca.certificate)
    async with (
        HttpProxy.in_front_of(control_plane) as renewed,
        TcpProxy("127.0.0.1", http_proxy.port) as service,
    ):
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
        connection = await asyncio.to_thread(
            load_config,
            master=f"https://127.0.0.1:{service.port}",
            environ=environ,
            home=tmp_path,
            service_account=tmp_path,
        )
        assert connection.source == "the Pod's service account"
        api = replace(real_api, connection=connection)
        async with run_manager(api, controller(Widget, double)) as manager:
            await api.create_widget("before", size=1)
            await wait_until_reconciled(api, manager)
            # As kubeadm and kubelet do it: a bundle of both CAs, then the new certificate.
            new_file = tmp_path / "new.crt"
            new_file.write_bytes(http_proxy.ca.certificate + renewed.ca.certificate)
            new_file.replace(ca_file)
            service.target = ("127.0.0.1", renewed.port)
            service.abort_connections()
            await api.create_widget("after", size=2)
            await wait_until_reconciled(api, manager, within=60)
    assert renewed.find_requests("PUT", "*/widgets/after/status")
