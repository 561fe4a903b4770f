"""The values of the manager's container and of its Pods."""

from __future__ import annotations

from collections.abc import Iterator

from ..manifests.deployment import (
    POD_SECURITY_CONTEXT,
    SECURITY_CONTEXT,
    TERMINATION_GRACE_SECONDS,
)
from ..project import Project
from .model import NAME, OBJECT, OBJECTS, STRING, STRING_MAP, STRINGS, Json, Value

_QUANTITIES: Json = {
    "type": "object",
    "additionalProperties": {
        "type": ["string", "number"],
        "pattern": "^[0-9]+([.][0-9]+)?([numkMGTPE]|[KMGTPE]i|[eE][0-9]+)?$",
    },
}
_RESOURCES: Json = {
    "type": "object",
    "properties": {"requests": _QUANTITIES, "limits": _QUANTITIES, "claims": OBJECTS},
    "additionalProperties": False,
}
_ENVIRONMENT_VARIABLES: Json = {
    "type": "array",
    "items": {
        "type": "object",
        # Kubernetes rejects a number or a switch as value.
        "properties": {"name": NAME, "value": STRING, "valueFrom": OBJECT},
        "required": ["name"],
        "additionalProperties": False,
    },
}
_HOST_ALIASES: Json = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"ip": NAME, "hostnames": STRINGS},
        "required": ["ip"],
        "additionalProperties": False,
    },
}


def build_manager_values(project: Project) -> Iterator[Value]:
    manager = project.config.manager
    yield Value(
        "flags",
        [],
        "Additional flags of the manager, such as -zap-log-level=debug.",
        STRINGS,
        ["-zap-devel"],
    )
    yield Value(
        "env",
        [],
        "Additional environment variables of the manager, as in the env of a container.",
        _ENVIRONMENT_VARIABLES,
        [{"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"}],
    )
    yield Value(
        "envFrom",
        [],
        "ConfigMaps and Secrets with environment variables, as in the envFrom of a container.",
        OBJECTS,
        [{"configMapRef": {"name": "proxy"}}],
    )
    for secret in manager.secrets:
        yield Value(
            f"secrets.{secret.name}",
            secret.name,
            f"Name of the Secret that is mounted at {secret.mount}. The Secret is optional.",
            NAME,
            "another-secret",
        )
    yield Value(
        "resources",
        manager.resources,
        "Resource requests and limits of the manager.",
        _RESOURCES,
        {"limits": {"memory": "1Gi"}},
    )
    yield Value(
        "securityContext",
        SECURITY_CONTEXT,
        "Security context of the manager's container. Yours is merged with the default; null "
        "removes a field.",
        OBJECT,
        {"runAsUser": 65532},
    )


def build_pod_values() -> Iterator[Value]:
    def build(path: str, description: str, schema: Json, example: object) -> Value:
        default: object = {} if schema["type"] == "object" else []
        return Value(path, "" if schema is STRING else default, description, schema, example)

    yield build("podLabels", "Additional labels of the Pods.", STRING_MAP, {"team": "platform"})
    yield build(
        "podAnnotations",
        "Additional annotations of the Pods.",
        STRING_MAP,
        {"example.com/note": "x"},
    )
    yield build(
        "nodeSelector", "Labels of the Nodes to run on.", STRING_MAP, {"kubernetes.io/os": "linux"}
    )
    yield build(
        "tolerations",
        "Tolerations of the Pods.",
        OBJECTS,
        [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
    )
    yield build(
        "affinity",
        "Affinity of the Pods. If empty, several replicas prefer different Nodes.",
        OBJECT,
        {"podAntiAffinity": {}},
    )
    yield build(
        "topologySpreadConstraints",
        "Spread of the replicas. A constraint without labelSelector applies to the manager's Pods.",
        OBJECTS,
        [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
            }
        ],
    )
    yield build(
        "priorityClassName", "PriorityClass of the Pods.", STRING, "system-cluster-critical"
    )
    yield Value(
        "podSecurityContext",
        POD_SECURITY_CONTEXT,
        "Security context of the Pods. Yours is merged with the default; null removes a field.",
        OBJECT,
        {"fsGroup": 65532},
    )
    yield Value(
        "terminationGracePeriodSeconds",
        TERMINATION_GRACE_SECONDS,
        "Time for a Pod to stop. Keep it longer than the flag -graceful-shutdown-timeout.",
        {"type": "integer", "minimum": 1},
        60,
    )
    yield build(
        "hostAliases",
        "Entries of /etc/hosts in the Pods, for hosts that DNS does not know.",
        _HOST_ALIASES,
        [{"ip": "192.0.2.10", "hostnames": ["host.example.com"]}],
    )
    yield build(
        "dnsConfig",
        "Name servers, search domains and options of the Pods, as in the dnsConfig of a Pod.",
        OBJECT,
        {"options": [{"name": "ndots", "value": "1"}]},
    )
    yield build(
        "extraVolumes",
        "Additional volumes of the Pods.",
        OBJECTS,
        [{"name": "ca", "configMap": {"name": "ca"}}],
    )
    yield build(
        "extraVolumeMounts",
        "Additional volume mounts of the manager.",
        OBJECTS,
        [{"name": "ca", "mountPath": "/etc/ca"}],
    )
