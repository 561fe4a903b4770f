"""`kubewright undeploy`: removes what `kubewright deploy` has applied.

Why are the CRDs deleted first?  Only the manager removes the finalizers of their objects. It still
    runs then, and has its permissions.
Why does it stop at another installation?  The CRDs and the cluster roles have the same names for
    all of them, so the objects of the other one would be deleted, too.
Why does it stop when no manager is ready?  Without one, the deletion of a CRD never ends if an
    object has a finalizer, and it cannot be cancelled.
Why can the namespace stay?  Another program may have its objects there, and nothing restores them.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import click

from ..errors import ConfigError
from ..yaml_text import parse_documents, to_yaml
from .cluster import Cluster, format_names
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
    split_installer,
)
from .project import Project
from .terminal import PROJECT_OPTION

# What runs or stores something. Not quotas, roles or network policies: the policies of a cluster
# may create those in every namespace. Not `all`: for this, kubectl fails while any aggregated API
# of the cluster is down.
_CONTENT_TYPES = (
    "pods,services,deployments.apps,replicasets.apps,statefulsets.apps,daemonsets.apps,jobs.batch,"
    "cronjobs.batch,ingresses.networking.k8s.io,configmaps,secrets,persistentvolumeclaims"
)
# Kubernetes and OpenShift create these in every namespace.
_CLUSTER_CONFIG_MAPS = {"kube-root-ca.crt", "openshift-service-ca.crt"}
_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"
# Of a configMapGenerator or secretGenerator of kustomize; each change of the content has its own.
_GENERATED_SUFFIX = re.compile(r"-[a-z0-9]{10}$")
_COMMENT = re.compile(r"(?m)(?:^|\s)#.*$")
# In a value of YAML or of a list, not in a path.
_WORD = re.compile(r"(?<![\w./-])[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?![\w./:-])")


@click.command()
@click.option(
    "--overlay",
    default="",
    help=f"Kustomization to remove. Defaults to that of the last deploy, then {DEFAULT_OVERLAY}.",
)
@KUBECTL_OPTION
@PROJECT_OPTION
def undeploy(root: Path, overlay: str, kubectl: str) -> int:
    """Remove the operator from the cluster of your kubeconfig, with its CRDs and their objects.

    The CRDs go first, while the manager still runs: only the manager removes the finalizers of
    their objects. The namespace stays if it contains objects of other programs.

    \b
    Examples:
      kubewright undeploy
      kubewright undeploy --overlay config/overlays/production
    """
    project, kubectl = Project.read(root), find_kubectl(root, kubectl)
    cluster, named = Cluster(kubectl), normalize_overlay(project, overlay)
    text = render_installer(project, "", named or DEFAULT_OVERLAY, kubectl)
    manager = find_deployment(text)
    _check_installations(cluster, manager)
    live = cluster.read_deployment(manager["metadata"])
    recorded = read_recorded_overlay(live)
    chosen = named or check_overlay(project, recorded, "undeploy") or DEFAULT_OVERLAY
    if not named and chosen != DEFAULT_OVERLAY:
        text = render_installer(project, "", chosen, kubectl)
    crds, namespaces, others = split_installer(text)
    _check_finalizers(cluster, live, manager["metadata"]["namespace"], crds)
    own = _OwnObjects.read(project.root, crds, others)
    kept = {
        item["metadata"]["name"]: foreign
        for item in namespaces
        if (foreign := _list_foreign_objects(cluster, item["metadata"]["name"], own))
    }
    removed = [item for item in namespaces if item["metadata"]["name"] not in kept]
    for documents in (crds, others, removed):
        if documents and (exit_code := _delete(kubectl, documents)):
            # With the Deployment, the record of the overlay may be gone.
            click.echo(
                "kubewright: not everything was removed, for the reason above. When it is fixed, "
                f"run: make undeploy OVERLAY={chosen}",
                err=True,
            )
            return exit_code
    if recorded and recorded != chosen:
        _report_left_objects(project, recorded, text, kubectl)
    for name, foreign in kept.items():
        click.echo(
            f"kept the namespace {name} with its Secrets, because it also contains "
            f"{format_names(foreign)}. To delete it with everything in it, run: "
            f"kubectl delete namespace {name}",
            err=True,
        )
    return 0


def _delete(kubectl: str, documents: list[Object]) -> int:
    command = [kubectl, "delete", "--ignore-not-found", "-f", "-"]
    return subprocess.run(command, input=to_yaml(*documents), text=True).returncode


def _check_installations(cluster: Cluster, manager: Object) -> None:
    """Fail if Helm has installed the operator, or it also runs in another namespace."""
    own, others = list_installations(cluster, manager)
    if not others:
        return
    message = (
        f"{others[0]} uses the CRDs and cluster roles that undeploy deletes. Nothing was deleted. "
        f"To remove that installation, run: {others[0].removal}"
    )
    if own:
        namespace = own[0].namespace
        message += (
            f". To remove only the namespace {namespace}, with everything in it, run: "
            f"kubectl delete namespace {namespace}"
        )
    raise ConfigError(message)


def _check_finalizers(cluster: Cluster, live: Object, namespace: str, crds: list[Object]) -> None:
    """Fail if the deletion of the CRDs would wait for a manager that does not run."""
    if not crds or live.get("status", {}).get("readyReplicas"):
        return
    names = [crd["metadata"]["name"] for crd in crds]
    installed = cluster.list_objects("crds", *names, subject="the CRDs")
    if not installed:
        return
    types = ",".join(_format_stored_type(crd) for crd in installed)
    waiting = [
        item
        for item in cluster.list_objects(types, "-A", subject="the objects of the CRDs")
        if item["metadata"].get("finalizers")
    ]
    if not waiting:
        return
    advice = (
        f"To find out why, run: kubectl -n {namespace} get pods,events"
        if live
        else "To run one, use: make deploy"
    )
    raise ConfigError(
        f"no manager is ready in the namespace {namespace}, and only a manager removes the "
        f"finalizers of {format_names(waiting)}. The deletion of the CRDs would wait for it "
        f"forever. Nothing was deleted. {advice}. If the manager runs outside the cluster, delete "
        "these objects first"
    )


def _format_stored_type(crd: Object) -> str:
    """With the stored version: for another, the API server may call a webhook of the manager."""
    names, versions = crd["spec"]["names"], crd["spec"]["versions"]
    stored = next(version["name"] for version in versions if version["storage"])
    return f"{names['plural']}.{stored}.{crd['spec']['group']}"


@dataclass(frozen=True)
class _OwnObjects:
    """What belongs to the operator, in its namespace."""

    objects: frozenset[tuple[str, str]]
    """Kind and name."""
    mentioned: frozenset[str]
    """What the manifests contain, such as the names of Secrets that the user or the manager
    creates: credentials, the CA of webhooks."""
    groups: frozenset[str]
    """The API groups of the operator's own kinds."""

    @classmethod
    def read(cls, root: Path, crds: list[Object], others: list[Object]) -> _OwnObjects:
        """From the rendered manifests and from all overlays: what one left is not foreign."""
        texts = [
            to_yaml(*others),
            *(
                file.read_text(errors="replace")
                for file in sorted(root.glob("config/**/*.yaml"))
                # The text of CRDs contains any word.
                if "crd" not in file.relative_to(root).parts
            ),
        ]
        return cls(
            frozenset(item for text in texts for item in _list_names(text)),
            frozenset(word for text in texts for word in _WORD.findall(_COMMENT.sub("", text))),
            frozenset(crd["spec"]["group"] for crd in crds),
        )

    def contain(self, item: Object, uids: set[str]) -> bool:
        """`uids` are those of all listed objects: an object of another one does not count."""
        kind, metadata = item["kind"], item["metadata"]
        name = metadata["name"]
        owners = metadata.get("ownerReferences", ())
        return (
            (kind, name) in self.objects
            or any(
                owner["uid"] in uids or owner["apiVersion"].partition("/")[0] in self.groups
                for owner in owners
            )
            or (kind == "ConfigMap" and name in _CLUSTER_CONFIG_MAPS)
            or item.get("type") == _ACCOUNT_TOKEN
            or (
                kind in {"ConfigMap", "Secret"}
                and not self.mentioned.isdisjoint({name, _GENERATED_SUFFIX.sub("", name)})
            )
        )


