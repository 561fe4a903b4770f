"""Takes and releases shards, so that each replica has its share. The Lease of a shard alone decides
which replica holds it; the balance only decides which Leases a replica tries to take.

    every 0.5 s: list the Leases -> members, holders -> balance() -> what this replica should have

    a shard too many  the next owner has announced that it has loaded it -> stop it -> release it
    a shard too few   no replica holds its Lease -> take it -> start it

What if two replicas see different members?  Then their targets differ, and a shard is free for a
    moment or moves twice. Only one of them can hold its Lease.
What happens when a Lease is lost?  LeaseLost ends the process, as in leader.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Protocol

from msgspec import Struct

from .builtin import Lease
from .client import Client
from .errors import KubewrightError
from .kind import Key
from .leader import LeaderElector
from .log import Log
from .metrics import Metrics
from .process_presence import ProcessPresence
from .shard_balance import balance
from .shard_guard import ShardGuard
from .shard_members import Member, MemberLease

_POLL_SECONDS = 0.5
# A member that has missed two renewals: load its shards, which may become free soon.
_SUSPECT_SECONDS = 6.0
# After SIGTERM, release a shard after this time even if its next owner has not loaded it yet.
_STOP_WARM_SECONDS = 1.0
# How long running reconciles of a shard may take if another replica waits; then cancel them.
_STOP_SECONDS = 1.5
_LIST_TIMEOUT_SECONDS = 5.0
_LABEL = "kubewright/shards-of"


class ShardWork(Protocol):
    """What a replica does with the shards that it has."""

    def cover(self, shards: frozenset[int]) -> None:
        """Keep the objects of these shards in the caches, and no others."""
        ...

    def warm_shards(self) -> frozenset[int]:
        """The shards of which the objects are in the caches."""
        ...

    def start(self, shard: int) -> None:
        """The Lease of the shard is held: begin to reconcile."""
        ...

    async def stop(self, shard: int, timeout_seconds: float) -> None:
        """End all work of the shard, and return when nothing of it runs any more."""
        ...


class _View(Struct, frozen=True):
    """What this replica sees of all replicas."""

    members: Mapping[str, Member]
    holders: Mapping[int, str]
    target: Mapping[str, frozenset[int]]
    expected: frozenset[int]
    """What this replica should have without the members that have missed two renewals."""

    def owner_of(self, shard: int) -> Member | None:
        for identity, shards in self.target.items():
            if shard in shards:
                return self.members[identity]
        return None


def shard_lease_key(leader: Key, shard: int) -> Key:
    return Key(leader.namespace, f"{leader.name}-shard-{shard}")


def shard_labels(leader: Key) -> dict[str, str]:
    """The label of the Leases that belong together. A label value has at most 63 characters."""
    return {_LABEL: leader.name[:63].rstrip("-._")}


class ShardCoordinator:
    def __init__(
        self,
        client: Client,
        leader_key: Key,
        identity: str,
        guard: ShardGuard,
        work: ShardWork,
        *,
        metrics: Metrics,
        log: Log,
        stop_seconds: float,
    ) -> None:
        """`stop_seconds` is how long running reconciles may take if this replica is alone."""
        self._client, self._key, self._identity = client, leader_key, identity
        self._guard, self._work, self._metrics = guard, work, metrics
        self._log, self._stop_seconds = log, stop_seconds
        self._count = len(guard.shards)
        self._clock = guard.member.clock
        self._members: MemberLease | None = None
        self._electors: list[LeaderElector] = []
        self.owned: set[int] = set()
        self._renewals: dict[int, asyncio.Task[None]] = {}
        self._stopping: dict[int, asyncio.Task[None]] = {}
        self._failure: BaseException | None = None
        self._wake = asyncio.Event()
        self._stopping_since: float | None = None
        self._left = asyncio.Event()
        self._logged_problem = ""

    # Life cycle

    async def run(self) -> None:
        """Share the shards with the other replicas until cancelled; raise LeaseLost."""
        presence = await asyncio.to_thread(ProcessPresence, self._identity)
        labels = shard_labels(self._key)
        self._members = members = MemberLease(
            self._client,
            self._key,
            self._identity,
            self._count,
            guard=self._guard.member,
            presence=presence,
            labels=labels,
            log=self._log,
        )
        self._electors = [
            LeaderElector(
                self._client,
                shard_lease_key(self._key, shard),
                self._identity,
                guard=guard,
                metrics=self._metrics,
                log=self._log,
                presence=presence,
                labels=labels,
            )
            for shard, guard in enumerate(self._guard.shards)
        ]
        self._set_metrics()
        await members.join()
        renewal = asyncio.create_task(members.renew_until_lost())
        renewal.add_done_callback(self._on_task_end)
        try:
            while not self._left.is_set():
                await self._poll(members)
                if self._failure is not None:
                    raise self._failure
        finally:
            for task in (renewal, *self._renewals.values(), *self._stopping.values()):
                task.cancel()

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        """A lost lease ends the process, and so does a bug."""
        if (
            not task.cancelled()
            and (error := task.exception()) is not None
            and self._failure is None
        ):
            self._failure = error
        self._wake.set()

    async def leave(self) -> None:
        """Hand over all shards, because the process ends. Returns when none is held, or after
        `stop_seconds`.
        """
        if self._members is None or not self._guard.member.holds_lease():
            return
        self._stopping_since = self._clock()
        self._wake.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._stop_seconds):
                await self._left.wait()

    async def release(self) -> None:
        """Give back what is still held, at the end of the process; nothing acts any more."""
        for shard in sorted(self.owned):
            await self._electors[shard].release()
        self.owned.clear()
        if self._members is not None:
            await self._members.leave()

    # Observe

    async def _poll(self, members: MemberLease) -> None:
        self._wake.clear()
        try:
            await self._observe(members)
            await self._act(members, self._build_view(members))
            self._logged_problem = ""
        except (KubewrightError, TimeoutError) as error:
            problem = f"the leases of the shards cannot be read: {error or 'no answer in time'}"
            if problem != self._logged_problem:
                self._log.error(problem)
            self._logged_problem = problem
        if self._stopping_since is not None and not self.owned:
            self._left.set()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_SECONDS):
                await self._wake.wait()

    async def _observe(self, members: MemberLease) -> None:
        selector = ",".join(f"{name}={value}" for name, value in shard_labels(self._key).items())
        async with asyncio.timeout(_LIST_TIMEOUT_SECONDS):
            leases = await self._client.list(Lease, self._key.namespace, label_selector=selector)
        by_key = {lease.key: lease for lease in leases}
        if (own := by_key.get(self._key)) is not None:
            members.observe(own)
        for elector in self._electors:
            if (lease := by_key.get(elector.key)) is not None:
                elector.observe(lease)
        with suppress(KubewrightError):
            # Another replica may have done it.
            await members.remove_members_that_are_gone()

    def _build_view(self, members: MemberLease) -> _View:
        live = {member.identity: member for member in members.live_members()}
        holders = {
            shard: elector.holder
            for shard, elector in enumerate(self._electors)
            if elector.holder in live
        }
        staying = [identity for identity, member in live.items() if not member.is_stopping]
        if self._stopping_since is not None:
            staying = [identity for identity in staying if identity != self._identity]
        target = balance(staying, holders, self._count)
        recent = {member.identity for member in members.live_members(_SUSPECT_SECONDS)}
        expected = balance(
            [identity for identity in staying if identity in recent], holders, self._count
        )
        return _View(live, holders, target, expected.get(self._identity, frozenset()))

    # Act

    async def _act(self, members: MemberLease, view: _View) -> None:
        wanted = view.target.get(self._identity, frozenset())
        self._work.cover(wanted | view.expected | self.owned)
        members.announce(
            warm=self._work.warm_shards() - self.owned, is_stopping=self._stopping_since is not None
        )
        for shard in sorted(self.owned - wanted - self._stopping.keys()):
            if self._may_let_go(shard, view):
                alone = len(view.members) < 2
                self._start_release(shard, self._stop_seconds if alone else _STOP_SECONDS)
        if self._stopping_since is None:
            missing = sorted(wanted - self.owned)
            await asyncio.gather(*(self._try_take(shard) for shard in missing))

    def _may_let_go(self, shard: int, view: _View) -> bool:
        owner = view.owner_of(shard)
        if owner is not None and shard in owner.warm:
            return True
        if self._stopping_since is None:
            return False
        return owner is None or self._clock() - self._stopping_since >= _STOP_WARM_SECONDS

    async def _try_take(self, shard: int) -> None:
        elector = self._electors[shard]
        if elector.is_held_by_another() or not await elector.try_acquire_or_renew():
            return
        self._log.info("took a shard", shard=shard, lease=str(elector.key))
        self.owned.add(shard)
        renewal = asyncio.create_task(elector.renew_until_lost())
        renewal.add_done_callback(self._on_task_end)
        self._renewals[shard] = renewal
        self._metrics.shards_taken.inc()
        self._set_metrics()
        self._work.start(shard)

    def _start_release(self, shard: int, timeout_seconds: float) -> None:
        task = asyncio.create_task(self._release(shard, timeout_seconds))
        self._stopping[shard] = task
        task.add_done_callback(partial(self._on_released, shard))

    async def _release(self, shard: int, timeout_seconds: float) -> None:
        started = self._clock()
        await self._work.stop(shard, timeout_seconds)
        renewal = self._renewals.pop(shard)
        renewal.cancel()
        await asyncio.wait({renewal})
        await self._electors[shard].release()
        self.owned.discard(shard)
        seconds = self._clock() - started
        self._metrics.shard_stop_seconds.observe(seconds)
        self._log.info("released a shard", shard=shard, seconds=round(seconds, 3))
        self._set_metrics()

    def _on_released(self, shard: int, task: asyncio.Task[None]) -> None:
        del self._stopping[shard]
        self._on_task_end(task)

    def _set_metrics(self) -> None:
        for shard, elector in enumerate(self._electors):
            owned = float(shard in self.owned)
            self._metrics.leader_status.labels(str(elector.key)).set(owned)
        self._metrics.shards_owned.set(len(self.owned))
