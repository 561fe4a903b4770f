"""`kubewright deploy` and `undeploy`: everything, with the overlay of the last time.

Why server-side?  It is the one way to apply for all commands and pages. With several ways, a field
    has several owners, and stays when one of them no longer sets it.
Why the field manager of kubectl?  It takes over what `kubectl apply` without --server-side has set;
    under another name, the API server would report a conflict for every changed field.
Why is the overlay recorded?  `make deploy` without it would replace two replicas with one, and drop
    the flags of an overlay, silently.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import click

from ..errors import ConfigError
from .manifests.installer import (
    DEFAULT_OVERLAY,
    OVERLAY_ANNOTATION,
    find_deployment,
    find_kubectl,
    list_objects,
    render_installer,
    split_crds,
)
from .program import run_program
from .project import Project
from .terminal import PROJECT_OPTION

_READ_TIMEOUT_SECONDS = 60
_KUBECTL_OPTION = click.option(
    "--kubectl", default="", help="kubectl to use. Defaults to .testenv/bin/kubectl, then PATH."
)


@click.command()
@click.option("--image", default="", help="Image to run. Defaults to the image of the project.")
@click.option(
    "--overlay",
    default="",
    help=f"Kustomization to deploy. Defaults to that of the last time, then {DEFAULT_OVERLAY}.",
)
@_KUBECTL_OPTION
@click.option(
    "--force-conflicts", is_flag=True, help="Overwrite fields that another program has set."
)
@PROJECT_OPTION
def deploy(root: Path, image: str, overlay: str, kubectl: str, force_conflicts: bool) -> int:
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
    live = _read_deployment(kubectl, find_deployment(default)["metadata"])
    recorded = _recorded_overlay(live)
    if not overlay and not recorded:
        _check_replicas(live, default)
    chosen = overlay or _check_overlay(project, recorded, "deploy") or DEFAULT_OVERLAY
    text = (
        default if chosen == DEFAULT_OVERLAY else render_installer(project, image, chosen, kubectl)
    )
    command = [kubectl, "apply", "--server-side", "-f", "-"]
    if force_conflicts:
        command.append("--force-conflicts")
    exit_code = subprocess.run(command, input=text, text=True).returncode
    if recorded and recorded != chosen and not exit_code:
        click.echo(_format_replaced(project, recorded, chosen, text, kubectl), err=True)
    return exit_code


@click.command()
@click.option(
    "--overlay",
    default="",
    help=f"Kustomization to remove. Defaults to that of the last deploy, then {DEFAULT_OVERLAY}.",
)
@_KUBECTL_OPTION
@PROJECT_OPTION
def undeploy(root: Path, overlay: str, kubectl: str) -> int:
    """Remove the operator from the cluster of your kubeconfig, with its CRDs and their objects.

    The CRDs go first, while the manager still runs: only the manager removes the finalizers of
    their objects.

    \b
    Examples:
      kubewright undeploy
      kubewright undeploy --overlay config/overlays/production
    """
    project, kubectl = Project.read(root), find_kubectl(root, kubectl)
    text = render_installer(project, kubectl=kubectl)
    recorded = _recorded_overlay(_read_deployment(kubectl, find_deployment(text)["metadata"]))
    chosen = overlay or _check_overlay(project, recorded, "undeploy") or DEFAULT_OVERLAY
    if chosen != DEFAULT_OVERLAY:
        text = render_installer(project, "", chosen, kubectl)
    for documents in split_crds(text):
        command = [kubectl, "delete", "--ignore-not-found", "-f", "-"]
        exit_code = subprocess.run(command, input=documents, text=True).returncode
        if exit_code:
            return exit_code
    return 0


def _recorded_overlay(live: dict[str, Any]) -> str:
    return str(live.get("metadata", {}).get("annotations", {}).get(OVERLAY_ANNOTATION, ""))


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


def _check_overlay(project: Project, recorded: str, command: str) -> str:
    """The recorded overlay; fail if the project does not have it."""
    if not recorded:
        return ""
    if not (project.root / recorded / "kustomization.yaml").is_file():
        raise ConfigError(
            f"the Deployment in the cluster has the overlay {recorded}, which is not in "
            f"{project.root}. Copy it from where it was deployed, or choose another one: "
            f"make {command} OVERLAY={DEFAULT_OVERLAY}"
        )
    action = f"deploying {recorded} again" if command == "deploy" else f"removing {recorded}"
    click.echo(action, err=True)
    return recorded


def _format_replaced(project: Project, recorded: str, chosen: str, text: str, kubectl: str) -> str:
    """What a change of the overlay leaves in the cluster: `kubectl apply` deletes nothing."""
    message = f"{chosen} has replaced {recorded}."
    if not (project.root / recorded / "kustomization.yaml").is_file():
        return message
    applied = set(list_objects(text))
    left = [
        item
        for item in list_objects(render_installer(project, "", recorded, kubectl))
        if item not in applied
    ]
    commands = [
        f"\n  kubectl delete {kind} {name}" + (f" -n {namespace}" if namespace else "")
        for kind, namespace, name in left
    ]
    if commands:
        message += f" To remove the objects that only {recorded} has, run:" + "".join(commands)
    return message


def _read_deployment(kubectl: str, metadata: dict[str, Any]) -> dict[str, Any]:
    """The Deployment in the cluster; {} before the first deploy."""
    name = ("deployment", metadata["name"], "-n", metadata["namespace"])
    process = run_program(
        [kubectl, "get", *name, "--ignore-not-found", "-o", "json"],
        _READ_TIMEOUT_SECONDS,
        advice="Check that the API server of your kubeconfig responds",
    )
    if process.returncode:
        raise ConfigError(f"the Deployment cannot be read: {process.stderr.strip()}")
    return dict(json.loads(process.stdout)) if process.stdout.strip() else {}
