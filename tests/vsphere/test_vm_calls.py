"""The request of a clone, and the configuration that is read of a VM."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any
from unittest.mock import Mock

from pyVmomi import vim

from vsphere_operators.vsphere.transport import SoapStub
from vsphere_operators.vsphere.vm_calls import (
    CloneSpec,
    VmCalls,
    VmConfig,
    _escape_name,
    decode_vm_config,
)

CLONE_REQUEST = CloneSpec(
    template="vm-1",
    folder="group-v3",
    name="web/1",
    resource_pool="resgroup-1",
    cpus=2,
    memory_mb=1024,
    instance_uuid="11111111-2222-5333-8444-555555555555",
    extra_config={"vsphere-operators.uid": "u1"},
)


class RecordingStub(SoapStub):
    """Records calls."""

    def __init__(self) -> None:
        super().__init__(Mock())
        self.calls: list[tuple[str, str, tuple[Any, ...]]] = []

    def InvokeMethod(  # noqa: N802  # pyVmomi's name
        self, target: Any, info: Any, arguments: Any, outer: Any = None
    ) -> Awaitable[Any]:
        self.calls.append((target._moId, info.wsdlName, tuple(arguments)))
        return self.return_task()

    async def return_task(self) -> Any:
        return vim.Task("task-1", self)


def make_vm_calls() -> tuple[VmCalls, RecordingStub]:
    wire = RecordingStub()
    return VmCalls(Mock(stub=wire), Mock()), wire


async def test_clone_has_mark_size_and_uuid_from_the_beginning() -> None:
    vm_calls, wire = make_vm_calls()
    assert await vm_calls.clone(CLONE_REQUEST) == "task-1"
    ((template, method, (folder, name, spec)),) = wire.calls
    assert (template, method, folder._moId, name) == ("vm-1", "CloneVM_Task", "group-v3", "web%2f1")
    assert (spec.powerOn, spec.template, spec.location.pool._moId, spec.location.datastore) == (
        True,
        False,
        "resgroup-1",
        None,
    )
    config = spec.config
    assert (config.numCPUs, config.memoryMB, config.instanceUuid) == (
        2,
        1024,
        CLONE_REQUEST.instance_uuid,
    )
    assert [(option.key, option.value) for option in config.extraConfig] == [
        ("vsphere-operators.uid", "u1")
    ]
    assert (spec.snapshot, spec.location.diskMoveType, list(spec.location.profile)) == (
        None,
        None,
        [],
    )


async def test_linked_clone_on_a_datastore_with_a_policy() -> None:
    vm_calls, wire = make_vm_calls()
    order = CloneSpec(
        **{
            **{field: getattr(CLONE_REQUEST, field) for field in CLONE_REQUEST.__struct_fields__},
            "datastore": "ds-1",
            "storage_policy": "gold",
        }
    )
    await vm_calls.clone(order, vim.vm.Snapshot("snapshot-7", wire))
    spec = wire.calls[0][2][2]
    assert (spec.snapshot._moId, spec.location.diskMoveType) == (
        "snapshot-7",
        "createNewChildDiskBacking",
    )
    assert (
        spec.location.datastore._moId,
        [profile.profileId for profile in spec.location.profile],
    ) == (
        "ds-1",
        ["gold"],
    )


def test_decode_owner_and_disks_of_a_vm() -> None:
    disk = "VirtualDisk"
    config = decode_vm_config(
        {
            "config.extraConfig": ({"key": "a", "value": "1"}, {"key": "b", "value": ""}),
            "config.hardware.device": (
                {
                    "@type": disk,
                    "vDiskId": {"id": "fcd-1"},
                    "backing": {"fileName": "[ds] fcd/x.vmdk"},
                },
                {"@type": disk, "backing": {"fileName": "[ds] web-1/web-1.vmdk"}},
                {"@type": disk, "backing": {"fileName": "[other] web-1_1/web-1.vmdk"}},
                {"@type": disk, "backing": {"fileName": "[ds] other/data.vmdk"}},
                {"@type": disk, "backing": {"fileName": "[ds] web-10/data.vmdk"}},
                {"@type": disk, "backing": {"fileName": "[ds] web-1_1x/data.vmdk"}},
                {"@type": "VirtualPCIPassthrough", "backing": {"fileName": "[ds] other/no-disk"}},
            ),
        }
    )
    assert (config.extra_config, config.first_class_disks) == ({"a": "1", "b": ""}, ("fcd-1",))
    # vCenter names a second folder of the VM web-1_1; web-10 is another VM.
    assert config.foreign_disk_files("[ds] web-1/web-1.vmx") == (
        "[ds] other/data.vmdk",
        "[ds] web-10/data.vmdk",
        "[ds] web-1_1x/data.vmdk",
    )
    assert decode_vm_config({}) == VmConfig()


def test_escaped_names() -> None:
    assert _escape_name("a/b\\c%d") == "a%2fb%5cc%25d"
