"""`kubewright deploy`: everything, with the overlay of the last time.

Why server-side?  It is the one way to apply for all commands and pages. With several ways, a field
    has several owners, and stays when one of them no longer sets it.
Why the field manager of kubectl?  It takes over what `kubectl apply` without --server-side has set;
    under another name, the API server would report a conflict for every changed field.
Why is the overlay recorded?  `make deploy` without it would replace two replicas with one, and drop
    the flags of an overlay, silently. No record means: deployed by another tool, or by an earlier
    version.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import click

from ..errors import ConfigError
from ..yaml_text import to_yaml
from .cluster import Cluster, KubectlForbidden
from .installations import Installation, list_installations, read_installation
from .manifests.installer import DEFAULT_OVERLAY, find_kubectl
from .overlays import (
    KUBECTL_OPTION,
    Rendering,
    format_removal_commands,
    normalize_overlay,
    render_overlay,
)
from .project import Project
from .terminal import PROJECT_OPTION

_ALLOW_OTHERS = "--allow-other-installations"


@click.command()
@click.option("--image", default="", help="Image to run. Defaults to the image of the project.")
@click.option(
    "--overlay",
    default="",
    help=f"Kustomization to deploy. Defaults to that of the last time, then {DEFAULT_OVERLAY}.",
)
@KUBECTL_OPTION
@click.option(
    "--force-conflicts", is_flag=True, help="Overwrite fields that another program has set."
)
@click.option(
    _ALLOW_OTHERS,
    "allow_others",
    is_flag=True,
    help="Deploy although another installation is in the cluster. It loses its permissions: its "
    "ClusterRoleBindings have the same names.",
)
@PROJECT_OPTION
def deploy(
    root: Path, image: str, overlay: str, kubectl: str, force_conflicts: bool, allow_others: bool
) -> int:
    """Deploy the operator to the cluster of your kubeconfig, by server-side apply.

    \b
    Examples:
      kubewright deploy --image example.com/greeter:v1
      kubewright deploy --image example.com/greeter:v1 --overlay config/overlays/production
      kubewright deploy --image example.com/greeter:v2     # with the same overlay again
      kubewright deploy --image example.com/greeter:v2 --overlay config/default
    """
    project, kubectl = Project.read(root), find_kubectl(root, kubectl)
    cluster, overlay = Cluster(kubectl), normalize_overlay(project, overlay)
    installations = _find_installations(cluster, project, overlay)
    rendering = render_overlay(project, overlay, installations, "deploy", kubectl, image)
    own = [item for item in installations if item.namespace == rendering.namespace]
    _check_installations(own, installations, allow_others)
    if not overlay:
        _check_replicas(own, rendering)
        click.echo(f"deploying {rendering.overlay}", err=True)
    command = [kubectl, "apply", "--server-side", "-f", "-"]
    if force_conflicts:
        command.append("--force-conflicts")
    text = to_yaml(*rendering.documents)
    exit_code = subprocess.run(command, input=text, text=True).returncode
    for item in own:
        if item.overlay and item.overlay != rendering.overlay and not exit_code:
            message = (
                f"{rendering.overlay} has replaced {item.overlay}. "
                + format_removal_commands(project, item.overlay, rendering.documents, kubectl)
            )
            click.echo(message.rstrip(), err=True)
    return exit_code


def _find_installations(cluster: Cluster, project: Project, overlay: str) -> list[Installation]:
    try:
        return list_installations(cluster, project)
    except KubectlForbidden as error:
        # Unlike undeploy, this deletes nothing, and worked without that permission before.
        click.echo(f"kubewright: other installations were not checked: {error}", err=True)
    rendering = render_overlay(project, overlay or DEFAULT_OVERLAY, (), "deploy", cluster.kubectl)
    return read_installation(cluster, rendering.manager["metadata"])


def _check_installations(
    own: list[Installation], installations: list[Installation], allow_others: bool
) -> None:
    """Fail if another tool would undo it, or if this would be the second installation."""
    for item in own:
        if item.tool:
            raise ConfigError(
                f"{item} is managed by another tool. Nothing was deployed. To update it, "
                f"{item.update}. To replace it, first {item.removal}"
            )
    if not installations or own or allow_others:
        return
    updates = "".join(f" To update {item}, {item.update}." for item in installations)
    removals = " and ".join(item.removal for item in installations)
    raise ConfigError(
        "deploy would replace the CRDs and cluster roles of another installation: "
        f"{' and '.join(map(str, installations))}. "
        f"Nothing was deployed.{updates} To replace it, and to keep the CRDs with their objects, "
        f"first {removals}. To deploy nevertheless, add ARGS={_ALLOW_OTHERS}: the other "
        "installation then loses its permissions, because the ClusterRoleBindings have the same "
        "names"
    )


def _check_replicas(own: list[Installation], rendering: Rendering) -> None:
    """Fail if the default would remove replicas of a Deployment that has no record."""
    default = rendering.manager["spec"].get("replicas", 1)
    for item in own:
        replicas = item.deployment["spec"].get("replicas", 1)
        if replicas > default and not item.overlay:
            raise ConfigError(
                f"the Deployment in the cluster has {replicas} replicas, and {rendering.overlay} "
                f"has {default}. Name what to deploy: make deploy OVERLAY=config/overlays/... to "
                f"keep {replicas}, or OVERLAY={rendering.overlay} for {default}"
            )
