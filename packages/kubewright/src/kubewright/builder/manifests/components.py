"""config/components: variants of the deployment, as kustomize components that config/default or an overlay picks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ... import rbac
from ..project import Declarations, Project
from .deployment import (
    build_anti_affinity,
    build_disruption_budget,
    build_network_policy,
    build_service_monitor,
    build_webhook_ingress,
    build_webhook_port,
)
from .rbac import (
    RBAC_GROUP,
    build_binding,
    build_ca_roles,
    build_cluster_rules,
    build_role,
    build_webhook_role,
)
from .webhooks import (
    CERTIFICATE_DIR,
    build_ca_bundle_targets,
    build_certificate_files,
    build_certificate_patch,
    build_webhook_configurations,
    build_webhook_files,
    certificate_reference,
)

Document = dict[str, Any]
Files = dict[str, list[Document]]
_KUSTOMIZE_GROUP = "kustomize.config.k8s.io"


def build_kustomization(resources: Sequence[str], components: Sequence[str] = ()) -> Document:
    """The list of files that kustomize reads."""
    made: Document = {
        "apiVersion": f"{_KUSTOMIZE_GROUP}/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(resources),
    }
    return made | ({"components": list(components)} if components else {})


def _build_component(resources: Sequence[str] = (), patches: Sequence[str] = ()) -> Document:
    """A component: what it adds, and what it changes."""
    made: Document = {"apiVersion": f"{_KUSTOMIZE_GROUP}/v1alpha1", "kind": "Component"}
    if resources:
        made["resources"] = sorted(resources)
    if patches:
        made["patches"] = [{"path": each} for each in patches]
    return made


def build_extra_folders(project: Project, declared: Declarations) -> dict[str, Files]:
    """Folders that an overlay can also take as resources."""
    on = declared.with_optional_webhooks
    webhooks = (
        {
            "webhook": build_webhook_files(project, on),
            "certmanager": build_certificate_files(project),
        }
        if on.has_webhook_server
        else {}
    )
    return webhooks | {
        "prometheus": {"monitor.yaml": [build_service_monitor(project)]},
        "network-policy": {"network_policy.yaml": [build_network_policy(project, declared)]},
    }


def build_component_folders(project: Project, declared: Declarations) -> dict[str, Files]:
    """Every component by its name."""
    always = {
        "ha": _build_component_files(
            {"pod_disruption_budget.yaml": [build_disruption_budget(project)]},
            {"replicas_patch.yaml": [_build_replicas_patch(project)]},
        ),
        "namespaced": _build_namespaced_component(project, declared),
        "network-policy": {"kustomization.yaml": [_build_component(["../../network-policy"])]},
        "prometheus": {"kustomization.yaml": [_build_component(["../../prometheus"])]},
    }
    if declared.optional_webhooks:
        on = declared.with_optional_webhooks
        return always | {
            "webhooks": _build_webhooks_component(project, on),
            "cert-manager": _build_cert_manager_component(project, on),
        }
    if not declared.has_webhook_server:
        return always
    return always | {
        "cert-manager": _build_cert_manager_component(project, declared),
        "without-webhooks": _build_without_webhooks_component(project, declared),
    }


def _build_component_files(
    resources: Mapping[str, list[Document]], patches: Mapping[str, list[Document]]
) -> Files:
    """The files of a component."""
    return {
        **resources,
        **patches,
        "kustomization.yaml": [_build_component(list(resources), list(patches))],
    }


def _build_replicas_patch(project: Project) -> Document:
    """The patch for two managers, of which one leads."""
    return _build_deployment_patch(
        project, {"replicas": 2, "template": {"spec": {"affinity": build_anti_affinity(project)}}}
    )


def _build_namespaced_component(project: Project, declared: Declarations) -> Files:
    """A manager that serves its own namespace only, with rights there only; for cluster-wide kinds it keeps their rules alone."""
    resources = build_namespaced_roles(project, declared)
    watched = {
        "name": "WATCH_NAMESPACE",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
    }
    patches = {
        "watch_patch.yaml": [
            _build_deployment_patch(
                project,
                {"template": {"spec": {"containers": [{"name": "manager", "env": [watched]}]}}},
            )
        ],
        "no_cluster_role_binding_patch.yaml": [
            {
                "apiVersion": f"{RBAC_GROUP}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"{project.name}-manager-rolebinding"},
                "$patch": "delete",
            }
        ],
    }
    return _build_component_files(resources, patches)


def build_namespaced_roles(project: Project, declared: Declarations) -> dict[str, list[Document]]:
    """What such a manager may do, in place of the binding in the whole cluster."""
    resources = {
        "manager_role_binding.yaml": [
            build_binding(
                project,
                "manager-namespaced-rolebinding",
                "manager-role",
                namespace=project.namespace,
                role_kind="ClusterRole",
            )
        ]
    }
    if wide := build_cluster_rules(declared):
        resources["cluster_role.yaml"] = [build_role(project, "manager-cluster-role", wide)]
        resources["cluster_role_binding.yaml"] = [
            build_binding(project, "manager-cluster-rolebinding", "manager-cluster-role")
        ]
        resources["cluster_events.yaml"] = _build_cluster_event_roles(project)
    return resources


def _build_cluster_event_roles(project: Project) -> list[Document]:
    """The right to Events about objects of no namespace, which live in `default`."""
    rules = rbac.build_rules([rbac.EVENT_PERMISSION])
    return [
        build_role(project, "manager-cluster-events", rules, namespace="default"),
        build_binding(
            project, "manager-cluster-events", "manager-cluster-events", namespace="default"
        ),
    ]


def _build_webhooks_component(project: Project, on: Declarations) -> Files:
    """Webhooks that are off without it: whom the API server asks, the manager's flag and port for it, and its rights."""
    resources: Files = {"webhook_ca_roles.yaml": build_ca_roles(project, on)}
    if needed := build_webhook_role(project, on):
        resources["webhook_role.yaml"] = needed
    made = _build_component(["../../webhook", *resources])
    container = "/spec/template/spec/containers/0"
    additions = {
        f"{container}/args/-": project.config.optional_webhooks,
        f"{container}/ports/-": build_webhook_port(),
    }
    made["patches"] = [
        _build_add_patch(project, "Deployment", additions),
        # Where there is no NetworkPolicy, a patch with a target does nothing.
        _build_add_patch(project, "NetworkPolicy", {"/spec/ingress/-": build_webhook_ingress()}),
    ]
    return resources | {"kustomization.yaml": [made]}


