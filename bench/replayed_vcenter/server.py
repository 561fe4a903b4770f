"""The HTTP side of the replayed vCenter, with an endpoint by which the benchmark controls it.

    POST /control/churn      {"stats": true, "movesPerSecond": 5}
    POST /control/change     {"ref": "host-12", "properties": {"runtime.inMaintenanceMode": true}}
    POST /control/state      {"after": 3}: how often quickStats changed, unknown methods that were
                             called, and all moves but the first 3
    POST /control/entities   {}: type, reference and name of all hosts, VMs and other objects

It is aiohttp's low-level server, which takes half of the CPU of one with routes.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[2] / "testenv"))
from replay import create_tls_context

from . import values
from .churn import Churn
from .disks import ReplayedDisks
from .inventory import ReplayedInventory, names_of
from .soap import ReplayedApi
from .tags import ReplayedTags

HOST = "127.0.0.1"
_COOKIE = re.compile(r'vmware_soap_session="?([^";]+)')


class ReplayServer:
    def __init__(
        self, inventory: ReplayedInventory, api: ReplayedApi, tags: ReplayedTags, churn: Churn
    ) -> None:
        self._inventory, self._api, self._tags, self._churn = inventory, api, tags, churn

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        if request.path.startswith("/control/"):
            return web.json_response(self._control(request.path, json.loads(body or b"{}")))
        if request.path.startswith("/api/"):
            status, result = self._tags.respond(request.method, request.path_qs, body)
            return web.json_response(result, status=status)
        if request.path not in ("/sdk", "/vslm/sdk"):
            return web.Response(status=404)
        cookie = _COOKIE.search(request.headers.get("Cookie", ""))
        status, response, session = await self._api.respond(body, cookie[1] if cookie else "")
        headers = {"Set-Cookie": f'vmware_soap_session="{session}"; Path=/'} if session else None
        return web.Response(status=status, body=response, content_type="text/xml", headers=headers)

    def _control(self, path: str, body: dict[str, Any]) -> Any:
        if path == "/control/churn":
            self._churn.changes_stats = bool(body.get("stats"))
            self._churn.moves_per_second = float(body.get("movesPerSecond", 0))
            return {}
        if path == "/control/change":
            changed = {name: _render(value) for name, value in body["properties"].items()}
            self._inventory.change(body["ref"], changed)
            return {"time": time.monotonic()}
        if path == "/control/state":
            return {
                "moves": [asdict(move) for move in self._churn.moves[int(body.get("after", 0)) :]],
                "statsChanges": self._churn.stats_changes,
                "unknownMethods": sorted(self._api.unknown_methods),
            }
        if path == "/control/entities":
            objects = [obj for obj in self._inventory.objects.values() if "name" in obj.properties]
            return [
                {"type": obj.type, "ref": obj.ref, "name": name}
                for obj, name in zip(objects, names_of(objects), strict=True)
            ]
        raise web.HTTPNotFound


def _render(value: Any) -> bytes:
    if isinstance(value, bool):
        return values.boolean(value)
    return values.integer(value) if isinstance(value, int) else values.text(str(value))


@dataclass(frozen=True)
class RunningReplay:
    host: str
    port: int
    certificate: Path
    churn: Churn
    api: ReplayedApi


@asynccontextmanager
async def open_replay(
    inventory: ReplayedInventory, folder: Path, *, disks: int = 0
) -> AsyncIterator[RunningReplay]:
    """Serve the inventory over TLS on a free port; the certificates are written to the folder."""
    api, churn = ReplayedApi(inventory, ReplayedDisks(inventory, disks)), Churn(inventory)
    server = ReplayServer(inventory, api, ReplayedTags(inventory), churn)
    context, ca_file = await asyncio.to_thread(create_tls_context, folder)
    # At the end, do not wait for an open call of WaitForUpdatesEx.
    runner = web.ServerRunner(web.Server(server.handle), shutdown_timeout=0.1)
    await runner.setup()
    churning = asyncio.create_task(churn.run())
    try:
        await web.TCPSite(runner, HOST, 0, ssl_context=context).start()
        yield RunningReplay(HOST, runner.addresses[0][1], ca_file, churn, api)
    finally:
        churning.cancel()
        await asyncio.wait([churning])
        await runner.cleanup()
