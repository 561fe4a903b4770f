"""The manager with a large simulated vCenter: latency of changes, cost of churn, and memory.

    python -m bench.vcenter_scale       # 1,000 hosts, 2,000 VMs, 10,000 objects; about ten minutes
    python -m bench.vcenter_scale --churn-minutes 1 --crs 1000

Everything is measured from outside: statuses by a watch, calls by the counters of the simulator,
memory by the kernel. Only stalls of the event loop are measured inside the process: a service in it
reads the clock every 5 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from bench.cluster import BINARIES, CRDS, CREATE_CONCURRENCY, connect_as_admin, install_contender
from bench.process_stats import cpu_seconds, peak_rss_bytes
from kubewright import Client, Key, ObjectMeta
from kubewright.testing import eventually
from kubewright.testing.binaries import find_binaries
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.process import Process
from kubewright.transport import Request, Transport
from vsphere_operators.kinds.hostinfo import HostInfo, HostInfoSpec
from vsphere_operators.kinds.vminfo import VMInfo, VMInfoSpec

sys.path.insert(0, str(Path(__file__).parents[1] / "testenv"))
from simulator import SimulatedVCenter

NAMESPACE = "scale"
_STALL_LIMIT_SECONDS = 0.25
_LATENCY_LIMIT_SECONDS = 1.0
_RSS_LIMIT_MIB = 200.0
_STATS_INTERVAL_SECONDS = 60.0
_LARGE_CHANGE_SHARE = 0.05


@dataclass
class StatusWrite:
    time: float
    status: dict[str, Any]


@dataclass
class StatusWatcher:
    """Watches the statuses of the hosts' objects."""

    transport: Transport
    resource_version: str
    writes: dict[str, list[StatusWrite]] = field(default_factory=lambda: defaultdict(list))

    async def run(self) -> None:
        while True:
            query = (
                f"watch=1&resourceVersion={self.resource_version}"
                "&timeoutSeconds=3600&allowWatchBookmarks=true"
            )
            request = Request(
                "GET",
                HostInfo.definition.path(NAMESPACE),
                query=query,
                operation="watch",
                timeout_seconds=3600,
            )
            async for line in self.transport.stream_lines(request, idle_timeout_seconds=120):
                event = msgspec.json.decode(line)
                metadata = event["object"]["metadata"]
                self.resource_version = metadata["resourceVersion"]
                if event["type"] == "MODIFIED":
                    self.writes[metadata["name"]].append(
                        StatusWrite(time.monotonic(), event["object"].get("status", {}))
                    )

    async def _wait_for_maintenance_mode(self, name: str, after: float, expected: bool) -> float:
        """Seconds from `after` until the object shows this maintenance mode."""

        def first_time() -> float | None:
            for write in reversed(self.writes[name]):
                if write.time >= after and write.status.get("maintenanceMode") is expected:
                    return write.time - after
            return None

        return await eventually(first_time, within=30, every=0.005) or 0.0


