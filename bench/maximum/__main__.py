"""One manager with 2,500 hosts, 45,000 VMs and 100,000 objects, measured from outside.

    python -m bench.maximum                  # the first run creates everything: 15 minutes
    python -m bench.maximum --only edits     # edits during a cold start of 10,000

The objects and their statuses are kept in --data, so that later runs only take minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.cluster import ROOT
from bench.replayed_vcenter.disks import ReplayedDisks
from bench.replayed_vcenter.inventory import ReplayedInventory
from bench.replayed_vcenter.process import ReplayedVCenter
from kubewright.testing import eventually

from .objects import NAMESPACES, Names, build_objects, create_objects, namespace_of, open_cluster
from .phases import (
    Edits,
    Environment,
    measure_churn,
    measure_edits,
    measure_rest,
    measure_start,
    render,
)
from .process import MeasuredManager
from .report import print_report

_START_LIMIT_SECONDS = 1800.0
_SETTLE_SECONDS = 10.0
_COLD_EDIT_GAP_SECONDS = 0.2
# The cold start is over when fewer objects wait than the manager has workers.
_FEW_WAITING = 64


async def prepare(options: argparse.Namespace, vcenter: ReplayedVCenter, count: int) -> Path:
    """The folder with the data of etcd that has the objects; created if it does not exist."""
    target = options.data / f"created-{options.hosts}-{options.vms}-{count}"
    if target.is_dir():
        return Path(target)
    names = await read_names(options, vcenter)
    with tempfile.TemporaryDirectory() as folder:
        async with open_cluster(Path(folder) / "plane") as cluster:
            for number in range(NAMESPACES):
                cluster.plane.create_namespace(namespace_of(number))
            print(f"creating {count} objects", flush=True)
            await create_objects(cluster.client, build_objects(names, count), count)
            await cluster.save(target)
    return Path(target)


async def read_names(options: argparse.Namespace, vcenter: ReplayedVCenter) -> Names:
    entities = await vcenter.entities()
    # The replay does not list its disks, so create the same ones from the same datastores.
    inventory = ReplayedInventory()
    for entity in entities:
        inventory.add(entity["type"], entity["ref"], {})
    disks = ReplayedDisks(inventory, options.disks).disks.values()
    return Names.of(entities, [disk.name for disk in disks])


@asynccontextmanager
async def open_environment(
    options: argparse.Namespace, vcenter: ReplayedVCenter, data: Path, count: int, *flags: str
) -> AsyncIterator[Environment]:
    names = await read_names(options, vcenter)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        async with open_cluster(folder / "plane", data) as cluster:
            manager = MeasuredManager(cluster.kubeconfig, vcenter, folder / "manager", *flags)
            entities = await vcenter.entities()
            environment = Environment(cluster, vcenter, manager, names, entities, count)
            try:
                yield environment
            finally:
                await environment.manager.stop()


async def measure_maximum(
    options: argparse.Namespace, vcenter: ReplayedVCenter
) -> dict[str, object]:
    created = await prepare(options, vcenter, options.objects)
    settled = options.data / created.name.replace("created", "settled")
    data = settled if settled.is_dir() else created
    async with open_environment(options, vcenter, data, options.objects) as environment:
        await environment.cluster.fill_watch_caches()
        await asyncio.sleep(_SETTLE_SECONDS)
        if data is created:
            await measure_start(environment, "first statuses", _START_LIMIT_SECONDS)
            await environment.restart_manager()
        await measure_start(environment, "restart", _START_LIMIT_SECONDS)
        if options.only != "start":
            await asyncio.sleep(_SETTLE_SECONDS)
            await measure_rest(environment, options.rest_seconds)
            await measure_edits(environment, "edits at rest", options.edits)
            await measure_churn(environment, options.churn_seconds, options.warm_up_seconds)
            await measure_edits(environment, "edits during churn", options.edits, seed=6)
            await vcenter.set_churn(stats=False)
        unknown = (await vcenter.state())["unknownMethods"]
        if unknown:
            print(f"the replay does not know these methods: {', '.join(unknown)}", flush=True)
        if data is created:
            await environment.manager.stop()
            await environment.cluster.save(settled)
    return environment.results


async def measure_cold_edits(
    options: argparse.Namespace, vcenter: ReplayedVCenter
) -> dict[str, object]:
    """Edits while a manager writes the first status of 10,000 objects."""
    created = await prepare(options, vcenter, options.cold_objects)
    async with open_environment(options, vcenter, created, options.cold_objects) as environment:
        await environment.cluster.fill_watch_caches()
        manager, edits = environment.manager, Edits(environment, seed=7)
        manager.start()
        await manager.wait_until_ready(_START_LIMIT_SECONDS)
        await eventually(
            lambda: manager.read_metric("kubewright_status_writes_total"), within=300, every=0.2
        )
        began, count = time.monotonic(), 0
        async with edits.observe():
            while await manager.read_metric("workqueue_depth") > _FEW_WAITING:
                await edits.edit_one()
                count += 1
                await asyncio.sleep(_COLD_EDIT_GAP_SECONDS)
            await edits.wait()
        result = {
            **edits.summarize(),
            "seconds": time.monotonic() - began,
            "stall_ms": manager.longest_stall().ms,
        }
        print(f"edits during a cold start of {options.cold_objects}: {render(result)}", flush=True)
        return {"edits during a cold start": result}


async def run(options: argparse.Namespace) -> int:
    options.data.mkdir(parents=True, exist_ok=True)
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        vcenter = ReplayedVCenter(
            Path(folder),
            *(f"--hosts={options.hosts}", f"--vms={options.vms}", f"--disks={options.disks}"),
        )
        try:
            await vcenter.start()
            if options.only == "prepare":
                await prepare(options, vcenter, options.objects)
                await prepare(options, vcenter, options.cold_objects)
                return 0
            if options.only != "edits":
                results |= await measure_maximum(options, vcenter)
            if options.only in ("", "edits"):
                results |= await measure_cold_edits(options, vcenter)
        finally:
            await vcenter.stop()
    sizes = {name: getattr(options, name) for name in ("hosts", "vms", "objects", "cold_objects")}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"sizes": sizes, "results": results}, indent=2))
    return print_report(results)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.maximum", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--hosts", type=int, default=2500)
    parser.add_argument("--vms", type=int, default=45_000)
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--disks", type=int, default=1000)
    parser.add_argument("--cold-objects", type=int, default=10_000)
    parser.add_argument("--edits", type=int, default=200)
    parser.add_argument("--rest-seconds", type=float, default=30.0)
    parser.add_argument("--warm-up-seconds", type=float, default=30.0)
    parser.add_argument("--churn-seconds", type=float, default=90.0)
    parser.add_argument("--only", choices=("", "prepare", "start", "maximum", "edits"), default="")
    parser.add_argument("--data", type=Path, default=ROOT / "bench/results/maximum")
    parser.add_argument(
        "--json", type=Path, default=ROOT / f"bench/results/maximum-{time.strftime('%H%M%S')}.json"
    )
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    raise SystemExit(main())
