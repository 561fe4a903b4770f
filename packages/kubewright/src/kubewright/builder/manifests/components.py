"""config/components: variants of the deployment, which config/default or an overlay selects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from ... import rbac
from ..project import FeatureEntry, OperatorParts, Project
from . import Document, Files
from .deployment import (
    build_anti_affinity,
    build_deployment_patch,
    build_disruption_budget,
    build_namespace_variable,
    build_network_policy,
    build_service_monitor,
    build_webhook_ingress,
    build_webhook_port,
)
from .rbac import (
    build_aggregation_patches,
    build_binding,
    build_ca_roles,
    build_cluster_rules,
    build_feature_role,
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

_KUSTOMIZE_GROUP = "kustomize.config.k8s.io"

# Of the component `shards`: four for each of its replicas.
_SHARDS = 12


def build_kustomization(resources: Sequence[str], components: Sequence[str] = ()) -> Document:
    document: Document = {
        "apiVersion": f"{_KUSTOMIZE_GROUP}/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(resources),
    }
    return document | ({"components": list(components)} if components else {})


def _build_component(resources: Sequence[str] = (), patches: Sequence[str] = ()) -> Document:
    document: Document = {"apiVersion": f"{_KUSTOMIZE_GROUP}/v1alpha1", "kind": "Component"}
    if resources:
        document["resources"] = sorted(resources)
    if patches:
        document["patches"] = [{"path": path} for path in patches]
    return document


def build_extra_folders(project: Project, declared: OperatorParts) -> dict[str, Files]:
    """The folders that components refer to; an overlay can use them directly."""
    folders = {
        "prometheus": {"monitor.yaml": [build_service_monitor(project)]},
        "network-policy": {"network_policy.yaml": [build_network_policy(project, declared)]},
    }
    all_declared = declared.including_optional_webhooks
    if all_declared.has_webhook_server:
        folders["webhook"] = build_webhook_files(project, all_declared)
        folders["certmanager"] = build_certificate_files(project)
    return folders


def build_component_folders(project: Project, declared: OperatorParts) -> dict[str, Files]:
    """The files of every component, by its name."""
    shards = {"name": "manager", "env": [{"name": "SHARDS", "value": str(_SHARDS)}]}
    active_replicas = {
        "replicas": 3,
        "template": {
            "spec": {"affinity": build_anti_affinity(project), "containers": [shards]},
        },
    }
    two_replicas = {"replicas": 2, "template": {"spec": {"affinity": build_anti_affinity(project)}}}
    folders = {
        "ha": _build_component_files(
            {"pod_disruption_budget.yaml": [build_disruption_budget(project)]},
            {"replicas_patch.yaml": [build_deployment_patch(project, two_replicas)]},
        ),
        "namespaced": _build_namespaced_component(project, declared),
        "shards": _build_component_files(
            {"pod_disruption_budget.yaml": [build_disruption_budget(project)]},
            {"replicas_patch.yaml": [build_deployment_patch(project, active_replicas)]},
        ),
        "network-policy": {"kustomization.yaml": [_build_component(["../../network-policy"])]},
        "prometheus": {"kustomization.yaml": [_build_component(["../../prometheus"])]},
    }
    if patches := build_aggregation_patches(project):
        folders["aggregate-editors"] = _build_component_files({}, patches)
    all_declared = declared.including_optional_webhooks
    if all_declared.has_webhook_server:
        folders["cert-manager"] = _build_cert_manager_component(project, all_declared)
    if declared.optional_webhooks:
        folders["webhooks"] = _build_webhooks_component(project, all_declared)
    elif declared.has_webhook_server:
        # Conversion stays: without it, objects of the other versions could not be read.
        configurations = build_webhook_configurations(project, declared)
        folders["without-webhooks"] = _build_component_files(
            {}, _build_delete_patches(configurations)
        )
    for feature in project.config.optional_features:
        folders[feature.name] = _build_feature_component(project, declared, feature)
    return folders


def _build_feature_component(
    project: Project, declared: OperatorParts, feature: FeatureEntry
) -> Files:
    resources: Files = {}
    if role := build_feature_role(project, declared, feature.name):
        resources["role.yaml"] = role
    component = _build_component(list(resources))
    flag = {"/spec/template/spec/containers/0/args/-": feature.flag}
    component["patches"] = [_build_add_patch(project, "Deployment", flag)]
    return resources | {"kustomization.yaml": [component]}


def _build_component_files(resources: Files, patches: Files) -> Files:
    return {
        **resources,
        **patches,
        "kustomization.yaml": [_build_component(list(resources), list(patches))],
    }


def _build_namespaced_component(project: Project, declared: OperatorParts) -> Files:
    """A manager that serves only its own namespace, with permissions only there."""
    variable = build_namespace_variable("WATCH_NAMESPACE")
    pod = {"containers": [{"name": "manager", "env": [variable]}]}
    cluster_wide_binding = build_binding(project, "manager-rolebinding", "manager-role")
    patches = {
        "watch_patch.yaml": [build_deployment_patch(project, {"template": {"spec": pod}})],
        "no_cluster_role_binding_patch.yaml": [_build_delete_patch(cluster_wide_binding)],
    }
    return _build_component_files(build_namespaced_roles(project, declared), patches)


def build_namespaced_roles(project: Project, declared: OperatorParts) -> Files:
    """The bindings of a manager that serves one namespace; cluster-scoped kinds need their own."""
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
    if rules := build_cluster_rules(declared):
        resources["cluster_role.yaml"] = [build_role(project, "manager-cluster-role", rules)]
        resources["cluster_role_binding.yaml"] = [
            build_binding(project, "manager-cluster-rolebinding", "manager-cluster-role")
        ]
        # Events about cluster-scoped objects are written to the namespace `default`.
        name, event_rules = "manager-cluster-events", rbac.build_rules([rbac.EVENT_PERMISSION])
        resources["cluster_events.yaml"] = [
            build_role(project, name, event_rules, namespace="default"),
            build_binding(project, name, name, namespace="default"),
        ]
    return resources


def _build_webhooks_component(project: Project, all_declared: OperatorParts) -> Files:
    """Enables optional webhooks: their configuration, the manager's flag and port, and roles."""
    resources: Files = {"webhook_ca_roles.yaml": build_ca_roles(project, all_declared)}
    if role := build_webhook_role(project, all_declared):
        resources["webhook_role.yaml"] = role
    component = _build_component(["../../webhook", *resources])
    container = "/spec/template/spec/containers/0"
    additions = {
        f"{container}/args/-": project.config.optional_webhooks,
        f"{container}/ports/-": build_webhook_port(),
    }
    component["patches"] = [
        _build_add_patch(project, "Deployment", additions),
        # Without a NetworkPolicy, a patch with a target does nothing.
        _build_add_patch(project, "NetworkPolicy", {"/spec/ingress/-": build_webhook_ingress()}),
    ]
    return resources | {"kustomization.yaml": [component]}


