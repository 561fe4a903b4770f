"""The limit for HostInfo and VMInfo: an aiohttp loop that sends the statuses of the manager.

KUBECONFIG and FACTS are environment variables. FACTS names a JSON file with the facts of all hosts
and VMs by name. There is no session with a vCenter, no watch, cache, queue or metrics. It lists
each kind once, then sends one PUT for each object over one session, with as many workers as the
runtime has by default. It does not import kubewright.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from bench.contenders.bare import JSON, STATUS_QUERY, ApiAccess, Metadata, read_kubeconfig

_CONCURRENCY = 64
_GROUP = "/apis/topology.corinternal.com/v1"
_PLURALS = {"HostInfo": "hostinfoes", "VMInfo": "vminfoes"}


class Spec(msgspec.Struct, omit_defaults=True):
    hostname: str = ""
    nodename: str = ""


class Item(msgspec.Struct):
    metadata: Metadata
    spec: Spec


class ItemList(msgspec.Struct):
    items: list[Item]


def _with_status(kind: str, item: Item, facts: dict[str, Any]) -> bytes:
    generation = item.metadata.generation
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Reconciled",
        "message": "",
        "lastTransitionTime": datetime.now(UTC).replace(microsecond=0),
        "observedGeneration": generation,
    }
    status = {**facts, "conditions": [condition], "observedGeneration": generation}
    return msgspec.json.encode(
        {
            "apiVersion": "topology.corinternal.com/v1",
            "kind": kind,
            "metadata": item.metadata,
            "spec": item.spec,
            "status": status,
        }
    )


async def _list(
    session: aiohttp.ClientSession, kind: str, facts: dict[str, Any]
) -> Iterator[tuple[str, bytes]]:
    """The path and the body of the write of each object. A body is encoded when it is taken."""
    async with session.get(f"{_GROUP}/{_PLURALS[kind]}") as response:
        items = msgspec.json.decode(await response.read(), type=ItemList).items
    return (
        (
            f"{_GROUP}/namespaces/{item.metadata.namespace}/{_PLURALS[kind]}/"
            f"{item.metadata.name}/status?{STATUS_QUERY}",
            _with_status(kind, item, facts[item.spec.hostname or item.spec.nodename]),
        )
        for item in items
    )


async def _send(session: aiohttp.ClientSession, writes: Iterator[tuple[str, bytes]]) -> None:
    """Sends the writes of an iterator that all workers share."""
    for path, content in writes:
        async with session.put(path, data=content, headers=JSON) as response:
            body = await response.read()
            if response.status != 200:
                raise SystemExit(f"{path} rejected: {response.status} {body[:300]!r}")


async def main(access: ApiAccess, facts: dict[str, dict[str, Any]]) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with aiohttp.ClientSession(
        access.server, connector=aiohttp.TCPConnector(ssl=access.context), headers=access.headers
    ) as session:
        lists = await asyncio.gather(*(_list(session, kind, facts[kind]) for kind in _PLURALS))
        writes = chain.from_iterable(lists)
        async with asyncio.TaskGroup() as group:
            for _ in range(_CONCURRENCY):
                group.create_task(_send(session, writes))
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(
        main(
            read_kubeconfig(Path(os.environ["KUBECONFIG"])),
            msgspec.json.decode(Path(os.environ["FACTS"]).read_bytes()),
        )
    )
