"""Whether an object has reached its desired state, by the rules of kstatus (sigs.k8s.io/cli-utils).

    readiness_of(deployment)   Readiness("InProgress", "1/3 replicas available")

It is a pure function of the object, which may be typed or plain JSON. The rules, in this order:

    missing                                   NotFound
    deletionTimestamp                         Terminating
    observedGeneration is not the generation  InProgress
    condition Reconciling or Stalled is True  InProgress or Failed
    a rule for the kind, below
    condition Ready                           Current if True, else InProgress
    anything else                             Current: most kinds report no progress
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec import Struct

from .kind import Object

ReadinessState = Literal["Current", "InProgress", "Failed", "Terminating", "NotFound"]

# The scheduler may need this long for a new Pod, so kstatus does not call it a failure before.
_SCHEDULE_WINDOW = timedelta(seconds=15)
# A Deployment with this progressDeadlineSeconds never gets the condition Progressing.
_NO_PROGRESS_DEADLINE = 2**31 - 1


class Readiness(Struct, frozen=True):
    """The state of an object as kstatus names it, and why it has that state.

    The message is written to follow a name: "Deployment web: 1/3 replicas available".
    """

    state: ReadinessState
    message: str
    reason: str = ""
    """The reason in CamelCase, if the state is InProgress or Failed."""

    @property
    def is_current(self) -> bool:
        return self.state == "Current"


def readiness_of(obj: Object | dict[str, Any] | None, *, now: datetime | None = None) -> Readiness:
    """The readiness of an object, or of plain JSON with apiVersion and kind."""
    if obj is None:
        return Readiness("NotFound", "missing")
    if _read(obj, "metadata", "deletionTimestamp"):
        return Readiness("Terminating", "being deleted")
    conditions = _Conditions(_read(obj, "status", "conditions") or ())
    generic = _check_generation(obj) or _check_standard_conditions(conditions)
    if generic is not None:
        return generic
    rule = _RULES.get(_group_kind(obj))
    if rule is not None:
        return rule(_Fields(obj, conditions, now or datetime.now(UTC)))
    return _check_ready_condition(conditions) or Readiness("Current", "as desired")


def _group_kind(obj: Object | dict[str, Any]) -> tuple[str, str]:
    if isinstance(obj, Object):
        return obj.definition.group, obj.definition.name
    return str(obj.get("apiVersion", "")).rpartition("/")[0], str(obj.get("kind", ""))


def _read(value: Any, *path: str) -> Any:
    """The value at a path through structs and dictionaries; None if it is not set."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
        if value is None or value is msgspec.UNSET:
            return None
    return value


class _Condition(Struct, frozen=True):
    status: str
    reason: str
    message: str


class _Conditions:
    def __init__(self, conditions: Iterable[Any]) -> None:
        self._by_type = {
            _read(condition, "type"): _Condition(
                _read(condition, "status") or "",
                _read(condition, "reason") or "",
                _read(condition, "message") or "",
            )
            for condition in conditions
        }

    def get(self, type: str, status: str = "") -> _Condition | None:
        """The condition of this type, if it has this status."""
        condition = self._by_type.get(type)
        return condition if condition and status in ("", condition.status) else None


class _Fields(Struct, frozen=True):
    """What a rule reads of one object."""

    obj: Object | dict[str, Any]
    conditions: _Conditions
    now: datetime

    def number(self, *path: str, default: int = 0) -> int:
        value = _read(self.obj, *path)
        return value if isinstance(value, int) else default

    def status_number(self, name: str) -> int:
        return self.number("status", name)

    def text(self, *path: str) -> str:
        return str(_read(self.obj, *path) or "")


def _in_progress(reason: str, message: str) -> Readiness:
    return Readiness("InProgress", message, reason)


def _failed(reason: str, message: str) -> Readiness:
    return Readiness("Failed", message, reason)


def _count(count: int, total: int, adjective: str, noun: str = "replica") -> str:
    return f"{count}/{total} {noun}s {adjective}"


def _surplus(count: int) -> Readiness:
    return _in_progress("ExtraPods", f"deleting {count} surplus Pods")


def _check_generation(obj: Object | dict[str, Any]) -> Readiness | None:
    generation = _read(obj, "metadata", "generation")
    observed = _read(obj, "status", "observedGeneration")
    # A typed object without a generation has 0.
    if not generation or observed is None or observed == generation:
        return None
    message = f"generation {generation} is not observed yet, the last one was {observed}"
    return _in_progress("LatestGenerationNotObserved", message)