class VCenterBenchmark:
    def __init__(
        self,
        options: argparse.Namespace,
        control_plane: ControlPlane,
        vcenter: SimulatedVCenter,
        client: Client,
        transport: Transport,
    ) -> None:
        self.options, self.control_plane, self.vcenter = options, control_plane, vcenter
        self.client, self.transport = client, transport
        self.outcomes: list[bool] = []

    def check_limit(self, what: str, value: float, limit: float, unit: str) -> None:
        kept = value <= limit
        self.outcomes.append(kept)
        print(
            f"{what:62} {value:10.3f} {unit:8} <= {limit:g}  {'ok' if kept else 'FAILED'}",
            flush=True,
        )

    def check_stalls_and_memory(self, stalls: Path, pid: int) -> None:
        at_start, later = stalls.read_text().split()[:2]
        what = "longest stall of the event loop after the start"
        self.check_limit(what, float(later), _STALL_LIMIT_SECONDS, "s")
        print(f"    at the start {at_start} s", flush=True)
        self.check_limit("peak memory", peak_rss_bytes(pid) / 2**20, _RSS_LIMIT_MIB, "MiB")

    async def create_objects(self, names: list[str], machines: list[str]) -> None:
        """One object for each host, then more for VMs and hosts by turns."""
        objects: list[Any] = [_host_info(NAMESPACE, i, name) for i, name in enumerate(names)]
        for i in range(self.options.crs - len(objects)):
            if i % 2:
                objects.append(_host_info("more", i, names[i % len(names)]))
            else:
                metadata = ObjectMeta(namespace="more", name=f"vm-{i}")
                spec = VMInfoSpec(nodename=machines[i % len(machines)])
                objects.append(VMInfo(metadata=metadata, spec=spec))
        remaining = iter(objects)

        async def work() -> None:
            for obj in remaining:
                await self.client.create(obj)

        await asyncio.gather(*(work() for _ in range(CREATE_CONCURRENCY)))

    async def wait_until_ready(self, count: int) -> None:
        async def ready() -> bool:
            count_ready = 0
            for kind in (HostInfo, VMInfo):
                async for page in self.client.list_pages(kind):
                    for obj in page.items:
                        assert isinstance(obj, (HostInfo, VMInfo))
                        count_ready += any(
                            c.type == "Ready" and c.status == "True" for c in obj.status.conditions
                        )
            return count_ready >= count

        await eventually(ready, within=600, every=2)

    async def _measure_latencies(self, watcher: StatusWatcher, names: list[str]) -> None:
        """Measures single changes, then 100 at once."""
        seconds = []
        for number in range(self.options.changes):
            index = (number * 37) % len(names)
            began = time.monotonic()
            await self.vcenter.set_maintenance(names[index])
            seconds.append(await watcher._wait_for_maintenance_mode(f"host-{index}", began, True))
        for number in range(self.options.changes):
            index = (number * 37) % len(names)
            began = time.monotonic()
            await self.vcenter.set_maintenance(names[index], on=False)
            seconds.append(await watcher._wait_for_maintenance_mode(f"host-{index}", began, False))
        self.check_limit(
            "a change in vCenter until its status, p99 of single changes",
            _quantile(seconds, 0.99),
            _LATENCY_LIMIT_SECONDS,
            "s",
        )
        print(f"    median {statistics.median(seconds):.3f} s, {len(seconds)} changes", flush=True)
        targets = [(index, names[index]) for index in range(0, min(len(names), 500), 5)]
        began = time.monotonic()
        await asyncio.gather(*(self.vcenter.set_maintenance(name) for _, name in targets))
        together = [
            await watcher._wait_for_maintenance_mode(f"host-{index}", began, True)
            for index, _ in targets
        ]
        print(
            f"    {len(targets)} changes at once: the last after {max(together):.3f} s, "
            "including the work of the simulator",
            flush=True,
        )
        await asyncio.gather(*(self.vcenter.set_maintenance(name, on=False) for _, name in targets))

    async def _measure_edits(self) -> None:
        """1,000 edits of objects cause no calls except WaitForUpdatesEx and periodic ones."""
        await self.vcenter.reset_call_counts()
        numbers = iter(range(1000))

        async def work() -> None:
            for number in numbers:
                key = Key(NAMESPACE, f"host-{number % self.options.hosts}")
                await self.client.patch(
                    HostInfo, key, {"metadata": {"labels": {"edit": str(number)}}}
                )

        await asyncio.gather(*(work() for _ in range(8)))
        calls = {
            method: count
            for method, count in (await self.vcenter.call_counts()).items()
            if method != "WaitForUpdatesEx"
        }
        self.check_limit(
            "calls to vCenter during 1,000 edits, but WaitForUpdatesEx",
            sum(calls.values()),
            0,
            "calls",
        )
        if calls:
            print(f"    {calls}", flush=True)

    async def measure_churn(self, watcher: StatusWatcher) -> None:
        """Changes all quickStats every 20 s; small changes are written once an interval."""
        watcher.writes.clear()
        began, rounds = time.monotonic(), int(self.options.churn_minutes * 3)
        for number in range(rounds):
            # Every third time some changes are large.
            await self.vcenter.churn_stats(drift=0.02 if number % 3 else 0.08)
            await asyncio.sleep(max(0.0, began + 20.0 * (number + 1) - time.monotonic()))
        seconds = time.monotonic() - began
        over = sum(_count_excess_writes(writes, seconds) for writes in watcher.writes.values())
        total = sum(map(len, watcher.writes.values()))
        self.check_limit("small moves written beyond one an interval", over, 0, "writes")
        per_object = total / max(1, len(watcher.writes))
        print(
            f"    {total} statuses written in {seconds:.0f} s: {total / seconds:.1f}/s, "
            f"{per_object:.1f} an object",
            flush=True,
        )


def _host_info(namespace: str, number: int, hostname: str) -> HostInfo:
    metadata = ObjectMeta(namespace=namespace, name=f"host-{number}")
    return HostInfo(metadata=metadata, spec=HostInfoSpec(hostname=hostname))


