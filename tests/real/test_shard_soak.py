"""A short soak of replicas that share the objects; `make shard-soak` runs it for hours."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubewright.shard_ranges import shard_of_value
from kubewright.testing.controlplane import ControlPlane

from .shard_audit import check_events, write_audit_flags
from .shard_soak import ShardSoak, install

SHARDS = 6


async def test_replicas_under_load_keep_objects_apart(
    binaries: dict[str, Path], tmp_path: Path
) -> None:
    flags = write_audit_flags(tmp_path)
    async with ControlPlane(binaries, extra_args=flags) as plane:
        await asyncio.to_thread(install, plane)
        soak = ShardSoak(plane, tmp_path, shards=SHARDS, objects=60, writes_per_second=20)
        result = await soak.run(kills=1, scales=1, stops=1)
    assert result.violations == []
    assert result.lost == []
    assert result.unexpected_exits == []
    assert result.checked_writes > 60
    # On a busy machine a hand-over may take longer; make shard-soak reports the times.
    assert all(entry.seconds < entry.limit + 10 for entry in result.hand_overs)


def make_event(revision: int, agent: str, name: str, **fields: Any) -> dict[str, Any]:
    is_lease = "-shard-" in name
    metadata = {"name": name, "uid": fields.pop("uid", ""), "resourceVersion": str(revision)}
    reference = {"resource": "leases"} if is_lease else {"resource": "x", "subresource": "status"}
    return {
        "userAgent": agent,
        "objectRef": reference,
        "responseStatus": {"code": 200},
        "responseObject": {"metadata": metadata, "spec": fields},
    }


@pytest.mark.parametrize(
    ("writes", "violations"),
    [
        ([(15, "a"), (25, "b")], 0),
        # After the lease went to b.
        ([(15, "a"), (25, "a")], 1),
        # While no replica held it.
        ([(18, "a"), (18, "b")], 1),
        # Before it had the lease.
        ([(5, "a"), (12, "b")], 2),
    ],
)
def test_writes_without_the_lease_are_found(writes: list[tuple[int, str]], violations: int) -> None:
    lease = f"leader-shard-{shard_of_value('uid', SHARDS)}"
    events = [
        make_event(10, "a", lease, holderIdentity="host-a"),
        make_event(17, "a", lease, holderIdentity=""),
        make_event(20, "b", lease, holderIdentity="host-b"),
        *(make_event(revision, agent, "object", uid="uid") for revision, agent in writes),
    ]
    messages, _, changes = check_events(events, SHARDS, {"a": "a", "b": "b"})
    assert len(messages) == violations
    assert changes == 3
