"""The ConfigMap with planned maintenance, followed by a watch of its namespace alone, so that no right to other ConfigMaps is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kubewright import Client, Key
from kubewright.answer import Undecoded
from kubewright.builtin import ConfigMap
from kubewright.cache import Store, Via
from kubewright.log import Log
from kubewright.metrics import Metrics
from kubewright.reflector import Reflector

from .maintenance import Entry, entries_of
from .nodes import Complain


class Almanac:
    """Tells `plan` the entries of the calendar whenever it changes, and its owner which lines cannot be used."""

    def __init__(
        self, where: Key, client: Client, metrics: Metrics, plan: Callable[[Iterable[Entry]], None], complain: Complain, log: Log
    ) -> None:
        self.where, self.plan, self.complain, self.log = where, plan, complain, log
        store: Store[ConfigMap] = Store(ConfigMap.definition, log)
        store.listeners.append(self.hear)
        self.reflector = Reflector(ConfigMap, store, client, metrics, log, namespace=where.namespace)

    async def run(self) -> None:
        """Follow it until cancelled."""
        await self.reflector.run()

    def hear(self, key: Key, old: ConfigMap | Undecoded | None, new: ConfigMap | Undecoded | None, via: Via) -> None:
        """A ConfigMap came, changed or went; others in the namespace are nobody's business here."""
        if key != self.where:
            return
        if not isinstance(new, ConfigMap):
            self.log.warning("the calendar of maintenance is gone; nothing of it counts any more", configMap=str(key))
            self.plan([])
            return
        entries, problems = entries_of(new.data)
        for problem in problems:
            self.complain(new, "CalendarLineUnreadable", str(problem))
        self.plan(entries)
