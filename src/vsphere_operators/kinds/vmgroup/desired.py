"""The desired state of a VmGroup, from its spec."""

from __future__ import annotations

from .fingerprint import compute_fingerprints
from .limits import MB_PER_GB
from .model import DesiredState, Rollout
from .types import RolloutSpec, VmGroup


def build_desired_state(group: VmGroup) -> DesiredState:
    spec, rollout = group.spec, group.spec.rollout or RolloutSpec()
    fingerprint, *older_fingerprints = compute_fingerprints(spec)
    return DesiredState(
        cpus=spec.cpu,
        memory_mb=spec.memory * MB_PER_GB,
        replicas=spec.replicas,
        uid=group.metadata.uid,
        template_name=spec.template,
        fingerprint=fingerprint,
        older_fingerprints=tuple(older_fingerprints),
        power=spec.powerState,
        rollout=Rollout(
            max_surge=rollout.maxSurge,
            max_unavailable=rollout.maxUnavailable,
            strategy=rollout.strategy,
        ),
        paused=spec.paused,
        deleting=group.metadata.deletionTimestamp is not None,
        deletion_policy=spec.deletionPolicy,
    )
