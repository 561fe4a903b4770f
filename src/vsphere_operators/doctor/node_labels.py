"""Checks for labels and conditions that -label-nodes has left on Nodes after its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from kubewright import Client
from kubewright.errors import Forbidden

from ..node_labels.ownership import field_manager_of, list_labeled_nodes
from .finding import Finding, warning

_ROLE = "config/components/label-nodes/role.yaml"
_MAX_NAMES = 5


async def check_leftovers(client: Client, namespaces: Iterable[str]) -> AsyncIterator[Finding]:
    """`namespaces` are those that the manager may run in; each is an installation of its own."""
    for namespace in dict.fromkeys(namespaces):
        try:
            nodes = await list_labeled_nodes(client, field_manager_of(namespace))
        except Forbidden:
            # The check of the permissions reports that Nodes cannot be listed.
            return
        if nodes:
            names = [node.metadata.name for node in nodes]
            more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
            yield warning(
                "label-nodes",
                f"{len(names)} Nodes have labels or the condition of -label-nodes, which is off in "
                f"these settings: {', '.join(names[:_MAX_NAMES])}{more}. If the manager in "
                f'namespace "{namespace}" runs without it, it removes them within two minutes '
                "once it has the permissions; delete the role afterwards.",
                f"kubectl apply -f {_ROLE}   # later: kubectl delete -f {_ROLE}",
            )
