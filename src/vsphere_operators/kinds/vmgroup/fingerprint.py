"""Identifies what the spec requests of a clone: a replica with another fingerprint is outdated.

Why does it have a version?  A release that includes another field computes another hash of the same
    spec. Without a version, it would replace all VMs of all groups. So the fingerprint of a VM is
    compared with the one that the same version computes from today's spec.
What if a fingerprint has no version?  It is of version 1: releases before versions wrote it.
What if its version is unknown?  A newer release wrote it, before a downgrade. The VM counts as
    current, because this release cannot know, and replacing it would be worse.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence

from .types import VmGroupSpec

FieldsByVersion = Mapping[int, Callable[[VmGroupSpec], tuple[str, ...]]]

# A version never changes: the VMs that were cloned with it would be replaced. A new field means a
# new version.
_FIELDS_BY_VERSION: FieldsByVersion = {
    1: lambda spec: (spec.template, str(spec.linkedClone), spec.storagePolicy),
}
_HASH_LENGTH = 12
_VERSIONED = re.compile(r"v(\d+):(.*)", re.DOTALL)


def compute_fingerprints(
    spec: VmGroupSpec, fields_by_version: FieldsByVersion = _FIELDS_BY_VERSION
) -> tuple[str, ...]:
    """The fingerprint of each version, the newest first: that one is for new replicas."""
    fingerprints = []
    for version in sorted(fields_by_version, reverse=True):
        text = "\0".join(fields_by_version[version](spec))
        digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
        fingerprints.append(f"v{version}:{digest}")
    return tuple(fingerprints)


def is_current(fingerprint: str, spec_fingerprints: Sequence[str]) -> bool:
    """Whether the spec requests a replica with this fingerprint."""
    version, digest = _parse(fingerprint)
    by_version = dict(map(_parse, spec_fingerprints))
    return version not in by_version or by_version[version] == digest


def _parse(fingerprint: str) -> tuple[int, str]:
    match = _VERSIONED.fullmatch(fingerprint)
    return (int(match[1]), match[2]) if match else (1, fingerprint)
