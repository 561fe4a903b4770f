"""The objects of one form in one turn: writes their statuses in batches, and measures each batch.

Batches of all forms alternate, since the speed of a shared machine changes within seconds.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import msgspec

from bench.cluster import CREATE_CONCURRENCY, BenchCluster, BenchError
from bench.process_stats import cpu_seconds
from bench.status_forms import StatusForm, StatusWrite, build_object, build_status, group_of
from kubewright.patch import Json
from kubewright.testing import eventually
from kubewright.transport import Request, Transport

_WATCH_SECONDS = 3600


@dataclass(frozen=True)
class Usage:
    """What the API server and etcd have used since they were started."""

    server_seconds: float
    etcd_seconds: float
    allocated_bytes: float

    def since(self, earlier: Usage) -> Usage:
        return Usage(
            self.server_seconds - earlier.server_seconds,
            self.etcd_seconds - earlier.etcd_seconds,
            self.allocated_bytes - earlier.allocated_bytes,
        )

    def plus(self, other: Usage) -> Usage:
        return Usage(
            self.server_seconds + other.server_seconds,
            self.etcd_seconds + other.etcd_seconds,
            self.allocated_bytes + other.allocated_bytes,
        )


NOTHING = Usage(0.0, 0.0, 0.0)


class Meter:
    """Reads the usage of the control plane."""

    def __init__(self, cluster: BenchCluster, transport: Transport) -> None:
        self._plane, self._transport = cluster.control_plane, transport
        self._scrape_bytes = 0.0

    async def calibrate(self) -> None:
        """Measure what reading the allocations allocates."""
        samples = [await self._read_allocated_bytes() for _ in range(10)]
        steps = sorted(after - before for before, after in pairwise(samples))
        self._scrape_bytes = steps[len(steps) // 2]

    async def before(self) -> Usage:
        allocated = await self._read_allocated_bytes() + self._scrape_bytes
        server, etcd = self._read_cpu()
        return Usage(server, etcd, allocated)

    async def after(self) -> Usage:
        server, etcd = self._read_cpu()
        return Usage(server, etcd, await self._read_allocated_bytes())

    def _read_cpu(self) -> tuple[float, float]:
        plane = self._plane
        return cpu_seconds(plane.apiserver.process.pid), cpu_seconds(plane.etcd.process.pid)

    async def _read_allocated_bytes(self) -> float:
        body = await self._transport.send(Request("GET", "/metrics", accept="text/plain"))
        [allocated] = re.findall(rb"^go_memstats_alloc_bytes_total (\S+)$", body, re.MULTILINE)
        return float(allocated)


class WatchCounter:
    """Counts the changes that a watch of a collection delivers."""

    def __init__(self, transport: Transport, path: str, resource_version: str) -> None:
        self._transport, self._path = transport, path
        self._resource_version = resource_version
        self.events = 0
        self.is_open = False

    async def run(self) -> None:
        # The API server ends a watch that is too slow; it continues at its last resourceVersion.
        while True:
            version = self._resource_version
            query = f"watch=1&resourceVersion={version}&timeoutSeconds={_WATCH_SECONDS}"
            request = Request("GET", self._path, query=query, operation="watch the statuses")
            lines = self._transport.stream_lines(
                request, idle_timeout_seconds=_WATCH_SECONDS, on_open=self._set_open
            )
            async for line in lines:
                event = msgspec.json.decode(line)
                if event["type"] != "MODIFIED":
                    raise BenchError(f"the watch of {self._path} delivered {event}")
                self._resource_version = event["object"]["metadata"]["resourceVersion"]
                self.events += 1

    def _set_open(self) -> None:
        self.is_open = True


class FormRun:
    """The objects of one form."""

    def __init__(
        self,
        form: StatusForm,
        transport: Transport,
        path: str,
        objects: dict[str, Json],
        counter: WatchCounter,
    ) -> None:
        self.form, self._transport, self._path = form, transport, path
        self._objects, self._counter = objects, counter
        self._written = 0
        self.usage: dict[str, Usage] = {}
        """By phase."""

    def batches(self, phase: str, size: int) -> Iterator[list[StatusWrite]]:
        """The writes of a phase, which are built when they are due."""
        numbered = list(enumerate(sorted(self._objects)))
        for start in range(0, len(numbered), size):
            yield [
                self._build_write(phase, number, name)
                for number, name in numbered[start : start + size]
            ]

    def _build_write(self, phase: str, number: int, name: str) -> StatusWrite:
        stored = self._objects[name]
        is_first = phase == "first"
        old = {} if is_first else stored["status"]
        new = build_status(number, 0 if is_first else 1)
        return StatusWrite(f"{self._path}/{name}", stored, old, new)

    async def measure(self, meter: Meter, phase: str, batch: list[StatusWrite]) -> None:
        before = await meter.before()
        await self.send(batch)
        used = (await meter.after()).since(before)
        self.usage[phase] = self.usage.get(phase, NOTHING).plus(used)

    async def send(self, batch: list[StatusWrite]) -> None:
        """Write the statuses, and wait until the watch has delivered them."""
        writes = iter(batch)
        await asyncio.gather(*(self._send_remaining(writes) for _ in range(CREATE_CONCURRENCY)))
        self._written += len(batch)
        if self.form.watched:
            await eventually(lambda: self._counter.events >= self._written, within=30, every=0.005)

    async def _send_remaining(self, writes: Iterator[StatusWrite]) -> None:
        for write in writes:
            written = msgspec.json.decode(await self._transport.send(self.form.build(write)))
            if written.get("status", write.new) != write.new:
                raise SystemExit(f"{self.form.name} stored another status: {written['status']}")
            write.stored["metadata"] = _without_managers(written)["metadata"]
            write.stored["status"] = write.new


def collection_path(variant: str, namespace: str) -> str:
    return f"/apis/{group_of(variant)}/v1/namespaces/{namespace}/hostinfoes"


async def read_collection(transport: Transport, path: str) -> Json:
    page: Json = msgspec.json.decode(await transport.send(Request("GET", path)))
    return page


@asynccontextmanager
async def open_form(
    form: StatusForm, cluster: BenchCluster, transport: Transport, namespace: str, count: int
) -> AsyncIterator[FormRun]:
    """New objects and their watch; the objects are deleted at the end."""
    path = collection_path(form.crd, namespace)
    await asyncio.to_thread(cluster.control_plane.create_namespace, namespace)
    await _create_objects(form, transport, path, count)
    page = await read_collection(transport, path)
    objects = {item["metadata"]["name"]: _without_managers(item) for item in page["items"]}
    counter = WatchCounter(transport, path, page["metadata"]["resourceVersion"])
    watch = asyncio.create_task(counter.run()) if form.watched else None
    try:
        if watch is not None:
            await eventually(lambda: counter.is_open, within=10)
        yield FormRun(form, transport, path, objects, counter)
    finally:
        if watch is not None:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        await transport.send(
            Request("DELETE", path, operation="delete the objects", timeout_seconds=120)
        )


async def _create_objects(form: StatusForm, transport: Transport, path: str, count: int) -> None:
    bodies = (msgspec.json.encode(build_object(form.crd, number)) for number in range(count))

    async def create_remaining(bodies: Iterator[bytes]) -> None:
        for body in bodies:
            await transport.send(
                Request("POST", path, "fieldManager=kubectl-create", body, "application/json")
            )

    create = partial(create_remaining, bodies)
    await asyncio.gather(*(create() for _ in range(CREATE_CONCURRENCY)))


def _without_managers(obj: Json) -> Json:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return obj | {"metadata": metadata}
