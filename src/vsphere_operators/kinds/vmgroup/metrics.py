"""The Prometheus metrics of VmGroups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import get_args

from kubewright.metrics import Metrics

from .model import CreationCause, DeletionCause, Phase
from .types import VmGroup

# A linked clone takes seconds; a full clone of a large disk takes up to an hour.
_CLONE_BUCKETS = (1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0)


class VmGroupMetrics:
    """The metrics of all VmGroups, on the manager's registry."""

    def __init__(self, metrics: Metrics) -> None:
        self._groups = metrics.new_gauge(
            "vsphere_vmgroups",
            "Number of VmGroups in the cache, by phase; without a phase yet, they are PENDING",
            ["phase"],
        )
        self.created = metrics.new_counter(
            "vsphere_vmgroup_vms_created_total",
            "Number of VMs that the manager created, by the reason: "
            f"{', '.join(get_args(CreationCause))}",
            ["vcenter", "reason"],
        )
        self.destroyed = metrics.new_counter(
            "vsphere_vmgroup_vms_destroyed_total",
            "Number of VMs that the manager destroyed, by the reason: "
            f"{', '.join(get_args(DeletionCause))}",
            ["vcenter", "reason"],
        )
        self.clone_failures = metrics.new_counter(
            "vsphere_vmgroup_clone_failures_total",
            "Number of clones that vCenter rejected, that failed or that got no response",
            ["vcenter"],
        )
        self.clone_seconds = metrics.new_histogram(
            "vsphere_vmgroup_clone_duration_seconds",
            "How long successful clones took, from the request until the end of the task",
            ["vcenter"],
            _CLONE_BUCKETS,
        )

    def count_phases(self, list_groups: Callable[[], Iterable[VmGroup]]) -> None:
        """Count the groups at each scrape."""

        def count(phase: Phase) -> int:
            return sum((group.status.phase or "PENDING") == phase for group in list_groups())

        for phase in get_args(Phase):
            self._groups.labels(phase).set_function(partial(count, phase))

    def for_vcenter(self, vcenter: str) -> OperationMetrics:
        return OperationMetrics(self, vcenter)


class OperationMetrics:
    """The series of one vCenter. They exist from the start with 0, so that rates are right."""

    def __init__(self, metrics: VmGroupMetrics, vcenter: str) -> None:
        self.created = {
            cause: metrics.created.labels(vcenter, cause) for cause in get_args(CreationCause)
        }
        self.destroyed = {
            cause: metrics.destroyed.labels(vcenter, cause) for cause in get_args(DeletionCause)
        }
        self.clone_failures = metrics.clone_failures.labels(vcenter)
        self.clone_seconds = metrics.clone_seconds.labels(vcenter)
