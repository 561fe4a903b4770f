"""The Events that follow from two stored versions of a group."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from kubewright import Condition, Key
from kubewright.cache import Origin
from kubewright.kind import ObjectMeta
from support.inventory_builder import make_inventory
from vsphere_operators.kinds.vmgroup.events import VmGroupEvents, list_events
from vsphere_operators.kinds.vmgroup.fingerprint import compute_fingerprints
from vsphere_operators.kinds.vmgroup.types import (
    ReplicaStatus,
    RolloutSpec,
    VmGroup,
    VmGroupSpec,
    VmGroupStatus,
)

SPEC = VmGroupSpec(cpu=1, memory=1, replicas=2, template="t")
PRESENT = ReplicaStatus(
    name="r0",
    slot=0,
    instanceUUID="u",
    fingerprint=compute_fingerprints(SPEC)[0],
    state="Present",
    cpu=1,
    memoryMB=1024,
    moRef="vm-1",
    power="poweredOn",
    host="esxi-1",
)
PLANNED = replace(PRESENT, state="Planned", moRef="", power="", host="")
CLONING = replace(PLANNED, state="Cloning", task="task-7")
TERMINATING = replace(PRESENT, leaving=True)


def make_group(
    *replicas: ReplicaStatus,
    spec: VmGroupSpec = SPEC,
    deleting: bool = False,
    ready_reason: str = "",
    uid: str = "uid-1",
) -> VmGroup:
    metadata = ObjectMeta(
        name="web",
        namespace="n",
        uid=uid,
        resourceVersion="5",
        deletionTimestamp=datetime.now(UTC) if deleting else None,
    )
    conditions = [Condition(type="Ready", status="False", reason=ready_reason, message="")]
    status = VmGroupStatus(
        replicas=list(replicas),
        observedGeneration=1,
        lastMessage="the details",
        conditions=conditions if ready_reason else [],
        vcenter="vc",
    )
    return VmGroup(metadata=metadata, spec=spec, status=status)


def compare(old: VmGroup, new: VmGroup, inventory: Any = None) -> list[tuple[str, str, str]]:
    return [(event.type, event.reason, event.message) for event in list_events(old, new, inventory)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (PLANNED, CLONING, ("Normal", 'CloneStarted: Cloning VM "r0" from template "t" (task-7).')),
        (CLONING, PRESENT, ("Normal", 'VMReady: VM "r0" is ready on host "esxi-1".')),
        # The response to the clone was lost.
        (PLANNED, PRESENT, ("Normal", 'VMReady: VM "r0" is ready on host "esxi-1".')),
        (
            PRESENT,
            replace(PLANNED, attempt=2),
            (
                "Warning",
                'VMGone: VM "r0" (vm-1 on host "esxi-1") no longer exists in vCenter, and the '
                "manager did not delete it. It is cloned again under the same name.",
            ),
        ),
        (TERMINATING, None, ("Normal", 'VMDeleted: Deleted VM "r0": spec.replicas is 2.')),
        (
            PRESENT,
            None,
            (
                "Warning",
                'VMGone: VM "r0" (vm-1 on host "esxi-1") no longer exists in vCenter, and the '
                "manager did not delete it.",
            ),
        ),
    ],
)
def test_a_change_of_a_replica_is_an_event(
    before: ReplicaStatus, after: ReplicaStatus | None, expected: tuple[str, str]
) -> None:
    new = make_group(*([after] if after else []))
    events = compare(make_group(before), new)
    assert [(type, f"{reason}: {message}") for type, reason, message in events] == [expected]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (PRESENT, PRESENT),
        (None, PLANNED),
        # A clone that failed is tried again: its failure was reported.
        (CLONING, replace(PLANNED, attempt=2)),
        # VMReady follows when it is powered on.
        (CLONING, replace(PRESENT, power="poweredOff")),
        (PRESENT, replace(PRESENT, power="poweredOff")),
        # It was ready before: VMPoweredOn reports it.
        (replace(PRESENT, power="poweredOff"), PRESENT),
        # Scaled down: VMDeleted follows.
        (PRESENT, TERMINATING),
        # It never had a VM.
        (replace(PLANNED, leaving=True), None),
        # An adopted VM: its clone may run.
        (None, replace(PRESENT, state="Cloning")),
    ],
)
def test_other_changes_of_a_replica_are_no_event(
    before: ReplicaStatus | None, after: ReplicaStatus | None
) -> None:
    old, new = (make_group(*([replica] if replica else [])) for replica in (before, after))
    assert compare(old, new) == []


def report_changes(events: VmGroupEvents, *versions: VmGroup | None) -> None:
    for old, new in pairwise(versions):
        events.on_group_change(Key("n", "web"), old, new, Origin.WATCH)


def test_a_vm_that_is_powered_on_after_its_clone_is_ready_once() -> None:
    reasons: list[str] = []
    leads = False
    recorder = SimpleNamespace(event=lambda *event, **options: reasons.append(event[2]))
    events = VmGroupEvents(cast("Any", recorder), {"vc": make_inventory()}, lambda: leads)
    powered_off = replace(PRESENT, power="poweredOff")
    # A standby receives the first versions.
    report_changes(events, make_group(CLONING), make_group(powered_off))
    leads = True
    report_changes(
        events,
        make_group(powered_off),
        make_group(replace(powered_off, ipAddress="192.0.2.1")),
        make_group(PRESENT),
        # A user powers it off.
        make_group(powered_off),
        make_group(PRESENT),
    )
    assert reasons == ["VMReady"]


def test_a_deleted_group_is_forgotten() -> None:
    reasons: list[str] = []
    recorder = SimpleNamespace(event=lambda *event, **options: reasons.append(event[2]))
    events = VmGroupEvents(cast("Any", recorder), {}, lambda: True)
    powered_off = make_group(replace(PRESENT, power="poweredOff"))
    report_changes(events, make_group(CLONING), powered_off, None)
    report_changes(events, powered_off, make_group(PRESENT))
    assert reasons == []


def test_a_rollout_names_what_has_changed() -> None:
    template_changed = replace(SPEC, template="t2")
    old = make_group(PRESENT, spec=template_changed)
    terminating = make_group(TERMINATING, spec=template_changed)
    message = (
        'Replacing VM "r0": spec.template, spec.linkedClone or spec.storagePolicy has changed.'
    )
    assert compare(old, terminating) == [("Normal", "RollingUpdate", message)]
    deleted = ("Normal", "VMDeleted", 'Deleted VM "r0": a new VM replaces it.')
    assert compare(terminating, make_group(spec=template_changed)) == [deleted]

    resized = replace(SPEC, cpu=2, rollout=RolloutSpec(maxSurge=1, maxUnavailable=0))
    message = (
        'Replacing VM "r0": spec.cpu or spec.memory has changed, and '
        "spec.rollout.maxUnavailable is 0."
    )
    events = compare(make_group(PRESENT, spec=resized), make_group(TERMINATING, spec=resized))
    assert events == [("Normal", "RollingUpdate", message)]


def test_the_deletion_of_a_group_is_the_cause_of_its_deletions() -> None:
    terminating = make_group(TERMINATING, deleting=True)
    assert compare(make_group(PRESENT), terminating) == []
    message = 'Deleted VM "r0": the VmGroup is being deleted.'
    assert compare(terminating, make_group(deleting=True)) == [("Normal", "VMDeleted", message)]
    # If its VM is gone, the replica is dropped at once.
    assert compare(make_group(PRESENT, deleting=True), make_group(deleting=True)) == []


def test_a_vm_without_its_mark_is_released() -> None:
    inventory = SimpleNamespace(vms={"vm-1": None}, path=lambda ref: "/DC0/vm/renamed")
    ((type, reason, message),) = compare(make_group(PRESENT), make_group(), inventory)
    assert (type, reason) == ("Warning", "VMReleased")
    assert message.startswith('VM "r0" (/DC0/vm/renamed) no longer belongs to this group: its ')
    assert message.endswith("It is left as it is, and a new VM replaces it.")


@pytest.mark.parametrize("state", ["Present", "Cloning"])
def test_a_vm_that_was_given_back_is_not_called_released(state: Any) -> None:
    adopted = replace(PRESENT, state=state, adoptedFrom="uuid-before")
    vm = SimpleNamespace(instance_uuid="UUID-before")
    inventory = SimpleNamespace(vms={"vm-1": vm}, path=lambda ref: "/DC0/vm/a")
    assert compare(make_group(adopted), make_group(), inventory) == []


def test_a_vm_that_lost_its_mark_while_it_was_to_be_deleted_is_not_called_deleted() -> None:
    inventory = SimpleNamespace(vms={"vm-1": None}, path=lambda ref: "/DC0/vm/renamed")
    ((type, reason, message),) = compare(make_group(TERMINATING), make_group(), inventory)
    assert (type, reason) == ("Warning", "VMReleased")
    assert message.endswith("It is left as it is.")


@pytest.mark.parametrize("reason", ["VMMissing", "VMUnavailable"])
def test_waiting_for_a_vm_is_reported_once(reason: str) -> None:
    before = make_group(PRESENT, ready_reason="Progressing")
    waiting = make_group(PRESENT, ready_reason=reason)
    assert compare(before, waiting) == [("Warning", reason, "the details")]
    assert compare(waiting, waiting) == []


def test_a_status_that_was_wiped_reports_nothing() -> None:
    wiped = make_group()
    wiped.status = VmGroupStatus()
    assert compare(make_group(PRESENT, TERMINATING), wiped) == []


@pytest.mark.parametrize(
    ("old", "holds_lease", "count"),
    [
        (make_group(CLONING), True, 1),
        (make_group(CLONING), False, 0),
        (None, True, 0),
        # Deleted and created again between two lists.
        (make_group(CLONING, uid="uid-0"), True, 0),
    ],
)
def test_only_the_leader_reports_changes_of_one_object(
    old: VmGroup | None, holds_lease: bool, count: int
) -> None:
    calls: list[Any] = []
    recorder = SimpleNamespace(event=lambda *event, **options: calls.append((event, options)))
    events = VmGroupEvents(cast("Any", recorder), {"vc": make_inventory()}, lambda: holds_lease)
    new = make_group(PRESENT)
    events.on_group_change(Key("n", "web"), old, new, Origin.OWN_WRITE)
    assert len(calls) == count
    for event, options in calls:
        assert (event[0], event[2], options) == (new, "VMReady", {"once_per_version": True})
