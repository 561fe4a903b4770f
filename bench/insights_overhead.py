"""What node labels, inventory metrics and the page cost, with a large simulated vCenter.

    python -m bench.insights_overhead                      # 1,000 hosts and 2,000 VMs; 12 minutes
    python -m bench.insights_overhead --hosts 100 --vms 200 --churn-minutes 1 --turns 1

The manager runs by turns with everything off and everything on. All quickStats change every 20 s
and a VM moves every second. Prometheus' scrape is imitated every 15 s in both, and with everything
on a browser's stream of changes is read. CPU and memory are measured from outside.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
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
from kubewright import Client
from kubewright.api_requests import request_for
from kubewright.builtin import Node, Pod
from kubewright.kind import Key
from kubewright.testing import eventually
from kubewright.testing.binaries import find_binaries
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.process import Process

sys.path.insert(0, str(Path(__file__).parents[1] / "testenv"))
from simulator import SimulatedVCenter

_SWITCHES = (
    "-label-nodes",
    "-inventory-metrics",
    "-inventory-metrics-all-vms",
    "-ui-bind-address=127.0.0.1:0",
)
_MAX_RATIO = 1.3
_CHURN_SECONDS = 20.0
_SCRAPE_SECONDS = 15.0
_NODE_SHARE = 0.1
_PODS_PER_NODE = 5


@dataclass(frozen=True)
class Turn:
    cpu_percent: float
    """Of one core, during the churn."""
    peak_rss_mib: float


async def _create_nodes(client: Client, vcenter: SimulatedVCenter, count: int) -> list[str]:
    """Nodes for the first VMs, with Pods on them; returns the names of the VMs."""
    vms = (await vcenter.vms())[:count]
    bodies: list[tuple[type[Any], str, dict[str, Any]]] = []
    for vm in vms:
        node = vm["name"].lower().replace("_", "-")
        provider_id = f"vsphere://{vm['uuid']}"
        bodies.append((Node, "", {"metadata": {"name": node}, "spec": {"providerID": provider_id}}))
        for number in range(_PODS_PER_NODE):
            spec = {"nodeName": node, "containers": [{"name": "app", "image": "app"}]}
            metadata = {"name": f"{node}-{number}"}
            bodies.append((Pod, NAMESPACE, {"metadata": metadata, "spec": spec}))
    remaining = iter(bodies)

    async def work() -> None:
        for kind, namespace, body in remaining:
            definition = kind.definition
            manifest = {"apiVersion": definition.api_version, "kind": definition.name, **body}
            request = request_for("POST", definition, Key(namespace, ""), body=manifest)
            await client.transport.send(request)

    await asyncio.gather(*(work() for _ in range(CREATE_CONCURRENCY)))
    return [vm["name"] for vm in vms]


def _find_port(process: Process, message: str) -> int:
    for line in process.log.read_bytes().splitlines():
        with suppress(msgspec.DecodeError):
            record = msgspec.json.decode(line)
            if record.get("msg") == message:
                return int(record["port"])
    return 0


async def _scrape_repeatedly(session: aiohttp.ClientSession, port: int) -> None:
    while True:
        async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
            await response.read()
        await asyncio.sleep(_SCRAPE_SECONDS)


async def _read_changes(session: aiohttp.ClientSession, port: int) -> None:
    """What one open page costs: the whole model once, then all changes."""
    url = f"http://127.0.0.1:{port}/topology"
    async with session.get(url) as response:
        revision = msgspec.json.decode(await response.read())["revision"]
    timeout = aiohttp.ClientTimeout(total=None)
    async with session.get(f"{url}/events?since={revision}", timeout=timeout) as response:
        async for _ in response.content.iter_any():
            pass


async def _move_vms(vcenter: SimulatedVCenter, vms: Sequence[str], hosts: Sequence[str]) -> None:
    numbers = random.Random(1)
    while True:
        await vcenter.move_vm(numbers.choice(vms), numbers.choice(hosts))
        await asyncio.sleep(1)


async def _measure_turn(
    trial: VCenterBenchmark, manager: Process, vms: Sequence[str], *, is_on: bool
) -> Turn:
    options, vcenter = trial.options, trial.vcenter
    hosts = [
        entity["name"] for entity in await vcenter.entities() if entity["type"] == "HostSystem"
    ]
    manager.start()
    tasks: list[asyncio.Task[None]] = []
    try:
        async with aiohttp.ClientSession() as session:
            port = await eventually(lambda: _find_port(manager, "serving metrics"), within=60)
            await trial.wait_until_ready(options.hosts)
            tasks.append(asyncio.create_task(_scrape_repeatedly(session, port)))
            if is_on:
                page = await eventually(lambda: _find_port(manager, "serving the page"), within=60)
                tasks.append(asyncio.create_task(_read_changes(session, page)))
            tasks.append(asyncio.create_task(_move_vms(vcenter, vms, hosts)))
            used, since = cpu_seconds(manager.pid), time.monotonic()
            for number in range(int(options.churn_minutes * 60 / _CHURN_SECONDS)):
                await vcenter.churn_stats(drift=0.02 if number % 3 else 0.08)
                await asyncio.sleep(
                    max(0.0, since + _CHURN_SECONDS * (number + 1) - time.monotonic())
                )
                for task in tasks:
                    if task.done():
                        task.result()
            share = (cpu_seconds(manager.pid) - used) / (time.monotonic() - since)
            result = Turn(100 * share, peak_rss_bytes(manager.pid) / 2**20)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        await manager.stop(10)
    state = "on" if is_on else "off"
    print(f"{state:4} {result.cpu_percent:6.1f} % of a core, {result.peak_rss_mib:6.1f} MiB")
    return result


async def run_benchmark(options: argparse.Namespace, folder: Path) -> int:
    per_cluster = max(1, options.hosts // 10)
    vcenter = SimulatedVCenter(
        BINARIES / "vcsim",
        folder / "vcsim",
        f"--clusters={options.hosts // per_cluster}",
        f"--hosts={per_cluster}",
        f"--vms={options.vms * per_cluster // options.hosts}",
    )
    turns: dict[bool, list[Turn]] = {False: [], True: []}
    async with ControlPlane(find_binaries(folders=[BINARIES])) as plane:
        transport = connect_as_admin(plane)
        try:
            await vcenter.start()
            kubeconfig = await install_contender(plane, CRDS)
            client = Client(transport)
            trial = VCenterBenchmark(options, plane, vcenter, client, transport)
            for namespace in (NAMESPACE, "more"):
                plane.create_namespace(namespace)
            entities = await vcenter.entities()
            names = [entity["name"] for entity in entities if entity["type"] == "HostSystem"]
            vms = await _create_nodes(client, vcenter, int(options.vms * _NODE_SHARE))
            await trial.create_objects(names, vms)
            order = itertools.islice(itertools.cycle((False, True, True, False)), 2 * options.turns)
            for number, is_on in enumerate(order):
                turn_folder = folder / str(number)
                turn_folder.mkdir()
                flags = _SWITCHES if is_on else ()
                manager = manager_process(kubeconfig, vcenter, turn_folder, *flags)
                turns[is_on].append(await _measure_turn(trial, manager, vms, is_on=is_on))
        finally:
            await vcenter.stop()
            await transport.close()
    off, on = (
        (
            median(turn.cpu_percent for turn in turns[is_on]),
            median(turn.peak_rss_mib for turn in turns[is_on]),
        )
        for is_on in (False, True)
    )
    targets = [
        Target("CPU, everything on to everything off", on[0] / off[0], "<=", _MAX_RATIO, "x"),
        Target("peak memory, on to off", on[1] / off[1], "<=", _MAX_RATIO, "x"),
    ]
    print(target_lines(targets))
    return 0 if all(target.is_met for target in targets) else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.insights_overhead", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--vms", type=int, default=2000)
    parser.add_argument("--crs", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=2, help="turns of each (2)")
    parser.add_argument("--churn-minutes", type=float, default=2.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run_benchmark(options, Path(folder)))


if __name__ == "__main__":
    raise SystemExit(main())
