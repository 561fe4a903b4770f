"""A token file that is rotated while the manager runs, and whose old token the real API server refuses from then on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from kubewright.controller import controller
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.http import HttpClient, HttpError
from kubewright.testing.proxy import HttpProxy

from ..support.api_harness import ApiHarness, run_manager
from ..support.widget_kind import Widget, double
from .proxied_manager import WIDGETS_PATH, connect_through, wait_until_reconciled

RBAC_MANIFESTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: manager, namespace: %(namespace)s}
rules:
- {apiGroups: [kubewright.test], resources: [widgets], verbs: [list, watch]}
- {apiGroups: [kubewright.test], resources: [widgets/status], verbs: [patch]}
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
    """Holds tokens of one service account; each dies with a Secret of its own."""

    control_plane: ControlPlane
    namespace: str
    path: Path

    def issue(self, life: str) -> None:
        """Put a token into the file that is good while the Secret of this name exists."""
        with self.control_plane.apiserver.admin_client() as https:
            secret = https.call(
                "POST", f"/api/v1/namespaces/{self.namespace}/secrets", {"metadata": {"name": life}}
            )
            bound = {
                "kind": "Secret",
                "apiVersion": "v1",
                "name": life,
                "uid": secret["metadata"]["uid"],
            }
            request = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"boundObjectRef": bound},
            }
            answer = https.call(
                "POST",
                f"/api/v1/namespaces/{self.namespace}/serviceaccounts/manager/token",
                request,
            )
        beside = self.path.with_name(f".{life}")
        beside.write_text(answer["status"]["token"])
        beside.replace(self.path)

    async def rotate(self) -> None:
        """Replace the token, end the old one, and return when the API server refuses it (it remembers a yes for 10 s)."""
        old = self.path.read_text()
        self.issue("second-life")
        with self.control_plane.apiserver.admin_client() as https:
            https.call("DELETE", f"/api/v1/namespaces/{self.namespace}/secrets/first-life")
        await eventually(lambda: asyncio.to_thread(self.is_rejected, old), within=30, every=0.5)

    def is_rejected(self, token: str) -> bool:
        with HttpClient(self.control_plane.url, self.control_plane.bearer_tls) as https:
            try:
                https.call("GET", "/api", headers={"Authorization": f"Bearer {token}"})
            except HttpError as refusal:
                return refusal.status == 401
        return False


@pytest.fixture
async def token_file(
    control_plane: ControlPlane, real_api: ApiHarness, tmp_path: Path
) -> TokenFile:
    """A token file in its first life."""
    control_plane.apply(RBAC_MANIFESTS % {"namespace": real_api.namespace})
    token = TokenFile(control_plane, real_api.namespace, tmp_path / "token")
    token.issue("first-life")
    return token


@pytest.fixture
async def api(
    real_api: ApiHarness, http_proxy: HttpProxy, token_file: TokenFile, tmp_path: Path
) -> ApiHarness:
    """The manager is the service account of the token file, seen by the proxy."""
    config = json.loads(http_proxy.write_kubeconfig(tmp_path / "config").read_text())
    config["users"][0]["user"] = {"tokenFile": str(token_file.path)}
    (tmp_path / "config").write_text(json.dumps(config))
    return await connect_through(real_api, tmp_path / "config")


async def test_a_manager_goes_on_writing_with_the_new_token(
    api: ApiHarness, http_proxy: HttpProxy, token_file: TokenFile
) -> None:
    async with run_manager(api, controller(Widget, double)) as manager:
        await api.create_widget("before", size=1)
        await wait_until_reconciled(api, manager)
        await token_file.rotate()
        await api.create_widget("after", size=2)
        await wait_until_reconciled(api, manager)
    writes = http_proxy.find_requests("PATCH", "*/widgets/after/status")
    assert [(seen.status, seen.has_authorization) for seen in writes] == [(401, True), (200, True)]


async def test_a_manager_goes_on_watching_with_the_new_token(
    api: ApiHarness, http_proxy: HttpProxy, token_file: TokenFile
) -> None:
    async with run_manager(api, controller(Widget, double)) as manager:
        await api.create_widget("before", size=1)
        await wait_until_reconciled(api, manager)
        await token_file.rotate()
        assert http_proxy.abort_watches(WIDGETS_PATH) == 1
        await api.create_widget("after", size=2)
        await wait_until_reconciled(api, manager, within=15)
    assert 401 in [
        seen.status for seen in http_proxy.find_requests("GET", WIDGETS_PATH, watch=True)
    ]
