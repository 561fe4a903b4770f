"""Who leads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

from kubewright import Client, Key
from kubewright.builtin import Lease
from kubewright.errors import Forbidden, NotFound

from .clock import format_duration
from .finding import Finding, ok, warning


async def check_lease(
    client: Client, places: Sequence[Key], *, leader_election: bool
) -> AsyncIterator[Finding]:
    """The first lease that is there; `wanted` says whether the manager would ask for one."""
    refused = list[Key]()
    for key in places:
        try:
            yield check_lease_holder(await client.get(Lease, key), datetime.now(UTC))
            return
        except Forbidden:
            refused.append(key)
        except NotFound:
            continue
    if refused and leader_election:
        names = ", ".join(map(str, refused))
        yield warning(
            "leader",
            f"who leads cannot be told: this identity may not read the lease {names}",
            "kubectl apply -k config/rbac",
        )
    elif refused:
        yield ok(
            "leader",
            "leader election is off, so run one manager; whether one leads cannot be told, since this identity may not read leases",
        )
    else:
        yield ok(
            "leader",
            "nobody leads, and nobody has: there is no lease"
            if leader_election
            else "no lease; leader election is off, so run one manager",
        )


def check_lease_holder(lease: Lease, now: datetime) -> Finding:
    """Who holds it, and whether he still lives."""
    spec, name = lease.spec, str(lease.key)
    if not spec.holderIdentity:
        return ok("leader", f"the lease {name} is free: the last leader gave it back")
    try:
        age = now - datetime.fromisoformat(spec.renewTime)
    except ValueError:
        return warning(
            "leader",
            f'the lease {name} of "{spec.holderIdentity}" has no time of renewal that could be read',
        )
    if age > timedelta(seconds=spec.leaseDurationSeconds):
        words = f'"{spec.holderIdentity}" held the lease {name} and last renewed it {format_duration(age)} ago: nobody leads now'
        return warning("leader", words, "kubectl get pods -A -l control-plane=controller-manager")
    return ok("leader", f'"{spec.holderIdentity}" leads, by the lease {name}')
