"""The objects, their history, and the watches that follow it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from ...patch import Json
from .resource_path import is_in_collection

EventType = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True)
class StoredEvent:
    """One change. `previous` is what a selector compares with."""

    revision: int
    key: str
    type: EventType
    object: Json
    previous: Json | None


@dataclass
class ObjectStore:
    """All objects by their path, with one counter of resourceVersions as in etcd."""

    objects: dict[str, Json] = field(default_factory=dict)
    # Not 0: a resourceVersion of "0" means "any" in a request.
    revision: int = 1000
    oldest_revision: int = 0
    history: list[StoredEvent] = field(default_factory=list)
    watchers: list[tuple[str, asyncio.Queue[StoredEvent | None]]] = field(default_factory=list)

    def list_collection(self, path: str) -> list[Json]:
        return [self.objects[key] for key in sorted(self.objects) if is_in_collection(key, path)]

    def store(self, type: EventType, key: str, obj: Json) -> Json:
        """Give the object the next resourceVersion, store or remove it, and notify the watches."""
        self.revision += 1
        metadata = obj["metadata"] | {"resourceVersion": str(self.revision)}
        # A copy, many times faster than copy.deepcopy.
        obj = msgspec.json.decode(msgspec.json.encode(obj | {"metadata": metadata}))
        previous = self.objects.get(key)
        if type == "DELETED":
            self.objects.pop(key, None)
        else:
            self.objects[key] = obj
        event = StoredEvent(self.revision, key, type, obj, previous)
        self.history.append(event)
        for path, queue in self.watchers:
            if is_in_collection(key, path):
                queue.put_nowait(event)
        return obj

    def close_watches(self) -> None:
        for _, queue in self.watchers:
            queue.put_nowait(None)

    def compact(self) -> None:
        self.oldest_revision = self.revision
        self.history.clear()
