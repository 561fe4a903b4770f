"""What a status costs the API server, by the form of the write and of the CRD.

    python -m bench.status_cost [-n OBJECTS] [--turns N] [--forms "A;B"] [--gc] [--json FILE]
    python -m bench.status_cost --turns 0 -n 5000 --profile "merge patch" [--gc]

Creates HostInfos on a real API server and writes their statuses with a bare client: first all
fields, then the two that move with the load. Each turn has new objects for each form, and batches
of all forms alternate. A watch receives every object, as that of the manager does. The CPU of the
API server is read from outside. All forms are compared with the first one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import msgspec

from bench.cluster import MANUAL_GC, ROOT, BenchCluster, open_cluster
from bench.cpu_profile import print_attribution
from bench.status_forms import FORMS, TODAY, StatusForm, build_crd
from bench.status_run import FormRun, Meter, collection_path, open_form, read_collection
from kubewright.kubeconfig import load_config
from kubewright.testing import eventually
from kubewright.transport import Request, Transport
from kubewright.yaml_text import to_yaml

RESULTS = ROOT / "bench/results"
PHASES = ("first", "change")
_BATCH = 50
_WRITES_PER_COLLECTION = 2000  # with 0.6 MB of garbage each
_PROFILE_SECONDS_PER_WRITE = 0.01
_DEFAULT_GC = {"GOGC": "100"}


@dataclass(frozen=True)
class Cost:
    """One phase of one turn, for each write. Times are CPU."""

    form: str
    phase: str
    turn: int
    writes: int
    server_ms: float
    etcd_ms: float
    allocated_kib: float


class StatusBench:
    def __init__(self, cluster: BenchCluster, transport: Transport, count: int, gc: bool) -> None:
        """`transport` has the credentials of a service account, as the manager in a cluster.
        `gc`: whether the API server collects its garbage itself.
        """
        self._cluster, self._transport = cluster, transport
        self._count, self._gc = count, gc
        self._meter = Meter(cluster, transport)

    async def install(self, forms: Sequence[StatusForm]) -> None:
        variants = sorted({form.crd for form in forms})
        crds = [build_crd(variant) for variant in variants]
        await asyncio.to_thread(self._cluster.control_plane.apply, to_yaml(*crds))
        for variant in variants:
            path = collection_path(variant, "default")
            await eventually(partial(read_collection, self._transport, path), within=30)
        await self._meter.calibrate()

    async def run_turn(self, forms: Sequence[StatusForm], turn: int) -> list[Cost]:
        async with AsyncExitStack() as stack:
            runs = [
                await stack.enter_async_context(
                    open_form(
                        form, self._cluster, self._transport, f"turn-{turn}-{number}", self._count
                    )
                )
                for number, form in enumerate(forms)
            ]
            for phase in PHASES:
                await self._run_phase(runs, phase)
            return [_cost_of(run, phase, turn, self._count) for run in runs for phase in PHASES]

    async def _run_phase(self, runs: list[FormRun], phase: str) -> None:
        batches = [run.batches(phase, _BATCH) for run in runs]
        rounds_per_collection = max(1, _WRITES_PER_COLLECTION // (_BATCH * len(runs)))
        for number in range((self._count + _BATCH - 1) // _BATCH):
            if not self._gc and number % rounds_per_collection == 0:
                await self._cluster.collect_garbage()
            shift = number % len(runs)
            for index in [*range(shift, len(runs)), *range(shift)]:
                await runs[index].measure(self._meter, phase, next(batches[index]))

    async def profile(self, form: StatusForm) -> bytes:
        """A CPU profile of the API server during the first writes."""
        async with open_form(form, self._cluster, self._transport, "profile", self._count) as run:
            seconds = 3 + round(self._count * _PROFILE_SECONDS_PER_WRITE)
            request = Request(
                "GET",
                "/debug/pprof/profile",
                query=f"seconds={seconds}",
                accept="*/*",
                operation="profile the API server",
                timeout_seconds=seconds + 60,
            )
            await self._cluster.collect_garbage()
            profile = asyncio.create_task(self._cluster.transport.send(request))
            # The first request for a profile starts it; nothing reports that it has started.
            await asyncio.sleep(1)
            for batch in run.batches(PHASES[0], self._count):
                await run.send(batch)
            return await profile


def _cost_of(run: FormRun, phase: str, turn: int, count: int) -> Cost:
    usage = run.usage[phase]
    return Cost(
        run.form.name,
        phase,
        turn,
        count,
        1000 * usage.server_seconds / count,
        1000 * usage.etcd_seconds / count,
        usage.allocated_bytes / 1024 / count,
    )


def _spread(values: Sequence[float], digits: int) -> str:
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def print_table(costs: Sequence[Cost], forms: Sequence[StatusForm]) -> None:
    """Medians of the turns with their spread; a ratio is of the same turn."""
    by_turn = {(cost.form, cost.phase, cost.turn): cost for cost in costs}
    for phase in PHASES:
        print(f"\n{phase} write\n")
        print("| form | API server ms | of the first form | etcd ms | KiB allocated | ratio |")
        print("|---|---|---|---|---|---|")
        for form in forms:
            own = [cost for cost in costs if (cost.form, cost.phase) == (form.name, phase)]
            pairs = [(cost, by_turn[forms[0].name, phase, cost.turn]) for cost in own]
            cpu = [cost.server_ms / base.server_ms for cost, base in pairs]
            allocated = [cost.allocated_kib / base.allocated_kib for cost, base in pairs]
            print(
                f"| {form.name} | {_spread([cost.server_ms for cost in own], 2)} "
                f"| {_spread(cpu, 3)} | {statistics.median(cost.etcd_ms for cost in own):.2f} "
                f"| {statistics.median(cost.allocated_kib for cost in own):.0f} "
                f"| {statistics.median(allocated):.3f} |"
            )


@asynccontextmanager
async def _open_bench(count: int, gc: bool) -> AsyncIterator[StatusBench]:
    async with open_cluster(environ=_DEFAULT_GC if gc else MANUAL_GC) as cluster:
        kubeconfig = str(cluster.contender_kubeconfig)
        connection = load_config(kubeconfig, environ=os.environ, home=Path.home())
        transport = Transport(connection, user_agent="vsphere-operators")
        try:
            yield StatusBench(cluster, transport, count, gc)
        finally:
            await transport.close()


async def run(options: argparse.Namespace) -> None:
    names = [TODAY.name, *options.forms.split(";")]
    forms = [form for form in FORMS if not options.forms or form.name in names]
    costs: list[Cost] = []
    async with _open_bench(options.n, options.gc) as bench:
        if options.turns:
            await bench.install(forms)
        for turn in range(options.turns):
            costs += await bench.run_turn(forms, turn)
            print(f"turn {turn + 1} of {options.turns} is done", file=sys.stderr)
        if options.profile:
            form = next(form for form in FORMS if form.name == options.profile)
            await bench.install([form])
            _save_profile(form, await bench.profile(form))
    if costs:
        print_table(costs, forms)
        options.json.parent.mkdir(exist_ok=True)
        records = msgspec.json.encode([asdict(cost) for cost in costs])
        options.json.write_bytes(msgspec.json.format(records))


def _save_profile(form: StatusForm, profile: bytes) -> None:
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"status-{form.name.replace(' ', '-').replace(',', '')}.pprof"
    file.write_bytes(profile)
    print_attribution(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-n", type=int, default=1000, metavar="OBJECTS", help="for each form")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--forms", default="", help="names, separated by semicolons; default: all")
    parser.add_argument("--gc", action="store_true", help="let the API server collect garbage")
    parser.add_argument("--profile", default="", metavar="FORM", help="profile this form at last")
    parser.add_argument("--json", type=Path, default=RESULTS / "status-cost.json")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