def _count_excess_writes(writes: list[StatusWrite], seconds: float) -> int:
    """Small changes that were written more often than once an interval.

    Their distance is not checked: a write waits behind a burst of others.
    """
    small = sum(not _is_large_change(before.status, now.status) for before, now in pairwise(writes))
    return max(0, small - int(seconds // _STATS_INTERVAL_SECONDS) - 1)


def _is_large_change(before: dict[str, Any], now: dict[str, Any]) -> bool:
    parts = (("freeCPU", "totalCPU"), ("freeMemoryMB", "totalMemoryMB"))
    return any(
        abs(now.get(free, 0) - before.get(free, 0)) > _LARGE_CHANGE_SHARE * now.get(total, 1)
        for free, total in parts
    )


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def run_benchmark(options: argparse.Namespace, folder: Path) -> int:
    per_cluster = max(1, options.hosts // 10)
    size = (
        f"--clusters={options.hosts // per_cluster}",
        f"--hosts={per_cluster}",
        f"--vms={options.vms * per_cluster // options.hosts}",
    )
    vcenter = SimulatedVCenter(
        BINARIES / "vcsim", folder / "vcsim", *size, "--host-pattern=esxi-%04d.rainpole.com"
    )
    async with ControlPlane(find_binaries(folders=[BINARIES])) as plane:
        transport = connect_as_admin(plane)
        try:
            print(
                f"starting a vCenter with {options.hosts} hosts and {options.vms} VMs", flush=True
            )
            await vcenter.start()
            kubeconfig = await install_contender(plane, CRDS)
            manager = manager_process(kubeconfig, vcenter, folder)
            trial = VCenterBenchmark(options, plane, vcenter, Client(transport), transport)
            try:
                await measure(trial, manager)
                trial.check_stalls_and_memory(folder / "stalls", manager.pid)
            finally:
                await manager.stop(10)
        finally:
            await vcenter.stop()
            await transport.close()
    return 0 if all(trial.outcomes) else 1


def manager_process(
    kubeconfig: Path,
    vcenter: SimulatedVCenter,
    folder: Path,
    *flags: str,
    module: str = "bench.contenders.vcenter_manager",
) -> Process:
    """The manager; not started. The default writes its longest stalls into `folder`/stalls."""
    credentials = folder / "creds"
    credentials.mkdir()
    for key, text in (
        ("GOVMOMI_URL", vcenter.url),
        ("GOVMOMI_USERNAME", vcenter.user),
        ("GOVMOMI_PASSWORD", vcenter.password),
    ):
        (credentials / key).write_text(text)
    command = [
        *(sys.executable, "-m", module),
        "-metrics-addr=127.0.0.1:0",
        f"-kubeconfig={kubeconfig}",
        f"-vcenter-credentials={credentials}",
        f"-vcenter-ca-file={vcenter.certificate}",
        *flags,
    ]
    environ = {**os.environ, "STALLS": str(folder / "stalls")}
    return Process("manager", command, folder / "manager.log", environ)


async def measure(trial: VCenterBenchmark, manager: Process) -> None:
    for namespace in (NAMESPACE, "more"):
        trial.control_plane.create_namespace(namespace)
    entities = await trial.vcenter.entities()
    names = [entity["name"] for entity in entities if entity["type"] == "HostSystem"]
    machines = [entity["name"] for entity in entities if entity["type"] == "VirtualMachine"]
    await trial.create_objects(names, machines)
    print(f"{trial.options.crs} objects; starting the manager", flush=True)
    began = time.monotonic()
    manager.start()
    await trial.wait_until_ready(trial.options.crs)
    print(
        f"all ready after {time.monotonic() - began:.1f} s, "
        f"{cpu_seconds(manager.pid):.1f} s of CPU",
        flush=True,
    )
    revision = await anext(
        page.resource_version
        async for page in trial.client.list_pages(HostInfo, NAMESPACE, limit=1)
    )
    watcher = StatusWatcher(trial.transport, revision)
    watching = asyncio.create_task(watcher.run())
    try:
        await trial._measure_latencies(watcher, names)
        await trial._measure_edits()
        used, since = cpu_seconds(manager.pid), time.monotonic()
        await trial.measure_churn(watcher)
        churn_share = (cpu_seconds(manager.pid) - used) / (time.monotonic() - since)
        print(f"    CPU during churn: {100 * churn_share:.1f} % of a core", flush=True)
    finally:
        watching.cancel()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.vcenter_scale", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--vms", type=int, default=2000)
    parser.add_argument("--crs", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--churn-minutes", type=float, default=5.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run_benchmark(options, Path(folder)))


if __name__ == "__main__":
    raise SystemExit(main())
