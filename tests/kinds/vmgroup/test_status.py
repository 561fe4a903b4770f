"""The conditions of a VmGroup."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubewright import ObjectMeta
from support.inventory_builder import make_inventory
from vsphere_operators.kinds.vmgroup.messages import SUCCESS_MESSAGE
from vsphere_operators.kinds.vmgroup.model import Counts, Phase, Plan
from vsphere_operators.kinds.vmgroup.reasons import Reason
from vsphere_operators.kinds.vmgroup.status import (
    group_status_of,
    records_of,
    report_without_plan,
    summarize,
)
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


def test_the_last_known_host_stays_while_the_vm_is_missing() -> None:
    group = make_group()
    group.status.replicas = [
        ReplicaStatus(
            name="r0", slot=0, instanceUUID="u", state="Present", moRef="vm-9", host="esxi-1"
        )
    ]
    (record,) = records_of(group)
    for attempt, host in ((1, "esxi-1"), (2, "")):
        result = make_result("PENDING", 1)
        records = (replace(record, attempt=attempt),)
        result = replace(result, plan=replace(result.plan, records=records))
        (replica,) = group_status_of(group, result, make_inventory()).replicas
        assert (replica.host, replica.power) == (host, "")


@pytest.mark.parametrize(
    ("phase", "ready", "status", "reason", "message"),
    [
        (
            "ERROR",
            1,
            "True",
            "TooFewReady",
            "1/2 replicas are ready; the condition Ready has the error.",
        ),
        # Such as a group above its quota: its VMs cannot be resized.
        (
            "ERROR",
            2,
            "True",
            "InError",
            "All replicas are ready; the condition Ready has the error.",
        ),
        # Also while the group is paused, or its VMs only power on: nothing is created then.
        (
            "PENDING",
            1,
            "False",
            "NotInError",
            "1/2 replicas are ready; the group is not in phase ERROR.",
        ),
        ("RUNNING", 2, "False", "NotInError", "All replicas are ready."),
    ],
)
def test_degraded_is_true_exactly_in_phase_error(
    phase: Phase, ready: int, status: str, reason: str, message: str
) -> None:
    progressing, degraded = group_status_of(
        make_group(), make_result(phase, ready), make_inventory()
    ).conditions
    assert progressing.reason == "Paused"
    assert (degraded.status, degraded.reason, degraded.message) == (status, reason, message)


def test_a_group_without_a_usable_vcenter_keeps_its_records() -> None:
    group = make_group()
    group.status.replicas = [ReplicaStatus(name="r0", slot=0, instanceUUID="u", state="Present")]
    group.status.readyReplicas = 1
    report_without_plan(group, "ERROR", "The VMs are in vCenter A. Restore it.")
    status = group.status
    assert (status.phase, status.lastMessage, status.summary, status.desiredReplicas) == (
        "ERROR",
        "The VMs are in vCenter A. Restore it.",
        "The VMs are in vCenter A",
        2,
    )
    (degraded,) = status.conditions
    assert (degraded.type, degraded.status, degraded.reason) == ("Degraded", "True", "TooFewReady")
    assert [replica.name for replica in status.replicas] == ["r0"]


@pytest.mark.parametrize(
    ("message", "summary"),
    [
        (SUCCESS_MESSAGE, SUCCESS_MESSAGE),
        ("2/3 replicas ready; cloning 1", "2/3 replicas ready; cloning 1"),
        (
            'Template "a" not found in /DC0. Create it there, or change spec.template.',
            'Template "a" not found in /DC0',
        ),
        # A dot inside a name does not end the sentence.
        ("Host esxi-1.example.com is gone.", "Host esxi-1.example.com is gone"),
        (
            "Waiting for the quota of the namespace: VMs of this group still count",
            "Waiting for the quota of the namespace: VMs…",
        ),
        ("x" * 50, "x" * 44 + "…"),
    ],
)
def test_the_summary_fits_a_column(message: str, summary: str) -> None:
    assert summarize(message) == summary
    assert len(summary) <= 45


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
