"""What prevents clones in addition to placement, folder and adoption."""

from __future__ import annotations

from .group_memory import FOLDER_KEY, GroupMemory
from .model import CloneBlocked, DesiredState
from .reasons import Reason

# etcd stores at most 1.5 MB per object, and a record takes half a KB.
_MAX_REPLICAS = 1000


def find_clone_blocker(desired: DesiredState, memory: GroupMemory) -> CloneBlocked | None:
    if desired.replicas > _MAX_REPLICAS:
        return CloneBlocked(
            Reason.TOO_MANY_REPLICAS,
            f"spec.replicas: Invalid value: {desired.replicas}: must be less than or equal to "
            f"{_MAX_REPLICAS}",
        )
    if desired.quota_violation:
        return CloneBlocked(Reason.QUOTA_EXCEEDED, desired.quota_violation)
    failure = memory.active_failures().get(FOLDER_KEY)
    if failure is not None and failure.permanent:
        return CloneBlocked(failure.reason, failure.message)
    return None