def _list_names(text: str) -> list[tuple[str, str]]:
    """Kind and name of each manifest in the text; a kustomization or a patch may have none."""
    try:
        documents = parse_documents(text, "config")
    except ConfigError:  # not in use: kustomize cannot read it either
        return []
    return [
        (str(document.get("kind")), str(metadata.get("name")))
        for document in documents
        if isinstance(document, dict) and isinstance(metadata := document.get("metadata"), dict)
    ]


def _list_foreign_objects(cluster: Cluster, namespace: str, own: _OwnObjects) -> list[Object]:
    """What runs or is stored in the namespace, and is not the operator's."""
    arguments = (_CONTENT_TYPES, "-n", namespace)
    content = cluster.list_objects(*arguments, subject=f"the content of the namespace {namespace}")
    uids = {item["metadata"]["uid"] for item in content}
    return [item for item in content if not own.contain(item, uids)]


def _report_left_objects(project: Project, recorded: str, text: str, kubectl: str) -> None:
    if has_overlay(project, recorded):
        message = format_left_objects(project, recorded, text, kubectl)
    else:
        message = (
            f"the operator was deployed with {recorded}, which is not in {project.root}: "
            "cluster-scoped objects that only this overlay has are still in the cluster"
        )
    if message:
        click.echo(message, err=True)
