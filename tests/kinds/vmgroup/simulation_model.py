"""The values of the simulation in simulation.py."""

from __future__ import annotations

from dataclasses import dataclass, field
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

GROUP_ID = GroupId(cluster_id="c1", namespace="team-a", name="web", uid="uid-1")


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

    @property
    def mark(self) -> OwnershipMark | None:
        return mark_from_extra_config(self.extra_config)

    @property
    def is_owned(self) -> bool:
        return is_owned_by(self.mark, self.instance_uuid, GROUP_ID)


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


@dataclass
class StoredGroup:
    """One version of the object in the API server."""

    version: int
    desired: DesiredState
    records: tuple[ReplicaRecord, ...] = ()


@dataclass
class ManagerState:
    """The memory of a manager process, lost when it dies."""

    cached_group: StoredGroup
    watching_since: float
    clone_requests: dict[str, CloneRequest] = field(default_factory=dict)
    failures: dict[str, tuple[OperationFailure, float]] = field(default_factory=dict)
