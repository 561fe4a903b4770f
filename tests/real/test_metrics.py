"""/metrics under controller-runtime's names, and only for those who may read it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane

from .managing import status_of, working, write_resource

CONTROLLER = 'controller="mycustomresource"'
QUEUE = 'controller="mycustomresource",name="mycustomresource"'
SERIES = {
    "controller_runtime_reconcile_total": {
        f'{CONTROLLER},result="{result}"'
        for result in ("success", "error", "requeue", "requeue_after")
    },
    "controller_runtime_reconcile_errors_total": {CONTROLLER},
    "controller_runtime_terminal_reconcile_errors_total": {CONTROLLER},
    "controller_runtime_reconcile_panics_total": {CONTROLLER},
    "controller_runtime_reconcile_timeouts_total": {CONTROLLER},
    "controller_runtime_reconcile_time_seconds_count": {CONTROLLER},
    "controller_runtime_max_concurrent_reconciles": {CONTROLLER},
    "controller_runtime_active_workers": {CONTROLLER},
    "workqueue_adds_total": {QUEUE},
    "workqueue_retries_total": {QUEUE},
    "workqueue_queue_duration_seconds_count": {QUEUE},
    "workqueue_work_duration_seconds_count": {QUEUE},
    "workqueue_unfinished_work_seconds": {QUEUE},
    "workqueue_longest_running_processor_seconds": {QUEUE},
}


async def test_dashboards_for_controller_runtime_find_their_series(
    installed: ControlPlane, namespace: str, service_account: Path, log: Path
) -> None:
    write_resource(installed, namespace, "joe", spec={"name": "funny-joe"})
    async with working(log, service_account) as manager:
        await status_of(installed, namespace, "joe", "NoFriend")
        for name, labels in SERIES.items():
            assert {each for each in await manager.series(name) if CONTROLLER in each} == labels, (
                name
            )
        depths = await manager.series("workqueue_depth")
        assert [labels for labels in depths if labels.startswith(f'{QUEUE},priority="')]
        requests = await manager.series("rest_client_requests_total")
        host = installed.url.removeprefix("https://")
        assert requests[f'code="200",host="{host}",method="PATCH"'] >= 1
        assert (await manager.series("process_resident_memory_bytes"))[""] < 100e6
        assert (await manager.get("/healthz")) == (200, "ok")
        await manager.becomes_ready()


@pytest.fixture
def reader(installed: ControlPlane, namespace: str) -> str:
    """A token of a service account that has no rights yet."""
    installed.kubectl("-n", namespace, "create", "serviceaccount", "reader")
    return installed.create_service_account_token(namespace, "reader")


async def test_secure_metrics_ask_who_is_there_and_whether_they_may(
    installed: ControlPlane, namespace: str, service_account: Path, log: Path, reader: str
) -> None:
    async with working(log, service_account, "--metrics-secure") as manager:
        assert (await manager.get("/metrics"))[0] == 401
        assert (await manager.get("/metrics", token="made-up"))[0] == 401
        code, words = await manager.get("/metrics", token=reader)
        assert code == 403
        assert "nonResourceURLs /metrics" in words
        binding = (
            "create",
            "clusterrolebinding",
            f"reader-{namespace}",
            "--clusterrole=vsphere-operators-metrics-reader",
        )
        await asyncio.to_thread(installed.kubectl, *binding, f"--serviceaccount={namespace}:reader")

        async def allowed() -> bool:
            code, body = await manager.get("/metrics", token=reader)
            return code == 200 and "controller_runtime_reconcile_total" in body

        await eventually(allowed, within=15, every=0.5)
        assert (await manager.get("/healthz"))[0] == 200
