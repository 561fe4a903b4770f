"""The contenders of `python -m bench`, and one turn of one of them."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.cluster import BINARIES, BenchCluster, SampleSet
from bench.run import Run, measure_process
from kubewright import Controller
from kubewright.testing.process import Process


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


async def measure_contender(
    cluster: BenchCluster, contender: Contender, samples: SampleSet, kubeconfig: Path | None = None
) -> Result:
    """Runs one contender and measures it; `kubeconfig` may lead through a proxy."""
    process = contender_process(contender, cluster, samples, kubeconfig)
    async with measure_process(cluster, process, samples) as run:
        pass
    return _build_result(contender, run, samples)


def _build_result(contender: Contender, run: Run, samples: SampleSet) -> Result:
    first, last = run.first_write, run.done
    return Result(
        contender=contender.name,
        objects=samples.count,
        start_to_done_seconds=last.time - run.started.time,
        working_seconds=last.time - first.time,
        writes=run.writes,
        cpu_working_seconds=last.contender_seconds - first.contender_seconds,
        cpu_whole_seconds=last.contender_seconds,
        peak_rss_bytes=run.peak_rss_bytes,
        server_cpu_working_seconds=last.server_seconds - first.server_seconds,
        bench_cpu_working_seconds=last.bench_seconds - first.bench_seconds,
        watches=run.watches,
        other_processes_cpu_share=last.other_processes_share_since(first),
    )
