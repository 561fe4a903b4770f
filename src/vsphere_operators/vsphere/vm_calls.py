"""Calls that change VMs and folders, and the reads that precede a destructive one.

A call starts a task and returns its reference. The end of the task arrives through the inventory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from pyVmomi import vim

from .faults import NotFound, Rejected
from .properties import to_text, to_tuple
from .property_collector import retrieve_properties
from .session import Session
from .transport import SoapClient
from .updates import DISK_TYPE, TYPE_KEY, Ref, Value

_LINKED_CLONE_DISK_MOVE_TYPE = "createNewChildDiskBacking"
VM_CONFIG_PROPERTIES = ("config.extraConfig", "config.hardware.device")


class CloneSpec(Struct, frozen=True, kw_only=True):
    """One clone. References are MoRefs; "" lets vCenter choose."""

    template: str
    folder: str
    name: str
    resource_pool: str
    datastore: str = ""
    cpus: int
    memory_mb: int
    instance_uuid: str
    extra_config: Mapping[str, str] = {}
    power_on: bool = True
    # Shares the disks of the template's current snapshot.
    linked: bool = False
    storage_policy: str = ""


class VmConfig(Struct, frozen=True):
    """The parts of a VM's configuration that show its owner and its disks."""

    extra_config: dict[str, str] = {}
    # Ids of attached First Class Disks.
    first_class_disks: tuple[str, ...] = ()
    # Files of all other disks, `[datastore] folder/name.vmdk`.
    disk_files: tuple[str, ...] = ()

    def foreign_disk_files(self, vmx_path: str) -> tuple[str, ...]:
        """Disk files outside the VM's own folder, on any datastore: they were attached later."""
        own_folder = _parse_folder(vmx_path)
        # vCenter appends _1, _2... if the datastore already has a folder of that name.
        pattern = re.compile(re.escape(own_folder) + r"(_\d+)?(/|$)")
        return tuple(
            file
            for file in self.disk_files
            if own_folder and not pattern.match(_parse_folder(file))
        )


class CurrentVm(Struct, frozen=True):
    """A VM as vCenter has it now, which the inventory may not show yet."""

    instance_uuid: str
    vmx_path: str
    config: VmConfig

    @property
    def has_foreign_disks(self) -> bool:
        # Such a disk may hold data of a user, and Destroy_Task would delete it.
        return bool(self.config.first_class_disks or self.config.foreign_disk_files(self.vmx_path))


