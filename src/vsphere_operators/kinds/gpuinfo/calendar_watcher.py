"""The ConfigMap with planned maintenance (-maintenance-calendar); no other ConfigMap is watched.

Why is no new node selected before the calendar was read, or if it does not exist?  A node that goes
    down tomorrow would be selected for a job of 300 hours. Selected nodes are kept.
And if it was read once, but can no longer be read?  Its last known entries apply, and
    `stale_message` explains that in the PlansKnown condition.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kubewright import Client, Key, NotSynced, select
from kubewright.builtin import ConfigMap
from kubewright.cache import Origin, Signal, Store
from kubewright.errors import Forbidden
from kubewright.log import Log
from kubewright.metrics import Metrics
from kubewright.permission import Permission
from kubewright.reflector import Reflector
from kubewright.responses import UndecodableObject

from .maintenance_windows import CalendarEntry, parse_calendar
from .tracker import RecordWarning
from .types import Reason

# A first list takes less time than this, even on an API server that has just started.
_FIRST_LIST_TIMEOUT_SECONDS = 10.0
CALENDAR_RETRY_SECONDS = 30.0
ROLE_MANIFEST = "config/optional/maintenance-calendar.yaml"
# Needed only in the namespace of the calendar, so it is not part of the generated ClusterRole.
CALENDAR_PERMISSION = Permission(ConfigMap, ("list", "watch"))


class _CalendarReflector(Reflector[ConfigMap]):
    def describe_problem(self, error: Exception) -> str:
        if not isinstance(error, Forbidden):
            return super().describe_problem(error)
        # The generated role does not grant this, so name the optional one.
        return (
            f"{error}. If {self.namespace} is the right namespace, allow the manager to list and "
            f"watch ConfigMaps there: write that namespace into {ROLE_MANIFEST} and apply it with "
            "kubectl apply -f; if not, correct -maintenance-calendar"
        )


class CalendarWatcher:
    """Emits the entries of the calendar when it changes, and warns about invalid lines."""

    def __init__(
        self,
        key: Key,
        client: Client,
        metrics: Metrics,
        record_warning: RecordWarning,
        log: Log,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._key, self._record_warning, self._log = key, record_warning, log
        self._clock = clock
        kind = select(ConfigMap, field_selector=f"metadata.name={key.name}")
        store: Store[ConfigMap] = Store(kind.definition, log, "maintenance calendar")
        self.reflector = _CalendarReflector(
            kind, store, client, metrics, log, namespace=key.namespace
        )
        self._started_at: float | None = None
        self._is_present = False
        self.entries_changed: Signal[list[CalendarEntry]] = Signal("calendar changed")
        # It appeared or disappeared, or became stale or current.
        self.state_changed: Signal[()] = Signal("state of the calendar changed")

    async def run(self) -> None:
        self._started_at = self._clock()
        await self.reflector.run()

    def require_listed(self) -> None:
        """Raise NotSynced until the calendar is read, or the first list has taken too long."""
        if self._is_present:
            return
        remaining_seconds = _FIRST_LIST_TIMEOUT_SECONDS
        if self._started_at is not None:
            remaining_seconds += self._started_at - self._clock()
        if remaining_seconds > 0:
            # Creating the calendar enqueues every GPUInfo; the delay is for one that never exists.
            raise NotSynced(
                f"the maintenance calendar, ConfigMap {self._key}, is being read",
                requeue_after_seconds=remaining_seconds + 0.001,
            )

    @property
    def problem(self) -> str:
        """Why the entries of the calendar are unknown, and what to do; "" if they are known."""
        if self._is_present:
            return ""
        if self.reflector.synced.is_set():
            return (
                f"The maintenance calendar, ConfigMap {self._key}, does not exist. Create it "
                f"(it may be empty: kubectl create configmap -n {self._key.namespace} "
                f"{self._key.name}), or correct -maintenance-calendar"
            )
        cause = self.reflector.problem or "the API server has not responded yet"
        return f"The maintenance calendar, ConfigMap {self._key}, cannot be read: {cause}"

    @property
    def stale_message(self) -> str:
        """Why the entries may be out of date; "" if they are current."""
        if not self._is_present or not self.reflector.problem:
            return ""
        return (
            f"The maintenance calendar, ConfigMap {self._key}, can no longer be read; "
            f"its last known entries apply: {self.reflector.problem}."
        )

    def repeat_warnings(self) -> None:
        # Events are not written before this process leads, so the first warnings were lost.
        if isinstance(config_map := self.reflector.store.objects.get(self._key), ConfigMap):
            self._report_invalid_lines(config_map)

    def _report_invalid_lines(self, config_map: ConfigMap) -> None:
        for line in parse_calendar(config_map.data)[1]:
            self._record_warning(config_map, Reason.CALENDAR_LINE_UNREADABLE, str(line))

    def on_configmap_change(
        self,
        key: Key,
        old: ConfigMap | UndecodableObject | None,
        new: ConfigMap | UndecodableObject | None,
        origin: Origin,
    ) -> None:
        was_present, self._is_present = self._is_present, isinstance(new, ConfigMap)
        if isinstance(new, ConfigMap):
            self._report_invalid_lines(new)
            self.entries_changed.emit(parse_calendar(new.data)[0])
        elif was_present:
            self._log.warning(
                "the maintenance calendar was deleted; no new node is selected until it exists "
                "again; selected nodes are kept",
                configMap=str(key),
            )
        if was_present != self._is_present:
            self.state_changed.emit()
