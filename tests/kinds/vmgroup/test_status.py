"""The conditions of a VmGroup."""

from __future__ import annotations

import pytest

from kubewright import ObjectMeta
from support.inventory_builder import make_inventory
from vsphere_operators.kinds.vmgroup.model import Counts, Phase, Plan
from vsphere_operators.kinds.vmgroup.reasons import Reason
from vsphere_operators.kinds.vmgroup.status import status_of
from vsphere_operators.kinds.vmgroup.step import StepResult
from vsphere_operators.kinds.vmgroup.types import VmGroup, VmGroupSpec


@pytest.mark.parametrize(
    ("phase", "ready", "status", "message"),
    [
        ("ERROR", 1, "True", "1/2 replicas are ready."),
        # Also while the group is paused, or its VMs only power on: nothing is created then.
        ("PENDING", 1, "False", "1/2 replicas are ready; the group is not in phase ERROR."),
        ("RUNNING", 2, "False", "All replicas are ready."),
    ],
)
def test_degraded_reports_the_replicas_that_are_ready(
    phase: Phase, ready: int, status: str, message: str
) -> None:
    group = VmGroup(
        metadata=ObjectMeta(name="web", namespace="team-a"),
        spec=VmGroupSpec(cpu=1, memory=1, replicas=2, template="t", paused=True),
    )
    plan = Plan(
        records=(),
        write_status_first=False,
        actions=(),
        phase=phase,
        message="",
        counts=Counts(current=2, ready=ready, updated=2),
    )
    result = StepResult(
        plan=plan,
        reason=Reason.PROGRESSING,
        folder=None,
        vms_by_replica={},
        requeue_after_seconds=None,
    )
    progressing, degraded = status_of(group, result, make_inventory()).conditions
    assert (progressing.reason, degraded.status, degraded.message) == ("Paused", status, message)
