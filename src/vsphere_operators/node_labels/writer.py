"""Writes labels and the condition of Nodes by server-side apply.

Why server-side apply?  The API server records which fields this manager has set. What it applies
    later replaces these fields and no others, and a label that another client has set is a
    conflict, never overwritten. The other labels are applied without it.
What if two managers of one cluster label Nodes?  Each has a field manager of its own, by its
    namespace, and removes only what it has set itself.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubewright import Client
from kubewright.builtin import Node
from kubewright.errors import ApplyConflict, Conflict, Forbidden, Invalid, NotFound

from ..leader_lease import SYSTEM_NAMESPACE
from .condition import HOST_PRESSURE, ConditionState, find_pressure_condition
from .ownership import field_manager_of

COMPONENT = "config/components/label-nodes"
_LABELS_PATH = ".metadata.labels."


class NodeWriter:
    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.field_manager = field_manager_of(namespace)

    async def apply_labels(
        self, node: Node, labels: dict[str, str]
    ) -> tuple[Node, ApplyConflict | None]:
        """Set these labels, and remove those that this manager set earlier.

        Labels that other clients have set are left out; the conflict that names them is returned.
        """
        conflict: ApplyConflict | None = None
        while True:
            try:
                node = await self._apply(node, {"labels": labels} if labels else {}, {})
                return node, conflict
            except ApplyConflict as error:
                paths = {path for _, path in error.conflicts}
                remaining = {
                    label: value
                    for label, value in labels.items()
                    if f"{_LABELS_PATH}{label}" not in paths
                }
                if len(remaining) == len(labels):
                    raise
                conflict, labels = conflict or error, remaining

    async def apply_condition(
        self, node: Node, state: ConditionState | None, now: datetime
    ) -> Node:
        """Set the condition; None removes it if this manager has set it."""
        if state is None:
            return await self._apply(node, {}, {"status": {}}, "status")
        stored, changed_at = find_pressure_condition(node), now
        if stored is not None and stored.status == state.status and stored.lastTransitionTime:
            changed_at = stored.lastTransitionTime
        condition = {
            "type": HOST_PRESSURE,
            "status": state.status,
            "reason": state.reason,
            "message": state.message,
            "lastHeartbeatTime": _format_time(now),
            "lastTransitionTime": _format_time(changed_at),
        }
        return await self._apply(node, {}, {"status": {"conditions": [condition]}}, "status")

    async def _apply(
        self, node: Node, metadata: dict[str, Any], fields: dict[str, Any], subresource: str = ""
    ) -> Node:
        # With the uid, an apply never creates a Node that was deleted in the meantime.
        metadata = {"name": node.metadata.name, "uid": node.metadata.uid, **metadata}
        return await self.client.patch(
            Node,
            node.key,
            {"apiVersion": "v1", "kind": "Node", "metadata": metadata, **fields},
            patch_type="apply",
            subresource=subresource,
            field_manager=self.field_manager,
        )


def explain_forbidden(node: Node, error: Forbidden) -> str:
    return (
        f'The manager is not allowed to patch Node "{node.metadata.name}": {error}. Install it '
        f"with the component {COMPONENT}, or with the chart value labelNodes.enabled."
    )


LENDING_VALUES = (
    'Until then, set the chart values labelNodes.enabled: true and flags: ["-label-nodes=false"].'
)


def explain_lending(namespace: str) -> str:
    """How to grant the permissions until the manager in this namespace has removed its labels."""
    if namespace == SYSTEM_NAMESPACE:
        return (
            f"Run: kubectl apply --server-side -f {COMPONENT}/role.yaml, and delete that role when "
            "the labels and conditions are gone. With Helm, set labelNodes.enabled: true and "
            'flags: ["-label-nodes=false"] until then.'
        )
    return (
        f'Until they are gone, grant the manager in namespace "{namespace}" the permission to '
        f"patch nodes and nodes/status: bind the role of {COMPONENT}/role.yaml to its "
        "ServiceAccount, or "
        'set the chart values labelNodes.enabled: true and flags: ["-label-nodes=false"].'
    )


def explain_conflict(node: Node, error: ApplyConflict) -> str:
    name = node.metadata.name
    fields = ", ".join(f'{path} (set by "{manager}")' for manager, path in error.conflicts)
    return (
        f'Another client has set fields of -label-nodes on Node "{name}", so they are not changed: '
        f"{fields}. Remove them, for example with: kubectl label node {name} LABEL- ; the manager "
        "then sets them."
    )


def was_replaced(error: NotFound | Conflict | Invalid) -> bool:
    """Whether the Node was deleted, or created again, since it was read."""
    if isinstance(error, Invalid):
        return any(cause.field == "metadata.uid" for cause in error.causes)
    return True


def _format_time(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
