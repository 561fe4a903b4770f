"""Calls that change VMs and folders: what goes over the wire for each, and what is looked at just before something is destroyed.

Nothing here decides or waits: a call starts a task and returns its reference; its end comes through the inventory.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from pyVmomi import vim

from .faults import NotFound, Rejected
from .properties import to_text, to_tuple
from .retrieve import retrieve_properties
from .session import Session
from .transport import SoapClient
from .updates import DISK_TYPE, TYPE_KEY, Ref, Value

_LINKED_CLONE_DISK_MOVE_TYPE = "createNewChildDiskBacking"
VM_CONFIG_PROPERTIES = ("config.extraConfig", "config.hardware.device")


class CloneSpec(Struct, frozen=True, kw_only=True):
    """All of one clone. References are MoRefs, "" for what vCenter should choose."""

    template: str
    folder: str
    name: str
    resource_pool: str
    datastore: str = ""
    cpus: int
    memory_mb: int
    instance_uuid: str
    extra_config: Mapping[str, str] = {}
    """extraConfig."""
    power_on: bool = True
    linked: bool = False
    """On the template's present snapshot, sharing its disks."""
    storage_policy: str = ""
    """The id of a storage policy."""


class VmConfig(Struct, frozen=True):
    """Whose a VM is, and whose disks it has."""

    extra_config: dict[str, str] = {}
    """extraConfig."""
    first_class_disks: tuple[str, ...] = ()
    """Ids of the First Class Disks that are attached."""
    disk_files: tuple[str, ...] = ()
    """Files of all other disks: `[datastore] folder/name.vmdk`."""

    def foreign_disk_files(self, vmx: str) -> tuple[str, ...]:
        """Those that do not lie with the VM's own files, whatever datastore: somebody attached them."""
        own = _parse_folder(vmx)
        return tuple(
            each for each in self.disk_files if own and not _parse_folder(each).startswith(own)
        )


class FreshVm(Struct, frozen=True):
    """A VM as vCenter has it at this very moment."""

    instance_uuid: str
    vmx_path: str
    config: VmConfig

    @property
    def has_foreign_disks(self) -> bool:
        """Whether it carries somebody's data."""
        return bool(self.config.first_class_disks or self.config.foreign_disk_files(self.vmx_path))


