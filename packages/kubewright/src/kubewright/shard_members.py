"""The replicas that share the shards. Each has an annotation of the leader Lease, which all renew.

Why one Lease of all, in addition to that of each shard?  Its holder names the number of shards. A
    manager with another number, or an older one without shards, sees a lease that is held and waits
    until all replicas with this number have ended.
How do two replicas renew it without conflicts?  By a JSON patch that tests the holder and changes
    only the renew time and the annotation of this replica. The API server applies such a patch
    again if another write was stored in between.
When is a member gone?  When its counter has not changed for the lease's duration, by the clock of
    the replica that observes it, or when its process has provably ended (process_presence.py).
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import msgspec

from .builtin import Lease, LeaseSpec
from .client import Client
from .errors import AlreadyExists, Conflict, Invalid, KubewrightError, LeaseLost, NotFound
from .kind import Key, ObjectMeta
from .leader import (
    LEASE_DURATION_SECONDS,
    RENEW_DEADLINE_SECONDS,
    RETRY_PERIOD_SECONDS,
    micro_time_now,
)
from .lease_guard import LeaseGuard
from .log import Log
from .process_presence import ProcessPresence

_MEMBER_PREFIX = "kubewright/member-"
_HOLDER_SUFFIX = "-shards"
_POLL_SECONDS = 1.0
# The annotation of a leader without shards (leader.py), by which its end can be proven. It is
# removed with the first write, because the holder is another one from then on.
_HOLDER_PRESENCE = "kubewright/holder-presence"


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica announces; `warm` are the shards that it has loaded and does not hold."""

    identity: str
    counter: int = 0
    warm: tuple[int, ...] = ()
    is_stopping: bool = False
    presence: str = ""


def _annotation_of(identity: str) -> str:
    return _MEMBER_PREFIX + hashlib.sha256(identity.encode()).hexdigest()[:16]


def read_members(lease: Lease) -> list[Member]:
    members = []
    for name, text in lease.metadata.annotations.items():
        if name.startswith(_MEMBER_PREFIX):
            try:
                members.append(msgspec.json.decode(text, type=Member))
            except msgspec.DecodeError:
                # A release with another format wrote it. The member counts as gone.
                continue
    return members


def holder_of_all(shard_count: int) -> str:
    return f"{shard_count}{_HOLDER_SUFFIX}"


def parse_shard_count(holder: str) -> int | None:
    """The number of shards of the replicas that hold the leader Lease; None for one leader."""
    count, suffix = holder.removesuffix(_HOLDER_SUFFIX), holder.endswith(_HOLDER_SUFFIX)
    return int(count) if suffix and count.isdecimal() else None


