"""Removes the labels and conditions that a manager with -label-nodes has left.

What is kept?  What another installation or a user has set, according to the managed fields.
What if a Node cannot be patched?  The others are cleaned, and a Warning Event on it explains what
    to do.
What if the permissions are gone?  The scan ends after a few Nodes. From then on one request a
    minute shows whether they are back, each for the next Node: a webhook may reject only some.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain, repeat
from typing import NoReturn

from kubewright import Cache
from kubewright.builtin import Node
from kubewright.condition import utc_now
from kubewright.errors import Conflict, Forbidden, Invalid, KubewrightError, NotFound
from kubewright.log import Log
from kubewright.recorder import EventRecorder

from .condition import HOST_PRESSURE, Reason, find_pressure_condition
from .labels import read_labels
from .ownership import list_labeled_nodes
from .writer import COMPONENT, NodeWriter, explain_lending, was_replaced

_FORBIDDEN_RETRY_SECONDS = 60.0
# A scan ends if the first ones all fail: the API server fails, or the permissions are gone.
_MAX_FIRST_FAILURES = 3


class NodeLabelCleanup:
    """Runs in the leader while -label-nodes is off."""

    def __init__(self, cache: Cache, writer: NodeWriter, recorder: EventRecorder, log: Log) -> None:
        self._cache, self._writer, self._recorder, self._log = cache, writer, recorder, log
        # By uid of a Node: the labels and the condition that others have set. The managed fields of
        # a Node are read again only if it has anything else.
        self._set_by_others: dict[str, tuple[str, ...]] = {}
        # By uid: the type of the last error that was reported.
        self._reported_errors: dict[str, type[KubewrightError]] = {}
        self._last_tried_name = ""

    async def run(self) -> NoReturn:
        # Soon, but more than once: the first list of Nodes may take some seconds.
        delays = chain((1.0, 2.0, 5.0), repeat(30.0))
        is_allowed = True
        while True:
            await asyncio.sleep(next(delays) if is_allowed else _FORBIDDEN_RETRY_SECONDS)
            max_first_failures = _MAX_FIRST_FAILURES if is_allowed else 1
            is_allowed = True
            nodes = self._cache.all(Node)
            uids = {node.metadata.uid for node in nodes}
            self._set_by_others = {
                uid: fields for uid, fields in self._set_by_others.items() if uid in uids
            }
            self._reported_errors = {
                uid: error for uid, error in self._reported_errors.items() if uid in uids
            }
            candidates = [
                node
                for node in nodes
                if (fields := _list_leftovers(node))
                and self._set_by_others.get(node.metadata.uid) != fields
            ]
            if not candidates:
                continue
            try:
                own = await self._select_own(candidates)
                is_allowed = await self._clean_nodes(own, max_first_failures)
            except Forbidden:
                is_allowed = False
            except KubewrightError as error:
                self._log.debug("could not remove labels of -label-nodes, retrying", error=error)

    async def _select_own(self, nodes: Sequence[Node]) -> list[Node]:
        """Those with something of this installation; the others are remembered."""
        labeled = await list_labeled_nodes(self._writer.client, self._writer.field_manager)
        own_uids = {node.metadata.uid for node in labeled}
        self._set_by_others |= {
            node.metadata.uid: _list_leftovers(node)
            for node in nodes
            if node.metadata.uid not in own_uids
        }
        return [node for node in nodes if node.metadata.uid in own_uids]

    async def _clean_nodes(self, nodes: Sequence[Node], max_first_failures: int) -> bool:
        """Returns False if all Nodes that were tried are forbidden."""
        cleaned, errors = 0, list[KubewrightError]()
        # After the last one that was tried, so that each gets its turn.
        for node in sorted(
            nodes,
            key=lambda node: (node.metadata.name <= self._last_tried_name, node.metadata.name),
        ):
            self._last_tried_name = node.metadata.name
            try:
                await self._clean_node(node)
                cleaned += 1
            except KubewrightError as error:
                errors.append(error)
                self._report_error(node, error)
                if not cleaned and len(errors) >= max_first_failures:
                    break
        if cleaned and not errors:
            self._log.info(
                "labels and conditions of -label-nodes are gone; the permissions of "
                f"{COMPONENT} are no longer needed",
                nodes=cleaned,
            )
        return bool(cleaned) or not all(isinstance(error, Forbidden) for error in errors)

    async def _clean_node(self, node: Node) -> None:
        try:
            if read_labels(node.metadata.labels):
                await self._writer.apply_labels(node, {})
            if find_pressure_condition(node):
                await self._writer.apply_condition(node, None, utc_now())
        except (NotFound, Conflict, Invalid) as error:
            if not was_replaced(error):
                raise

    def _report_error(self, node: Node, error: KubewrightError) -> None:
        """Once per Node and type of error."""
        if self._reported_errors.get(node.metadata.uid) is type(error):
            return
        self._reported_errors[node.metadata.uid] = type(error)
        self._log.warning(
            "could not remove labels of -label-nodes, retrying",
            node=node.metadata.name,
            error=error,
        )
        if isinstance(error, Forbidden):
            message = (
                f"The Node has {', '.join(_list_leftovers(node))} of -label-nodes, which is off, "
                f"and the manager is not allowed to remove it: {str(error).rstrip('.')}. "
                f"{explain_lending(self._writer.namespace)}"
            )
            self._recorder.event(node, "Warning", Reason.NODE_LABEL_LEFT, message)


def _list_leftovers(node: Node) -> tuple[str, ...]:
    """The labels and the condition of -label-nodes that the Node has."""
    condition = (HOST_PRESSURE,) if find_pressure_condition(node) else ()
    return (*read_labels(node.metadata.labels), *condition)
