"""One leader among several managers, by a Lease. The one promise: never two that act.

Questions and answers:

Who is the leader?  Whoever's name is in the Lease, as long as it renews. The others take over when they themselves have seen no
    renewal for the lease's duration (15 s). They trust their own stopwatch, never the times in the Lease: clocks differ.
How does a leader know that it still is one, after it was stopped, or starved, or cut off?  By `is_leader_now()`: its last
    successful renewal, counted from when that request was SENT, is younger than the renew deadline (10 s). That is 5 s before
    anybody else may take over. It is asked immediately before each write leaves, not when the work begins.
Which clock?  One that runs on while the machine sleeps (CLOCK_BOOTTIME on Linux): a suspended laptop or a stunned VM must not
    wake up believing that no time has passed.
What happens when the lease is lost?  `hold` raises LeaseLost and the process ends. Starting afresh as a standby is simple; proving
    that every piece of a running process has noticed is not.
How fast is a change of leader?  On SIGTERM the Lease is released, and a standby looks every second: a second or so. After a kill: at
    most 15 s + 1 s.
Why two candidates cannot win at once: the Lease is written with its resourceVersion; the second write is a Conflict.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from .builtin import Lease, LeaseSpec
from .client import Client
from .errors import AlreadyExists, Conflict, Forbidden, KubewrightError, LeaseLost, NotFound
from .log import Log
from .meta import Key, ObjectMeta
from .metrics import Metrics

LEASE_DURATION_SECONDS = 15.0
RENEW_DEADLINE_SECONDS = 10.0
_RETRY_PERIOD_SECONDS = 2.0
_STANDBY_POLL_SECONDS = 1.0


def _boottime_seconds() -> float:
    """Seconds that pass also while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def _micro_time_now() -> str:
    """Now, as a MicroTime: exactly six digits, or the API server refuses it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class LeaderElector:
    """A candidate for one Lease."""

    def __init__(
        self,
        client: Client,
        key: Key,
        identity: str,
        *,
        metrics: Metrics,
        log: Log,
        clock: Callable[[], float] = _boottime_seconds,
    ) -> None:
        self.client, self.key, self.identity = client, key, identity
        self.metrics, self.clock = metrics, clock
        self.log = log.bind(lease=str(key))
        self.leader_until = 0.0
        self._observed_lease: Lease | None = None
        self._observed_at = 0.0
        self._logged_problem = ""

    def is_leader_now(self) -> bool:
        """Whether the lease is certainly ours at this very moment."""
        return self.clock() < self.leader_until

    async def acquire(self) -> None:
        """Wait until the lease is ours."""
        self.log.info("waiting for the leader lease", identity=self.identity)
        while True:
            if await self.try_acquire_or_renew():
                break
            await asyncio.sleep(self.next_poll_seconds())
        self.metrics.set_leader(str(self.key), leading=True)
        self.log.info("became leader", identity=self.identity)

    def next_poll_seconds(self) -> float:
        """Until the next look: at the latest when the present lease would run out."""
        if self._observed_lease is None:
            return _STANDBY_POLL_SECONDS
        runs_out = (
            self._observed_at
            + (self._observed_lease.spec.leaseDurationSeconds or LEASE_DURATION_SECONDS)
            - self.clock()
        )
        return min(_STANDBY_POLL_SECONDS, max(0.05, runs_out))

    async def renew_until_lost(self) -> None:
        """Renew until that fails for too long; then the lease is lost."""
        while True:
            await asyncio.sleep(_RETRY_PERIOD_SECONDS)
            while not await self.try_acquire_or_renew():
                if not self.is_leader_now():
                    self.metrics.set_leader(str(self.key), leading=False)
                    holder = (
                        self._observed_lease.spec.holderIdentity
                        if self._observed_lease
                        else "unknown"
                    )
                    raise LeaseLost(
                        f"the leader lease {self.key} could not be renewed for {RENEW_DEADLINE_SECONDS:.0f} s (its holder is {holder}); "
                        "ending, so that no two managers act at once. If this repeats, the API server or this node is too slow."
                    )
                await asyncio.sleep(_RETRY_PERIOD_SECONDS / 4)

    async def try_acquire_or_renew(self) -> bool:
        """One try to take or renew the lease; True if it is ours now."""
        sent_at = self.clock()
        try:
            async with asyncio.timeout(RENEW_DEADLINE_SECONDS / 2):
                if not await self._acquire_or_renew():
                    return False
        except (KubewrightError, TimeoutError) as error:
            self._log_problem(error)
            return False
        self.leader_until = sent_at + RENEW_DEADLINE_SECONDS
        self._logged_problem = ""
        return True

    async def _acquire_or_renew(self) -> bool:
        """Read the lease, and write ourselves into it if it is free, ours or run out. The holder renews without reading."""
        try:
            if (
                self.is_leader_now()
                and self._is_holder()
                and await self._write_lease(renewing=True)
            ):
                return True
            self.observe(await self.client.get(Lease, self.key))
        except NotFound:
            # Somebody deleted it; whoever held it may not know yet, and is waited for like any holder.
            if (
                self._observed_lease is not None
                and self._observed_lease.spec.holderIdentity not in ("", self.identity)
                and not self._has_expired()
            ):
                return False
            return await self._create_lease()
        assert self._observed_lease is not None
        holder = self._observed_lease.spec.holderIdentity
        if holder not in ("", self.identity) and not self._has_expired():
            self.leader_until = 0.0
            return False
        return await self._write_lease(renewing=holder == self.identity)

    def _is_holder(self) -> bool:
        """Whether our name was in the lease when we last saw it."""
        return (
            self._observed_lease is not None
            and self._observed_lease.spec.holderIdentity == self.identity
        )

    def observe(self, lease: Lease) -> None:
        """Start the stopwatch anew whenever the lease has changed."""
        if (
            self._observed_lease is None
            or self._observed_lease.metadata.resourceVersion != lease.metadata.resourceVersion
        ):
            self._observed_lease, self._observed_at = lease, self.clock()

    def _has_expired(self) -> bool:
        """Whether the holder has not renewed for the whole duration, by our own stopwatch."""
        assert self._observed_lease is not None
        return self.clock() >= self._observed_at + (
            self._observed_lease.spec.leaseDurationSeconds or LEASE_DURATION_SECONDS
        )

    async def _create_lease(self) -> bool:
        """The first ever to lead."""
        at = _micro_time_now()
        spec = LeaseSpec(
            holderIdentity=self.identity,
            leaseDurationSeconds=int(LEASE_DURATION_SECONDS),
            acquireTime=at,
            renewTime=at,
        )
        try:
            self.observe(
                await self.client.create(
                    Lease(
                        metadata=ObjectMeta(name=self.key.name, namespace=self.key.namespace),
                        spec=spec,
                    )
                )
            )
        except AlreadyExists:
            return False
        return True

    async def _write_lease(self, *, renewing: bool) -> bool:
        """Write ourselves into the lease as we saw it; False when somebody was faster."""
        assert self._observed_lease is not None
        spec: dict[str, Any] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(LEASE_DURATION_SECONDS),
            "renewTime": _micro_time_now(),
        }
        if not renewing:
            spec |= {
                "acquireTime": spec["renewTime"],
                "leaseTransitions": self._observed_lease.spec.leaseTransitions + 1,
            }
        patch = {
            "metadata": {"resourceVersion": self._observed_lease.metadata.resourceVersion},
            "spec": spec,
        }
        try:
            self.observe(await self.client.patch(Lease, self.key, patch))
        except Conflict:
            return False
        return True

    async def _clear_holder(self) -> None:
        """Take our name out of the lease; a renewal that was cut short may have moved it since we last saw it."""
        for _ in range(2):
            assert self._observed_lease is not None
            spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _micro_time_now()}
            try:
                await self.client.patch(
                    Lease,
                    self.key,
                    {
                        "metadata": {
                            "resourceVersion": self._observed_lease.metadata.resourceVersion
                        },
                        "spec": spec,
                    },
                )
                return
            except Conflict:
                self.observe(await self.client.get(Lease, self.key))
                if not self._is_holder():
                    return

    def _log_problem(self, error: Exception) -> None:
        """Say once what keeps us from the lease."""
        words = f"the leader lease cannot be read or written: {str(error) or 'no answer in time'}"
        if isinstance(error, Forbidden):
            words += ". Grant the leader-election role: kubectl apply -k config/rbac"
        if words != self._logged_problem:
            self.log.error(words)
        self._logged_problem = words

    async def release(self) -> None:
        """Give the lease back, so that a standby need not wait for it to run out."""
        if not self.is_leader_now() or not self._is_holder():
            return
        self.leader_until = 0.0
        try:
            # Not asyncio.timeout: whoever ends may have been cancelled, and before Python 3.11.3 that would hide the TimeoutError.
            await asyncio.wait_for(self._clear_holder(), _RETRY_PERIOD_SECONDS)
            self.log.info("released the leader lease")
        except (KubewrightError, TimeoutError) as error:
            self.log.error(
                "the leader lease could not be released; a standby takes over when it runs out",
                error=error,
            )
        finally:
            self.metrics.set_leader(str(self.key), leading=False)
