"""What a vCenter of a history contains."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from vsphere_operators.vsphere.updates import ObjectUpdate
from vsphere_operators.vsphere.vm_calls import CloneSpec


@dataclass(eq=False)
class Vm:
    ref: str
    name: str
    folder: str
    instance_uuid: str
    extra_config: dict[str, str]
    host: str
    cpus: int
    memory_mb: int
    # The uid of the group for which the manager cloned it, "" if a user made it; and its replica.
    owner: str = ""
    replica: str = ""
    power: str = "poweredOff"
    change_version: int = 1
    disk: str = ""
    disk_attached_at: float = 0.0
    # In the inventory, but the account does not see it.
    hidden: bool = False
    # Not in the inventory: its host was removed, or vCenter restored. It comes back at that time.
    missing_until: float = 0.0
    inaccessible: bool = False
    visible_at: float = 0.0
    # While its clone runs.
    clone: Task | None = None
    # A user brought it back after it was destroyed.
    returned: bool = False
    # What it had before a user made it larger.
    cpus_before: int = 0
    # A user restored or resized it before the manager had read its mark.
    is_unread: bool = False

    @property
    def size(self) -> tuple[int, int, int]:
        return 1, self.cpus, self.memory_mb

    @property
    def label(self) -> str:
        return f"{self.ref} {self.name!r} of {self.owner or 'a user'}"


@dataclass(frozen=True)
class Identity:
    """What set_identity of the manager's calls changes."""

    instance_uuid: str
    # An empty value removes the key.
    extra_config: dict[str, str]
    # Of the VM as the manager read it.
    change_version: str


@dataclass(eq=False)
class VmFolder:
    ref: str
    name: str
    parent: str
    # Whether it was created by a manager, or has the name of a group's folder.
    managed: bool
    hidden: bool = False


@dataclass(eq=False)
class Task:
    ref: str
    method: str
    entity: str
    ends_at: float
    fails: bool
    state: Literal["running", "success", "error"] = "running"
    fault: str = ""
    ended_at: float = 0.0
    vm: Vm | None = None
    size: tuple[int, int] = (0, 0)
    spec: CloneSpec | None = None
    owner: str = ""
    # When a clone shows its VM; after its end, the VM is visible later.
    shown_at: float = 0.0
    visibility_delay: float = 0.0
    folder: str = ""
    entity_name: str = ""
    identity: Identity | None = None


@dataclass(eq=False)
class Watch:
    """The updates that a manager has not received yet, each with the time of the change."""

    queue: deque[tuple[float, ObjectUpdate]] = field(default_factory=deque)
