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

CrashMode = Literal["before", "sent", "answered"]
CRASH_MODES: tuple[CrashMode, ...] = get_args(CrashMode)
# Long enough to read an answer and to act on it, short enough to be lost in it.
ANSWER_HANDLING_SECONDS = 0.03
# Who leads, who is told, who may: nothing that a group consists of.
IGNORED_RESOURCES = {"leases", "events", "tokenreviews", "subjectaccessreviews"}
SOAP_METHOD = re.compile(rb"<(?:\w+:)?Body[^>]*>\s*<(?:\w+:)?(\w+)")
SOAP_TARGET = re.compile(rb"<(?:\w+:)?_this[^>]*>([^<]+)<")
MUTATIONS_WITHOUT_TASK = {
    "CreateFolder",
    "SetCustomValue",
    "UnregisterVM",
    "MarkAsTemplate",
    "MarkAsVirtualMachine",
}


@dataclass(frozen=True)
class MutatingCall:
    """A call that may change something: the how-manieth of its sort, and on what."""

    operation: str
    number: int
    target: str
    after_restart: bool = False
    """Whether another manager than the first sent it."""

    def __str__(self) -> str:
        return f"{self.operation} #{self.number}"


@dataclass(frozen=True)
class CrashPoint:
    """Where the manager dies."""

    operation: str
    number: int
    mode: CrashMode

    def __str__(self) -> str:
        return f"{self.mode:8} {self.operation} #{self.number}"


@dataclass(frozen=True)
class RecognizedRequest:
    """What a proxy makes out of a request: its sort and its target."""

    operation: str
    target: str


RequestRecognizer = Callable[[web.BaseRequest, bytes], RecognizedRequest | None]
AsyncCallback = Callable[[], Awaitable[None]]


class CrashInjector:
    """Numbers the calls of all managers, kills the first one at the point, and starts the next."""

    def __init__(self, kill: AsyncCallback, start: AsyncCallback) -> None:
        self.kill_manager, self.start_manager = kill, start
        self.crash_point: CrashPoint | None = None
        self.calls: list[MutatingCall] = []
        self.operation_counts: Counter[str] = Counter()
        self.proxies: list[HttpProxy] = []
        self.is_crashing = False
        self.crashed_call: MutatingCall | None = None
        self.restarted_at: float | None = None
        """Time of the loop, None before."""
        self.restart_task: asyncio.Task[None] | None = None

    def record_call(self, sent: RecognizedRequest) -> MutatingCall:
        """Enter a call into the list."""
        self.operation_counts[sent.operation] += 1
        self.calls.append(
            MutatingCall(
                sent.operation,
                self.operation_counts[sent.operation],
                sent.target,
                self.crashed_call is not None,
            )
        )
        return self.calls[-1]

    def crash_mode_for(self, call: MutatingCall) -> CrashMode | None:
        """How the manager dies at this call; None if it lives on. From here on nothing else passes."""
        point = self.crash_point
        if (
            self.crashed_call
            or point is None
            or (point.operation, point.number) != (call.operation, call.number)
        ):
            return None
        self.crashed_call, self.is_crashing = call, True
        return point.mode

    async def crash_manager(self) -> None:
        """Kill and start anew; the connection on which this was decided breaks meanwhile, so it is done apart."""
        self.restart_task = self.restart_task or asyncio.create_task(self.replace_manager())
        await asyncio.shield(self.restart_task)

    async def replace_manager(self) -> None:
        """The dead one's connections must be gone, with all that is still in them, before anything passes again."""
        await self.kill_manager()
        await eventually(lambda: not any(proxy.connection_count for proxy in self.proxies))
        self.is_crashing = False
        await self.start_manager()
        self.restarted_at = asyncio.get_running_loop().time()

    async def wait_for_restart(self) -> None:
        """Wait until a restart under way is done."""
        if self.crashed_call:
            await eventually(lambda: self.restarted_at is not None, within=30)
            assert self.restart_task
            await self.restart_task


class CrashInjectingProxy(HttpProxy):
    """A proxy that asks the reaper about each call."""

    def __init__(
        self, upstream: Upstream, recognise: RequestRecognizer, reaper: CrashInjector
    ) -> None:
        super().__init__(upstream.url, upstream.admin_tls, upstream.bearer_tls)
        self.recognize_request, self.injector = recognise, reaper
        reaper.proxies.append(self)

    @asynccontextmanager
    async def forward(
        self, request: web.BaseRequest, body: bytes, without: Set[str] = frozenset()
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The same request to the server, unless the manager dies before."""
        if self.injector.is_crashing:
            raise DropConnection
        sent = self.recognize_request(request, body)
        mode = self.injector.crash_mode_for(self.injector.record_call(sent)) if sent else None
        if mode == "before":
            await self.injector.crash_manager()
            raise DropConnection
        async with super().forward(request, body, without) as answer:
            if mode == "sent":
                await answer.read()
                await self.injector.crash_manager()
                raise DropConnection
            yield answer
        if mode == "answered":
            await asyncio.sleep(ANSWER_HANDLING_SECONDS)
            await self.injector.crash_manager()


def recognize_kubernetes_request(request: web.BaseRequest, body: bytes) -> RecognizedRequest | None:
    """What changes an object."""
    parts = request.path.strip("/").split("/")
    if request.method in ("GET", "HEAD", "OPTIONS") or "namespaces" not in parts:
        return None
    resource, *rest = parts[parts.index("namespaces") + 2 :] or [""]
    if resource in IGNORED_RESOURCES:
        return None
    return RecognizedRequest(
        f"{request.method} {'/'.join([resource, *rest[1:]])}", rest[0] if rest else ""
    )


def recognize_vcenter_request(request: web.BaseRequest, body: bytes) -> RecognizedRequest | None:
    """What changes the inventory: tasks, and the few methods that need none."""
    found, target = SOAP_METHOD.search(body), SOAP_TARGET.search(body)
    method = found[1].decode() if found else ""
    if not method.endswith("_Task") and method not in MUTATIONS_WITHOUT_TASK:
        return None
    return RecognizedRequest(method, target[1].decode() if target else "")


@dataclass
class VCenterUpstream:
    """Where a simulated vCenter is, as a proxy wants to know it."""

    url: str
    admin_tls: ssl.SSLContext
    bearer_tls: ssl.SSLContext


def vcenter_proxy(vcenter: SimulatedVCenter, reaper: CrashInjector) -> CrashInjectingProxy:
    """A proxy before this vCenter."""
    tls = ssl.create_default_context(cafile=str(vcenter.certificate))
    return CrashInjectingProxy(
        VCenterUpstream(vcenter.url.removesuffix("/sdk"), tls, tls),
        recognize_vcenter_request,
        reaper,
    )


def api_proxy(upstream: Upstream, reaper: CrashInjector) -> CrashInjectingProxy:
    """A proxy before this API server."""
    return CrashInjectingProxy(upstream, recognize_kubernetes_request, reaper)
