"""What the world of world.py is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from vsphere_operators.kinds.vmgroup.clone_state import CloneRequest
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

GROUP = GroupId(cluster_id="c1", namespace="team-a", name="web", uid="uid-1")


@dataclass
class Machine:
    ref: str
    shown_name: str
    folder: str
    instance_uuid: str
    options: dict[str, str]
    power: VmPowerState = "poweredOn"
    cpus: int = 1
    memory_mb: int = 1024
    disks: tuple[str, ...] = ()
    broken: bool = False
    visible_at: float = 0.0

    @property
    def mark(self) -> OwnershipMark | None:
        return mark_from_extra_config(self.options)

    @property
    def is_ours(self) -> bool:
        return is_owned_by(self.mark, self.instance_uuid, GROUP)


@dataclass
class Call:
    """A clone, from the wire to its end."""

    record: ReplicaRecord
    wish: DesiredState
    begins_at: float
    ref: str
    ends_at: float
    fails: bool
    sight_seconds: float
    is_person: bool = False
    state: Literal["wire", "running", "success", "error"] = "wire"
    ended_at: float = 0.0


@dataclass
class Job:
    """Any other task, on one VM."""

    kind: type
    machine: Machine
    ends_at: float
    fails: bool
    size: tuple[int, int] = (0, 0)


@dataclass
class Chance:
    """What befalls the next call."""

    seconds: float = 1.0
    fails: bool = False
    late_seconds: float = 0.0
    sight_seconds: float = 0.0
    answer_is_lost: bool = False


@dataclass
class Stored:
    """The object in the API server."""

    version: int
    wish: DesiredState
    records: tuple[ReplicaRecord, ...] = ()


@dataclass
class Manager:
    """What a process knows; all of it ends with the process."""

    view: Stored
    watching_since: float
    sent: dict[str, CloneRequest] = field(default_factory=dict)
    troubles: dict[str, tuple[OperationFailure, float]] = field(default_factory=dict)
