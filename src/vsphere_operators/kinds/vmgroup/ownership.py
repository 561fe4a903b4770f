"""Whose VM it is: by a mark in extraConfig that holds only together with the instanceUuid that goes with it.

vCenter copies extraConfig into every clone but gives the clone a new instanceUuid. The instanceUuid of a replica follows from its
group and its name, so a copy that a person made betrays itself, without any list of what we made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from uuid import UUID, uuid5

from msgspec import Struct

_EXTRA_CONFIG_PREFIX = "vsphere-operators."
_UUID_NAMESPACE = UUID("6f5c1f3a-6f0e-5a8e-9a43-0d2c8d1f7b52")
"""The namespace of our uuid5; any fixed value does, as long as it never changes."""


class GroupId(Struct, frozen=True, kw_only=True):
    """Who owns."""

    cluster_id: str
    """An id of the Kubernetes cluster, such as the uid of its namespace kube-system."""
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f'VmGroup "{self.name}" in namespace "{self.namespace}" of cluster {self.cluster_id}'


class OwnershipMark(Struct, frozen=True, kw_only=True):
    """What stands in a VM's extraConfig."""

    group_id: GroupId
    replica_name: str
    slot: int
    fingerprint: str


def instance_uuid_of(uid: str, replica: str) -> str:
    """The instanceUuid of a replica."""
    return str(uuid5(_UUID_NAMESPACE, f"{uid}/{replica}"))


def compute_fingerprint(*parts: str) -> str:
    """A short name for what a replica is made from, so that a change of it is seen: template, linked clone or not, storage policy."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def mark_to_extra_config(mark: OwnershipMark) -> dict[str, str]:
    """The mark as extraConfig."""
    group = mark.group_id
    values = {
        "cluster": group.cluster_id,
        "namespace": group.namespace,
        "name": group.name,
        "uid": group.uid,
    }
    values |= {
        "replica": mark.replica_name,
        "slot": str(mark.slot),
        "fingerprint": mark.fingerprint,
    }
    return {f"{_EXTRA_CONFIG_PREFIX}{key}": value for key, value in values.items()}


def mark_from_extra_config(options: Mapping[str, str]) -> OwnershipMark | None:
    """The mark in extraConfig; None where there is none, or not all of it."""
    found = {
        key: options.get(f"{_EXTRA_CONFIG_PREFIX}{key}", "")
        for key in ("cluster", "namespace", "name", "uid", "replica", "slot", "fingerprint")
    }
    if not all(found.values()) or not (found["slot"].isascii() and found["slot"].isdecimal()):
        return None
    group = GroupId(
        cluster_id=found["cluster"],
        namespace=found["namespace"],
        name=found["name"],
        uid=found["uid"],
    )
    return OwnershipMark(
        group_id=group,
        replica_name=found["replica"],
        slot=int(found["slot"]),
        fingerprint=found["fingerprint"],
    )


def is_genuine(mark: OwnershipMark, instance_uuid: str) -> bool:
    """Whether the mark was made for this VM, and not copied into it."""
    return instance_uuid.lower() == instance_uuid_of(mark.group_id.uid, mark.replica_name)


def is_owned_by(mark: OwnershipMark | None, instance_uuid: str, group: GroupId) -> bool:
    """Whether a VM belongs to the group."""
    return (
        mark is not None
        and mark.group_id.uid == group.uid
        and mark.group_id.cluster_id == group.cluster_id
        and is_genuine(mark, instance_uuid)
    )
