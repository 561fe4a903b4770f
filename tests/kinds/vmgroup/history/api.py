"""The API server: objects with versions, and a watch that is read as late as a history decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from kubewright.patch import Json
from kubewright.testing.fake import FakeApi
from kubewright.testing.fake.object_store import EventType
from vsphere_operators.kinds.vmgroup.types import ADOPT_ANNOTATION, ReplicaStatus, VmGroup

NAMESPACE = "team-a"


@dataclass(frozen=True)
class StoredEvent:
    key: str
    body: bytes
    is_deletion: bool


class HistoryApi(FakeApi):
    """The fake API server of kubewright, with reproducible uids and times."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[int, StoredEvent]] = []
        self.now = "2026-01-01T00:00:00+00:00"
        self.created = 0

    def store(self, type: EventType, key: str, obj: Json) -> Json:
        metadata = obj["metadata"]
        if type == "ADDED":
            self.created += 1
            metadata = metadata | {
                "uid": f"uid-{self.created}",
                "creationTimestamp": f"2026-01-01T00:{self.created:02d}:00Z",
            }
        if metadata.get("deletionTimestamp"):
            metadata = metadata | {"deletionTimestamp": "2026-01-02T00:00:00Z"}
        stored = super().store(type, key, obj | {"metadata": metadata})
        body = msgspec.json.encode(stored)
        self.events.append((self.revision, StoredEvent(key, body, type == "DELETED")))
        self.history.clear()
        return stored

    def events_after(self, revision: int) -> list[tuple[int, StoredEvent]]:
        # The newest are last, and few are undelivered.
        count = 0
        for stored_revision, _ in reversed(self.events):
            if stored_revision <= revision:
                break
            count += 1
        return self.events[len(self.events) - count :]

    def list_at(self, revision: int) -> list[VmGroup]:
        bodies: dict[str, bytes] = {}
        for stored_revision, event in self.events:
            if stored_revision > revision:
                break
            if event.is_deletion:
                bodies.pop(event.key, None)
            else:
                bodies[event.key] = event.body
        return [VmGroup.decode(body) for body in bodies.values()]

    def list_groups(self) -> list[VmGroup]:
        return [VmGroup.decode(msgspec.json.encode(obj)) for obj in self.objects.values()]

    # Users

    def path_of(self, name: str) -> str:
        return VmGroup.definition.path(NAMESPACE, name)

    def create_group(self, name: str, spec: Json) -> None:
        body = {
            "apiVersion": VmGroup.definition.api_version,
            "kind": "VmGroup",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec,
        }
        self.create(VmGroup.definition.path(NAMESPACE), body)

    def edit(self, name: str, **spec: Any) -> None:
        path = self.path_of(name)
        old = self.objects[path]
        self.update(path, old | {"spec": old["spec"] | spec}, status=False)

    def annotate(self, name: str, text: str) -> None:
        """Set the annotation that requests adoptions; "" removes it."""
        path = self.path_of(name)
        old = self.objects[path]
        annotations = {ADOPT_ANNOTATION: text} if text else {}
        metadata = old["metadata"] | {"annotations": annotations}
        self.update(path, old | {"metadata": metadata}, status=False)

    def remove_finalizers(self, name: str) -> None:
        path = self.path_of(name)
        metadata = {k: v for k, v in self.objects[path]["metadata"].items() if k != "finalizers"}
        if "deletionTimestamp" not in metadata:
            self.delete(path, {})
        if path in self.objects:
            old = self.objects[path]
            metadata["deletionTimestamp"] = old["metadata"]["deletionTimestamp"]
            metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
            self.update(path, old | {"metadata": metadata}, status=False)

    def set_status(self, name: str, status: Json) -> None:
        path = self.path_of(name)
        self.update(path, self.objects[path] | {"status": status}, status=True)


def terminating_replicas(obj: Json) -> set[str]:
    """The names of the replicas of a VmGroup that are stored as to be deleted."""
    stored = obj.get("status", {}).get("replicas", ())
    replicas = msgspec.convert(stored, tuple[ReplicaStatus, ...])
    return {replica.name for replica in replicas if replica.leaving}
