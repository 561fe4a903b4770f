"""Removes the labels and conditions that a manager with -label-nodes has left."""

from __future__ import annotations

import asyncio
from itertools import chain, repeat
from typing import NoReturn

from kubewright import Cache
from kubewright.builtin import Node
from kubewright.condition import utc_now
from kubewright.errors import Forbidden, KubewrightError, NotFound
from kubewright.log import Log
from kubewright.recorder import EventRecorder

from .condition import HOST_PRESSURE, Reason, find_stored
from .labels import read_labels
from .writer import COMPONENT, NodeWriter


class NodeLabelCleanup:
    """Runs in the leader while -label-nodes is off."""

    def __init__(self, cache: Cache, writer: NodeWriter, recorder: EventRecorder, log: Log) -> None:
        self._cache, self._writer, self._recorder, self._log = cache, writer, recorder, log
        # By uid: Nodes that have nothing of this manager any more. What another manager or a user
        # has set stays, so such a Node must not be patched again and again.
        self._clean_uids: set[str] = set()
        self._forbidden_uids: set[str] = set()

    async def run(self) -> NoReturn:
        # Soon, but more than once: the first list of Nodes may take some seconds. Then rarely: each
        # Node that the manager may not patch costs a request per scan.
        delays = chain((1.0, 2.0, 5.0), repeat(30.0))
        while True:
            await asyncio.sleep(next(delays))
            nodes = self._cache.all(Node)
            uids = {node.metadata.uid for node in nodes}
            self._clean_uids &= uids
            self._forbidden_uids &= uids
            leftovers = [
                node
                for node in nodes
                if node.metadata.uid not in self._clean_uids
                and (read_labels(node.metadata.labels) or find_stored(node))
            ]
            removed = [await self._clean_node(node) for node in leftovers]
            if leftovers and all(removed):
                self._log.info(
                    "labels and conditions of -label-nodes are gone; the permissions of "
                    f"{COMPONENT} are no longer needed",
                    nodes=len(leftovers),
                )

    async def _clean_node(self, node: Node) -> bool:
        uid = node.metadata.uid
        try:
            if read_labels(node.metadata.labels):
                await self._writer.apply_labels(node, {})
            if find_stored(node):
                await self._writer.apply_condition(node, None, utc_now())
        except NotFound:
            return True
        except Forbidden:
            if uid not in self._forbidden_uids:
                self._forbidden_uids.add(uid)
                self._recorder.event(
                    node, "Warning", Reason.NODE_LABEL_LEFT, _describe_leftover(node)
                )
            return False
        except KubewrightError as error:
            self._log.debug(
                "could not remove the labels of a node, retrying",
                node=node.metadata.name,
                error=error,
            )
            return False
        self._clean_uids.add(uid)
        return True


def _describe_leftover(node: Node) -> str:
    leftovers = [
        *read_labels(node.metadata.labels),
        *([HOST_PRESSURE] if find_stored(node) else []),
    ]
    return (
        f"The Node has {', '.join(leftovers)} of -label-nodes, which is off, and the manager is "
        f"not allowed to remove it. Install the permissions of {COMPONENT} with "
        "-label-nodes=false until it is removed."
    )
