"""/metrics has controller-runtime's names, and requires permission."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from support.manager_process import create_resource, run_ready_manager, wait_for_status

CONTROLLER_LABEL = 'controller="mycustomresource"'
QUEUE_LABELS = 'controller="mycustomresource",name="mycustomresource"'
SERIES = {
    "controller_runtime_reconcile_total": {
        f'{CONTROLLER_LABEL},result="{result}"'
        for result in ("success", "error", "requeue", "requeue_after")
    },
    "controller_runtime_reconcile_errors_total": {CONTROLLER_LABEL},
    "controller_runtime_terminal_reconcile_errors_total": {CONTROLLER_LABEL},
    "controller_runtime_reconcile_panics_total": {CONTROLLER_LABEL},
    "controller_runtime_reconcile_timeouts_total": {CONTROLLER_LABEL},
    "controller_runtime_reconcile_time_seconds_count": {CONTROLLER_LABEL},
    "controller_runtime_max_concurrent_reconciles": {CONTROLLER_LABEL},
    "controller_runtime_active_workers": {CONTROLLER_LABEL},
    "workqueue_adds_total": {QUEUE_LABELS},
    "workqueue_retries_total": {QUEUE_LABELS},
    "workqueue_queue_duration_seconds_count": {QUEUE_LABELS},
    "workqueue_work_duration_seconds_count": {QUEUE_LABELS},
    "workqueue_unfinished_work_seconds": {QUEUE_LABELS},
    "workqueue_longest_running_processor_seconds": {QUEUE_LABELS},
}


async def test_metrics_of_controller_runtime_exist(
    installed: ControlPlane, namespace: str, manager_kubeconfig: Path, log_file: Path
) -> None:
    create_resource(installed, namespace, "joe", spec={"name": "funny-joe"})
    async with run_ready_manager(log_file, manager_kubeconfig) as manager:
        await wait_for_status(installed, namespace, "joe", "NoFriend")
        for name, labels in SERIES.items():
            assert {
                labels for labels in await manager.read_metric(name) if CONTROLLER_LABEL in labels
            } == labels, name
        depths = await manager.read_metric("workqueue_depth")
        assert [labels for labels in depths if labels.startswith(f'{QUEUE_LABELS},priority="')]
        requests = await manager.read_metric("rest_client_requests_total")
        host = installed.url.removeprefix("https://")
        assert requests[f'code="200",host="{host}",method="PUT"'] >= 1
        assert (await manager.read_metric("process_resident_memory_bytes"))[""] < 100e6
        assert (await manager.http_get("/healthz")) == (200, "ok")
        await manager.wait_until_ready()


@pytest.fixture
def reader_token(installed: ControlPlane, namespace: str) -> str:
    """A token of a service account without permissions."""
    installed.kubectl("-n", namespace, "create", "serviceaccount", "reader")
    return installed.create_service_account_token(namespace, "reader")


async def test_secure_metrics_require_authentication_and_authorization(
    installed: ControlPlane,
    namespace: str,
    manager_kubeconfig: Path,
    log_file: Path,
    reader_token: str,
) -> None:
    async with run_ready_manager(log_file, manager_kubeconfig, "--metrics-secure") as manager:
        assert (await manager.http_get("/metrics"))[0] == 401
        assert (await manager.http_get("/metrics", token="invalid"))[0] == 401
        code, body = await manager.http_get("/metrics", token=reader_token)
        assert code == 403
        assert "nonResourceURLs /metrics" in body
        binding = (
            "create",
            "clusterrolebinding",
            f"reader-{namespace}",
            "--clusterrole=vsphere-operators-metrics-reader",
        )
        await asyncio.to_thread(installed.kubectl, *binding, f"--serviceaccount={namespace}:reader")

        async def allowed() -> bool:
            code, body = await manager.http_get("/metrics", token=reader_token)
            return code == 200 and "controller_runtime_reconcile_total" in body

        await eventually(allowed, within=60, every=0.5)
        assert (await manager.http_get("/healthz"))[0] == 200
