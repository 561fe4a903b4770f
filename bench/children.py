"""`python -m bench.children`: examples/myapp.py, N objects with four children each.

One control plane, all contenders by turns. The example then starts again on the objects that it has
finished, and must not write anything.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import aiohttp

from bench.cluster import (
    ROOT,
    BenchCluster,
    BenchError,
    SampleSet,
    count_write_requests,
    open_cluster,
)
from bench.contender import (
    Contender,
    Result,
    contender_process,
    measure_contender,
)
from bench.process_stats import peak_rss_bytes
from bench.report import Target, align_columns, target_lines
from bench.restart import (
    RECONCILE_TIMEOUT_SECONDS,
    RECONCILES_METRIC,
    find_metrics_port,
    measure_idle_cpu,
    read_counters,
)
from bench.run import run_process
from bench.same_writes import check_same_writes
from bench.workload import WatchedObject, Workload
from examples.myapp import MyApp, MyAppSpec
from hack.count_code_lines import count_code_lines
from kubewright import Controller, KubewrightError, ObjectMeta
from kubewright.api.apps_v1 import Deployment
from kubewright.api.core_v1 import ConfigMap, Service, ServiceAccount
from kubewright.testing import eventually

_BARE = Contender(
    "bare loop",
    "bare",
    "bench.contenders.myapp_bare",
    (str(Controller.max_concurrent_reconciles),),
)
_WATCHING_BARE = Contender(
    "bare loop with watches",
    "watching",
    "bench.contenders.myapp_bare",
    (str(Controller.max_concurrent_reconciles), "watch"),
)
_RUNTIME = Contender("kubewright", "runtime", "bench.contenders.myapp_runtime")
_KOPF = Contender("kopf, tuned", "kopf", "bench.contenders.myapp_kopf")
_GO = Contender("controller-runtime, tuned", "go", "", program="myappcontrollerruntime")
_CONTENDERS = (_BARE, _WATCHING_BARE, _RUNTIME, _GO, _KOPF)
_SOURCES = {
    _RUNTIME.slug: ("examples/myapp.py",),
    _KOPF.slug: ("bench/contenders/myapp_kopf.py",),
    _GO.slug: tuple(
        f"bench/contenders/myappcontrollerruntime/{name}.go" for name in ("main", "types")
    ),
}
_CHILD_KINDS = (ConfigMap, ServiceAccount, Deployment, Service)
_WRITTEN_KINDS = (MyApp, *_CHILD_KINDS)
_WARM_UP_OBJECTS = 50
_MAX_RSS_MIB = 120.0


def _has_address(obj: WatchedObject) -> bool:
    # The status is written after the children, and has the address of one of them.
    return bool(obj.status and obj.status.address)


def _create_app(metadata: ObjectMeta, number: int) -> MyApp:
    config = {"number": str(number)}
    return MyApp(metadata=metadata, spec=MyAppSpec(image="registry.example/app:1", config=config))


MYAPPS = Workload(MyApp, _create_app, _has_address, _CHILD_KINDS)


@dataclass(frozen=True)
class RestResult:
    """A second start on finished objects, and the time after it."""

    seconds: float
    writes: int
    """Write requests for MyApps and their children that the API server counted."""
    cpu_percent: float
    rss_mib: float


async def _measure_turn(
    cluster: BenchCluster, contender: Contender, size: int, name: str
) -> tuple[Result, SampleSet]:
    samples = await cluster.create_samples(f"{name}-{contender.slug}", size)
    await cluster.collect_garbage()
    result = await measure_contender(cluster, contender, samples)
    for kind in _CHILD_KINDS:
        count = len(await cluster.list_resource_versions(samples.namespace, kind))
        if count != size:
            raise BenchError(f"{contender.name} left {count} of {size} {kind.definition.name}s")
    print(
        f"{name:<10} {contender.name:<26} {result.statuses_per_second:6.1f} objects/s  "
        f"{result.cpu_working_ms:6.2f} CPU ms/object  {result.peak_rss_mib:6.1f} MiB  "
        f"(other processes {100 * result.other_processes_cpu_share:.0f} %)",
        file=sys.stderr,
        flush=True,
    )
    return result, samples


async def _measure_rest(cluster: BenchCluster, samples: SampleSet, seconds: float) -> RestResult:
    """Start the example on objects that are done. The start must not write anything either."""
    before = await count_write_requests(cluster.transport, _WRITTEN_KINDS)
    process = contender_process(_RUNTIME, cluster, samples)
    async with run_process(process), aiohttp.ClientSession() as session:
        port = await eventually(
            lambda: find_metrics_port(process), within=RECONCILE_TIMEOUT_SECONDS
        )

        async def all_seen() -> bool:
            (reconciles,) = await read_counters(session, port, [RECONCILES_METRIC])
            return reconciles >= samples.count

        await eventually(all_seen, within=RECONCILE_TIMEOUT_SECONDS, every=0.2)
        percent = await measure_idle_cpu(process, seconds)
        rss = peak_rss_bytes(process.pid) / 2**20
    return RestResult(
        seconds,
        await count_write_requests(cluster.transport, _WRITTEN_KINDS) - before,
        percent,
        rss,
    )


async def _measure_all(
    size: int, turns: int, contenders: Sequence[Contender], rest_seconds: float
) -> tuple[dict[str, list[Result]], RestResult]:
    results: dict[str, list[Result]] = {contender.name: [] for contender in contenders}
    async with open_cluster(MYAPPS) as cluster:
        await check_same_writes(cluster, _BARE, _RUNTIME)
        for contender in contenders:
            _, samples = await _measure_turn(cluster, contender, _WARM_UP_OBJECTS, "warm-up")
            await cluster.delete_samples(samples)
        for turn in range(turns):
            first = turn % len(contenders)
            for contender in (*contenders[first:], *contenders[:first]):
                result, samples = await _measure_turn(cluster, contender, size, f"turn-{turn + 1}")
                results[contender.name].append(result)
                if contender is _RUNTIME and turn == turns - 1:
                    rest = await _measure_rest(cluster, samples, rest_seconds)
                await cluster.delete_samples(samples)
    return results, rest


def _count_lines(contender: Contender) -> str:
    total = 0
    for name in _SOURCES.get(contender.slug, ()):
        text = (ROOT / name).read_text()
        if name.endswith(".py"):
            total += count_code_lines(text)
        else:
            lines = [line.strip() for line in text.splitlines()]
            total += sum(1 for line in lines if line and not line.startswith("//"))
    return str(total) if total else "-"


def _format_table(results: dict[str, list[Result]], size: int) -> str:
    rows = [("contender", "lines", "objects/s", "of bare", "CPU ms/object", "RSS MiB", "turns")]
    bare = _median_rate(results[_BARE.name])
    rows += (
        (
            contender.name,
            _count_lines(contender),
            f"{_median_rate(own):.1f}",
            f"{_median_rate(own) / bare:.2f}x",
            f"{median(result.cpu_working_ms for result in own):.2f}",
            f"{median(result.peak_rss_mib for result in own):.1f}",
            str(len(own)),
        )
        for contender in _CONTENDERS
        if (own := results.get(contender.name))
    )
    return "\n".join([f"{size:,} MyApps with 4 children each, medians", *align_columns(rows)])


def _median_rate(results: list[Result]) -> float:
    return median(result.statuses_per_second for result in results)


def _targets(results: dict[str, list[Result]], rest: RestResult) -> list[Target]:
    ours, bare, watching = (
        results[contender.name] for contender in (_RUNTIME, _BARE, _WATCHING_BARE)
    )
    start = f"second start and {rest.seconds:g} s at rest"
    return [
        Target("objects/s, of the bare loop", _median_rate(ours) / _median_rate(bare), ">=", 0.9),
        Target(
            "objects/s, of the bare loop with watches",
            _median_rate(ours) / _median_rate(watching),
            ">=",
            0.9,
        ),
        Target("peak RSS", max(result.peak_rss_mib for result in ours), "<=", _MAX_RSS_MIB, " MiB"),
        Target(f"{start}: writes", rest.writes, "<=", 0),
        Target(f"{start}: peak RSS", rest.rss_mib, "<=", _MAX_RSS_MIB, " MiB"),
        Target(f"{start}: of a core", rest.cpu_percent, "<=", 1.0, " %"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.children", description=__doc__)
    parser.add_argument("-n", type=int, default=1_000, help="how many MyApps (1000)")
    parser.add_argument("--turns", type=int, default=5, help="turns of each contender (5)")
    parser.add_argument("--rest-seconds", type=float, default=60.0, help="time at rest (60)")
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        choices=[_GO.slug, _KOPF.slug],
        help="leave a contender out",
    )
    options = parser.parse_args()
    contenders = [contender for contender in _CONTENDERS if contender.slug not in options.skip]
    try:
        results, rest = asyncio.run(
            _measure_all(options.n, options.turns, contenders, options.rest_seconds)
        )
    except (BenchError, KubewrightError) as error:
        print(error, file=sys.stderr)
        return 2
    targets = _targets(results, rest)
    print(_format_table(results, options.n))
    print()
    print(target_lines(targets))
    return 0 if all(target.is_met for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
