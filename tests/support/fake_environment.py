"""A manager with one controller on a fake API server, and a vCenter that the test fills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from kubewright import Cache, Client, Condition, Controller, Key, Manager, Options, Resource
from kubewright.kubeconfig import Connection, Identity
from kubewright.log import Log
from kubewright.testing import eventually
from kubewright.testing.fake import FakeApi
from vsphere_operators.build import connect_registry
from vsphere_operators.vcenters.config import VCenterConfig
from vsphere_operators.vcenters.registry import VCenterRegistry
from vsphere_operators.vsphere.address import Address
from vsphere_operators.vsphere.credentials import Credentials, FixedCredentials
from vsphere_operators.vsphere.disk_catalog import DiskListing
from vsphere_operators.vsphere.model import Disk
from vsphere_operators.vsphere.updates import ObjectUpdate, Ref, Value
from vsphere_operators.vsphere.vcenter import VCenter

ResourceT = TypeVar("ResourceT", bound=Resource[Any, Any])
FAKE_CONNECTION = Connection(server="https://fake.invalid", identity=Identity(), source="a test")
ADDRESS = Address("vcenter.invalid")
ControllerFactory = Callable[[VCenterRegistry, Cache], Controller[Any]]


class NullMetrics:
    def observe_call(self, method: str, outcome: str, seconds: float) -> None:
        pass

    def count_updates(self, type_name: str, kind: str, count: int) -> None:
        pass

    def count_undecodable(self, type_name: str, path: str) -> None:
        pass


class FakeEnvironment:
    """The fake API server and the vCenter of a test."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.client = Client(self.api)
        self.vcenter = VCenter(
            "vc-1",
            ADDRESS,
            FixedCredentials(Credentials("user", "secret")),
            Log("vcenter"),
            NullMetrics(),
        )

    def enter(self, type: str, ref: str, **properties: Value) -> None:
        """Add an object; `a__b` in the name of a property stands for `a.b`."""
        self.vcenter.inventory.apply([make_update("enter", type, ref, properties)])

    def modify(self, type: str, ref: str, **properties: Value) -> None:
        self.vcenter.inventory.apply([make_update("modify", type, ref, properties)])

    def leave(self, type: str, ref: str) -> None:
        self.vcenter.inventory.apply([ObjectUpdate("leave", type, ref)])

    def mark_loaded(self) -> None:
        """The inventory is loaded, and has no disks."""
        self.set_disks()
        self.vcenter.on_response()

    def set_disks(self, *disks: Disk) -> None:
        self.vcenter.disks.apply(DiskListing({disk.id: disk for disk in disks}, {}))

    def create(self, kind: type[ResourceT], name: str, **spec: object) -> None:
        self.api.create(
            kind.definition.path("default"),
            {"metadata": {"name": name, "namespace": "default"}, "spec": spec},
        )

    async def get(self, kind: type[ResourceT], name: str) -> ResourceT:
        return await self.client.get(kind, Key("default", name))

    async def wait_for_ready(
        self,
        kind: type[ResourceT],
        name: str,
        reason: str,
        check: Callable[[Any], object] = lambda status: True,
        *,
        within: float = 30,
    ) -> tuple[ResourceT, Condition]:
        """Wait until Ready has this reason and the status passes the check."""

        async def find_object() -> tuple[ResourceT, Condition] | None:
            obj = await self.get(kind, name)
            condition = obj.status.condition("Ready")
            return (
                (obj, condition)
                if condition is not None and condition.reason == reason and check(obj.status)
                else None
            )

        result: tuple[ResourceT, Condition] | None = await eventually(find_object, within=within)
        assert result is not None
        return result

    def count_status_writes(self) -> int:
        return sum("/status" in request.path for request in self.api.writes())


def make_update(kind: Any, type: str, ref: str, properties: dict[str, Value]) -> ObjectUpdate:
    return ObjectUpdate(
        kind, type, ref, {name.replace("__", "."): value for name, value in properties.items()}
    )


def make_refs(type: str, values: Iterable[str]) -> tuple[Ref, ...]:
    return tuple(Ref(type, value) for value in values)


@asynccontextmanager
async def run_manager(
    environment: FakeEnvironment,
    make_controller: ControllerFactory,
    *,
    interval_seconds: float = 60.0,
) -> AsyncIterator[VCenterRegistry]:
    """Run a manager with the controller until the block ends."""
    manager = Manager(FAKE_CONNECTION, Options(metrics_bind_address="0"), transport=environment.api)
    configs = [VCenterConfig("vc-1", ADDRESS)]
    vcenters = VCenterRegistry(
        {"vc-1": environment.vcenter},
        configs,
        manager.cache,
        interval_seconds,
        0.05,
    )
    connect_registry(vcenters)
    manager.add(make_controller(vcenters, manager.cache))
    stop = asyncio.Event()
    task = asyncio.create_task(manager.run(stop))
    try:
        yield vcenters
    finally:
        stop.set()
        await task
