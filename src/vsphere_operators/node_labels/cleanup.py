"""Removes the labels and conditions that a manager with -label-nodes has left.

What is not touched?  What another installation or a user has set, by the managed fields.
What if the permissions are gone?  A Warning Event on each Node explains what to do, and one request
    a minute shows whether they are back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
from .ownership import list_labeled_nodes
from .writer import COMPONENT, NodeWriter

_FORBIDDEN_RETRY_SECONDS = 60.0


class NodeLabelCleanup:
    """Runs in the leader while -label-nodes is off."""

    def __init__(self, cache: Cache, writer: NodeWriter, recorder: EventRecorder, log: Log) -> None:
        self._cache, self._writer, self._recorder, self._log = cache, writer, recorder, log
        # By uid: what Nodes have of others. While that is all, their managed fields are not read.
        self._foreign: dict[str, tuple[str, ...]] = {}
        self._reported_uids: set[str] = set()

    async def run(self) -> NoReturn:
        # Soon, but more than once: the first list of Nodes may take some seconds.
        delays = chain((1.0, 2.0, 5.0), repeat(30.0))
        is_allowed = True
        while True:
            await asyncio.sleep(next(delays) if is_allowed else _FORBIDDEN_RETRY_SECONDS)
            is_allowed = True
            nodes = self._cache.all(Node)
            uids = {node.metadata.uid for node in nodes}
            self._foreign = {uid: has for uid, has in self._foreign.items() if uid in uids}
            self._reported_uids &= uids
            leftovers = [
                node
                for node in nodes
                if (has := _list_leftovers(node)) and self._foreign.get(node.metadata.uid) != has
            ]
            if not leftovers:
                continue
            try:
                await self._clean_nodes(await self._select_own(leftovers))
            except Forbidden:
                is_allowed = False
            except KubewrightError as error:
                self._log.debug("could not remove labels of -label-nodes, retrying", error=error)

    async def _select_own(self, nodes: Sequence[Node]) -> list[Node]:
        """Those with something of this installation; the others are remembered as foreign."""
        labeled = await list_labeled_nodes(self._writer.client, self._writer.field_manager)
        own_uids = {node.metadata.uid for node in labeled}
        self._foreign |= {
            node.metadata.uid: _list_leftovers(node)
            for node in nodes
            if node.metadata.uid not in own_uids
        }
        return [node for node in nodes if node.metadata.uid in own_uids]

    async def _clean_nodes(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            try:
                if read_labels(node.metadata.labels):
                    await self._writer.apply_labels(node, {})
                if find_stored(node):
                    await self._writer.apply_condition(node, None, utc_now())
            except NotFound:
                continue
            except Forbidden:
                # It is forbidden for all Nodes.
                self._report_leftovers(nodes)
                raise
        if nodes:
            self._log.info(
                "labels and conditions of -label-nodes are gone; the permissions of "
                f"{COMPONENT} are no longer needed",
                nodes=len(nodes),
            )

    def _report_leftovers(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if node.metadata.uid not in self._reported_uids:
                self._reported_uids.add(node.metadata.uid)
                message = (
                    f"The Node has {', '.join(_list_leftovers(node))} of -label-nodes, which is "
                    "off, and the manager is not allowed to remove it. Run: kubectl apply -f "
                    f"{COMPONENT}/role.yaml, and delete that role when it is removed."
                )
                self._recorder.event(node, "Warning", Reason.NODE_LABEL_LEFT, message)


def _list_leftovers(node: Node) -> tuple[str, ...]:
    """The labels and the condition of -label-nodes that the Node has."""
    condition = (HOST_PRESSURE,) if find_stored(node) else ()
    return (*read_labels(node.metadata.labels), *condition)
