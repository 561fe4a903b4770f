"""The limit for examples/myapp.py: a plain aiohttp loop that sends the same requests and nothing
else.

It builds the bodies of all applies with the example and kubewright before it sends the first one.
Then it only sends: four applies and a status patch for each MyApp, with as many workers as the
runtime has by default. It has no cache, queue or metrics, and decodes one response of five.

With the argument `watch` it also receives the watches that an operator needs, and ignores them: the
API server has to send every object that it stores once more.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import aiohttp
import msgspec

from bench.contenders.bare import JSON, STATUS_QUERY, read_kubeconfig
from examples.myapp import MyApp, MyAppController
from kubewright import Object
from kubewright.api.apps_v1 import Deployment
from kubewright.api.core_v1 import ConfigMap, Service, ServiceAccount
from kubewright.ownership import complete_child

_WATCHED_KINDS = (MyApp, ConfigMap, ServiceAccount, Service, Deployment)
_APPLY = {"Content-Type": "application/apply-patch+yaml", "Accept": "application/json"}


class _Built(Exception):
    def __init__(self, children: Sequence[Object]) -> None:
        self.children = children


class _BuildingController(MyAppController):
    """Ends each reconcile with the children that it would apply."""

    async def apply(self, owner: MyApp, *children: Object | None, **_: Any) -> NoReturn:
        raise _Built([child for child in children if child is not None])


@dataclass(frozen=True)
class _Apply:
    path: str
    body: bytes
    is_service: bool


@dataclass(frozen=True)
class _Work:
    app: MyApp
    applies: list[_Apply]


class _MyAppList(msgspec.Struct):
    items: list[MyApp]


async def _build_work(controller: _BuildingController, app: MyApp) -> _Work:
    try:
        await controller.reconcile(app)
    except _Built as built:
        desired = [complete_child(app, child, controller.name) for child in built.children]
    applies = []
    for child in desired:
        metadata = child.manifest["metadata"] | {"resourceVersion": "1"}
        body = msgspec.json.encode(child.manifest | {"metadata": metadata})
        path = child.kind.definition.path(*child.key)
        applies.append(_Apply(path, body, child.kind is Service))
    return _Work(app, applies)


def _with_status(app: MyApp, address: str) -> bytes:
    """The object that the runtime sends; bench/same_writes.py checks it."""
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "ChildrenNotReady",
        "message": f"Deployment {app.metadata.name}: 0/1 replicas created",
        "lastTransitionTime": datetime.now(UTC).replace(microsecond=0),
        "observedGeneration": app.metadata.generation,
    }
    status = {
        "conditions": [condition],
        "observedGeneration": app.metadata.generation,
        "readyReplicas": 0,
        "address": address,
    }
    return msgspec.json.encode(app.encode() | {"status": status})


async def _send(
    session: aiohttp.ClientSession, method: str, url: str, body: bytes, headers: dict[str, str]
) -> bytes:
    async with session.request(method, url, data=body, headers=headers) as response:
        content = await response.read()
        if response.status not in (200, 201):
            raise SystemExit(f"{url} was rejected: {response.status} {content[:300]!r}")
        return content


async def _run_worker(session: aiohttp.ClientSession, queue: Iterator[_Work]) -> None:
    """Sends the requests of an iterator that all workers share."""
    for work in queue:
        address = ""
        for apply in work.applies:
            url = f"{apply.path}?fieldManager=myapp"
            response = await _send(session, "PATCH", url, apply.body, _APPLY)
            if apply.is_service:
                address = msgspec.json.decode(response)["spec"]["clusterIP"]
        path = MyApp.definition.path(*work.app.key, "status")
        body = _with_status(work.app, address)
        await _send(session, "PUT", f"{path}?{STATUS_QUERY}", body, JSON)


async def _receive_watch(
    session: aiohttp.ClientSession, kind: type[Object], namespace: str
) -> None:
    url = f"{kind.definition.path(namespace)}?watch=1&allowWatchBookmarks=true&timeoutSeconds=600"
    timeout = aiohttp.ClientTimeout(total=None)
    async with session.get(url, timeout=timeout) as response:
        async for _ in response.content.iter_any():
            pass


async def main(kubeconfig: str, namespace: str, concurrency: str, mode: str = "") -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    access = read_kubeconfig(Path(kubeconfig))
    async with aiohttp.ClientSession(
        access.server, connector=aiohttp.TCPConnector(ssl=access.context), headers=access.headers
    ) as session:
        kinds = _WATCHED_KINDS if mode == "watch" else ()
        watches = [asyncio.create_task(_receive_watch(session, kind, namespace)) for kind in kinds]
        async with session.get(MyApp.definition.path(namespace)) as response:
            apps = msgspec.json.decode(await response.read(), type=_MyAppList).items
        controller = _BuildingController()
        work = iter([await _build_work(controller, app) for app in apps])
        async with asyncio.TaskGroup() as group:
            for _ in range(int(concurrency)):
                group.create_task(_run_worker(session, work))
        await stopped.wait()
        for watch in watches:
            watch.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
