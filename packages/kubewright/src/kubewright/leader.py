"""One leader among several managers, by a Lease. Two managers never start writes at the same time.

Questions and answers:

Which manager is the leader?  The one that the Lease names, as long as it renews. The others take
    over when they have seen no renewal for the lease's duration (15 s). They measure with their own
    clock and never compare with the times in the Lease, because clocks of machines differ.
How does a leader know that it still leads, after it was stopped, starved or cut off?  By
    `LeaseGuard.holds_lease()`: its last successful renewal, counted from when that request was
    SENT, is younger than the renew deadline (10 s). That is 5 s before another manager may take
    over. The transport to the API server checks this immediately before it sends a write, not when
    the work begins. Code that writes elsewhere, such as to vCenter, has to call it in the same way.
Which clock?  One that does not stop while the machine sleeps (CLOCK_BOOTTIME on Linux). A suspended
    laptop or a stunned VM would otherwise take its lease for valid when it resumes.
What happens when the lease is lost?  `renew_until_lost` raises LeaseLost and the process ends.
    It is simpler to restart than to prove that every part of the process has stopped acting.
How fast does the leader change?  On SIGTERM the Lease is released and a standby polls every second:
    within about a second. After a kill: within 15 s + 1 s. If the killed holder ran in the same Pod
    or on the same machine, within about a second: process_presence.py proves that it has ended. So
    a container that is restarted does not wait for the lease of its own predecessor.
Why can two candidates not both win?  The Lease is written with its resourceVersion, so the
    second write is a Conflict.
And two processes with the same identity?  The Lease is a process's own only if it may have written
    that Lease. So the second one waits for the first, as for any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from .builtin import Lease, LeaseSpec
from .client import Client
from .errors import AlreadyExists, Conflict, Forbidden, KubewrightError, LeaseLost, NotFound
from .kind import Key, ObjectMeta
from .lease_guard import LeaseGuard
from .log import Log
from .metrics import Metrics
from .process_presence import ProcessPresence

# client-go's defaults for the three; a standby of ours polls twice as often.
LEASE_DURATION_SECONDS = 15.0
RENEW_DEADLINE_SECONDS = 10.0
RETRY_PERIOD_SECONDS = 2.0
_STANDBY_POLL_SECONDS = 1.0
# The address of the holder's socket, by which its end can be proven: see process_presence.py.
_PRESENCE_ANNOTATION = "kubewright/holder-presence"


def micro_time_now() -> str:
    # The API server rejects a MicroTime that does not have exactly six decimals.
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class LeaderElector:
    """A candidate for one Lease."""

    def __init__(
        self,
        client: Client,
        key: Key,
        identity: str,
        *,
        guard: LeaseGuard,
        metrics: Metrics,
        log: Log,
        presence: ProcessPresence | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Without a `presence`, it is established with the first try to take the lease. A lease
        that does not exist is created with the `labels`.
        """
        self._labels = dict(labels or {})
        self._client, self.key, self._identity = client, key, identity
        self._presence = presence
        # Whether this process has sent a write of the Lease that was not rejected. The identity
        # alone proves nothing: another process may have the same.
        self._may_have_written = False
        self.guard, self._metrics, self._clock = guard, metrics, guard.clock
        self._log = log.bind(lease=str(key))
        self._observed_lease: Lease | None = None
        self._observed_at = 0.0
        self._logged_problem = ""

    async def acquire(self) -> None:
        # As in client-go, a standby reports 0, so that a lease without a holder is visible.
        self._metrics.leader_status.labels(str(self.key)).set(0)
        self._log.info("waiting for the leader lease", identity=self._identity)
        while True:
            if await self.try_acquire_or_renew():
                break
            await asyncio.sleep(self._next_poll_seconds())
        self._metrics.leader_status.labels(str(self.key)).set(1)
        self._log.info("became leader", identity=self._identity)

    def _next_poll_seconds(self) -> float:
        """The delay until the next try: at the latest when the current lease expires."""
        if self._observed_lease is None:
            return _STANDBY_POLL_SECONDS
        return min(_STANDBY_POLL_SECONDS, max(0.05, self._expires_at() - self._clock()))

    async def renew_until_lost(self) -> None:
        """Renew the lease; raise LeaseLost when that fails for the whole renew deadline."""
        while True:
            await asyncio.sleep(RETRY_PERIOD_SECONDS)
            while not await self.try_acquire_or_renew(only_renew=True):
                if not self.guard.holds_lease():
                    self._metrics.leader_status.labels(str(self.key)).set(0)
                    lease = self._observed_lease
                    raise LeaseLost(
                        f"the leader lease {self.key} could not be renewed for "
                        f"{RENEW_DEADLINE_SECONDS:.0f} s (its holder is "
                        f"{lease.spec.holderIdentity if lease else 'unknown'}); exiting, so that "
                        "two managers never act at the same time. If this repeats, the API server "
                        "or this node is too slow."
                    )
                await asyncio.sleep(RETRY_PERIOD_SECONDS / 4)

    async def try_acquire_or_renew(self, *, only_renew: bool = False) -> bool:
        """Try once to take or renew the lease; True if this process holds it now.

        With `only_renew` a lease that another process has held in the meantime is lost, although
        it may be free again: this process has missed what that one did.
        """
        # Counted from before the request: a late answer must not extend our term beyond the
        # moment at which another manager may take over.
        sent_at = self._clock()
        try:
            async with asyncio.timeout(RENEW_DEADLINE_SECONDS / 2):
                if not await self._acquire_or_renew(only_renew):
                    return False
        except (KubewrightError, TimeoutError) as error:
            self._log_problem(error)
            return False
        self.guard.expires_at = sent_at + RENEW_DEADLINE_SECONDS
        self._logged_problem = ""
        return True

    async def _acquire_or_renew(self, only_renew: bool) -> bool:
        if self._presence is None:
            # In a thread: it reads files.
            self._presence = await asyncio.to_thread(ProcessPresence, self._identity)
        try:
            # The holder renews without a read; a Conflict shows that the lease has changed.
            if (
                self.guard.holds_lease()
                and self._is_holder()
                and await self._write_lease(renewing=True)
            ):
                return True
            self.observe(await self._client.get(Lease, self.key))
        except NotFound:
            # The Lease was deleted. Its holder may not have noticed yet, so it counts as held
            # until it would have expired.
            if self.is_held_by_another():
                return False
            return await self._create_lease()
        if self.is_held_by_another() or (only_renew and not self._is_holder()):
            self.guard.expires_at = 0.0
            return False
        return await self._write_lease(renewing=self._is_holder())

    def _is_holder(self) -> bool:
        lease = self._observed_lease
        return (
            lease is not None
            and lease.spec.holderIdentity == self._identity
            and self._may_have_written
        )

    @property
    def holder(self) -> str:
        """The holder as last observed, or ""."""
        return self._observed_lease.spec.holderIdentity if self._observed_lease else ""

    def is_held_by_another(self) -> bool:
        """Whether the lease, as last observed, is certainly or possibly held by another process."""
        lease = self._observed_lease
        return (
            lease is not None
            and bool(lease.spec.holderIdentity)
            and not self._is_holder()
            and self._clock() < self._expires_at()
            and not self._has_holder_ended(lease)
        )

    def _has_holder_ended(self, lease: Lease) -> bool:
        holder = lease.spec.holderIdentity
        address = lease.metadata.annotations.get(_PRESENCE_ANNOTATION, "")
        if self._presence is None or not self._presence.has_ended(holder, address):
            return False
        self._log.info("the process that holds the leader lease has ended", holder=holder)
        return True

    def _expires_at(self) -> float:
        assert self._observed_lease is not None
        duration = self._observed_lease.spec.leaseDurationSeconds or LEASE_DURATION_SECONDS
        return self._observed_at + duration

    def observe(self, lease: Lease) -> None:
        """Remember the lease; when it has changed, its duration starts to run again."""
        if (
            self._observed_lease is None
            or self._observed_lease.metadata.resourceVersion != lease.metadata.resourceVersion
        ):
            self._observed_lease, self._observed_at = lease, self._clock()

    async def _create_lease(self) -> bool:
        metadata = ObjectMeta(
            name=self.key.name,
            namespace=self.key.namespace,
            labels=self._labels,
            annotations={_PRESENCE_ANNOTATION: self._address} if self._address else {},
        )
        lease = Lease(metadata=metadata, spec=LeaseSpec(**self._build_spec(renewing=False)))
        may_have_written, self._may_have_written = self._may_have_written, True
        try:
            self.observe(await self._client.create(lease))
        except AlreadyExists:
            self._may_have_written = may_have_written
            return False
        return True

    async def _write_lease(self, *, renewing: bool) -> bool:
        """Write our identity into the lease as last observed; False on a Conflict."""
        assert self._observed_lease is not None
        spec = self._build_spec(renewing=renewing)
        if not renewing:
            spec["leaseTransitions"] = self._observed_lease.spec.leaseTransitions + 1
        # Set before the write, which may be stored without a response.
        may_have_written, self._may_have_written = self._may_have_written, True
        try:
            self.observe(await self._patch_lease(spec))
        except Conflict:
            self._may_have_written = may_have_written
            return False
        return True

    @property
    def _address(self) -> str:
        return self._presence.address if self._presence is not None else ""

    def _build_spec(self, *, renewing: bool) -> dict[str, Any]:
        now = micro_time_now()
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(LEASE_DURATION_SECONDS),
            "renewTime": now,
        }
        return spec if renewing else spec | {"acquireTime": now}

    async def _patch_lease(self, spec: dict[str, Any]) -> Lease:
        assert self._observed_lease is not None
        metadata = {
            "resourceVersion": self._observed_lease.metadata.resourceVersion,
            # None removes it: the proof of an earlier holder with the same identity would prove
            # that this process has ended.
            "annotations": {_PRESENCE_ANNOTATION: self._address or None},
        }
        return await self._client.patch(Lease, self.key, {"metadata": metadata, "spec": spec})

    async def _clear_holder(self) -> None:
        # Twice: a renewal that was cancelled may have changed the lease since we last saw it.
        for _ in range(2):
            spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micro_time_now()}
            try:
                await self._patch_lease(spec)
                return
            except Conflict:
                self.observe(await self._client.get(Lease, self.key))
                if not self._is_holder():
                    return

    def _log_problem(self, error: Exception) -> None:
        cause = str(error) or "no answer in time"
        problem = f"the leader lease cannot be read or written: {cause}"
        if isinstance(error, Forbidden):
            command = "kubectl apply --server-side -k config/rbac"
            problem += f". Grant the leader-election role: {command}"
        # A standby tries every second: log a problem once, not with each try.
        if problem != self._logged_problem:
            self._log.error(problem)
        self._logged_problem = problem

    async def release(self) -> None:
        """Give the lease back, so that a standby need not wait until it expires."""
        if not self.guard.holds_lease() or not self._is_holder():
            return
        self.guard.expires_at = 0.0
        try:
            # Not asyncio.timeout: this task may have been cancelled, and before Python 3.11.3 the
            # cancellation would replace the TimeoutError.
            await asyncio.wait_for(self._clear_holder(), RETRY_PERIOD_SECONDS)
            self._log.info("released the leader lease")
        except (KubewrightError, TimeoutError) as error:
            self._log.error(
                "the leader lease could not be released; a standby takes over when it expires",
                error=error,
            )
        finally:
            self._metrics.leader_status.labels(str(self.key)).set(0)
