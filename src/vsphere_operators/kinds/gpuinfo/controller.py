"""The controller of GPUInfo: selects a node from the facts in memory, and explains why."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from kubewright import (
    Condition,
    Controller,
    Done,
    Key,
    NotSynced,
    Retry,
    Stream,
    Terminal,
    Waiting,
)
from kubewright.builtin import Node
from kubewright.cache import Origin
from kubewright.recorder import EventRecorder

from ...vcenters.registry import (
    CONFIGURATION_HINT,
    NOT_LOADED_RETRY_SECONDS,
    is_status_current,
    unavailable_error,
)
from ...vsphere.stats_throttle import BUCKET_COUNT, bucket_of
from ...vsphere.vcenter import VCenter
from .calendar_watcher import CALENDAR_RETRY_SECONDS, CalendarWatcher
from .label_slots import LabelDenied
from .labels import FINALIZER, NodeLabeler, build_label_key
from .rules import Query, SelectionRules, parse_requirement
from .selection_index import SelectionIndex
from .status import ready_outcome, seconds_until_change, selection_status_of
from .tracker import NodeTracker
from .types import NONE_AVAILABLE, PLANS_KNOWN, GPUInfo, GPUInfoStatus, Reason

_DEVICES_PENDING_RETRY_SECONDS = 0.5


class GPUInfoController(Controller[GPUInfo]):
    """Selects nodes; a changed node enqueues the GPUInfos that it may affect."""

    # Below the default of 64: a selection is CPU work, and all of them together delay other events.
    max_concurrent_reconciles = 16

    def __init__(
        self,
        tracker: NodeTracker,
        vcenters: Mapping[str, VCenter],
        rules: SelectionRules,
        recorder: EventRecorder,
        *,
        interval_seconds: float,
        change_fraction: float,
        calendar: CalendarWatcher | None = None,
        labeler: NodeLabeler | None = None,
    ) -> None:
        self.tracker, self.vcenters = tracker, vcenters
        self.calendar, self.labeler = calendar, labeler
        self._rules, self._recorder = rules, recorder
        self._interval_seconds = interval_seconds
        self._simulated = tracker.simulation is not None
        # Objects that have had a selection from this process.
        self._selected_keys: set[Key] = set()
        self.stream = Stream()
        self.selections = SelectionIndex(
            tracker,
            rules,
            lambda key: self.stream.notify(str(key)),
            interval_seconds=interval_seconds,
            change_fraction=change_fraction,
        )
        self.watches(self.stream, index_by=lambda info: str(info.key))
        self.reads(Node)
        if labeler is not None:
            # The limits of labels are for the GPUInfos of all replicas together.
            self.shard_by = "none"
            self.finalizer = FINALIZER
            self.needs(Node, "patch")
            self.watches(labeler.changed_labels, index_by=lambda info: build_label_key(info.key))

    def on_gpuinfo_change(self, key: Key, old: object, new: object, origin: Origin) -> None:
        if new is None:
            self.selections.discard(key)
            self._selected_keys.discard(key)

    async def reconcile(self, info: GPUInfo) -> Done | Waiting:
        self.selections.discard(info.key)
        try:
            requirement = parse_requirement(info.spec)
            self._require_facts(info)
        except (Terminal, Retry) as error:
            if isinstance(error, Terminal):
                info.status = GPUInfoStatus(simulated=self._simulated or None)
                error.keep_status = True
            # Without a selected node there must be no label either.
            if self.labeler is not None and not info.status.suitableNodeName:
                await self.labeler.move_label(info.key, "")
            raise
        query = Query(requirement, self._rules, self.tracker.clock())
        previous, ready = info.status.suitableNodeName or "", info.status.condition("Ready")
        selection = self.tracker.ranking.select(query, previous)
        info.status = selection_status_of(selection, simulated=self._simulated)
        info.status.conditions = [self._build_plans_known_condition(info.metadata.generation)]
        self.selections.add(info.key, requirement, selection.selected)
        self._selected_keys.add(info.key)
        outcome = ready_outcome(info.spec, selection, simulated=self._simulated)
        # When a node matches again, Ready becomes True, and the engine records that Event.
        matches_again = previous == NONE_AVAILABLE and ready is not None and ready.status == "False"
        if info.status.suitableNodeName != previous and not matches_again:
            message = f"{outcome.message} Previously: {previous or 'none'}."
            self._recorder.event(info, "Normal", outcome.reason, message)
        requeue_after_seconds = seconds_until_change(
            selection,
            interval_seconds=self._interval_seconds,
            spread=bucket_of(str(info.key)) / BUCKET_COUNT,
        )
        outcome = dataclasses.replace(outcome, requeue_after_seconds=requeue_after_seconds)
        if self.labeler is None:
            return outcome
        selected_name = selection.selected.name if selection.selected else ""
        denied = await self.labeler.move_label(info.key, selected_name)
        return self._with_denied_label(info, outcome, denied, ready) if denied else outcome

    def _with_denied_label(
        self,
        info: GPUInfo,
        outcome: Done | Waiting,
        denied: LabelDenied,
        ready: Condition | None,
    ) -> Done | Waiting:
        """The outcome with the reason for the missing label. `ready` is from before."""
        if denied.limit_reached and (ready is None or denied.message not in ready.message):
            self._recorder.event(info, "Warning", Reason.LABEL_LIMIT_REACHED, denied.message)
        delays = (outcome.requeue_after_seconds, denied.retry_seconds)
        return dataclasses.replace(
            outcome,
            message=f"{outcome.message} {denied.message}",
            requeue_after_seconds=min(delay for delay in delays if delay is not None),
        )

    async def finalize(self, info: GPUInfo) -> None:
        if self.labeler is not None:
            await self.labeler.move_label(info.key, "")

    def _build_plans_known_condition(self, generation: int) -> Condition:
        if self._simulated:
            reason, message = (
                Reason.SIMULATED,
                "Hours are simulated; planned maintenance is not read.",
            )
        else:
            reason, message = self._describe_unreadable_plans()
        plans_known = reason in (Reason.SIMULATED, Reason.ALL_READ)
        return Condition(
            type=PLANS_KNOWN,
            status="True" if plans_known else "False",
            reason=reason,
            message=message,
            observedGeneration=generation,
        )

    def _describe_unreadable_plans(self) -> tuple[Reason, str]:
        unreadable = [
            f'The scheduled tasks of vCenter "{vcenter.name}" cannot be read, so maintenance that '
            f"is planned there may be missing: {vcenter.scheduled_tasks.problem.rstrip('.')}. "
            "If the account lacks a privilege, grant it System.View on the root folder."
            for vcenter in self.vcenters.values()
            if vcenter.scheduled_tasks.problem and vcenter.problem is None
        ]
        if self.calendar is not None and (stale := self.calendar.stale_message):
            return Reason.CALENDAR_STALE, " ".join([stale, *unreadable])
        reason = Reason.SCHEDULED_TASKS_UNREADABLE if unreadable else Reason.ALL_READ
        return reason, " ".join(unreadable)

    def _require_facts(self, info: GPUInfo) -> None:
        """Raise while a selection would rest on incomplete facts."""
        if not self.vcenters:
            raise Terminal(
                Reason.NO_VCENTER,
                "No vCenter is configured, so the VMs of the nodes are unknown. "
                f"{CONFIGURATION_HINT}.",
            )
        # One vCenter that can be reached is enough: the nodes of the others are rejected.
        problems = [
            (vcenter, vcenter.problem)
            for vcenter in self.vcenters.values()
            if vcenter.problem is not None
        ]
        if len(problems) == len(self.vcenters):
            raise unavailable_error(*problems[0], info)
        loading = [
            vcenter.name
            for vcenter in self.vcenters.values()
            if not vcenter.loaded and vcenter.problem is None
        ]
        if loading:
            raise NotSynced(
                f"the inventory of vCenter {', '.join(loading)} is being loaded",
                requeue_after_seconds=NOT_LOADED_RETRY_SECONDS,
            )
        # A first selection waits for the devices of new VMs; a later one must not be held up.
        if (
            self.tracker.devices_pending_since
            and info.key not in self._selected_keys
            and (pending := self.tracker.count_pending_reads())
        ):
            raise NotSynced(
                f"the devices of {pending} VMs are being read",
                requeue_after_seconds=_DEVICES_PENDING_RETRY_SECONDS,
            )
        if not self._simulated:
            self._require_maintenance_plans(info)

    def _require_maintenance_plans(self, info: GPUInfo) -> None:
        # A node that goes down tomorrow must not be selected for a job of 300 hours.
        if self.calendar is not None:
            self.calendar.require_listed()
            if problem := self.calendar.problem:
                effect = "The last selected node is kept"
                if not is_status_current(info):
                    info.status, effect = GPUInfoStatus(), "No node is selected"
                raise Retry(
                    Reason.CALENDAR_UNREADABLE,
                    f"{problem}. {effect} until the calendar can be read.",
                    requeue_after_seconds=CALENDAR_RETRY_SECONDS,
                )
        for vcenter in self.vcenters.values():
            tasks = vcenter.scheduled_tasks
            if (
                tasks.requested.is_set()
                and not tasks.is_first_poll_done
                and vcenter.problem is None
            ):
                cause = f": {tasks.problem}" if tasks.problem else ""
                raise NotSynced(
                    f"the scheduled tasks of vCenter {vcenter.name} are being read{cause}",
                    requeue_after_seconds=NOT_LOADED_RETRY_SECONDS,
                )
