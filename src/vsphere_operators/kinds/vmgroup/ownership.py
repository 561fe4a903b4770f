"""Whose VM it is: by a mark in extraConfig that holds only together with the instanceUuid that goes with it.

vCenter copies extraConfig into every clone but gives the clone a new instanceUuid. The instanceUuid of a replica follows from its
group and its name, so a copy that a person made betrays itself, without any list of what we made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from uuid import UUID, uuid5

from msgspec import Struct

PREFIX = "vsphere-operators."
SPACE = UUID("6f5c1f3a-6f0e-5a8e-9a43-0d2c8d1f7b52")
"""The namespace of our uuid5; any fixed value does, as long as it never changes."""


class Group(Struct, frozen=True, kw_only=True):
    """Who owns."""

    cluster: str
    """An id of the Kubernetes cluster, such as the uid of its namespace kube-system."""
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f'VmGroup "{self.name}" in namespace "{self.namespace}" of cluster {self.cluster}'


class Mark(Struct, frozen=True, kw_only=True):
    """What stands in a VM's extraConfig."""

    group: Group
    replica: str
    slot: int
    fingerprint: str


def instance_uuid_of(uid: str, replica: str) -> str:
    """The instanceUuid of a replica."""
    return str(uuid5(SPACE, f"{uid}/{replica}"))


def fingerprint(*parts: str) -> str:
    """A short name for what a replica is made from, so that a change of it is seen: template, linked clone or not, storage policy."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def options_of(mark: Mark) -> dict[str, str]:
    """The mark as extraConfig."""
    group = mark.group
    values = {"cluster": group.cluster, "namespace": group.namespace, "name": group.name, "uid": group.uid}
    values |= {"replica": mark.replica, "slot": str(mark.slot), "fingerprint": mark.fingerprint}
    return {f"{PREFIX}{key}": value for key, value in values.items()}


def mark_of(options: Mapping[str, str]) -> Mark | None:
    """The mark in extraConfig; None where there is none, or not all of it."""
    found = {key: options.get(f"{PREFIX}{key}", "") for key in ("cluster", "namespace", "name", "uid", "replica", "slot", "fingerprint")}
    if not all(found.values()) or not (found["slot"].isascii() and found["slot"].isdecimal()):
        return None
    group = Group(cluster=found["cluster"], namespace=found["namespace"], name=found["name"], uid=found["uid"])
    return Mark(group=group, replica=found["replica"], slot=int(found["slot"]), fingerprint=found["fingerprint"])


def is_genuine(mark: Mark, instance_uuid: str) -> bool:
    """Whether the mark was made for this VM, and not copied into it."""
    return instance_uuid.lower() == instance_uuid_of(mark.group.uid, mark.replica)


def owned_by(mark: Mark | None, instance_uuid: str, group: Group) -> bool:
    """Whether a VM belongs to the group."""
    return mark is not None and mark.group.uid == group.uid and mark.group.cluster == group.cluster and is_genuine(mark, instance_uuid)
