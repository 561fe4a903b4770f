"""The request of a clone, and the configuration that is read of a VM."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace
from pyVmomi import vim

from kubewright.testing import eventually
from vsphere_operators.vsphere import transport
from vsphere_operators.vsphere.decode_errors import DecodeErrors
from vsphere_operators.vsphere.faults import Rejected, TimedOut
from vsphere_operators.vsphere.pyvmomi_stub import SoapStub
from vsphere_operators.vsphere.transport import SoapClient
from vsphere_operators.vsphere.updates import Ref
from vsphere_operators.vsphere.vm_calls import (
    CloneSpec,
    CurrentVm,
    TemplateConfig,
    TemplateDisk,
    VmCalls,
    VmConfig,
    _escape_name,
    decode_vm_config,
)

from .canned_server import (
    CURRENT_TIME_RESPONSE,
    ReceivedRequest,
    RecordingMetrics,
    http_response,
    run_canned_server,
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
    order = replace(CLONE_REQUEST, datastore="ds-1", storage_policy="gold", linked=True)
    template = TemplateConfig(
        snapshot=vim.vm.Snapshot("snapshot-7", wire), disks=(TemplateDisk(2000, "ds-9"),)
    )
    await vm_calls.clone(order, template)
    spec = wire.calls[0][2][2]
    # A locator that does not repeat the move type would copy the disk.
    (disk,) = spec.location.disk
    assert (disk.diskId, disk.datastore._moId, disk.diskMoveType) == (
        2000,
        "ds-1",
        "createNewChildDiskBacking",
    )
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


async def test_a_folder_is_removed_without_the_disks_of_what_is_in_it() -> None:
    vm_calls, wire = make_vm_calls()
    assert await vm_calls.destroy_folder("group-v3", send_within_seconds=2.0) == "task-1"
    assert wire.calls == [("group-v3", "UnregisterAndDestroy_Task", ())]


async def test_a_policy_applies_to_each_disk_where_the_template_has_it() -> None:
    vm_calls, wire = make_vm_calls()
    template = TemplateConfig(disks=(TemplateDisk(2000, "ds-1"), TemplateDisk(2001, "ds-2")))
    await vm_calls.clone(replace(CLONE_REQUEST, storage_policy="gold"), template)
    location = wire.calls[0][2][2].location
    assert [
        (disk.diskId, disk.datastore._moId, [profile.profileId for profile in disk.profile])
        for disk in location.disk
    ] == [(2000, "ds-1", ["gold"]), (2001, "ds-2", ["gold"])]
    assert [disk.diskMoveType for disk in location.disk] == [None, None]
    assert location.datastore is None


@pytest.mark.parametrize(
    ("remove", "has_vapp", "sent"),
    [(True, True, True), (True, False, None), (False, True, None)],
)
async def test_cloud_init_removes_the_vapp_configuration_that_the_template_has(
    remove: bool, has_vapp: bool, sent: bool | None
) -> None:
    vm_calls, wire = make_vm_calls()
    await vm_calls.clone(
        replace(CLONE_REQUEST, remove_vapp=remove), TemplateConfig(has_vapp=has_vapp)
    )
    assert wire.calls[0][2][2].config.vAppConfigRemoved is sent


async def test_cores_per_socket_are_sent_with_a_clone_and_a_resize() -> None:
    vm_calls, wire = make_vm_calls()
    await vm_calls.clone(replace(CLONE_REQUEST, cores_per_socket=2))
    await vm_calls.resize("vm-7", 4, 2, 2048)
    (_, _, (_, _, clone)), (ref, method, (size,)) = wire.calls
    assert clone.config.numCoresPerSocket == 2
    assert (ref, method) == ("vm-7", "ReconfigVM_Task")
    assert (size.numCPUs, size.numCoresPerSocket, size.memoryMB) == (4, 2, 2048)


TEMPLATE_PROPERTIES = {
    "config.hardware.device": (
        {
            "@type": "VirtualDisk",
            "key": "2000",
            "backing": {"fileName": "[a] t/t.vmdk", "datastore": Ref("Datastore", "ds-1")},
        },
        # A disk without a file in a datastore.
        {"@type": "VirtualDisk", "key": "2001", "backing": {"deviceName": "vml.1"}},
        {"@type": "VirtualPCIPassthrough", "key": "13000"},
    ),
    "config.vAppConfig": {"@type": "VmConfigInfo"},
    "snapshot.currentSnapshot": Ref("VirtualMachineSnapshot", "snapshot-7"),
}


class RecordingReads(VmCalls):
    """Answers reads of the template from `properties`, and records their paths."""

    def __init__(self) -> None:
        super().__init__(Mock(stub=RecordingStub()), Mock())
        self.properties: dict[str, Any] = dict(TEMPLATE_PROPERTIES)
        self.reads: list[list[str]] = []

    async def read_properties(self, type_name: str, ref: str, paths: list[str]) -> dict[str, Any]:
        self.reads.append(paths)
        return {path: self.properties[path] for path in paths if path in self.properties}


async def test_a_template_is_read_once_for_each_version_of_its_configuration() -> None:
    calls, spec = RecordingReads(), replace(CLONE_REQUEST, storage_policy="gold")
    expected = TemplateConfig(disks=(TemplateDisk(2000, "ds-1"),), has_vapp=True)
    assert [await calls.read_template(spec, "v1") for _ in range(3)] == [expected] * 3
    del calls.properties["config.vAppConfig"]
    with_cloud_init = replace(CLONE_REQUEST, remove_vapp=True)
    assert (await calls.read_template(with_cloud_init, "v1")).has_vapp
    assert not (await calls.read_template(with_cloud_init, "v2")).has_vapp
    assert calls.reads == [["config.hardware.device", "config.vAppConfig"]] * 2


@pytest.mark.parametrize(
    "devices",
    [
        (),
        ({"@type": "VirtualDisk", "key": "2000"},),
        ({"@type": "VirtualDisk", "key": "2000", "backing": ""},),
        ({"@type": "VirtualDisk", "key": "2000", "backing": {"fileName": "[a] t/t.vmdk"}},),
        ({"@type": "VirtualDisk", "backing": {"datastore": Ref("Datastore", "ds-1")}},),
        ({"@type": "VirtualDisk", "key": "x", "backing": {"datastore": Ref("Datastore", "d")}},),
        (
            {
                "@type": "VirtualDisk",
                "key": str(2**31),
                "backing": {"datastore": Ref("Datastore", "d")},
            },
        ),
    ],
)
async def test_a_disk_of_an_unknown_form_is_not_cloned_without_its_policy(
    devices: tuple[Any, ...],
) -> None:
    calls, metrics = RecordingReads(), RecordingMetrics()
    calls.soap.decode_errors = DecodeErrors(metrics)
    calls.properties["config.hardware.device"] = devices
    for _ in range(2):
        with pytest.raises(Rejected, match=r"spec\.storagePolicy would not apply"):
            await calls.read_template(replace(CLONE_REQUEST, storage_policy="gold"), "v1")
    assert metrics.undecodable
    # Other clones do not name the disks.
    assert (await calls.read_template(replace(CLONE_REQUEST, remove_vapp=True), "v1")).has_vapp


async def test_a_template_without_version_is_read_for_each_clone() -> None:
    calls, spec = RecordingReads(), replace(CLONE_REQUEST, storage_policy="gold")
    for _ in range(2):
        await calls.read_template(spec, "")
    assert len(calls.reads) == 2


async def test_a_linked_clone_reads_the_snapshot_each_time_with_one_call() -> None:
    calls, spec = RecordingReads(), replace(CLONE_REQUEST, linked=True, storage_policy="gold")
    for _ in range(2):
        template = await calls.read_template(spec, "v1")
        assert (template.snapshot._moId, len(template.disks or ())) == ("snapshot-7", 1)
    del calls.properties["snapshot.currentSnapshot"]
    with pytest.raises(Rejected, match="a linked clone needs a snapshot of the template"):
        await calls.read_template(spec, "v1")
    assert [len(paths) for paths in calls.reads] == [3, 1, 1]


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
                {"@type": disk, "backing": {"fileName": "[other] web-1/web-1_1.vmdk"}},
                {"@type": disk, "backing": {"fileName": "[ds] web-1/snapshots/web-1.vmdk"}},
                {"@type": disk, "backing": {"fileName": "[ds] web-1_1/web-1.vmdk"}},
                {"@type": disk, "backing": {"fileName": "[ds] other/data.vmdk"}},
                {"@type": disk, "backing": {"fileName": "[ds] web-10/data.vmdk"}},
                {"@type": disk, "backing": {"fileName": "[ds] web-1_1x/data.vmdk"}},
                {"@type": "VirtualPCIPassthrough", "backing": {"fileName": "[ds] other/no-disk"}},
            ),
        }
    )
    assert (config.extra_config, config.first_class_disks) == ({"a": "1", "b": ""}, ("fcd-1",))
    # web-1_1 and web-10 are folders of other VMs. vCenter chose web-1_1 for a second VM with the
    # name web-1.
    assert config.foreign_disk_files("[ds] web-1/web-1.vmx") == (
        "[ds] web-1_1/web-1.vmdk",
        "[ds] other/data.vmdk",
        "[ds] web-10/data.vmdk",
        "[ds] web-1_1x/data.vmdk",
    )
    assert decode_vm_config({}) == VmConfig()


def test_without_the_own_folder_every_disk_may_be_foreign() -> None:
    config = VmConfig(disk_files=("[ds] web-1/web-1.vmdk",))
    assert not CurrentVm("uuid", "[ds] web-1/web-1.vmx", config).has_foreign_disks
    assert CurrentVm("uuid", "", config).has_foreign_disks
    assert not CurrentVm("uuid", "", VmConfig()).has_foreign_disks


def test_escaped_names() -> None:
    assert _escape_name("a/b\\c%d") == "a%2fb%5cc%25d"


async def test_nothing_is_destroyed_later_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The only connection is in use. A new one to a vCenter under load may take as long.
    monkeypatch.setattr(transport, "MAX_CONNECTIONS", 1)
    requests, answer = list[ReceivedRequest](), asyncio.Event()

    async def reply(request: ReceivedRequest) -> bytes:
        requests.append(request)
        await answer.wait()
        return http_response(200, CURRENT_TIME_RESPONSE)

    async with run_canned_server(tmp_path, reply) as address:
        soap = SoapClient(address, RecordingMetrics())
        vm_calls = VmCalls(soap, Mock())
        current_time = asyncio.create_task(
            soap.stub.call_undecoded(vim.ServiceInstance("s", soap.stub), "CurrentTime")
        )
        await eventually(lambda: len(requests) == 1)
        for destroy in (vm_calls.destroy, vm_calls.destroy_folder):
            with pytest.raises(TimedOut):
                await destroy("ref-1", send_within_seconds=0.05)
        answer.set()
        await current_time
        await soap.close()
    assert len(requests) == 1
