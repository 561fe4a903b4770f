"""Memory of a cache by what it selects, and streamed lists compared with pages.

    python -m bench.cache_selection [-n PODS] [--matching PODS] [--turns N]

Creates Pods on a real API server, of which some have a label. Then a process for each view of them
fills a cache and reports its memory; all views take turns. Each process lists as a stream
(WatchList) in one turn and in pages in the next.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.cluster import BINARIES, CREATE_CONCURRENCY, ROOT, connect_as_admin
from bench.contenders.pod_cache import Report
from bench.process_stats import cpu_seconds
from kubewright import Client
from kubewright.api.core_v1 import (
    Container,
    ContainerPort,
    EnvVar,
    Pod,
    PodSpec,
    ResourceRequirements,
)
from kubewright.kind import ObjectMeta
from kubewright.testing.binaries import find_binaries
from kubewright.testing.controlplane import ControlPlane
from kubewright.transport import Request, Transport

VIEWS = (
    "nothing",
    "all",
    "small class",
    "transform",
    "metadata only",
    "selection",
    "selection, metadata only",
)
MODES = ("stream", "pages")
_MIB = 1024 * 1024
_MAX_SELECTION_MIB = 3


@dataclass(frozen=True)
class Turn:
    view: str
    mode: str
    report: Report
    server_cpu_seconds: float
    server_allocated_bytes: float


def make_pod(number: int, *, matches: bool) -> Pod:
    """A Pod as a Deployment would create it, with a few kilobytes of JSON."""
    return Pod(
        metadata=ObjectMeta(
            name=f"web-6d4cf56db6-{number:05}",
            namespace="default",
            labels={
                "app": "web" if matches else f"app-{number % 97}",
                "pod-template-hash": "6d4cf56db6",
                "topology.kubernetes.io/zone": f"zone-{number % 3}",
            },
            annotations={"prometheus.io/scrape": "true", "checksum/config": f"{number:064x}"},
        ),
        spec=PodSpec(
            nodeName=f"node-{number % 100}",
            serviceAccountName="default",
            containers=[
                Container(
                    name=name,
                    image=f"registry.example.com/team/{name}:1.27.{number % 10}",
                    ports=[ContainerPort(containerPort=8080, name="http")],
                    env=[EnvVar(name=f"SETTING_{i}", value=f"value-{i}") for i in range(5)],
                    resources=ResourceRequirements(
                        requests={"cpu": "100m", "memory": "128Mi"}, limits={"memory": "256Mi"}
                    ),
                )
                for name in ("web", "sidecar")
            ],
        ),
    )


async def create_pods(client: Client, count: int, matching: int) -> None:
    numbers: Iterator[int] = iter(range(count))

    async def create_some() -> None:
        for number in numbers:
            await client.create(make_pod(number, matches=number < matching))

    await asyncio.gather(*(create_some() for _ in range(CREATE_CONCURRENCY)))


class ServerCost:
    """CPU and allocations of the API server."""

    def __init__(self, plane: ControlPlane, transport: Transport) -> None:
        self._plane, self._transport = plane, transport

    async def read(self) -> tuple[float, float]:
        body = await self._transport.send(Request("GET", "/metrics", accept="text/plain"))
        [allocated] = re.findall(rb"^go_memstats_alloc_bytes_total (\S+)$", body, re.MULTILINE)
        return cpu_seconds(self._plane.apiserver.process.pid), float(allocated)


async def run_turn(view: str, mode: str, kubeconfig: Path, server: ServerCost) -> Turn:
    cpu_before, allocated_before = await server.read()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.contenders.pod_cache",
        view,
        mode,
        str(kubeconfig),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"{view} ({mode}) failed with exit code {process.returncode}")
    report = msgspec.json.decode(output, type=Report)
    cpu, allocated = await server.read()
    return Turn(view, mode, report, cpu - cpu_before, allocated - allocated_before)


def print_table(turns: list[Turn]) -> None:
    print(
        "| cache of | list | objects | RSS MiB | peak RSS MiB | CPU s | server CPU s "
        "| server MiB allocated |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for view in VIEWS:
        for mode in MODES:
            selected = [turn for turn in turns if (turn.view, turn.mode) == (view, mode)]
            figures = [
                f"{statistics.median(read(turn) for turn in selected):.{digits}f}"
                for read, digits in _COLUMNS
            ]
            print(f"| {view} | {mode} | {' | '.join(figures)} |")


_COLUMNS: list[tuple[Callable[[Turn], float], int]] = [
    (lambda turn: turn.report.objects, 0),
    (lambda turn: turn.report.rss_bytes / _MIB, 1),
    (lambda turn: turn.report.peak_rss_bytes / _MIB, 1),
    (lambda turn: turn.report.cpu_seconds, 2),
    (lambda turn: turn.server_cpu_seconds, 2),
    (lambda turn: turn.server_allocated_bytes / _MIB, 0),
]


def is_target_met(turns: list[Turn]) -> bool:
    """Whether a cache of the selection is hardly larger than an empty one."""

    def median_rss(view: str) -> float:
        return statistics.median(turn.report.rss_bytes for turn in turns if turn.view == view)

    growth = (median_rss("selection") - median_rss("nothing")) / _MIB
    print(f"\nThe selection needs {growth:.1f} MiB; target: at most {_MAX_SELECTION_MIB} MiB")
    return growth <= _MAX_SELECTION_MIB


async def run(count: int, matching: int, turn_count: int) -> bool:
    async with ControlPlane(find_binaries(folders=[BINARIES])) as plane:
        transport = connect_as_admin(plane)
        print(f"creating {count} Pods, of which {matching} match", file=sys.stderr)
        await create_pods(Client(transport, field_manager="bench"), count, matching)
        server = ServerCost(plane, transport)
        turns: list[Turn] = []
        for number in range(turn_count):
            modes = MODES if number % 2 else MODES[::-1]
            turns += [
                await run_turn(view, mode, plane.admin_kubeconfig, server)
                for view in VIEWS
                for mode in modes
            ]
            print(f"\nMedians of {number + 1} turns:\n")
            print_table(turns)
        await transport.close()
        return is_target_met(turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-n", type=int, default=10_000, metavar="PODS", help="number of Pods")
    parser.add_argument("--matching", type=int, default=100, metavar="PODS")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    sys.exit(not asyncio.run(run(options.n, options.matching, options.turns)))


if __name__ == "__main__":
    main()
