"""One object as YAML, with its conditions and Events: of the manager's kinds, or a Node or Pod.

Why are Nodes and Pods not shown whole?  A client of the topology may have no permission to read
    them. The types of Node and Pod have no field that can hold a password, except annotations,
    which are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from heapq import nlargest
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from kubewright import Cache, Client, Key, Object
from kubewright.builtin import Event, Node, Pod
from kubewright.errors import Forbidden, KubewrightError
from kubewright.yaml_text import dump_yaml

from .cluster_objects import ROLE_COMPONENT, ClusterObjects

_MAX_EVENTS = 50
# They have a name that grows with time, so that the newest come last: all have to be read.
_MAX_READ_EVENTS = 5_000
# Events of objects without a namespace are in this one.
_DEFAULT_NAMESPACE = "default"


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
    # The YAML has only the fields that the manager uses.
    isPartial: bool = False
    conditions: list[dict[str, Any]]
    # The newest first; `omittedEvents` counts the others.
    events: list[EventRow]
    omittedEvents: int = 0
    problems: list[str] = []


class ObjectReader:
    """Reads from the caches, so that only kinds that the manager watches can be read."""

    def __init__(
        self,
        cache: Cache,
        client: Client,
        cluster_objects: ClusterObjects,
        kinds: Iterable[type[Object]],
    ) -> None:
        self._cache, self._client, self._cluster_objects = cache, client, cluster_objects
        # A controller may also be of a kind of Kubernetes; of these only Node and Pod are shown.
        self._kinds = {
            kind.definition.plural: kind for kind in kinds if not kind.definition.external
        }

    async def read(self, plural: str, key: Key) -> ObjectDetails | None:
        """None if the kind cannot be read here, or the object does not exist."""
        problems = list[str]()
        obj: Object | None
        match plural:
            case "nodes":
                node = self._cache.get(Node, key)
                obj = _without_annotations(node) if node is not None else None
            case "pods":
                obj = await self._read_pod(key, problems)
            case _:
                kind = self._kinds.get(plural)
                obj = self._cache.get(kind, key) if kind is not None else None
        if obj is None:
            return None
        encoded = msgspec.to_builtins(obj.encode())
        events, omitted = await self._list_events(obj, problems)
        return ObjectDetails(
            apiVersion=obj.definition.api_version,
            kind=obj.definition.name,
            namespace=key.namespace,
            name=key.name,
            yaml=dump_yaml(encoded),
            isPartial=obj.definition.external,
            conditions=encoded.get("status", {}).get("conditions", []),
            events=events,
            omittedEvents=omitted,
            problems=problems,
        )

    async def _read_pod(self, key: Key, problems: list[str]) -> Pod | None:
        summary = self._cluster_objects.pods.objects.get(key)
        if not isinstance(summary, Pod):
            return None
        # The summary lacks most conditions. Listed, because the manager's role cannot get Pods. The
        # Pod exists, so its name has no character with a meaning in a selector.
        selector = f"metadata.name={key.name}"
        try:
            pods = await self._client.list(Pod, key.namespace, field_selector=selector)
        except KubewrightError as error:
            problems.append(f"Only some fields of the Pod are shown, it cannot be read: {error}")
            return summary
        return _without_annotations(pods[0]) if pods else None

    async def _list_events(self, obj: Object, problems: list[str]) -> tuple[list[EventRow], int]:
        """The newest Events, and how many others there are."""
        metadata, name = obj.metadata, obj.definition.name
        # By name and not by uid: some clients set no uid, and the kubelet sets the name of a Node.
        selector = f"involvedObject.kind={name},involvedObject.name={metadata.name}"
        uids = {metadata.uid, ""} | ({metadata.name} if isinstance(obj, Node) else set())
        namespace = metadata.namespace or _DEFAULT_NAMESPACE
        events, read_count = list[Event](), 0
        try:
            async for page in self._client.list_pages(Event, namespace, field_selector=selector):
                events += (
                    event
                    for event in page.items
                    if isinstance(event, Event) and event.involvedObject.uid in uids
                )
                read_count += len(page.items)
                if page.continue_token and read_count >= _MAX_READ_EVENTS:
                    problems.append(
                        f"There are more than {_MAX_READ_EVENTS} Events, so the newest may be "
                        f"missing. To see them, run: kubectl events -n {namespace} "
                        f"--for {obj.definition.plural}/{metadata.name}"
                    )
                    break
        except Forbidden as error:
            problems.append(f"Events cannot be read: {error}. Grant it with {ROLE_COMPONENT}")
        except KubewrightError as error:
            problems.append(f"Events cannot be read: {error}")
        newest = nlargest(_MAX_EVENTS, map(_build_event_row, events), key=_seconds_of)
        return newest, len(events) - len(newest)


_NodeOrPodT = TypeVar("_NodeOrPodT", Node, Pod)


def _without_annotations(obj: _NodeOrPodT) -> _NodeOrPodT:
    return replace(obj, metadata=replace(obj.metadata, annotations={}))


def _build_event_row(event: Event) -> EventRow:
    return EventRow(
        # Events of newer clients, such as the scheduler, have neither of the first two.
        time=event.lastTimestamp or event.firstTimestamp or event.metadata.creationTimestamp,
        type=event.type,
        reason=event.reason,
        message=event.message,
        count=max(event.count, 1),
    )


def _seconds_of(row: EventRow) -> float:
    return row.time.timestamp() if row.time else 0.0
