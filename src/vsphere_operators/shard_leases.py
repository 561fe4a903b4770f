"""Which replica has which shard, by the Leases of a manager with -shards."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from kubewright import Client
from kubewright.builtin import Lease
from kubewright.shard_coordinator import shard_labels, shard_lease_key
from kubewright.shard_members import parse_shard_count

from .leader_lease import LeaseState, read_lease


class ShardOwner(Struct, frozen=True, kw_only=True):
    """`replica` is "" if no replica has the shard; `renewedAt` is None if the Lease has none."""

    shard: int
    replica: str
    renewedAt: datetime | None
    lease: str


def shard_count_of(lease: LeaseState) -> int:
    """The number of shards that the replicas divide; 1 for a leader without shards."""
    return parse_shard_count(lease.holder) or 1


async def read_shard_owners(client: Client, leader: LeaseState, now: datetime) -> list[ShardOwner]:
    """One for each shard; needs the permission to list Leases."""
    selector = ",".join(f"{name}={value}" for name, value in shard_labels(leader.key).items())
    leases = await client.list(Lease, leader.key.namespace, label_selector=selector)
    states = {lease.key: read_lease(lease) for lease in leases}
    owners = []
    for shard in range(shard_count_of(leader)):
        key = shard_lease_key(leader.key, shard)
        state = states.get(key)
        is_held = state is not None and state.is_active(now)
        owners.append(
            ShardOwner(
                shard=shard,
                replica=_short_identity(state.holder) if state is not None and is_held else "",
                renewedAt=state.renewed_at if state is not None else None,
                lease=str(key),
            )
        )
    return owners


def _short_identity(identity: str) -> str:
    """The name of the Pod; two processes of one Pod differ in what follows."""
    return identity.rpartition("_")[0] or identity


def describe_owners(owners: Sequence[ShardOwner]) -> str:
    """The shards of each replica, such as "pod-a: 0-3; pod-b: 4, 5"."""
    by_replica: dict[str, list[int]] = {}
    for owner in owners:
        if owner.replica:
            by_replica.setdefault(owner.replica, []).append(owner.shard)
    return "; ".join(
        f"{replica}: {format_shards(shards)}" for replica, shards in sorted(by_replica.items())
    )


def format_shards(shards: Sequence[int]) -> str:
    """Numbers in ascending order, with a range for three or more in a row."""
    parts: list[str] = []
    for shard in shards:
        first, _, last = parts[-1].partition("-") if parts else ("", "", "")
        if parts and int(last or first) == shard - 1:
            parts[-1] = f"{first}-{shard}"
        else:
            parts.append(str(shard))
    return ", ".join(part.replace("-", ", ") if _is_pair(part) else part for part in parts)


def _is_pair(part: str) -> bool:
    first, _, last = part.partition("-")
    return bool(last) and int(last) == int(first) + 1
