"""The answer as plain calls, the names that people rely on, and the controller on an API server and an inventory in memory."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import yaml
from msgspec.structs import replace

from kubewright import Cache, Key, ObjectMeta
from kubewright.builtin import (
    CSIPersistentVolumeSource,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeSpec,
)
from kubewright.crd import build_crds
from kubewright.transport import Request
from support.fake_environment import FakeEnvironment, run_manager
from vsphere_operators.kinds.fcdinfo import (
    FCDInfo,
    FCDInfoController,
    FCDInfoSpec,
    FCDInfoStatus,
    first_by_name,
    get_disk_keys,
    get_volume_handle,
    has_new_references,
    status_of,
    status_without_disk,
)
from vsphere_operators.vcenters.registry import VCenterRegistry
from vsphere_operators.vsphere.model import Disk

SAMPLES = Path(__file__).parents[2] / "config/samples"
DISK_ID = "0a5b7c1e-1f32-4c5e-9d9f-6c6a51f0b0a1"
DISK = Disk(
    id=DISK_ID,
    name="pvc-1",
    datastore="datastore-2",
    size_mb=2048,
    file_path="[nvme-1] fcd/0a5b.vmdk",
    provisioning="thin",
    created_at=datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC),
    consumers=("422a1b2c",),
)


def make_volume(
    name: str = "pvc-1",
    *,
    driver: str = "csi.vsphere.vmware.com",
    handle: str = DISK_ID,
    claim: str = "data",
) -> PersistentVolume:
    reference = ObjectReference(namespace="shop", name=claim) if claim else None
    return PersistentVolume(
        metadata=ObjectMeta(name=name),
        spec=PersistentVolumeSpec(
            csi=CSIPersistentVolumeSource(driver=driver, volumeHandle=handle) if driver else None,
            claimRef=reference,
        ),
    )


def test_everything_that_is_known_of_a_disk() -> None:
    assert status_of(
        DISK, make_volume(), datastore="nvme-1", attached_to="node-1", vcenter="vc-1"
    ) == FCDInfoStatus(
        sizeMB=2048,
        filePath="[nvme-1] fcd/0a5b.vmdk",
        provisioningType="thin",
        id=DISK_ID,
        datastore="nvme-1",
        attachedTo="node-1",
        creationTime=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        persistentVolume="pvc-1",
        claim="shop/data",
        vcenter="vc-1",
    )


def test_a_disk_that_nobody_uses() -> None:
    bare = Disk(id=DISK_ID, name="pvc-1", datastore="datastore-2")
    assert status_of(bare, None, datastore="", attached_to="", vcenter="vc-1") == FCDInfoStatus(
        id=DISK_ID, vcenter="vc-1"
    )


def test_a_volume_that_nobody_claims() -> None:
    status = status_of(
        DISK, make_volume(claim=""), datastore="nvme-1", attached_to="", vcenter="vc-1"
    )
    assert (status.persistentVolume, status.claim) == ("pvc-1", None)


def test_without_the_disk_only_what_the_volume_says_is_told() -> None:
    assert status_without_disk(make_volume()) == FCDInfoStatus(
        id=DISK_ID, persistentVolume="pvc-1", claim="shop/data"
    )
    assert status_without_disk(None) == FCDInfoStatus()


def test_only_a_volume_of_vsphere_has_a_disk() -> None:
    assert get_volume_handle(make_volume()) == DISK_ID
    assert get_volume_handle(make_volume(driver="nfs.csi.k8s.io")) is None
    assert get_volume_handle(make_volume(driver="")) is None


def test_of_two_volumes_on_one_disk_it_is_always_the_same() -> None:
    assert (
        first_by_name([make_volume("b"), make_volume("a")])
        == first_by_name([make_volume("a"), make_volume("b")])
        == make_volume("a")
    )
    assert first_by_name([]) is None


def make_fcdinfo(*, id: str | None = None, vm: str | None = None, pv: str = "pvc-1") -> FCDInfo:
    return FCDInfo(
        metadata=ObjectMeta(name="i", namespace="default"),
        spec=FCDInfoSpec(pvId=pv),
        status=FCDInfoStatus(id=id, attachedTo=vm),
    )


def test_the_disk_is_followed_by_its_name_and_by_its_id() -> None:
    assert get_disk_keys(make_fcdinfo()) == ("pvc-1",)
    assert set(get_disk_keys(make_fcdinfo(id=DISK_ID))) == {"pvc-1", DISK_ID}
    assert get_disk_keys(make_fcdinfo(pv="")) == ()


def test_an_answer_that_names_something_new_is_looked_at_once_more() -> None:
    assert has_new_references(make_fcdinfo(), make_fcdinfo(id=DISK_ID))
    assert has_new_references(make_fcdinfo(id=DISK_ID), make_fcdinfo(id=DISK_ID, vm="node-1"))
    assert not has_new_references(
        make_fcdinfo(id=DISK_ID, vm="node-1"), make_fcdinfo(id=DISK_ID, vm="node-1")
    )
    assert not has_new_references(make_fcdinfo(id=DISK_ID, vm="node-1"), make_fcdinfo(id=DISK_ID))
    assert not has_new_references(None, make_fcdinfo(id=DISK_ID))
    assert not has_new_references(make_fcdinfo(id=DISK_ID), None)


def test_the_crd_has_the_names_that_people_rely_on() -> None:
    crd = build_crds([FCDInfo])[0]["spec"]
    assert (crd["group"], crd["scope"]) == ("topology.corinternal.com", "Namespaced")
    assert crd["names"] == {
        "kind": "FCDInfo",
        "listKind": "FCDInfoList",
        "plural": "fcdinfoes",
        "singular": "fcdinfo",
        "shortNames": ["fcd"],
    }
    [version] = crd["versions"]
    assert (version["name"], version["subresources"]) == ("v1", {"status": {}})
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    assert properties["spec"]["properties"].keys() == {"pvId"}
    assert "required" not in properties["spec"]
    types = {
        name: (shape["type"], shape.get("format"))
        for name, shape in properties["status"]["properties"].items()
    }
    contract = {
        "sizeMB": ("integer", "int64"),
        "filePath": ("string", None),
        "provisioningType": ("string", None),
    }
    assert types.items() >= contract.items()
    columns = version["additionalPrinterColumns"]
    assert [column["name"] for column in columns if not column.get("priority")] == [
        "PVId",
        "Ready",
        "Age",
    ]


def test_the_sample_is_the_one_that_people_have() -> None:
    sample = yaml.safe_load((SAMPLES / "topology_v1_fcdinfo.yaml").read_text())
    assert sample == {
        "apiVersion": "topology.corinternal.com/v1",
        "kind": "FCDInfo",
        "metadata": {"name": "fcdinfo-sample"},
        "spec": {"pvId": "pvc-e3f6dd59-cbc0-49a7-97c8-d92a26732c43"},
    }


VM_UUID = "422a1b2c-0000-4000-8000-000000000001"


def make_controller(vcenters: VCenterRegistry, cache: Cache) -> FCDInfoController:
    return FCDInfoController(vcenters, cache)


def environment_with_disks(*disks: Disk) -> FakeEnvironment:
    """A datastore, a VM, and these disks."""
    stage = FakeEnvironment()
    stage.enter("Datastore", "datastore-2", name="nvme-1")
    stage.enter("VirtualMachine", "vm-1", name="node-1", config__uuid=VM_UUID)
    stage.mark_loaded()
    stage.set_disks(*disks)
    return stage


async def test_a_disk_is_found_by_its_name_and_its_user_is_followed() -> None:
    stage = environment_with_disks(replace(DISK, consumers=()))
    stage.create(FCDInfo, "f", pvId="pvc-1")
    async with run_manager(stage, make_controller):
        info, _ = await stage.wait_for_ready(FCDInfo, "f", "Reconciled")
        assert (info.status.sizeMB, info.status.datastore, info.status.attachedTo) == (
            2048,
            "nvme-1",
            None,
        )
        stage.set_disks(replace(DISK, consumers=(VM_UUID,)))
        await stage.wait_for_ready(
            FCDInfo, "f", "Reconciled", lambda status: status.attachedTo == "node-1"
        )
        stage.modify("VirtualMachine", "vm-1", name="node-one")
        await stage.wait_for_ready(
            FCDInfo, "f", "Reconciled", lambda status: status.attachedTo == "node-one"
        )
        stage.modify("VirtualMachine", "vm-1", name="node-1")
        await stage.wait_for_ready(
            FCDInfo, "f", "Reconciled", lambda status: status.attachedTo == "node-1"
        )


async def test_a_volume_of_that_name_says_which_disk_it_is() -> None:
    """Also when the disk is called otherwise, when another is called like the volume, and when it comes later than the volume."""
    stage = environment_with_disks(
        Disk(id="another", name="pvc-1", datastore="datastore-2", size_mb=1)
    )
    stage.api.add(make_volume())
    stage.create(FCDInfo, "f", pvId="pvc-1")
    async with run_manager(stage, make_controller):
        info, condition = await stage.wait_for_ready(FCDInfo, "f", "DiskNotFound")
        assert condition.status == "False"
        assert info.status == replace(
            FCDInfoStatus(id=DISK_ID, persistentVolume="pvc-1", claim="shop/data"),
            conditions=info.status.conditions,
            observedGeneration=1,
        )
        stage.set_disks(replace(DISK, name="static disk"))
        info, _ = await stage.wait_for_ready(
            FCDInfo, "f", "Reconciled", lambda status: status.sizeMB == 2048
        )
        assert (info.status.id, info.status.claim) == (DISK_ID, "shop/data")
        stage.set_disks(replace(DISK, name="static disk", size_mb=4096))
        await stage.wait_for_ready(FCDInfo, "f", "Reconciled", lambda status: status.sizeMB == 4096)


async def test_volumes_come_and_go_under_any_name() -> None:
    stage = environment_with_disks(DISK)
    stage.create(FCDInfo, "f", pvId="pvc-1")
    async with run_manager(stage, make_controller):
        await stage.wait_for_ready(
            FCDInfo, "f", "Reconciled", lambda status: status.persistentVolume is None
        )
        stage.api.add(make_volume("static"))
        await stage.wait_for_ready(
            FCDInfo,
            "f",
            "Reconciled",
            lambda status: (status.persistentVolume, status.claim) == ("static", "shop/data"),
        )
        stage.api.add(make_volume("pvc-1", claim="logs"))
        await stage.wait_for_ready(
            FCDInfo,
            "f",
            "Reconciled",
            lambda status: (status.persistentVolume, status.claim) == ("pvc-1", "shop/logs"),
        )
        await stage.client.delete(PersistentVolume, Key("", "pvc-1"))
        await stage.client.delete(PersistentVolume, Key("", "static"))
        await stage.wait_for_ready(
            FCDInfo,
            "f",
            "Reconciled",
            lambda status: status.persistentVolume is None and status.sizeMB == 2048,
        )


async def test_no_number_survives_a_disk_that_was_deleted_and_two_of_a_name_are_told() -> None:
    stage = environment_with_disks(DISK)
    stage.create(FCDInfo, "f", pvId="pvc-1")
    async with run_manager(stage, make_controller):
        await stage.wait_for_ready(FCDInfo, "f", "Reconciled")
        stage.set_disks()
        info, _ = await stage.wait_for_ready(FCDInfo, "f", "DiskNotFound")
        assert info.status == FCDInfoStatus(conditions=info.status.conditions, observedGeneration=1)
        stage.set_disks(DISK, replace(DISK, id="second"))
        await stage.wait_for_ready(FCDInfo, "f", "DiskAmbiguous")
        stage.set_disks(DISK)
        await stage.wait_for_ready(FCDInfo, "f", "Reconciled", lambda status: status.sizeMB == 2048)


async def test_an_answer_settles() -> None:
    """The second look at an answer that names something new writes nothing."""
    stage = environment_with_disks(replace(DISK, consumers=(VM_UUID,)))
    stage.api.add(make_volume())
    stage.create(FCDInfo, "f", pvId="pvc-1")
    stage.create(FCDInfo, "last", pvId="pvc-1")
    async with run_manager(stage, make_controller):
        await stage.wait_for_ready(
            FCDInfo, "f", "Reconciled", lambda status: status.attachedTo == "node-1"
        )
        await stage.wait_for_ready(
            FCDInfo, "last", "Reconciled", lambda status: status.attachedTo == "node-1"
        )
        await stage.client.patch(FCDInfo, Key("default", "last"), {"spec": {"pvId": ""}})
        await stage.wait_for_ready(FCDInfo, "last", "PVIdMissing")
        assert stage.count_status_writes() == 3


async def test_a_vm_that_is_renamed_while_the_answer_is_written_is_followed() -> None:
    stage = environment_with_disks(replace(DISK, consumers=(VM_UUID,)))
    stage.create(FCDInfo, "f", pvId="pvc-1")
    renamed: list[Request] = []

    def rename_once(request: Request) -> None:
        if request.path.endswith("/status") and not renamed:
            renamed.append(request)
            stage.modify("VirtualMachine", "vm-1", name="node-one")

    stage.api.faults.append(rename_once)
    async with run_manager(stage, make_controller):
        await stage.wait_for_ready(
            FCDInfo, "f", "Reconciled", lambda status: status.attachedTo == "node-one"
        )
    assert b"node-1" in (renamed[0].body or b"")


async def test_an_empty_spec_is_told_what_is_missing() -> None:
    stage = environment_with_disks()
    stage.create(FCDInfo, "f")
    async with run_manager(stage, make_controller):
        _, condition = await stage.wait_for_ready(FCDInfo, "f", "PVIdMissing")
        assert condition.status == "False"
        assert "set it to the name of a PersistentVolume" in condition.message
