"""Keeps the labels and the condition of every Node current; build.py connects its handlers.

What is written when?  Labels at once, the condition at most once per Node and interval. Nothing is
    written for a Node that is as it should be.
Which changes lead to a reconcile of a Node?  Those of its VM, of the VM's host, and of names that
    may now be shared. New quickStats do so only if a figure is high.
What if vCenter cannot be read?  The labels stay, and the condition becomes Unknown.
When are labels removed?  When all vCenters were read and none has had a VM of the Node for a
    minute: a VM may be missing for moments while its host is added again or vCenter restarts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct, structs

from kubewright import Controller, Done, Key, Retry, Stream
from kubewright.builtin import Node
from kubewright.errors import ApplyConflict, Conflict, Forbidden, Invalid, NotFound

from ..vcenters.node_matching import (
    MatchFailureCause,
    NodeMatch,
    match_node,
    parse_provider_id,
)
from ..vsphere.inventory import Change
from ..vsphere.model import ComputeResource, Datacenter, Host, Task, VirtualMachine
from ..vsphere.pressure import (
    MaintenanceTasks,
    PressureHysteresis,
    find_vm_pressures,
    has_notable_figure,
    read_figures,
)
from ..vsphere.vcenter import VCenter
from .condition import ConditionState, Reason, build_state, find_pressure_condition
from .labels import build_labels, read_labels
from .writer import NodeWriter, explain_conflict, explain_forbidden, was_replaced

_MISSING_SECONDS = 60.0
# A change of one of the VMs enqueues the Node earlier.
_AMBIGUOUS_RETRY_SECONDS = 300.0
# A change of the Node does not show that a permission was granted.
_FORBIDDEN_RETRY_SECONDS = 300.0
_UUID_INDEX, _LABEL_INDEX = "bios_uuid", "node-label"


class _Desired(Struct, frozen=True):
    """What a Node should have. Nothing is written for a field that is None."""

    labels: dict[str, str] | None = None
    condition: ConditionState | None = None
    # No VM belongs to the Node: this manager removes its labels, and its condition unless
    # `condition` is set.
    removes_own_fields: bool = False
    # The condition is written only if the Node has one that this manager has set.
    only_own_condition: bool = False
    # Seconds until the same facts lead to another result.
    recheck_seconds: float | None = None
    # Why there are no labels, for an Event.
    failure: str = ""


@dataclass
class _NodeState:
    """What this process remembers about a Node."""

    uid: str
    # The hysteresis belongs to one VM on one host.
    hysteresis_id: str = ""
    hysteresis: PressureHysteresis = field(default_factory=lambda: PressureHysteresis(0.0))
    missing_since: float | None = None
    condition_written_at: float | None = None
    written_condition: ConditionState | None = None
    # The labels that were applied last, and those that the Node had afterwards: a label that
    # another client has set stays.
    applied_labels: tuple[dict[str, str], dict[str, str]] | None = None
    # What this manager had set was removed. Anything left belongs to others.
    own_fields_removed: bool = False
    # By name of the write: when a forbidden one is tried again, and why it was forbidden.
    forbidden_writes: dict[str, tuple[float, str]] = field(default_factory=dict)
    # The conflict of each write that has an Event, until a write without one.
    reported_conflicts: dict[str, str] = field(default_factory=dict)


_Write = Callable[[Node, _NodeState, _Desired], Awaitable[float | None]]


class NodeLabelController(Controller[Node]):
    name = "nodelabels"
    max_concurrent_reconciles = 16

    def __init__(
        self,
        vcenters: Mapping[str, VCenter],
        writer: NodeWriter,
        interval_seconds: float,
        monotonic_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.vcenters, self._writer = vcenters, writer
        self._interval_seconds, self._monotonic_clock = interval_seconds, monotonic_clock
        self._maintenance = {name: MaintenanceTasks() for name in vcenters}
        self._states: dict[str, _NodeState] = {}
        self._is_notifying_all = False
        self.changes = Stream()
        self.watches(self.changes, index_by=lambda node: node.metadata.name)
        self.indexes(
            Node,
            **{
                _UUID_INDEX: lambda node: parse_provider_id(node.spec.providerID),
                _LABEL_INDEX: lambda node: [
                    f"{label}={value}" for label, value in read_labels(node.metadata.labels).items()
                ],
            },
        )
        self.needs(Node, "patch")
        self.needs(Node, "patch", subresource="status")

    # Changes

    def on_vm_change(self, vcenter: VCenter, change: Change[VirtualMachine]) -> None:
        old, new = change.old, change.new
        names = {name for vm in (old, new) if vm is not None for name in self._find_nodes(vm)}
        if not names:
            return
        only_stats = (
            old is not None
            and new is not None
            and not change.related_object_changed
            and structs.replace(old, stats=new.stats) == new
        )
        if not only_stats or has_notable_figure(old) or has_notable_figure(new):
            self._notify(names)

    def on_host_change(self, vcenter: VCenter, change: Change[Host]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or old.name != new.name:
            self.notify_all()
        elif structs.replace(old, stats=new.stats) != new:
            self._notify_host(vcenter, new.ref)

    def on_cluster_or_datacenter_change(
        self, vcenter: VCenter, change: Change[ComputeResource | Datacenter]
    ) -> None:
        if change.old is None or change.new is None or change.old.name != change.new.name:
            self.notify_all()

    def on_task_change(self, vcenter: VCenter, change: Change[Task]) -> None:
        """A task that puts a host into maintenance mode was started or has ended."""
        self._notify_host(vcenter, self._maintenance[vcenter.name].on_task_change(change))

    def notify_all(self) -> None:
        """Reconcile every Node, once for all changes of one batch."""
        if not self._is_notifying_all:
            self._is_notifying_all = True
            asyncio.get_running_loop().call_soon(self._notify_all_now)

    def _notify_all_now(self) -> None:
        self._is_notifying_all = False
        self.changes.notify_all()

    def _notify_host(self, vcenter: VCenter, host: str) -> None:
        vms = vcenter.inventory.vms_on(host)
        self._notify({name for vm in vms for name in self._find_nodes(vm)})

    def _notify(self, names: Iterable[str]) -> None:
        for name in names:
            self.changes.notify(name)

    def _find_nodes(self, vm: VirtualMachine) -> list[str]:
        """The Nodes that the VM may belong to, by its uuid and by its name."""
        store = self.cache.store(Node)
        names = [key.name for key in store.keys_by_index(_UUID_INDEX, vm.bios_uuid.lower())]
        return [*names, vm.name] if Key("", vm.name) in store.objects else names

    # Reconcile

    async def reconcile(self, node: Node) -> Done:
        name, now = node.metadata.name, self._monotonic_clock()
        state = self._states.get(name)
        if state is None or state.uid != node.metadata.uid:
            state = self._states[name] = _NodeState(node.metadata.uid)
        desired = self._decide(node, state, now)
        writes: tuple[_Write, ...] = (self._write_labels, self._write_condition)
        try:
            delays = [await self._try_write(write, node, state, desired) for write in writes]
        except (NotFound, Conflict, Invalid) as error:
            if not was_replaced(error):
                raise
            # The Node was deleted, or created again; the watch delivers that next.
            return Done()
        delays.append(desired.recheck_seconds)
        delay = min((seconds for seconds in delays if seconds is not None), default=None)
        for _, message in state.forbidden_writes.values():
            raise Retry(Reason.NODE_WRITE_FORBIDDEN, message, requeue_after_seconds=delay)
        if desired.labels is not None:
            state.own_fields_removed = desired.removes_own_fields
        if desired.failure:
            retry_seconds = delay or _AMBIGUOUS_RETRY_SECONDS
            raise Retry(Reason.VM_AMBIGUOUS, desired.failure, requeue_after_seconds=retry_seconds)
        return Done(requeue_after_seconds=delay)

    async def reconcile_deleted(self, key: Key) -> None:
        self._states.pop(key.name, None)

    def forget(self, node: Node) -> None:
        self._states.pop(node.metadata.name, None)

    async def _try_write(
        self, write: _Write, node: Node, state: _NodeState, desired: _Desired
    ) -> float | None:
        """Returns the seconds until the next try, if it is too early or forbidden to write now."""
        name, now = write.__name__, self._monotonic_clock()
        retry_at, _ = state.forbidden_writes.get(name, (now, ""))
        if retry_at > now:
            return retry_at - now
        state.forbidden_writes.pop(name, None)
        try:
            return await write(node, state, desired)
        except Forbidden as error:
            retry_at = now + _FORBIDDEN_RETRY_SECONDS
            state.forbidden_writes[name] = (retry_at, explain_forbidden(node, error))
            return _FORBIDDEN_RETRY_SECONDS
        except ApplyConflict as error:
            message = explain_conflict(node, error)
            # A field of another client is no failure of this manager: one Event, and no error in
            # the metrics. When the field goes, the watch on the Node enqueues it.
            if state.reported_conflicts.get(name) != message and not desired.only_own_condition:
                state.reported_conflicts[name] = message
                self.recorder.event(node, "Warning", Reason.LABEL_CONFLICT, message)
            return None

    async def _write_labels(self, node: Node, state: _NodeState, desired: _Desired) -> None:
        if desired.labels is None or (desired.removes_own_fields and state.own_fields_removed):
            return
        current = read_labels(node.metadata.labels)
        if current == desired.labels:
            state.reported_conflicts.pop(self._write_labels.__name__, None)
        elif state.applied_labels != (desired.labels, current):
            written, conflict = await self._writer.apply_labels(node, desired.labels)
            state.applied_labels = (desired.labels, read_labels(written.metadata.labels))
            if conflict is not None:
                raise conflict
            state.reported_conflicts.pop(self._write_labels.__name__, None)

    async def _write_condition(
        self, node: Node, state: _NodeState, desired: _Desired
    ) -> float | None:
        """Returns the seconds until the next try, if it is too early to write now."""
        stored, wanted = find_pressure_condition(node), desired.condition
        if wanted is None:
            if desired.removes_own_fields and not state.own_fields_removed and stored is not None:
                await self._writer.apply_condition(node, None, self.clock())
            return None
        if stored is None:
            if desired.only_own_condition:
                return None
        elif (stored.status, stored.reason) == (wanted.status, wanted.reason) and (
            stored.message == wanted.message
            or (
                state.written_condition is not None
                and wanted.is_about_same(state.written_condition)
            )
        ):
            return None
        now = self._monotonic_clock()
        if state.condition_written_at is not None:
            remaining = state.condition_written_at + self._interval_seconds - now
            if remaining > 0:
                return remaining
        state.condition_written_at = now
        await self._writer.apply_condition(node, wanted, self.clock())
        state.reported_conflicts.pop(self._write_condition.__name__, None)
        state.written_condition = wanted
        return None

    # Decide

    def _decide(self, node: Node, state: _NodeState, now: float) -> _Desired:
        match = match_node(node, self.vcenters.values())
        vcenter, vm = match.vcenter, match.vm
        is_certain = match.failure is not None and match.failure.is_certain and bool(self.vcenters)
        if vcenter is not None and vm is not None:
            is_certain = vcenter.loaded and vcenter.problem is None
            host = vcenter.inventory.hosts.get(vm.host)
            if is_certain and host is not None:
                state.missing_since = None
                return self._decide_on_host(node, state, vcenter, vm, host, now)
        if not is_certain:
            state.missing_since = None
            return self._decide_without_vcenter(vcenter)
        if state.missing_since is None:
            state.missing_since = now
        remaining = state.missing_since + _MISSING_SECONDS - now
        if remaining > 0:
            return _Desired(recheck_seconds=remaining)
        return _decide_without_vm(match)

    def _decide_on_host(
        self,
        node: Node,
        state: _NodeState,
        vcenter: VCenter,
        vm: VirtualMachine,
        host: Host,
        now: float,
    ) -> _Desired:
        inventories = [other.inventory for other in self.vcenters.values()]
        all_loaded = all(other.loaded for other in self.vcenters.values())
        labels = (
            build_labels(vcenter.inventory, host, inventories)
            if all_loaded
            else build_labels(vcenter.inventory, host, inventories, self._is_in_use)
        )
        if host.connection != "connected" or vm.connection not in ("connected", ""):
            return _Desired(
                labels,
                ConditionState(
                    "Unknown",
                    Reason.HOST_DISCONNECTED,
                    f'vCenter "{vcenter.name}" has no connection to host "{host.name}".',
                ),
            )
        figures = read_figures(vm)
        hysteresis = self._select_hysteresis(
            node, state, f"{vcenter.name}/{vm.ref}/{host.ref}", host
        )
        recheck_seconds = hysteresis.update(figures, now)
        pressures = find_vm_pressures(
            host,
            vm,
            hysteresis.active_types,
            is_entering_maintenance=self._maintenance[vcenter.name].is_entering(host.ref),
        )
        condition = build_state(host.name, pressures, figures)
        if not pressures and host.in_maintenance is None:
            condition = ConditionState(
                "Unknown",
                Reason.MAINTENANCE_UNKNOWN,
                f'vCenter "{vcenter.name}" does not report whether host "{host.name}" is in '
                "maintenance mode. The account of the manager may lack System.Read on the host.",
            )
        return _Desired(labels, condition, recheck_seconds=recheck_seconds)

    def _is_in_use(self, label: str, value: str) -> bool:
        return bool(self.cache.store(Node).keys_by_index(_LABEL_INDEX, f"{label}={value}"))

    def _select_hysteresis(
        self, node: Node, state: _NodeState, hysteresis_id: str, host: Host
    ) -> PressureHysteresis:
        if state.hysteresis_id != hysteresis_id:
            # After a restart of the manager the condition shows whether the host was under
            # pressure; after a vMotion it is about another host.
            stored = find_pressure_condition(node)
            state.hysteresis_id, state.hysteresis = (
                hysteresis_id,
                PressureHysteresis(
                    self._interval_seconds,
                    was_under_pressure=stored is not None
                    and stored.status == "True"
                    and f'"{host.name}"' in stored.message,
                ),
            )
        return state.hysteresis

    def _decide_without_vcenter(self, vcenter: VCenter | None) -> _Desired:
        candidates = [vcenter] if vcenter is not None else self.vcenters.values()
        unavailable = next((entry for entry in candidates if entry.problem is not None), None)
        if unavailable is None:
            # It is still loading; the end of that enqueues all Nodes.
            return _Desired()
        return _Desired(
            condition=ConditionState(
                "Unknown",
                Reason.VCENTER_UNAVAILABLE,
                f'vCenter "{unavailable.name}" has been unavailable since '
                f"{unavailable.accurate_until:%Y-%m-%dT%H:%M:%SZ}. The labels are the last known.",
            ),
            only_own_condition=True,
        )


def _decide_without_vm(match: NodeMatch) -> _Desired:
    """No VM, more than one, or one on a host that the vCenter account does not see."""
    failure = match.failure
    if failure is None or failure.reason is not MatchFailureCause.VM_AMBIGUOUS:
        return _Desired({}, removes_own_fields=True)
    return _Desired(
        {},
        ConditionState("Unknown", Reason.VM_AMBIGUOUS, failure.message),
        removes_own_fields=True,
        only_own_condition=True,
        failure=failure.message,
    )
