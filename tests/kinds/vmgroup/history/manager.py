"""One process of the manager, from its start to its death."""

from __future__ import annotations

import asyncio
import importlib
import logging
import math
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from kubewright import Cache, Client, Key, Stream
from kubewright.cache import Origin
from kubewright.consequence import Consequence
from kubewright.definition import KindDefinition
from kubewright.engine import Engine
from kubewright.log import Log
from kubewright.metrics import Metrics
from vsphere_operators.build import _build_group_reconciler
from vsphere_operators.kinds.vmgroup.api_reader import ApiReader
from vsphere_operators.kinds.vmgroup.controller import VmGroupController
from vsphere_operators.kinds.vmgroup.events import VmGroupEvents
from vsphere_operators.kinds.vmgroup.metrics import VmGroupMetrics
from vsphere_operators.kinds.vmgroup.types import VmGroup
from vsphere_operators.vcenters.config import VCenterConfig, parse_server_address
from vsphere_operators.vcenters.registry import VCenterRegistry
from vsphere_operators.vsphere.decode_errors import DecodeErrors
from vsphere_operators.vsphere.faults import NotAuthenticated, Unreachable
from vsphere_operators.vsphere.inventory import Inventory, Signal
from vsphere_operators.vsphere.inventory_reload import InventoryReload
from vsphere_operators.vsphere.model import Task, VirtualMachine
from vsphere_operators.vsphere.polling import PollSchedule
from vsphere_operators.vsphere.task_limiter import TaskLimiter
from vsphere_operators.vsphere.vcenter import VCenter
from vsphere_operators.vsphere.vm_calls import VM_CONFIG_PROPERTIES, decode_vm_config

from .model import Watch
from .wire import ApiTransport, VCenterCalls, VCenterSession, VmConfigs, send

if TYPE_CHECKING:
    from .world import World

MISSING_TIMEOUT_SECONDS = 300.0
METRICS = Metrics()
VMGROUP_METRICS = VmGroupMetrics(Metrics())
CLUSTER_ID = "c1"


class HistoryEngine(Engine[VmGroup]):
    """The real engine; an exception that is not part of its interface fails the history."""

    manager: ManagerProcess

    def _apply_consequence(self, key: Key, priority: int, consequence: Consequence) -> None:
        manager = self.manager
        if consequence.unexpected and not manager.dead:
            manager.world.report(f"unexpected error: {consequence.error!r}")
        after = 1.0 if consequence.rate_limited else consequence.requeue_after_seconds
        if after is not None:
            manager.enqueue(key, after)


