"""The label on the Node that a GPUInfo selects (-label-suitable-nodes), for nodeSelectors of Jobs.

What happens to labels and finalizers when the flag is removed?  `LabelCleanup` removes them while
    the manager still has the permissions of config/optional, so keep those until the log reports
    that all are gone. Without the permissions, a Warning Event on each object explains the fix.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from itertools import chain, repeat
from typing import Any, NoReturn

from kubewright import Cache, Client, Key, Stream
from kubewright.builtin import Node
from kubewright.cache import Origin
from kubewright.errors import Forbidden, KubewrightError, NotFound
from kubewright.log import Log
from kubewright.recorder import EventRecorder
from kubewright.responses import UndecodableObject
from kubewright.shard_ranges import ShardBy
from kubewright.shards import Shards

from .label_slots import LabelDenied, LabelLimits, LabelSlots
from .types import GPUInfo, Reason

_LABEL_PREFIX = "gpuinfo.topology.corinternal.com/"
FINALIZER = "gpuinfo.topology.corinternal.com/label"
_MAX_LABEL_NAME_LENGTH = 63
_LABEL_INDEX, _NAMESPACE_INDEX = "gpuinfo-label", "gpuinfo-label-namespace"
ROLE_MANIFEST = "config/optional/label-suitable-nodes.yaml"


class NodeLabeler:
    def __init__(self, client: Client, cache: Cache, limits: LabelLimits) -> None:
        self._client, self._cache = client, cache
        cache.store(Node).add_index(_LABEL_INDEX, _find_gpuinfo_labels)
        cache.store(Node).add_index(_NAMESPACE_INDEX, _find_label_namespaces)
        self._slots = LabelSlots(limits, lambda: asyncio.get_running_loop().time())
        # The label keys that another client has added or removed.
        self.changed_labels = Stream()

    async def move_label(self, key: Key, node: str) -> LabelDenied | None:
        """Put the label on this Node and remove it from all others; "" removes it everywhere.

        If a limit forbids to put it there, it is only removed.
        """
        label = build_label_key(key)
        denied = self._take_slot(label, key.namespace, node) if node else None
        if denied is not None or not node:
            self._slots.release(label)
            node = ""
        labeled = {
            labeled_node.metadata.name
            for labeled_node in self._cache.by_index(Node, _LABEL_INDEX, label)
        }
        for other in sorted(labeled - {node}):
            await self._client.patch(Node, Key("", other), {"metadata": {"labels": {label: None}}})
        if node and node not in labeled:
            await self._client.patch(Node, Key("", node), {"metadata": {"labels": {label: "true"}}})
            self._slots.on_label_added(label, key.namespace)
        return denied

    def _take_slot(self, label: str, namespace: str, node: str) -> LabelDenied | None:
        stored = self._cache.get(Node, Key("", node))
        return self._slots.take(
            label,
            namespace,
            node,
            on_node=set(_find_gpuinfo_labels(stored)) if stored else set(),
            in_namespace={
                other
                for labeled in self._cache.by_index(Node, _NAMESPACE_INDEX, namespace)
                for other in _find_gpuinfo_labels(labeled)
                if _namespace_of(other) == namespace
            },
        )

    def on_node_change(
        self,
        key: Key,
        old: Node | UndecodableObject | None,
        new: Node | UndecodableObject | None,
        origin: Origin,
    ) -> None:
        """Enqueue the GPUInfo of each label that another client has added or removed."""
        before, after = (
            set(_find_gpuinfo_labels(node)) if isinstance(node, Node) else set()
            for node in (old, new)
        )
        for label in before ^ after:
            if (label in after) != (self._slots.node_of(label) == key.name):
                self.changed_labels.notify(label)


def _find_gpuinfo_labels(node: Node) -> Iterable[str]:
    return [label for label in node.metadata.labels if label.startswith(_LABEL_PREFIX)]


def _find_label_namespaces(node: Node) -> Iterable[str]:
    return {_namespace_of(label) for label in _find_gpuinfo_labels(node)}


def _namespace_of(label: str) -> str:
    """The namespace in a label key. Of one with more than 52 characters only a part is left."""
    return label.removeprefix(_LABEL_PREFIX).partition(".")[0]


def build_label_key(key: Key) -> str:
    # A namespace has no dot, so two objects never share a name.
    name = f"{key.namespace}.{key.name}"
    if len(name) > _MAX_LABEL_NAME_LENGTH:
        digest = hashlib.sha256(name.encode()).hexdigest()[:10]
        name = f"{name[: _MAX_LABEL_NAME_LENGTH - 11].rstrip('.-')}-{digest}"
    return _LABEL_PREFIX + name


class LabelCleanup:
    """Removes the labels and finalizers that a manager with -label-suitable-nodes has left."""

    def __init__(
        self, cache: Cache, client: Client, recorder: EventRecorder, shards: Shards, log: Log
    ) -> None:
        self._cache, self._client, self._recorder, self._log = cache, client, recorder, log
        self._shards = shards
        self._forbidden: set[tuple[type[GPUInfo | Node], Key]] = set()

    async def run(self) -> NoReturn:
        # Soon, but more than once: the first lists of the cache may take some seconds. Then rarely:
        # each object that the manager may not patch costs a request per scan.
        delays = chain((1.0, 2.0, 5.0), repeat(30.0))
        while True:
            await asyncio.sleep(next(delays))
            leftovers: list[GPUInfo | Node] = [
                *(
                    info
                    for info in self._cache.all(GPUInfo)
                    if FINALIZER in info.metadata.finalizers
                ),
                *(node for node in self._cache.all(Node) if _find_gpuinfo_labels(node)),
            ]
            self._forbidden &= {(type(obj), obj.metadata.key) for obj in leftovers}
            if self._shards.count > 1:
                leftovers = [
                    obj
                    for obj in leftovers
                    if self._shards.is_responsible_for(obj.metadata, _shard_by_of(obj))
                ]
            removed = [await self._clean_object(obj) for obj in leftovers]
            if leftovers and all(removed):
                self._log.info(
                    "labels and finalizers of -label-suitable-nodes are gone; "
                    f"the permissions of {ROLE_MANIFEST} are no longer needed"
                )

    async def _clean_object(self, obj: GPUInfo | Node) -> bool:
        """Whether the object has no leftovers any more."""
        with self._shards.context_of(obj.metadata, _shard_by_of(obj)):
            return await self._try_clean_object(obj)

    async def _try_clean_object(self, obj: GPUInfo | Node) -> bool:
        kind, key = type(obj), obj.metadata.key
        try:
            await self._client.patch(kind, key, _build_cleanup_patch(obj))
        except NotFound:
            return True
        except Forbidden:
            if (kind, key) not in self._forbidden:
                self._forbidden.add((kind, key))
                self._recorder.event(obj, "Warning", *_describe_leftover(obj))
            return False
        except KubewrightError as error:
            # Most often a Conflict: another client wrote the object first.
            self._log.debug(
                "could not remove a label or finalizer, retrying", object=str(key), error=error
            )
            return False
        return True


def _shard_by_of(obj: GPUInfo | Node) -> ShardBy:
    # A replica caches the GPUInfos of its shards, and all Nodes.
    return "none" if isinstance(obj, Node) else "uid"


def _build_cleanup_patch(obj: GPUInfo | Node) -> dict[str, Any]:
    if isinstance(obj, Node):
        return {"metadata": {"labels": dict.fromkeys(_find_gpuinfo_labels(obj))}}
    # A merge patch replaces the whole list, so it must not overwrite a concurrent change.
    others = [finalizer for finalizer in obj.metadata.finalizers if finalizer != FINALIZER]
    return {
        "metadata": {"resourceVersion": obj.metadata.resourceVersion, "finalizers": others or None}
    }


def _describe_leftover(obj: GPUInfo | Node) -> tuple[Reason, str]:
    """Reason and message of the Event on an object that the manager may not patch."""
    cause = (
        "of -label-suitable-nodes, which is off, and the manager is not allowed to remove it. "
        f"Apply {ROLE_MANIFEST} until it is removed, or "
    )
    name, namespace = obj.metadata.name, obj.metadata.namespace
    if isinstance(obj, Node):
        removals = " ".join(f"{label}-" for label in _find_gpuinfo_labels(obj))
        fix = f"run: kubectl label node {name} {removals}"
        return Reason.LABEL_LEFT, f"The Node has a label {cause}{fix}"
    fix = (
        f"remove {FINALIZER} from metadata.finalizers with: "
        f"kubectl edit gpuinfo -n {namespace} {name}"
    )
    return (
        Reason.FINALIZER_LEFT,
        f"The GPUInfo cannot be deleted because it has the finalizer {cause}{fix}",
    )
