"""The label on the Node that a GPUInfo names, which a Job can select: with -label-suitable-nodes, and what is left of it without.

What becomes of labels and finalizers when the flag is taken away?  `Leftovers` takes them off, while the manager still may: leave the
    rights of config/optional until the log says that all is gone. Without them a warning Event on each says what to do.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from typing import Any, NoReturn

from kubewright import Cache, Client, Done, Key, Retry, Stream, Terminal
from kubewright.builtin import Node
from kubewright.errors import Conflict, Forbidden, KubewrightError, NotFound
from kubewright.log import Log
from kubewright.recorder import EventRecorder
from kubewright.responses import UndecodableObject

from .controller import GPUInfo, GPUInfoController

_LABEL_PREFIX = "gpuinfo.topology.corinternal.com/"
FINALIZER = "gpuinfo.topology.corinternal.com/label"
_MAX_LABEL_NAME_LENGTH = 63
_LABEL_INDEX = "gpuinfo-label"
DEBOUNCE_SECONDS, RETRY_SECONDS = 1.0, 30.0
ROLE_MANIFEST = "config/optional/label-suitable-nodes.yaml"


class LabellingGPUInfoController(GPUInfoController):
    """The same, with a label on the chosen Node that a Job can select."""

    finalizer = FINALIZER

    def with_client(self, client: Client) -> LabellingGPUInfoController:
        """Write labels with this client."""
        self.client = client
        self.needs(Node, "patch")
        self.cache.store(Node).add_index(_LABEL_INDEX, find_gpuinfo_labels)
        self._desired_node_by_label: dict[str, str] = {}
        """The Node on which each label stands by our will, "" for none."""
        self._changed_labels = Stream()
        self.wake_on(self._changed_labels, by=lambda info: build_label_key(info.key))
        self.cache.store(Node).listeners.append(
            lambda key, old, new, via: self.on_node_change(old, new)
        )
        return self

    async def reconcile(self, info: GPUInfo) -> Done:
        """The same; an object without an answer has no label either."""
        try:
            return await super().reconcile(info)
        except (Terminal, Retry):
            if not info.status.suitableNodeName:
                await self.update_label(info.key, "")
            raise

    async def update_label(self, key: Key, node: str) -> None:
        """The label stands on this Node and on no other; "" is on none."""
        name = build_label_key(key)
        self._desired_node_by_label[name] = node
        labelled = {each.metadata.name for each in self.cache.by_index(Node, _LABEL_INDEX, name)}
        for other in sorted(labelled - {node}):
            await self.client.patch(Node, Key("", other), {"metadata": {"labels": {name: None}}})
        if node and node not in labelled:
            await self.client.patch(Node, Key("", node), {"metadata": {"labels": {name: "true"}}})

    async def finalize(self, info: GPUInfo) -> None:
        """The label goes with the object."""
        await self.update_label(info.key, "")
        self._desired_node_by_label.pop(build_label_key(info.key), None)

    def on_node_change(
        self, old: Node | UndecodableObject | None, new: Node | UndecodableObject | None
    ) -> None:
        """Wake those whose label somebody else has put on a Node or taken off."""
        before, after = (
            set(find_gpuinfo_labels(node)) if isinstance(node, Node) else set()
            for node in (old, new)
        )
        name = next(node.metadata.name for node in (new, old) if node is not None)
        for label in before ^ after:
            if (label in after) != (self._desired_node_by_label.get(label) == name):
                self._changed_labels.publish(label)


def find_gpuinfo_labels(node: Node) -> Iterable[str]:
    """The labels of ours on a Node."""
    return [label for label in node.metadata.labels if label.startswith(_LABEL_PREFIX)]


def build_label_key(key: Key) -> str:
    """The label that names a GPUInfo; a namespace has no dot, so no two are the same. What is too long is cut, with a digest at its end."""
    name = f"{key.namespace}.{key.name}"
    if len(name) > _MAX_LABEL_NAME_LENGTH:
        name = f"{name[: _MAX_LABEL_NAME_LENGTH - 11].rstrip('.-')}-{hashlib.sha256(name.encode()).hexdigest()[:10]}"
    return _LABEL_PREFIX + name


class LabelCleanup:
    """Takes off what a manager with -label-suitable-nodes has left, for one that runs without it."""

    def __init__(self, cache: Cache, client: Client, recorder: EventRecorder, log: Log) -> None:
        self.cache, self.client, self.recorder, self.log = cache, client, recorder, log
        self.pending: dict[tuple[type[GPUInfo | Node], Key], None] = {}
        self._wakeup = asyncio.Event()
        self.forbidden: set[tuple[type[GPUInfo | Node], Key]] = set()
        """Those of which it was said that we may not."""
        cache.store(GPUInfo).listeners.append(
            lambda key, old, new, via: self.on_change(GPUInfo, key, new)
        )
        cache.store(Node).listeners.append(
            lambda key, old, new, via: self.on_change(Node, key, new)
        )

    def on_change(self, kind: type[GPUInfo | Node], key: Key, new: Any) -> None:
        """Something came or changed, and has something of ours, or has it no longer."""
        if isinstance(new, kind) and _has_leftovers(new):
            self.pending[kind, key] = None
            self._wakeup.set()
        else:
            self.pending.pop((kind, key), None)
            self.forbidden.discard((kind, key))

    async def run(self) -> NoReturn:
        """Clean up whatever is found, until cancelled."""
        while True:
            await self._wakeup.wait()
            await asyncio.sleep(DEBOUNCE_SECONDS)
            self._wakeup.clear()
            for kind, key in list(self.pending):
                await self._clean_object(kind, key)
            if self.pending:
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._wakeup.set)
            else:
                self.log.info(
                    f"labels and finalizers of -label-suitable-nodes are gone; the rights of {ROLE_MANIFEST} are not needed any more"
                )

    async def _clean_object(self, kind: type[GPUInfo | Node], key: Key) -> None:
        """Take it off one object; a failure is told and tried again, a right that is lacking is said on the object once."""
        obj = self.cache.get(kind, key)
        try:
            if obj is not None:
                await self.client.patch(kind, key, _build_cleanup_patch(obj))
            self.pending.pop((kind, key), None)
        except NotFound:
            self.pending.pop((kind, key), None)
        except Forbidden:
            if obj is not None and (kind, key) not in self.forbidden:
                self.forbidden.add((kind, key))
                self.recorder.event(obj, kind.definition, "Warning", *_describe_leftover(obj))
        except Conflict:
            self.log.debug("somebody else wrote first, trying again", object=str(key))
        except KubewrightError as error:
            self.log.debug(
                "could not take off a label or finalizer, trying again",
                object=str(key),
                error=error,
            )


def _has_leftovers(obj: GPUInfo | Node) -> bool:
    """Whether it has something of ours."""
    return (
        bool(find_gpuinfo_labels(obj))
        if isinstance(obj, Node)
        else FINALIZER in obj.metadata.finalizers
    )


def _build_cleanup_patch(obj: GPUInfo | Node) -> dict[str, Any]:
    """The patch that takes it off."""
    if isinstance(obj, Node):
        return {"metadata": {"labels": dict.fromkeys(find_gpuinfo_labels(obj))}}
    others = [each for each in obj.metadata.finalizers if each != FINALIZER]
    return {
        "metadata": {"resourceVersion": obj.metadata.resourceVersion, "finalizers": others or None}
    }


def _describe_leftover(obj: GPUInfo | Node) -> tuple[str, str]:
    """Reason and words of the Event where we may not."""
    mend = f"which is off, and the manager may not take it off. Apply {ROLE_MANIFEST} until it has done so, or do it yourself:"
    name, namespace = obj.metadata.name, obj.metadata.namespace
    if isinstance(obj, Node):
        off = " ".join(f"{label}-" for label in find_gpuinfo_labels(obj))
        return (
            "LabelLeft",
            f"it has a label of -label-suitable-nodes, {mend} kubectl label node {name} {off}",
        )
    edit = f"take {FINALIZER} out of metadata.finalizers with kubectl edit gpuinfo -n {namespace} {name}"
    return (
        "FinalizerLeft",
        f"it cannot be deleted, since it has the finalizer of -label-suitable-nodes, {mend} {edit}",
    )
