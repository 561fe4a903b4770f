"""Kills a manager at a chosen call: proxies for the API server and vCenter count mutating calls.

    injector = CrashInjector(kill, start)
    async with api_proxy(plane, injector) as api, vcenter_proxy(vcenter, injector) as vc:
        injector.crash_point = CrashPoint("CloneVM_Task", 2, "sent")
        ...                                 # a manager that uses both proxies
        assert injector.crashed_call

What is a call?  A request of the manager that may change something, except for leases, Events and
    reviews. It is identified by its operation and its number among the calls of that operation,
    because two runs never send the same calls in the same order.
When is the manager killed?  `before`: the call is not forwarded. `sent`: the call is forwarded, and
    the response is dropped. `answered`: the response is returned, and the manager has a moment to
    handle it. From then on no other call is forwarded until the next manager starts.
And with a hand-over?  Two managers share the shards. The one that sent the call gets SIGTERM at the
    same three moments, releases its shards for the other one and is started again. All other calls
    are forwarded.
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
# Long enough to read a response, short enough to be killed while handling it.
ANSWER_HANDLING_SECONDS = 0.03
# Longer than a hand-over waits for user code before it cancels it.
HELD_CALL_SECONDS = 2.5
# Leader election, Events and authorization do not belong to a group.
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
    """A call that may change something, with its number among the calls of the same operation."""

    operation: str
    number: int
    target: str
    # Whether the manager that was started after the crash sent it.
    after_restart: bool = False

    def __str__(self) -> str:
        return f"{self.operation} #{self.number}"


@dataclass(frozen=True)
class CrashPoint:
    """The call at which the manager is killed, and how."""

    operation: str
    number: int
    mode: CrashMode
    hands_over: bool = False

    def __str__(self) -> str:
        how = "hand-over " if self.hands_over else ""
        return f"{how}{self.mode:8} {self.operation} #{self.number}"


@dataclass(frozen=True)
class RecognizedRequest:
    """The operation and the target of a request."""

    operation: str
    target: str


RequestRecognizer = Callable[[web.BaseRequest, bytes], RecognizedRequest | None]
ManagerCallback = Callable[[int], Awaitable[None]]
"""Is called with the number of the manager."""


class CrashInjector:
    """Counts the calls of all managers, kills the first one at the point, and starts another."""

    def __init__(self, kill: ManagerCallback, start: ManagerCallback) -> None:
        self.kill_manager, self.start_manager = kill, start
        self.crash_point: CrashPoint | None = None
        self.calls: list[MutatingCall] = []
        self.operation_counts: Counter[str] = Counter()
        self.proxies: list[CrashInjectingProxy] = []
        self.is_crashing = False
        self.crashed_call: MutatingCall | None = None
        # By the clock of the event loop.
        self.restarted_at: float | None = None
        self.restart_task: asyncio.Task[None] | None = None

    def record_call(self, sent: RecognizedRequest) -> MutatingCall:
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
        """How to kill the manager at this call, or None. From here on no call is forwarded."""
        point = self.crash_point
        if (
            self.crashed_call
            or point is None
            or (point.operation, point.number) != (call.operation, call.number)
        ):
            return None
        self.crashed_call, self.is_crashing = call, not point.hands_over
        return point.mode

    def start_crash(self, manager: int) -> asyncio.Task[None]:
        """Replace the manager in a task: the connection of the caller breaks meanwhile."""
        if self.restart_task is None:
            self.restart_task = asyncio.create_task(self.replace_manager(manager))
        return self.restart_task

    async def crash_manager(self, manager: int) -> None:
        """Replace the manager while it waits for the response to its call."""
        point, task = self.crash_point, self.start_crash(manager)
        if point is not None and point.hands_over:
            # A hand-over cancels calls to vCenter, but waits for the write of a status. The
            # connection breaks then, as when the API server ends.
            await asyncio.wait({task}, timeout=HELD_CALL_SECONDS)
        else:
            await asyncio.shield(task)

    async def replace_manager(self, manager: int) -> None:
        """Kill, wait until all connections of the dead manager are closed, then start another."""
        await self.kill_manager(manager)
        own = [proxy for proxy in self.proxies if proxy.manager == manager]
        await eventually(lambda: not any(proxy.connection_count for proxy in own))
        self.is_crashing = False
        await self.start_manager(manager)
        self.restarted_at = asyncio.get_running_loop().time()

    async def wait_for_restart(self) -> None:
        """Wait until a restart in progress is complete."""
        if self.crashed_call:
            await eventually(lambda: self.restarted_at is not None, within=30)
            assert self.restart_task
            await self.restart_task


class CrashInjectingProxy(HttpProxy):
    """A proxy of one manager that asks the injector about each call."""

    def __init__(
        self,
        upstream: Upstream,
        recognize: RequestRecognizer,
        injector: CrashInjector,
        manager: int = 0,
    ) -> None:
        super().__init__(upstream.url, upstream.admin_tls, upstream.bearer_tls)
        self.recognize_request, self.injector, self.manager = recognize, injector, manager
        injector.proxies.append(self)

    @asynccontextmanager
    async def forward(
        self, request: web.BaseRequest, body: bytes, without: Set[str] = frozenset()
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Forward the request, unless the manager is killed before."""
        if self.injector.is_crashing:
            raise DropConnection
        sent = self.recognize_request(request, body)
        mode = self.injector.crash_mode_for(self.injector.record_call(sent)) if sent else None
        if mode == "before":
            await self.injector.crash_manager(self.manager)
            raise DropConnection
        async with super().forward(request, body, without) as response:
            if mode == "sent":
                await response.read()
                await self.injector.crash_manager(self.manager)
                raise DropConnection
            yield response
        if mode == "answered":
            point = self.injector.crash_point
            if point is not None and point.hands_over:
                # The response ends when this returns, and a hand-over waits for it.
                self.injector.start_crash(self.manager)
                return
            await asyncio.sleep(ANSWER_HANDLING_SECONDS)
            await self.injector.crash_manager(self.manager)


def recognize_kubernetes_request(request: web.BaseRequest, body: bytes) -> RecognizedRequest | None:
    """A request that changes an object."""
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
    """A request that changes the inventory: a task, or one of a few other methods."""
    match, target = SOAP_METHOD.search(body), SOAP_TARGET.search(body)
    method = match[1].decode() if match else ""
    if not method.endswith("_Task") and method not in MUTATIONS_WITHOUT_TASK:
        return None
    return RecognizedRequest(method, target[1].decode() if target else "")


@dataclass
class VCenterUpstream:
    """The address of a simulated vCenter, for a proxy."""

    url: str
    admin_tls: ssl.SSLContext
    bearer_tls: ssl.SSLContext


def vcenter_proxy(
    vcenter: SimulatedVCenter, injector: CrashInjector, manager: int = 0
) -> CrashInjectingProxy:
    tls = ssl.create_default_context(cafile=str(vcenter.certificate))
    return CrashInjectingProxy(
        VCenterUpstream(vcenter.url.removesuffix("/sdk"), tls, tls),
        recognize_vcenter_request,
        injector,
        manager,
    )


def api_proxy(upstream: Upstream, injector: CrashInjector, manager: int = 0) -> CrashInjectingProxy:
    return CrashInjectingProxy(upstream, recognize_kubernetes_request, injector, manager)
