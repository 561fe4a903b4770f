"""What the API server requires of built-in kinds, with its causes. It is in no schema.

Only rules that the objects of an operator are likely to break are here. Transcripts of the real API
server have each of them; `docs/designs/testing.md` has the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from ...patch import Json
from ...selectors import LabelRequirement
from .failure import field_cause
from .served_kind import ServedKind

_TEMPLATE = "spec.template"
_STATEFUL_SET_FIELDS = (
    *("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit"),
    *("persistentVolumeClaimRetentionPolicy", "minReadySeconds"),
)
_STATEFUL_SET_TEXT = (
    "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', "
    "'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' "
    "and 'minReadySeconds' are forbidden"
)
_OPERATORS: dict[str, Literal["in", "notin", "exists", "!"]] = {
    "In": "in",
    "NotIn": "notin",
    "Exists": "exists",
    "DoesNotExist": "!",
}
_JOB_RESTART_POLICIES = 'Required value: valid values: "OnFailure", "Never"'

_Check = Callable[[Json, Json | None], Iterator[Json]]


def check_builtin(kind: ServedKind, obj: Json, old: Json | None) -> list[Json]:
    """The causes for which the API server would reject an object of a built-in kind."""
    check = None if kind.is_custom else _CHECKS.get((kind.group, kind.plural))
    if check is None:
        return []
    # `FakeApi.add` stores objects without these checks: a change need not repair them.
    old_causes = [] if old is None else [*check(old, None)]
    return [cause for cause in check(obj, old) if cause not in old_causes]


def _check_workload(obj: Json, old: Json | None) -> Iterator[Json]:
    kind, spec = obj["kind"], obj.get("spec") or {}
    selector = spec.get("selector")
    # The API server's code for DaemonSets lacks this check, and for ReplicaSets has its message.
    noun = "deployment" if kind == "ReplicaSet" else kind.lower()
    if selector is None and kind != "DaemonSet":
        yield _required("spec.selector")
    if selector is not None and not _has_requirements(selector):
        yield _invalid("spec.selector", selector, f"empty selector is invalid for {noun}")
    else:
        yield from _check_template_labels(spec, selector)
    yield from _check_pod(spec.get("template", {}).get("spec"), f"{_TEMPLATE}.spec")
    if old is None:
        return
    if kind == "StatefulSet":
        if _without(spec, _STATEFUL_SET_FIELDS) != _without(old["spec"], _STATEFUL_SET_FIELDS):
            yield field_cause("FieldValueForbidden", "spec", _STATEFUL_SET_TEXT)
    else:
        yield from _check_same_selector(selector, old)


def _check_template_labels(spec: Json, selector: Json | None) -> Iterator[Json]:
    labels = spec.get("template", {}).get("metadata", {}).get("labels")
    if selector is None or not _matches(selector, labels or {}):
        text = "`selector` does not match template `labels`"
        yield _invalid(f"{_TEMPLATE}.metadata.labels", labels, text)


def _check_same_selector(selector: Json | None, old: Json) -> Iterator[Json]:
    if selector != old["spec"].get("selector"):
        yield _invalid("spec.selector", selector, "field is immutable")


def _check_job(obj: Json, old: Json | None) -> Iterator[Json]:
    spec = obj.get("spec") or {}
    # Without a selector, the API server generates one that matches.
    if spec.get("manualSelector") and spec.get("selector") is not None:
        yield from _check_template_labels(spec, spec["selector"])
    yield from _check_job_template(spec, _TEMPLATE)
    if old is not None:
        yield from _check_same_selector(spec.get("selector"), old)


def _check_cron_job(obj: Json, old: Json | None) -> Iterator[Json]:
    spec = obj.get("spec") or {}
    if not spec.get("schedule"):
        yield _required("spec.schedule")
    job = spec.get("jobTemplate", {}).get("spec") or {}
    yield from _check_job_template(job, "spec.jobTemplate.spec.template")


def _check_job_template(job: Json, path: str) -> Iterator[Json]:
    pod = job.get("template", {}).get("spec") or {}
    yield from _check_pod(pod, f"{path}.spec")
    # The default of Pods is not valid in a Job.
    if pod.get("restartPolicy", "Always") == "Always":
        yield _required(f"{path}.spec.restartPolicy", _JOB_RESTART_POLICIES)


def _check_pod_object(obj: Json, old: Json | None) -> Iterator[Json]:
    yield from _check_pod(obj.get("spec"), "spec")


def _check_pod(spec: Json | None, path: str) -> Iterator[Json]:
    containers = (spec or {}).get("containers") or []
    if not containers:
        yield _required(f"{path}.containers")
    for field in ("containers", "initContainers"):
        for index, container in enumerate((spec or {}).get(field) or ()):
            for name in ("name", "image"):
                if not container.get(name):
                    yield _required(f"{path}.{field}[{index}].{name}")


def _check_autoscaler(obj: Json, old: Json | None) -> Iterator[Json]:
    spec = obj.get("spec") or {}
    maximum, minimum = spec.get("maxReplicas") or 0, spec.get("minReplicas", 1)
    if maximum < 1:
        yield _required("spec.maxReplicas", "Required value: must be set and greater than 0")
    if maximum < minimum:
        text = "must be greater than or equal to `minReplicas`"
        yield _invalid("spec.maxReplicas", maximum, text)
    target = spec.get("scaleTargetRef") or {}
    for name in ("kind", "name"):
        if not target.get(name):
            yield _required(f"spec.scaleTargetRef.{name}")
    if not target.get("apiVersion"):
        text = "apiVersion must specify API group"
        yield _invalid("spec.scaleTargetRef.apiVersion", "", text)


def _check_claim(obj: Json, old: Json | None) -> Iterator[Json]:
    spec = obj.get("spec") or {}
    if not spec.get("accessModes"):
        text = "Required value: at least 1 access mode is required"
        yield _required("spec.accessModes", text)
    if "storage" not in spec.get("resources", {}).get("requests", {}):
        yield _required("spec.resources[storage]")


def _check_service(obj: Json, old: Json | None) -> Iterator[Json]:
    spec = obj.get("spec") or {}
    needs_ports = spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None"
    if needs_ports and not spec.get("ports"):
        yield _required("spec.ports")


def _check_ingress(obj: Json, old: Json | None) -> Iterator[Json]:
    spec = obj.get("spec") or {}
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        text = "either `defaultBackend` or `rules` must be specified"
        yield _invalid("spec", None, text)


def _check_role_binding(obj: Json, old: Json | None) -> Iterator[Json]:
    role = obj.get("roleRef") or {}
    allowed = ("Role", "ClusterRole") if obj["kind"] == "RoleBinding" else ("ClusterRole",)
    if role.get("kind", "") not in allowed:
        values = ", ".join(f'"{name}"' for name in allowed)
        text = f'Unsupported value: "{role.get("kind", "")}": supported values: {values}'
        yield field_cause("FieldValueNotSupported", "roleRef.kind", text)
    if not role.get("name"):
        yield _required("roleRef.name")
    if old is not None and role != old.get("roleRef"):
        # As Go encodes a type without names for its fields in JSON.
        value = {name[0].upper() + name[1:]: text for name, text in role.items()}
        value["APIGroup"] = value.pop("ApiGroup", "")
        yield _invalid("roleRef", value, "cannot change roleRef")


def _matches(selector: Json, labels: dict[str, str]) -> bool:
    """Whether a LabelSelector, as in the spec of a workload, selects an object with the labels."""
    expressions = selector.get("matchExpressions") or ()
    return labels.items() >= (selector.get("matchLabels") or {}).items() and all(
        LabelRequirement(
            expression.get("key", ""),
            _OPERATORS.get(expression.get("operator", ""), "exists"),
            tuple(expression.get("values") or ()),
        ).matches(labels)
        for expression in expressions
    )


def _has_requirements(selector: Json) -> bool:
    return bool(selector.get("matchLabels") or selector.get("matchExpressions"))


def _without(spec: Json, names: tuple[str, ...]) -> Json:
    return {name: value for name, value in spec.items() if name not in names}


def _required(field: str, text: str = "Required value") -> Json:
    return field_cause("FieldValueRequired", field, text)


def _invalid(field: str, value: Any, text: str) -> Json:
    shown = msgspec.json.encode(value, order="sorted").decode()
    return field_cause("FieldValueInvalid", field, f"Invalid value: {shown}: {text}")


_CHECKS: dict[tuple[str, str], _Check] = {
    ("", "persistentvolumeclaims"): _check_claim,
    ("", "pods"): _check_pod_object,
    ("", "services"): _check_service,
    **dict.fromkeys(
        (("apps", name) for name in ("daemonsets", "deployments", "replicasets", "statefulsets")),
        _check_workload,
    ),
    ("autoscaling", "horizontalpodautoscalers"): _check_autoscaler,
    ("batch", "cronjobs"): _check_cron_job,
    ("batch", "jobs"): _check_job,
    ("networking.k8s.io", "ingresses"): _check_ingress,
    ("rbac.authorization.k8s.io", "clusterrolebindings"): _check_role_binding,
    ("rbac.authorization.k8s.io", "rolebindings"): _check_role_binding,
}
