"""The order of the checks before a call to vCenter, and what remains after it failed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubewright.errors import NotLeader
from kubewright.log import Log
from support.inventory_builder import make_inventory
from vsphere_operators.kinds.vmgroup.executor import Executor
from vsphere_operators.kinds.vmgroup.group_memory import CloneTaskTracker, GroupMemoryStore
from vsphere_operators.kinds.vmgroup.model import Clone, Destroy
from vsphere_operators.kinds.vmgroup.ownership import OwnershipMark, mark_to_extra_config
from vsphere_operators.vsphere.faults import NotAuthenticated, Rejected, Unreachable
from vsphere_operators.vsphere.task_limiter import TaskLimiter
from vsphere_operators.vsphere.vm_calls import CurrentVm, VmConfig

from .replica_builder import DESIRED, make_record, make_vm
from .simulation_model import GROUP_ID

RECORD = make_record(0, state="Planned")
CLONE = Clone(RECORD, "t", power_on=True)
MARK = OwnershipMark(group_id=GROUP_ID, replica_name="r0", sequence_number=0, fingerprint="f1")


class ExecutorHarness:
    """An executor with a fake session and fake calls, which append to `events`."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.clone_errors: list[Exception] = []
        self.is_leader = True
        self.deletion_confirmed = True
        self.extra_config = mark_to_extra_config(MARK)
        self.limiter = TaskLimiter(make_inventory(), Log("test"), clock=lambda: 100.0)
        self.memory_store = GroupMemoryStore(lambda: 100.0)
        vcenter = SimpleNamespace(
            inventory=make_inventory(),
            clock=lambda: 100.0,
            session=self,
            task_limiter=self.limiter,
            vm_calls=self,
            vm_configs=SimpleNamespace(request_refresh=lambda ref: self.log(f"refresh {ref}")),
        )
        self.executor = Executor(
            cast("Any", vcenter),
            cast("Any", self),
            self.memory_store,
            CloneTaskTracker(lambda: 100.0),
            self.can_write,
            lambda uid: None,
        )
        self.group = cast(
            "Any",
            SimpleNamespace(group_id=GROUP_ID, desired=DESIRED, log=lambda _: self.log("log")),
        )
        self.for_group.expect_records([], [RECORD])

    @property
    def for_group(self) -> Any:
        return self.memory_store.for_group(GROUP_ID.uid)

    @property
    def clone_outcome(self) -> str:
        return str(self.for_group.clone_requests[RECORD.name].outcome)

    def log(self, event: str) -> None:
        self.events.append(event)

    def can_write(self) -> bool:
        self.log("lease")
        return self.is_leader

    # The session

    login_count = 1

    async def login(self) -> None:
        self.log("login")

    async def renew(self, login_count: int) -> None:
        self.log(f"renew {login_count}")

    # The API server

    async def confirm_deletion(self, group_id: Any, replica: str = "") -> bool:
        self.log("confirm")
        return self.deletion_confirmed

    # vCenter

    async def clone(self, spec: Any, snapshot: Any) -> str:
        self.log(f"clone {self.clone_outcome}")
        if self.clone_errors:
            raise self.clone_errors.pop(0)
        return "task-1"

    async def read_current_snapshot(self, template: str) -> Any:
        self.log("snapshot")

    async def read_vm(self, ref: str) -> CurrentVm:
        self.log("read")
        return CurrentVm(RECORD.instance_uuid, "", VmConfig(self.extra_config))

    async def destroy(self, ref: str) -> str:
        self.log("destroy")
        return "task-2"

    async def send_clone(self, *, linked: bool = False) -> None:
        spec = SimpleNamespace(template="vm-t1", linked=linked)
        await self.executor.clone(self.group, CLONE, cast("Any", spec))

    async def send_destroy(self) -> None:
        await self.executor.change_vm(self.group, Destroy(make_vm(0, power="poweredOff")))


@pytest.fixture
def harness() -> ExecutorHarness:
    return ExecutorHarness()


async def test_the_lease_is_checked_last_before_a_clone(harness: ExecutorHarness) -> None:
    await harness.send_clone()
    # The request is recorded as sent without response before it is sent: the response may be lost.
    assert harness.events == ["login", "lease", "log", "clone maybe_sent"]
    assert harness.clone_outcome == "accepted"
    assert set(harness.limiter.running) == set(harness.executor.pending_tasks) == {"task-1"}


async def test_the_snapshot_of_a_linked_clone_is_read_before_the_lease(
    harness: ExecutorHarness,
) -> None:
    await harness.send_clone(linked=True)
    assert harness.events == ["login", "snapshot", "lease", "log", "clone maybe_sent"]


async def test_without_the_lease_no_clone_is_sent(harness: ExecutorHarness) -> None:
    harness.is_leader = False
    with pytest.raises(NotLeader):
        await harness.send_clone()
    assert harness.events == ["login", "lease"]
    assert (harness.clone_outcome, harness.limiter.free_slots) == ("unsent", 3)


async def test_all_checks_are_repeated_in_a_new_session(harness: ExecutorHarness) -> None:
    harness.clone_errors = [NotAuthenticated("the session has ended")]
    await harness.send_clone()
    once = ["login", "lease", "log", "clone maybe_sent"]
    assert harness.events == [*once, "renew 1", *once]
    assert harness.clone_outcome == "accepted"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(Rejected("no", fault="NoPermission"), "rejected"), (Unreachable("timeout"), "maybe_sent")],
)
async def test_a_clone_without_response_may_be_in_progress(
    harness: ExecutorHarness, error: Exception, outcome: str
) -> None:
    harness.clone_errors = [error]
    with pytest.raises(type(error)):
        await harness.send_clone()
    assert (harness.clone_outcome, harness.limiter.free_slots) == (outcome, 3)
    assert set(harness.for_group.active_failures()) == {RECORD.name}


async def test_a_vm_is_read_and_its_deletion_confirmed_before_it_is_destroyed(
    harness: ExecutorHarness,
) -> None:
    await harness.send_destroy()
    assert harness.events == ["login", "read", "confirm", "lease", "log", "destroy"]
    assert harness.for_group.busy_refs == {"vm-0"}


async def test_a_vm_without_its_mark_is_not_destroyed(harness: ExecutorHarness) -> None:
    harness.extra_config = {}
    await harness.send_destroy()
    assert harness.events == ["login", "read", "refresh vm-0"]
    assert (harness.for_group.busy_refs, harness.limiter.free_slots) == (set(), 3)


async def test_a_vm_is_not_destroyed_if_the_object_has_changed(harness: ExecutorHarness) -> None:
    harness.deletion_confirmed = False
    await harness.send_destroy()
    assert harness.events == ["login", "read", "confirm", "refresh vm-0"]
