"""The HorizontalPodAutoscaler controller reads and writes the scale of a VmGroup."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from support.manager_process import SYSTEM_NAMESPACE
from support.vmgroup_client import VMGROUP_API_VERSION, VmGroupClient

from .crash_run import run_observed_manager, run_simulator

AUTOSCALER = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web"},
    "spec": {
        "scaleTargetRef": {"apiVersion": VMGROUP_API_VERSION, "kind": "VmGroup", "name": "web"},
        "minReplicas": 2,
        "maxReplicas": 4,
        "metrics": [
            {
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 50},
                },
            }
        ],
    },
}


@pytest.fixture(scope="module")
def autoscaling_control_plane(
    pytestconfig: pytest.Config, binaries_with_controllers: dict[str, Path]
) -> Iterator[ControlPlane]:
    """A control plane with the HorizontalPodAutoscaler controller."""
    plane = ControlPlane(
        binaries_with_controllers, controllers=["horizontal-pod-autoscaler-controller"]
    )
    plane.start_sync()
    plane.create_namespace(SYSTEM_NAMESPACE)
    for part in ("crd", "rbac"):
        plane.kubectl("apply", "-k", str(pytestconfig.rootpath / "config" / part))
    plane.wait_for_crds()
    yield plane
    plane.stop_sync()


async def test_an_autoscaler_scales_a_group_and_finds_the_selector(
    pytestconfig: pytest.Config, autoscaling_control_plane: ControlPlane, tmp_path: Path
) -> None:
    groups = VmGroupClient(autoscaling_control_plane, "default")
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"

    async def conditions() -> dict[str, Any]:
        status = (await groups.call("GET", f"{path}/web")).get("status", {})
        return {condition["type"]: condition for condition in status.get("conditions", [])}

    async def scaled() -> bool:
        conditions_by_type = await conditions()
        return bool(
            conditions_by_type["AbleToScale"]["status"] == "True"
            and (await groups.get("web"))["spec"]["replicas"] == 2
        )

    async with (
        run_simulator(pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim") as vcenter,
        run_observed_manager(autoscaling_control_plane, vcenter, "default", tmp_path / "manager"),
    ):
        await groups.create("web", replicas=1)
        await groups.wait_for_phase("web", "RUNNING")
        await groups.call("POST", path, AUTOSCALER)
        # One replica is below minReplicas, so it has to scale even without any metric.
        await eventually(scaled, within=60)
        status = await groups.wait_for_phase(
            "web", "RUNNING", predicate=lambda status: status["currentReplicas"] == 2
        )
        assert status["selector"]
        conditions_now = [*(await conditions()).values()]
        events = await asyncio.to_thread(
            autoscaling_control_plane.kubectl, "get", "events", "-o", "yaml"
        )
        assert "InvalidSelector" not in [condition["reason"] for condition in conditions_now]
        assert "selector is required" not in f"{conditions_now}{events}"
        assert "missing a selector" not in f"{conditions_now}{events}"
