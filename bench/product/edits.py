"""The time from an edit of an object to its status, at rest or during a cold start of N others.

It is measured from sending the edit to the watch event with the status of the new generation.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.cluster import BenchCluster, BenchError, SampleSet
from bench.product.contenders import Contender
from bench.product.environment import Environment, new_objects
from bench.product.equal_work import Reference
from bench.run import ObjectWatch, measure_process
from kubewright import Key
from kubewright.testing import eventually
from vsphere_operators.kinds.hostinfo import HostInfo

_OBJECTS = 200
_EDITS_AT_REST = 200
_INTERVAL_SECONDS = 0.05
_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Edits:
    cold_objects: int = 0
    """How many other objects have no status when the contender starts; 0 for edits at rest."""

    async def measure(
        self, environment: Environment, reference: Reference, contender: Contender, name: str
    ) -> dict[str, float]:
        cluster = environment.hosts
        async with new_objects(cluster, name, _OBJECTS) as samples:
            process = environment.create_process(contender)
            if not self.cold_objects:
                async with measure_process(cluster, process, samples):
                    editor = await Editor.for_objects(environment, samples)
                    return _figures(await editor.edit(_EDITS_AT_REST))
            async with measure_process(cluster, process, samples):
                pass
            async with new_objects(cluster, f"{name}-cold", self.cold_objects) as cold:
                editor = await Editor.for_objects(environment, samples)
                return _figures(await _edit_during(environment, contender, cold, editor))


class Editor:
    """Edits objects, and measures the time from each edit to the status."""

    def __init__(
        self, cluster: BenchCluster, samples: SampleSet, host_names: Sequence[str]
    ) -> None:
        self._cluster, self._samples, self._host_names = cluster, samples, host_names
        self._sent: dict[str, float] = {}
        """When the edit of an object was sent, by its name, until its status is seen."""
        self._generations: dict[str, int] = {}
        """The generation after the last edit, by the name of the object."""
        self._latencies: list[float] = []
        self.is_stopped = False

    @classmethod
    async def for_objects(cls, environment: Environment, samples: SampleSet) -> Editor:
        cluster = environment.hosts
        version = await cluster.get_resource_version(samples.namespace)
        watched = replace(samples, resource_version=version)
        return cls(cluster, watched, environment.host_names)

    async def edit(self, count: int) -> list[float]:
        """The seconds of each edit; fewer than `count` if it is stopped earlier."""
        watching = asyncio.create_task(self._watch())
        try:
            for info in await self._cluster.client.list(HostInfo, self._samples.namespace):
                self._generations[info.metadata.name] = info.metadata.generation
            names = itertools.cycle(sorted(self._generations))
            for _ in range(count):
                await eventually(
                    lambda: self.is_stopped or len(self._sent) < len(self._generations),
                    within=_TIMEOUT_SECONDS,
                )
                if self.is_stopped:
                    break
                await self._send(next(name for name in names if name not in self._sent))
                await asyncio.sleep(_INTERVAL_SECONDS)
            await eventually(lambda: watching.done() or not self._sent, within=_TIMEOUT_SECONDS)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        if self._sent:
            raise BenchError(f"{len(self._sent)} edits got no status: the watch has ended")
        return self._latencies

    async def _send(self, name: str) -> None:
        # Another host than before, so that each edit changes the spec and the generation.
        self._generations[name] += 1
        number = int(name.rpartition("-")[2]) + self._generations[name]
        hostname = self._host_names[number % len(self._host_names)]
        self._sent[name] = time.monotonic()
        await self._cluster.client.patch(
            HostInfo, Key(self._samples.namespace, name), {"spec": {"hostname": hostname}}
        )

    async def _watch(self) -> None:
        is_done = self._cluster.workload.is_done
        async for obj in ObjectWatch(self._cluster, self._samples).changed_objects():
            name = obj.metadata.name
            # The event of the edit itself still has the old observedGeneration.
            if (
                name in self._sent
                and is_done(obj)
                and obj.metadata.generation == self._generations[name]
            ):
                self._latencies.append(time.monotonic() - self._sent.pop(name))


async def _edit_during(
    environment: Environment, contender: Contender, cold: SampleSet, editor: Editor
) -> list[float]:
    """Edits from the first status of the cold start to its last one."""
    first_status = asyncio.Event()

    async def edit() -> list[float]:
        await first_status.wait()
        return await editor.edit(count=10**6)

    editing = asyncio.create_task(edit())
    try:
        process = environment.create_process(contender)
        async with measure_process(environment.hosts, process, cold, first_status):
            editor.is_stopped = True
            return await editing
    finally:
        editing.cancel()
        await asyncio.gather(editing, return_exceptions=True)


def _figures(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(1000 * latency for latency in seconds)
    last = len(ordered) - 1
    return {
        "edits": len(ordered),
        "p50_ms": ordered[last // 2],
        "p99_ms": ordered[round(0.99 * last)],
        "max_ms": ordered[last],
    }
