"""The values that the chart of every operator has.

Defaults match the components that pyproject.toml selects for config/.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...shard_ranges import MAX_SHARDS
from ..project import PLACEHOLDER_IMAGE, FeatureEntry, OperatorParts, Project
from .dashboards import build_dashboard_values
from .model import (
    BOOLEAN,
    NAME,
    STRING,
    STRING_MAP,
    ChartExtension,
    Json,
    Value,
)
from .pod_values import build_manager_values, build_pod_values
from .server_values import build_metrics_values, build_network_values, build_webhook_values

_COUNT_OR_PERCENTAGE: Json = {
    "type": ["integer", "string", "null"],
    "minimum": 0,
    "pattern": "^[0-9]+%$",
}
_REFERENCES: Json = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"name": STRING},
        "required": ["name"],
        "additionalProperties": False,
    },
}
# By component of config/.
_REPLICAS = {"shards": 3, "ha": 2}


def build_values(
    project: Project, declared: OperatorParts, extension: ChartExtension
) -> list[Value]:
    """All values, in the order of values.yaml."""
    return [
        *_build_image_values(project),
        *extension.values,
        *build_manager_values(project),
        *(_build_feature_value(project, feature) for feature in project.config.optional_features),
        *build_pod_values(),
        *_build_availability_values(project),
        *_build_access_values(project),
        *_build_object_values(project),
        *build_metrics_values(project),
        *build_dashboard_values(project),
        *build_network_values(project, extension),
        *build_webhook_values(project, declared),
    ]


def _split_image(image: str) -> tuple[str, str, str]:
    """The repository, the tag and the digest of an image; empty for the image of a new project."""
    if image == PLACEHOLDER_IMAGE:
        return "", "", ""
    image, _, digest = image.partition("@")
    name, _, tag = image.rpartition(":")
    # The colon may belong to the port of the registry.
    return (name, tag, digest) if name and "/" not in tag else (image, "", digest)


def _build_image_values(project: Project) -> Iterator[Value]:
    repository, tag, digest = _split_image(project.config.image)
    example = f"example.com/{project.name}"
    yield Value(
        "image.repository",
        repository,
        "Image without its tag.",
        # A colon is part of the registry's port only if a slash follows.
        {"type": "string", "pattern": r"^$|^([^\s@]+/)?[^\s@:/]+$"},
        example,
    )
    yield Value(
        "image.tag",
        tag,
        "Tag of the image. Defaults to the appVersion of the chart.",
        {"type": "string", "pattern": r"^$|^\w[\w.-]{0,127}$"},
        "v9",
    )
    yield Value(
        "image.digest",
        digest,
        "Digest of the image, such as sha256:.... If set, it takes precedence over the tag.",
        {"type": "string", "pattern": "^$|^sha256:[0-9a-f]{64}$"},
        f"sha256:{'0' * 64}",
    )
    yield Value(
        "image.pullPolicy",
        "",
        "Pull policy. If empty, Kubernetes chooses it by the tag.",
        {"enum": ["", "Always", "IfNotPresent", "Never"]},
        "Always",
    )
    yield Value(
        "imagePullSecrets",
        [],
        "Secrets with credentials for the registry.",
        _REFERENCES,
        [{"name": "registry"}],
    )


def to_value_name(feature: str) -> str:
    first, *others = feature.split("-")
    return "".join([first, *(part.capitalize() for part in others)])


def _build_feature_value(project: Project, feature: FeatureEntry) -> Value:
    enabled = feature.name in project.config.components
    path = f"{to_value_name(feature.name)}.enabled"
    description = feature.description or f"Run the manager with {feature.flag}."
    return Value(path, enabled, description, BOOLEAN, not enabled)


def _build_availability_values(project: Project) -> Iterator[Value]:
    yield Value(
        "replicas",
        next((count for name, count in _REPLICAS.items() if name in project.config.components), 1),
        "Number of Pods. One of them is the leader; if it ends, another takes over.",
        {"type": "integer", "minimum": 0},
        3,
    )
    yield Value(
        "shards",
        12 if "shards" in project.config.components else 1,
        "Number of shards that the replicas divide among them. If 1, only the leader is active. If "
        "greater, all replicas are; about four for each.",
        {"type": "integer", "minimum": 1, "maximum": MAX_SHARDS},
        12,
    )
    yield Value(
        "revisionHistoryLimit",
        None,
        "Number of old ReplicaSets to keep. If null, the default of Kubernetes.",
        {"type": ["integer", "null"], "minimum": 0},
        3,
    )
    yield Value(
        "leaderElection.enabled",
        True,
        "Elect a leader. If false, an upgrade stops the old Pod before it starts the new one.",
        BOOLEAN,
        False,
        {"replicas": 1},
    )
    yield Value(
        "podDisruptionBudget.enabled",
        None,
        "Create a PodDisruptionBudget. If null, only with several replicas.",
        {"type": ["boolean", "null"]},
        False,
        {"replicas": 2},
    )
    yield Value(
        "podDisruptionBudget.maxUnavailable",
        1,
        "Number or percentage of Pods that may be stopped.",
        _COUNT_OR_PERCENTAGE,
        "50%",
        {"replicas": 3},
    )
    yield Value(
        "podDisruptionBudget.minAvailable",
        None,
        "Number or percentage of Pods that keep running. If set, it replaces maxUnavailable.",
        _COUNT_OR_PERCENTAGE,
        2,
        {"replicas": 3},
    )


def _build_access_values(project: Project) -> Iterator[Value]:
    components = project.config.components
    yield Value("serviceAccount.create", True, "Create the ServiceAccount.", BOOLEAN, False)
    yield Value(
        "serviceAccount.name",
        "controller-manager",
        "Name of the ServiceAccount.",
        NAME,
        "another-account",
    )
    yield Value(
        "serviceAccount.annotations",
        {},
        "Annotations of the ServiceAccount.",
        STRING_MAP,
        {"example.com/role": "x"},
    )
    yield Value(
        "rbac.create",
        True,
        "Create the roles of the manager. If false, you have to grant its permissions.",
        BOOLEAN,
        False,
    )
    yield Value(
        "rbac.userRoles",
        True,
        "Create ClusterRoles for the users of the custom resources.",
        BOOLEAN,
        False,
    )
    for role in ("view", "edit", "admin"):
        yield Value(
            f"rbac.aggregateTo{role.capitalize()}",
            True,
            f"Add these ClusterRoles to the ClusterRole {role} of Kubernetes.",
            BOOLEAN,
            False,
        )
    if editors := project.config.optional_editors:
        yield Value(
            "rbac.aggregateEditors",
            "aggregate-editors" in components,
            f"Let users with the ClusterRoles edit and admin change {', '.join(editors)}.",
            BOOLEAN,
            "aggregate-editors" not in components,
        )
    yield Value(
        "namespaced",
        "namespaced" in components,
        "Serve only the namespace of the release, with permissions only there.",
        BOOLEAN,
        "namespaced" not in components,
    )


def _build_object_values(project: Project) -> Iterator[Value]:
    yield Value("labels", {}, "Additional labels of all objects.", STRING_MAP, {"team": "platform"})
    yield Value(
        "annotations",
        {},
        "Additional annotations of all objects.",
        STRING_MAP,
        {"example.com/note": "x"},
    )
    yield Value(
        "createNamespace",
        False,
        'Render the Namespace, with the Pod Security level "restricted". Only for tools that use '
        "`helm template`: `helm install` needs an existing namespace.",
        BOOLEAN,
        True,
    )
    yield Value(
        "crds.install", True, "Install the CRDs, and upgrade them with the release.", BOOLEAN, False
    )
    yield Value(
        "crds.keep",
        True,
        "Keep the CRDs and all custom resources at `helm uninstall`.",
        BOOLEAN,
        False,
    )
    for name, path in project.config.chart_manifests.items():
        yield Value(f"manifests.{name}", False, f"Add the objects of {path}.", BOOLEAN, True)
        yield Value(
            f"manifests.{name}Labels",
            {},
            f"Additional labels of the objects of {path}.",
            STRING_MAP,
            {"release": "prometheus"},
            {f"manifests.{name}": True},
        )
