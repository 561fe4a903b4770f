"""Every case of the tests of kstatus (sigs.k8s.io/cli-utils, pkg/kstatus/status), as a table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from kubewright.builtin import Pod, PodStatus, StatusCondition
from kubewright.condition import Condition
from kubewright.kind import ObjectMeta, Resource, Spec, kind
from kubewright.readiness import Readiness, ReadinessState, readiness_of

from .support.widget_kind import Widget, WidgetStatus

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def condition(type: str, status: str, reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": type, "status": status, "reason": reason, "message": message}


def json_object(api_version: str, kind: str, /, **fields: Any) -> dict[str, Any]:
    metadata = {"name": "test", "namespace": "qual", "generation": 1} | fields.pop("metadata", {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def pod(phase: str = "", *conditions: dict[str, str], **fields: Any) -> dict[str, Any]:
    containers = fields.pop("containers", [])
    status = {"phase": phase, "conditions": [*conditions], "containerStatuses": containers}
    return json_object("v1", "Pod", status=status if phase else None, **fields)


def claim(**status: Any) -> dict[str, Any]:
    return json_object("v1", "PersistentVolumeClaim", status=status)


def stateful_set(spec: dict[str, Any] | None = None, /, **status: Any) -> dict[str, Any]:
    return json_object("apps/v1", "StatefulSet", spec=spec or {}, status=status)


def daemon_set(generation: int = 1, /, **status: Any) -> dict[str, Any]:
    metadata = {"generation": generation}
    return json_object("apps/v1", "DaemonSet", metadata=metadata, status=status)


def deployment(spec: dict[str, Any] | None = None, /, **status: Any) -> dict[str, Any]:
    return json_object("apps/v1", "Deployment", spec=spec or {}, status=status)


def replica_set(spec: dict[str, Any] | None = None, /, **status: Any) -> dict[str, Any]:
    return json_object("apps/v1", "ReplicaSet", spec=spec or {}, status=status)


def job(spec: dict[str, Any] | None = None, /, **status: Any) -> dict[str, Any]:
    return json_object("batch/v1", "Job", spec=spec or {}, status=status)


def service(**spec: Any) -> dict[str, Any]:
    return json_object("v1", "Service", spec=spec)


def custom(generation: int = 1, /, **status: Any) -> dict[str, Any]:
    return json_object(
        "something/v1", "MyCR", metadata={"generation": generation}, status=status or None
    )


def definition(*conditions: dict[str, str]) -> dict[str, Any]:
    status = {"conditions": [*conditions]}
    return json_object("apiextensions.k8s.io/v1", "CustomResourceDefinition", status=status)


def disruption_budget(generation: int) -> dict[str, Any]:
    metadata, status = {"generation": generation}, {"observedGeneration": 1}
    return json_object("policy/v1", "PodDisruptionBudget", metadata=metadata, status=status)


_UNSCHEDULABLE = condition("PodScheduled", "False", "Unschedulable")
_COMPLETED = condition("Ready", "False", "PodCompleted")
_CRASHING = {"name": "nginx", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
_FOUR = {"replicas": 4}
_AVAILABLE = condition("Available", "True")
_PROGRESSED = condition("Progressing", "True", "NewReplicaSetAvailable")
_ONE_REPLICA = {
    "observedGeneration": 1,
    "replicas": 1,
    "updatedReplicas": 1,
    "readyReplicas": 1,
    "availableReplicas": 1,
}
_ALL_LABELLED = {
    "observedGeneration": 1,
    "replicas": 4,
    "readyReplicas": 4,
    "availableReplicas": 4,
    "fullyLabeledReplicas": 4,
}
_FOUR_SCHEDULED = {
    "observedGeneration": 1,
    "desiredNumberScheduled": 4,
    "currentNumberScheduled": 4,
    "updatedNumberScheduled": 4,
    "numberAvailable": 4,
    "numberReady": 4,
}
_STATEFUL = {"observedGeneration": 1, "replicas": 4, "readyReplicas": 4, "currentReplicas": 4}
_ACCEPTED = condition("NamesAccepted", "True", "NoConflicts")

_CASES: dict[str, tuple[dict[str, Any], ReadinessState, str]] = {
    "pod without status": (pod(), "InProgress", "PodNotObserved"),
    "pod ready": (pod("Running", condition("Ready", "True")), "Current", ""),
    "pod succeeded": (pod("Succeeded", _COMPLETED), "Current", ""),
    "pod failed": (pod("Failed", _COMPLETED), "Current", ""),
    "pod being scheduled": (
        pod("Pending", _UNSCHEDULABLE, metadata={"creationTimestamp": _NOW.isoformat()}),
        "InProgress",
        "PodNotScheduled",
    ),
    "pod unschedulable": (pod("Pending", _UNSCHEDULABLE), "Failed", "PodUnschedulable"),
    "pod crash looping": (
        pod("Running", _UNSCHEDULABLE, containers=[_CRASHING]),
        "Failed",
        "ContainerCrashLooping",
    ),
    "pod running": (pod("Running"), "InProgress", "PodRunningNotReady"),
    "pod running with Ready False": (
        pod("Running", condition("Ready", "False", "Pod has not started")),
        "InProgress",
        "PodRunningNotReady",
    ),
    "pod with Reconciling": (
        pod("Running", condition("Reconciling", "True", "PodIsAbsolutelyNotReady")),
        "InProgress",
        "PodIsAbsolutelyNotReady",
    ),
    "pod with Stalled": (
        pod("Running", condition("Stalled", "True", "PodHasFailed")),
        "Failed",
        "PodHasFailed",
    ),
    "claim without status": (claim(), "InProgress", "NotBound"),
    "claim bound": (claim(phase="Bound"), "Current", ""),
    "stateful set without status": (stateful_set(), "InProgress", "LessReplicas"),
    "stateful set with a bad status": (
        stateful_set(observedGeneration=1, currentReplicas=1),
        "InProgress",
        "LessReplicas",
    ),
    "stateful set": (stateful_set(_FOUR, **_STATEFUL), "Current", ""),
    "stateful set less ready": (
        stateful_set(_FOUR, **_STATEFUL | {"readyReplicas": 2}),
        "InProgress",
        "LessReady",
    ),
    "stateful set less current": (
        stateful_set(_FOUR, **_STATEFUL | {"currentReplicas": 2}),
        "InProgress",
        "LessCurrent",
    ),
    "stateful set with more Pods": (
        stateful_set(_FOUR, **_STATEFUL | {"replicas": 8}),
        "InProgress",
        "ExtraPods",
    ),
    "daemon set without status": (daemon_set(), "InProgress", "NoObservedGeneration"),
    "daemon set with a bad status": (
        daemon_set(observedGeneration=1, currentReplicas=1),
        "InProgress",
        "NoDesiredNumber",
    ),
    "daemon set": (daemon_set(**_FOUR_SCHEDULED), "Current", ""),
    "daemon set of another generation": (
        daemon_set(2, **_FOUR_SCHEDULED),
        "InProgress",
        "LatestGenerationNotObserved",
    ),
    "daemon set less ready": (
        daemon_set(**_FOUR_SCHEDULED | {"numberReady": 2}),
        "InProgress",
        "LessReady",
    ),
    "daemon set less available": (
        daemon_set(**_FOUR_SCHEDULED | {"numberAvailable": 2}),
        "InProgress",
        "LessAvailable",
    ),
    "deployment without status": (deployment(), "InProgress", "LessReplicas"),
    "deployment": (
        deployment(conditions=[_PROGRESSED, _AVAILABLE], **_ONE_REPLICA),
        "Current",
        "",
    ),
    "deployment not progressing": (
        deployment(
            {"progressDeadlineSeconds": 45},
            conditions=[condition("Progressing", "False", "Some reason"), _AVAILABLE],
            **_ONE_REPLICA,
        ),
        "InProgress",
        "ReplicaSetNotAvailable",
    ),
    "deployment without a progress deadline": (
        deployment(conditions=[_AVAILABLE], **_ONE_REPLICA),
        "Current",
        "",
    ),
    "deployment not available": (
        deployment(conditions=[_PROGRESSED, condition("Available", "False")], **_ONE_REPLICA),
        "InProgress",
        "DeploymentNotAvailable",
    ),
    "replica set without status": (replica_set(), "InProgress", "LessLabelled"),
    "replica set": (
        replica_set(_FOUR, conditions=[condition("ReplicaFailure", "False")], **_ALL_LABELLED),
        "Current",
        "",
    ),
    "replica set without conditions": (replica_set(_FOUR, **_ALL_LABELLED), "Current", ""),
    "replica set less available": (
        replica_set(_FOUR, **_ALL_LABELLED | {"availableReplicas": 2}),
        "InProgress",
        "LessAvailable",
    ),
    "replica set less ready": (
        replica_set(_FOUR, **_ALL_LABELLED | {"readyReplicas": 2}),
        "InProgress",
        "LessReady",
    ),
    "replica set with ReplicaFailure": (
        replica_set(_FOUR, conditions=[condition("ReplicaFailure", "True")], **_ALL_LABELLED),
        "InProgress",
        "ReplicaFailure",
    ),
    "disruption budget not observed": (
        disruption_budget(2),
        "InProgress",
        "LatestGenerationNotObserved",
    ),
    "disruption budget": (disruption_budget(1), "Current", ""),
    "custom resource without status": (custom(), "Current", ""),
    "custom resource ready": (
        custom(conditions=[condition("Ready", "True", "AllOk")]),
        "Current",
        "",
    ),
    "custom resource not ready": (
        custom(observedGeneration=1, conditions=[condition("Ready", "False", "NotReadyYet")]),
        "InProgress",
        "NotReadyYet",
    ),
    "custom resource without a known condition": (
        custom(conditions=[condition("SomeCondition", "False")]),
        "Current",
        "",
    ),
    "custom resource not observed": (
        custom(2, observedGeneration=1),
        "InProgress",
        "LatestGenerationNotObserved",
    ),
    "job without status": (job(), "InProgress", "JobNotStarted"),
    "job complete": (job(succeeded=1, conditions=[condition("Complete", "True")]), "Current", ""),
    "job failed": (
        job({"completions": 4}, succeeded=3, failed=1, conditions=[condition("Failed", "True")]),
        "Failed",
        "JobFailed",
    ),
    "job running": (
        job(
            {"completions": 10, "parallelism": 2},
            startTime="2019-06-04T01:17:13Z",
            succeeded=3,
            conditions=[condition("Failed", "False"), condition("Complete", "False")],
        ),
        "Current",
        "",
    ),
    "job suspended": (
        job({"suspend": True}, conditions=[condition("Suspended", "True")]),
        "Current",
        "",
    ),
    "job no longer suspended": (
        job({"suspend": False}, conditions=[condition("Suspended", "False")]),
        "InProgress",
        "JobNotStarted",
    ),
    "job about to be suspended": (
        job({"suspend": True}, conditions=[condition("Suspended", "False")]),
        "InProgress",
        "JobNotStarted",
    ),
    "job about to be resumed": (
        job({"suspend": False}, conditions=[condition("Suspended", "True")]),
        "InProgress",
        "JobNotStarted",
    ),
    "cron job without status": (json_object("batch/v1", "CronJob"), "Current", ""),
    "cron job with a status": (json_object("batch/v1", "CronJob", status=None), "Current", ""),
    "service": (service(), "Current", ""),
    "service with node ports": (service(type="NodePort"), "Current", ""),
    "service with a load balancer": (
        service(type="LoadBalancer", clusterIP="1.2.3.4"),
        "Current",
        "",
    ),
    "service without an address": (service(type="LoadBalancer"), "InProgress", "NoIPAssigned"),
    "definition without conditions": (definition(), "InProgress", "Installing"),
    "definition being installed": (
        definition(_ACCEPTED, condition("Established", "False", "Installing")),
        "InProgress",
        "Installing",
    ),
    "definition with rejected names": (
        definition(condition("NamesAccepted", "False", "SomeReason")),
        "Failed",
        "SomeReason",
    ),
    "definition established": (
        definition(_ACCEPTED, condition("Established", "True", "InitialNamesAccepted")),
        "Current",
        "",
    ),
}


@pytest.mark.parametrize("name", _CASES)
def test_agrees_with_kstatus(name: str) -> None:
    obj, state, reason = _CASES[name]
    readiness = readiness_of(obj, now=_NOW)
    assert (readiness.state, readiness.reason) == (state, reason)
    assert readiness.is_current is (state == "Current")
    assert readiness.message


# Rules of kstatus that its tests do not cover.
_MORE_CASES: dict[str, tuple[dict[str, Any], ReadinessState, str]] = {
    "deployment past its deadline": (
        deployment(conditions=[condition("Progressing", "False", "ProgressDeadlineExceeded")]),
        "Failed",
        "ProgressDeadlineExceeded",
    ),
    "deployment updating": (
        deployment(**_ONE_REPLICA | {"updatedReplicas": 0}),
        "InProgress",
        "LessUpdated",
    ),
    "deployment scaling down": (
        deployment(**_ONE_REPLICA | {"replicas": 3}),
        "InProgress",
        "ExtraPods",
    ),
    "deployment less available": (
        deployment(**_ONE_REPLICA | {"availableReplicas": 0}),
        "InProgress",
        "LessAvailable",
    ),
    "deployment less ready": (
        deployment(**_ONE_REPLICA | {"readyReplicas": 0}),
        "InProgress",
        "LessReady",
    ),
    "replica set scaling down": (
        replica_set({"replicas": 2}, **_ALL_LABELLED),
        "InProgress",
        "ExtraPods",
    ),
    "stateful set with OnDelete": (
        stateful_set({"updateStrategy": {"type": "OnDelete"}}),
        "Current",
        "",
    ),
    "stateful set rolling out a partition": (
        stateful_set(
            _FOUR | {"updateStrategy": {"rollingUpdate": {"partition": 2}}},
            **_STATEFUL | {"updatedReplicas": 1},
        ),
        "InProgress",
        "PartitionRollout",
    ),
    "stateful set with a partition": (
        stateful_set(
            _FOUR | {"updateStrategy": {"rollingUpdate": {"partition": 2}}},
            **_STATEFUL | {"updatedReplicas": 2},
        ),
        "Current",
        "",
    ),
    "stateful set updating": (
        stateful_set(_FOUR, **_STATEFUL | {"currentRevision": "a", "updateRevision": "b"}),
        "InProgress",
        "RevisionMismatch",
    ),
    "pod pending": (pod("Pending"), "InProgress", "PodPending"),
    "pod of unknown phase": (pod("Unknown"), "InProgress", "PodNotObserved"),
    "definition not established": (
        definition(_ACCEPTED, condition("Established", "False", "NotAccepted")),
        "Failed",
        "NotAccepted",
    ),
    "custom resource with Ready Unknown": (
        custom(conditions=[condition("Ready", "Unknown", "NoHeartbeat")]),
        "InProgress",
        "NoHeartbeat",
    ),
    "custom resource with an odd Ready": (
        custom(conditions=[condition("Ready", "Maybe")]),
        "Current",
        "",
    ),
}


@pytest.mark.parametrize("name", _MORE_CASES)
def test_follows_the_rules_of_kstatus(name: str) -> None:
    obj, state, reason = _MORE_CASES[name]
    readiness = readiness_of(obj, now=_NOW)
    assert (readiness.state, readiness.reason) == (state, reason)


def test_missing_and_terminating_objects() -> None:
    assert readiness_of(None).state == "NotFound"
    terminating = pod("Running", metadata={"deletionTimestamp": _NOW.isoformat()})
    assert readiness_of(terminating) == Readiness("Terminating", "being deleted")
    widget = Widget(metadata=ObjectMeta(name="a", deletionTimestamp=_NOW))
    assert readiness_of(widget).state == "Terminating"


def test_messages_follow_the_name_of_the_object() -> None:
    three = _ONE_REPLICA | {"replicas": 3, "updatedReplicas": 3}
    assert readiness_of(deployment({"replicas": 3}, **three)).message == "1/3 replicas available"
    assert readiness_of(deployment()).message == "0/1 replicas created"
    assert readiness_of(pod("Running", containers=[_CRASHING, {"name": "b"}])).message == (
        "containers in CrashLoopBackOff: nginx"
    )


class _ScaledSpec(Spec):
    replicas: int | None = None


class _ScaledStatus(msgspec.Struct, omit_defaults=True, kw_only=True):
    replicas: int | None = None
    updatedReplicas: int | msgspec.UnsetType = msgspec.UNSET
    observedGeneration: int | None = None


@kind("apps/v1", name="Deployment")
class _TypedDeployment(Resource[_ScaledSpec, _ScaledStatus]):
    """A Deployment with a few fields."""


def test_typed_objects_are_read_as_plain_json() -> None:
    typed = _TypedDeployment(
        metadata=ObjectMeta(name="web", generation=2),
        spec=_ScaledSpec(replicas=2),
        status=_ScaledStatus(replicas=2, observedGeneration=2),
    )
    assert readiness_of(typed) == readiness_of(typed.encode())
    assert readiness_of(typed).message == "0/2 replicas up to date"
    unschedulable = Pod(
        metadata=ObjectMeta(name="a", creationTimestamp=_NOW),
        status=PodStatus(
            phase="Pending",
            conditions=[
                StatusCondition(type="PodScheduled", status="False", reason="Unschedulable")
            ],
        ),
    )
    assert readiness_of(unschedulable, now=_NOW).state == "InProgress"
    assert readiness_of(unschedulable, now=_NOW + timedelta(seconds=15)).state == "Failed"


def test_kind_of_ours_is_ready_by_its_condition() -> None:
    def widget(status: WidgetStatus) -> Widget:
        return Widget(metadata=ObjectMeta(name="a", generation=1), status=status)

    failing = Condition(type="Ready", status="False", reason="NoFriend", message="It has no friend")
    status = WidgetStatus(conditions=[failing], observedGeneration=1)
    assert readiness_of(widget(status)) == Readiness("InProgress", "It has no friend", "NoFriend")
    assert readiness_of(widget(WidgetStatus())).state == "Current"
    assert readiness_of(widget(WidgetStatus(observedGeneration=0))).state == "InProgress"
