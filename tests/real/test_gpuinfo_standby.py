"""Warnings that a standby could not write are repeated when it starts leading."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubewright.testing import eventually
from kubewright.testing.cluster_access import HttpError
from simulator import SimulatedVCenter
from support.info_client import run_vcenter_manager, write_credentials
from support.manager_process import LEASE_NAME, SYSTEM_NAMESPACE

from .gpu_cluster import NEXT_MAINTENANCE_ANNOTATION, GpuCluster


async def test_next_leader_reports_an_invalid_annotation(
    gpu_vcenter: SimulatedVCenter,
    log_file: Path,
    manager_kubeconfig: Path,
    tmp_path: Path,
    cluster: GpuCluster,
) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {
        "holderIdentity": "old-pod",
        "leaseDurationSeconds": 5,
        "acquireTime": now,
        "renewTime": now,
        "leaseTransitions": 1,
    }
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE_NAME},
        "spec": spec,
    }
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases"
    with suppress(HttpError):  # left by another test
        await cluster.call("DELETE", f"{leases}/{LEASE_NAME}")
    await cluster.call("POST", leases, lease)
    await cluster.patch_node(
        "worker-1", {"metadata": {"annotations": {NEXT_MAINTENANCE_ANNOTATION: "next tuesday"}}}
    )
    credentials = write_credentials(tmp_path / "vc-creds", gpu_vcenter)
    flags = ("--leader-elect", f"--leader-election-namespace={SYSTEM_NAMESPACE}")
    async with run_vcenter_manager(
        log_file, manager_kubeconfig, credentials, gpu_vcenter.certificate, *flags
    ) as manager:
        await manager.wait_for_log("became leader", within=60)

        async def find_events() -> list[Any]:
            events = (await cluster.call("GET", "/api/v1/events"))["items"]
            return [
                event
                for event in events
                if event["reason"] == "MaintenanceUnreadable" and "next tuesday" in event["message"]
            ]

        (event,) = await eventually(find_events, within=30)
        assert event["involvedObject"]["name"] == "worker-1"
