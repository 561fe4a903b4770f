"""One contender's turn: its process is started on fresh objects, and the API server tells when each has its status.

    started ------------> first write seen ---------------------------> all N statuses right
    |  imports, list     |  the working phase: statuses/s, CPU/object  |
    |  start to done, whole CPU/object                                  |

The working phase begins with the first write of any kind. kopf annotates objects before it writes the first status; that is work too.
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

from bench.arena import BINARIES, Arena, BenchFailed, Ground
from bench.gauge import cpu_seconds, machine_cpu_seconds, peak_rss_bytes
from bench.sample import Sample
from kubewright import Controller
from kubewright.testing import eventually
from kubewright.testing.process import Process
from kubewright.transport import Request

SILENCE_SECONDS = 120.0
WATCH_SECONDS = 3600
STOP_SECONDS = 20.0


@dataclass(frozen=True)
class Contender:
    """A program that is compared."""

    name: str
    slug: str
    module: str
    """Of Python; "" for a program."""
    arguments: tuple[str, ...] = ()
    program: str = ""
    """In .testenv/bin."""


BARE = Contender("bare loop", "bare", "bench.contenders.bare", (str(Controller.concurrency),))
RUNTIME = Contender("kubewright", "runtime", "bench.contenders.runtime")
KOPF = Contender("kopf", "kopf", "bench.contenders.kopf_operator")
KOPF_TUNED = Contender("kopf tuned", "kopf-tuned", "bench.contenders.kopf_operator", ("tuned",))
GO = Contender("controller-runtime", "go", "", program="controllerruntime")
GO_TUNED = Contender("controller-runtime tuned", "go-tuned", "", ("tuned",), program="controllerruntime")
CONTENDERS = (BARE, RUNTIME, GO, GO_TUNED, KOPF, KOPF_TUNED)


@dataclass(frozen=True)
class Result:
    """What one turn showed. `writes` counts changes of objects that the watch showed, until all statuses were right."""

    contender: str
    objects: int
    start_to_done_seconds: float
    working_seconds: float
    writes: int
    cpu_working_seconds: float
    cpu_whole_seconds: float
    peak_rss_bytes: int
    server_cpu_working_seconds: float
    arena_cpu_working_seconds: float
    watches: int
    """How often the arena had to begin its watch; more than once means that the API server found it too slow."""
    others_cpu_share: float
    """How much of the machine went to processes that have nothing to do with the turn, 0 to 1: beyond a tenth, doubt the figures."""

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


class SeenSpec(msgspec.Struct, gc=False):
    size: int


class SeenStatus(msgspec.Struct, gc=False):
    doubled: int | None = None


class SeenMetadata(msgspec.Struct, gc=False):
    name: str = ""
    resourceVersion: str = ""


class SeenObject(msgspec.Struct, gc=False):
    metadata: SeenMetadata
    spec: SeenSpec | None = None
    status: SeenStatus | None = None


class Line(msgspec.Struct, gc=False):
    type: str
    object: SeenObject


LINE = msgspec.json.Decoder(Line)


@dataclass(frozen=True)
class Moment:
    """The clock, and what everybody had used of the CPU by then."""

    at: float
    contender: float
    server: float
    arena: float
    machine: float


class Observer:
    """Watches the objects of one turn as the API server shows them. The same, and as cheap, for every contender."""

    def __init__(self, arena: Arena, ground: Ground, process: Process) -> None:
        self.arena, self.ground, self.process = arena, ground, process
        self.writes = 0
        self.right: set[str] = set()
        self.first: Moment | None = None
        self.revision = ground.revision
        self.watches = 0

    def moment(self) -> Moment:
        pid = self.process.pid
        return Moment(time.monotonic(), cpu_seconds(pid), self.arena.cpu_seconds(), time.process_time(), machine_cpu_seconds())

    async def last(self) -> Moment:
        """Watch until every object has the right status, and say when that was.

        The API server drops a watch that cannot keep up, which a burst of writes on a busy machine brings about; it is taken up again
        where it was, and the result says how often.
        """
        while True:
            self.watches += 1
            query = f"watch=1&resourceVersion={self.revision}&timeoutSeconds={WATCH_SECONDS}&allowWatchBookmarks=true"
            path = Sample.definition.path(self.ground.namespace)
            request = Request("GET", path, query=query, doing="watch the contender's work", timeout_seconds=WATCH_SECONDS + 60)
            async for line in self.arena.transport.lines(request, silence_seconds=SILENCE_SECONDS):
                self.take(LINE.decode(line))
                if len(self.right) == self.ground.count:
                    return self.moment()

    def take(self, line: Line) -> None:
        """Count one line of the watch."""
        if line.type not in ("MODIFIED", "BOOKMARK"):
            raise BenchFailed(f"a contender is to write statuses, but the watch shows {line.type} {line.object}")
        self.revision = line.object.metadata.resourceVersion
        if line.type == "BOOKMARK":
            return
        self.first = self.first or self.moment()
        self.writes += 1
        spec, status = line.object.spec, line.object.status
        if spec and status and status.doubled == 2 * spec.size:
            self.right.add(line.object.metadata.name)


def process_of(contender: Contender, arena: Arena, ground: Ground, kubeconfig: Path | None = None) -> Process:
    """The contender's process, not yet started; one in Python runs with the interpreter and in the folder that we run in."""
    arguments = [str(kubeconfig or arena.contender_kubeconfig), ground.namespace, *contender.arguments]
    log = arena.plane.folder / f"{ground.namespace}-{time.monotonic_ns()}.log"
    command = [str(BINARIES / contender.program)] if contender.program else [sys.executable, "-m", contender.module]
    return Process(contender.name, [*command, *arguments], log)


