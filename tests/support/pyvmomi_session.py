"""Reads the simulated vCenter with pyVmomi's own blocking client, without any code of ours."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import Any

from pyVim.connect import Disconnect, SmartConnect
from pyVmomi import vim, vmodl

from simulator import SimulatedVCenter


class PyVmomiSession:
    """A session of pyVmomi for an `async with` block."""

    def __init__(self, vcenter: SimulatedVCenter) -> None:
        self.vcenter = vcenter

    async def __aenter__(self) -> PyVmomiSession:
        self.instance = await asyncio.to_thread(self.connect_blocking)
        self.content = await asyncio.to_thread(self.instance.RetrieveContent)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(Disconnect, self.instance)

    def connect_blocking(self) -> Any:
        host, port = self.vcenter.address
        trust = ssl.create_default_context(cafile=str(self.vcenter.certificate))
        return SmartConnect(
            host=host,
            port=port,
            user=self.vcenter.user,
            pwd=self.vcenter.password,
            sslContext=trust,
        )

    async def read_all(self, kind: Any, paths: Sequence[str]) -> list[dict[str, Any]]:
        """The named properties of every object of a type; `obj` is the object itself."""
        return await asyncio.to_thread(self.retrieve_blocking, kind, list(paths))

    async def read_one(self, kind: Any, name: str, paths: Sequence[str]) -> dict[str, Any]:
        """The named properties of the only object of this name."""
        objects = [
            obj for obj in await self.read_all(kind, ["name", *paths]) if obj["name"] == name
        ]
        assert len(objects) == 1, f"{len(objects)} objects are named {name}"
        return objects[0]

    def retrieve_blocking(self, kind: Any, paths: list[str]) -> list[dict[str, Any]]:
        view = self.content.viewManager.CreateContainerView(self.content.rootFolder, [kind], True)
        try:
            traversal = vmodl.query.PropertyCollector.TraversalSpec(
                name="view", type=vim.view.ContainerView, path="view", skip=False
            )
            root = vmodl.query.PropertyCollector.ObjectSpec(
                obj=view, skip=True, selectSet=[traversal]
            )
            properties = vmodl.query.PropertyCollector.PropertySpec(
                type=kind, all=False, pathSet=paths
            )
            spec = vmodl.query.PropertyCollector.FilterSpec(objectSet=[root], propSet=[properties])
            contents = self.content.propertyCollector.RetrieveContents([spec])
            return [
                {"obj": item.obj, **dict.fromkeys(paths), **{p.name: p.val for p in item.propSet}}
                for item in contents
            ]
        finally:
            view.Destroy()

    async def find_disk(self, name: str) -> tuple[Any, str]:
        """The only First Class Disk of this name, and the name of its datastore."""
        return await asyncio.to_thread(self.find_disk_blocking, name)

    def find_disk_blocking(self, name: str) -> tuple[Any, str]:
        manager = self.content.vStorageObjectManager
        datastores = [row["obj"] for row in self.retrieve_blocking(vim.Datastore, ["name"])]
        disks = [
            (manager.RetrieveVStorageObject(disk_id, datastore), str(datastore.name))
            for datastore in datastores
            for disk_id in manager.ListVStorageObject(datastore)
        ]
        (match,) = [(disk, store) for disk, store in disks if disk.config.name == name]
        return match

    async def list_disks(self, datastore: Any) -> list[Any]:
        """All First Class Disks of a datastore."""
        manager = self.content.vStorageObjectManager

        def work() -> list[Any]:
            return [
                manager.RetrieveVStorageObject(disk_id, datastore)
                for disk_id in manager.ListVStorageObject(datastore)
            ]

        return await asyncio.to_thread(work)

    async def inventory_path(self, obj: Any) -> str:
        return await asyncio.to_thread(self.inventory_path_blocking, obj)

    def inventory_path_blocking(self, obj: Any) -> str:
        names = []
        while obj._moId != self.content.rootFolder._moId:
            names.append(obj.name)
            obj = obj.parent
        return "/" + "/".join(reversed(names))

    async def ancestor_name(self, obj: Any, kind: Any) -> str:
        """The name of the nearest ancestor of a type, "" if there is no such ancestor."""
        return await asyncio.to_thread(self.ancestor_name_blocking, obj, kind)

    def ancestor_name_blocking(self, obj: Any, kind: Any) -> str:
        while obj._moId != self.content.rootFolder._moId:
            if isinstance(obj, kind):
                return str(obj.name)
            obj = obj.parent
        return ""
