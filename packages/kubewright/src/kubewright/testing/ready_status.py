"""The status that the controllers of Kubernetes write once an object is ready.

On a fake or a real API server without these controllers, no Deployment ever becomes available, and
no Job ends. A test writes their status instead:

    await mark_ready(client, Deployment, Key("default", "docs"))

The status is one for which `readiness_of` returns Current.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from ..api_requests import request_for
from ..client import Client
from ..condition import utc_now
from ..errors import ConfigError
from ..kind import Key, Object
from ..patch import Json
from .kubelet import RUNNING, KubeletPod, build_pod_status

T = TypeVar("T", bound=Object)

_POD_ADDRESS = "10.244.0.1"


async def mark_ready(client: Client, kind: type[T], key: Key) -> T:
    """Write the status of a ready object, and return the stored object."""
    # Not the definition of a class of `metadata_only`: the status depends on the spec.
    definition = replace(kind.definition, metadata_only=False)
    build = _BUILDERS.get((definition.group, definition.name))
    if build is None:
        supported = ", ".join(sorted(name for _, name in _BUILDERS))
        raise ConfigError(
            f"mark_ready does not support {definition.name}, only {supported}; "
            "write the status with client.patch_status"
        )
    obj: Json = msgspec.json.decode(
        await client.transport.send(request_for("GET", definition, key))
    )
    return await client.patch_status(kind, key, build(obj))


def _build_deployment_status(deployment: Json) -> Json:
    replicas = deployment["spec"].get("replicas", 1)
    return {
        **_observed(deployment),
        **dict.fromkeys(
            ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), replicas
        ),
        "unavailableReplicas": None,
        "conditions": [
            {**_condition("Available", "MinimumReplicasAvailable"), "lastUpdateTime": _now()},
            {**_condition("Progressing", "NewReplicaSetAvailable"), "lastUpdateTime": _now()},
        ],
    }


def _build_replica_set_status(replica_set: Json) -> Json:
    replicas = replica_set["spec"].get("replicas", 1)
    counts = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas")
    return {**_observed(replica_set), **dict.fromkeys(counts, replicas), "conditions": None}


def _build_stateful_set_status(stateful_set: Json) -> Json:
    replicas = stateful_set["spec"].get("replicas", 1)
    counts = (
        *("replicas", "readyReplicas", "availableReplicas"),
        *("currentReplicas", "updatedReplicas"),
    )
    revision = f"{stateful_set['metadata']['name']}-{stateful_set['metadata']['generation']}"
    return {
        **_observed(stateful_set),
        **dict.fromkeys(counts, replicas),
        "currentRevision": revision,
        "updateRevision": revision,
    }


def _build_daemon_set_status(daemon_set: Json) -> Json:
    counts = (
        *("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled"),
        *("numberReady", "numberAvailable"),
    )
    # As in a cluster of one node.
    return {
        **_observed(daemon_set),
        **dict.fromkeys(counts, 1),
        "numberMisscheduled": 0,
        "numberUnavailable": None,
    }


def _build_running_pod_status(pod: Json) -> Json:
    return build_pod_status(msgspec.convert(pod, KubeletPod), RUNNING, _POD_ADDRESS)


def _build_job_status(job: Json) -> Json:
    spec, status = job["spec"], job.get("status") or {}
    completions = spec.get("completions", spec.get("parallelism", 1))
    # The API server rejects another time once it is set.
    times = {name: status.get(name) or _now() for name in ("startTime", "completionTime")}
    indexes = {0: "", 1: "0"}.get(completions, f"0-{completions - 1}")
    return {
        **times,
        "succeeded": completions,
        "active": None,
        "ready": 0,
        "terminating": 0,
        "uncountedTerminatedPods": {},
        "completedIndexes": indexes if spec.get("completionMode") == "Indexed" else None,
        # The API server rejects a Job that is complete without the criteria for it.
        "conditions": [
            _condition("SuccessCriteriaMet", "CompletionsReached"),
            _condition("Complete", "CompletionsReached"),
        ],
    }


def _build_claim_status(claim: Json) -> Json:
    return {
        "phase": "Bound",
        "accessModes": claim["spec"].get("accessModes"),
        "capacity": claim["spec"].get("resources", {}).get("requests"),
    }


def _observed(obj: Json) -> Json:
    return {"observedGeneration": obj["metadata"]["generation"]}


def _condition(type: str, reason: str) -> dict[str, Any]:
    return {"type": type, "status": "True", "reason": reason, "lastTransitionTime": _now()}


def _now() -> str:
    return utc_now().isoformat().replace("+00:00", "Z")


_BUILDERS: dict[tuple[str, str], Callable[[Json], Json]] = {
    ("", "PersistentVolumeClaim"): _build_claim_status,
    ("", "Pod"): _build_running_pod_status,
    ("apps", "DaemonSet"): _build_daemon_set_status,
    ("apps", "Deployment"): _build_deployment_status,
    ("apps", "ReplicaSet"): _build_replica_set_status,
    ("apps", "StatefulSet"): _build_stateful_set_status,
    ("batch", "Job"): _build_job_status,
}
