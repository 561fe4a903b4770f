"""`shards`: which replica of the manager has which shard."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from kubewright.errors import ConfigError

from ..leader_lease import LEASE_NAME, SYSTEM_NAMESPACE, find_leases, get_leases
from ..shard_leases import ShardOwner, read_shard_owners, shard_count_of
from .sources import ClusterReader
from .staleness import parse_lease
from .table import Cell, Columns, Table, build_table


async def read_shards(cluster: ClusterReader, lease: str) -> list[ShardOwner]:
    """`lease` is the leader Lease as NAMESPACE/NAME; by default it is found by its name.

    Raises ConfigError if no manager shares its objects.
    """
    client, key = cluster.client, parse_lease(lease)
    namespaces = (SYSTEM_NAMESPACE, cluster.connection_namespace)
    leases = await (get_leases(client, [key]) if key else find_leases(client, namespaces))
    now = await cluster.transport.server_time() or datetime.now(UTC)
    leaders = [state for state in leases if shard_count_of(state) > 1]
    if not leaders:
        raise ConfigError(
            f"no lease {key or LEASE_NAME} of a manager with -shards exists. A manager with "
            "another -leader-election-id needs --lease NAMESPACE/NAME"
        )
    return [owner for leader in leaders for owner in await read_shard_owners(client, leader, now)]


def shard_table(owners: Sequence[ShardOwner]) -> Table:
    columns: Columns[ShardOwner] = {
        "SHARD": lambda owner: str(owner.shard),
        "REPLICA": lambda owner: Cell(owner.replica) if owner.replica else Cell("<none>", "bad"),
        "RENEWED": lambda owner: f"{owner.renewedAt:%H:%M:%S}" if owner.renewedAt else "never",
        "LEASE": lambda owner: owner.lease,
    }
    return build_table(owners, columns)
