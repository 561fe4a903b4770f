"""One object of the manager's kinds as YAML, with its conditions and Events."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from kubewright import Cache, Client, Key, Object
from kubewright.builtin import Event
from kubewright.errors import Forbidden, KubewrightError
from kubewright.yaml_text import dump_yaml

from .cluster_objects import ROLE_COMPONENT

_MAX_EVENTS = 50


class EventRow(Struct, frozen=True, omit_defaults=True, kw_only=True):
    time: datetime | None = None
    type: str
    reason: str
    message: str
    count: int


class ObjectDetails(Struct, frozen=True, omit_defaults=True, kw_only=True):
    apiVersion: str
    kind: str
    namespace: str
    name: str
    yaml: str
    conditions: list[dict[str, Any]]
    # The newest first.
    events: list[EventRow]
    problems: list[str] = []


class ObjectReader:
    """Reads from the cache, so that only kinds that the manager serves can be read."""

    def __init__(self, cache: Cache, client: Client, kinds: Iterable[type[Object]]) -> None:
        self._cache, self._client = cache, client
        self._kinds = {kind.definition.plural: kind for kind in kinds}

    async def read(self, plural: str, key: Key) -> ObjectDetails | None:
        """None if the kind is not one of the manager's, or the object does not exist."""
        kind = self._kinds.get(plural)
        obj = self._cache.get(kind, key) if kind is not None else None
        if obj is None:
            return None
        encoded = msgspec.to_builtins(obj.encode())
        events, problems = await self._list_events(obj)
        return ObjectDetails(
            apiVersion=obj.definition.api_version,
            kind=obj.definition.name,
            namespace=key.namespace,
            name=key.name,
            yaml=dump_yaml(encoded),
            conditions=encoded.get("status", {}).get("conditions", []),
            events=events,
            problems=problems,
        )

    async def _list_events(self, obj: Object) -> tuple[list[EventRow], list[str]]:
        # The object exists, so its name has no character with a meaning in a selector.
        selector = (
            f"involvedObject.kind={obj.definition.name},involvedObject.name={obj.metadata.name}"
        )
        try:
            events = await self._client.list(Event, obj.metadata.namespace, field_selector=selector)
        except Forbidden as error:
            return [], [f"Events cannot be read: {error}. Grant it with {ROLE_COMPONENT}"]
        except KubewrightError as error:
            return [], [f"Events cannot be read: {error}"]
        rows = [
            EventRow(
                time=event.lastTimestamp or event.firstTimestamp,
                type=event.type,
                reason=event.reason,
                message=event.message,
                count=max(event.count, 1),
            )
            for event in events
        ]
        # An Event without a time comes last.
        rows.sort(key=lambda row: row.time.timestamp() if row.time else 0.0, reverse=True)
        return rows[:_MAX_EVENTS], []
