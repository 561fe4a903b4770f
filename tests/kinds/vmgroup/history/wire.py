"""The transports of a manager: each call waits until the history performs and answers it.

Between the two, anything else may happen. A call may be performed without an answer, and up to
MAX_LATE_SECONDS after its sender died or gave up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from kubewright.transport import Request
from vsphere_operators.vsphere.faults import NotAuthenticated, NotFound, Rejected, VCenterError
from vsphere_operators.vsphere.session import Session
from vsphere_operators.vsphere.updates import ObjectUpdate, Value
from vsphere_operators.vsphere.vm_calls import CloneSpec, TemplateConfig, VmCalls, VmConfig
from vsphere_operators.vsphere.vm_property_cache import VmPropertyCache

from .model import Identity

if TYPE_CHECKING:
    from .manager import ManagerProcess

MAX_LATE_SECONDS = 7.0


class Call:
    """One request, from when it is sent until it is answered."""

    def __init__(
        self, manager: ManagerProcess, name: str, perform: Callable[[], Any], detail: Any = None
    ) -> None:
        self.manager, self.name, self.detail = manager, name, detail
        self.sent_at = manager.world.now
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.is_performed = False
        self.result: Any = None
        self.error: Exception | None = None
        self._perform = perform

    @property
    def is_read(self) -> bool:
        return self.name in ("read", "login", "load", "GET")

    def perform(self) -> None:
        if self.is_performed:
            return
        self.is_performed = True
        try:
            self.result = self._perform()
        except Exception as error:
            self.error = error

    def answer(self, error: Exception | None = None) -> None:
        """Deliver the result, or this error instead."""
        self.manager.world.pending.remove(self)
        if self.future.done():
            return
        if error is None:
            self.perform()
            error = self.error
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(self.result)


async def send(
    manager: ManagerProcess, name: str, perform: Callable[[], Any], detail: Any = None
) -> Any:
    return await wait_for(Call(manager, name, perform, detail))


async def wait_for(call: Call) -> Any:
    """Send the call, and wait for its answer."""
    if call.manager.dead:
        # What a process does after its death has no effect.
        raise asyncio.CancelledError
    call.manager.world.pending.append(call)
    call.manager.world.on_sent(call)
    return await call.future


class ApiTransport:
    """Requests to the API server."""

    def __init__(self, manager: ManagerProcess) -> None:
        self._manager = manager

    async def send(self, request: Request) -> bytes:
        def perform() -> bytes:
            if request.method == "GET":
                self._manager.world.on_read(request.path)
            return msgspec.json.encode(self._manager.world.api.handle(request))

        result: bytes = await send(self._manager, request.method, perform, request)
        return result


class VCenterSession(Session):
    """The real session; only the login itself is a call of the history."""

    def __init__(self, manager: ManagerProcess) -> None:
        log: Any = manager.log
        super().__init__(manager.soap, manager.soap, log, clock=manager.world.clock)
        self.manager = manager
        # Of the vCenter that answered the last login.
        self.token: tuple[Any, int] = (None, 0)

    async def _attempt_login(self) -> VCenterError | None:
        world = self.manager.world
        try:
            self.token = await send(
                self.manager, "login", lambda: (world.served, world.served.session_epoch)
            )
        except VCenterError as error:
            return error
        self.login_count, self.logged_in = self.login_count + 1, True
        return None

    def check(self, token: tuple[Any, int] | None = None) -> Any:
        """The vCenter at the address, if it knows this session, or the one of the token."""
        appliance, epoch = token or self.token
        if appliance is not self.manager.world.served:
            raise NotAuthenticated("the session is not authenticated", fault="NotAuthenticated")
        appliance.check_session(epoch)
        return appliance

    async def read(self, type_name: str, refs: list[str], paths: list[str]) -> list[ObjectUpdate]:
        def perform() -> list[ObjectUpdate]:
            appliance = self.check()
            results = [appliance.read(type_name, ref, paths) for ref in refs]
            return [result for result in results if result is not None]

        request = lambda: send(self.manager, "read", perform)  # noqa: E731
        updates: list[ObjectUpdate] = await self.call(request)
        return updates


class VCenterCalls(VmCalls):
    """The real reads and checks; the calls on the wire are those of the history."""

    def __init__(self, session: VCenterSession) -> None:
        super().__init__(session.soap, session)
        self._wire = session

    async def _send(self, name: str, method: Callable[[Any, Call], Any], detail: Any) -> str:
        # A call that is begun late still has the cookie of its own session.
        calls, token = list[Call](), self._wire.token

        def perform() -> Any:
            return method(self._wire.check(token), calls[0])

        calls.append(Call(self._wire.manager, name, perform, detail))
        ref: str = await wait_for(calls[0])
        return ref

    async def clone(self, spec: CloneSpec, template: TemplateConfig | None = None) -> str:
        owner = self._wire.manager.world.find_uid_of(spec)
        return await self._send("clone", lambda vc, call: vc.clone(spec, owner), spec)

    async def power_on(self, ref: str) -> str:
        return await self._change("powerOn", ref)

    async def power_off(self, ref: str) -> str:
        return await self._change("powerOff", ref)

    async def destroy(self, ref: str, send_within_seconds: float) -> str:
        return await self._change("destroy", ref)

    async def resize(
        self, ref: str, cpus: int, cores_per_socket: int | None, memory_mb: int
    ) -> str:
        return await self._change("reconfigure", ref, (cpus, memory_mb))

    async def set_identity(
        self, ref: str, instance_uuid: str, extra_config: Mapping[str, str], change_version: str
    ) -> str:
        identity = Identity(instance_uuid, dict(extra_config), change_version)
        return await self._send(
            "identify", lambda vc, call: vc.set_identity(ref, identity), (ref, identity)
        )

    async def _change(self, method: str, ref: str, size: tuple[int, int] = (0, 0)) -> str:
        return await self._send(
            method, lambda vc, call: vc.change(method, ref, call.sent_at, size), (ref, size)
        )

    async def destroy_folder(self, ref: str, send_within_seconds: float) -> str:
        return await self._send(
            "destroyFolder", lambda vc, call: vc.destroy_folder(ref, call.sent_at), ref
        )

    async def create_folder(self, parent: str, name: str) -> str:
        return await self._send(
            "createFolder", lambda vc, call: vc.create_folder(parent, name), name
        )

    async def read_properties(self, type_name: str, ref: str, paths: list[str]) -> dict[str, Value]:
        updates = await self._wire.read(type_name, [ref], paths)
        if not updates:
            raise NotFound(f"{type_name} {ref} no longer exists", fault="ManagedObjectNotFound")
        if updates[0].missing:
            raise Rejected(f"vCenter does not return {updates[0].missing} of {ref}")
        return dict(updates[0].changes)


class VmConfigs(VmPropertyCache[VmConfig]):
    """The real cache of configurations."""

    wire: VCenterSession

    async def read_properties(self, refs: list[str]) -> list[ObjectUpdate]:
        return await self.wire.read("VirtualMachine", refs, self._paths)
