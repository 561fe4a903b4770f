"""The warning of `kubectl vsphere` when no manager keeps the objects current."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kubewright import Client, ObjectMeta
from kubewright.builtin import Lease, LeaseSpec
from kubewright.errors import ConfigError, Forbidden, KubewrightError
from kubewright.testing.fake import FakeApi
from support.fake_environment import FAKE_CONNECTION
from vsphere_operators.kubectl.manager_pods import ManagerPod
from vsphere_operators.kubectl.sources import ClusterReader
from vsphere_operators.kubectl.staleness import warn_of_stale_objects
from vsphere_operators.leader_lease import LEASE_NAME, SYSTEM_NAMESPACE

RENEWED_AT = datetime(2026, 11, 16, 12, tzinfo=UTC)


class StaleCluster:
    """A cluster with one Lease; `warnings` are the lines on stderr."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api, self.warnings = FakeApi(), list[str]()
        self.reader = ClusterReader(FAKE_CONNECTION, "", self.warnings.append)
        self.reader.client = Client(self.api)
        self.server_time = RENEWED_AT

        async def server_time() -> datetime:
            return self.server_time

        monkeypatch.setattr(self.reader.transport, "server_time", server_time)

    def add_lease(self, namespace: str = SYSTEM_NAMESPACE, name: str = LEASE_NAME) -> None:
        spec = LeaseSpec(
            holderIdentity="pod-1", leaseDurationSeconds=15, renewTime=f"{RENEWED_AT:%FT%T.%fZ}"
        )
        metadata = ObjectMeta(namespace=namespace, name=name)
        self.api.add(Lease(metadata=metadata, spec=spec))

    def add_pod(self, *flags: str, ready: str = "True", name: str = "manager-0") -> None:
        path = ManagerPod.definition.path(SYSTEM_NAMESPACE)
        labels = {
            "app.kubernetes.io/name": "vsphere-operators",
            "control-plane": "controller-manager",
        }
        containers = [{"name": "manager", "image": "m", "args": list(flags)}]
        body = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers}}
        condition = {
            "type": "Ready",
            "status": ready,
            "lastTransitionTime": f"{RENEWED_AT:%FT%TZ}",
        }
        status = {"phase": "Running", "conditions": [condition]}
        created = self.api.create(path, body)
        self.api.update(f"{path}/{name}", {**created, "status": status}, status=True)

    async def warn(self, lease: str = "", page: str = "") -> list[str]:
        self.warnings.clear()
        await warn_of_stale_objects(self.reader, lease, page=page)
        return self.warnings


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StaleCluster]:
    cluster = StaleCluster(monkeypatch)
    yield cluster
    await cluster.reader.transport.close()


async def test_expired_lease_by_the_clock_of_the_server(cluster: StaleCluster) -> None:
    cluster.add_lease()
    assert await cluster.warn() == []
    cluster.server_time += timedelta(minutes=5)
    (warning,) = await cluster.warn()
    assert 'last renewed 5m ago by "pod-1"' in warning
    assert "The objects are as of 2026-11-16T12:00:00Z" in warning


async def test_manager_with_another_lease_is_named_by_the_flag(cluster: StaleCluster) -> None:
    cluster.add_lease("mine", "other")
    (warning,) = await cluster.warn()
    assert "--lease NAMESPACE/NAME" in warning
    assert await cluster.warn("mine/other") == []
    for wrong in ("other", "mine/", "/other", "a/b/c"):
        with pytest.raises(ConfigError, match="must be NAMESPACE/NAME"):
            await cluster.warn(wrong)


async def test_user_without_permission_gets_the_name_of_the_lease(cluster: StaleCluster) -> None:
    cluster.api.fail_next("GET", "leases", Forbidden("leases is forbidden"), times=3)
    (warning,) = await cluster.warn()
    assert warning == (
        "It is unknown whether a manager keeps the objects current: this user cannot read lease "
        f"{SYSTEM_NAMESPACE}/{LEASE_NAME}."
    )


async def test_other_errors_are_left_to_the_command(cluster: StaleCluster) -> None:
    cluster.api.fail_next("GET", "leases", KubewrightError("no connection"))
    assert await cluster.warn() == []


async def test_manager_without_leader_election_is_judged_by_its_pod(cluster: StaleCluster) -> None:
    cluster.add_pod("-insecure", ready="False")
    (warning,) = await cluster.warn()
    assert warning == (
        f"No manager is ready: Pod {SYSTEM_NAMESPACE}/manager-0 has not been ready since "
        "2026-11-16T12:00:00Z. The objects may be out of date, whatever their conditions show. "
        "Run `manager doctor`."
    )
    cluster.add_pod("-leader-elect=false", name="manager-1")
    assert await cluster.warn() == []


async def test_ready_pod_with_leader_election_proves_nothing(cluster: StaleCluster) -> None:
    cluster.add_pod("-insecure", name="manager-1")
    cluster.add_pod("--leader-elect")
    (warning,) = await cluster.warn()
    assert "--lease NAMESPACE/NAME" in warning


async def test_unreadable_pods_leave_the_age_unknown(cluster: StaleCluster) -> None:
    cluster.api.fail_next("GET", "pods", Forbidden("pods is forbidden"), times=1)
    (warning,) = await cluster.warn()
    assert "it is unknown whether a manager keeps the objects current" in warning


async def test_page_shows_which_vcenter_is_not_current(cluster: StaleCluster) -> None:
    vcenter = {"id": "vc-1", "name": "vc-1", "state": "Ready", "message": "ok"}
    stale = {**vcenter, "message": "no route", "accurateUntil": "2026-11-16T12:00:00Z"}
    answer = {"vcenters": [vcenter]}

    async def serve(request: web.Request) -> web.Response:
        return web.json_response(answer)

    app = web.Application()
    app.router.add_get("/topology", serve)
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        assert await cluster.warn(page=url) == []
        answer["vcenters"] = [stale]
        assert await cluster.warn(page=url) == [
            'The objects of vCenter "vc-1" are as of 2026-11-16T12:00:00Z: no route'
        ]
    (warning,) = await cluster.warn(page=url)
    assert warning.startswith("It is unknown whether a manager keeps the objects current: http")
