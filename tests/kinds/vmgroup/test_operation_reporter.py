"""The metrics of operations, and the Events of those that the status does not show."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from kubewright.metrics import Metrics
from vsphere_operators.kinds.vmgroup.group_memory import GroupMemoryStore
from vsphere_operators.kinds.vmgroup.metrics import VmGroupMetrics
from vsphere_operators.kinds.vmgroup.model import (
    Action,
    Clone,
    Destroy,
    DestroyFolder,
    OperationFailure,
    PowerOff,
    PowerOn,
    Resize,
)
from vsphere_operators.kinds.vmgroup.operation_reporter import OperationReporter

from .replica_builder import DESIRED, FOLDER, make_record, make_vm
from .simulation_model import GROUP_ID

CLONE = Clone(make_record(0, state="Planned"), "t", power_on=True)
OFF_VM = make_vm(0, power="poweredOff")
STOPPED = replace(DESIRED, power="poweredOff")


class ReporterHarness:
    def __init__(self) -> None:
        self.registry = Metrics()
        self.metrics = VmGroupMetrics(self.registry)
        self.memory_store = GroupMemoryStore(lambda: 0.0)
        self.reporter = OperationReporter(self.memory_store, self.metrics.for_vcenter("vc"))
        self.events: list[tuple[str, str, str]] = []

    def report(self, *actions: Action, desired: Any = DESIRED, **changes: Any) -> list[str]:
        """Report that the actions have succeeded; returns the new Events."""
        group = self.make_group(desired, **changes)
        before = len(self.events)
        for action in actions:
            self.reporter.report_success(group, action, 7.0)
        return [f"{reason}: {message}" for _, reason, message in self.events[before:]]

    def make_group(self, desired: Any = DESIRED, **changes: Any) -> Any:
        return cast(
            "Any",
            SimpleNamespace(
                group_id=GROUP_ID,
                desired=desired,
                records=(make_record(0, **changes),),
                record_event=lambda *event: self.events.append(event),
            ),
        )

    def read(self, name: str) -> dict[str, float]:
        """The samples of a metric that are not 0, by their labels without the vCenter."""
        return {
            ",".join(value for label, value in sample.labels.items() if label != "vcenter"): (
                sample.value
            )
            for family in self.registry.registry.collect()
            for sample in family.samples
            if sample.name == name and sample.value
        }


@pytest.fixture
def harness() -> ReporterHarness:
    return ReporterHarness()


def test_clones_and_deletions_are_counted_by_their_cause(harness: ReporterHarness) -> None:
    # events.py reports them: the status shows them.
    assert harness.report(CLONE) == []
    harness.memory_store.for_group(GROUP_ID.uid).creation_causes["r0"] = "replacement"
    assert harness.report(CLONE, Destroy(OFF_VM), DestroyFolder(FOLDER)) == []
    created = harness.read("vsphere_vmgroup_vms_created_total")
    assert created == {"unknown": 1.0, "replacement": 1.0}
    assert harness.read("vsphere_vmgroup_vms_destroyed_total") == {"scale_down": 1.0}
    assert harness.read("vsphere_vmgroup_clone_duration_seconds_sum") == {"": 14.0}


def test_a_vm_that_was_off_or_suspended_is_powered_on(harness: ReporterHarness) -> None:
    suspended = make_vm(0, power="suspended")
    assert harness.report(PowerOn(OFF_VM), PowerOn(suspended)) == [
        'VMPoweredOn: Powered on VM "r0", which was powered off.',
        'VMPoweredOn: Powered on VM "r0", which was suspended.',
    ]
    # It is only resumed to be powered off.
    powered_off = 'VMPoweredOff: Powered off VM "r0": spec.powerState is poweredOff.'
    actions = PowerOn(suspended), PowerOff(make_vm(0))
    assert harness.report(*actions, desired=STOPPED) == [powered_off]


def test_a_resize_is_one_event(harness: ReporterHarness) -> None:
    resize = Resize(OFF_VM, 2, 1, 2048)
    assert harness.report(PowerOff(make_vm(0)), resize, PowerOn(OFF_VM)) == [
        'VMResized: Resized VM "r0" from 1 vCPU and 1024 MB to 2 vCPUs and 2048 MB.'
    ]
    # The next time, a user has powered it off.
    assert len(harness.report(PowerOn(OFF_VM))) == 1


def test_a_vm_that_is_powered_off_to_be_deleted_is_no_event(harness: ReporterHarness) -> None:
    deleting = replace(DESIRED, deleting=True)
    assert harness.report(PowerOff(make_vm(0)), terminating=True) == []
    assert harness.report(PowerOff(make_vm(0)), desired=deleting) == []
    memory = harness.memory_store.for_group(GROUP_ID.uid)
    assert memory.refs_stopped_for_resize == set()


def test_a_failure_is_an_event_if_ready_does_not_report_it(harness: ReporterHarness) -> None:
    group, report_failure = harness.make_group(), harness.reporter.report_failure
    report_failure(group, CLONE, OperationFailure("no response"))
    report_failure(group, PowerOn(OFF_VM), OperationFailure("busy"))
    report_failure(group, CLONE, OperationFailure("no space", permanent=True))
    assert harness.events == [
        ("Warning", "CloneFailed", "no response"),
        ("Warning", "OperationFailed", "busy"),
    ]
    assert harness.read("vsphere_vmgroup_clone_failures_total") == {"": 2.0}


def test_groups_are_counted_by_phase(harness: ReporterHarness) -> None:
    phases = ["RUNNING", "RUNNING", "", "PENDING"]
    groups = [SimpleNamespace(status=SimpleNamespace(phase=phase)) for phase in phases]
    harness.metrics.count_phases(lambda: cast("Any", groups))
    assert harness.read("vsphere_vmgroups") == {"RUNNING": 2.0, "PENDING": 2.0}
    groups.clear()
    assert harness.read("vsphere_vmgroups") == {}
