"""The built-in kinds that operators meet: small, only the fields that are used, everything else ignored."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from .kind import Object, Resource, kind
from .meta import OwnerReference


class ObjectReference(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Which object an Event is about, or which claim a volume is bound to."""

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


class PodSpec(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Where a Pod runs."""

    nodeName: str = ""
    serviceAccountName: str = ""


class PodStatus(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a Pod is."""

    phase: str = ""
    podIP: str = ""
    hostIP: str = ""
    conditions: list[StatusCondition] = []


@kind("v1")
class Pod(Resource[PodSpec, PodStatus]):
    """A Pod."""


@kind("v1", name="Pod", metadata_only=True)
class PodMetadata(Object):
    """Which Pods there are, and nothing more: the server sends only their metadata."""


class Taint(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What keeps Pods off a Node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Which machine a Node is, and whether it takes Pods."""

    providerID: str = ""
    unschedulable: bool = False
    taints: list[Taint] = []


class NodeAddress(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One address of a Node."""

    type: str = ""
    address: str = ""


class NodeStatus(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a Node has and how it is; quantities stay the strings they are on the wire."""

    allocatable: dict[str, str] = {}
    capacity: dict[str, str] = {}
    addresses: list[NodeAddress] = []
    conditions: list[StatusCondition] = []


@kind("v1", namespaced=False)
class Node(Resource[NodeSpec, NodeStatus]):
    """A Node."""


@kind("v1")
class Secret(Object, omit_defaults=True):
    """A Secret; `data` arrives decoded from base64. Its repr shows no value."""

    data: dict[str, bytes] = {}
    type: str = ""

    def __repr__(self) -> str:
        return f"Secret({self.key}, keys={sorted(self.data)})"


@kind("v1")
class ConfigMap(Object, omit_defaults=True):
    """A ConfigMap."""

    data: dict[str, str] = {}


class NamespaceStatus(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Active, or Terminating."""

    phase: str = ""


@kind("v1", namespaced=False)
class Namespace(Object, omit_defaults=True):
    """A Namespace."""

    status: NamespaceStatus = NamespaceStatus()


class CSIPersistentVolumeSource(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A volume that a CSI driver made."""

    driver: str = ""
    volumeHandle: str = ""


class PersistentVolumeSpec(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What backs a volume and who claims it."""

    csi: CSIPersistentVolumeSource | None = None
    claimRef: ObjectReference | None = None
    capacity: dict[str, str] = {}
    storageClassName: str = ""


class PersistentVolumeStatus(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Bound, Available, Released..."""

    phase: str = ""


@kind("v1", namespaced=False)
class PersistentVolume(Resource[PersistentVolumeSpec, PersistentVolumeStatus]):
    """A PersistentVolume."""


class EventSource(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Who reports."""

    component: str = ""
    host: str = ""


@kind("v1")
class Event(Object, omit_defaults=True):
    """What `kubectl describe` shows at its end."""

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


class LeaseSpec(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Who holds a lease, since when, until when. Times stay text: a MicroTime must carry exactly six digits, zeros too."""

    holderIdentity: str = ""
    leaseDurationSeconds: int = 0
    acquireTime: str = ""
    renewTime: str = ""
    leaseTransitions: int = 0


@kind("coordination.k8s.io/v1")
class Lease(Object, omit_defaults=True):
    """A Lease."""

    spec: LeaseSpec = LeaseSpec()


def new_owner_reference(owner: Object, *, controller: bool = True) -> OwnerReference:
    """The reference that makes `owner` the owner of something: it is deleted with it."""
    kind = owner.definition
    return OwnerReference(
        apiVersion=kind.api_version,
        kind=kind.name,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=controller,
        blockOwnerDeletion=controller,
    )
