"""`kubewright deploy`: everything, with the overlay of the last time.

Why server-side?  It is the one way to apply for all commands and pages. With two ways, a field has
    two owners. When one stops setting it, the other still keeps it.
Why the field manager of kubectl?  It takes over what `kubectl apply` without --server-side has set;
    under another name, the API server would report a conflict for every changed field.
Why is the overlay recorded?  `make deploy` without it would replace two replicas with one, and drop
    the flags of an overlay, silently. No record means: deployed by another tool, or by an earlier
    version. See records.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from ..errors import ConfigError
from .cluster import (
    Cluster,
    KubectlForbidden,
    Reference,
    format_names,
    is_being_deleted,
    list_finalizers,
    was_applied,
)
from .installations import (
    Installation,
    find_records,
    list_installations,
    read_installation,
)
from .manifests.installer import (
    DEFAULT_OVERLAY,
    Object,
    find_kubectl,
    list_containers,
    replace_image,
    split_installer,
)
from .overlays import (
    KUBECTL_OPTION,
    Rendering,
    find_recorded_installation,
    normalize_overlay,
    render_overlay,
    render_recorded_overlay,
)
from .project import PLACEHOLDER_IMAGE, Project
from .records import KINDS_WITH_DATA, Record
from .terminal import PROJECT_OPTION

# The deletion of these deletes what they contain.
_KINDS_WITH_DATA = frozenset({"Namespace", "PersistentVolume", "PersistentVolumeClaim"})
# The deletion of other objects in these groups deletes nothing outside of the cluster.
_BUILT_IN_GROUPS = frozenset({"", "apps", "autoscaling", "batch", "policy"}) | {
    f"{name}.k8s.io"
    for name in ("admissionregistration", "networking", "rbac.authorization", "scheduling")
}
_ALLOW_OTHERS = "--allow-other-installations"


@click.command()
@click.option(
    "--image",
    default="",
    help="Image to run. Defaults to that of the Deployment in the cluster, unless the project has "
    "one.",
)
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
    recorded = None if overlay else find_recorded_installation(installations, "deploy")
    rendering = (
        render_recorded_overlay(cluster, project, recorded)
        if recorded
        else render_overlay(cluster, project, overlay or DEFAULT_OVERLAY)
    )
    own = rendering.find_own(installations)
    _check_installations(own, installations, allow_others)
    _check_deletions(cluster, rendering)
    if not overlay:
        _check_replicas(own, rendering)
    _set_image(project, rendering, image, own)
    if not overlay:
        click.echo(f"deploying {rendering.overlay}", err=True)
    old = _read_old_record(own, installations)
    deployment = _Deployment(cluster, project, rendering, old, image)
    return deployment.apply(force_conflicts)


class _Deployment:
    def __init__(
        self, cluster: Cluster, project: Project, rendering: Rendering, old: Record, image: str
    ) -> None:
        self._cluster = cluster
        self._project = project
        self._rendering = rendering
        self._old = old
        self._image = image
        self._new = rendering.references

    def apply(self, force_conflicts: bool) -> int:
        namespaces = [item for item in self._rendering.documents if item["kind"] == "Namespace"]
        others = [item for item in self._rendering.documents if item not in namespaces]
        if namespaces:
            # The record is in one of them.
            exit_code, error = self._cluster.apply(*namespaces, force=force_conflicts)
            if exit_code:
                self._report_failure(error, "Only namespaces were applied.")
                return exit_code
        pending = (self._old.pending | self._new) - self._list_existing_data()
        self._write_record(self._old.applied, pending)
        exit_code, error = self._cluster.apply(*others, force=force_conflicts)
        left = self._list_left_objects()
        if exit_code:
            self._report_failure(error, "The objects without an error were applied.")
        elif left is not None:
            references = {Reference.of(item) for item in left}
            self._write_record(
                self._new | (references & self._old.applied),
                (references & self._old.pending) - self._old.applied,
            )
        if left:
            self._report_left_objects(left)
        return exit_code

    def _list_existing_data(self) -> frozenset[Reference]:
        """Data that this overlay names for the first time, but that exists: it may be yours."""
        candidates = {
            item for item in self._new - self._old.objects if item.kind in KINDS_WITH_DATA
        }
        items = self._cluster.read_objects(candidates, "the objects that exist already")
        return frozenset(map(Reference.of, items))

    def _write_record(
        self, applied: frozenset[Reference], pending: frozenset[Reference] | set[Reference]
    ) -> None:
        rendering = self._rendering
        Record(
            rendering.namespace,
            rendering.name,
            rendering.overlay,
            applied,
            frozenset(pending) - applied,
        ).write(self._cluster, self._project)

    def _list_left_objects(self) -> list[Object] | None:
        """Those of an earlier deploy that this overlay does not have; None if that is unknown."""
        try:
            items = self._cluster.read_objects(
                self._old.objects - self._new, "the objects of an earlier deploy"
            )
        except ConfigError as error:
            click.echo(f"kubewright: {error}. They stay in the record", err=True)
            return None
        return [
            item for item in items if Reference.of(item) in self._old.applied or was_applied(item)
        ]

    def _report_left_objects(self, left: list[Object]) -> None:
        # kubectl apply deletes nothing.
        deletable = [
            item
            for item in left
            if item["kind"] not in _KINDS_WITH_DATA
            and Reference.of(item).group in _BUILT_IN_GROUPS
            and not list_finalizers(item)
        ]
        lines = [
            f"{self._rendering.overlay} does not have these objects of an earlier deploy. "
            "`make undeploy` removes them, too."
        ]
        if deletable:
            lines.append("To remove them now, run:")
            lines += [f"  {_format_deletion(Reference.of(item))}" for item in deletable]
        others = [item for item in left if item not in deletable]
        if others:
            lines.append(
                "The deletion of these may delete data, other objects, or what they stand for, "
                "so first check what each one is for:"
            )
            lines += [f"  {Reference.of(item)}" for item in others]
        click.echo("\n".join(lines), err=True)

    def _report_failure(self, error: str, applied: str) -> None:
        command = f"make deploy OVERLAY={self._rendering.overlay}"
        if self._image:
            command += f" IMG={self._image}"
        lines = [
            f"kubewright: not everything was applied, for the reason above. {applied}",
            f"To try again, run: {command}",
        ]
        if "conflict" in error:
            lines.append(
                "To overwrite the fields that another program has set, run: "
                f"{command} ARGS=--force-conflicts"
            )
        click.echo("\n".join(lines), err=True)


def _read_old_record(own: Installation | None, installations: Iterable[Installation]) -> Record:
    """What is to be removed later: also of installations of which the Deployment was deleted."""
    records = find_records(own, installations)
    own_record = own.record if own else None
    return Record(
        "",
        "",
        "",
        frozenset().union(*(record.applied for record in records))
        | {record.reference for record in records if record is not own_record},
        frozenset().union(*(record.pending for record in records)),
    )


def _find_installations(cluster: Cluster, project: Project, overlay: str) -> list[Installation]:
    try:
        return list_installations(cluster, project)
    except KubectlForbidden as error:
        # Unlike undeploy, this deletes nothing, and worked without that permission before.
        click.echo(f"kubewright: other installations were not checked: {error}", err=True)
    rendering = render_overlay(cluster, project, overlay or DEFAULT_OVERLAY)
    return read_installation(cluster, rendering.namespace, rendering.name)


def _check_installations(
    own: Installation | None, installations: list[Installation], allow_others: bool
) -> None:
    """Fail if another tool would undo it, or if this would be the second installation."""
    if own and own.tool:
        raise ConfigError(
            f"{own} is managed by another tool. Nothing was deployed.\n"
            f"To update it: {own.update}\n"
            f"To replace it: first {own.removal}"
        )
    others = [item for item in installations if item.deployment and item is not own]
    if not others or (own and own.deployment) or allow_others:
        return
    lines = [
        "deploy would replace the CRDs and cluster roles of another installation: "
        f"{' and '.join(map(str, others))}. Nothing was deployed."
    ]
    lines += [f"To update {item}: {item.update}" for item in others]
    lines += [
        f"To replace {item}, and to keep the CRDs with their objects: first {item.removal}"
        for item in others
    ]
    lines.append(
        f"To run both: add ARGS={_ALLOW_OTHERS}. The other installation then loses its "
        "permissions, because the ClusterRoleBindings have the same names."
    )
    raise ConfigError("\n".join(lines))


def _check_deletions(cluster: Cluster, rendering: Rendering) -> None:
    """Fail if a CRD or a namespace would disappear again, with what is in it."""
    crds, namespaces, _ = split_installer(rendering.documents)
    references = {Reference.of(item) for item in (*crds, *namespaces)}
    references.add(Reference("", "Namespace", "", rendering.namespace))
    items = cluster.read_objects(references, "the CRDs and the namespace")
    deleted = [item for item in items if is_being_deleted(item)]
    if not deleted:
        return
    raise ConfigError(
        f"{format_names(deleted)}: the deletion has begun, and cannot be cancelled. Nothing was "
        "deployed.\n"
        "To deploy: wait until the deletion has ended\n"
        "If it waits for objects with finalizers: run the manager until they are gone, with "
        "`make run` or in the Deployment. It deletes what they stand for"
    )


def _check_replicas(own: Installation | None, rendering: Rendering) -> None:
    """Fail if the default would remove replicas of a Deployment that has no record."""
    default = rendering.manager["spec"].get("replicas", 1)
    if own and own.replicas > default and not own.overlay:
        raise ConfigError(
            f"the Deployment in the cluster has {own.replicas} replicas, and {rendering.overlay} "
            f"has {default}. Nothing was deployed.\n"
            f"To keep {own.replicas}: make deploy OVERLAY=config/overlays/...\n"
            f"To have {default}: make deploy OVERLAY={rendering.overlay}"
        )


def _set_image(
    project: Project, rendering: Rendering, image: str, own: Installation | None
) -> None:
    """Without an image, that of the Deployment in the cluster instead of the placeholder."""
    if image:
        replace_image(rendering.documents, project.config.image, image)
        return
    containers = list_containers(rendering.documents, PLACEHOLDER_IMAGE)
    if not containers:
        return
    names = {container["name"] for container in containers}
    spec = own.deployment["spec"]["template"]["spec"] if own and own.deployment else {}
    running = {
        container["image"] for container in spec.get("containers", ()) if container["name"] in names
    }
    if len(running) != 1:
        raise ConfigError(f"IMG is not set: make deploy IMG=example.com/{project.name}:v1")
    replace_image(rendering.documents, PLACEHOLDER_IMAGE, running.pop())


def _format_deletion(item: Reference) -> str:
    namespace = f" -n {item.namespace}" if item.namespace else ""
    return f"kubectl delete {item.type} {item.name}{namespace}"
