"""The status of a disk, the names of the original CRD, and the controller on a fake API server."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
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
from kubewright.responses import UndecodableObject
from kubewright.transport import Request
from support.fake_environment import FakeEnvironment, run_manager
from vsphere_operators.kinds.fcdinfo import (
    FCDInfo,
    FCDInfoController,
    FCDInfoSpec,
    FCDInfoStatus,
    _get_disk_keys,
    _has_new_references,
    _status_without_disk,
    disk_status_of,
)
from vsphere_operators.vcenters.registry import VCenterRegistry
from vsphere_operators.vcenters.volumes import get_volume_handle
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
    attached_vm_uuids=("422a1b2c",),
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


def test_status_of_a_disk() -> None:
    assert disk_status_of(
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


def test_status_of_a_detached_disk() -> None:
    bare = Disk(id=DISK_ID, name="pvc-1", datastore="datastore-2")
    assert disk_status_of(
        bare, None, datastore="", attached_to="", vcenter="vc-1"
    ) == FCDInfoStatus(id=DISK_ID, vcenter="vc-1")


def test_unclaimed_volume_has_no_claim() -> None:
    status = disk_status_of(
        DISK, make_volume(claim=""), datastore="nvme-1", attached_to="", vcenter="vc-1"
    )
    assert (status.persistentVolume, status.claim) == ("pvc-1", None)


def test_status_without_the_disk_shows_the_volume() -> None:
    assert _status_without_disk(make_volume()) == FCDInfoStatus(
        id=DISK_ID, persistentVolume="pvc-1", claim="shop/data"
    )
    assert _status_without_disk(None) == FCDInfoStatus()


def test_only_volumes_of_the_vsphere_csi_driver_have_a_disk() -> None:
    assert get_volume_handle(make_volume()) == DISK_ID
    assert get_volume_handle(make_volume(driver="nfs.csi.k8s.io")) is None
    assert get_volume_handle(make_volume(driver="")) is None


def make_fcdinfo(*, id: str | None = None, vm: str | None = None, pv: str = "pvc-1") -> FCDInfo:
    return FCDInfo(
        metadata=ObjectMeta(name="i", namespace="default"),
        spec=FCDInfoSpec(pvId=pv),
        status=FCDInfoStatus(id=id, attachedTo=vm),
    )


def test_disk_is_indexed_by_name_and_id() -> None:
    assert _get_disk_keys(make_fcdinfo()) == ("pvc-1",)
    assert set(_get_disk_keys(make_fcdinfo(id=DISK_ID))) == {"pvc-1", DISK_ID}
    assert _get_disk_keys(make_fcdinfo(pv="")) == ()


def test_new_references_in_a_status() -> None:
    assert _has_new_references(make_fcdinfo(), make_fcdinfo(id=DISK_ID))
    assert _has_new_references(make_fcdinfo(id=DISK_ID), make_fcdinfo(id=DISK_ID, vm="node-1"))
    assert not _has_new_references(
        make_fcdinfo(id=DISK_ID, vm="node-1"), make_fcdinfo(id=DISK_ID, vm="node-1")
    )
    assert not _has_new_references(make_fcdinfo(id=DISK_ID, vm="node-1"), make_fcdinfo(id=DISK_ID))
    assert not _has_new_references(None, make_fcdinfo(id=DISK_ID))
    assert not _has_new_references(make_fcdinfo(id=DISK_ID), None)


def test_object_that_cannot_be_decoded_has_no_references() -> None:
    undecodable = UndecodableObject(ObjectMeta(name="a", namespace="b"), "pvId is too long")
    info = FCDInfo(status=FCDInfoStatus(id=DISK_ID))
    assert not _has_new_references(undecodable, info)
    assert not _has_new_references(info, undecodable)


def test_crd_has_the_names_of_the_contract() -> None:
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
        "Size-MB",
        "Provisioning",
        "Datastore",
        "Ready",
        "Age",
    ]


def test_sample_is_that_of_the_contract() -> None:
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
    environment = FakeEnvironment()
    environment.enter("Datastore", "datastore-2", name="nvme-1")
    environment.enter("VirtualMachine", "vm-1", name="node-1", config__uuid=VM_UUID)
    environment.mark_loaded()
    environment.set_disks(*disks)
    return environment


async def test_disk_is_found_by_name_and_follows_its_vm() -> None:
    environment = environment_with_disks(replace(DISK, attached_vm_uuids=()))
    environment.create(FCDInfo, "f", pvId="pvc-1")
    async with run_manager(environment, make_controller):
        info, _ = await environment.wait_for_ready(FCDInfo, "f", "Reconciled")
        assert (info.status.sizeMB, info.status.datastore, info.status.attachedTo) == (
            2048,
            "nvme-1",
            None,
        )
        environment.set_disks(replace(DISK, attached_vm_uuids=(VM_UUID,)))
        await environment.wait_for_ready(
            FCDInfo, "f", "Reconciled", lambda status: status.attachedTo == "node-1"
        )
        environment.modify("VirtualMachine", "vm-1", name="node-one")
        await environment.wait_for_ready(
            FCDInfo, "f", "Reconciled", lambda status: status.attachedTo == "node-one"
        )
        environment.modify("VirtualMachine", "vm-1", name="node-1")
        await environment.wait_for_ready(
            FCDInfo, "f", "Reconciled", lambda status: status.attachedTo == "node-1"
        )


async def test_volume_handle_identifies_the_disk_whatever_its_name() -> None:
    environment = environment_with_disks(
        Disk(id="another", name="pvc-1", datastore="datastore-2", size_mb=1)
    )
    environment.api.add(make_volume())
    environment.create(FCDInfo, "f", pvId="pvc-1")
    async with run_manager(environment, make_controller):
        info, condition = await environment.wait_for_ready(FCDInfo, "f", "DiskNotFound")
        assert condition.status == "False"
        assert info.status == replace(
            FCDInfoStatus(id=DISK_ID, persistentVolume="pvc-1", claim="shop/data"),
            conditions=info.status.conditions,
            observedGeneration=1,
        )
        environment.set_disks(replace(DISK, name="static disk"))
        info, _ = await environment.wait_for_ready(
            FCDInfo, "f", "Reconciled", lambda status: status.sizeMB == 2048
        )
        assert (info.status.id, info.status.claim) == (DISK_ID, "shop/data")
        environment.set_disks(replace(DISK, name="static disk", size_mb=4096))
        await environment.wait_for_ready(
            FCDInfo, "f", "Reconciled", lambda status: status.sizeMB == 4096
        )


async def test_created_and_deleted_volumes_are_followed() -> None:
    environment = environment_with_disks(DISK)
    environment.create(FCDInfo, "f", pvId="pvc-1")
    async with run_manager(environment, make_controller):
        await environment.wait_for_ready(
            FCDInfo, "f", "Reconciled", lambda status: status.persistentVolume is None
        )
        environment.api.add(make_volume("static"))
        await environment.wait_for_ready(
            FCDInfo,
            "f",
            "Reconciled",
            lambda status: (status.persistentVolume, status.claim) == ("static", "shop/data"),
        )
        environment.api.add(make_volume("pvc-1", claim="logs"))
        await environment.wait_for_ready(
            FCDInfo,
            "f",
            "Reconciled",
            lambda status: (status.persistentVolume, status.claim) == ("pvc-1", "shop/logs"),
        )
        await environment.client.delete(PersistentVolume, Key("", "pvc-1"))
        await environment.client.delete(PersistentVolume, Key("", "static"))
        await environment.wait_for_ready(
            FCDInfo,
            "f",
            "Reconciled",
            lambda status: status.persistentVolume is None and status.sizeMB == 2048,
        )


@pytest.mark.parametrize("names", [("b", "a"), ("a", "b")])
async def test_of_two_volumes_on_one_disk_the_first_by_name_is_shown(
    names: tuple[str, str],
) -> None:
    environment = environment_with_disks(DISK)
    for name in names:
        environment.api.add(make_volume(name))
    environment.create(FCDInfo, "f", pvId="pvc-1")
    async with run_manager(environment, make_controller):
        info, _ = await environment.wait_for_ready(FCDInfo, "f", "Reconciled")
        assert info.status.persistentVolume == "a"


async def test_deleted_disk_clears_the_numbers_and_two_disks_of_a_name_are_ambiguous() -> None:
    environment = environment_with_disks(DISK)
    environment.create(FCDInfo, "f", pvId="pvc-1")
    async with run_manager(environment, make_controller):
        await environment.wait_for_ready(FCDInfo, "f", "Reconciled")
        environment.set_disks()
        info, _ = await environment.wait_for_ready(FCDInfo, "f", "DiskNotFound")
        assert info.status == FCDInfoStatus(conditions=info.status.conditions, observedGeneration=1)
        environment.set_disks(DISK, replace(DISK, id="second"))
        await environment.wait_for_ready(FCDInfo, "f", "DiskAmbiguous")
        environment.set_disks(DISK)
        await environment.wait_for_ready(
            FCDInfo, "f", "Reconciled", lambda status: status.sizeMB == 2048
        )


async def test_second_reconcile_after_new_references_writes_nothing() -> None:
    environment = environment_with_disks(replace(DISK, attached_vm_uuids=(VM_UUID,)))
    environment.api.add(make_volume())
    environment.create(FCDInfo, "f", pvId="pvc-1")
    environment.create(FCDInfo, "last", pvId="pvc-1")
    async with run_manager(environment, make_controller):
        await environment.wait_for_ready(
            FCDInfo, "f", "Reconciled", lambda status: status.attachedTo == "node-1"
        )
        await environment.wait_for_ready(
            FCDInfo, "last", "Reconciled", lambda status: status.attachedTo == "node-1"
        )
        await environment.client.patch(FCDInfo, Key("default", "last"), {"spec": {"pvId": ""}})
        await environment.wait_for_ready(FCDInfo, "last", "PVIdMissing")
        assert environment.count_status_writes() == 3


async def test_vm_that_is_renamed_during_the_status_write_is_followed() -> None:
    environment = environment_with_disks(replace(DISK, attached_vm_uuids=(VM_UUID,)))
    environment.create(FCDInfo, "f", pvId="pvc-1")
    renamed: list[Request] = []

    def rename_once(request: Request) -> None:
        if request.path.endswith("/status") and not renamed:
            renamed.append(request)
            environment.modify("VirtualMachine", "vm-1", name="node-one")

    environment.api.faults.append(rename_once)
    async with run_manager(environment, make_controller):
        await environment.wait_for_ready(
            FCDInfo, "f", "Reconciled", lambda status: status.attachedTo == "node-one"
        )
    assert b"node-1" in (renamed[0].body or b"")


async def test_empty_spec_reports_the_missing_field() -> None:
    environment = environment_with_disks()
    environment.create(FCDInfo, "f")
    async with run_manager(environment, make_controller):
        _, condition = await environment.wait_for_ready(FCDInfo, "f", "PVIdMissing")
        assert condition.status == "False"
        assert "Set it to the name of a PersistentVolume" in condition.message
