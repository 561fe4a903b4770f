"""Which overlay to deploy or to remove."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import click

from ..errors import ConfigError
from .cluster import Cluster, Reference
from .installations import Installation
from .manifests.installer import (
    DEFAULT_OVERLAY,
    Object,
    find_manager,
    is_kustomization,
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

    @property
    def name(self) -> str:
        return str(self.manager["metadata"]["name"])

    @property
    def references(self) -> frozenset[Reference]:
        return frozenset(map(Reference.of, self.documents))

    def find_own(self, installations: Iterable[Installation]) -> Installation | None:
        """The installation that this would update."""
        names = (self.namespace, self.name)
        return next((item for item in installations if (item.namespace, item.name) == names), None)


def render_overlay(cluster: Cluster, project: Project, overlay: str) -> Rendering:
    """With the namespaces in which kubectl would create the objects."""
    documents = render_installer(project, "", overlay, cluster.kubectl)
    cluster.fill_namespaces(documents)
    return Rendering(overlay, documents, find_manager(project, documents))


def render_recorded_overlay(
    cluster: Cluster, project: Project, recorded: Installation
) -> Rendering:
    try:
        if not is_kustomization(project.root / recorded.overlay):
            raise ConfigError(
                f"the overlay {recorded.overlay} is not in {project.root}: copy it from the clone "
                "that has it"
            )
        return render_overlay(cluster, project, recorded.overlay)
    except ConfigError as error:
        raise ConfigError(
            f"{error}. {recorded} was deployed with this overlay. Fix it, or name another one: "
            f"make deploy OVERLAY={DEFAULT_OVERLAY}"
        ) from None


def find_recorded_installation(
    installations: Iterable[Installation], command: str
) -> Installation | None:
    """The one with a record; of several the one that has a Deployment."""
    recorded = [item for item in installations if item.record and not item.tool]
    running = [item for item in recorded if item.deployment]
    candidates = running or recorded
    if len({item.overlay for item in candidates}) > 1:
        names = " and ".join(map(str, candidates))
        overlays = sorted({item.overlay for item in candidates})
        choices = " or ".join(f"make {command} OVERLAY={overlay}" for overlay in overlays)
        raise ConfigError(f"the cluster has {names}. Name the overlay: {choices}")
    return candidates[0] if candidates else None
