"""The values of the simulation in simulation.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from vsphere_operators.kinds.vmgroup.group_memory import CloneRequest
from vsphere_operators.kinds.vmgroup.model import (
    DesiredState,
    OperationFailure,
    ReplicaRecord,
    VmPowerState,
)
from vsphere_operators.kinds.vmgroup.ownership import (
    GroupId,
    OwnershipMark,
    is_owned_by,
    mark_from_extra_config,
)
from vsphere_operators.kinds.vmgroup.step import VCenterId

GROUP_ID = GroupId(cluster_id="c1", namespace="team-a", name="web", uid="uid-1")
VCENTER_ID = VCenterId(name="vc", instance_uuid="A")


# The simulation reads the marks of all VMs several times in each step: without these caches, that
# is half of the CPU time of the tests.
@lru_cache(maxsize=1024)
def _read_mark(extra_config: tuple[tuple[str, str], ...]) -> OwnershipMark | None:
    return mark_from_extra_config(dict(extra_config))


@lru_cache(maxsize=1024)
def _is_owned(extra_config: tuple[tuple[str, str], ...], instance_uuid: str) -> bool:
    return is_owned_by(_read_mark(extra_config), instance_uuid, GROUP_ID)


@dataclass
class SimulatedVm:
    ref: str
    inventory_name: str
    folder: str
    instance_uuid: str
    extra_config: dict[str, str]
    power: VmPowerState = "poweredOn"
    cpus: int = 1
    memory_mb: int = 1024
    foreign_disks: tuple[str, ...] = ()
    unavailable: bool = False
    visible_at: float = 0.0
    # Until its clone ends, vCenter rejects all other tasks.
    is_being_cloned: bool = False

    @property
    def mark(self) -> OwnershipMark | None:
        return _read_mark(tuple(self.extra_config.items()))

    @property
    def is_owned(self) -> bool:
        return _is_owned(tuple(self.extra_config.items()), self.instance_uuid)


@dataclass
class CloneCall:
    """A clone, from the request to its end."""

    record: ReplicaRecord
    desired: DesiredState
    begins_at: float
    ref: str
    ends_at: float
    fails: bool
    visibility_delay_seconds: float
    is_from_user: bool = False
    state: Literal["wire", "running", "success", "error"] = "wire"
    ended_at: float = 0.0
    # When vCenter shows the VM of a running clone; None: only at the end.
    shown_at: float | None = None
    vm: SimulatedVm | None = None


@dataclass
class VmTask:
    """Any other task on a VM."""

    action_type: type
    vm: SimulatedVm
    ends_at: float
    fails: bool
    size: tuple[int, int] = (0, 0)


@dataclass
class CallOutcome:
    """What happens to the next call."""

    duration_seconds: float = 1.0
    fails: bool = False
    start_delay_seconds: float = 0.0
    visibility_delay_seconds: float = 0.0
    answer_is_lost: bool = False
    # The share of the duration after which the inventory shows the VM of a clone.
    shown_after: float = 1.0


@dataclass
class StoredGroup:
    """One version of the object in the API server."""

    version: int
    desired: DesiredState
    records: tuple[ReplicaRecord, ...] = ()
    # MoRefs of the VMs by replica.
    refs: dict[str, str] = field(default_factory=dict)


@dataclass
class ManagerState:
    """The memory of a manager process, lost when it dies."""

    cached_group: StoredGroup
    watching_since: float
    clone_requests: dict[str, CloneRequest] = field(default_factory=dict)
    failures: dict[str, tuple[OperationFailure, float]] = field(default_factory=dict)

    def find_request(self, record: ReplicaRecord) -> CloneRequest | None:
        request = self.clone_requests.get(record.name)
        return request if request and request.attempt == record.attempt else None