class HistoryVCenter(VCenter):
    """The parts of a VCenter that VmGroup uses, on the calls of the history."""

    def __init__(self, manager: ManagerProcess, name: str) -> None:
        world = manager.world
        self.name, self.clock, self.manager = name, world.clock, manager
        self.session: VCenterSession = VCenterSession(manager)
        # Without a log, the error of a listener fails the history.
        self.inventory = Inventory(name)
        self.vm_configs = VmConfigs(
            VM_CONFIG_PROPERTIES,
            decode_vm_config,
            manager.soap,
            self.session,
            self.inventory,
            cast("Any", manager.log),
            is_inventory_current=lambda: self.is_inventory_of_session,
            poll_schedule=PollSchedule(15, clock=world.clock),
        )
        self.vm_configs.wire = self.session
        self.vm_calls = VCenterCalls(self.session)
        self.task_limiter = TaskLimiter(self.inventory, cast("Any", manager.log), clock=world.clock)
        self.disks = cast("Any", SimpleNamespace(disks={}))
        self.inventory.connect(self.task_limiter.on_task_change, Task)
        self.inventory.connect(self.vm_configs.on_vm_change, VirtualMachine, include_related=False)
        self.loaded, self.problem, self.watching_since = False, None, world.now
        self.state_changed, self.inventory_loaded = Signal(), Signal()
        self.inventory_watcher = cast("Any", SimpleNamespace(loaded_by_login=0))
        self.watch: Watch | None = None
        self.watch_ended: asyncio.Future[None] | None = None

    async def watch_inventory(self) -> None:
        """Log in, load, and wait for the end of the session, without end."""
        while True:
            login_count = self.session.login_count
            try:
                await self.session.login()
                login_count = self.session.login_count
                await self.load()
                self.watch_ended = asyncio.get_running_loop().create_future()
                await self.watch_ended
            except NotAuthenticated:
                self.watch = None
                await self.renew(login_count)
            except Unreachable:
                self.watch = None

    async def renew(self, login_count: int) -> None:
        try:
            await self.session.renew(login_count)
        except Unreachable:
            return

    async def load(self) -> None:
        login_count = self.session.login_count

        def perform() -> Any:
            appliance = self.session.check()
            self.stop_watch()
            appliance.watches.append(new_watch := Watch())
            return appliance.instance_uuid, appliance.list_updates(), new_watch

        instance_uuid, updates, watch = await send(self.manager, "load", perform)
        reload = InventoryReload(self.inventory, instance_uuid)
        reload.add(updates)
        reload.commit()
        self.watch, self.inventory_watcher.loaded_by_login = watch, login_count
        self.watching_since, was_loaded = self.clock(), self.loaded
        self.loaded = True
        if not was_loaded:
            self.state_changed.emit()
        self.inventory_loaded.emit()

    def stop_watch(self) -> None:
        for appliance in self.manager.world.appliances:
            if self.watch in appliance.watches:
                appliance.watches.remove(self.watch)

    def receive(self, count: int) -> None:
        """Apply the next updates, in one batch."""
        watch = self.watch
        if watch is None or not watch.queue:
            return
        batch = [watch.queue.popleft()[1] for _ in range(min(count, len(watch.queue)))]
        self.inventory.apply(batch)

    def notice_end(self) -> None:
        """The open call of the watch fails, if the session has ended."""
        if self.watch_ended is None or self.watch_ended.done():
            return
        try:
            if self.watch not in self.session.check().watches:
                raise NotAuthenticated("the collector is lost", fault="NotAuthenticated")
        except NotAuthenticated as error:
            self.watch_ended.set_exception(error)


