"""Proof, at the start of every run, that the bare loop sends what the runtime sends: both work through a proxy that writes it down."""

from __future__ import annotations

from collections.abc import Set
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from bench.arena import Arena, BenchFailed
from bench.turn import BARE, RUNTIME, Contender, take_turn
from kubewright.testing.proxy import HttpProxy

OBJECTS = 3
OF_THE_MOMENT = ("resourceVersion", "lastTransitionTime")


@dataclass(frozen=True)
class Patch:
    """One PATCH as it was on the wire, but for the namespace and the values that differ from moment to moment."""

    where: str
    content_type: str
    accept: str
    body: dict[str, Any]


class Ear(HttpProxy):
    """A proxy that remembers every patch."""

    patches: list[Patch]

    def forward(
        self, request: web.BaseRequest, body: bytes, without: Set[str] = frozenset()
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Write it down, then let it pass."""
        if request.method == "PATCH":
            where = request.raw_path.partition("/namespaces/")[2].partition("/")[2]
            headers = request.headers
            told = timeless(msgspec.json.decode(body))
            self.patches.append(Patch(where, headers.get("Content-Type", ""), headers.get("Accept", ""), told))
        return super().forward(request, body, without)


def timeless(value: Any) -> Any:
    """The same JSON with the values of the moment replaced by the names of their types."""
    if isinstance(value, dict):
        return {key: type(each).__name__ if key in OF_THE_MOMENT else timeless(each) for key, each in value.items()}
    return [timeless(each) for each in value] if isinstance(value, list) else value


async def patches_of(arena: Arena, contender: Contender) -> list[Patch]:
    """What the contender sends for a few objects, in the order of their names."""
    ground = await arena.ground(f"wire-{contender.slug}", OBJECTS)
    async with Ear.before(arena.plane) as ear:
        ear.patches = []
        await take_turn(arena, contender, ground, ear.kubeconfig(arena.plane.folder / f"{ground.namespace}.kubeconfig"))
    await arena.clear(ground)
    return sorted(ear.patches, key=lambda patch: patch.where)


async def check(arena: Arena) -> None:
    """Raise unless both send the same patches; the bare loop is the limit only as long as it does the same work."""
    bare, ours = await patches_of(arena, BARE), await patches_of(arena, RUNTIME)
    if bare != ours:
        raise BenchFailed(
            f"the bare loop no longer sends what the runtime sends; change bench/contenders/bare.py\nbare: {bare}\nruntime: {ours}"
        )
