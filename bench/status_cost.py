"""What a status costs the API server, by the form of the write and of the CRD.

    python -m bench.status_cost [-n OBJECTS] [--turns N] [--forms A;B] [--gc] [--json FILE]
    python -m bench.status_cost --turns 0 -n 5000 --profile "merge patch" [--gc]

Creates HostInfos on a real API server and writes their statuses with a bare client, once with all
fields and once with the two that move with the load. All forms take turns in one run, each with new
objects. A watch receives every object, as that of the manager does. CPU of the API server is read
from outside; `today` is the form that all others are compared with.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench.cluster import CREATE_CONCURRENCY, MANUAL_GC, ROOT, BenchCluster, open_cluster
from bench.cpu_profile import print_attribution
from bench.process_stats import cpu_seconds
from bench.status_forms import (
    FORMS,
    TODAY,
    StatusForm,
    StatusWrite,
    build_crd,
    build_object,
    build_status,
    group_of,
)
from kubewright.kubeconfig import load_config
from kubewright.patch import Json
from kubewright.testing import eventually
from kubewright.transport import Request, Transport
from kubewright.yaml_text import to_yaml

RESULTS = ROOT / "bench/results"
PHASES = ("first", "change")
_WATCH_SECONDS = 3600
_PROFILE_SECONDS_PER_WRITE = 0.01


@dataclass(frozen=True)
class Cost:
    """One phase of one turn. CPU in milliseconds for each write."""

    form: str
    phase: str
    turn: int
    writes: int
    server_ms: float
    etcd_ms: float
    allocated_kib: float
    allocations: float


class WatchCounter:
    """Counts the changes that a watch of a collection delivers."""

    def __init__(self, transport: Transport, path: str, resource_version: str) -> None:
        self._transport, self._path = transport, path
        self._resource_version = resource_version
        self.events = 0
        self.is_open = False

    async def run(self) -> None:
        query = f"watch=1&resourceVersion={self._resource_version}&timeoutSeconds={_WATCH_SECONDS}"
        request = Request("GET", self._path, query=query, operation="watch the statuses")
        lines = self._transport.stream_lines(
            request, idle_timeout_seconds=_WATCH_SECONDS, on_open=self._set_open
        )
        async for _ in lines:
            self.events += 1

    def _set_open(self) -> None:
        self.is_open = True


class StatusBench:
    def __init__(self, cluster: BenchCluster, transport: Transport, count: int) -> None:
        """`transport` has the credentials of a service account, as the manager in a cluster."""
        self._cluster, self._transport, self._count = cluster, transport, count

    async def install(self, forms: Sequence[StatusForm]) -> None:
        variants = sorted({form.crd for form in forms})
        crds = [build_crd(variant) for variant in variants]
        await asyncio.to_thread(self._cluster.control_plane.apply, to_yaml(*crds))
        for variant in variants:
            await eventually(partial(self._list, variant, "default"), within=30)

    async def run_turn(self, form: StatusForm, namespace: str, turn: int) -> list[Cost]:
        """Both phases with new objects, which are deleted afterwards."""
        async with self._objects(form, namespace) as objects:
            costs = []
            for phase in PHASES:
                await self._cluster.collect_garbage()
                costs.append(await self._measure(form, objects, phase, turn))
            return costs

    async def profile(self, form: StatusForm, namespace: str) -> bytes:
        """A CPU profile of the API server during the first writes."""
        async with self._objects(form, namespace) as objects:
            seconds = 5 + round(self._count * _PROFILE_SECONDS_PER_WRITE)
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
            cost = await self._measure(form, objects, "first", 0)
            print(f"{cost.server_ms:.2f} ms of CPU for each status", file=sys.stderr)
            return await profile

    @asynccontextmanager
    async def _objects(self, form: StatusForm, namespace: str) -> AsyncIterator[dict[str, Json]]:
        path = _collection(form, namespace)
        await asyncio.to_thread(self._cluster.control_plane.create_namespace, namespace)
        await self._create(form, path)
        page = await self._list(form.crd, namespace)
        objects = {item["metadata"]["name"]: _without_managers(item) for item in page["items"]}
        counter = WatchCounter(self._transport, path, page["metadata"]["resourceVersion"])
        self._counter = counter
        watch = asyncio.create_task(counter.run()) if form.watched else None
        try:
            if watch is not None:
                await eventually(lambda: counter.is_open, within=10)
            yield objects
        finally:
            if watch is not None:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)
            await self._transport.send(
                Request("DELETE", path, operation="delete the objects", timeout_seconds=120)
            )

    async def _create(self, form: StatusForm, path: str) -> None:
        bodies = (msgspec.json.encode(build_object(form.crd, n)) for n in range(self._count))

        async def create_some() -> None:
            for body in bodies:
                request = Request(
                    "POST", path, "fieldManager=kubectl-create", body, "application/json"
                )
                await self._transport.send(request)

        await asyncio.gather(*(create_some() for _ in range(CREATE_CONCURRENCY)))

    async def _list(self, variant: str, namespace: str) -> Json:
        path = f"/apis/{group_of(variant)}/v1/namespaces/{namespace}/hostinfoes"
        page: Json = msgspec.json.decode(await self._transport.send(Request("GET", path)))
        return page

    async def _measure(
        self, form: StatusForm, objects: dict[str, Json], phase: str, turn: int
    ) -> Cost:
        moves = 0 if phase == "first" else 1
        writes: list[tuple[str, Json]] = []
        for number, name in enumerate(sorted(objects)):
            old = objects[name].get("status", {}) if moves else {}
            writes.append((name, {"old": old, "new": build_status(number, moves)}))
        plane, expected = self._cluster.control_plane, self._counter.events + len(objects)
        bytes_before, allocations_before = await self._read_allocations()
        etcd_before = cpu_seconds(plane.etcd.process.pid)
        before = cpu_seconds(plane.apiserver.process.pid)
        await self._write_all(form, objects, iter(writes))
        if form.watched:
            await eventually(lambda: self._counter.events >= expected, within=30, every=0.01)
        server = cpu_seconds(plane.apiserver.process.pid) - before
        etcd = cpu_seconds(plane.etcd.process.pid) - etcd_before
        bytes_after, allocations_after = await self._read_allocations()
        count = len(objects)
        return Cost(
            form.name,
            phase,
            turn,
            count,
            1000 * server / count,
            1000 * etcd / count,
            (bytes_after - bytes_before) / 1024 / count,
            (allocations_after - allocations_before) / count,
        )

    async def _write_all(
        self, form: StatusForm, objects: dict[str, Json], writes: Iterator[tuple[str, Json]]
    ) -> None:
        async def write_some() -> None:
            for name, change in writes:
                stored = objects[name]
                path = f"{_collection(form, stored['metadata']['namespace'])}/{name}"
                write = StatusWrite(path, stored, change["old"], change["new"])
                written = msgspec.json.decode(await self._transport.send(form.build(write)))
                if written.get("status", change["new"]) != change["new"]:
                    raise SystemExit(f"{form.name} stored another status: {written['status']}")
                stored["metadata"] = _without_managers(written)["metadata"]
                stored["status"] = change["new"]

        await asyncio.gather(*(write_some() for _ in range(CREATE_CONCURRENCY)))

    async def _read_allocations(self) -> tuple[float, float]:
        """Bytes and objects that the API server has allocated since its start."""
        body = await self._transport.send(Request("GET", "/metrics", accept="text/plain"))
        names = (b"alloc_bytes_total", b"mallocs_total")
        allocated, objects = (
            float(re.findall(rb"^go_memstats_%s (\S+)$" % name, body, re.MULTILINE)[0])
            for name in names
        )
        return allocated, objects


def _collection(form: StatusForm, namespace: str) -> str:
    return f"/apis/{group_of(form.crd)}/v1/namespaces/{namespace}/hostinfoes"


def _without_managers(obj: Json) -> Json:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return obj | {"metadata": metadata}


def _spread(values: Sequence[float], digits: int) -> str:
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def print_table(costs: Sequence[Cost], forms: Sequence[StatusForm]) -> None:
    """Medians of the turns with their spread; a ratio is of the same turn."""
    by_turn = {(cost.form, cost.phase, cost.turn): cost for cost in costs}
    for phase in PHASES:
        print(f"\n{phase} write\n")
        print("| form | API server ms | of today's | etcd ms | KiB allocated | of today's |")
        print("|---|---|---|---|---|---|")
        for form in forms:
            own = [cost for cost in costs if (cost.form, cost.phase) == (form.name, phase)]
            today = [by_turn[TODAY.name, phase, cost.turn] for cost in own]
            pairs = list(zip(own, today, strict=True))
            cpu = [cost.server_ms / base.server_ms for cost, base in pairs]
            allocated = [cost.allocated_kib / base.allocated_kib for cost, base in pairs]
            print(
                f"| {form.name} | {_spread([cost.server_ms for cost in own], 2)} "
                f"| {_spread(cpu, 3)} | {statistics.median(cost.etcd_ms for cost in own):.2f} "
                f"| {statistics.median(cost.allocated_kib for cost in own):.0f} "
                f"| {statistics.median(allocated):.3f} |"
            )


async def run(options: argparse.Namespace) -> None:
    names = [TODAY.name, *options.forms.split(";")] if options.forms else []
    forms = [form for form in FORMS if not names or form.name in names]
    environ: dict[str, str] = {} if options.gc else dict(MANUAL_GC)
    if options.gc:
        environ["GOGC"] = "100"
    costs: list[Cost] = []
    async with open_cluster(environ=environ) as cluster:
        kubeconfig = str(cluster.contender_kubeconfig)
        connection = load_config(kubeconfig, environ=os.environ, home=Path.home())
        transport = Transport(connection, user_agent="vsphere-operators")
        bench = StatusBench(cluster, transport, options.n)
        try:
            await bench.install(forms)
            for turn in range(options.turns):
                shift = turn % len(forms)
                for number, form in enumerate(forms[shift:] + forms[:shift]):
                    costs += await bench.run_turn(form, f"turn-{turn}-{number}", turn)
                print(f"turn {turn + 1} of {options.turns} is done", file=sys.stderr)
            if options.profile:
                form = next(form for form in FORMS if form.name == options.profile)
                await bench.install([form])
                _save_profile(form, await bench.profile(form, "profile"))
        finally:
            await transport.close()
    if costs:
        print_table(costs, forms)
        _write_json(options.json, costs)


def _save_profile(form: StatusForm, profile: bytes) -> None:
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"status-{form.name.replace(' ', '-').replace(',', '')}.pprof"
    file.write_bytes(profile)
    print_attribution(file)


def _write_json(file: Path, costs: Sequence[Cost]) -> None:
    file.parent.mkdir(exist_ok=True)
    records: list[dict[str, Any]] = [asdict(cost) for cost in costs]
    file.write_bytes(msgspec.json.format(msgspec.json.encode(records)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-n", type=int, default=1000, metavar="OBJECTS")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--forms", default="", help="names, separated by semicolons; default: all")
    parser.add_argument("--gc", action="store_true", help="let the API server collect garbage")
    parser.add_argument("--profile", default="", metavar="FORM", help="profile this form at last")
    parser.add_argument("--json", type=Path, default=RESULTS / "status-cost.json")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