def _check_standard_conditions(conditions: _Conditions) -> Readiness | None:
    if reconciling := conditions.get("Reconciling", "True"):
        return _in_progress(reconciling.reason, reconciling.message or "being reconciled")
    if stalled := conditions.get("Stalled", "True"):
        return _failed(stalled.reason, stalled.message or "stalled")
    return None


def _check_ready_condition(conditions: _Conditions) -> Readiness | None:
    ready = conditions.get("Ready")
    if ready is None or ready.status not in ("True", "False", "Unknown"):
        return None
    if ready.status == "True":
        return Readiness("Current", "ready")
    return _in_progress(ready.reason, ready.message or f"the condition Ready is {ready.status}")


def _deployment(fields: _Fields) -> Readiness:
    progressing = fields.conditions.get("Progressing")
    if progressing and progressing.reason == "ProgressDeadlineExceeded":
        return _failed(progressing.reason, progressing.message or "progress deadline exceeded")
    desired = fields.number("spec", "replicas", default=1)
    total, updated = fields.status_number("replicas"), fields.status_number("updatedReplicas")
    available, ready = (
        fields.status_number("availableReplicas"),
        fields.status_number("readyReplicas"),
    )
    deadline = fields.number("spec", "progressDeadlineSeconds", default=_NO_PROGRESS_DEADLINE)
    if total < desired:
        return _in_progress("LessReplicas", _count(total, desired, "created"))
    if updated < desired:
        return _in_progress("LessUpdated", _count(updated, desired, "up to date"))
    if total > desired:
        return _surplus(total - desired)
    if available < updated:
        return _in_progress("LessAvailable", _count(available, updated, "available"))
    if ready < desired:
        return _in_progress("LessReady", _count(ready, desired, "ready"))
    is_complete = (
        progressing is not None
        and progressing.status == "True"
        and progressing.reason == "NewReplicaSetAvailable"
    )
    if not is_complete and deadline != _NO_PROGRESS_DEADLINE:
        return _in_progress("ReplicaSetNotAvailable", "the new ReplicaSet is not available")
    if not fields.conditions.get("Available", "True"):
        return _in_progress("DeploymentNotAvailable", "the condition Available is not True")
    return Readiness("Current", _count(available, desired, "available"))


def _replica_set(fields: _Fields) -> Readiness:
    if failure := fields.conditions.get("ReplicaFailure", "True"):
        return _in_progress("ReplicaFailure", failure.message or "Pods cannot be created")
    desired, total = fields.number("spec", "replicas", default=1), fields.status_number("replicas")
    for name, reason, adjective in (
        ("fullyLabeledReplicas", "LessLabelled", "labelled"),
        ("availableReplicas", "LessAvailable", "available"),
        ("readyReplicas", "LessReady", "ready"),
    ):
        if (count := fields.status_number(name)) < desired:
            return _in_progress(reason, _count(count, desired, adjective))
    if total > desired:
        return _surplus(total - desired)
    return Readiness("Current", _count(total, desired, "available"))


def _stateful_set(fields: _Fields) -> Readiness:
    if fields.text("spec", "updateStrategy", "type") == "OnDelete":
        return Readiness("Current", "the update strategy is OnDelete")
    desired, total = fields.number("spec", "replicas", default=1), fields.status_number("replicas")
    ready, updated = fields.status_number("readyReplicas"), fields.status_number("updatedReplicas")
    partition = fields.number("spec", "updateStrategy", "rollingUpdate", "partition", default=-1)
    if total < desired:
        return _in_progress("LessReplicas", _count(total, desired, "created"))
    if ready < desired:
        return _in_progress("LessReady", _count(ready, desired, "ready"))
    if total > desired:
        return _surplus(total - desired)
    if partition != -1:
        if updated < desired - partition:
            return _in_progress(
                "PartitionRollout", _count(updated, desired - partition, "up to date")
            )
        return Readiness("Current", f"{updated} replicas above the partition are up to date")
    if (current := fields.status_number("currentReplicas")) < desired:
        return _in_progress("LessCurrent", _count(current, desired, "of the current revision"))
    if fields.text("status", "currentRevision") != fields.text("status", "updateRevision"):
        return _in_progress("RevisionMismatch", "the update to the new revision is not complete")
    return Readiness("Current", _count(ready, desired, "ready"))


