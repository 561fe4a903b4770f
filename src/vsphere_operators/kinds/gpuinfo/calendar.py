"""The ConfigMap with planned maintenance, followed by a watch of its namespace alone, so that no right to other ConfigMaps is needed.

Why is no answer given before it was read, or while it is not there?  A node that goes down tomorrow would be named for a job of 300 hours.
And when it was read, and cannot be any more?  What was read last counts; `stale` has the words, for the status of whoever relies on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from kubewright import Client, Key, NotSynced, Retry
from kubewright.builtin import ConfigMap
from kubewright.cache import Origin, Store
from kubewright.controller import Permission
from kubewright.errors import Forbidden
from kubewright.log import Log
from kubewright.metrics import Metrics
from kubewright.reflector import Reflector
from kubewright.responses import UndecodableObject

from .maintenance import CalendarEntry, parse_calendar
from .tracker import RecordWarning

_FIRST_LIST_TIMEOUT_SECONDS = 10.0
"""A first list takes less, also on an API server that has just started."""
RETRY_SECONDS = 30.0
ROLE_MANIFEST = "config/optional/maintenance-calendar.yaml"
CALENDAR_PERMISSION = Permission(ConfigMap, ("list", "watch"))
"""In the namespace of the calendar alone."""


class CalendarReflector(Reflector[ConfigMap]):
    """A watch that says which role gives the right to it: not the generated one."""

    def describe_error(self, error: Exception) -> str:
        """What the failure means and what to do about it."""
        if not isinstance(error, Forbidden):
            return super().describe_error(error)
        return (
            f"{error}. If {self.namespace} is the right namespace, give the manager the right to list and watch ConfigMaps there: "
            f"write that namespace into {ROLE_MANIFEST} and apply it with kubectl apply -f; if not, correct -maintenance-calendar"
        )


class CalendarWatcher:
    """Tells `plan` the entries of the calendar whenever it changes, and its owner which lines cannot be used."""

    def __init__(
        self,
        where: Key,
        client: Client,
        metrics: Metrics,
        plan: Callable[[Iterable[CalendarEntry]], None],
        complain: RecordWarning,
        log: Log,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.key, self._on_entries, self.record_warning, self.log, self.clock = (
            where,
            plan,
            complain,
            log,
            clock,
        )
        store: Store[ConfigMap] = Store(ConfigMap.definition, log)
        store.listeners.append(self._on_configmap_change)
        self.reflector = CalendarReflector(
            ConfigMap, store, client, metrics, log, namespace=where.namespace
        )
        self.started_at: float | None = None
        self._is_present = False
        self.state_changed: list[Callable[[], None]] = []
        """Called when it came, or went, or became stale, or is so no more."""
        self.reflector.problem_changed.append(self._notify_state_changed)

    async def run(self) -> None:
        """Follow it until cancelled."""
        self.started_at = self.clock()
        await self.reflector.run()

    def require_loaded(self) -> None:
        """Raise while nobody can tell what it says."""
        if self._is_present:
            return
        patience_seconds = (
            _FIRST_LIST_TIMEOUT_SECONDS
            if self.started_at is None
            else self.started_at + _FIRST_LIST_TIMEOUT_SECONDS - self.clock()
        )
        if patience_seconds > 0:
            # Its coming wakes everybody; this is for the case that it does not come.
            raise NotSynced(
                f"the calendar of maintenance, ConfigMap {self.key}, is being read",
                after=patience_seconds + 0.001,
            )
        raise Retry(
            f"{self._describe_problem()}. No node is named until then.",
            after=RETRY_SECONDS,
            reason="CalendarUnreadable",
        )

    def _describe_problem(self) -> str:
        """What is wrong, and what to do."""
        if self.reflector.synced.is_set():
            return (
                f"the calendar of maintenance, ConfigMap {self.key}, does not exist. Create it, also without an entry "
                f"(kubectl create configmap -n {self.key.namespace} {self.key.name}), or correct -maintenance-calendar"
            )
        problem = self.reflector.problem or "the API server has not answered yet"
        return f"the calendar of maintenance, ConfigMap {self.key}, cannot be read: {problem}"

    @property
    def stale_message(self) -> str:
        """Why what is known of it may be out of date, "" if it is not."""
        if not self._is_present or not self.reflector.problem:
            return ""
        what = f"the calendar of maintenance, ConfigMap {self.key}, cannot be read any more"
        return f"{what}; what it said last counts: {self.reflector.problem}"

    def repeat_warnings(self) -> None:
        """Say anew which lines cannot be used: what was said before this process led has reached nobody."""
        if isinstance(found := self.reflector.store.objects.get(self.key), ConfigMap):
            self._report_invalid_lines(found)

    def _report_invalid_lines(self, found: ConfigMap) -> None:
        """Say which lines cannot be used."""
        for problem in parse_calendar(found.data)[1]:
            self.record_warning(found, "CalendarLineUnreadable", str(problem))

    def _on_configmap_change(
        self,
        key: Key,
        old: ConfigMap | UndecodableObject | None,
        new: ConfigMap | UndecodableObject | None,
        via: Origin,
    ) -> None:
        """A ConfigMap came, changed or went; others in the namespace are nobody's business here."""
        if key != self.key:
            return
        if isinstance(new, ConfigMap):
            self._report_invalid_lines(new)
            self._on_entries(parse_calendar(new.data)[0])
        elif self._is_present:
            self.log.warning(
                "the calendar of maintenance is gone; no node is named until it is back",
                configMap=str(key),
            )
        before, self._is_present = self._is_present, isinstance(new, ConfigMap)
        if before != self._is_present:
            self._notify_state_changed()

    def _notify_state_changed(self) -> None:
        """Every answer may be another one now."""
        for listener in self.state_changed:
            listener()
