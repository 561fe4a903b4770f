"""The limit: a plain aiohttp loop that sends the statuses of the runtime and nothing else.

It has no watch, cache, queue or metrics, and decodes no responses. It reads names, revisions and
sizes in one list, then sends one PUT for each object over one session, with as many workers as the
runtime has by default. It does not import kubewright.
"""

from __future__ import annotations

import asyncio
import base64
import signal
import ssl
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import msgspec
import yaml

JSON = {"Content-Type": "application/json", "Accept": "application/json"}
STATUS_QUERY = "fieldManager=bench&fieldValidation=Ignore"


class Metadata(msgspec.Struct):
    name: str
    namespace: str
    uid: str
    resourceVersion: str
    generation: int
    creationTimestamp: str


class Spec(msgspec.Struct):
    size: int


class Item(msgspec.Struct):
    metadata: Metadata
    spec: Spec


class ItemList(msgspec.Struct):
    items: list[Item]


class ApiAccess(msgspec.Struct):
    """The API server and the credentials: a token as in a Pod, or a certificate."""

    server: str
    context: ssl.SSLContext
    headers: dict[str, str]


def read_kubeconfig(kubeconfig: Path) -> ApiAccess:
    """Reads a kubeconfig with one cluster and one user."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(
        cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
    )
    if token := user.get("token"):
        return ApiAccess(cluster["server"], context, {"Authorization": f"Bearer {token}"})
    with tempfile.NamedTemporaryFile() as pair:
        pair.write(
            base64.b64decode(user["client-certificate-data"])
            + base64.b64decode(user["client-key-data"])
        )
        pair.flush()
        context.load_cert_chain(pair.name)
    return ApiAccess(cluster["server"], context, {})


def _with_status(item: Item) -> bytes:
    """The object that the runtime sends; bench/same_writes.py checks it."""
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Reconciled",
        "message": "",
        "lastTransitionTime": datetime.now(UTC).replace(microsecond=0),
        "observedGeneration": item.metadata.generation,
    }
    status = {
        "conditions": [condition],
        "doubled": 2 * item.spec.size,
        "observedGeneration": item.metadata.generation,
    }
    return msgspec.json.encode(
        {
            "apiVersion": "bench.kubewright.example/v1",
            "kind": "Sample",
            "metadata": item.metadata,
            "spec": item.spec,
            "status": status,
        }
    )


async def _replace_statuses(
    session: aiohttp.ClientSession, collection: str, items: Iterator[Item]
) -> None:
    """Writes the objects of an iterator that all workers share."""
    for item in items:
        url = f"{collection}/{item.metadata.name}/status?{STATUS_QUERY}"
        async with session.put(url, data=_with_status(item), headers=JSON) as response:
            body = await response.read()
            if response.status != 200:
                raise SystemExit(
                    f"status of {item.metadata.name} rejected: {response.status} {body[:300]!r}"
                )


async def main(kubeconfig: str, namespace: str, concurrency: str) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    access = read_kubeconfig(Path(kubeconfig))
    collection = f"/apis/bench.kubewright.example/v1/namespaces/{namespace}/samples"
    async with aiohttp.ClientSession(
        access.server, connector=aiohttp.TCPConnector(ssl=access.context), headers=access.headers
    ) as session:
        async with session.get(collection) as response:
            items = iter(msgspec.json.decode(await response.read(), type=ItemList).items)
        async with asyncio.TaskGroup() as group:
            for _ in range(int(concurrency)):
                group.create_task(_replace_statuses(session, collection, items))
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
