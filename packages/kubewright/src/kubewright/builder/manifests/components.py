"""config/components: variants of the deployment, as kustomize components that config/default or an overlay picks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ... import rbac
from ..project import Declared, Project
from .deployment import anti_affinity, disruption_budget, network_policy, service_monitor, webhook_ingress, webhook_port
from .rbac import RBAC, authority_documents, binding, cluster_rules, role, webhook_role
from .webhooks import (
    CERTIFICATES,
    carrying,
    certificate_documents,
    certificate_of,
    certificate_patch,
    webhook_configurations,
    webhook_documents,
)

Document = dict[str, Any]
Files = dict[str, list[Document]]
KUSTOMIZE = "kustomize.config.k8s.io"


def kustomization(resources: Sequence[str], components: Sequence[str] = ()) -> Document:
    """The list of files that kustomize reads."""
    made: Document = {"apiVersion": f"{KUSTOMIZE}/v1beta1", "kind": "Kustomization", "resources": sorted(resources)}
    return made | ({"components": list(components)} if components else {})


def component(resources: Sequence[str] = (), patches: Sequence[str] = ()) -> Document:
    """A component: what it adds, and what it changes."""
    made: Document = {"apiVersion": f"{KUSTOMIZE}/v1alpha1", "kind": "Component"}
    if resources:
        made["resources"] = sorted(resources)
    if patches:
        made["patches"] = [{"path": each} for each in patches]
    return made


def extra_folders(project: Project, declared: Declared) -> dict[str, Files]:
    """Folders that an overlay can also take as resources."""
    on = declared.switched_on
    webhooks = {"webhook": webhook_documents(project, on), "certmanager": certificate_documents(project)} if on.asked else {}
    return webhooks | {
        "prometheus": {"monitor.yaml": [service_monitor(project)]},
        "network-policy": {"network_policy.yaml": [network_policy(project, declared)]},
    }


def component_folders(project: Project, declared: Declared) -> dict[str, Files]:
    """Every component by its name."""
    always = {
        "ha": component_of({"pod_disruption_budget.yaml": [disruption_budget(project)]}, {"replicas_patch.yaml": [two_replicas(project)]}),
        "namespaced": namespaced(project, declared),
        "network-policy": {"kustomization.yaml": [component(["../../network-policy"])]},
        "prometheus": {"kustomization.yaml": [component(["../../prometheus"])]},
    }
    if declared.optional:
        on = declared.switched_on
        return always | {"webhooks": with_webhooks(project, on), "cert-manager": cert_manager(project, on)}
    if not declared.asked:
        return always
    return always | {"cert-manager": cert_manager(project, declared), "without-webhooks": without_webhooks(project, declared)}


def component_of(resources: Mapping[str, list[Document]], patches: Mapping[str, list[Document]]) -> Files:
    """The files of a component."""
    return {**resources, **patches, "kustomization.yaml": [component(list(resources), list(patches))]}


def two_replicas(project: Project) -> Document:
    """The patch for two managers, of which one leads."""
    return deployment_patch(project, {"replicas": 2, "template": {"spec": {"affinity": anti_affinity(project)}}})


def namespaced(project: Project, declared: Declared) -> Files:
    """A manager that serves its own namespace only, with rights there only; for cluster-wide kinds it keeps their rules alone."""
    resources = namespaced_roles(project, declared)
    watched = {"name": "WATCH_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    patches = {
        "watch_patch.yaml": [deployment_patch(project, {"template": {"spec": {"containers": [{"name": "manager", "env": [watched]}]}}})],
        "no_cluster_role_binding_patch.yaml": [
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"{project.name}-manager-rolebinding"},
                "$patch": "delete",
            }
        ],
    }
    return component_of(resources, patches)


def namespaced_roles(project: Project, declared: Declared) -> dict[str, list[Document]]:
    """What such a manager may do, in place of the binding in the whole cluster."""
    resources = {
        "manager_role_binding.yaml": [
            binding(project, "manager-namespaced-rolebinding", "manager-role", namespace=project.namespace, role_kind="ClusterRole")
        ]
    }
    if wide := cluster_rules(declared):
        resources["cluster_role.yaml"] = [role(project, "manager-cluster-role", wide)]
        resources["cluster_role_binding.yaml"] = [binding(project, "manager-cluster-rolebinding", "manager-cluster-role")]
        resources["cluster_events.yaml"] = cluster_events(project)
    return resources


def cluster_events(project: Project) -> list[Document]:
    """The right to Events about objects of no namespace, which live in `default`."""
    rules = rbac.rules_of([rbac.EVENTS])
    return [
        role(project, "manager-cluster-events", rules, namespace="default"),
        binding(project, "manager-cluster-events", "manager-cluster-events", namespace="default"),
    ]


def with_webhooks(project: Project, on: Declared) -> Files:
    """Webhooks that are off without it: whom the API server asks, the manager's flag and port for it, and its rights."""
    resources: Files = {"webhook_ca_roles.yaml": authority_documents(project, on)}
    if needed := webhook_role(project, on):
        resources["webhook_role.yaml"] = needed
    made = component(["../../webhook", *resources])
    container = "/spec/template/spec/containers/0"
    additions = {f"{container}/args/-": project.table.optional_webhooks, f"{container}/ports/-": webhook_port()}
    made["patches"] = [
        added(project, "Deployment", additions),
        # Where there is no NetworkPolicy, a patch with a target does nothing.
        added(project, "NetworkPolicy", {"/spec/ingress/-": webhook_ingress()}),
    ]
    return resources | {"kustomization.yaml": [made]}