class VmCalls:
    def __init__(self, soap: SoapClient, session: Session) -> None:
        self.soap, self.session = soap, session

    async def clone(self, spec: CloneSpec, snapshot: Any = None) -> str:
        """Start a clone. Its VM has the ownership mark, size and uuid from the beginning."""
        location = vim.vm.RelocateSpec(pool=vim.ResourcePool(spec.resource_pool, self.soap.stub))
        if spec.datastore:
            location.datastore = vim.Datastore(spec.datastore, self.soap.stub)
        if spec.storage_policy:
            location.profile = [vim.vm.DefinedProfileSpec(profileId=spec.storage_policy)]
        config = vim.vm.ConfigSpec(
            numCPUs=spec.cpus,
            memoryMB=spec.memory_mb,
            instanceUuid=spec.instance_uuid,
            extraConfig=[
                vim.option.OptionValue(key=key, value=value)
                for key, value in spec.extra_config.items()
            ],
        )
        vim_spec = vim.vm.CloneSpec(
            location=location, template=False, config=config, powerOn=spec.power_on
        )
        if snapshot is not None:
            location.diskMoveType, vim_spec.snapshot = _LINKED_CLONE_DISK_MOVE_TYPE, snapshot
        task = await self._managed_vm(spec.template).CloneVM_Task(
            vim.Folder(spec.folder, self.soap.stub), _escape_name(spec.name), vim_spec
        )
        return _ref_of(task)

    async def power_on(self, ref: str) -> str:
        """Power on a VM, or resume a suspended one."""
        return _ref_of(await self._managed_vm(ref).PowerOnVM_Task(None))

    async def power_off(self, ref: str) -> str:
        return _ref_of(await self._managed_vm(ref).PowerOffVM_Task())

    async def resize(self, ref: str, cpus: int, memory_mb: int) -> str:
        size = vim.vm.ConfigSpec(numCPUs=cpus, memoryMB=memory_mb)
        return _ref_of(await self._managed_vm(ref).ReconfigVM_Task(size))

    async def destroy(self, ref: str) -> str:
        """Destroy a VM with its disks."""
        return _ref_of(await self._managed_vm(ref).Destroy_Task())

    async def destroy_folder(self, ref: str) -> str:
        """Destroy a folder with everything in it. Check `is_folder_empty` first."""
        return _ref_of(await vim.Folder(ref, self.soap.stub).Destroy_Task())

    async def create_folder(self, parent: str, name: str) -> str:
        """Create a folder, and return its reference."""
        folder = vim.Folder(parent, self.soap.stub)
        return _ref_of(await folder.CreateFolder(_escape_name(name)))

    async def read_vm(self, ref: str) -> CurrentVm:
        """The VM as it is now. Raises NotFound if it was deleted."""
        properties = await self.read_properties(
            "VirtualMachine",
            ref,
            ["config.instanceUuid", "config.files.vmPathName", *VM_CONFIG_PROPERTIES],
        )
        return CurrentVm(
            to_text(properties.get("config.instanceUuid")),
            to_text(properties.get("config.files.vmPathName")),
            decode_vm_config(properties),
        )

    async def is_folder_empty(self, folder: str) -> bool:
        properties = await self.read_properties("Folder", folder, ["childEntity"])
        return not to_tuple(properties.get("childEntity"))

    async def read_current_snapshot(self, template: str) -> Any:
        """The snapshot that a linked clone is based on."""
        path = "snapshot.currentSnapshot"
        snapshot = (await self.read_properties("VirtualMachine", template, [path])).get(path)
        if not isinstance(snapshot, Ref):
            raise Rejected(
                "a linked clone needs a snapshot of the template, and it has none; take one in "
                "vCenter, or unset spec.linkedClone",
                fault="NoSnapshot",
            )
        return vim.vm.Snapshot(snapshot.value, self.soap.stub)

    async def read_properties(self, type_name: str, ref: str, paths: list[str]) -> dict[str, Value]:
        """Properties of one object from vCenter itself, not from the inventory."""
        updates = await retrieve_properties(self.soap, self.session, type_name, [ref], paths)
        if not updates:
            raise NotFound(f"{type_name} {ref} no longer exists", fault="ManagedObjectNotFound")
        if missing := updates[0].missing:
            raise Rejected(
                f"vCenter does not return {', '.join(missing)} of {type_name} {ref} to this "
                "account, so it is left unchanged"
            )
        return dict(updates[0].changes)

    def _managed_vm(self, ref: str) -> Any:
        return vim.VirtualMachine(ref, self.soap.stub)


def decode_vm_config(properties: Mapping[str, Value]) -> VmConfig:
    """The value of VM_CONFIG_PROPERTIES."""
    options, devices = (to_tuple(properties.get(path)) for path in VM_CONFIG_PROPERTIES)
    disks = [
        device
        for device in devices
        if isinstance(device, dict) and device.get(TYPE_KEY) == DISK_TYPE
    ]
    ids = [disk.get("vDiskId") for disk in disks]
    backings = [disk.get("backing") for disk in disks if not disk.get("vDiskId")]
    return VmConfig(
        {
            to_text(option.get("key")): to_text(option.get("value"))
            for option in options
            if isinstance(option, dict)
        },
        tuple(
            text
            for disk_id in ids
            if isinstance(disk_id, dict) and (text := to_text(disk_id.get("id")))
        ),
        tuple(
            file
            for backing in backings
            if isinstance(backing, dict) and (file := to_text(backing.get("fileName")))
        ),
    )


def _ref_of(managed_object: Any) -> str:
    return str(managed_object._moId)


def _parse_folder(path: str) -> str:
    """The folder in `[datastore] folder/name.vmdk`, without the datastore."""
    return path.partition("] ")[2].rpartition("/")[0]


def _escape_name(name: str) -> str:
    """A name as vCenter requires it on the wire."""
    return name.replace("%", "%25").replace("/", "%2f").replace("\\", "%5c")
