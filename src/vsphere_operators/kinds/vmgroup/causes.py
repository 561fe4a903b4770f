"""Why a VM is created or deleted, for Events and metrics. No decision depends on it."""

from __future__ import annotations

from collections.abc import Iterable

from .model import CreationCause, DeletionCause, DesiredState, ReplicaRecord, ResourceAmount
from .replica import is_outdated


def find_creation_causes(
    desired: DesiredState, before: Iterable[ReplicaRecord], after: Iterable[ReplicaRecord]
) -> dict[str, CreationCause]:
    """The causes of the clones that the records in `after` request, by name.

    A clone that is only tried again is not included: its cause is known already.
    """
    previous = {record.name: record for record in before}
    is_rollout = any(
        is_outdated(desired, record.fingerprint, record.size) for record in previous.values()
    )
    causes: dict[str, CreationCause] = {}
    for record in after:
        old = previous.get(record.name)
        if old is None:
            causes[record.name] = "rollout" if is_rollout else "scale_up"
        elif old.state == "Present" and record.attempt > old.attempt:
            causes[record.name] = "replacement"
    return causes


def find_deletion_cause(
    desired: DesiredState, fingerprint: str, size: ResourceAmount
) -> DeletionCause:
    """The cause of the deletion of a replica with this fingerprint and size."""
    if desired.deleting:
        return "group_deletion"
    return "rollout" if is_outdated(desired, fingerprint, size) else "scale_down"