def _build_add_patch(project: Project, kind: str, values: Mapping[str, object]) -> Document:
    # A JSON patch, because a strategic merge patch would replace lists of plain values.
    operations = [
        json.dumps({"op": "add", "path": path, "value": value}) for path, value in values.items()
    ]
    target = {"kind": kind, "name": f"{project.name}-controller-manager"}
    return {"target": target, "patch": f"[{', '.join(operations)}]"}


def _build_cert_manager_component(project: Project, declared: OperatorParts) -> Files:
    """Uses a certificate from cert-manager, and removes the roles for the manager's own CA."""
    patches = _build_delete_patches(build_ca_roles(project, declared)) | {
        "certificate_patch.yaml": [build_certificate_patch(project)]
    }
    flag = {"/spec/template/spec/containers/0/args/-": f"-webhook-cert-dir={CERTIFICATE_DIR}"}
    component = _build_component(["../../certmanager"], list(patches))
    component["patches"].append(_build_add_patch(project, "Deployment", flag))
    # A patch with a target does nothing if the target is removed, as by `without-webhooks`.
    for target in build_ca_bundle_targets(project, declared):
        selector = {"kind": target["kind"], "name": target["metadata"]["name"]}
        component["patches"].append({"target": selector, "path": "inject_patch.yaml"})
    # cert-manager writes the caBundle of objects with this annotation. kustomize takes kind and
    # name from the target, but requires some in the patch.
    annotations = {"cert-manager.io/inject-ca-from": certificate_reference(project)}
    inject_patch = {
        "apiVersion": "any",
        "kind": "Any",
        "metadata": {"name": "any", "annotations": annotations},
    }
    return patches | {"inject_patch.yaml": [inject_patch], "kustomization.yaml": [component]}


def _build_delete_patches(documents: Iterable[Document]) -> Files:
    # One file each: the kustomize in kubectl 1.32 crashes on several delete patches in one file.
    return {
        f"no_{document['kind'].lower()}_{number}_patch.yaml": [_build_delete_patch(document)]
        for number, document in enumerate(documents, 1)
    }


def _build_delete_patch(document: Document) -> Document:
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
