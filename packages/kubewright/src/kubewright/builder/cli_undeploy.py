"""`kubewright undeploy`: removes what `kubewright deploy` has applied.

Why are the CRDs deleted first?  Only the manager removes the finalizers of their objects. It still
    runs then, and has its permissions.
Why does it stop at another installation?  The CRDs and the cluster roles have the same names for
    all of them, so the objects of the other one would be deleted, too.
Why does it stop when no manager is ready?  Without one, the deletion of a CRD never ends if an
    object has a finalizer, and it cannot be cancelled.
Why can the namespace stay?  See namespaces.py.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import click

from ..errors import ConfigError
from ..yaml_text import to_yaml
from .cluster import Cluster, format_name, format_names, list_finalizers
from .installations import Installation, list_installations, list_other_operators
from .manifests.installer import DEFAULT_OVERLAY, Object, find_kubectl, split_installer
from .namespaces import NamespaceCheck, is_custom_object
from .overlays import (
    KUBECTL_OPTION,
    Rendering,
    format_removal_commands,
    normalize_overlay,
    render_overlay,
)
from .project import Project
from .terminal import PROJECT_OPTION

_MAX_LISTED_OBJECTS = 10


@click.command()
@click.option(
    "--overlay",
    default="",
    help=f"Kustomization to remove. Defaults to that of the last deploy, then {DEFAULT_OVERLAY}.",
)
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait until everything is deleted, such as the finalizers of objects.",
)
@KUBECTL_OPTION
@PROJECT_OPTION
def undeploy(root: Path, overlay: str, timeout_seconds: int, kubectl: str) -> int:
    """Remove the operator from the cluster of your kubeconfig, with its CRDs and their objects.

    The CRDs go first, while the manager still runs: only the manager removes the finalizers of
    their objects. Exactly the objects of the overlay are deleted. The namespace stays if something
    else is in it, such as a Secret that you created, or if kubectl apply has not created it.

    \b
    Examples:
      kubewright undeploy
      kubewright undeploy --overlay config/overlays/production
      kubewright undeploy --timeout 1800
    """
    project, kubectl = Project.read(root), find_kubectl(root, kubectl)
    cluster, overlay = Cluster(kubectl), normalize_overlay(project, overlay)
    installations = list_installations(cluster, project)
    rendering = render_overlay(project, overlay, installations, "undeploy", kubectl)
    crds, namespaces, others = split_installer(rendering.documents)
    # With the CRDs, kubectl no longer knows these kinds.
    others = [item for item in others if not is_custom_object(item, crds)]
    own = [item for item in installations if item.namespace == rendering.namespace]
    _check_installations(cluster, own, installations, crds)
    _check_finalizers(cluster, own, rendering.namespace, crds)
    checks = [
        NamespaceCheck(cluster, project, item["metadata"]["name"], crds, others)
        for item in namespaces
    ]
    for check in checks:
        check.find_reason_to_keep()
    click.echo(f"removing {rendering.overlay}", err=True)
    deletion = _Deletion(cluster, rendering, time.monotonic() + timeout_seconds)
    if not deletion.delete(crds) or not deletion.delete(others):
        return 1
    kept = {check.name: reason for check in checks if (reason := check.find_reason_to_keep())}
    deleted = [item for item in namespaces if item["metadata"]["name"] not in kept]
    if not deletion.delete(deleted):
        return 1
    for item in own:
        if item.overlay and item.overlay != rendering.overlay:
            names = {namespace["metadata"]["name"] for namespace in deleted}
            commands = format_removal_commands(
                project, item.overlay, rendering.documents, kubectl, names
            )
            click.echo(commands, err=True, nl=bool(commands))
    for name, reason in kept.items():
        click.echo(
            f"kept the namespace {name}: {reason}. To delete it with everything in it, run: "
            f"kubectl delete namespace {name}",
            err=True,
        )
    return 0


@dataclass(frozen=True)
class _Deletion:
    cluster: Cluster
    rendering: Rendering
    deadline: float

    def delete(self, documents: list[Object]) -> bool:
        """Delete these objects, and wait until they are gone; False if something is left."""
        if not documents:
            return True
        seconds = max(1, round(self.deadline - time.monotonic()))
        timeout = ("--ignore-not-found", f"--timeout={seconds}s", "-f", "-")
        command = [self.cluster.kubectl, "delete", *timeout]
        if subprocess.run(command, input=to_yaml(*documents), text=True).returncode == 0:
            return True
        # With the Deployment, the record of the overlay may be gone.
        retry = f"run: make undeploy OVERLAY={self.rendering.overlay}"
        message = "not everything was removed, for the reason above. When it is fixed, " + retry
        if left := self._describe_left_objects(documents):
            manager = self.rendering.manager["metadata"]["name"]
            message = (
                f"not everything was removed. Still being deleted:{left}\nThe controllers of these "
                "finalizers have to finish. If it is the manager, its log shows what it waits for: "
                f"kubectl -n {self.rendering.namespace} logs deployment/{manager}\nTo continue, "
                f"and to wait longer, {retry} ARGS=--timeout=1800"
            )
        click.echo(f"kubewright: {message}", err=True)
        return False

    def _describe_left_objects(self, documents: list[Object]) -> str:
        crds, namespaces, _ = split_installer(documents)
        try:
            # Of a CRD, its objects: its own finalizer only waits for them.
            left = _list_custom_objects(self.cluster, crds)
            for item in documents if not crds else ():
                left += self.cluster.list_objects(*_name_object(item), subject=format_name(item))
        except ConfigError as error:
            return f"\n  {error}"
        lines = [
            f"\n  {format_name(item)}: {', '.join(list_finalizers(item))}"
            for item in left
            if list_finalizers(item)
        ]
        for item in left if namespaces else ():
            lines += [
                f"\n  {format_name(item)}: {condition['message']}"
                for condition in item.get("status", {}).get("conditions") or ()
                if condition["status"] == "True"
            ]
        more = len(lines) - _MAX_LISTED_OBJECTS
        return "".join(lines[:_MAX_LISTED_OBJECTS]) + (f"\n  and {more} more" if more > 0 else "")


def _check_installations(
    cluster: Cluster,
    own: list[Installation],
    installations: list[Installation],
    crds: list[Object],
) -> None:
    """Fail if another tool has installed the operator, or another operator uses the CRDs."""
    for item in own:
        if item.tool:
            raise ConfigError(
                f"{item} is managed by another tool. Nothing was deleted. To remove it, "
                f"{item.removal}"
            )
    others = [item for item in installations if item not in own]
    others += list_other_operators(cluster, installations, crds)
    if not others:
        return
    message = (
        "undeploy would delete the CRDs with all their objects, and these also use them: "
        f"{' and '.join(map(str, others))}. Nothing was deleted."
    )
    if own:
        message += f" To remove only {own[0]}, and to keep the CRDs, {own[0].removal}."
    for item in others:
        message += f" If {item} is not needed, {item.removal}."
    raise ConfigError(f"{message} Then run this command again")


def _check_finalizers(
    cluster: Cluster, own: Iterable[Installation], namespace: str, crds: list[Object]
) -> None:
    """Fail if the deletion of the CRDs would wait for a manager that does not run."""
    if any(item.deployment.get("status", {}).get("readyReplicas") for item in own):
        return
    waiting = [item for item in _list_custom_objects(cluster, crds) if list_finalizers(item)]
    if not waiting:
        return
    advice = (
        f"To find out why, run: kubectl -n {namespace} get pods,events"
        if own
        else "To run one, use: make deploy"
    )
    raise ConfigError(
        f"no manager is ready in the namespace {namespace}, and only a manager removes the "
        f"finalizers of {format_names(waiting)}. The deletion of the CRDs would wait for it "
        f"forever. Nothing was deleted. {advice}. If the manager runs outside the cluster, delete "
        "these objects first"
    )


def _list_custom_objects(cluster: Cluster, crds: list[Object]) -> list[Object]:
    names = [crd["metadata"]["name"] for crd in crds]
    installed = cluster.list_objects("crds", *names, subject="the CRDs") if names else []
    if not installed:
        return []
    types = ",".join(_format_stored_type(crd) for crd in installed)
    return cluster.list_objects(types, "-A", subject="the objects of the CRDs")


def _format_stored_type(crd: Object) -> str:
    """With the stored version: for another, the API server may call a webhook of the manager."""
    names, versions = crd["spec"]["names"], crd["spec"]["versions"]
    stored = next(version["name"] for version in versions if version["storage"])
    return f"{names['plural']}.{stored}.{crd['spec']['group']}"


def _name_object(item: Object) -> tuple[str, ...]:
    """The arguments of `kubectl get` for it."""
    group, _, version = item["apiVersion"].rpartition("/")
    metadata = item["metadata"]
    type_ = f"{item['kind']}.{version}.{group}" if group else item["kind"]
    namespace = metadata.get("namespace", "")
    return (type_, metadata["name"], *(("-n", namespace) if namespace else ()))
