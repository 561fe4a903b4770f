"""`kubewright deploy`: everything, with the overlay of the last time.

Why server-side?  It is the one way to apply for all commands and pages. With several ways, a field
    has several owners, and stays when one of them no longer sets it.
Why the field manager of kubectl?  It takes over what `kubectl apply` without --server-side has set;
    under another name, the API server would report a conflict for every changed field.
Why is the overlay recorded?  `make deploy` without it would replace two replicas with one, and drop
    the flags of an overlay, silently.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import click

from ..errors import ConfigError
from .cluster import Cluster
from .deployed import (
    KUBECTL_OPTION,
    check_overlay,
    format_left_objects,
    has_overlay,
    normalize_overlay,
    read_recorded_overlay,
)
from .installations import list_installations
from .manifests.installer import (
    DEFAULT_OVERLAY,
    Object,
    find_deployment,
    find_kubectl,
    render_installer,
)
from .project import Project
from .terminal import PROJECT_OPTION


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
    "--allow-others", is_flag=True, help="Deploy although another installation is in the cluster."
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
    default = render_installer(project, image, kubectl=kubectl)
    cluster = Cluster(kubectl)
    live = cluster.read_deployment(find_deployment(default)["metadata"])
    overlay, recorded = normalize_overlay(project, overlay), read_recorded_overlay(live)
    if not overlay and not recorded:
        _check_replicas(live, default)
    chosen = overlay or check_overlay(project, recorded, "deploy") or DEFAULT_OVERLAY
    text = (
        default if chosen == DEFAULT_OVERLAY else render_installer(project, image, chosen, kubectl)
    )
    if not allow_others:
        _check_installations(cluster, find_deployment(text))
    command = [kubectl, "apply", "--server-side", "-f", "-"]
    if force_conflicts:
        command.append("--force-conflicts")
    exit_code = subprocess.run(command, input=text, text=True).returncode
    if recorded and recorded != chosen and not exit_code:
        click.echo(_format_replaced(project, recorded, chosen, text, kubectl), err=True)
    return exit_code


def _check_replicas(live: dict[str, Any], default: str) -> None:
    """Fail if the default would remove replicas of a Deployment that has no record."""
    replicas, default_replicas = (
        deployment.get("spec", {}).get("replicas", 0)
        for deployment in (live, find_deployment(default))
    )
    if replicas > default_replicas:
        raise ConfigError(
            f"the Deployment in the cluster has {replicas} replicas, and {DEFAULT_OVERLAY} has "
            f"{default_replicas}. Name what to deploy: make deploy OVERLAY=config/overlays/... to "
            f"keep {replicas}, or OVERLAY={DEFAULT_OVERLAY} for {default_replicas}"
        )


def _check_installations(cluster: Cluster, manager: Object) -> None:
    """Fail if this would be the second installation. An update of one is no new risk."""
    try:
        own, others = list_installations(cluster, manager)
    except ConfigError as error:
        # Unlike undeploy, this deletes nothing, and worked without that permission before.
        click.echo(f"kubewright: other installations were not checked: {error}", err=True)
        return
    if not others or own:
        return
    message = (
        f"{others[0]} uses the same CRDs and cluster roles, which deploy would replace. Nothing "
        f"was deployed. To remove that installation, run: {others[0].removal}"
    )
    if others[0].namespace != manager["metadata"]["namespace"]:
        message += ". To keep both, add ARGS=--allow-others"
    raise ConfigError(message)


def _format_replaced(project: Project, recorded: str, chosen: str, text: str, kubectl: str) -> str:
    """What a change of the overlay leaves in the cluster: `kubectl apply` deletes nothing."""
    message = f"{chosen} has replaced {recorded}."
    if has_overlay(project, recorded) and (
        left := format_left_objects(project, recorded, text, kubectl)
    ):
        message += f" {left}"
    return message
