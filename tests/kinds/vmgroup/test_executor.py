"""The order of the checks before a call to vCenter, and what remains after it failed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest

from kubewright.errors import NotLeader
from kubewright.log import Log
from kubewright.metrics import Metrics
from support.inventory_builder import make_inventory
from vsphere_operators.kinds.vmgroup.clone_state import CloneTaskTracker
from vsphere_operators.kinds.vmgroup.executor import Executor, InventoryOutdated
from vsphere_operators.kinds.vmgroup.group_memory import GroupMemoryStore
from vsphere_operators.kinds.vmgroup.metrics import VmGroupMetrics
from vsphere_operators.kinds.vmgroup.model import Clone, Destroy, DestroyFolder, PowerOff
from vsphere_operators.kinds.vmgroup.operation_reporter import OperationReporter
from vsphere_operators.kinds.vmgroup.ownership import OwnershipMark, mark_to_extra_config
from vsphere_operators.vsphere.faults import Busy, NotAuthenticated, Rejected, Unreachable
from vsphere_operators.vsphere.model import Task
from vsphere_operators.vsphere.task_limiter import TaskLimiter
from vsphere_operators.vsphere.vm_calls import CurrentVm, VmConfig

from .replica_builder import DESIRED, FOLDER, make_record, make_vm
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
        self.disk_files: tuple[str, ...] = ()
        self.now = 100.0
        self.confirm_seconds = 0.0
        # How long the next reads of vCenter take; 0 after these.
        self.read_seconds: list[float] = []
        # A user attaches this disk to the VM while the API server confirms.
        self.disk_attached_during_confirm = ""
        # The session is renewed and the inventory loaded again while the API server confirms.
        self.loads_during_confirm = False
        self.folder_is_empty = True
        self.send_within_seconds = 0.0
        self.limiter = TaskLimiter(make_inventory(), Log("test"), clock=self.clock)
        self.memory_store = GroupMemoryStore(self.clock)
        self.metrics = VmGroupMetrics(Metrics()).for_vcenter("vc")
        self.recorded_events: list[tuple[str, str, str]] = []
        self.vcenter = SimpleNamespace(
            inventory=make_inventory(),
            clock=self.clock,
            session=self,
            task_limiter=self.limiter,
            vm_calls=self,
            is_inventory_of_session=True,
            watching_since=50.0,
            vm_configs=SimpleNamespace(request_refresh=lambda ref: self.log(f"refresh {ref}")),
        )
        self.executor = Executor(
            cast("Any", self.vcenter),
            cast("Any", self),
            self.memory_store,
            CloneTaskTracker(self.clock),
            self.holds_lease,
            self.on_notified,
            OperationReporter(self.memory_store, self.metrics),
        )
        self.group = cast(
            "Any",
            SimpleNamespace(
                group_id=GROUP_ID,
                desired=DESIRED,
                records=(RECORD,),
                loaded_at=50.0,
                log=lambda _: self.log("log"),
                record_event=lambda *event: self.recorded_events.append(event),
            ),
        )
        self.for_group.expect_records([], [RECORD])
        # What was reported when the group was notified.
        self.reported_before_notice: list[str] = []

    def on_notified(self, uid: str) -> None:
        assert uid == GROUP_ID.uid
        self.reported_before_notice = [event[1] for event in self.recorded_events]
        if self.metrics.created["unknown"].value:
            self.reported_before_notice.append("created")

    @property
    def for_group(self) -> Any:
        return self.memory_store.for_group(GROUP_ID.uid)

    @property
    def clone_outcome(self) -> str:
        return str(self.for_group.clone_requests[RECORD.name].outcome)

    def clock(self) -> float:
        return self.now

    def log(self, event: str) -> None:
        self.events.append(event)

    def holds_lease(self) -> bool:
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
        self.now += self.confirm_seconds
        if self.loads_during_confirm:
            self.vcenter.watching_since = self.now
        if self.disk_attached_during_confirm:
            self.disk_files = (self.disk_attached_during_confirm,)
        return self.deletion_confirmed

    # vCenter

    async def clone(self, spec: Any, template: Any) -> str:
        self.log(f"clone {self.clone_outcome}")
        if self.clone_errors:
            raise self.clone_errors.pop(0)
        return "task-1"

    async def read_template(self, spec: Any, config_version: str) -> Any:
        self.log("template")

    async def read_vm(self, ref: str) -> CurrentVm:
        self.log_read()
        config = VmConfig(self.extra_config, disk_files=self.disk_files)
        return CurrentVm(RECORD.instance_uuid, "[ds] r0/r0.vmx", config)

    async def is_folder_empty(self, ref: str) -> bool:
        self.log_read()
        return self.folder_is_empty

    def log_read(self) -> None:
        self.log("read")
        self.now += self.read_seconds.pop(0) if self.read_seconds else 0.0

    async def destroy(self, ref: str, send_within_seconds: float) -> str:
        self.send_within_seconds = send_within_seconds
        self.log("destroy")
        return "task-2"

    async def power_off(self, ref: str) -> str:
        self.log("power off")
        return "task-4"

    async def destroy_folder(self, ref: str, send_within_seconds: float) -> str:
        self.send_within_seconds = send_within_seconds
        self.log("destroy folder")
        return "task-3"

    async def send_clone(self, *, needs_template_config: bool = False) -> None:
        spec = SimpleNamespace(template="vm-t1", needs_template_config=needs_template_config)
        await self.executor.clone(self.group, CLONE, cast("Any", spec))

    async def send_destroy(self) -> None:
        await self.executor.change_vm(self.group, Destroy(make_vm(0, power="poweredOff")))

    async def send_power_off(self) -> None:
        await self.executor.change_vm(self.group, PowerOff(make_vm(0)))

    async def send_destroy_folder(self) -> None:
        await self.executor.destroy_folder(self.group, DestroyFolder(FOLDER))


@pytest.fixture
def harness() -> ExecutorHarness:
    return ExecutorHarness()


async def test_the_lease_is_checked_last_before_a_clone(harness: ExecutorHarness) -> None:
    await harness.send_clone()
    # The request is recorded as sent without response before it is sent: the response may be lost.
    assert harness.events == ["login", "lease", "log", "clone maybe_sent"]
    assert harness.clone_outcome == "accepted"
    # Its reference counts until the inventory is loaded again.
    assert harness.memory_store.list_sent_tasks(harness.group.loaded_at) == {"task-1"}
    assert harness.memory_store.list_sent_tasks(harness.now) == set()
    assert set(harness.limiter.running) == set(harness.executor.pending_tasks) == {"task-1"}


async def test_the_template_is_read_before_the_lease(harness: ExecutorHarness) -> None:
    await harness.send_clone(needs_template_config=True)
    assert harness.events == ["login", "template", "lease", "log", "clone maybe_sent"]


async def test_without_the_lease_no_clone_is_sent(harness: ExecutorHarness) -> None:
    harness.is_leader = False
    with pytest.raises(NotLeader):
        await harness.send_clone()
    assert harness.events == ["login", "lease"]
    assert (harness.clone_outcome, harness.limiter.free_slots) == ("unsent", 3)


async def test_in_a_new_session_nothing_is_sent_before_the_inventory_is_read_again(
    harness: ExecutorHarness,
) -> None:
    # The vCenter that answers now may be restored, or another one.
    harness.clone_errors = [NotAuthenticated("the session has ended")]
    with pytest.raises(InventoryOutdated):
        await harness.send_clone()
    assert harness.events == ["login", "lease", "log", "clone maybe_sent", "renew 1"]
    assert harness.clone_outcome == "rejected"
    assert harness.for_group.active_failures() == {}


async def test_the_session_may_be_renewed_by_another_call(harness: ExecutorHarness) -> None:
    harness.vcenter.is_inventory_of_session = False
    for send in (harness.send_clone, harness.send_destroy):
        with pytest.raises(InventoryOutdated):
            await send()
    assert not {"lease", "clone maybe_sent", "destroy"} & set(harness.events)
    assert (harness.clone_outcome, harness.limiter.free_slots) == ("unsent", 3)
    assert (harness.for_group.active_failures(), harness.for_group.busy_refs) == ({}, set())


async def test_a_plan_is_void_once_the_inventory_was_loaded_again(
    harness: ExecutorHarness,
) -> None:
    # In a session that began while the API server confirmed: vCenter may have been restored since
    # the plan, and may have given its references to other objects.
    harness.loads_during_confirm = True
    for send in (harness.send_destroy, harness.send_power_off, harness.send_clone):
        with pytest.raises(InventoryOutdated):
            await send()
    assert harness.events == ["login", "confirm", "read", "login", "login"]
    assert (harness.clone_outcome, harness.limiter.free_slots) == ("unsent", 3)
    assert (harness.for_group.active_failures(), harness.for_group.busy_refs) == ({}, set())


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


async def test_a_vm_is_destroyed_right_after_it_was_read(harness: ExecutorHarness) -> None:
    # The API server may need minutes. What vCenter returned before would be outdated then.
    harness.confirm_seconds = 180.0
    await harness.send_destroy()
    assert harness.events == ["login", "confirm", "read", "lease", "log", "destroy"]
    assert harness.for_group.busy_refs == {"vm-0"}


async def test_a_disk_that_is_attached_during_the_confirmation_is_kept(
    harness: ExecutorHarness,
) -> None:
    harness.disk_attached_during_confirm = "[ds] other/data.vmdk"
    await harness.send_destroy()
    assert harness.events == ["login", "confirm", "read", "refresh vm-0"]


@pytest.mark.parametrize("target", ["vm", "folder"])
async def test_a_read_that_took_longer_than_2_s_is_repeated(
    harness: ExecutorHarness, target: str
) -> None:
    harness.read_seconds = [2.1, 5.0, 2.0]
    await (harness.send_destroy() if target == "vm" else harness.send_destroy_folder())
    call = "destroy" if target == "vm" else "destroy folder"
    checks = ["login", "confirm", "read"]
    assert harness.events == [*checks, *checks, *checks, "lease", "log", call]


@pytest.mark.parametrize("target", ["vm", "folder"])
async def test_the_call_does_not_wait_longer_than_2_s_after_the_read(
    harness: ExecutorHarness, target: str
) -> None:
    harness.confirm_seconds, harness.read_seconds = 180.0, [1.5]
    await (harness.send_destroy() if target == "vm" else harness.send_destroy_folder())
    assert harness.send_within_seconds == 0.5


async def test_after_three_slow_reads_nothing_is_destroyed(harness: ExecutorHarness) -> None:
    harness.read_seconds = [2.1, 2.2, 2.3]
    with pytest.raises(Busy):
        await harness.send_destroy()
    assert harness.events.count("read") == 3
    assert "destroy" not in harness.events
    failure = harness.for_group.active_failures()["r0"]
    assert not failure.permanent
    assert 'Destroying "r0" failed: nothing was sent: 3 times in a row' in failure.message
    assert "2.3 s the last time" in failure.message
    assert (harness.for_group.busy_refs, harness.limiter.free_slots) == (set(), 3)


async def test_a_vm_without_its_mark_is_not_destroyed(harness: ExecutorHarness) -> None:
    harness.extra_config = {}
    await harness.send_destroy()
    assert harness.events == ["login", "confirm", "read", "refresh vm-0"]
    assert (harness.for_group.busy_refs, harness.limiter.free_slots) == (set(), 3)


async def test_a_vm_is_not_destroyed_if_the_object_has_changed(harness: ExecutorHarness) -> None:
    harness.deletion_confirmed = False
    await harness.send_destroy()
    assert harness.events == ["login", "confirm", "refresh vm-0"]


async def test_a_folder_is_removed_right_after_it_was_read(harness: ExecutorHarness) -> None:
    harness.confirm_seconds = 180.0
    await harness.send_destroy_folder()
    assert harness.events == ["login", "confirm", "read", "lease", "log", "destroy folder"]


async def test_a_folder_that_is_not_empty_is_kept(harness: ExecutorHarness) -> None:
    harness.folder_is_empty = False
    await harness.send_destroy_folder()
    assert harness.events == ["login", "confirm", "read"]
    assert (harness.for_group.busy_refs, harness.limiter.free_slots) == (set(), 3)


@pytest.mark.parametrize("state", ["success", "error", None])
async def test_the_end_of_a_clone_is_reported(
    harness: ExecutorHarness, state: Literal["success", "error"] | None
) -> None:
    await harness.send_clone()
    harness.now += 12.0
    task = (
        Task(ref="task-1", state=state, fault="TaskInProgress", message="busy") if state else None
    )
    harness.executor.on_task_end("task-1", task)
    metrics = harness.metrics
    assert metrics.created["unknown"].value == (state == "success")
    assert metrics.clone_failures.value == (state == "error")
    assert metrics.clone_seconds.sample()[1] == (12.0 if state == "success" else 0.0)
    assert [event[:2] for event in harness.recorded_events] == (
        [("Warning", "CloneFailed")] if state == "error" else []
    )
    # The group may be reconciled as soon as it is notified.
    reported = {"success": ["created"], "error": ["CloneFailed"]}
    assert harness.reported_before_notice == reported.get(state or "", [])


async def test_nothing_is_reported_of_a_request_that_was_not_sent(
    harness: ExecutorHarness,
) -> None:
    harness.vcenter.is_inventory_of_session = False
    with pytest.raises(InventoryOutdated):
        await harness.send_clone()
    assert (harness.recorded_events, harness.metrics.clone_failures.value) == ([], 0)