@asynccontextmanager
async def running(process: Process) -> AsyncIterator[None]:
    """The process runs within; afterwards it is gone, whatever happened."""
    process.start()
    try:
        yield
    finally:
        await process.stop(STOP_SECONDS)


async def ended(process: Process) -> None:
    """Return when the process has ended by itself, which no contender should."""
    await eventually(lambda: not process.running, within=math.inf, every=0.5)


async def take_turn(arena: Arena, contender: Contender, ground: Ground, kubeconfig: Path | None = None) -> Result:
    """Let the contender do its work, and weigh it; `kubeconfig` for another way to the API server than the straight one."""
    process = process_of(contender, arena, ground, kubeconfig)
    observer = Observer(arena, ground, process)
    started = time.monotonic()
    async with running(process):
        last = await first_of(observer, process, within_seconds=120 + 0.1 * ground.count)
        return result_of(contender, observer, last, started, peak_rss_bytes(process.pid))


async def first_of(observer: Observer, process: Process, within_seconds: float) -> Moment:
    """The moment when all is done, unless the contender dies or dawdles before."""
    watching = asyncio.ensure_future(observer.last())
    dying = asyncio.ensure_future(ended(process))
    try:
        await asyncio.wait({watching, dying}, timeout=within_seconds, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            return watching.result()
        done = f"after {len(observer.right)} of {observer.ground.count} objects"
        why = "ended by itself" if dying.done() else f"was not done within {within_seconds:g} s"
        raise BenchFailed(f"{process.name} {why}, {done}. The end of its log:\n{process.tail()}")
    finally:
        watching.cancel()
        dying.cancel()
        await asyncio.gather(watching, dying, return_exceptions=True)


def result_of(contender: Contender, observer: Observer, last: Moment, started: float, peak: int) -> Result:
    first = observer.first
    assert first is not None, "a status that is right was written"
    seconds = last.at - first.at
    ours = (last.contender - first.contender) + (last.server - first.server) + (last.arena - first.arena)
    others = (last.machine - first.machine - ours) / (seconds * (os.cpu_count() or 1))
    return Result(
        contender=contender.name,
        objects=observer.ground.count,
        start_to_done_seconds=last.at - started,
        working_seconds=seconds,
        writes=observer.writes,
        cpu_working_seconds=last.contender - first.contender,
        cpu_whole_seconds=last.contender,
        peak_rss_bytes=peak,
        server_cpu_working_seconds=last.server - first.server,
        arena_cpu_working_seconds=last.arena - first.arena,
        watches=observer.watches,
        others_cpu_share=max(0.0, others),
    )
