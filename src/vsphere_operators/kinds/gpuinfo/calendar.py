"""The ConfigMap with planned maintenance, followed by a watch of its namespace alone, so that no right to other ConfigMaps is needed.

Why is no answer given before it was read, or while it is not there?  A node that goes down tomorrow would be named for a job of 300 hours.
And when it was read, and cannot be any more?  What was read last counts; `stale` has the words, for the status of whoever relies on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from kubewright import Client, Key, NotYet, Retry
from kubewright.builtin import ConfigMap
from kubewright.cache import Store, Via
from kubewright.controller import Right
from kubewright.errors import Forbidden
from kubewright.log import Log
from kubewright.metrics import Metrics
from kubewright.reflector import Reflector
from kubewright.responses import Undecoded

from .maintenance import Entry, entries_of
from .tracker import Complain

PATIENCE_SECONDS = 10.0
"""A first list takes less, also on an API server that has just started."""
LOOK_AGAIN_SECONDS = 30.0
ROLE = "config/optional/maintenance-calendar.yaml"
RIGHT = Right(ConfigMap, ("list", "watch"))
"""In the namespace of the calendar alone."""


class CalendarReflector(Reflector[ConfigMap]):
    """A watch that says which role gives the right to it: not the generated one."""

    def words_for(self, error: Exception) -> str:
        """What the failure means and what to do about it."""
        if not isinstance(error, Forbidden):
            return super().words_for(error)
        return (
            f"{error}. If {self.namespace} is the right namespace, give the manager the right to list and watch ConfigMaps there: "
            f"write that namespace into {ROLE} and apply it with kubectl apply -f; if not, correct -maintenance-calendar"
        )


class Almanac:
    """Tells `plan` the entries of the calendar whenever it changes, and its owner which lines cannot be used."""

    def __init__(
        self,
        where: Key,
        client: Client,
        metrics: Metrics,
        plan: Callable[[Iterable[Entry]], None],
        complain: Complain,
        log: Log,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.where, self.plan, self.complain, self.log, self.clock = where, plan, complain, log, clock
        store: Store[ConfigMap] = Store(ConfigMap.definition, log)
        store.listeners.append(self.hear)
        self.reflector = CalendarReflector(ConfigMap, store, client, metrics, log, namespace=where.namespace)
        self.began_at: float | None = None
        self.there = False
        self.turned: list[Callable[[], None]] = []
        """Called when it came, or went, or became stale, or is so no more."""
        self.reflector.turned.append(self.tell)

    async def run(self) -> None:
        """Follow it until cancelled."""
        self.began_at = self.clock()
        await self.reflector.run()

    def require(self) -> None:
        """Raise while nobody can tell what it says."""
        if self.there:
            return
        patience_seconds = PATIENCE_SECONDS if self.began_at is None else self.began_at + PATIENCE_SECONDS - self.clock()
        if patience_seconds > 0:
            # Its coming wakes everybody; this is for the case that it does not come.
            raise NotYet(f"the calendar of maintenance, ConfigMap {self.where}, is being read", after=patience_seconds + 0.001)
        raise Retry(f"{self.why_unknown()}. No node is named until then.", after=LOOK_AGAIN_SECONDS, reason="CalendarUnreadable")

    def why_unknown(self) -> str:
        """What is wrong, and what to do."""
        if self.reflector.synced.is_set():
            return (
                f"the calendar of maintenance, ConfigMap {self.where}, does not exist. Create it, also without an entry "
                f"(kubectl create configmap -n {self.where.namespace} {self.where.name}), or correct -maintenance-calendar"
            )
        problem = self.reflector.problem or "the API server has not answered yet"
        return f"the calendar of maintenance, ConfigMap {self.where}, cannot be read: {problem}"

    @property
    def stale(self) -> str:
        """Why what is known of it may be out of date, "" if it is not."""
        if not self.there or not self.reflector.problem:
            return ""
        what = f"the calendar of maintenance, ConfigMap {self.where}, cannot be read any more"
        return f"{what}; what it said last counts: {self.reflector.problem}"

    def say_again(self) -> None:
        """Say anew which lines cannot be used: what was said before this process led has reached nobody."""
        if isinstance(found := self.reflector.store.objects.get(self.where), ConfigMap):
            self.say_of(found)

    def say_of(self, found: ConfigMap) -> None:
        """Say which lines cannot be used."""
        for problem in entries_of(found.data)[1]:
            self.complain(found, "CalendarLineUnreadable", str(problem))

    def hear(self, key: Key, old: ConfigMap | Undecoded | None, new: ConfigMap | Undecoded | None, via: Via) -> None:
        """A ConfigMap came, changed or went; others in the namespace are nobody's business here."""
        if key != self.where:
            return
        if isinstance(new, ConfigMap):
            self.say_of(new)
            self.plan(entries_of(new.data)[0])
        elif self.there:
            self.log.warning("the calendar of maintenance is gone; no node is named until it is back", configMap=str(key))
        before, self.there = self.there, isinstance(new, ConfigMap)
        if before != self.there:
            self.tell()

    def tell(self) -> None:
        """Every answer may be another one now."""
        for listener in self.turned:
            listener()
