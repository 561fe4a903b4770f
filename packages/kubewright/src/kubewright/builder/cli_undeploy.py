"""`kubewright undeploy`: removes what `kubewright deploy` has applied.

Why does it not render the overlay?  See records.py.
Why does it stop at another installation?  The CRDs and the cluster roles have the same names for
    all of them, so the objects of the other one would be deleted, too.
Why does it stop when no manager is ready?  See deletions.py.
Why can the namespace stay?  See namespaces.py.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import click

from ..errors import ConfigError
from .cluster import (
    Cluster,
    Reference,
    format_names,
    was_applied,
)
from .deletions import (
    Deletion,
    check_finalizers,
    check_installations,
    list_custom_objects,
    report_begun_deletions,
    report_plan,
)
from .installations import Installation, find_records, list_installations
from .manifests.installer import DEFAULT_OVERLAY, Object, find_kubectl, split_installer
from .namespaces import NamespaceCheck, is_custom_object
from .overlays import (
    KUBECTL_OPTION,
    find_recorded_installation,
    normalize_overlay,
    render_overlay,
)
from .project import Project
from .records import KINDS_WITH_DATA
from .terminal import PROJECT_OPTION

TIMEOUT_OPTION = click.option(
    "--timeout",
    "timeout_seconds",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait until everything is deleted and controllers removed the finalizers.",
)


@click.command()
@click.option(
    "--overlay",
    default="",
    help=f"Kustomization to remove. Defaults to that of the last deploy, then {DEFAULT_OVERLAY}.",
)
@TIMEOUT_OPTION
@KUBECTL_OPTION
@PROJECT_OPTION
def undeploy(root: Path, overlay: str, timeout_seconds: int, kubectl: str) -> int:
    """Remove the operator from the cluster of your kubeconfig, with its CRDs and their objects.

    The CRDs go first, while the manager still runs: only the manager removes the finalizers of
    their objects. Exactly the objects that deploy has recorded are deleted. Without a record, those
    of the overlay that kubectl apply has created. The namespace stays if something else is in it,
    such as a Secret that you created, or if not only kubectl apply has set its fields.

    \b
    Examples:
      kubewright undeploy
      kubewright undeploy --overlay config/overlays/production
      kubewright undeploy --timeout 1800
    """
    project, deadline = Project.read(root), time.monotonic() + timeout_seconds
    cluster = Cluster(find_kubectl(root, kubectl), deadline)
    overlay = normalize_overlay(project, overlay)
    installations = list_installations(cluster, project)
    target = _find_target(cluster, project, overlay, installations)
    objects, unapplied = target.read(cluster)
    crds, namespaces, others = split_installer(objects)
    # With the CRDs, kubectl no longer knows these kinds.
    others = [item for item in others if not is_custom_object(item, crds)]
    own = target.installation
    check_installations(cluster, "undeploy", own, installations, crds)
    custom_objects = list_custom_objects(cluster, crds)
    _check_ownership(target, custom_objects)
    check_finalizers(cluster, own, crds, custom_objects)
    if unapplied:
        names = format_names(unapplied, limit=20)
        click.echo(f"kept, because kubectl apply did not create them: {names}", err=True)
    if not objects and not target.records:
        click.echo(f"nothing of {target} was found in {cluster.describe()}", err=True)
        return 0
    references = target.records.union(map(Reference.of, objects))
    checks = [
        NamespaceCheck(cluster, project, item["metadata"]["name"], crds, references)
        for item in namespaces
    ]
    for check in checks:
        check.find_reason_to_keep()
    report_plan(cluster, str(target), objects, custom_objects)
    report_begun_deletions(objects)
    deletion = Deletion(
        cluster,
        deadline,
        f"make undeploy OVERLAY={target.overlay}",
        f"kubectl -n {target.namespace} logs deployment/{target.name}",
    )
    return 0 if _delete(deletion, crds, others, checks, target) else 1


def _delete(
    deletion: Deletion,
    crds: list[Object],
    others: list[Object],
    checks: list[NamespaceCheck],
    target: _Target,
) -> bool:
    if not deletion.delete(crds) or not deletion.delete(others):
        return False
    kept = {}
    # Those with a record last: without it, the next try does not know the others.
    recorded = {item.namespace for item in target.records}
    for check in sorted(checks, key=lambda check: check.name in recorded):
        if check.is_being_deleted():
            click.echo(f"the namespace {check.name} is already being deleted", err=True)
        elif reason := check.find_reason_to_keep():
            kept[check.name] = reason
        elif not deletion.delete(check.read()):
            return False
    # The records last: the next try needs them.
    records = deletion.cluster.read_objects(target.records, "the record")
    if not deletion.delete(records):
        return False
    for name, reason in kept.items():
        click.echo(
            f"kept the namespace {name}: {reason}. To delete it with everything in it, run: "
            f"kubectl delete namespace {name}",
            err=True,
        )
    return True


@dataclass(frozen=True)
class _Target:
    """What to remove."""

    namespace: str
    name: str
    overlay: str
    installation: Installation | None
    references: frozenset[Reference]
    applied: frozenset[Reference]
    records: frozenset[Reference]
    """The ConfigMaps; empty if kubewright deploy of this version did not deploy it."""

    def read(self, cluster: Cluster) -> tuple[list[Object], list[Object]]:
        """The objects in the cluster, and those that kubectl apply has not created."""
        items = cluster.read_objects(self.references, "the objects of the operator")
        unapplied = [
            item
            for item in items
            if not was_applied(item)
            and (Reference.of(item) not in self.applied or item["kind"] in KINDS_WITH_DATA)
        ]
        return [item for item in items if item not in unapplied], unapplied

    def __str__(self) -> str:
        return str(self.installation or self.overlay)


def _find_target(
    cluster: Cluster, project: Project, overlay: str, installations: list[Installation]
) -> _Target:
    """By the record if there is one. The overlay is then not needed, and may have changed."""
    if overlay:
        recorded = [item for item in installations if item.record and item.overlay == overlay]
        own = recorded[0] if len(recorded) == 1 else None
    else:
        own = find_recorded_installation(installations, "undeploy")
    references: frozenset[Reference] = frozenset()
    namespace, name = (own.namespace, own.name) if own else ("", "")
    if not own:
        rendering = render_overlay(cluster, project, overlay or DEFAULT_OVERLAY)
        overlay, own = rendering.overlay, rendering.find_own(installations)
        namespace, name = rendering.namespace, rendering.name
        if not own or not own.record:
            references = rendering.references
    records = find_records(own, installations)
    return _Target(
        namespace,
        name,
        overlay or (own.overlay if own else ""),
        own,
        references.union(*(record.objects for record in records)),
        frozenset().union(*(record.applied for record in records)),
        frozenset(record.reference for record in records),
    )


def _check_ownership(target: _Target, custom_objects: list[Object]) -> None:
    """Fail if the operator is not installed, and objects would be deleted with the CRDs."""
    if target.installation and target.installation.deployment:
        return
    if not custom_objects:
        return
    raise ConfigError(
        f"the operator is not deployed in the namespace {target.namespace}, but the cluster has "
        f"objects of its kinds: {format_names(custom_objects)}. Nothing was deleted.\n"
        "If another overlay was deployed: make undeploy OVERLAY=config/overlays/...\n"
        "If these objects are not needed: make uninstall, then make undeploy\n"
        "Both delete these objects, which destroys what they stand for."
    )
