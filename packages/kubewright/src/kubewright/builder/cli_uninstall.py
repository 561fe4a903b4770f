"""`kubewright uninstall`: removes the CRDs, for a manager that runs outside of the cluster.

It has the checks of `undeploy`, because the deletion of a CRD cannot be cancelled either.
"""

from __future__ import annotations

import time
from pathlib import Path

import click

from ..errors import ConfigError
from .cli_undeploy import TIMEOUT_OPTION
from .cluster import Cluster, Reference
from .deletions import (
    Deletion,
    check_finalizers,
    check_installations,
    list_custom_objects,
    report_begun_deletions,
    report_plan,
)
from .installations import list_installations
from .manifests.installer import find_kubectl, render_installer, split_installer
from .overlays import KUBECTL_OPTION
from .project import Project
from .terminal import PROJECT_OPTION

_CRD_FOLDER = "config/crd"


@click.command()
@TIMEOUT_OPTION
@KUBECTL_OPTION
@PROJECT_OPTION
def uninstall(root: Path, timeout_seconds: int, kubectl: str) -> int:
    """Remove the CRDs from the cluster of your kubeconfig, and with them all their objects.

    It deletes nothing if the operator is deployed in the cluster: use undeploy for that. It deletes
    nothing if an object has a finalizer: delete these objects first, while the manager runs.

    \b
    Examples:
      kubewright uninstall
      kubewright uninstall --timeout 1800
    """
    project, deadline = Project.read(root), time.monotonic() + timeout_seconds
    cluster = Cluster(find_kubectl(root, kubectl), deadline)
    rendered, _, _ = split_installer(render_installer(project, "", _CRD_FOLDER, cluster.kubectl))
    crds = cluster.read_objects(map(Reference.of, rendered), "the CRDs")
    if not crds:
        click.echo(f"no CRD of {_CRD_FOLDER} was found in {cluster.describe()}", err=True)
        return 0
    installations = list_installations(cluster, project)
    deployed = [item for item in installations if item.deployment and not item.tool]
    if deployed:
        raise ConfigError(
            f"the operator is deployed: {' and '.join(map(str, deployed))}. Nothing was deleted.\n"
            "To remove it, with its CRDs and their objects: make undeploy"
        )
    check_installations(cluster, "uninstall", None, installations, crds)
    custom_objects = list_custom_objects(cluster, crds)
    check_finalizers(cluster, None, crds, custom_objects)
    report_plan(cluster, _CRD_FOLDER, crds, custom_objects)
    report_begun_deletions(crds)
    return 0 if Deletion(cluster, deadline, "make uninstall").delete(crds) else 1
