"""What a standby finds wrong is said when it begins to lead: until then it may not write, so nobody has heard it."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubewright.testing import eventually
from kubewright.testing.http import HttpError
from simulator import SimulatedVCenter

from .gpunodes import NEXT, Cluster
from .managing import LEASE, SYSTEM
from .vsphere import credentials_in, managing


async def test_an_annotation_that_cannot_be_read_is_said_by_the_next_leader(
    gpu_vcenter: SimulatedVCenter,
    log: Path,
    service_account: Path,
    tmp_path: Path,
    cluster: Cluster,
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
        "metadata": {"name": LEASE},
        "spec": spec,
    }
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
    with suppress(HttpError):  # what another test has left
        await cluster.call("DELETE", f"{leases}/{LEASE}")
    await cluster.call("POST", leases, lease)
    await cluster.patch_node("worker-1", {"metadata": {"annotations": {NEXT: "next tuesday"}}})
    credentials = credentials_in(tmp_path / "vc-creds", gpu_vcenter)
    flags = ("--leader-elect", f"--leader-election-namespace={SYSTEM}")
    async with managing(
        log, service_account, credentials, gpu_vcenter.certificate, *flags
    ) as manager:
        await manager.says("became leader", within=60)

        async def said() -> list[Any]:
            events = (await cluster.call("GET", "/api/v1/events"))["items"]
            return [
                each
                for each in events
                if each["reason"] == "MaintenanceUnreadable" and "next tuesday" in each["message"]
            ]

        (event,) = await eventually(said, within=30)
        assert event["involvedObject"]["name"] == "worker-1"
