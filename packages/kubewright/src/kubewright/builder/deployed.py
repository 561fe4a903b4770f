"""Which overlay `kubewright deploy` has deployed, and what a change of the overlay leaves."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ..errors import ConfigError
from .cluster import read_annotation
from .manifests.installer import (
    DEFAULT_OVERLAY,
    OVERLAY_ANNOTATION,
    Object,
    list_objects,
    render_installer,
)
from .project import Project

KUBECTL_OPTION = click.option(
    "--kubectl", default="", help="kubectl to use. Defaults to .testenv/bin/kubectl, then PATH."
)


def normalize_overlay(project: Project, overlay: str) -> str:
    """The path from the project, as it is recorded: another clone is in another folder."""
    if not overlay:
        return ""
    path = Path(os.path.normpath(project.root / overlay))
    return path.relative_to(project.root).as_posix() if project.root in path.parents else overlay


def read_recorded_overlay(live: Object) -> str:
    return read_annotation(live, OVERLAY_ANNOTATION)


def has_overlay(project: Project, overlay: str) -> bool:
    return (project.root / overlay / "kustomization.yaml").is_file()


def check_overlay(project: Project, recorded: str, command: str) -> str:
    """The recorded overlay; fail if the project does not have it."""
    if not recorded:
        return ""
    if not has_overlay(project, recorded):
        raise ConfigError(
            f"the Deployment in the cluster has the overlay {recorded}, which is not in "
            f"{project.root}. Copy it from where it was deployed, or choose another one: "
            f"make {command} OVERLAY={DEFAULT_OVERLAY}"
        )
    action = f"deploying {recorded} again" if command == "deploy" else f"removing {recorded}"
    click.echo(action, err=True)
    return recorded


def format_left_objects(project: Project, recorded: str, text: str, kubectl: str) -> str:
    """The commands that delete what only the recorded overlay has; empty if that is nothing."""
    handled = set(list_objects(text))
    commands = [
        f"\n  kubectl delete {kind} {name}" + (f" -n {namespace}" if namespace else "")
        for kind, namespace, name in list_objects(render_installer(project, "", recorded, kubectl))
        if (kind, namespace, name) not in handled
    ]
    if not commands:
        return ""
    return f"To remove the objects that only {recorded} has, run:" + "".join(commands)