class ManagerProcess:
    """`revision` is that of the first list, which may be older than what is stored."""

    def __init__(self, world: World, vcenter_name: str, revision: int) -> None:
        self.world, self.log = world, Log("history")
        log = cast("Any", self.log)
        self.soap: Any = SimpleNamespace(
            decode_errors=DecodeErrors(cast("Any", METRICS_SINK), log),
            address=SimpleNamespace(display_name="vc"),
            stub=None,
        )
        self.dead = False
        self.tasks: set[asyncio.Task[None]] = set()
        self.processing: set[Key] = set()
        self.polling = False
        self.cache = Cache(self.log)
        client = Client(cast("Any", ApiTransport(self)), cache=self)
        self.vcenter = HistoryVCenter(self, vcenter_name)
        address = parse_server_address("vc.test", insecure=True, ca_file="")
        registry = VCenterRegistry(
            {vcenter_name: self.vcenter},
            [VCenterConfig(vcenter_name, address)],
            self.cache,
            0,
            0.1,
        )
        changes, api_reader = Stream(), ApiReader(client)
        self.reconciler = _build_group_reconciler(
            self.vcenter,
            api_reader,
            changes,
            lambda: not self.dead,
            MISSING_TIMEOUT_SECONDS,
            VMGROUP_METRICS.for_vcenter(vcenter_name),
        )
        recorder: Any = SimpleNamespace(
            event=self.record_event, event_about=lambda *arguments: None
        )
        self.group_events = VmGroupEvents(
            recorder,
            {vcenter_name: self.vcenter.inventory},
            lambda: world.standby is not self and not self.dead,
        )
        controller = VmGroupController(
            registry,
            {vcenter_name: self.reconciler},
            changes,
            self.cache,
            api_reader,
            lambda namespace: world.limits,
            recorder,
            CLUSTER_ID,
        )
        self.engine = HistoryEngine(
            controller,
            cache=self.cache,
            client=client,
            recorder=recorder,
            metrics=METRICS,
            log=self.log,
        )
        self.engine.manager = self
        # The sources of the engine enqueue keys of this process instead of its queue.
        self.engine.queue.add = self.enqueue  # type: ignore[method-assign,assignment]
        self.due: dict[Key, float] = {}
        self.resync_at = 0.0
        self.store = self.cache.store(VmGroup)
        self.store.changed.connect(self.on_group_change)
        for obj in world.api.list_at(revision):
            self.store.put(obj, origin=Origin.INITIAL_LIST)
        self.store.finish_list(set(self.store.objects), revision, "", force=False)
        self.revision = revision
        self.spawn(self.vcenter.watch_inventory())

    def on_group_change(self, key: Key, old: Any, new: Any, origin: Origin) -> None:
        try:
            self.group_events.on_group_change(key, old, new, origin)
        except Exception as error:
            # The signal only logs it.
            self.world.report(f"the Events of a change failed: {error!r}")

    def record_event(
        self,
        group: VmGroup,
        type: str,
        reason: str,
        message: str,
        *,
        once_per_version: bool = False,
    ) -> None:
        version = group.metadata.resourceVersion if once_per_version else ""
        self.world.record_event(group.metadata.uid, version, reason, message)

    def enqueue(self, key: Key, after: float = 0.0) -> None:
        due = self.world.now + max(0.0, after)
        self.due[key] = min(due, self.due.get(key, due))

    def list_due(self) -> list[Key]:
        now = self.world.now
        if now >= self.resync_at:
            self.resync_at = now + VmGroupController.resync_seconds
            return list(self.store.objects)
        return [key for key in self.store.objects if self.due.get(key, math.inf) <= now]

    def apply_own_write(self, obj: Any, raw: bytes) -> None:
        if not self.dead:
            self.cache.apply_own_write(obj, raw)

    def apply_own_delete(self, definition: KindDefinition, key: Key, uid: str) -> None:
        if not self.dead:
            self.cache.apply_own_delete(definition, key, uid)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.on_task_done)

    def on_task_done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.world.report(f"a task failed: {error!r}")

    def receive_objects(self, count: int) -> None:
        """The watch of the API server delivers the next events."""
        for revision, event in self.world.api.events_after(self.revision)[:count]:
            obj = VmGroup.decode(event.body)
            if event.is_deletion:
                self.store.remove(obj.key, revision, obj.metadata.uid)
            else:
                self.store.put(obj)
            self.revision = revision
            self.store.advance_revision(revision)

    def start_reconcile(self, key: Key) -> None:
        if key not in self.processing and key in self.store.objects:
            self.processing.add(key)
            self.due.pop(key, None)
            self.spawn(self._reconcile(key))

    async def _reconcile(self, key: Key) -> None:
        try:
            await self.engine._process_key(key, 0)
        finally:
            self.processing.discard(key)

    def start_poll(self) -> None:
        """Read the configurations of VMs that were requested."""
        if self.vcenter.vm_configs.requested and not self.polling and self.vcenter.loaded:
            self.polling = True
            self.spawn(self._poll())

    async def _poll(self) -> None:
        try:
            await self.vcenter.vm_configs.poll()
        finally:
            self.polling = False

    async def kill(self) -> None:
        self.dead = True
        self.vcenter.stop_watch()
        if self.vcenter.session.login_task is not None:
            self.vcenter.session.login_task.cancel()
        for task in list(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)


class _Sink:
    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: None


METRICS_SINK = _Sink()
# The manager imports it in a thread before its first change of a VM. The simulated clock does not
# wait for that thread, so it must not have anything to do.
importlib.import_module("vsphere_operators.vsphere.pyvmomi_stub")
logging.getLogger("history").setLevel(logging.CRITICAL)