class VmCalls:
    """What can be done in one vCenter."""

    def __init__(self, soap: SoapClient, session: Session) -> None:
        self.soap, self.session = soap, session

    async def clone(self, order: CloneSpec, snapshot: Any = None) -> Any:
        """Start a clone; its VM has mark, size and identity from its first moment. A linked one stands on the snapshot."""
        location = vim.vm.RelocateSpec(pool=vim.ResourcePool(order.resource_pool, self.soap.stub))
        if order.datastore:
            location.datastore = vim.Datastore(order.datastore, self.soap.stub)
        if order.storage_policy:
            location.profile = [vim.vm.DefinedProfileSpec(profileId=order.storage_policy)]
        config = vim.vm.ConfigSpec(
            numCPUs=order.cpus,
            memoryMB=order.memory_mb,
            instanceUuid=order.instance_uuid,
            extraConfig=[
                vim.option.OptionValue(key=key, value=value)
                for key, value in order.extra_config.items()
            ],
        )
        spec = vim.vm.CloneSpec(
            location=location, template=False, config=config, powerOn=order.power_on
        )
        if snapshot is not None:
            location.diskMoveType, spec.snapshot = _LINKED_CLONE_DISK_MOVE_TYPE, snapshot
        return await self._managed_vm(order.template).CloneVM_Task(
            vim.Folder(order.folder, self.soap.stub), escape_name(order.name), spec
        )

    async def power_on(self, ref: str) -> Any:
        """Start powering a VM on, or resuming it."""
        return await self._managed_vm(ref).PowerOnVM_Task(None)

    async def power_off(self, ref: str) -> Any:
        """Start powering a VM off."""
        return await self._managed_vm(ref).PowerOffVM_Task()

    async def resize(self, ref: str, cpus: int, memory_mb: int) -> Any:
        """Start giving a VM another size."""
        return await self._managed_vm(ref).ReconfigVM_Task(
            vim.vm.ConfigSpec(numCPUs=cpus, memoryMB=memory_mb)
        )

    async def destroy(self, ref: str) -> Any:
        """Start destroying a VM with its disks."""
        return await self._managed_vm(ref).Destroy_Task()

    async def destroy_folder(self, ref: str) -> Any:
        """Start destroying a folder, with all that is in it: look into it first."""
        return await vim.Folder(ref, self.soap.stub).Destroy_Task()

    async def create_folder(self, parent: str, name: str) -> str:
        """Make a folder; its reference."""
        made = await vim.Folder(parent, self.soap.stub).CreateFolder(escape_name(name))
        return str(made._moId)

    async def read_vm(self, ref: str) -> FreshVm:
        """The VM as it is now; raises NotFound for one that is gone."""
        found = await self.read_properties(
            "VirtualMachine",
            ref,
            ["config.instanceUuid", "config.files.vmPathName", *VM_CONFIG_PROPERTIES],
        )
        return FreshVm(
            to_text(found.get("config.instanceUuid")),
            to_text(found.get("config.files.vmPathName")),
            decode_vm_config(found),
        )

    async def is_folder_empty(self, folder: str) -> bool:
        """Whether nothing is in the folder at this moment."""
        return not to_tuple(
            (await self.read_properties("Folder", folder, ["childEntity"])).get("childEntity")
        )

    async def read_current_snapshot(self, template: str) -> Any:
        """The present snapshot, which a linked clone stands on."""
        found = (
            await self.read_properties("VirtualMachine", template, ["snapshot.currentSnapshot"])
        ).get("snapshot.currentSnapshot")
        if not isinstance(found, Ref):
            raise Rejected(
                "a linked clone needs a snapshot of the template, and it has none; take one in vCenter, or unset spec.linkedClone",
                fault="NoSnapshot",
            )
        return vim.vm.Snapshot(found.value, self.soap.stub)

    async def read_properties(self, kind: str, ref: str, paths: list[str]) -> dict[str, Value]:
        """Some properties of one object, from vCenter itself and not from memory."""
        updates = await retrieve_properties(self.soap, self.session, kind, [ref], paths)
        if not updates:
            raise NotFound(f"{kind} {ref} is gone", fault="ManagedObjectNotFound")
        if missing := updates[0].missing:
            raise Rejected(
                f"vCenter does not show {', '.join(missing)} of {kind} {ref} to this account, so nothing is done to it"
            )
        return dict(updates[0].changes)

    def _managed_vm(self, ref: str) -> Any:
        """The VM to call."""
        return vim.VirtualMachine(ref, self.soap.stub)


def decode_vm_config(found: Mapping[str, Value]) -> VmConfig:
    """What the properties of BELONGINGS say."""
    options, devices = (to_tuple(found.get(path)) for path in VM_CONFIG_PROPERTIES)
    disks = [each for each in devices if isinstance(each, dict) and each.get(TYPE_KEY) == DISK_TYPE]
    ids = [each.get("vDiskId") for each in disks]
    backings = [each.get("backing") for each in disks if not each.get("vDiskId")]
    return VmConfig(
        {
            to_text(each.get("key")): to_text(each.get("value"))
            for each in options
            if isinstance(each, dict)
        },
        tuple(disk for each in ids if isinstance(each, dict) and (disk := to_text(each.get("id")))),
        tuple(
            file
            for each in backings
            if isinstance(each, dict) and (file := to_text(each.get("fileName")))
        ),
    )


def _parse_folder(path: str) -> str:
    """The folder in `[datastore] folder/name.vmdk`, without the datastore."""
    return path.partition("] ")[2].rpartition("/")[0]


def escape_name(name: str) -> str:
    """A name as it goes over the wire: vCenter takes %, / and backslash only so."""
    return name.replace("%", "%25").replace("/", "%2f").replace("\\", "%5c")


def build_guestinfo(user_data: bytes, meta_data: bytes) -> dict[str, str]:
    """cloud-init's datasource VMware, as extraConfig."""
    given = {"userdata": user_data, "metadata": meta_data}
    encoded = {
        f"guestinfo.{key}": base64.b64encode(value).decode()
        for key, value in given.items()
        if value
    }
    return encoded | {f"{key}.encoding": "base64" for key in encoded}