def added(project: Project, kind: str, values: Mapping[str, object]) -> Document:
    """A patch of something of the manager's that adds to lists; a strategic merge would replace them."""
    operations = [json.dumps({"op": "add", "path": path, "value": value}) for path, value in values.items()]
    target = {"kind": kind, "name": f"{project.name}-controller-manager"}
    return {"target": target, "patch": f"[{', '.join(operations)}]"}


def cert_manager(project: Project, declared: Declared) -> Files:
    """The certificate from cert-manager, and nothing of our own CA."""
    patches = without(authority_documents(project, declared)) | {"certificate_patch.yaml": [certificate_patch(project)]}
    made = component(["../../certmanager"], list(patches))
    made["patches"].append(added(project, "Deployment", {"/spec/template/spec/containers/0/args/-": f"-webhook-cert-dir={CERTIFICATES}"}))
    # A patch with a target does nothing where that is gone, as with `without-webhooks`.
    carriers = [{"kind": each["kind"], "name": each["metadata"]["name"]} for each in carrying(project, declared)]
    made["patches"] += [{"target": each, "path": "inject_patch.yaml"} for each in carriers]
    return patches | {"inject_patch.yaml": [injection(project)], "kustomization.yaml": [made]}


def injection(project: Project) -> Document:
    """The annotation by which cert-manager writes a caBundle; what it goes to, the target says."""
    annotations = {"cert-manager.io/inject-ca-from": certificate_of(project)}
    return {"apiVersion": "any", "kind": "Any", "metadata": {"name": "any", "annotations": annotations}}


def without_webhooks(project: Project, declared: Declared) -> Files:
    """Nothing is asked before an object is stored; conversion stays, since without it a version could not be read."""
    return component_of({}, without(webhook_configurations(project, declared)))


def without(documents: Iterable[Document]) -> Files:
    """Patches that remove documents, each in a file of its own: with several in one, the kustomize in kubectl 1.32 crashes."""
    return {f"no_{each['kind'].lower()}_{number}_patch.yaml": [deleted(each)] for number, each in enumerate(documents, 1)}


def deleted(document: Document) -> Document:
    """A patch that removes the document."""
    metadata = {key: document["metadata"][key] for key in ("name", "namespace") if key in document["metadata"]}
    return {"apiVersion": document["apiVersion"], "kind": document["kind"], "metadata": metadata, "$patch": "delete"}


def deployment_patch(project: Project, spec: Document) -> Document:
    """A strategic merge patch of the Deployment."""
    name = {"name": f"{project.name}-controller-manager", "namespace": project.namespace}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": name, "spec": spec}
