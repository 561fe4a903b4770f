"""Checks that a manager is active: the Lease of these settings, else that of any manager."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

from kubewright import Client, Key
from kubewright.errors import Forbidden

from ..leader_lease import SYSTEM_NAMESPACE, LeaseState, find_leases, get_leases
from ..shard_leases import describe_owners, format_shards, read_shard_owners, shard_count_of
from .finding import Finding, ok, problem, warning
from .installation import Installation
from .rbac import APPLY_RBAC_COMMAND


async def check_leader(
    client: Client,
    key: Key,
    now: datetime,
    installation: Installation,
    *,
    leader_election: bool,
    is_namespace_set: bool,
) -> AsyncIterator[Finding]:
    # The doctor may run outside the Pod, without its flags: then it checks the deployed manager.
    deployed = Key(SYSTEM_NAMESPACE, key.name)
    try:
        leases = (await get_leases(client, [key, deployed]))[:1]
        if not leases and not is_namespace_set:
            leases = await find_leases(client, [key.namespace])
    except Forbidden:
        yield _unreadable_finding(installation, key, deployed, leader_election=leader_election)
        return
    for lease in leases:
        yield check_lease(lease, now)
        if shard_count_of(lease) > 1 and lease.is_active(now):
            yield await _check_shards(client, lease, now, installation)
    if not leases and leader_election:
        yield ok("leader", "No leader so far: the lease does not exist")
    elif not leases:
        yield ok("leader", "No lease; leader election is off, so run only one manager")


def check_lease(lease: LeaseState, now: datetime) -> Finding:
    if lease.is_active(now):
        if (count := shard_count_of(lease)) > 1:
            return ok("leader", f"Replicas share {count} shards (lease {lease.key})")
        return ok("leader", f'"{lease.holder}" is the leader (lease {lease.key})')
    namespace = lease.key.namespace
    if lease.was_never_held:
        return problem(
            "leader",
            f"No manager has been leader yet (lease {lease.key}). The Pods and their events show "
            "why no manager has started.",
            f"kubectl -n {namespace} get pods,events",
        )
    lease_state = lease.describe_end(now)
    if lease.renewed_at is None and lease.holder:
        return warning("leader", f"The leader is unknown: {lease_state}")
    return problem(
        "leader",
        f"No active leader: {lease_state}. Since then no object is updated, and no VmGroup is "
        "repaired. Start the manager, or delete the lease if it is not needed any more.",
        f"kubectl -n {namespace} rollout restart deployment "
        "-l control-plane=controller-manager"
        "   # with 0 replicas: scale it; without a Deployment: make run",
    )


async def _check_shards(
    client: Client, leader: LeaseState, now: datetime, installation: Installation
) -> Finding:
    try:
        owners = await read_shard_owners(client, leader, now)
    except Forbidden:
        return warning(
            "shards",
            "It is unknown which replica has which shard: this user cannot list leases in "
            f"namespace {leader.key.namespace}",
            installation.change_command(APPLY_RBAC_COMMAND, "rbac.create=true"),
        )
    if free := [owner.shard for owner in owners if not owner.replica]:
        return problem(
            "shards",
            f"No replica has shard {format_shards(free)}. A shard is free for at most 17 s after "
            "the end of a replica. If this lasts longer, the replicas cannot write their leases.",
            f"kubectl -n {leader.key.namespace} logs -l control-plane=controller-manager "
            "--tail=50 | grep -i lease",
        )
    return ok("shards", f"Shards of each replica: {describe_owners(owners)}")


def _unreadable_finding(installation: Installation, *keys: Key, leader_election: bool) -> Finding:
    names = ", ".join(map(str, dict.fromkeys(keys)))
    if leader_election:
        return warning(
            "leader",
            f"The leader is unknown: this user cannot read lease {names}",
            installation.change_command(APPLY_RBAC_COMMAND, "rbac.create=true"),
        )
    return ok(
        "leader",
        "Leader election is off, so run only one manager. "
        "The leader is unknown because this user cannot read leases.",
    )
