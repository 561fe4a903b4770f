"""A manager that is killed at a chosen call: proxies before the API server and before vCenter that number what changes something.

    reaper = Reaper(kill, start)
    async with api_proxy(plane, reaper) as api, vcenter_proxy(vcenter, reaper) as vc:
        reaper.point = Point("CloneVM_Task", 2, "sent")     # the second clone: vCenter does it, nobody hears the answer
        ...                                                 # a manager that goes through both
        assert reaper.reached

What is a call?  What the manager sends and what may change something, on either side; leases, events and reviews apart. It is known by its
    sort and by how many of that sort came before, because two runs never send the same calls in the same order.
When does it die?  `before`: the call is not passed on. `sent`: it is passed on and answered, and the answer is kept. `answered`: the answer
    is passed on, and the manager has a moment to take it in. Nothing else of it passes from then on, and nothing at all once it is dead.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import aiohttp
from aiohttp import web

from kubewright.testing import eventually
from kubewright.testing.proxy import DropConnection, HttpProxy, Upstream
from simulator import SimulatedVCenter

Mode = Literal["before", "sent", "answered"]
MODES: tuple[Mode, ...] = get_args(Mode)
# Long enough to read an answer and to act on it, short enough to be lost in it.
TAKEN_IN_SECONDS = 0.03
# Who leads, who is told, who may: nothing that a group consists of.
BESIDE = {"leases", "events", "tokenreviews", "subjectaccessreviews"}
METHOD = re.compile(rb"<(?:\w+:)?Body[^>]*>\s*<(?:\w+:)?(\w+)")
TARGET = re.compile(rb"<(?:\w+:)?_this[^>]*>([^<]+)<")
CHANGES_WITHOUT_TASK = {
    "CreateFolder",
    "SetCustomValue",
    "UnregisterVM",
    "MarkAsTemplate",
    "MarkAsVirtualMachine",
}


@dataclass(frozen=True)
class Call:
    """A call that may change something: the how-manieth of its sort, and on what."""

    sort: str
    number: int
    target: str
    after_restart: bool = False
    """Whether another manager than the first sent it."""

    def __str__(self) -> str:
        return f"{self.sort} #{self.number}"


@dataclass(frozen=True)
class Point:
    """Where the manager dies."""

    sort: str
    number: int
    mode: Mode

    def __str__(self) -> str:
        return f"{self.mode:8} {self.sort} #{self.number}"


@dataclass(frozen=True)
class Sent:
    """What a proxy makes out of a request: its sort and its target."""

    sort: str
    target: str


Recognise = Callable[[web.BaseRequest, bytes], Sent | None]
Deed = Callable[[], Awaitable[None]]


class Reaper:
    """Numbers the calls of all managers, kills the first one at the point, and starts the next."""

    def __init__(self, kill: Deed, start: Deed) -> None:
        self.kill, self.start = kill, start
        self.point: Point | None = None
        self.calls: list[Call] = []
        self.counts: Counter[str] = Counter()
        self.proxies: list[HttpProxy] = []
        self.dying = False
        self.reached: Call | None = None
        self.restarted_at: float | None = None
        """Time of the loop, None before."""
        self.work: asyncio.Task[None] | None = None

    def number(self, sent: Sent) -> Call:
        """Enter a call into the list."""
        self.counts[sent.sort] += 1
        self.calls.append(
            Call(sent.sort, self.counts[sent.sort], sent.target, self.reached is not None)
        )
        return self.calls[-1]

    def mode_of(self, call: Call) -> Mode | None:
        """How the manager dies at this call; None if it lives on. From here on nothing else passes."""
        point = self.point
        if self.reached or point is None or (point.sort, point.number) != (call.sort, call.number):
            return None
        self.reached, self.dying = call, True
        return point.mode

    async def reap(self) -> None:
        """Kill and start anew; the connection on which this was decided breaks meanwhile, so it is done apart."""
        self.work = self.work or asyncio.create_task(self.kill_and_start())
        await asyncio.shield(self.work)

    async def kill_and_start(self) -> None:
        """The dead one's connections must be gone, with all that is still in them, before anything passes again."""
        await self.kill()
        await eventually(lambda: not any(proxy.connection_count for proxy in self.proxies))
        self.dying = False
        await self.start()
        self.restarted_at = asyncio.get_running_loop().time()

    async def finished(self) -> None:
        """Wait until a restart under way is done."""
        if self.reached:
            await eventually(lambda: self.restarted_at is not None, within=30)
            assert self.work
            await self.work


class CallProxy(HttpProxy):
    """A proxy that asks the reaper about each call."""

    def __init__(self, upstream: Upstream, recognise: Recognise, reaper: Reaper) -> None:
        super().__init__(upstream.url, upstream.admin_tls, upstream.bearer_tls)
        self.recognise, self.reaper = recognise, reaper
        reaper.proxies.append(self)

    @asynccontextmanager
    async def forward(
        self, request: web.BaseRequest, body: bytes, without: Set[str] = frozenset()
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The same request to the server, unless the manager dies before."""
        if self.reaper.dying:
            raise DropConnection
        sent = self.recognise(request, body)
        mode = self.reaper.mode_of(self.reaper.number(sent)) if sent else None
        if mode == "before":
            await self.reaper.reap()
            raise DropConnection
        async with super().forward(request, body, without) as answer:
            if mode == "sent":
                await answer.read()
                await self.reaper.reap()
                raise DropConnection
            yield answer
        if mode == "answered":
            await asyncio.sleep(TAKEN_IN_SECONDS)
            await self.reaper.reap()


def kubernetes_call(request: web.BaseRequest, body: bytes) -> Sent | None:
    """What changes an object."""
    parts = request.path.strip("/").split("/")
    if request.method in ("GET", "HEAD", "OPTIONS") or "namespaces" not in parts:
        return None
    resource, *rest = parts[parts.index("namespaces") + 2 :] or [""]
    if resource in BESIDE:
        return None
    return Sent(f"{request.method} {'/'.join([resource, *rest[1:]])}", rest[0] if rest else "")


def vcenter_call(request: web.BaseRequest, body: bytes) -> Sent | None:
    """What changes the inventory: tasks, and the few methods that need none."""
    found, target = METHOD.search(body), TARGET.search(body)
    method = found[1].decode() if found else ""
    if not method.endswith("_Task") and method not in CHANGES_WITHOUT_TASK:
        return None
    return Sent(method, target[1].decode() if target else "")


@dataclass
class Site:
    """Where a simulated vCenter is, as a proxy wants to know it."""

    url: str
    admin_tls: ssl.SSLContext
    bearer_tls: ssl.SSLContext


def vcenter_proxy(vcenter: SimulatedVCenter, reaper: Reaper) -> CallProxy:
    """A proxy before this vCenter."""
    tls = ssl.create_default_context(cafile=str(vcenter.certificate))
    return CallProxy(Site(vcenter.url.removesuffix("/sdk"), tls, tls), vcenter_call, reaper)


def api_proxy(upstream: Upstream, reaper: Reaper) -> CallProxy:
    """A proxy before this API server."""
    return CallProxy(upstream, kubernetes_call, reaper)