def _daemon_set(fields: _Fields) -> Readiness:
    # The controller always writes both fields, so an object without them was not seen yet.
    if _read(fields.obj, "status", "observedGeneration") is None:
        return _in_progress("NoObservedGeneration", "the DaemonSet controller has not observed it")
    desired = fields.number("status", "desiredNumberScheduled", default=-1)
    if desired == -1:
        return _in_progress("NoDesiredNumber", "the number of nodes is not known yet")
    for name, reason, adjective in (
        ("currentNumberScheduled", "LessCurrent", "scheduled"),
        ("updatedNumberScheduled", "LessUpdated", "up to date"),
        ("numberAvailable", "LessAvailable", "available"),
        ("numberReady", "LessReady", "ready"),
    ):
        if (count := fields.status_number(name)) < desired:
            return _in_progress(reason, _count(count, desired, adjective, "Pod"))
    return Readiness("Current", _count(desired, desired, "ready", "Pod"))


def _pod(fields: _Fields) -> Readiness:
    match fields.text("status", "phase"):
        case "Succeeded":
            return Readiness("Current", "completed")
        case "Failed":
            # kstatus reports that it reached its last state, not whether that is a good one.
            return Readiness("Current", "completed with a failure")
        case "Running":
            return _running_pod(fields)
        case "Pending":
            return _pending_pod(fields)
        case "":
            return _in_progress("PodNotObserved", "no phase yet")
        case phase:
            return _in_progress("PodNotObserved", f"phase {phase}")


def _running_pod(fields: _Fields) -> Readiness:
    if fields.conditions.get("Ready", "True"):
        return Readiness("Current", "ready")
    crashing = [
        str(_read(container, "name"))
        for container in _read(fields.obj, "status", "containerStatuses") or ()
        if _read(container, "state", "waiting", "reason") == "CrashLoopBackOff"
    ]
    if crashing:
        message = f"containers in CrashLoopBackOff: {', '.join(crashing)}"
        return _failed("ContainerCrashLooping", message)
    return _in_progress("PodRunningNotReady", "running but not ready")


def _pending_pod(fields: _Fields) -> Readiness:
    scheduled = fields.conditions.get("PodScheduled", "False")
    if scheduled is None or scheduled.reason != "Unschedulable":
        return _in_progress("PodPending", "pending")
    created = _read(fields.obj, "metadata", "creationTimestamp")
    if isinstance(created, str):
        created = datetime.fromisoformat(created)
    if created is not None and created > fields.now - _SCHEDULE_WINDOW:
        return _in_progress("PodNotScheduled", "not scheduled yet")
    return _failed("PodUnschedulable", scheduled.message or "cannot be scheduled")


def _claim(fields: _Fields) -> Readiness:
    phase = fields.text("status", "phase") or "not known"
    if phase != "Bound":
        return _in_progress("NotBound", f"not bound to a volume, phase {phase}")
    return Readiness("Current", "bound")


def _job(fields: _Fields) -> Readiness:
    succeeded, failed = fields.status_number("succeeded"), fields.status_number("failed")
    parallelism = fields.number("spec", "parallelism", default=1)
    completions = fields.number("spec", "completions", default=parallelism)
    if fields.conditions.get("Complete", "True"):
        return Readiness("Current", f"completed {succeeded} of {completions} runs")
    if failure := fields.conditions.get("Failed", "True"):
        details = f": {failure.message}" if failure.message else ""
        return _failed("JobFailed", f"failed after {failed} failed Pods{details}")
    suspended = _read(fields.obj, "spec", "suspend") is True
    if suspended and fields.conditions.get("Suspended", "True"):
        return Readiness("Current", "suspended")
    if not fields.text("status", "startTime"):
        return _in_progress("JobNotStarted", "not started")
    active = fields.status_number("active")
    message = f"running: {succeeded} succeeded, {active} active, {failed} failed"
    return Readiness("Current", message)


def _service(fields: _Fields) -> Readiness:
    if fields.text("spec", "type") == "LoadBalancer" and not fields.text("spec", "clusterIP"):
        return _in_progress("NoIPAssigned", "no cluster IP yet")
    return Readiness("Current", "ready")


def _custom_resource_definition(fields: _Fields) -> Readiness:
    if rejected := fields.conditions.get("NamesAccepted", "False"):
        return _failed(rejected.reason, rejected.message or "names not accepted")
    established = fields.conditions.get("Established")
    if established and established.status == "True":
        return Readiness("Current", "established")
    if established and established.status == "False" and established.reason != "Installing":
        return _failed(established.reason, established.message or "not established")
    return _in_progress("Installing", "not served yet")


# A ConfigMap, Secret, CronJob or PodDisruptionBudget needs no rule: the generic ones suffice.
_RULES: dict[tuple[str, str], Callable[[_Fields], Readiness]] = {
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Pod"): _pod,
    ("", "Service"): _service,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _custom_resource_definition,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "Job"): _job,
}
