"""Statuses per second and memory of three replicas with shards, relative to one manager.

    python -m bench.sharding --api stub --objects 3000 --cores 0.2
    python -m bench.sharding --api real --objects 1000 --cores 0.1
    python -m bench.sharding --api stub --objects 3000 --cores 0      # without a limit
    python -m bench.sharding --filter         # an API server without sharded list and watch
    python -m bench.sharding --memory --objects 100000

All MyCustomResources name one Pod. When it is created or deleted, every status changes. The
benchmark counts the writes with a watch of its own. Each manager has a CPU limit of `--cores`, as a
Pod may have; the benchmark, the API server and etcd have none.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.cluster import BINARIES, CREATE_CONCURRENCY, ROOT, connect_as_admin
from bench.cpu_limit import CpuLimitError, limit_cpu
from bench.process_stats import cpu_seconds, memory_bytes
from bench.stub_api import FRIEND, NAMESPACE
from kubewright import Client, Key, ObjectMeta
from kubewright.builtin import Lease, Pod
from kubewright.kubeconfig import Connection, Identity
from kubewright.testing import eventually
from kubewright.testing.binaries import find_binaries
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.process import Process
from kubewright.transport import Transport
from vsphere_operators.kinds.mycustomresource import MyCustomResource, MyCustomResourceSpec

SYSTEM_NAMESPACE = "vsphere-operators-system"
REPLICAS, SHARDS = 3, 12


@dataclass(frozen=True)
class ApiServer:
    kubeconfig: Path
    client: Client


@dataclass(frozen=True)
class Measurement:
    """One manager, or several that share the objects. The memory is that of the largest."""

    managers: int
    statuses_per_second: float
    spread: tuple[float, float]
    cpu_cores: tuple[float, ...]
    rss_mib: float


@asynccontextmanager
async def run_stub(folder: Path, objects: int, *, sharded_list: bool) -> AsyncIterator[ApiServer]:
    log = folder / "stub.log"
    arguments = [sys.executable, "-m", "bench.stub_api", f"--objects={objects}"]
    if sharded_list:
        arguments.append("--shards-supported")
    process = Process("stub", arguments, log)
    process.start()
    try:
        await eventually(lambda: log.exists() and "port" in log.read_text(), within=120)
        port = json.loads(log.read_text().splitlines()[-1])["port"]
        url = f"http://127.0.0.1:{port}"
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(_format_kubeconfig(url))
        transport = Transport(Connection(server=url, identity=Identity(), source="the bench"))
        yield ApiServer(kubeconfig, Client(transport))
        await transport.close()
    finally:
        await process.kill()


def _format_kubeconfig(url: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bench",
            "clusters": [{"name": "bench", "cluster": {"server": url}}],
            "users": [{"name": "bench", "user": {}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        }
    )


@asynccontextmanager
async def run_real(folder: Path, objects: int) -> AsyncIterator[ApiServer]:
    async with ControlPlane(find_binaries(folders=[BINARIES])) as plane:
        await asyncio.to_thread(plane.kubectl, "apply", "-k", str(ROOT / "config/crd"))
        await asyncio.to_thread(plane.wait_for_crds)
        for namespace in (NAMESPACE, SYSTEM_NAMESPACE):
            await asyncio.to_thread(plane.create_namespace, namespace)
        transport = connect_as_admin(plane)
        client = Client(transport)
        numbers = iter(range(objects))
        async with asyncio.TaskGroup() as group:
            for _ in range(CREATE_CONCURRENCY):
                group.create_task(_create_objects(client, numbers))
        yield ApiServer(plane.admin_kubeconfig, client)
        await transport.close()


async def _create_objects(client: Client, numbers: Iterator[int]) -> None:
    for number in numbers:
        metadata = ObjectMeta(name=f"object-{number}", namespace=NAMESPACE)
        spec = MyCustomResourceSpec(name=FRIEND)
        await client.create(MyCustomResource(metadata=metadata, spec=spec))


@asynccontextmanager
async def run_managers(
    api: ApiServer, folder: Path, count: int, shards: int, objects: int
) -> AsyncIterator[list[int]]:
    """The pids of the managers, once all statuses are written and the shards are balanced."""
    async with AsyncExitStack() as stack:
        processes = []
        lease = f"bench-{count}-{time.monotonic_ns()}"
        for number in range(count):
            process = Process(
                "manager",
                [
                    sys.executable,
                    "-m",
                    "vsphere_operators.main",
                    f"--kubeconfig={api.kubeconfig}",
                    f"--shards={shards}",
                    "--leader-elect",
                    f"--leader-election-namespace={SYSTEM_NAMESPACE}",
                    f"--leader-election-id={lease}",
                    "--metrics-addr=0",
                ],
                folder / f"manager-{count}-{number}.log",
            )
            process.start()
            processes.append(process)
            stack.push_async_callback(process.kill)
        await eventually(lambda: _is_balanced(api.client, lease, count, shards), within=180)
        await _wait_for_statuses(api.client, objects)
        yield [process.pid for process in processes]


async def _is_balanced(client: Client, lease: str, count: int, shards: int) -> bool:
    leases = await client.list(Lease, SYSTEM_NAMESPACE)
    prefix = f"{lease}-shard-" if shards > 1 else lease
    holders = [item.spec.holderIdentity for item in leases if item.metadata.name.startswith(prefix)]
    sizes = [holders.count(holder) for holder in set(holders)]
    return len(holders) == shards and len(sizes) == count and max(sizes) - min(sizes) <= 1


async def _wait_for_statuses(client: Client, objects: int) -> None:
    async def are_written() -> bool:
        items = await client.list(MyCustomResource)
        assert len(items) == objects
        return all(item.status.conditions for item in items)

    # A list of 100,000 objects takes the server seconds of CPU, which the managers need.
    await eventually(are_written, within=600, every=max(1.0, objects / 5000))


class WriteCounter:
    """Counts the objects that show the present state of the Pod."""

    def __init__(self, client: Client, objects: int) -> None:
        self._client, self._objects = client, objects
        self._names: set[str] = set()
        self._expected = False
        self.first_at = self.last_at = 0.0
        self.is_complete = asyncio.Event()

    def expect(self, healthy: bool) -> None:
        self._names, self._expected, self.first_at = set(), healthy, 0.0
        self.is_complete.clear()

    async def run(self, is_open: asyncio.Event) -> None:
        version = ""
        async for page in self._client.list_pages(MyCustomResource):
            version = page.resource_version
        async for event in self._client.watch(
            MyCustomResource,
            version,
            timeout_seconds=3000,
            idle_timeout_seconds=3000,
            on_open=is_open.set,
        ):
            obj = event.object
            if isinstance(obj, MyCustomResource) and obj.status.Healthy is self._expected:
                self._names.add(obj.metadata.name)
                self.last_at = time.monotonic()
                self.first_at = self.first_at or self.last_at
                if len(self._names) == self._objects:
                    self.is_complete.set()


async def measure(
    api: ApiServer, folder: Path, count: int, *, objects: int, cores: float, rounds: int
) -> Measurement:
    shards = SHARDS if count > 1 else 1
    async with run_managers(api, folder, count, shards, objects) as pids:
        counter, is_open = WriteCounter(api.client, objects), asyncio.Event()
        counting = asyncio.create_task(counter.run(is_open))
        await is_open.wait()
        rates, cores_by_round = [], []
        with limit_cpu(pids, cores) if cores else nullcontext():
            for number in range(rounds):
                exists = number % 2 == 0
                counter.expect(exists)
                cpu_before, started = [cpu_seconds(pid) for pid in pids], time.monotonic()
                await _set_pod(api.client, exists=exists)
                await asyncio.wait_for(counter.is_complete.wait(), 300)
                seconds = counter.last_at - counter.first_at
                rates.append(objects / seconds)
                elapsed = time.monotonic() - started
                cores_by_round.append(
                    [
                        (cpu_seconds(pid) - before) / elapsed
                        for pid, before in zip(pids, cpu_before, strict=True)
                    ]
                )
        counting.cancel()
        await asyncio.wait({counting})
        rss = _largest_rss_mib(pids)
        await _set_pod(api.client, exists=False)
        cpu_cores = tuple(median(values) for values in zip(*cores_by_round, strict=True))
        return Measurement(count, median(rates), (min(rates), max(rates)), cpu_cores, rss)


def _largest_rss_mib(pids: Sequence[int]) -> float:
    return max(memory_bytes(pid)[0] for pid in pids) / 2**20


async def _set_pod(client: Client, *, exists: bool) -> None:
    key = Key(NAMESPACE, FRIEND)
    if exists:
        spec = {"containers": [{"name": "main", "image": "none"}]}
        pod = {"metadata": {"name": key.name, "namespace": key.namespace}, "spec": spec}
        await client.patch(Pod, key, pod, patch_type="apply")
    else:
        await client.delete(Pod, key, grace_period_seconds=0)


async def measure_memory(api: ApiServer, folder: Path, count: int, objects: int) -> list[float]:
    """MiB of each manager, the largest first."""
    async with run_managers(api, folder, count, SHARDS if count > 1 else 1, objects) as pids:
        return sorted((memory_bytes(pid)[0] / 2**20 for pid in pids), reverse=True)


def print_rates(one: Measurement, three: Measurement, cores: float, api: str) -> None:
    limit = f"{cores:g} of a core for each manager" if cores else "no CPU limit"
    print(f"\n{api} API server, {limit}, {os.cpu_count()} cores")
    for result in (one, three):
        low, high = result.spread
        cores_used = ", ".join(f"{value:.2f}" for value in result.cpu_cores)
        print(
            f"{result.managers} manager(s): {result.statuses_per_second:6.0f} statuses/s "
            f"({low:.0f} to {high:.0f}), cores used {cores_used}, RSS {result.rss_mib:.0f} MiB"
        )
    print(f"ratio {three.statuses_per_second / one.statuses_per_second:.2f}")


async def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sharding")
    parser.add_argument("--api", choices=["stub", "real"], default="stub")
    parser.add_argument("--objects", type=int, default=3000)
    parser.add_argument("--cores", type=float, default=0.2, help="of each manager; 0 for no limit")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--filter", action="store_true", help="without sharded list and watch")
    parser.add_argument("--memory", action="store_true", help="measure memory only")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="bench-sharding-"))
    server = (
        run_stub(folder, options.objects, sharded_list=not options.filter)
        if options.api == "stub"
        else run_real(folder, options.objects)
    )
    try:
        async with server as api:
            if options.memory:
                (alone,), shared = [
                    await measure_memory(api, folder, count, options.objects)
                    for count in (1, REPLICAS)
                ]
                replicas = ", ".join(f"{size:.0f} MiB ({size / alone:.2f})" for size in shared)
                print(f"{options.objects} objects: one manager {alone:.0f} MiB")
                print(f"{REPLICAS} replicas, relative to it: {replicas}")
                return 0
            one, three = [
                await measure(
                    api,
                    folder,
                    count,
                    objects=options.objects,
                    cores=options.cores,
                    rounds=options.rounds,
                )
                for count in (1, REPLICAS)
            ]
    except CpuLimitError as error:
        print(error, file=sys.stderr)
        return 1
    print_rates(one, three, options.cores, options.api)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
