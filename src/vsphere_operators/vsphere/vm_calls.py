"""Calls that change VMs and folders, and the reads that precede some of them.

A call starts a task and returns its reference. The end of the task arrives through the inventory.

What is read of a template before a clone?  Its current snapshot for a linked clone, its disks for a
    storage policy, and whether it has a vApp configuration for cloud-init: nothing for other
    clones. Devices and vApp configuration are too large for the inventory, which has all VMs. They
    are read once for each `config.changeVersion`, not for each clone.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .converters import (
    parse_int,
    require_int,
    require_items,
    require_ref,
    require_text,
    to_text,
    to_tuple,
)
from .decode_errors import DECODE_ERRORS
from .faults import NotFound, Rejected
from .property_collector import retrieve_properties
from .session import Session
from .transport import SoapClient
from .updates import DISK_TYPE, TYPE_KEY, Ref, Value

_LINKED_CLONE_DISK_MOVE_TYPE = "createNewChildDiskBacking"
_SNAPSHOT_PROPERTY = "snapshot.currentSnapshot"
_DEVICES_PROPERTY, _VAPP_PROPERTY = "config.hardware.device", "config.vAppConfig"
VM_CONFIG_PROPERTIES = ("config.extraConfig", _DEVICES_PROPERTY)
# An int of the vSphere API.
_MAX_DEVICE_KEY = 2**31 - 1


class CloneSpec(Struct, frozen=True, kw_only=True):
    """One clone. References are MoRefs; "" lets vCenter choose."""

    template: str
    folder: str
    name: str
    resource_pool: str
    datastore: str = ""
    cpus: int
    # None: as many as the template has.
    cores_per_socket: int | None = None
    memory_mb: int
    instance_uuid: str
    extra_config: Mapping[str, str] = {}
    power_on: bool = True
    # Shares the disks of the template's current snapshot.
    linked: bool = False
    # Of the VM's home and of all its disks.
    storage_policy: str = ""
    # Without the OVF properties of a template from an OVA: cloud-init prefers its datasource OVF,
    # and would ignore guestinfo.userdata.
    remove_vapp: bool = False

    @property
    def needs_template_config(self) -> bool:
        return bool(self.linked or self.storage_policy or self.remove_vapp)


class TemplateDisk(Struct, frozen=True):
    # The number of the device.
    key: int
    # The MoRef of its datastore.
    datastore: str


class TemplateConfig(Struct, frozen=True, kw_only=True):
    """What a clone has to know of its template."""

    # A vim.vm.Snapshot; only read for linked clones.
    snapshot: Any = None
    # None if one of them has an unknown form.
    disks: tuple[TemplateDisk, ...] | None = ()
    has_vapp: bool = False


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
        # With the slash, because `web_1` is the folder of another VM: vCenter appends _1, _2... if
        # the datastore already has a folder `web`.
        return tuple(
            file
            for file in self.disk_files
            if own_folder and not f"{_parse_folder(file)}/".startswith(f"{own_folder}/")
        )


class CurrentVm(Struct, frozen=True):
    """A VM as vCenter has it now, which the inventory may not show yet."""

    instance_uuid: str
    vmx_path: str
    config: VmConfig

    @property
    def has_foreign_disks(self) -> bool:
        # Such a disk may hold data of a user, and Destroy_Task would delete it. Without the VM's
        # own folder, no disk is known to be its own.
        is_folder_unknown = not _parse_folder(self.vmx_path)
        return bool(
            self.config.first_class_disks
            or self.config.foreign_disk_files(self.vmx_path)
            or (is_folder_unknown and self.config.disk_files)
        )


class VmCalls:
    def __init__(self, soap: SoapClient, session: Session) -> None:
        self.soap, self.session = soap, session
        # By template, with the config.changeVersion that the inventory had.
        self._template_configs: dict[str, tuple[str, TemplateConfig]] = {}

    async def clone(self, spec: CloneSpec, template: TemplateConfig | None = None) -> str:
        """Start a clone. Its VM has the ownership mark, size and uuid from the beginning.

        `template` is required if `spec.needs_template_config`.
        """
        vim, template = _vim(), template or TemplateConfig()
        config = vim.vm.ConfigSpec(
            numCPUs=spec.cpus,
            numCoresPerSocket=spec.cores_per_socket,
            memoryMB=spec.memory_mb,
            instanceUuid=spec.instance_uuid,
            extraConfig=[
                vim.option.OptionValue(key=key, value=value)
                for key, value in spec.extra_config.items()
            ],
        )
        if spec.remove_vapp and template.has_vapp:
            # Only then: it needs the privilege VApp.ApplicationConfig.
            config.vAppConfigRemoved = True
        vim_spec = vim.vm.CloneSpec(
            location=self._build_location(spec, template),
            template=False,
            config=config,
            powerOn=spec.power_on,
            snapshot=template.snapshot,
        )
        task = await self._managed_vm(spec.template).CloneVM_Task(
            vim.Folder(spec.folder, self.soap.stub), _escape_name(spec.name), vim_spec
        )
        return _ref_of(task)

    def _build_location(self, spec: CloneSpec, template: TemplateConfig) -> Any:
        vim, stub = _vim(), self.soap.stub
        move_type = _LINKED_CLONE_DISK_MOVE_TYPE if spec.linked else None
        location = vim.vm.RelocateSpec(
            pool=vim.ResourcePool(spec.resource_pool, stub), diskMoveType=move_type
        )
        if spec.datastore:
            location.datastore = vim.Datastore(spec.datastore, stub)
        if spec.storage_policy:
            profile = [vim.vm.DefinedProfileSpec(profileId=spec.storage_policy)]
            # This is the profile of the VM's home. A disk has only that of its own locator, and the
            # datastore and the move type of the location do not apply to it.
            location.profile = profile
            location.disk = [
                vim.vm.RelocateSpec.DiskLocator(
                    diskId=disk.key,
                    datastore=vim.Datastore(spec.datastore or disk.datastore, stub),
                    diskMoveType=move_type,
                    profile=profile,
                )
                for disk in template.disks or ()
            ]
        return location

    async def power_on(self, ref: str) -> str:
        """Power on a VM, or resume a suspended one."""
        return _ref_of(await self._managed_vm(ref).PowerOnVM_Task(None))

    async def power_off(self, ref: str) -> str:
        return _ref_of(await self._managed_vm(ref).PowerOffVM_Task())

    async def resize(
        self, ref: str, cpus: int, cores_per_socket: int | None, memory_mb: int
    ) -> str:
        size = _vim().vm.ConfigSpec(
            numCPUs=cpus, numCoresPerSocket=cores_per_socket, memoryMB=memory_mb
        )
        return _ref_of(await self._managed_vm(ref).ReconfigVM_Task(size))

    async def set_identity(
        self, ref: str, instance_uuid: str, extra_config: Mapping[str, str], change_version: str
    ) -> str:
        """Set instanceUuid and entries of extraConfig together; an empty value removes an entry.

        Both can be changed while the VM runs. Fails with ConcurrentAccess if the VM has another
        `config.changeVersion` by now.
        """
        vim = _vim()
        config = vim.vm.ConfigSpec(
            changeVersion=change_version,
            instanceUuid=instance_uuid,
            extraConfig=[
                vim.option.OptionValue(key=key, value=value) for key, value in extra_config.items()
            ],
        )
        return _ref_of(await self._managed_vm(ref).ReconfigVM_Task(config))

    async def destroy(self, ref: str, send_within_seconds: float) -> str:
        """Destroy a VM with its disks. It may be suspended, but not powered on."""
        stub = self._build_stub(send_within_seconds)
        return _ref_of(await _vim().VirtualMachine(ref, stub).Destroy_Task())

    async def destroy_folder(self, ref: str, send_within_seconds: float) -> str:
        """Remove a folder. Check `is_folder_empty` first.

        Destroy_Task would also delete the disks of a VM that was moved into the folder since. This
        call only unregisters such a VM, and it can be registered again.
        """
        stub = self._build_stub(send_within_seconds)
        return _ref_of(await _vim().Folder(ref, stub).UnregisterAndDestroy_Task())

    def _build_stub(self, send_within_seconds: float) -> Any:
        """A stub that sends nothing later than that: a new connection may take long."""
        stub = copy(self.soap.stub)
        stub.send_within_seconds = send_within_seconds
        return stub

    async def create_folder(self, parent: str, name: str) -> str:
        """Create a folder, and return its reference."""
        folder = _vim().Folder(parent, self.soap.stub)
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
            self._decode_vm_config(properties, ref),
        )

    async def is_folder_empty(self, folder: str) -> bool:
        properties = await self.read_properties("Folder", folder, ["childEntity"])
        return not to_tuple(properties.get("childEntity"))

    async def read_template(self, spec: CloneSpec, config_version: str) -> TemplateConfig:
        """What `clone` needs; `config_version` is that of the template in the inventory."""
        cached_version, config = self._template_configs.get(spec.template, ("", TemplateConfig()))
        is_cached = bool(config_version) and cached_version == config_version
        # A new snapshot does not have to change config.changeVersion, so it is always read.
        paths = [_SNAPSHOT_PROPERTY] if spec.linked else []
        if not is_cached and (spec.storage_policy or spec.remove_vapp):
            paths += [_DEVICES_PROPERTY, _VAPP_PROPERTY]
        properties = dict[str, Value]()
        if paths:
            properties = await self.read_properties("VirtualMachine", spec.template, paths)
        if _DEVICES_PROPERTY in paths:
            config = self._decode_template_config(properties, spec.template)
            self._template_configs[spec.template] = config_version, config
        if spec.storage_policy and config.disks is None:
            raise Rejected(
                f"a disk of template {spec.template} has an unknown form, and spec.storagePolicy "
                "would not apply to it, so nothing is cloned; see the manager's log"
            )
        if not spec.linked:
            return config
        snapshot = properties.get(_SNAPSHOT_PROPERTY)
        if not isinstance(snapshot, Ref):
            raise Rejected(
                "a linked clone needs a snapshot of the template, and it has none; take one in "
                "vCenter, or unset spec.linkedClone",
                fault="NoSnapshot",
            )
        return replace(config, snapshot=_vim().vm.Snapshot(snapshot.value, self.soap.stub))

    async def read_properties(self, type_name: str, ref: str, paths: list[str]) -> dict[str, Value]:
        """Properties of one object from vCenter itself, not from the inventory."""
        updates = await retrieve_properties(self.soap, self.session, type_name, [ref], paths)
        if not updates:
            raise NotFound(f"{type_name} {ref} no longer exists", fault="ManagedObjectNotFound")
        if missing := updates[0].missing:
            raise Rejected(
                f"vCenter does not return {', '.join(missing)} of {type_name} {ref} to this "
                "account, or returns it in an unknown form, so the object is left unchanged"
            )
        return dict(updates[0].changes)

    def _decode_template_config(
        self, properties: Mapping[str, Value], template: str
    ) -> TemplateConfig:
        disks = None
        try:
            disks = _decode_template_disks(properties)
        except DECODE_ERRORS as error:
            self.soap.decode_errors.report("VirtualMachine", _DEVICES_PROPERTY, template, error)
        return TemplateConfig(disks=disks, has_vapp=properties.get(_VAPP_PROPERTY) is not None)

    def _decode_vm_config(self, properties: Mapping[str, Value], ref: str) -> VmConfig:
        try:
            return decode_vm_config(properties)
        except DECODE_ERRORS as error:
            self.soap.decode_errors.report("VirtualMachine", ", ".join(properties), ref, error)
            raise Rejected(
                f"a part of the configuration of VirtualMachine {ref} has an unknown form, so it "
                "is left unchanged; see the manager's log"
            ) from error

    def _managed_vm(self, ref: str) -> Any:
        return _vim().VirtualMachine(ref, self.soap.stub)


def _vim() -> Any:
    """PyVmomi's types. The executor has loaded them before the checks that precede a call."""
    from pyVmomi import vim

    return vim


