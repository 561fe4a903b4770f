"""One run of a process: it starts with new objects, and a watch shows when each is done.

    started ------------> first write seen ---------------------------> all N statuses right
    |  imports, list     |  the working phase: statuses/s, CPU/object  |
    |  start to done, whole CPU/object                                  |

The working phase begins with the first write of any kind. kopf annotates objects before it writes
the first status; that is work too.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec

from bench.cluster import BenchCluster, BenchError, SampleSet
from bench.process_stats import cpu_seconds, machine_cpu_seconds, memory_bytes
from bench.workload import WatchedObject
from kubewright import Object
from kubewright.testing import eventually
from kubewright.testing.process import Process
from kubewright.transport import Request

_WATCH_SILENCE_SECONDS = 120.0
_WATCH_TIMEOUT_SECONDS = 3600
_STOP_TIMEOUT_SECONDS = 20.0


class WatchEvent(msgspec.Struct, gc=False):
    type: str
    object: WatchedObject


_WATCH_EVENT_DECODER = msgspec.json.Decoder(WatchEvent)


@dataclass(frozen=True)
class CpuSample:
    """The clock, and the CPU time of all processes by then."""

    time: float
    contender_seconds: float
    server_seconds: float
    """Of etcd and the API server."""
    apiserver_seconds: float
    bench_seconds: float
    """Of this process and its helpers."""
    machine_seconds: float

    def other_processes_share_since(self, earlier: CpuSample) -> float:
        """The share of the machine that processes outside the benchmark used; 0 to 1."""
        others = (
            (self.machine_seconds - earlier.machine_seconds)
            - (self.contender_seconds - earlier.contender_seconds)
            - (self.server_seconds - earlier.server_seconds)
            - (self.bench_seconds - earlier.bench_seconds)
        )
        return max(0.0, others / ((self.time - earlier.time) * (os.cpu_count() or 1)))


def sample_cpu(cluster: BenchCluster, process: Process) -> CpuSample:
    return CpuSample(
        time.monotonic(),
        cpu_seconds(process.pid) if process.pid else 0.0,
        cluster.cpu_seconds(),
        cluster.apiserver_cpu_seconds(),
        time.process_time() + cluster.helper_cpu_seconds(),
        machine_cpu_seconds(),
    )


@dataclass(frozen=True)
class Run:
    """What one process did to N new objects."""

    started: CpuSample
    first_write: CpuSample
    first_status: CpuSample
    """The first one that is right."""
    done: CpuSample
    writes: int
    watches: int
    peak_rss_bytes: int
    rss_bytes: int
    """When all objects were done."""


class ObjectWatch:
    """Watches the objects of a namespace; their statuses are written, and nothing else."""

    def __init__(self, cluster: BenchCluster, samples: SampleSet) -> None:
        self._cluster, self._namespace = cluster, samples.namespace
        self._resource_version = samples.resource_version
        self.starts = 0
        """How often the watch was started."""

    async def changed_objects(self) -> AsyncGenerator[WatchedObject]:
        # After a burst of writes on a busy machine the API server drops a watch that is too slow.
        # It continues at its last resourceVersion, and the result counts it.
        while True:
            self.starts += 1
            query = (
                f"watch=1&resourceVersion={self._resource_version}"
                f"&timeoutSeconds={_WATCH_TIMEOUT_SECONDS}&allowWatchBookmarks=true"
            )
            request = Request(
                "GET",
                self._cluster.workload.kind.definition.path(self._namespace),
                query=query,
                operation="watch the contender's work",
                timeout_seconds=_WATCH_TIMEOUT_SECONDS + 60,
            )
            async for line in self._cluster.transport.stream_lines(
                request, idle_timeout_seconds=_WATCH_SILENCE_SECONDS
            ):
                event = _WATCH_EVENT_DECODER.decode(line)
                if event.type not in ("MODIFIED", "BOOKMARK"):
                    raise BenchError(
                        "a contender is to write statuses, but the watch shows "
                        f"{event.type} {event.object}"
                    )
                self._resource_version = event.object.metadata.resourceVersion
                if event.type == "MODIFIED":
                    yield event.object


class Observer:
    """Watches the objects of one turn; it costs the same for every contender."""

    def __init__(
        self,
        cluster: BenchCluster,
        samples: SampleSet,
        process: Process,
        has_first_status: asyncio.Event,
    ) -> None:
        self.cluster, self.samples, self.process = cluster, samples, process
        self._has_first_status = has_first_status
        self.writes = 0
        self.completed: set[str] = set()
        self.first_write: CpuSample | None = None
        self.first_status: CpuSample | None = None
        self.watch = ObjectWatch(cluster, samples)

    def _sample_cpu(self) -> CpuSample:
        return sample_cpu(self.cluster, self.process)

    async def _wait_until_complete(self) -> CpuSample:
        """The time when every object has the right status."""
        # Children are written before the first status is.
        children = [
            asyncio.ensure_future(self._wait_for_first_child(kind))
            for kind in self.cluster.workload.child_kinds
        ]
        try:
            return await self._wait_for_statuses()
        finally:
            for task in children:
                task.cancel()
            await asyncio.gather(*children, return_exceptions=True)

    async def _wait_for_first_child(self, kind: type[Object]) -> None:
        async for _ in self.cluster.client.watch(
            kind, self.samples.resource_version, self.samples.namespace
        ):
            self.first_write = self.first_write or self._sample_cpu()
            return

    async def _wait_for_statuses(self) -> CpuSample:
        async for obj in self.watch.changed_objects():
            self.first_write = self.first_write or self._sample_cpu()
            self.writes += 1
            if self.cluster.workload.is_done(obj):
                if self.first_status is None:
                    self.first_status = self._sample_cpu()
                    self._has_first_status.set()
                self.completed.add(obj.metadata.name)
                if len(self.completed) == self.samples.count:
                    return self._sample_cpu()
        raise AssertionError("the watch has no end")


@asynccontextmanager
async def measure_process(
    cluster: BenchCluster,
    process: Process,
    samples: SampleSet,
    first_status: asyncio.Event | None = None,
) -> AsyncIterator[Run]:
    """Starts a process that is to write all statuses; inside the block they are written.

    `first_status` is set when the first one is.
    """
    observer = Observer(cluster, samples, process, first_status or asyncio.Event())
    started = sample_cpu(cluster, process)
    async with run_process(process):
        done = await _wait_for_completion(
            observer, process, timeout_seconds=120 + 0.1 * samples.count
        )
        first_write, first_right = observer.first_write, observer.first_status
        assert first_write, "a status was written"
        assert first_right, "a status that is right was written"
        resident, peak = memory_bytes(process.pid)
        yield Run(
            started,
            first_write,
            first_right,
            done,
            observer.writes,
            observer.watch.starts,
            peak,
            resident,
        )


async def _wait_for_completion(
    observer: Observer, process: Process, timeout_seconds: float
) -> CpuSample:
    """The time when all statuses are right; fails if the contender exits or is too slow."""
    watching = asyncio.ensure_future(observer._wait_until_complete())
    exiting = asyncio.ensure_future(wait_for_exit(process))
    try:
        await asyncio.wait(
            {watching, exiting}, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if watching.done():
            return watching.result()
        done = f"after {len(observer.completed)} of {observer.samples.count} objects"
        problem = f"was not done within {timeout_seconds:g} s"
        if exiting.done():
            problem = "exited unexpectedly"
        raise BenchError(
            f"{process.name} {problem}, {done}. The end of its log:\n{process.read_log_tail()}"
        )
    finally:
        watching.cancel()
        exiting.cancel()
        await asyncio.gather(watching, exiting, return_exceptions=True)


@asynccontextmanager
async def run_process(process: Process) -> AsyncIterator[None]:
    """Runs the process inside the block and always ends it."""
    process.start()
    try:
        yield
    finally:
        await process.stop(_STOP_TIMEOUT_SECONDS)


async def wait_for_exit(process: Process) -> None:
    """Returns when the process has exited, which no contender should do."""
    await eventually(lambda: not process.is_running, within=math.inf, every=0.5)
