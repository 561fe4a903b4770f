"""Shared by the tests of disks and tags: the inventory, a recording log, intercepted calls."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyVim.connect import SmartConnect
from pyVmomi import vim

from simulator import SimulatedVCenter
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.model import Disk
from vsphere_operators.vsphere.transport import CALL_TIMEOUT_SECONDS, SoapClient
from vsphere_operators.vsphere.updates import ObjectUpdate, Ref


class RecordingLog:
    """Records its lines."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []

    def debug(self, message: str, /, error: BaseException | None = None, **fields: object) -> None:
        self.entries.append(("debug", f"{message} {error or ''}"))

    def info(self, message: str, /, error: BaseException | None = None, **fields: object) -> None:
        self.entries.append(("info", f"{message} {error or ''}"))

    def warning(
        self, message: str, /, error: BaseException | None = None, **fields: object
    ) -> None:
        self.entries.append(("warning", f"{message} {error or ''}"))

    def error(self, message: str, /, error: BaseException | None = None, **fields: object) -> None:
        self.entries.append(("error", f"{message} {error or ''}"))

    def find_messages(self, word: str, level: str = "") -> list[str]:
        return [text for how, text in self.entries if word in text and level in ("", how)]


CallHook = Callable[[str], Awaitable[bytes | None]]


class InterceptingSoap(SoapClient):
    """A client that lets a test see each call before it is sent, and respond to it."""

    hook: CallHook | None = None

    async def post(
        self,
        body: bytes,
        *,
        method: str,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
        path: str = "",
        action: str = "",
        send_within_seconds: float | None = None,
    ) -> bytes:
        if (
            self.hook is not None
            and (answer := await self.hook(f"{method} {body.decode()}")) is not None
        ):
            return answer
        return await super().post(
            body,
            method=method,
            timeout_seconds=timeout_seconds,
            path=path,
            action=action,
            send_within_seconds=send_within_seconds,
        )


async def load_inventory(simulator: SimulatedVCenter, name: str = "lab") -> Inventory:
    """The simulator's entities as updates; parents are found by their path."""
    entities = await simulator.entities()
    refs = {entity["path"]: entity for entity in entities}
    inventory = Inventory(name)
    inventory.apply(
        ObjectUpdate(
            "enter",
            entity["type"],
            entity["ref"],
            {"name": entity["name"], "summary.accessible": True, **parent_property(entity, refs)},
        )
        for entity in entities
    )
    return inventory


def parent_property(entity: dict[str, str], refs: dict[str, dict[str, str]]) -> dict[str, Any]:
    parent = refs.get(entity["path"].rpartition("/")[0] or "/")
    return {"parent": Ref(parent["type"], parent["ref"])} if parent and parent is not entity else {}


@contextmanager
def pyvmomi_content(simulator: SimulatedVCenter) -> Iterator[Any]:
    """The content of a session by pyVmomi's own blocking client."""
    host, port = simulator.address
    trust = ssl.create_default_context(cafile=str(simulator.certificate))
    connect: Any = SmartConnect
    instance = connect(
        host=host, port=port, user=simulator.user, pwd=simulator.password, sslContext=trust
    )
    try:
        yield instance.RetrieveContent()
    finally:
        instance.content.sessionManager.Logout()
        instance._stub.DropConnections()


def read_disks_with_pyvmomi(simulator: SimulatedVCenter) -> set[Disk]:
    """All disks, read one by one by pyVmomi's own client."""
    with pyvmomi_content(simulator) as content:
        manager = content.vStorageObjectManager
        view = content.viewManager.CreateContainerView(content.rootFolder, [vim.Datastore], True)
        stores = list(view.view)
        configs = [
            manager.RetrieveVStorageObject(id, store).config
            for store in stores
            for id in manager.ListVStorageObject(store)
        ]
        view.Destroy()
    return {
        Disk(
            id=config.id.id,
            name=config.name,
            datastore=config.backing.datastore._moId,
            size_mb=config.capacityInMB,
            file_path=config.backing.filePath,
            provisioning=config.backing.provisioningType,
            created_at=config.createTime,
            attached_vm_uuids=tuple(consumer.id for consumer in config.consumerId),
        )
        for config in configs
    }


async def apart(work: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(work)
