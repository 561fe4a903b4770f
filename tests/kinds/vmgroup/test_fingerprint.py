"""When the spec makes a replica outdated, also if another release cloned it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.fingerprint import (
    _FIELDS_BY_VERSION,
    compute_fingerprints,
    is_current,
)
from vsphere_operators.kinds.vmgroup.plan import plan
from vsphere_operators.kinds.vmgroup.types import VmGroupSpec

from .replica_builder import DESIRED, make_observed, make_vm

SPEC = VmGroupSpec(cpu=1, memory=1, replicas=1, template="vm-operator-template")
# What the release before versions wrote for this spec.
UNVERSIONED = "5969788a4262"
NEXT_RELEASE = {
    **_FIELDS_BY_VERSION,
    2: lambda spec: (spec.template, str(spec.linkedClone), spec.storagePolicy, spec.powerState),
}


def test_a_version_never_changes() -> None:
    assert compute_fingerprints(SPEC)[-1] == f"v1:{UNVERSIONED}"
    changed = VmGroupSpec(
        cpu=1, memory=1, replicas=1, template="t", linkedClone=True, storagePolicy="gold"
    )
    assert compute_fingerprints(changed)[-1] == "v1:bc4328104617"


@pytest.mark.parametrize(
    "change", [{"template": "other"}, {"linkedClone": True}, {"storagePolicy": "gold"}]
)
def test_each_field_makes_a_replica_outdated(change: dict[str, Any]) -> None:
    (fingerprint,) = compute_fingerprints(SPEC)
    fields = {name: getattr(SPEC, name) for name in SPEC.__struct_fields__}
    assert not is_current(fingerprint, compute_fingerprints(VmGroupSpec(**fields | change)))


def test_fields_that_are_joined_differ() -> None:
    first = {1: lambda spec: ("ab", "c")}
    second = {1: lambda spec: ("a", "bc")}
    assert compute_fingerprints(SPEC, first) != compute_fingerprints(SPEC, second)


@pytest.mark.parametrize(
    ("fingerprint", "current"),
    [
        (UNVERSIONED, True),
        (f"v1:{UNVERSIONED}", True),
        (compute_fingerprints(SPEC, NEXT_RELEASE)[0], True),
        ("v9:of a newer release", True),
        ("000000000000", False),
        ("v1:000000000000", False),
        ("v2:000000000000", False),
    ],
)
def test_a_replica_is_compared_by_its_own_version(fingerprint: str, current: bool) -> None:
    assert is_current(fingerprint, compute_fingerprints(SPEC, NEXT_RELEASE)) is current


def test_a_release_with_another_field_replaces_no_vm() -> None:
    newest, *older = compute_fingerprints(SPEC, NEXT_RELEASE)
    desired = replace(DESIRED, replicas=3, fingerprint=newest, older_fingerprints=tuple(older))
    vms = [
        make_vm(0, fingerprint=UNVERSIONED),
        make_vm(1, fingerprint=f"v1:{UNVERSIONED}"),
        make_vm(2, fingerprint=newest),
    ]
    new_plan = plan(desired, make_observed(vms), lambda: "new")
    assert (new_plan.write_status_first, new_plan.actions, new_plan.phase) == (
        False,
        (),
        "RUNNING",
    )
    assert new_plan.counts.updated == 3
    other_template = VmGroupSpec(cpu=1, memory=1, replicas=3, template="other")
    newest, *older = compute_fingerprints(other_template, NEXT_RELEASE)
    changed = replace(desired, fingerprint=newest, older_fingerprints=tuple(older))
    rollout = plan(changed, make_observed(vms), lambda: "new")
    assert (rollout.write_status_first, rollout.counts.updated) == (True, 0)
