"""The cost of the topology: the manager with and without it, and idle clients of its events.

    python -m bench.topology            # 1,000 hosts and 2,000 VMs under churn; about ten minutes
    python -m bench.topology --clients-only

Both managers run one after the other with equal objects in equal vCenters. While the topology is
served, one client reads its events. The idle clients are in this process, the server in another.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import msgspec

from bench.cluster import BINARIES, CRDS, CREATE_CONCURRENCY, connect_as_admin, install_contender
from bench.process_stats import cpu_seconds, peak_rss_bytes
from bench.vcenter_scale import NAMESPACE, VCenterBenchmark, manager_process
from kubewright import Client, ObjectMeta
from kubewright.builtin import Node
from kubewright.testing import eventually
from kubewright.testing.binaries import find_binaries
from kubewright.testing.controlplane import ControlPlane
from kubewright.transport import Request, Transport

sys.path.insert(0, str(Path(__file__).parents[1] / "testenv"))
from simulator import SimulatedVCenter

_PORT = 19090
_CHURN_SECONDS = 20.0
_CLIENTS = 200
_RATIO_LIMIT, _CLIENTS_LIMIT_MIB = 1.3, 20.0


def _rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


async def _measure_manager(options: argparse.Namespace, *, page: bool) -> tuple[float, float]:
    """The share of a core that the manager uses during churn, and its peak memory in MiB."""
    per_cluster = max(1, options.hosts // 10)
    size = (
        f"--clusters={options.hosts // per_cluster}",
        f"--hosts={per_cluster}",
        f"--vms={options.vms * per_cluster // options.hosts}",
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        vcenter = SimulatedVCenter(
            BINARIES / "vcsim", folder / "vcsim", *size, "--host-pattern=esxi-%04d.rainpole.com"
        )
        async with ControlPlane(find_binaries(folders=[BINARIES])) as plane:
            transport = connect_as_admin(plane)
            try:
                await vcenter.start()
                kubeconfig = await install_contender(plane, CRDS)
                for namespace in (NAMESPACE, "more"):
                    plane.create_namespace(namespace)
                benchmark = VCenterBenchmark(options, plane, vcenter, Client(transport), transport)
                entities = await vcenter.entities()
                hosts = [item["name"] for item in entities if item["type"] == "HostSystem"]
                vms = [item["name"] for item in entities if item["type"] == "VirtualMachine"]
                await benchmark.create_objects(hosts, vms)
                await _create_nodes_and_pods(transport, vms[: options.nodes], options.pods)
                flags = [f"-ui-bind-address=127.0.0.1:{_PORT}"] if page else []
                manager = manager_process(kubeconfig, vcenter, folder, *flags)
                manager.start()
                try:
                    await benchmark.wait_until_ready(options.crs)
                    return await _measure_churn(options, vcenter, manager.pid, page=page)
                finally:
                    await manager.stop(10)
            finally:
                await vcenter.stop()
                await transport.close()


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
            path = f"/api/v1/namespaces/{NAMESPACE}/pods"
            request = Request(
                "POST",
                path,
                body=msgspec.json.encode(body),
                content_type="application/json",
                operation="create",
            )
            await transport.send(request)

    await asyncio.gather(*(create_remaining() for _ in range(CREATE_CONCURRENCY)))


async def _measure_churn(
    options: argparse.Namespace, vcenter: SimulatedVCenter, pid: int, *, page: bool
) -> tuple[float, float]:
    received = 0

    async def read_events() -> None:
        nonlocal received
        address = f"http://127.0.0.1:{_PORT}/topology"
        async with aiohttp.ClientSession() as session:
            async with session.get(address) as response:
                body = await response.read()
                print(f"    the model has {len(body) / 2**20:.2f} MiB", flush=True)
            timeout = aiohttp.ClientTimeout(total=None)
            async with session.get(f"{address}/events", timeout=timeout) as response:
                async for data in response.content.iter_any():
                    received += len(data)

    reader = asyncio.create_task(read_events()) if page else None
    try:
        # Not measured: the first quickStats of all objects, and the first read of the model.
        await vcenter.churn_stats(drift=0.02)
        await asyncio.sleep(_CHURN_SECONDS)
        used, began = cpu_seconds(pid), time.monotonic()
        for number in range(options.rounds):
            await vcenter.churn_stats(drift=0.02 if number % 3 else 0.08)
            await asyncio.sleep(max(0.0, began + _CHURN_SECONDS * (number + 1) - time.monotonic()))
        share = (cpu_seconds(pid) - used) / (time.monotonic() - began)
        if page:
            print(f"    events: {received / 2**20:.1f} MiB", flush=True)
        return share, peak_rss_bytes(pid) / 2**20
    finally:
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)


async def _measure_clients() -> float:
    """MiB that 200 idle clients cost the process of the server, after changes of all objects."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.contenders.topology_server", stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        address = f"http://127.0.0.1:{int(await process.stdout.readline())}/events"
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            events = [0] * _CLIENTS

            async def read(index: int) -> None:
                async with session.get(address) as response:
                    async for line in response.content:
                        events[index] += line.startswith(b"event: ")

            # The first client makes the server do everything once.
            first = asyncio.create_task(read(0))
            await eventually(lambda: events[0] >= 10, within=60)
            before = _rss_bytes(process.pid)
            others = [asyncio.create_task(read(index)) for index in range(1, _CLIENTS)]
            await eventually(lambda: min(events) >= 10, within=120)
            after = _rss_bytes(process.pid)
            for task in (first, *others):
                task.cancel()
            await asyncio.gather(first, *others, return_exceptions=True)
            return (after - before) / 2**20
    finally:
        process.kill()
        await process.wait()


def _check_limit(what: str, value: float, limit: float, unit: str) -> bool:
    kept = value <= limit
    print(f"{what:52} {value:8.2f} {unit:4} <= {limit:g}  {'ok' if kept else 'FAILED'}", flush=True)
    return kept


async def _run(options: argparse.Namespace) -> int:
    outcomes = [
        _check_limit(
            f"memory of {_CLIENTS} idle clients",
            await _measure_clients(),
            _CLIENTS_LIMIT_MIB,
            "MiB",
        )
    ]
    if not options.clients_only:
        figures = {}
        for page in (False, True):
            figures[page] = share, memory = await _measure_manager(options, page=page)
            state = "with" if page else "without"
            print(f"    {state} the topology: {share:.2%} of a core, {memory:.1f} MiB", flush=True)
        for index, what in enumerate(("CPU during churn", "peak memory")):
            ratio = figures[True][index] / figures[False][index]
            outcomes.append(_check_limit(f"{what}, with to without", ratio, _RATIO_LIMIT, "x"))
    return 0 if all(outcomes) else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.topology", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--vms", type=int, default=2000)
    parser.add_argument("--crs", type=int, default=3000)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--clients-only", action="store_true")
    return asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    raise SystemExit(main())
