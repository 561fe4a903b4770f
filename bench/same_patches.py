"""Proof, at the start of every run, that the bare loop sends what the runtime sends: both work through a proxy that writes it down."""

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

SAMPLE_COUNT = 3
VOLATILE_FIELDS = ("resourceVersion", "lastTransitionTime")


@dataclass(frozen=True)
class Patch:
    """One PATCH as it was on the wire, but for the namespace and the values that differ from moment to moment."""

    path: str
    content_type: str
    accept: str
    body: dict[str, Any]


class PatchRecorder(HttpProxy):
    """A proxy that remembers every patch."""

    patches: list[Patch]

    def forward(
        self, request: web.BaseRequest, body: bytes, without: Set[str] = frozenset()
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Write it down, then let it pass."""
        if request.method == "PATCH":
            where = request.raw_path.partition("/namespaces/")[2].partition("/")[2]
            headers = request.headers
            told = mask_volatile(msgspec.json.decode(body))
            self.patches.append(
                Patch(where, headers.get("Content-Type", ""), headers.get("Accept", ""), told)
            )
        return super().forward(request, body, without)


def mask_volatile(value: Any) -> Any:
    """The same JSON with the values of the moment replaced by the names of their types."""
    if isinstance(value, dict):
        return {
            key: type(each).__name__ if key in VOLATILE_FIELDS else mask_volatile(each)
            for key, each in value.items()
        }
    return [mask_volatile(each) for each in value] if isinstance(value, list) else value


async def record_patches(arena: BenchCluster, contender: Contender) -> list[Patch]:
    """What the contender sends for a few objects, in the order of their names."""
    ground = await arena.create_samples(f"wire-{contender.slug}", SAMPLE_COUNT)
    async with PatchRecorder.in_front_of(arena.control_plane) as ear:
        ear.patches = []
        await measure_contender(
            arena,
            contender,
            ground,
            ear.write_kubeconfig(arena.control_plane.folder / f"{ground.namespace}.kubeconfig"),
        )
    await arena.delete_samples(ground)
    return sorted(ear.patches, key=lambda patch: patch.path)


async def check_same_patches(arena: BenchCluster) -> None:
    """Raise unless both send the same patches; the bare loop is the limit only as long as it does the same work."""
    bare, ours = await record_patches(arena, BARE), await record_patches(arena, RUNTIME)
    if bare != ours:
        raise BenchError(
            f"the bare loop no longer sends what the runtime sends; change bench/contenders/bare.py\nbare: {bare}\nruntime: {ours}"
        )
