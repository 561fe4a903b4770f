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
from pathlib import Path

import click

from ..errors import ConfigError
from ..yaml_text import to_yaml
from .cluster import Cluster, format_name, format_names, read_annotation
from .deployed import (
    KUBECTL_OPTION,
    check_overlay,
    format_left_objects,
    has_overlay,
    normalize_overlay,
    read_recorded_overlay,
)
from .manifests.installer import (
    DEFAULT_OVERLAY,
    OVERLAY_ANNOTATION,
    Object,
    find_deployment,
    find_kubectl,
    render_installer,
    split_installer,
)
from .project import Project
from .terminal import PROJECT_OPTION

_HELM_RELEASE, _HELM_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
# What runs or stores something. Not quotas, roles or network policies: the policies of a cluster
# may create those in every namespace.
_CONTENT_TYPES = "all,configmaps,secrets,persistentvolumeclaims,ingresses"
# Kubernetes and OpenShift create these in every namespace.
_CLUSTER_CONFIG_MAPS = {"kube-root-ca.crt", "openshift-service-ca.crt"}
_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"
# Of a configMapGenerator or secretGenerator of kustomize; each change of the content has its own.
_GENERATED_SUFFIX = re.compile(r"-[a-z0-9]{10}$")
# In a value of YAML or of a list, not in a comment or a path.
_NAME = re.compile(r"(?<![\w./-])[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?![\w./:-])")


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
    own_text = "\n".join([to_yaml(*others), *_read_config(project.root)])
    kept = {
        item["metadata"]["name"]: foreign
        for item in namespaces
        if (foreign := _list_foreign_objects(cluster, item["metadata"]["name"], own_text, crds))
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
    labels = manager["spec"]["selector"]["matchLabels"].items()
    selector = ",".join(f"{key}={value}" for key, value in labels)
    own_namespace = manager["metadata"]["namespace"]
    arguments = ("deployments", "-A", "-l", selector)
    deployments = cluster.list_objects(*arguments, subject="the Deployments of all namespaces")
    namespaces = [deployment["metadata"]["namespace"] for deployment in deployments]
    for deployment, namespace in zip(deployments, namespaces, strict=True):
        if release := read_annotation(deployment, _HELM_RELEASE):
            where = read_annotation(deployment, _HELM_NAMESPACE) or namespace
            owner, command = f"the Helm release {release}", f"helm uninstall {release} -n {where}"
        elif namespace != own_namespace:
            overlay = read_annotation(deployment, OVERLAY_ANNOTATION)
            owner = f"the overlay {overlay}" if overlay else "another overlay or project"
            command = f"make undeploy OVERLAY={overlay or 'config/overlays/...'}"
        else:
            continue
        message = (
            f"{format_name(deployment)} was installed by {owner}, and uses the CRDs and cluster "
            "roles that undeploy deletes. Nothing was deleted. To remove that installation, run: "
            f"{command}"
        )
        if namespace != own_namespace and own_namespace in namespaces:
            message += (
                f". To remove only the namespace {own_namespace}, with everything in it, run: "
                f"kubectl delete namespace {own_namespace}"
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
    types = ",".join(crd["metadata"]["name"] for crd in installed)
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


def _read_config(root: Path) -> list[str]:
    """The manifests of all overlays: an earlier one may have left objects, which are not foreign.

    Without the CRDs and comments, in which any word could be the name of an object.
    """
    return [
        re.sub(r"(?m)(?:^|\s)#.*$", "", file.read_text(errors="replace"))
        for file in sorted(root.glob("config/**/*.yaml"))
        if "crd" not in file.relative_to(root).parts
    ]


def _list_foreign_objects(
    cluster: Cluster, namespace: str, own_text: str, crds: list[Object]
) -> list[Object]:
    """What runs or is stored in the namespace, and is not named in the manifests."""
    names = set(_NAME.findall(own_text))
    groups = {crd["spec"]["group"] for crd in crds}

    def is_foreign(item: Object) -> bool:
        name = item["metadata"]["name"]
        return not (
            item["metadata"].get("ownerReferences")
            # Also Secrets that the user or the manager creates: credentials, the CA of webhooks.
            or name in names
            or _GENERATED_SUFFIX.sub("", name) in names
            or (item["kind"] == "ConfigMap" and name in _CLUSTER_CONFIG_MAPS)
            or item.get("type") == _ACCOUNT_TOKEN
            or item["apiVersion"].partition("/")[0] in groups
        )

    arguments = (_CONTENT_TYPES, "-n", namespace)
    subject = f"the content of the namespace {namespace}"
    return [item for item in cluster.list_objects(*arguments, subject=subject) if is_foreign(item)]


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
