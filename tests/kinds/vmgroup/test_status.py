"""The conditions of a VmGroup."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubewright import ObjectMeta
from support.inventory_builder import make_inventory
from vsphere_operators.kinds.vmgroup.model import Counts, Phase, Plan
from vsphere_operators.kinds.vmgroup.reasons import Reason
from vsphere_operators.kinds.vmgroup.status import group_status_of, records_of
from vsphere_operators.kinds.vmgroup.step import StepResult
from vsphere_operators.kinds.vmgroup.types import (
    ReplicaStatus,
    VmGroup,
    VmGroupSpec,
)

from .simulation_model import VCENTER_ID


def make_group() -> VmGroup:
    return VmGroup(
        metadata=ObjectMeta(name="web", namespace="team-a"),
        spec=VmGroupSpec(cpu=1, memory=1, replicas=2, template="t", paused=True),
    )


def make_result(phase: Phase, ready: int) -> StepResult:
    return StepResult(
        plan=Plan(
            records=(),
            write_status_first=False,
            actions=(),
            phase=phase,
            message="",
            counts=Counts(current=2, ready=ready, updated=2),
        ),
        reason=Reason.PROGRESSING,
        vcenter=VCENTER_ID,
        folder=None,
        vms_by_replica={},
        requeue_after_seconds=None,
    )


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
    progressing, degraded = group_status_of(
        make_group(), make_result(phase, ready), make_inventory()
    ).conditions
    assert (progressing.reason, degraded.status, degraded.message) == ("Paused", status, message)


def test_the_status_names_the_vcenter_of_its_records() -> None:
    # Not the one that was loaded at the same address while the step was running: the references in
    # the status would count there.
    inventory = make_inventory()
    inventory.instance_uuid = "B"
    status = group_status_of(make_group(), make_result("PENDING", 1), inventory)
    assert (status.vcenter, status.vcenterUUID) == ("vc", "A")


@pytest.mark.parametrize(("attempt", "ref"), [(1, "vm-9"), (2, "")])
def test_the_reference_of_a_vm_is_kept_until_its_record_is_renewed(attempt: int, ref: str) -> None:
    """Also in a record that is not Present: the VM of a clone is seen before the clone ends."""
    group, result = make_group(), make_result("PENDING", 0)
    group.status.replicas = [
        ReplicaStatus(name="r0", slot=0, instanceUUID="u", state="Planned", moRef="vm-9")
    ]
    record = replace(records_of(group)[0], attempt=attempt)
    result = replace(result, plan=replace(result.plan, records=(record,)))
    assert group_status_of(group, result, make_inventory()).replicas[0].moRef == ref
