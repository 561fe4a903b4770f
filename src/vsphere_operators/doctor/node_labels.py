"""Checks for labels and conditions that -label-nodes has left on Nodes after its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from kubewright import Client
from kubewright.errors import Forbidden, KubewrightError

from ..leader_lease import SYSTEM_NAMESPACE
from ..manager_pods import list_manager_pods
from ..node_labels.ownership import field_manager_of, list_labeled_nodes
from ..node_labels.writer import LENDING_VALUES, explain_lending
from .finding import Finding, warning
from .installation import Installation

_ROLE = "config/components/label-nodes/role.yaml"
_MAX_NAMES = 5


async def check_leftovers(
    client: Client, namespaces: Iterable[str], installation: Installation
) -> AsyncIterator[Finding]:
    """`namespaces` are those that the manager may run in; each is an installation of its own."""
    for namespace in dict.fromkeys(namespaces):
        try:
            nodes = await list_labeled_nodes(client, field_manager_of(namespace))
        except Forbidden:
            # The check of the permissions reports that Nodes cannot be listed.
            return
        runs_labeler = await _runs_labeler(client, namespace)
        if not nodes or runs_labeler:
            continue
        names = [node.metadata.name for node in nodes]
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        message = (
            f"{len(names)} {'Node has' if len(names) == 1 else 'Nodes have'} labels or the "
            f"condition of -label-nodes: {', '.join(names[:_MAX_NAMES])}{more}. "
        )
        if runs_labeler is None:
            message += (
                f'It is unknown whether the manager in namespace "{namespace}" runs without '
                "-label-nodes, because no Pod of it can be read. If so, it"
            )
        else:
            message += f'The manager in namespace "{namespace}" runs without -label-nodes and'
        message += " removes them within two minutes once it has the permissions."
        # The command deletes the role, so that no manager may use it. The role is bound to the
        # ServiceAccount in this namespace only.
        if installation.tool == "helm" and namespace == installation.namespace:
            yield warning("label-nodes", f"{message} {LENDING_VALUES}")
        elif (
            runs_labeler is False
            and namespace == SYSTEM_NAMESPACE
            and installation.tool == "kubectl"
        ):
            fix = (
                f"kubectl apply --server-side -f {_ROLE}   "
                f"# when they are gone: kubectl delete -f {_ROLE}"
            )
            yield warning("label-nodes", message, fix)
        else:
            yield warning("label-nodes", f"{message} {explain_lending(namespace)}")


async def _runs_labeler(client: Client, namespace: str) -> bool | None:
    """Whether a manager with -label-nodes runs there; None if no manager can be read.

    The settings of the doctor do not show it: those of the manager in the cluster may differ.
    """
    try:
        pods = await list_manager_pods(client, namespace)
    except KubewrightError:
        return None
    running = [pod for pod in pods if pod.status.phase not in ("Succeeded", "Failed")]
    return any(pod.labels_nodes for pod in running) if running else None
