"""Whether a manager is active, by its Lease, and until when it kept the objects current.

A manager with leader election renews its Lease every 2 s, so the Lease shows without a write of
its own until when every status is known to be true. A manager without leader election has no Lease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from kubewright import Client, Key
from kubewright.builtin import Lease
from kubewright.condition import utc_now
from kubewright.errors import Forbidden, KubewrightError, NotFound
from kubewright.log import Log

from .console import format_age

MANAGER_NAME = "vsphere-operators"
SYSTEM_NAMESPACE = f"{MANAGER_NAME}-system"
LEASE_NAME = f"{MANAGER_NAME}-leader"
# Of a Lease that does not state its duration; client-go has the same default.
_DEFAULT_DURATION_SECONDS = 15


class LeaseState(Struct, frozen=True, kw_only=True):
    """`renewed_at` is None if the Lease has no valid renewTime."""

    key: Key
    holder: str
    renewed_at: datetime | None
    duration: timedelta

    def is_active(self, now: datetime) -> bool:
        return bool(
            self.holder and self.renewed_at is not None and now - self.renewed_at <= self.duration
        )

    @property
    def was_never_held(self) -> bool:
        """Whether it is as the chart creates it: no manager has been leader yet."""
        return not self.holder and self.renewed_at is None

    def describe_end(self, now: datetime) -> str:
        """When, and how, the last manager stopped renewing."""
        if self.was_never_held:
            return f"no manager has held lease {self.key} yet"
        if self.renewed_at is None:
            return f'lease {self.key} of "{self.holder}" has no valid renewTime'
        age = f"{format_age(now - self.renewed_at)} ago"
        if not self.holder:
            return f"lease {self.key} was released {age}"
        return f'lease {self.key} expired (last renewed {age} by "{self.holder}")'


def read_lease(lease: Lease) -> LeaseState:
    spec = lease.spec
    try:
        renewed_at = datetime.fromisoformat(spec.renewTime)
    except ValueError:
        renewed_at = None
    if renewed_at is not None and renewed_at.tzinfo is None:
        renewed_at = None
    return LeaseState(
        key=lease.key,
        holder=spec.holderIdentity,
        renewed_at=renewed_at,
        duration=timedelta(seconds=spec.leaseDurationSeconds or _DEFAULT_DURATION_SECONDS),
    )


async def find_leases(client: Client, namespaces: Sequence[str]) -> list[LeaseState]:
    """The managers' Leases in all namespaces, else in these; raises Forbidden if none is readable.

    Several managers may run, each for other namespaces (-watch-namespaces).
    """
    try:
        selector = f"metadata.name={LEASE_NAME}"
        return [read_lease(lease) for lease in await client.list(Lease, field_selector=selector)]
    except Forbidden:
        return await get_leases(client, [Key(namespace, LEASE_NAME) for namespace in namespaces])


async def get_leases(client: Client, keys: Iterable[Key]) -> list[LeaseState]:
    """Those of these Leases that exist; raises Forbidden if none exists and one is not readable."""
    leases: list[LeaseState] = []
    forbidden: Forbidden | None = None
    for key in dict.fromkeys(keys):
        try:
            leases.append(read_lease(await client.get(Lease, key)))
        except NotFound:
            continue
        except Forbidden as error:
            forbidden = error
    if not leases and forbidden is not None:
        raise forbidden
    return leases


def describe_staleness(leases: Sequence[LeaseState], now: datetime) -> str:
    """Until when the objects were kept current; "" while every manager is active."""
    if not leases:
        return (
            f'No lease "{LEASE_NAME}" exists, so it is unknown whether a manager keeps the objects '
            "current. A manager with another -leader-election-id needs --lease NAMESPACE/NAME, and "
            "one without -leader-elect that runs outside the cluster --page URL."
        )
    ended = [lease for lease in leases if not lease.is_active(now)]
    if not ended:
        return ""
    ends = "; ".join(lease.describe_end(now) for lease in ended)
    if len(ended) < len(leases):
        return f"One of several managers is not active: {ends}. Its objects may be out of date."
    renewals = [lease.renewed_at for lease in ended if lease.renewed_at is not None]
    moment = f"as of {max(renewals):%Y-%m-%dT%H:%M:%SZ}" if renewals else "of an unknown time"
    return (
        f"No manager is active: {ends}. The objects are {moment}, whatever their conditions show. "
        "Run `manager doctor`."
    )


class ActiveLeaderWarning:
    """Warns a manager without leader election, as of `make run`, that another manager is active.

    It runs next to the controllers, so it delays none of them. It knows only the namespace that
    config/ and the chart's documentation use: the role has no permission to list all Leases.
    """

    def __init__(self, client: Client, clock: Callable[[], datetime] = utc_now) -> None:
        self._client, self._clock = client, clock

    async def run(self) -> None:
        log = Log("setup")
        try:
            leases = await get_leases(self._client, [Key(SYSTEM_NAMESPACE, LEASE_NAME)])
        except KubewrightError as error:
            log.debug("it is unknown whether another manager is active", error=error)
            return
        for lease in leases:
            if lease.is_active(self._clock()):
                log.warning(_describe_two_managers(lease))


def _describe_two_managers(lease: LeaseState) -> str:
    namespace = lease.key.namespace
    return (
        f'another manager is active: "{lease.holder}" holds the lease {lease.key}. This manager '
        "runs without -leader-elect, so both act on the same objects, unless they have different "
        f"-watch-namespaces. Stop the other one: kubectl -n {namespace} scale deployment "
        "-l control-plane=controller-manager --replicas=0. Or start this one with -leader-elect "
        f"-leader-election-namespace={namespace}: it then waits until the other one ends."
    )
