"""Which Nodes have labels or the condition of which installation, by their managed fields.

Why not by the labels alone?  Another installation in the cluster, or a user, may have set them.
Why a list of its own?  The cache does not keep managed fields: they are larger than a Node's
    other metadata, and only the cleanup and the doctor read them.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from kubewright import Client, ObjectMeta, kind
from kubewright.kind import Object

_FIELD_MANAGER_PREFIX = "node-labels."


def field_manager_of(namespace: str) -> str:
    """The field manager of the installation in this namespace."""
    return f"{_FIELD_MANAGER_PREFIX}{namespace}"


class _ManagedFields(Struct, frozen=True, omit_defaults=True, kw_only=True):
    manager: str = ""
    fieldsV1: dict[str, Any] = {}

    @property
    def has_labels_or_conditions(self) -> bool:
        # After the cleanup, the entry has an empty status.
        fields = self.fieldsV1
        return bool(
            fields.get("f:metadata", {}).get("f:labels")
            or fields.get("f:status", {}).get("f:conditions")
        )


class _NodeMeta(ObjectMeta, frozen=True, omit_defaults=True, kw_only=True):
    managedFields: list[_ManagedFields] = []


@kind("v1", name="Node", namespaced=False, metadata_only=True, external=True)
class NodeOwnership(Object):
    """A Node without spec and status, but with its managed fields."""

    metadata: _NodeMeta = _NodeMeta()


async def list_labeled_nodes(client: Client, field_manager: str) -> list[NodeOwnership]:
    """The Nodes with a label or a condition that this field manager has set."""
    return [
        node
        for node in await client.list(NodeOwnership)
        if any(
            entry.manager == field_manager and entry.has_labels_or_conditions
            for entry in node.metadata.managedFields
        )
    ]
