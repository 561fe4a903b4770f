"""A flood of requests for metrics on a manager with an API server that reviews tokens slowly."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from kubewright.controller import controller
from kubewright.manager import Manager, Options
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.proxy import HttpProxy

from ..support.api_harness import ApiHarness, run_manager
from ..support.widget_kind import Widget, double
from .proxied_manager import connect_through

READER_MANIFESTS = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: %(namespace)s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader-%(namespace)s}
rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader-%(namespace)s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader-%(namespace)s}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: %(namespace)s}]
"""
TOKEN_REVIEWS_PATH = "*/tokenreviews"


@pytest.fixture
def prometheus_token(control_plane: ControlPlane, namespace: str) -> str:
    control_plane.apply(READER_MANIFESTS % {"namespace": namespace})
    return control_plane.create_service_account_token(namespace, "prometheus")


class MetricsClient:
    """Requests to both endpoints of one manager."""

    def __init__(self, manager: Manager, session: aiohttp.ClientSession) -> None:
        self.manager, self.session = manager, session

    async def get_metrics(self, token: str) -> int:
        assert self.manager.server is not None
        url = f"https://127.0.0.1:{self.manager.server.metrics_port}/metrics"
        headers = {"Authorization": f"Bearer {token}"}
        async with self.session.get(url, ssl=False, headers=headers) as response:
            await response.read()
            return response.status

    async def get_probe(self, path: str) -> int:
        assert self.manager.server is not None
        url = f"http://127.0.0.1:{self.manager.server.health_port}{path}"
        async with self.session.get(url) as response:
            return response.status


async def test_probes_work_during_a_flood_and_one_token_is_reviewed_once(
    real_api: ApiHarness, http_proxy: HttpProxy, prometheus_token: str, tmp_path: Path
) -> None:
    api = await connect_through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    options = Options(
        metrics_bind_address="127.0.0.1:0",
        metrics_secure=True,
        health_probe_bind_address="127.0.0.1:0",
        watch_namespaces=(api.namespace,),
        graceful_shutdown_seconds=5,
    )
    async with (
        run_manager(api, controller(Widget, double), options=options) as manager,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        await eventually(lambda: manager.server and manager.server.health_port)
        client = MetricsClient(manager, session)
        await eventually(lambda: is_ready(client))
        slow = http_proxy.delay_next("POST", TOKEN_REVIEWS_PATH, 4.0, times=1000)
        # Prometheus of two replicas, a retry and a person: one review.
        assert (
            await asyncio.gather(*(client.get_metrics(prometheus_token) for _ in range(10)))
            == [200] * 10
        )
        assert len(slow.matched_requests) == 1
        # Below the limit of connections, above which the server ends those in their handshake.
        flood = [asyncio.create_task(client.get_metrics(f"junk-{n}")) for n in range(200)]
        await eventually(lambda: len(slow.matched_requests) > 1)
        while not all(task.done() for task in flood):
            assert await client.get_probe("/healthz") == 200
            assert await client.get_probe("/readyz") == 200
            assert await client.get_metrics(prometheus_token) == 200
            await asyncio.sleep(0.1)
        assert {task.result() for task in flood} == {401, 503}
        assert len(slow.matched_requests) <= 1 + 2 * 16


async def is_ready(client: MetricsClient) -> bool:
    return await client.get_probe("/readyz") == 200
