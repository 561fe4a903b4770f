"""What is measured, one phase after the other: start, rest, edits, churn."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from bench.process_stats import cpu_seconds
from bench.replayed_vcenter.process import ReplayedVCenter
from kubewright import Key
from vsphere_operators.kinds.hostinfo import HostInfo
from vsphere_operators.kinds.vminfo import VMInfo

from .objects import Cluster, Names, build_objects
from .observer import Expectations, Observer
from .process import MeasuredManager

_MOVES_PER_SECOND = 5.0
# Long enough that the status is written before the host changes back.
_TOGGLE_SECONDS = 2.0
_POLL_SECONDS = 0.25
# After this time, a status that was not seen counts as missing.
_LATE_SECONDS = 30.0
_EDIT_GAP_SECONDS = 0.03


@dataclass
class Environment:
    cluster: Cluster
    vcenter: ReplayedVCenter
    manager: MeasuredManager
    names: Names
    entities: Sequence[dict[str, str]]
    object_count: int
    results: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # The keys of the objects, by the name of the host or VM in their spec.
        self.host_keys, self.vm_keys = _group_keys(self.names, self.object_count)
        self.name_by_ref = {entity["ref"]: entity["name"] for entity in self.entities}
        self.ref_by_host = {
            entity["name"]: entity["ref"]
            for entity in self.entities
            if entity["type"] == "HostSystem"
        }

    async def restart_manager(self) -> None:
        """Stop the manager, and prepare the start of another one."""
        await self.manager.stop()
        self.manager = self.manager.successor()

    def cpu(self) -> dict[str, float]:
        plane = self.cluster.plane
        return {
            "manager": self.manager.cpu_seconds(),
            "apiserver": cpu_seconds(plane.apiserver.process.pid),
            "etcd": cpu_seconds(plane.etcd.process.pid),
            "vcenter": cpu_seconds(self.vcenter.process.pid),
        }


def _group_keys(names: Names, count: int) -> tuple[dict[str, list[Key]], dict[str, list[Key]]]:
    host_keys, vm_keys = defaultdict[str, list[Key]](list), defaultdict[str, list[Key]](list)
    for obj in build_objects(names, count):
        if isinstance(obj, HostInfo):
            host_keys[obj.spec.hostname].append(obj.key)
        elif isinstance(obj, VMInfo):
            vm_keys[obj.spec.nodename].append(obj.key)
    return host_keys, vm_keys


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def summarize(values: Sequence[float]) -> dict[str, float]:
    return {
        "count": len(values),
        "p50": quantile(values, 0.5),
        "p99": quantile(values, 0.99),
        "max": max(values, default=float("nan")),
    }


@asynccontextmanager
async def sample_cpu(environment: Environment, result: dict[str, Any]) -> AsyncIterator[None]:
    """Adds to the result: cores that each process used inside the block, stalls and memory."""
    before, began = environment.cpu(), time.monotonic()
    yield
    ended, after = time.monotonic(), environment.cpu()
    result["seconds"] = ended - began
    result["cores"] = {name: (after[name] - before[name]) / (ended - began) for name in after}
    stall = environment.manager.longest_stall(began, ended)
    result["stall_ms"], result["stall_cpu_ms"] = stall.ms, stall.cpu_ms
    result["rss_mib"], result["peak_rss_mib"] = environment.manager.memory_mib()


async def measure_start(environment: Environment, name: str, within: float) -> None:
    """Seconds from the start until /readyz succeeds, and until all objects are reconciled."""
    manager = environment.manager
    result: dict[str, Any] = {}
    manager.start()
    result["readyz_seconds"] = await manager.wait_until_ready(within)
    result["reconciled_seconds"] = await manager.wait_until_reconciled(
        environment.object_count, within
    )
    result["cpu_seconds"] = manager.cpu_seconds()
    result["status_writes"] = await manager.read_metric("kubewright_status_writes_total")
    stall = manager.longest_stall()
    result["stall_ms"], result["stall_cpu_ms"] = stall.ms, stall.cpu_ms
    result["rss_mib"], result["peak_rss_mib"] = manager.memory_mib()
    environment.results[name] = result
    print(f"{name}: {render(result)}", flush=True)


async def measure_rest(environment: Environment, seconds: float) -> None:
    """First the CPU while the stall log is paused, then the stalls."""
    result: dict[str, Any] = {}
    with_stalls: dict[str, Any] = {}
    environment.manager.toggle_stall_log()
    async with sample_cpu(environment, result):
        await asyncio.sleep(seconds)
    environment.manager.toggle_stall_log()
    async with sample_cpu(environment, with_stalls):
        await asyncio.sleep(seconds)
    result |= {name: with_stalls[name] for name in ("stall_ms", "stall_cpu_ms")}
    environment.results["rest"] = result
    print(f"rest: {render(result)}", flush=True)


async def measure_edits(environment: Environment, name: str, count: int, seed: int = 5) -> None:
    """Edits of the VM name, one after the other: how long until the status follows each."""
    edits = Edits(environment, seed)
    async with edits.observe():
        for _ in range(count):
            await edits.edit_one()
            await asyncio.sleep(_EDIT_GAP_SECONDS)
        await edits.wait()
    environment.results[name] = edits.summarize()
    print(f"{name}: {render(environment.results[name])}", flush=True)


class Edits:
    """Edits of VMInfos, and how long until their status was written."""

    def __init__(self, environment: Environment, seed: int) -> None:
        self._environment, self._rng = environment, random.Random(seed)
        self._keys = [key for keys in environment.vm_keys.values() for key in keys]
        self._rng.shuffle(self._keys)
        self._since_sent = Expectations(lambda obj: obj.status.observedGeneration)
        self._since_accepted = Expectations(lambda obj: obj.status.observedGeneration)

    @asynccontextmanager
    async def observe(self) -> AsyncIterator[None]:
        async with _watching(self._environment, VMInfo, [self._since_sent, self._since_accepted]):
            yield

    async def edit_one(self) -> None:
        key = self._keys.pop()
        # The object names another VM from now on, so its status does not follow this one.
        for keys in self._environment.vm_keys.values():
            if key in keys:
                keys.remove(key)
                break
        name = self._rng.choice(self._environment.names.vms)
        sent = time.monotonic()
        edited = await self._environment.cluster.client.patch(
            VMInfo, key, {"spec": {"nodename": name}}
        )
        generation = edited.metadata.generation
        self._since_accepted.expect(*key, generation, time.monotonic())
        self._since_sent.expect(*key, generation, sent)

    async def wait(self) -> None:
        await self._since_sent.wait(_LATE_SECONDS)

    def summarize(self) -> dict[str, Any]:
        return {
            "since_sent": summarize(self._since_sent.seconds),
            "since_accepted": summarize(self._since_accepted.seconds),
            "missing": self._since_sent.missing,
        }


@asynccontextmanager
async def _watching(
    environment: Environment, kind: type[Any], expectations: Sequence[Expectations]
) -> AsyncIterator[Observer]:
    cluster = environment.cluster

    def on_change(obj: Any, now: float) -> None:
        for expected in expectations:
            expected.on_change(obj, now)

    observer = Observer(kind, cluster.client, cluster.transport, on_change)
    watching = asyncio.create_task(observer.run())
    await observer.started.wait()
    try:
        yield observer
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def measure_churn(environment: Environment, seconds: float, warm_up_seconds: float) -> None:
    """New quickStats of everything, vMotions, and hosts that enter and leave maintenance mode."""
    vcenter, result = environment.vcenter, dict[str, Any]()
    moves = Expectations(lambda obj: obj.status.host)
    toggles = Expectations(lambda obj: obj.status.maintenanceMode)
    await vcenter.set_churn(stats=True, moves_per_second=_MOVES_PER_SECOND)
    await asyncio.sleep(warm_up_seconds)
    writes = await environment.manager.read_metric("kubewright_status_writes_total")
    stats = int((await vcenter.state())["statsChanges"])
    async with (
        _watching(environment, VMInfo, [moves]),
        _watching(environment, HostInfo, [toggles]),
        asyncio.TaskGroup() as group,
    ):
        tasks = [
            group.create_task(_expect_moves(environment, moves)),
            group.create_task(_toggle_maintenance(environment, toggles)),
        ]
        async with sample_cpu(environment, result):
            await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await moves.wait(_LATE_SECONDS)
        await toggles.wait(_LATE_SECONDS)
    result["moves"], result["maintenance"] = summarize(moves.seconds), summarize(toggles.seconds)
    result["changes"] = summarize([*moves.seconds, *toggles.seconds])
    result["missing"], result["replaced"] = moves.missing + toggles.missing, moves.replaced
    now = await environment.manager.read_metric("kubewright_status_writes_total")
    result["status_writes_per_second"] = (now - writes) / result["seconds"]
    changed = int((await vcenter.state())["statsChanges"]) - stats
    result["stats_changes_per_second"] = changed / result["seconds"]
    environment.results["churn"] = result
    print(f"churn: {render(result)}", flush=True)


async def _expect_moves(environment: Environment, moves: Expectations) -> None:
    vcenter = environment.vcenter
    count = len((await vcenter.state())["moves"])
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        new = (await vcenter.state(count))["moves"]
        count += len(new)
        for move in new:
            host = environment.name_by_ref[move["new_host"]]
            for key in environment.vm_keys[environment.name_by_ref[move["vm"]]]:
                moves.expect(*key, host, move["time"])


async def _toggle_maintenance(environment: Environment, toggles: Expectations) -> None:
    """One host enters or leaves maintenance mode at a time."""
    rng = random.Random(11)
    while True:
        name = rng.choice(environment.names.hosts)
        for is_on in (True, False):
            since = await environment.vcenter.change(
                environment.ref_by_host[name], runtime__inMaintenanceMode=is_on
            )
            for key in environment.host_keys[name]:
                toggles.expect(*key, is_on, since)
            await asyncio.sleep(_TOGGLE_SECONDS)


def render(result: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} ({render(value)})" if isinstance(value, dict) else f"{name} {value:.4g}"
        for name, value in result.items()
    )
