"""One turn of a contender: it starts with new objects, and a watch shows when each is done.

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
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.cluster import BINARIES, BenchCluster, BenchError, SampleSet
from bench.process_stats import cpu_seconds, machine_cpu_seconds, peak_rss_bytes
from bench.workload import WatchedObject
from kubewright import Controller, Object
from kubewright.testing import eventually
from kubewright.testing.process import Process
from kubewright.transport import Request

_WATCH_SILENCE_SECONDS = 120.0
_WATCH_TIMEOUT_SECONDS = 3600
STOP_TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True)
class Contender:
    name: str
    slug: str
    module: str
    """A Python module; "" for a binary."""
    arguments: tuple[str, ...] = ()
    program: str = ""
    """A binary in .testenv/bin."""
    checkout: str = ""
    """Another checkout of this repository, from which kubewright is imported."""


BARE = Contender(
    "bare loop", "bare", "bench.contenders.bare", (str(Controller.max_concurrent_reconciles),)
)
RUNTIME = Contender("kubewright", "runtime", "bench.contenders.runtime")
KOPF = Contender("kopf", "kopf", "bench.contenders.kopf_operator")
_KOPF_TUNED = Contender("kopf tuned", "kopf-tuned", "bench.contenders.kopf_operator", ("tuned",))
_GO = Contender("controller-runtime", "go", "", program="controllerruntime")
_GO_TUNED = Contender(
    "controller-runtime tuned", "go-tuned", "", ("tuned",), program="controllerruntime"
)
BASELINE = Contender("kubewright, baseline", "baseline", "bench.contenders.runtime")
"""The runtime of another commit; --baseline fills in its checkout."""
CONTENDERS = (BARE, RUNTIME, BASELINE, _GO, _GO_TUNED, KOPF, _KOPF_TUNED)


@dataclass(frozen=True)
class Result:
    """`writes` counts the changes of objects in the watch until all statuses were right."""

    contender: str
    objects: int
    start_to_done_seconds: float
    working_seconds: float
    writes: int
    cpu_working_seconds: float
    cpu_whole_seconds: float
    peak_rss_bytes: int
    server_cpu_working_seconds: float
    bench_cpu_working_seconds: float
    watches: int
    """How often the watch was started; more than once means that it was too slow."""
    other_processes_cpu_share: float
    """Share of the machine, 0 to 1, that other processes used; above 0.1, repeat the run."""

    @property
    def statuses_per_second(self) -> float:
        return (self.objects - 1) / self.working_seconds

    @property
    def cpu_working_ms(self) -> float:
        return 1000 * self.cpu_working_seconds / self.objects

    @property
    def cpu_whole_ms(self) -> float:
        return 1000 * self.cpu_whole_seconds / self.objects

    @property
    def peak_rss_mib(self) -> float:
        return self.peak_rss_bytes / 2**20

    @property
    def writes_per_object(self) -> float:
        return self.writes / self.objects


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
    bench_seconds: float
    machine_seconds: float


class Observer:
    """Watches the objects of one turn; it costs the same for every contender."""

    def __init__(self, cluster: BenchCluster, samples: SampleSet, process: Process) -> None:
        self.cluster, self.samples, self.process = cluster, samples, process
        self.writes = 0
        self.completed: set[str] = set()
        self.first_write: CpuSample | None = None
        self.resource_version = samples.resource_version
        self.watches = 0

    def _sample_cpu(self) -> CpuSample:
        pid = self.process.pid
        return CpuSample(
            time.monotonic(),
            cpu_seconds(pid),
            self.cluster.cpu_seconds(),
            time.process_time(),
            machine_cpu_seconds(),
        )

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
        # After a burst of writes on a busy machine the API server drops a watch that is too slow.
        # It continues at its last resourceVersion, and the result counts it.
        while True:
            self.watches += 1
            query = (
                f"watch=1&resourceVersion={self.resource_version}"
                f"&timeoutSeconds={_WATCH_TIMEOUT_SECONDS}&allowWatchBookmarks=true"
            )
            path = self.cluster.workload.kind.definition.path(self.samples.namespace)
            request = Request(
                "GET",
                path,
                query=query,
                operation="watch the contender's work",
                timeout_seconds=_WATCH_TIMEOUT_SECONDS + 60,
            )
            async for line in self.cluster.transport.stream_lines(
                request, idle_timeout_seconds=_WATCH_SILENCE_SECONDS
            ):
                self._count_event(_WATCH_EVENT_DECODER.decode(line))
                if len(self.completed) == self.samples.count:
                    return self._sample_cpu()

    def _count_event(self, line: WatchEvent) -> None:
        if line.type not in ("MODIFIED", "BOOKMARK"):
            raise BenchError(
                f"a contender is to write statuses, but the watch shows {line.type} {line.object}"
            )
        self.resource_version = line.object.metadata.resourceVersion
        if line.type == "BOOKMARK":
            return
        self.first_write = self.first_write or self._sample_cpu()
        self.writes += 1
        if self.cluster.workload.is_done(line.object):
            self.completed.add(line.object.metadata.name)


def contender_process(
    contender: Contender, cluster: BenchCluster, samples: SampleSet, kubeconfig: Path | None = None
) -> Process:
    """The process, not started; a Python contender uses this interpreter and working folder."""
    arguments = [
        str(kubeconfig or cluster.contender_kubeconfig),
        samples.namespace,
        *contender.arguments,
    ]
    log = cluster.control_plane.folder / f"{samples.namespace}-{time.monotonic_ns()}.log"
    command = (
        [str(BINARIES / contender.program)]
        if contender.program
        else [sys.executable, "-m", contender.module]
    )
    environ = None
    if contender.checkout:
        # PYTHONPATH goes before the editable installation, the working directory before both:
        # the contender's own module is this one's, the runtime is the other checkout's.
        path = f"{contender.checkout}/packages/kubewright/src"
        environ = {**os.environ, "PYTHONPATH": path}
    return Process(contender.name, [*command, *arguments], log, environ)


@asynccontextmanager
async def run_process(process: Process) -> AsyncIterator[None]:
    """Runs the process inside the block and always ends it."""
    process.start()
    try:
        yield
    finally:
        await process.stop(STOP_TIMEOUT_SECONDS)


async def wait_for_exit(process: Process) -> None:
    """Returns when the process has exited, which no contender should do."""
    await eventually(lambda: not process.is_running, within=math.inf, every=0.5)


async def measure_contender(
    cluster: BenchCluster, contender: Contender, samples: SampleSet, kubeconfig: Path | None = None
) -> Result:
    """Runs one contender and measures it; `kubeconfig` may lead through a proxy."""
    process = contender_process(contender, cluster, samples, kubeconfig)
    observer = Observer(cluster, samples, process)
    started = time.monotonic()
    async with run_process(process):
        last = await _wait_for_completion(
            observer, process, timeout_seconds=120 + 0.1 * samples.count
        )
        return _build_result(contender, observer, last, started, peak_rss_bytes(process.pid))


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


def _build_result(
    contender: Contender, observer: Observer, last: CpuSample, started: float, peak: int
) -> Result:
    first = observer.first_write
    assert first is not None, "a status that is right was written"
    seconds = last.time - first.time
    ours = (
        (last.contender_seconds - first.contender_seconds)
        + (last.server_seconds - first.server_seconds)
        + (last.bench_seconds - first.bench_seconds)
    )
    others = (last.machine_seconds - first.machine_seconds - ours) / (
        seconds * (os.cpu_count() or 1)
    )
    return Result(
        contender=contender.name,
        objects=observer.samples.count,
        start_to_done_seconds=last.time - started,
        working_seconds=seconds,
        writes=observer.writes,
        cpu_working_seconds=last.contender_seconds - first.contender_seconds,
        cpu_whole_seconds=last.contender_seconds,
        peak_rss_bytes=peak,
        server_cpu_working_seconds=last.server_seconds - first.server_seconds,
        bench_cpu_working_seconds=last.bench_seconds - first.bench_seconds,
        watches=observer.watches,
        other_processes_cpu_share=max(0.0, others),
    )
