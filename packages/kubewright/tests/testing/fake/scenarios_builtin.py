"""Built-in kinds: required fields, and selectors that match and do not change."""

from __future__ import annotations

from typing import Any

from .scenarios_apply import deployment
from .transcript import Step, apply, create, patch

Json = dict[str, Any]
CONTAINERS = [{"name": "app", "image": "app:1"}]
SELECTOR = ("spec.selector",)
NAME = ("metadata.name",)


def builtin(api_version: str, kind: str, spec: Json | None = None, **fields: Any) -> Json:
    parts = {} if spec is None else {"spec": spec}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "a"},
        **parts,
        **fields,
    }


def workload(kind: str, selector: Json | None, labels: Json | None, **spec: Any) -> Json:
    template: Json = {"spec": {"containers": CONTAINERS}}
    if labels is not None:
        template["metadata"] = {"labels": labels}
    selected = {} if selector is None else {"selector": selector}
    return builtin("apps/v1", kind, {**selected, "template": template, **spec})


def selectors_of(plural: str, kind: str) -> list[Step]:
    match, labels = {"matchLabels": {"app": "a"}}, {"app": "a"}
    expression = {"key": "app", "operator": "In", "values": ["a", "b"]}
    return [
        create(plural, builtin("apps/v1", kind)),
        create(plural, workload(kind, None, labels)),
        create(plural, workload(kind, {}, labels)),
        create(plural, workload(kind, match, {"app": "b"})),
        create(plural, workload(kind, match, None)),
        create(plural, workload(kind, {"matchExpressions": [expression]}, {"app": "c"})),
        create(plural, workload(kind, match, labels, template={"metadata": {"labels": labels}})),
        create(plural, workload(kind, match, labels | {"tier": "web"}), show=SELECTOR),
        patch(f"{plural}/a", {"spec": {"template": {"metadata": {"labels": {"app": "b"}}}}}),
        patch(f"{plural}/a", {"spec": {"selector": {"matchLabels": {"tier": "web"}}}}),
        apply(f"{plural}/a", workload(kind, {"matchLabels": {"tier": "web"}}, labels), "one"),
        patch(f"{plural}/a", {"metadata": {"labels": {"x": "y"}}}, show=SELECTOR),
    ]


def job(selector: Json | None = None, labels: Json | None = None, **spec: Any) -> Json:
    template: Json = {"spec": {"containers": CONTAINERS, "restartPolicy": "Never"}}
    if labels is not None:
        template["metadata"] = {"labels": labels}
    selected = {} if selector is None else {"selector": selector, "manualSelector": True}
    return builtin("batch/v1", "Job", {**selected, "template": template, **spec})


TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}

SCENARIOS: dict[str, list[Step]] = {
    "selectors of deployments": selectors_of("deployments", "Deployment"),
    "selectors of stateful sets": selectors_of("statefulsets", "StatefulSet"),
    "selectors of daemon sets": selectors_of("daemonsets", "DaemonSet"),
    "selectors of replica sets": selectors_of("replicasets", "ReplicaSet"),
    "selectors of jobs": [
        create("jobs", job({"matchLabels": {"app": "a"}}, {"app": "b"})),
        create("jobs", job({"matchLabels": {"app": "a"}})),
        create("jobs", job({"matchLabels": {"app": "a"}}, {"app": "a"}), show=SELECTOR),
        patch("jobs/a", {"spec": {"selector": {"matchLabels": {"app": "b"}}}}),
        patch("jobs/a", {"metadata": {"labels": {"x": "y"}}}, show=SELECTOR),
    ],
    "required fields of pods and workloads": [
        create("pods", builtin("v1", "Pod")),
        create("pods", builtin("v1", "Pod", {"containers": []})),
        create("pods", builtin("v1", "Pod", {"containers": [{"name": "app"}]})),
        create("pods", builtin("v1", "Pod", {"containers": [{"image": "app:1"}]})),
        create("pods", builtin("v1", "Pod", {"containers": CONTAINERS}), show=NAME),
        create("deployments", deployment([])),
        create("deployments", deployment([{"name": "app"}])),
        create("deployments", deployment([{"image": "app:1"}])),
        create("jobs", builtin("batch/v1", "Job")),
        create("jobs", builtin("batch/v1", "Job", {"template": {"spec": {}}})),
        create("cronjobs", builtin("batch/v1", "CronJob")),
        create(
            "cronjobs",
            builtin("batch/v1", "CronJob", {"schedule": "0 * * * *", "jobTemplate": {}}),
        ),
    ],
    "required fields of other built-in kinds": [
        create("horizontalpodautoscalers", builtin("autoscaling/v2", "HorizontalPodAutoscaler")),
        create(
            "horizontalpodautoscalers",
            builtin("autoscaling/v2", "HorizontalPodAutoscaler", {"scaleTargetRef": TARGET}),
        ),
        create(
            "horizontalpodautoscalers",
            builtin("autoscaling/v2", "HorizontalPodAutoscaler", {"maxReplicas": 3}),
        ),
        create(
            "horizontalpodautoscalers",
            builtin(
                "autoscaling/v2",
                "HorizontalPodAutoscaler",
                {"maxReplicas": 3, "scaleTargetRef": TARGET},
            ),
            show=NAME,
        ),
        patch("horizontalpodautoscalers/a", {"spec": {"maxReplicas": None}}),
        create("persistentvolumeclaims", builtin("v1", "PersistentVolumeClaim")),
        create(
            "persistentvolumeclaims",
            builtin("v1", "PersistentVolumeClaim", {"accessModes": ["ReadWriteOnce"]}),
        ),
        create("services", builtin("v1", "Service")),
        create("services", builtin("v1", "Service", {"clusterIP": "None"}), show=NAME),
        create(
            "services",
            builtin("v1", "Service", {"type": "ExternalName", "externalName": "a.example.com"})
            | {"metadata": {"name": "b"}},
            show=NAME,
        ),
        create("ingresses", builtin("networking.k8s.io/v1", "Ingress")),
        create("rolebindings", builtin("rbac.authorization.k8s.io/v1", "RoleBinding")),
        create(
            "rolebindings",
            builtin(
                "rbac.authorization.k8s.io/v1",
                "RoleBinding",
                roleRef={"kind": "Role", "name": "a"},
            ),
            show=("roleRef",),
        ),
        patch("rolebindings/a", {"roleRef": {"name": "b"}}),
        create("networkpolicies", builtin("networking.k8s.io/v1", "NetworkPolicy"), show=NAME),
        create("poddisruptionbudgets", builtin("policy/v1", "PodDisruptionBudget"), show=NAME),
    ],
}