def decode_vm_config(properties: Mapping[str, Value]) -> VmConfig:
    """The value of VM_CONFIG_PROPERTIES. A disk of an unknown form raises one of DECODE_ERRORS."""
    # Not left out: without it, a VM would be destroyed together with a disk of a user.
    first_class_disks, disk_files = list[str](), list[str]()
    for disk in _list_disks(properties):
        names, holder, key = (
            (first_class_disks, disk["vDiskId"], "id")
            if disk.get("vDiskId")
            else (disk_files, disk.get("backing"), "fileName")
        )
        name = to_text(holder.get(key)) if isinstance(holder, dict) else ""
        if not name:
            raise ValueError("a disk without an id and without a file")
        names.append(name)
    return VmConfig(
        {
            require_text(option["key"]): to_text(option.get("value"))
            for option in require_items(properties.get("config.extraConfig"))
        },
        tuple(first_class_disks),
        tuple(disk_files),
    )


def _decode_template_disks(properties: Mapping[str, Value]) -> tuple[TemplateDisk, ...]:
    """The disks to which a policy applies. One of an unknown form raises one of DECODE_ERRORS."""
    # Not left out: it would be cloned without the policy, which may require encryption.
    if not require_items(properties.get(_DEVICES_PROPERTY)):
        raise ValueError("a VM without devices")
    disks = list[TemplateDisk]()
    for disk in _list_disks(properties):
        backing = disk["backing"]
        if not isinstance(backing, dict):
            raise TypeError("a disk without a backing")
        # A device of the host has no file, and so no datastore that a DiskLocator could name.
        if "deviceName" in backing and "fileName" not in backing:
            continue
        key = require_int(parse_int(disk["key"]))
        if not 0 < key <= _MAX_DEVICE_KEY:
            raise ValueError("a disk without a valid key")
        disks.append(TemplateDisk(key, require_ref(backing["datastore"])))
    return tuple(disks)


def _list_disks(properties: Mapping[str, Value]) -> list[dict[str, Value]]:
    devices = require_items(properties.get(_DEVICES_PROPERTY))
    return [device for device in devices if device.get(TYPE_KEY) == DISK_TYPE]


def _ref_of(managed_object: Any) -> str:
    return str(managed_object._moId)


def _parse_folder(path: str) -> str:
    """The folder in `[datastore] folder/name.vmdk`, without the datastore."""
    return path.partition("] ")[2].rpartition("/")[0]


def _escape_name(name: str) -> str:
    """A name as vCenter requires it on the wire."""
    return name.replace("%", "%25").replace("/", "%2f").replace("\\", "%5c")
