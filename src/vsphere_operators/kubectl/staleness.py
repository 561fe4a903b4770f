"""Warns if no manager keeps the objects current, by the Lease that the manager renews anyway."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from kubewright import Key
from kubewright.errors import ConfigError, Forbidden, KubewrightError

from ..leader_lease import (
    LEASE_NAME,
    SYSTEM_NAMESPACE,
    describe_staleness,
    find_leases,
    get_leases,
)
from .sources import ClusterReader


async def warn_of_stale_objects(cluster: ClusterReader, lease: str) -> None:
    """`lease` is the Lease as NAMESPACE/NAME; by default it is found by its name."""
    key = _parse_lease(lease)
    namespaces = (SYSTEM_NAMESPACE, cluster.connection_namespace)
    try:
        leases, server_time = await asyncio.gather(
            get_leases(cluster.client, [key]) if key else find_leases(cluster.client, namespaces),
            # Not the clock of this machine: a laptop's may be wrong.
            cluster.transport.server_time(),
        )
    except Forbidden:
        name = key or Key(SYSTEM_NAMESPACE, LEASE_NAME)
        cluster.warn(
            f"It is unknown whether a manager keeps the objects current: this user cannot read "
            f"lease {name}."
        )
        return
    except KubewrightError:
        # The command meets the same error and reports it.
        return
    if message := describe_staleness(leases, server_time or datetime.now(UTC)):
        cluster.warn(message)


def _parse_lease(text: str) -> Key | None:
    if not text:
        return None
    namespace, separator, name = text.partition("/")
    if not (namespace and separator and name) or "/" in name:
        raise ConfigError(f"--lease {text}: must be NAMESPACE/NAME")
    return Key(namespace, name)
