"""The built-in kinds that operators use, with the fields that are read; others are ignored."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from msgspec import Struct

from .kind import Object, OwnerReference, Resource, kind

_SECONDS_LENGTH = len("2006-01-02T15:04:05")


class ObjectReference(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The object of an Event, or the claim of a volume."""

    apiVersion: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resourceVersion: str = ""


class StatusCondition(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A condition of a Pod or a Node, which is older and looser than metav1.Condition."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class NodeCondition(StatusCondition, frozen=True, omit_defaults=True, kw_only=True):
    lastTransitionTime: datetime | None = None


class PodSpec(Struct, frozen=True, omit_defaults=True, kw_only=True):
    nodeName: str = ""
    serviceAccountName: str = ""


class PodStatus(Struct, frozen=True, omit_defaults=True, kw_only=True):
    phase: str = ""
    podIP: str = ""
    hostIP: str = ""
    conditions: list[StatusCondition] = []


@kind("v1", external=True)
class Pod(Resource[PodSpec, PodStatus]):
    """A Pod."""


@kind("v1", name="Pod", metadata_only=True, external=True)
class PodMetadata(Object):
    """A Pod without spec and status: the server sends only metadata."""


class Taint(Struct, frozen=True, omit_defaults=True, kw_only=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The spec of a Node: its machine, and whether Pods can be scheduled on it."""

    providerID: str = ""
    unschedulable: bool = False
    taints: list[Taint] = []


class NodeAddress(Struct, frozen=True, omit_defaults=True, kw_only=True):
    type: str = ""
    address: str = ""


class NodeStatus(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The status of a Node. Quantities stay strings, as on the wire."""

    allocatable: dict[str, str] = {}
    capacity: dict[str, str] = {}
    addresses: list[NodeAddress] = []
    conditions: list[NodeCondition] = []


@kind("v1", namespaced=False, external=True)
class Node(Resource[NodeSpec, NodeStatus]):
    """A Node."""


class SecretObject(Object):
    """A Secret with a repr that shows no value."""

    def __repr__(self) -> str:
        names = {*getattr(self, "data", ()), *getattr(self, "stringData", ())}
        return f"Secret({self.key}, keys={sorted(names)})"


@kind("v1", external=True)
class Secret(SecretObject, omit_defaults=True):
    """A Secret; `data` arrives decoded from base64. Its repr shows no value."""

    data: dict[str, bytes] = {}
    type: str = ""


@kind("v1", external=True)
class ConfigMap(Object, omit_defaults=True):
    data: dict[str, str] = {}


class NamespaceStatus(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The phase is Active or Terminating."""

    phase: str = ""


@kind("v1", namespaced=False, external=True)
class Namespace(Object, omit_defaults=True):
    status: NamespaceStatus = NamespaceStatus()


class CSIPersistentVolumeSource(Struct, frozen=True, omit_defaults=True, kw_only=True):
    driver: str = ""
    volumeHandle: str = ""


class PersistentVolumeSpec(Struct, frozen=True, omit_defaults=True, kw_only=True):
    csi: CSIPersistentVolumeSource | None = None
    claimRef: ObjectReference | None = None
    capacity: dict[str, str] = {}
    storageClassName: str = ""


class PersistentVolumeStatus(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The phase is Available, Bound, Released or Failed."""

    phase: str = ""


@kind("v1", namespaced=False, external=True)
class PersistentVolume(Resource[PersistentVolumeSpec, PersistentVolumeStatus]):
    """A PersistentVolume."""


class EventSource(Struct, frozen=True, omit_defaults=True, kw_only=True):
    component: str = ""
    host: str = ""


@kind("v1", external=True)
class Event(Object, omit_defaults=True):
    """A core/v1 Event, as `kubectl describe` lists them."""

    involvedObject: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    source: EventSource = EventSource()
    firstTimestamp: datetime | None = None
    lastTimestamp: datetime | None = None
    reportingComponent: str = ""
    reportingInstance: str = ""


class MicroTimeObject(Object):
    """An object with times for which the API server requires six digits after the point."""

    micro_times: ClassVar[tuple[str, ...]] = ()

    def encode_fields(self) -> dict[str, Any]:
        fields = super().encode_fields()
        for path in self.micro_times:
            *parents, name = path.split(".")
            part = fields
            for parent in parents:
                part = part.get(parent, {})
            # Without a fraction, datetime has no digits after the point.
            if "." not in (time := part.get(name, ".")):
                part[name] = f"{time[:_SECONDS_LENGTH]}.000000{time[_SECONDS_LENGTH:]}"
        return fields


class LeaseSpec(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The holder of a Lease and its times.

    Times stay strings, because a MicroTime must have exactly six digits after the point.
    """

    holderIdentity: str = ""
    leaseDurationSeconds: int = 0
    acquireTime: str = ""
    renewTime: str = ""
    leaseTransitions: int = 0


@kind("coordination.k8s.io/v1", external=True)
class Lease(Object, omit_defaults=True):
    spec: LeaseSpec = LeaseSpec()


def new_owner_reference(owner: Object, *, controller: bool = True) -> OwnerReference:
    """The owner reference of a dependent, which Kubernetes deletes together with `owner`."""
    definition = owner.definition
    return OwnerReference(
        apiVersion=definition.api_version,
        kind=definition.name,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=controller,
        blockOwnerDeletion=controller,
    )