def _build_add_patch(project: Project, kind: str, values: Mapping[str, object]) -> Document:
    """A patch of something of the manager's that adds to lists; a strategic merge would replace them."""
    operations = [
        json.dumps({"op": "add", "path": path, "value": value}) for path, value in values.items()
    ]
    target = {"kind": kind, "name": f"{project.name}-controller-manager"}
    return {"target": target, "patch": f"[{', '.join(operations)}]"}


def _build_cert_manager_component(project: Project, declared: Declarations) -> Files:
    """The certificate from cert-manager, and nothing of our own CA."""
    patches = _build_delete_patches(build_ca_roles(project, declared)) | {
        "certificate_patch.yaml": [build_certificate_patch(project)]
    }
    made = _build_component(["../../certmanager"], list(patches))
    made["patches"].append(
        _build_add_patch(
            project,
            "Deployment",
            {"/spec/template/spec/containers/0/args/-": f"-webhook-cert-dir={CERTIFICATE_DIR}"},
        )
    )
    # A patch with a target does nothing where that is gone, as with `without-webhooks`.
    carriers = [
        {"kind": each["kind"], "name": each["metadata"]["name"]}
        for each in build_ca_bundle_targets(project, declared)
    ]
    made["patches"] += [{"target": each, "path": "inject_patch.yaml"} for each in carriers]
    return patches | {
        "inject_patch.yaml": [_build_inject_patch(project)],
        "kustomization.yaml": [made],
    }


def _build_inject_patch(project: Project) -> Document:
    """The annotation by which cert-manager writes a caBundle; what it goes to, the target says."""
    annotations = {"cert-manager.io/inject-ca-from": certificate_reference(project)}
    return {
        "apiVersion": "any",
        "kind": "Any",
        "metadata": {"name": "any", "annotations": annotations},
    }


def _build_without_webhooks_component(project: Project, declared: Declarations) -> Files:
    """Nothing is asked before an object is stored; conversion stays, since without it a version could not be read."""
    return _build_component_files(
        {}, _build_delete_patches(build_webhook_configurations(project, declared))
    )


def _build_delete_patches(documents: Iterable[Document]) -> Files:
    """Patches that remove documents, each in a file of its own: with several in one, the kustomize in kubectl 1.32 crashes."""
    return {
        f"no_{each['kind'].lower()}_{number}_patch.yaml": [_build_delete_patch(each)]
        for number, each in enumerate(documents, 1)
    }


def _build_delete_patch(document: Document) -> Document:
    """A patch that removes the document."""
    metadata = {
        key: document["metadata"][key]
        for key in ("name", "namespace")
        if key in document["metadata"]
    }
    return {
        "apiVersion": document["apiVersion"],
        "kind": document["kind"],
        "metadata": metadata,
        "$patch": "delete",
    }


def _build_deployment_patch(project: Project, spec: Document) -> Document:
    """A strategic merge patch of the Deployment."""
    name = {"name": f"{project.name}-controller-manager", "namespace": project.namespace}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": name, "spec": spec}