class MemberLease:
    """The membership of this process. Its guard is extended by each renewal."""

    def __init__(
        self,
        client: Client,
        key: Key,
        identity: str,
        shard_count: int,
        *,
        guard: LeaseGuard,
        presence: ProcessPresence,
        labels: dict[str, str],
        log: Log,
    ) -> None:
        self._client, self.key, self.guard = client, key, guard
        self._clock, self._presence, self._labels = guard.clock, presence, labels
        self._holder = holder_of_all(shard_count)
        self._log = log.bind(lease=str(key))
        self._own = Member(identity=identity, presence=presence.address)
        self._lease: Lease | None = None
        self._changed_at = 0.0
        # The last counter of each member, and when it was first observed.
        self._counters: dict[str, tuple[int, float]] = {}
        self._announced = asyncio.Event()
        self._logged_problem = ""

    # Observe

    def observe(self, lease: Lease) -> None:
        """Remember the lease and when its members last renewed it, unless it is an older one."""
        now, previous = self._clock(), self._lease
        if previous is not None and lease.metadata.revision <= previous.metadata.revision:
            return
        self._lease, self._changed_at = lease, now
        counters = self._counters
        self._counters = {}
        for member in read_members(lease):
            counter, since = counters.get(member.identity, (-1, now))
            if counter != member.counter:
                since = now
            self._counters[member.identity] = (member.counter, since)

    def live_members(self, within_seconds: float = LEASE_DURATION_SECONDS) -> list[Member]:
        """The members that have renewed the lease within this time, and this process."""
        if self._lease is None:
            return []
        now = self._clock()
        return [
            member
            for member in read_members(self._lease)
            if member.identity == self._own.identity
            or (
                now - self._counters[member.identity][1] < within_seconds
                and not self._presence.has_ended(member.identity, member.presence)
            )
        ]

    # Join and renew

    async def join(self) -> None:
        """Wait until the lease belongs to managers with this number of shards."""
        self._log.info("joining the replicas that share the shards", holder=self._holder)
        while True:
            if await self._try_renew(joining=True):
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def renew_until_lost(self) -> None:
        while True:
            try:
                async with asyncio.timeout(RETRY_PERIOD_SECONDS):
                    await self._announced.wait()
            except TimeoutError:
                pass
            self._announced.clear()
            while not await self._try_renew(joining=False):
                if not self.guard.holds_lease():
                    holder = self._lease.spec.holderIdentity if self._lease else "unknown"
                    raise LeaseLost(
                        f"the lease {self.key} of all replicas could not be renewed for "
                        f"{RENEW_DEADLINE_SECONDS:.0f} s (its holder is {holder}); exiting, so "
                        "that two replicas never act on one object"
                    )
                await asyncio.sleep(RETRY_PERIOD_SECONDS / 4)

    def announce(self, *, warm: frozenset[int], is_stopping: bool) -> None:
        """Publish a change at once, with a renewal."""
        shards = tuple(sorted(warm))
        if (shards, is_stopping) != (self._own.warm, self._own.is_stopping):
            self._own = msgspec.structs.replace(self._own, warm=shards, is_stopping=is_stopping)
            self._announced.set()

    async def _try_renew(self, *, joining: bool) -> bool:
        # Counted from before the request, as in leader.py.
        sent_at = self._clock()
        self._own = msgspec.structs.replace(self._own, counter=self._own.counter + 1)
        try:
            async with asyncio.timeout(RENEW_DEADLINE_SECONDS / 2):
                if not await self._renew(joining=joining):
                    return False
        except (KubewrightError, TimeoutError) as error:
            problem = f"the lease of all replicas cannot be read or written: {error or 'timeout'}"
            if problem != self._logged_problem:
                self._log.error(problem)
            self._logged_problem = problem
            return False
        self.guard.expires_at, self._logged_problem = sent_at + RENEW_DEADLINE_SECONDS, ""
        return True

    async def _renew(self, *, joining: bool) -> bool:
        try:
            self.observe(await self._patch_own())
            return True
        except Invalid:
            # The test of the holder failed, or the lease has no annotations.
            lease = await self._client.get(Lease, self.key)
        except NotFound:
            return await self._create()
        self.observe(lease)
        holder = lease.spec.holderIdentity
        if holder == self._holder:
            return await self._take(lease)
        if joining and (not holder or self._is_expired(lease)):
            return await self._take(lease)
        if joining and self._logged_problem != holder:
            self._log.info("waiting: managers with another -shards are running", holder=holder)
            self._logged_problem = holder
        return False

    def _is_expired(self, lease: Lease) -> bool:
        duration = lease.spec.leaseDurationSeconds or LEASE_DURATION_SECONDS
        address = lease.metadata.annotations.get(_HOLDER_PRESENCE, "")
        return self._clock() - self._changed_at >= duration or self._presence.has_ended(
            lease.spec.holderIdentity, address
        )

    def _own_annotation(self) -> tuple[str, str]:
        return _annotation_of(self._own.identity), msgspec.json.encode(self._own).decode()

    async def _patch_own(self) -> Lease:
        name, text = self._own_annotation()
        path = f"/metadata/annotations/{name.replace('/', '~1')}"
        return await self._client.patch(
            Lease,
            self.key,
            [
                {"op": "test", "path": "/spec/holderIdentity", "value": self._holder},
                {"op": "replace", "path": "/spec/renewTime", "value": micro_time_now()},
                {"op": "add", "path": path, "value": text},
            ],
            patch_type="json",
        )

    def _spec(self, transitions: int) -> dict[str, Any]:
        now = micro_time_now()
        return {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": int(LEASE_DURATION_SECONDS),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    async def _create(self) -> bool:
        metadata = ObjectMeta(
            name=self.key.name,
            namespace=self.key.namespace,
            labels=self._labels,
            annotations=dict([self._own_annotation()]),
        )
        lease = Lease(metadata=metadata, spec=LeaseSpec(**self._spec(0)))
        try:
            self.observe(await self._client.create(lease))
        except AlreadyExists:
            return False
        return True

    async def _take(self, lease: Lease) -> bool:
        """Write this number of shards and the own annotation; False if the lease has changed."""
        # All members with another number of shards have ended.
        is_taken_over = lease.spec.holderIdentity != self._holder
        old = [name for name in lease.metadata.annotations if name.startswith(_MEMBER_PREFIX)]
        removed = dict.fromkeys([*(old if is_taken_over else ()), _HOLDER_PRESENCE])
        metadata = {
            "resourceVersion": lease.metadata.resourceVersion,
            "labels": self._labels,
            "annotations": removed | dict([self._own_annotation()]),
        }
        spec = self._spec(lease.spec.leaseTransitions + is_taken_over)
        patch = {"metadata": metadata, "spec": spec}
        try:
            self.observe(await self._client.patch(Lease, self.key, patch))
        except Conflict:
            return False
        return True

    # Leave

    async def leave(self) -> None:
        """Stop being a member; the last one gives the lease back."""
        if not self.guard.holds_lease():
            return
        self.guard.expires_at = 0.0
        try:
            await asyncio.wait_for(self._leave(), RETRY_PERIOD_SECONDS)
        except (KubewrightError, TimeoutError) as error:
            self._log.error("could not leave the replicas that share the shards", error=error)

    async def _leave(self) -> None:
        self.observe(await self._client.get(Lease, self.key))
        assert self._lease is not None
        others = [m for m in self.live_members() if m.identity != self._own.identity]
        metadata: dict[str, Any] = {"annotations": {_annotation_of(self._own.identity): None}}
        spec: dict[str, Any] = {}
        if not others and self._lease.spec.holderIdentity == self._holder:
            # Unless a member has joined since: it has changed the resourceVersion.
            metadata["resourceVersion"] = self._lease.metadata.resourceVersion
            spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micro_time_now()}
        try:
            await self._client.patch(Lease, self.key, {"metadata": metadata, "spec": spec})
        except Conflict:
            del metadata["resourceVersion"]
            await self._client.patch(Lease, self.key, {"metadata": metadata})

    async def remove_members_that_are_gone(self) -> None:
        """Remove their annotations. A replica that joins later cannot know that they are gone, and
        would count them until the lease's duration has passed.
        """
        if self._lease is None:
            return
        live = {member.identity for member in self.live_members()}
        for name, text in list(self._lease.metadata.annotations.items()):
            if not name.startswith(_MEMBER_PREFIX):
                continue
            try:
                identity = msgspec.json.decode(text, type=Member).identity
            except msgspec.DecodeError:
                identity = ""
            if identity not in live:
                path = f"/metadata/annotations/{name.replace('/', '~1')}"
                test = {"op": "test", "path": path, "value": text}
                remove = {"op": "remove", "path": path}
                patch = [test, remove]
                self.observe(await self._client.patch(Lease, self.key, patch, patch_type="json"))
