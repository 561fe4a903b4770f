"""Which overlay to deploy or to remove, and what a change of the overlay leaves."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

import click

from ..errors import ConfigError
from .installations import Installation
from .manifests.installer import (
    DEFAULT_OVERLAY,
    Object,
    find_manager,
    render_installer,
    split_installer,
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
    if project.root not in path.parents:
        path = path.resolve()
    if project.root not in path.parents:
        raise ConfigError(
            f"the overlay {overlay} is not in the project {project.root}: name a folder of the "
            f"project, such as {DEFAULT_OVERLAY}"
        )
    return path.relative_to(project.root).as_posix()


@dataclass(frozen=True)
class Rendering:
    overlay: str
    documents: list[Object]
    manager: Object

    @property
    def namespace(self) -> str:
        return str(self.manager["metadata"]["namespace"])


def render_overlay(
    project: Project,
    overlay: str,
    installations: Iterable[Installation],
    command: str,
    kubectl: str,
    image: str = "",
) -> Rendering:
    """The named overlay; without a name the recorded one, then the default."""
    recorded = None if overlay else _find_recorded_installation(installations, command)
    if not recorded:
        return _render(project, overlay or DEFAULT_OVERLAY, kubectl, image)
    try:
        _require_recorded_overlay(project, recorded)
        return _render(project, recorded.overlay, kubectl, image)
    except ConfigError as error:
        raise ConfigError(
            f"{error}. {recorded} was deployed with this overlay. Fix it, or name another one: "
            f"make {command} OVERLAY={DEFAULT_OVERLAY}"
        ) from None


def _render(project: Project, overlay: str, kubectl: str, image: str) -> Rendering:
    documents = render_installer(project, image, overlay, kubectl)
    return Rendering(overlay, documents, find_manager(project, documents))


def _find_recorded_installation(
    installations: Iterable[Installation], command: str
) -> Installation | None:
    recorded = {item.overlay: item for item in installations if item.overlay and not item.tool}
    if len(recorded) > 1:
        names = " and ".join(str(item) for item in recorded.values())
        choices = " or ".join(f"make {command} OVERLAY={overlay}" for overlay in sorted(recorded))
        raise ConfigError(f"the cluster has {names}. Name the overlay: {choices}")
    return next(iter(recorded.values()), None)


def _require_recorded_overlay(project: Project, recorded: Installation) -> None:
    if not _has_overlay(project, recorded.overlay):
        raise ConfigError(
            f"the overlay {recorded.overlay} is not in {project.root}: copy it from the clone that "
            "has it"
        )


def format_removal_commands(
    project: Project,
    recorded: str,
    documents: list[Object],
    kubectl: str,
    deleted_namespaces: Container[str] = (),
) -> str:
    """How to delete what only the recorded overlay has; empty if that is nothing."""
    if not _has_overlay(project, recorded):
        return (
            f"{recorded} is not in {project.root}, so the objects that only this overlay has are "
            "unknown. Those that are cluster-scoped are still in the cluster"
        )
    handled = {_identify(item) for item in documents}
    try:
        # Without CRDs and namespaces: their deletion would delete other objects.
        _, _, rendered = split_installer(render_installer(project, "", recorded, kubectl))
    except ConfigError as error:
        return f"the objects that only {recorded} has are unknown and still in the cluster: {error}"
    commands = [
        f"\n  kubectl delete {kind} {name}" + (f" -n {namespace}" if namespace else "")
        for kind, namespace, name in map(_identify, rendered)
        if (kind, namespace, name) not in handled and namespace not in deleted_namespaces
    ]
    if not commands:
        return ""
    return f"To remove the objects that only {recorded} has, run:" + "".join(commands)


def _has_overlay(project: Project, overlay: str) -> bool:
    return (project.root / overlay / "kustomization.yaml").is_file()


def _identify(item: Object) -> tuple[str, str, str]:
    metadata = item["metadata"]
    return item["kind"], metadata.get("namespace", ""), metadata["name"]
