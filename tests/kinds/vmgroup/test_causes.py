"""Why VMs are created and deleted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from vsphere_operators.kinds.vmgroup.causes import find_creation_causes, find_deletion_cause
from vsphere_operators.kinds.vmgroup.model import DesiredState, Rollout

from .replica_builder import DESIRED, make_record

ROLLED = replace(DESIRED, fingerprint="f2")


def test_the_cause_of_a_clone_is_known_from_the_records() -> None:
    present, gone = make_record(0), make_record(1)
    before = [present, gone, make_record(2, state="Cloning")]
    after = [
        present,
        replace(gone, state="Planned", attempt=2),
        # Its clone failed: the cause stays what it was.
        make_record(2, state="Planned", attempt=2),
        make_record(3, state="Planned"),
    ]
    assert find_creation_causes(DESIRED, before, after) == {"r1": "replacement", "r3": "scale_up"}


def test_a_record_that_is_added_while_others_are_outdated_is_of_a_rollout() -> None:
    outdated = make_record(0, terminating=True)
    new = make_record(1, state="Planned", fingerprint="f2")
    assert find_creation_causes(ROLLED, [outdated], [new]) == {"r1": "rollout"}
    on_delete = replace(ROLLED, rollout=Rollout(strategy="OnDelete"))
    assert find_creation_causes(on_delete, [outdated], [outdated, new]) == {"r1": "scale_up"}


@pytest.mark.parametrize(
    ("desired", "cause"),
    [
        (DESIRED, "scale_down"),
        (ROLLED, "rollout"),
        # It is resized in place, unless no replica may be unavailable.
        (replace(DESIRED, cpus=2), "scale_down"),
        (replace(DESIRED, cpus=2, rollout=Rollout(max_surge=1, max_unavailable=0)), "rollout"),
        (replace(ROLLED, deleting=True), "group_deletion"),
    ],
)
def test_the_cause_of_a_deletion(desired: DesiredState, cause: str) -> None:
    record = make_record(0)
    assert find_deletion_cause(desired, record.fingerprint, record.size) == cause
