"""What the optional features cost the manager: node labels, metrics of the inventory, the page.

    python -m bench.feature_overhead                          # 1,000 hosts, 2,000 VMs; 20 minutes
    python -m bench.feature_overhead --variants off,page --turns 1 --churn-minutes 1

The manager runs by turns with nothing, with one feature and with everything, on the same objects
and the same vCenter. All quickStats change every 20 s, and a VM of a Node moves every second. The
metrics are scraped every 15 s in every turn; with the page one client reads all changes. CPU and
memory are those that the kernel counts.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import msgspec

from bench.cluster import BINARIES, CRDS, CREATE_CONCURRENCY, connect_as_admin, install_contender
from bench.process_stats import cpu_seconds, peak_rss_bytes
from bench.report import Target, target_lines
from bench.vcenter_scale import NAMESPACE, VCenterBenchmark, manager_process
from kubewright import Client, ObjectMeta
from kubewright.builtin import Node
from kubewright.testing import eventually
from kubewright.testing.binaries import find_binaries
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.process import Process
from kubewright.transport import Request, Transport

sys.path.insert(0, str(Path(__file__).parents[1] / "testenv"))
from simulator import SimulatedVCenter

_LABELS = ("-label-nodes",)
_METRICS = ("-inventory-metrics", "-inventory-metrics-all-vms")
_PAGE = ("-ui-bind-address=127.0.0.1:0",)
_VARIANTS = {
    "off": (),
    "labels": _LABELS,
    "metrics": _METRICS,
    "page": _PAGE,
    "everything": (*_LABELS, *_METRICS, *_PAGE),
}
_MAX_RATIO = 1.3
_CHURN_SECONDS = 20.0
_SCRAPE_SECONDS = 15.0


@dataclass(frozen=True)
class Turn:
    cpu_share: float
    """Of one core, during the churn."""
    peak_mib: float


@dataclass(frozen=True)
class Environment:
    options: argparse.Namespace
    vcenter: SimulatedVCenter
    kubeconfig: Path
    trial: VCenterBenchmark
    nodes: Sequence[str]
    """Names of Nodes and of their VMs."""
    hosts: Sequence[str]


@asynccontextmanager
async def start_environment(
    options: argparse.Namespace, folder: Path
) -> AsyncIterator[Environment]:
    """An API server with Nodes, Pods and custom resources, and the vCenter that they are about."""
    per_cluster = max(1, options.hosts // 10)
    vcenter = SimulatedVCenter(
        BINARIES / "vcsim",
        folder / "vcsim",
        f"--clusters={options.hosts // per_cluster}",
        f"--hosts={per_cluster}",
        f"--vms={options.vms * per_cluster // options.hosts}",
        "--host-pattern=esxi-%04d.rainpole.com",
    )
    async with ControlPlane(find_binaries(folders=[BINARIES])) as plane:
        transport = connect_as_admin(plane)
        try:
            await vcenter.start()
            kubeconfig = await install_contender(plane, CRDS)
            for namespace in (NAMESPACE, "more"):
                plane.create_namespace(namespace)
            nodes = await _rename_vms(vcenter, options.nodes)
            entities = await vcenter.entities()
            hosts = [item["name"] for item in entities if item["type"] == "HostSystem"]
            vms = [item["name"] for item in entities if item["type"] == "VirtualMachine"]
            trial = VCenterBenchmark(options, plane, vcenter, Client(transport), transport)
            await trial.create_objects(hosts, vms)
            await _create_nodes_and_pods(transport, nodes, options.pods)
            yield Environment(options, vcenter, kubeconfig, trial, nodes, hosts)
        finally:
            await vcenter.stop()
            await transport.close()


async def _rename_vms(vcenter: SimulatedVCenter, count: int) -> list[str]:
    """Gives some VMs names that are valid for Nodes, which are matched by name."""
    entities = await vcenter.entities()
    names = [item["name"] for item in entities if item["type"] == "VirtualMachine"][:count]
    for number, name in enumerate(names):
        await vcenter.rename(name, f"node-{number}")
    return [f"node-{number}" for number in range(len(names))]


async def _create_nodes_and_pods(transport: Transport, nodes: list[str], pods: int) -> None:
    client = Client(transport)
    for name in nodes:
        await client.create(Node(metadata=ObjectMeta(name=name)))
    numbers = iter(range(pods))

    async def create_remaining() -> None:
        for number in numbers:
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"pod-{number}", "labels": {"app": f"app-{number % 50}"}},
                "spec": {
                    "nodeName": nodes[number % len(nodes)],
                    "automountServiceAccountToken": False,
                    "containers": [{"name": "c", "image": "i"}],
                },
            }
            request = Request(
                "POST",
                f"/api/v1/namespaces/{NAMESPACE}/pods",
                body=msgspec.json.encode(body),
                content_type="application/json",
                operation="create",
            )
            await transport.send(request)

    await asyncio.gather(*(create_remaining() for _ in range(CREATE_CONCURRENCY)))


def _find_port(manager: Process, purpose: str) -> int:
    for line in manager.log.read_bytes().splitlines() if manager.log.exists() else ():
        with suppress(msgspec.DecodeError):
            record = msgspec.json.decode(line)
            if record.get("msg") == f"serving {purpose}":
                return int(record["port"])
    return 0


class Clients:
    """What reads and changes during a turn. A client that fails ends the run."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._tasks: list[asyncio.Task[None]] = []
        self.metrics = ""
        self.event_bytes = self.moves = 0

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    def raise_failures(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def scrape(self, port: int) -> None:
        while True:
            async with self._session.get(f"http://127.0.0.1:{port}/metrics") as response:
                response.raise_for_status()
                self.metrics = await response.text()
            await asyncio.sleep(_SCRAPE_SECONDS)

    async def read_page(self, port: int) -> None:
        """What one open page asks for: the whole model, then all changes."""
        url = f"http://127.0.0.1:{port}/topology"
        async with self._session.get(url) as response:
            response.raise_for_status()
            revision = msgspec.json.decode(await response.read())["revision"]
        timeout = aiohttp.ClientTimeout(total=None)
        address = f"{url}/events?since={revision}"
        async with self._session.get(address, timeout=timeout) as response:
            response.raise_for_status()
            async for data in response.content.iter_any():
                self.event_bytes += len(data)

    async def move_vms(self, environment: Environment) -> None:
        numbers = random.Random(1)
        while True:
            vm, host = numbers.choice(environment.nodes), numbers.choice(environment.hosts)
            await environment.vcenter.move_vm(vm, host)
            self.moves += 1
            await asyncio.sleep(1)


def _count_writes(metrics: str) -> int:
    """Statuses and labels that were written; the features must not make statuses fewer."""
    lines = (line for line in metrics.splitlines() if line.startswith("rest_client_requests_total"))
    writes = (line for line in lines if 'method="PATCH"' in line or 'method="PUT"' in line)
    return sum(int(float(line.rpartition(" ")[2])) for line in writes)


async def _measure_turn(environment: Environment, manager: Process, variant: str) -> Turn:
    options, vcenter = environment.options, environment.vcenter
    flags = _VARIANTS[variant]
    manager.start()
    try:
        async with aiohttp.ClientSession() as session:
            clients = Clients(session)
            try:
                port = await eventually(lambda: _find_port(manager, "metrics"), within=60)
                await environment.trial.wait_until_ready(options.crs)
                clients.start(clients.scrape(port))
                if set(_PAGE) <= set(flags):
                    page = await eventually(lambda: _find_port(manager, "the page"), within=60)
                    clients.start(clients.read_page(page))
                clients.start(clients.move_vms(environment))
                # Not measured: the first quickStats of all objects, the first scrape and the first
                # read of the model.
                await vcenter.churn_stats(drift=0.02)
                await asyncio.sleep(_CHURN_SECONDS)
                used, since = cpu_seconds(manager.pid), time.monotonic()
                for number in range(int(options.churn_minutes * 60 / _CHURN_SECONDS)):
                    await vcenter.churn_stats(drift=0.02 if number % 3 else 0.08)
                    end = since + _CHURN_SECONDS * (number + 1)
                    await asyncio.sleep(max(0.0, end - time.monotonic()))
                    clients.raise_failures()
                share = (cpu_seconds(manager.pid) - used) / (time.monotonic() - since)
                turn = Turn(share, peak_rss_bytes(manager.pid) / 2**20)
            finally:
                await clients.stop()
    finally:
        await manager.stop(10)
    print(
        f"{variant:11} {turn.cpu_share:6.2%} of a core, {turn.peak_mib:6.1f} MiB "
        f"({clients.moves} moves, {_count_writes(clients.metrics)} patches, "
        f"{len(clients.metrics) / 1000:.0f} kB a scrape, "
        f"{clients.event_bytes / 2**20:.1f} MiB of events)",
        flush=True,
    )
    return turn


def _make_manager(environment: Environment, folder: Path, flags: Sequence[str]) -> Process:
    folder.mkdir()
    return manager_process(
        environment.kubeconfig,
        environment.vcenter,
        folder,
        *flags,
        module="vsphere_operators.main",
    )


async def _write_statuses(environment: Environment, folder: Path) -> None:
    """Not a turn: the first manager writes all statuses, the later ones find them."""
    manager = _make_manager(environment, folder / "first", ())
    manager.start()
    try:
        await environment.trial.wait_until_ready(environment.options.crs)
    finally:
        await manager.stop(10)


async def run_benchmark(options: argparse.Namespace, folder: Path) -> int:
    variants = options.variants.split(",")
    turns: dict[str, list[Turn]] = {variant: [] for variant in variants}
    async with start_environment(options, folder) as environment:
        await _write_statuses(environment, folder)
        # Every second round backwards, so that no variant is always the first.
        rounds = itertools.islice(itertools.cycle((variants, variants[::-1])), options.turns)
        for number, variant in enumerate(itertools.chain.from_iterable(rounds)):
            turn_folder = folder / str(number)
            manager = _make_manager(environment, turn_folder, _VARIANTS[variant])
            turns[variant].append(await _measure_turn(environment, manager, variant))

    def median_of(variant: str, figure: Callable[[Turn], float]) -> float:
        return median(map(figure, turns[variant]))

    targets = [
        Target(
            f"{name}, {variant} to off", median_of(variant, figure) / base, "<=", _MAX_RATIO, "x"
        )
        for name, figure in (("CPU", _cpu_share), ("memory", _peak_mib))
        for base in (median_of("off", figure),)
        for variant in variants
        if variant != "off"
    ]
    print(target_lines(targets))
    return 0 if all(target.is_met for target in targets) else 1


def _cpu_share(turn: Turn) -> float:
    return turn.cpu_share


def _peak_mib(turn: Turn) -> float:
    return turn.peak_mib


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.feature_overhead", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--vms", type=int, default=2000)
    parser.add_argument("--crs", type=int, default=3000, help="HostInfos and VMInfos")
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=2, help="turns of each variant")
    parser.add_argument("--churn-minutes", type=float, default=2.0)
    parser.add_argument(
        "--variants", default=",".join(_VARIANTS), help=f"some of {', '.join(_VARIANTS)}"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run_benchmark(options, Path(folder)))


if __name__ == "__main__":
    raise SystemExit(main())
