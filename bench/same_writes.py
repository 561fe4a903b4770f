"""Checks at the start of every run that the bare loop sends the same writes as the runtime.

Both run through a proxy that records their requests.
"""

from __future__ import annotations

from collections.abc import Set
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from bench.cluster import BenchCluster, BenchError
from bench.contender import BARE, RUNTIME, Contender, measure_contender
from kubewright.testing.proxy import HttpProxy

_SAMPLE_COUNT = 3
_VOLATILE_FIELDS = (
    "resourceVersion",
    "lastTransitionTime",
    # Children depend on the namespace and the uid of the owner, which are others in each turn.
    "namespace",
    "uid",
    "kubewright.dev/applied-digest",
    "address",
    "creationTimestamp",
)


@dataclass(frozen=True)
class Write:
    """A PATCH or PUT without its namespace and without values that differ each time."""

    method: str
    path: str
    content_type: str
    accept: str
    body: dict[str, Any]


class WriteRecorder(HttpProxy):
    """A proxy that records every PATCH and PUT."""

    writes: list[Write]

    def forward(
        self, request: web.BaseRequest, body: bytes, without: Set[str] = frozenset()
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if request.method in ("PATCH", "PUT"):
            path = request.raw_path.partition("/namespaces/")[2].partition("/")[2]
            headers = request.headers
            content = _mask_volatile(msgspec.json.decode(body))
            content_type, accept = headers.get("Content-Type", ""), headers.get("Accept", "")
            self.writes.append(Write(request.method, path, content_type, accept, content))
        return super().forward(request, body, without)


def _mask_volatile(value: Any) -> Any:
    """Replaces values that differ each time by the names of their types."""
    if isinstance(value, dict):
        return {
            key: type(item).__name__ if key in _VOLATILE_FIELDS else _mask_volatile(item)
            for key, item in value.items()
        }
    return [_mask_volatile(item) for item in value] if isinstance(value, list) else value


async def _record_writes(cluster: BenchCluster, contender: Contender) -> list[Write]:
    """The writes of a contender for a few objects, sorted by name."""
    samples = await cluster.create_samples(f"wire-{contender.slug}", _SAMPLE_COUNT)
    async with WriteRecorder.in_front_of(cluster.control_plane) as recorder:
        recorder.writes = []
        await measure_contender(
            cluster,
            contender,
            samples,
            recorder.write_kubeconfig(
                cluster.control_plane.folder / f"{samples.namespace}.kubeconfig"
            ),
        )
    await cluster.delete_samples(samples)
    return sorted(recorder.writes, key=lambda write: write.path)


async def check_same_writes(
    cluster: BenchCluster, bare_loop: Contender = BARE, runtime: Contender = RUNTIME
) -> None:
    """Raises if the writes differ: only with the same work is the bare loop the limit."""
    bare = await _record_writes(cluster, bare_loop)
    ours = await _record_writes(cluster, runtime)
    if bare != ours:
        raise BenchError(
            "the bare loop does not send the writes of the runtime; change "
            f"{bare_loop.module}\nbare: {bare}\nruntime: {ours}"
        )
