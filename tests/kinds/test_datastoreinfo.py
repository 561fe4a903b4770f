"""The status of a datastore and its disks, and the controller on a fake API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright import Cache, Key, ObjectMeta
from kubewright.builtin import (
    CSIPersistentVolumeSource,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeSpec,
)
from kubewright.crd import build_crds
from support.fake_environment import FakeEnvironment, run_manager
from vsphere_operators.kinds.datastoreinfo import (
    MAX_LISTED,
    DatastoreInfo,
    DatastoreInfoController,
    DatastoreInfoStatus,
    OrphanedDisk,
    OrphanedDisks,
    Volume,
    Volumes,
    datastore_status_of,
    with_disks,
)
from vsphere_operators.vcenters.registry import VCenterRegistry
from vsphere_operators.vcenters.volumes import CSI_DRIVER
from vsphere_operators.vsphere.disk_catalog import DiskListing
from vsphere_operators.vsphere.faults import Rejected
from vsphere_operators.vsphere.model import Datastore, Disk, Location
from vsphere_operators.vsphere.updates import Ref, Value

SAMPLES = Path(__file__).parents[2] / "config/samples"
GB = 2**30
LOCATION = Location(path="/dc-1/datastore/nfs-1", datacenter="dc-1")
DATASTORE = Datastore(
    ref="datastore-3",
    name="nfs-1",
    accessible=True,
    type="NFS",
    capacity_bytes=100 * GB,
    free_bytes=40 * GB,
    uncommitted_bytes=90 * GB,
    maintenance_mode="normal",
    hosts=("host-1", "host-2"),
)
STATUS = DatastoreInfoStatus(
    capacityMB=102_400,
    freeMB=40_960,
    provisionedMB=153_600,
    overcommitPercent=150,
    accessible=True,
    type="NFS",
    maintenanceMode="normal",
    hosts=["esxi-1", "esxi-2"],
    datacenter="dc-1",
    inventoryPath="/dc-1/datastore/nfs-1",
    vcenter="vc-1",
)


def make_status(datastore: Datastore) -> DatastoreInfoStatus:
    return datastore_status_of(datastore, LOCATION, ["esxi-2", "esxi-1", ""], "vc-1")


def make_disk(number: int, **fields: Any) -> Disk:
    values: dict[str, Any] = {"id": f"id-{number:03}", "name": f"pvc-{number:03}", "size_mb": 1024}
    return Disk(datastore="datastore-3", **(values | fields))


def make_volume(disk: Disk, name: str = "", *, driver: str = CSI_DRIVER) -> PersistentVolume:
    return PersistentVolume(
        metadata=ObjectMeta(name=name or disk.name),
        spec=PersistentVolumeSpec(
            csi=CSIPersistentVolumeSource(driver=driver, volumeHandle=disk.id),
            claimRef=ObjectReference(namespace="shop", name=f"claim-of-{name or disk.name}"),
        ),
    )


def test_status_of_a_datastore() -> None:
    assert make_status(DATASTORE) == STATUS


@pytest.mark.parametrize("field", ["capacity_bytes", "free_bytes", "uncommitted_bytes"])
def test_provisioned_space_is_absent_unless_all_parts_are_known(field: str) -> None:
    status = make_status(replace(DATASTORE, **{field: None}))
    assert (status.provisionedMB, status.overcommitPercent) == (None, None)


def test_full_and_empty_datastores() -> None:
    full = make_status(replace(DATASTORE, free_bytes=0, uncommitted_bytes=0))
    assert (full.freeMB, full.provisionedMB, full.overcommitPercent) == (0, 102_400, 100)
    empty = make_status(replace(DATASTORE, free_bytes=100 * GB, uncommitted_bytes=0))
    assert (empty.provisionedMB, empty.overcommitPercent) == (0, 0)
    broken = make_status(replace(DATASTORE, capacity_bytes=0, free_bytes=0))
    assert (broken.capacityMB, broken.overcommitPercent) == (0, None)


def test_inaccessible_datastore_has_no_space() -> None:
    # vCenter keeps the last values that it received.
    assert make_status(replace(DATASTORE, accessible=False)) == replace(
        STATUS,
        capacityMB=None,
        freeMB=None,
        provisionedMB=None,
        overcommitPercent=None,
        accessible=False,
    )


@given(
    capacity=st.none() | st.integers(0, 2**60),
    free=st.none() | st.integers(0, 2**60),
    uncommitted=st.none() | st.integers(0, 2**60),
)
def test_nothing_is_invented(
    capacity: int | None, free: int | None, uncommitted: int | None
) -> None:
    status = make_status(
        replace(
            DATASTORE,
            capacity_bytes=capacity,
            free_bytes=free,
            uncommitted_bytes=uncommitted,
        )
    )
    assert (status.capacityMB is None) == (capacity is None)
    assert (status.freeMB is None) == (free is None)
    assert (status.provisionedMB is None) == (None in (capacity, free, uncommitted))


def test_volumes_and_orphans() -> None:
    used, shared = make_disk(1), make_disk(2, size_mb=None)
    loose, attached = make_disk(3), make_disk(4, attached_vm_uuids=("422a",))
    status = with_disks(
        STATUS,
        [attached, shared, used, loose],
        {
            used.id: [make_volume(used)],
            shared.id: [make_volume(shared, "b"), make_volume(shared, "a")],
            loose.id: [],
        },
    )
    assert status == replace(
        STATUS,
        disks=4,
        persistentVolumes=Volumes(
            count=3,
            volumes=[
                Volume(name="a", claim="shop/claim-of-a", diskId="id-002"),
                Volume(name="b", claim="shop/claim-of-b", diskId="id-002"),
                Volume(name="pvc-001", claim="shop/claim-of-pvc-001", diskId="id-001", sizeMB=1024),
            ],
        ),
        orphanedDisks=OrphanedDisks(
            count=2,
            sizeMB=2048,
            disks=[
                OrphanedDisk(id="id-003", name="pvc-003", sizeMB=1024, attached=False),
                OrphanedDisk(id="id-004", name="pvc-004", sizeMB=1024, attached=True),
            ],
        ),
    )


def test_datastore_without_disks() -> None:
    status = with_disks(STATUS, [], {})
    assert (status.disks, status.persistentVolumes) == (0, Volumes(count=0))
    assert status.orphanedDisks == OrphanedDisks(count=0, sizeMB=0)


def test_size_of_orphans_is_absent_if_one_is_unknown() -> None:
    status = with_disks(STATUS, [make_disk(1), make_disk(2, size_mb=None)], {})
    assert status.orphanedDisks is not None
    assert (status.orphanedDisks.count, status.orphanedDisks.sizeMB) == (2, None)


def test_lists_are_bounded_and_others_are_counted() -> None:
    disks = [make_disk(number) for number in range(2 * MAX_LISTED + 7)]
    used, orphaned = disks[: MAX_LISTED + 3], disks[MAX_LISTED + 3 :]
    status = with_disks(STATUS, disks, {disk.id: [make_volume(disk)] for disk in used})
    volumes, orphans = status.persistentVolumes, status.orphanedDisks
    assert volumes is not None
    assert orphans is not None
    assert (volumes.count, len(volumes.volumes or ()), volumes.more) == (MAX_LISTED + 3, 100, 3)
    assert (orphans.count, len(orphans.disks or ()), orphans.more) == (len(orphaned), 100, 4)
    assert orphans.sizeMB == 1024 * len(orphaned)


def test_crd() -> None:
    crd = build_crds([DatastoreInfo])[0]["spec"]
    assert (crd["group"], crd["scope"]) == ("topology.corinternal.com", "Namespaced")
    assert crd["names"]["shortNames"] == ["di"]
    [version] = crd["versions"]
    assert "required" not in version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert [
        column["name"]
        for column in version["additionalPrinterColumns"]
        if not column.get("priority")
    ] == [
        "Datastore",
        "Capacity-MB",
        "Free-MB",
        "Overcommit%",
        "PVs",
        "Orphaned",
        "Ready",
        "Age",
    ]


def test_sample() -> None:
    sample = yaml.safe_load((SAMPLES / "topology_v1_datastoreinfo.yaml").read_text())
    assert (sample["kind"], sample["spec"]) == ("DatastoreInfo", {"datastore": "LocalDS_0"})


def make_controller(vcenters: VCenterRegistry, cache: Cache) -> DatastoreInfoController:
    return DatastoreInfoController(vcenters, cache)


DATASTORE_PROPERTIES: dict[str, Value] = {
    "name": "nfs-1",
    "parent": Ref("Folder", "group-s1"),
    "summary__accessible": True,
    "summary__type": "NFS",
    "summary__capacity": 100 * GB,
    "summary__freeSpace": 40 * GB,
    "summary__uncommitted": 90 * GB,
    "host": ({"key": Ref("HostSystem", "host-1")},),
}


def environment_with_datastore(*disks: Disk) -> FakeEnvironment:
    environment = FakeEnvironment()
    environment.enter("Datacenter", "datacenter-1", name="dc-1", parent=Ref("Folder", "group-d1"))
    environment.enter(
        "Folder", "group-s1", name="datastore", parent=Ref("Datacenter", "datacenter-1")
    )
    environment.enter("HostSystem", "host-1", name="esxi-1")
    environment.enter("Datastore", "datastore-3", **DATASTORE_PROPERTIES)
    environment.enter(
        "Datastore", "datastore-4", **(DATASTORE_PROPERTIES | {"name": "other", "host": ()})
    )
    environment.mark_loaded()
    environment.set_disks(*disks)
    environment.create(DatastoreInfo, "d", datastore="nfs-1")
    environment.create(DatastoreInfo, "other", datastore="other")
    return environment


async def test_datastore_and_its_host_are_followed() -> None:
    environment = environment_with_datastore()
    async with run_manager(environment, make_controller):
        info, _ = await environment.wait_for_ready(DatastoreInfo, "d", "Reconciled")
        await environment.wait_for_ready(DatastoreInfo, "other", "Reconciled")
        assert info.status.hosts == ["esxi-1"]
        assert info.status.inventoryPath == "/dc-1/datastore/nfs-1"
        writes = environment.count_status_writes()
        environment.modify("HostSystem", "host-1", name="esxi-one")
        await environment.wait_for_ready(
            DatastoreInfo, "d", "Reconciled", lambda status: status.hosts == ["esxi-one"]
        )
        environment.modify("Datastore", "datastore-3", summary__maintenanceMode="inMaintenance")
        await environment.wait_for_ready(DatastoreInfo, "d", "MaintenanceMode")
        environment.modify("Datastore", "datastore-3", summary__maintenanceMode="normal")
        environment.modify("Datacenter", "datacenter-1", name="dc-one")
        await environment.wait_for_ready(
            DatastoreInfo, "d", "Reconciled", lambda status: status.datacenter == "dc-one"
        )
        await environment.wait_for_ready(
            DatastoreInfo, "other", "Reconciled", lambda status: status.datacenter == "dc-one"
        )
        # The other one was written once, for the name of the datacenter.
        assert environment.count_status_writes() - writes <= 5


async def test_disks_and_volumes_are_followed() -> None:
    used, orphan = make_disk(1), make_disk(2)
    environment = environment_with_datastore(used)
    async with run_manager(environment, make_controller):
        await environment.wait_for_ready(
            DatastoreInfo, "d", "Reconciled", lambda status: status.orphanedDisks.count == 1
        )
        environment.api.add(make_volume(used))
        info, _ = await environment.wait_for_ready(
            DatastoreInfo, "d", "Reconciled", lambda status: status.persistentVolumes.count == 1
        )
        assert info.status.orphanedDisks == OrphanedDisks(count=0, sizeMB=0)
        environment.set_disks(used, orphan)
        await environment.wait_for_ready(
            DatastoreInfo, "d", "Reconciled", lambda status: status.orphanedDisks.count == 1
        )
        # A disk that moves changes both datastores.
        environment.set_disks(replace(used, datastore="datastore-4"), orphan)
        await environment.wait_for_ready(
            DatastoreInfo, "other", "Reconciled", lambda status: status.persistentVolumes.count == 1
        )
        await environment.wait_for_ready(
            DatastoreInfo, "d", "Reconciled", lambda status: status.persistentVolumes.count == 0
        )
        await environment.client.delete(PersistentVolume, Key("", used.name))
        info, _ = await environment.wait_for_ready(
            DatastoreInfo, "other", "Reconciled", lambda status: status.orphanedDisks.count == 1
        )
        assert info.status.orphanedDisks is not None
        assert info.status.orphanedDisks.disks == [
            OrphanedDisk(id=used.id, name=used.name, sizeMB=1024, attached=False)
        ]


async def test_volume_of_another_driver_does_not_name_a_disk() -> None:
    disk = make_disk(1)
    environment = environment_with_datastore(disk)
    environment.api.add(make_volume(disk, driver="nfs.csi.k8s.io"))
    async with run_manager(environment, make_controller):
        info, _ = await environment.wait_for_ready(DatastoreInfo, "d", "Reconciled")
        assert info.status.orphanedDisks is not None
        assert info.status.orphanedDisks.count == 1


async def test_volume_that_cannot_be_decoded_makes_orphans_unknown() -> None:
    environment = environment_with_datastore(make_disk(1))
    environment.api.create(
        "/api/v1/persistentvolumes", {"metadata": {"name": "odd"}, "spec": {"csi": "not an object"}}
    )
    async with run_manager(environment, make_controller):
        info, condition = await environment.wait_for_ready(DatastoreInfo, "d", "VolumesUnreadable")
        assert condition.status == "False"
        assert 'PersistentVolume "odd" cannot be decoded' in condition.message
        assert (info.status.capacityMB, info.status.orphanedDisks) == (102_400, None)


async def test_usage_is_throttled() -> None:
    environment = environment_with_datastore()
    async with run_manager(environment, make_controller) as vcenters:
        await environment.wait_for_ready(DatastoreInfo, "d", "Reconciled")
        await environment.wait_for_ready(DatastoreInfo, "other", "Reconciled")
        writes = environment.count_status_writes()
        # 5 % of the capacity are released at once; that, not the small change, is the next write.
        environment.modify("Datastore", "datastore-3", summary__freeSpace=39 * GB)
        assert vcenters.throttles["vc-1"].released_stats
        environment.modify("Datastore", "datastore-3", summary__freeSpace=38 * GB)
        environment.modify("Datastore", "datastore-3", summary__freeSpace=30 * GB)
        await environment.wait_for_ready(
            DatastoreInfo, "d", "Reconciled", lambda status: status.freeMB == 30 * 1024
        )
        environment.modify("Datastore", "datastore-3", summary__freeSpace=29 * GB)
        environment.create(DatastoreInfo, "new", datastore="nfs-1")
        info, _ = await environment.wait_for_ready(DatastoreInfo, "new", "Reconciled")
        assert info.status.freeMB == 30 * 1024
        assert environment.count_status_writes() - writes <= 4


async def test_inaccessible_datastore_and_its_return() -> None:
    environment = environment_with_datastore(make_disk(1))
    async with run_manager(environment, make_controller):
        await environment.wait_for_ready(DatastoreInfo, "d", "Reconciled")
        environment.modify("Datastore", "datastore-3", summary__accessible=False)
        info, condition = await environment.wait_for_ready(
            DatastoreInfo, "d", "DatastoreInaccessible"
        )
        assert condition.status == "False"
        assert (info.status.accessible, info.status.freeMB, info.status.disks) == (
            False,
            None,
            None,
        )
        environment.modify("Datastore", "datastore-3", summary__accessible=True)
        await environment.wait_for_ready(
            DatastoreInfo, "d", "Reconciled", lambda status: status.freeMB == 40 * 1024
        )


async def test_disks_of_a_new_datastore_are_unknown_until_they_are_listed() -> None:
    environment = environment_with_datastore()
    async with run_manager(environment, make_controller):
        await environment.wait_for_ready(DatastoreInfo, "d", "Reconciled")
        environment.enter("Datastore", "datastore-9", name="new", summary__accessible=True)
        environment.create(DatastoreInfo, "new", datastore="new")
        # Reconciles follow the order of creation, so the one of "new" precedes this one.
        environment.create(DatastoreInfo, "later", datastore="nfs-1")
        await environment.wait_for_ready(DatastoreInfo, "later", "Reconciled")
        info = await environment.get(DatastoreInfo, "new")
        assert (info.status.conditions, info.status.disks) == ([], None)
        environment.set_disks()
        await environment.wait_for_ready(
            DatastoreInfo, "new", "Reconciled", lambda status: status.disks == 0
        )


def test_unknown_access_is_absent_and_keeps_the_space() -> None:
    status = make_status(replace(DATASTORE, accessible=None))
    assert status == replace(make_status(DATASTORE), accessible=None)


async def test_unreadable_disks_are_absent_and_the_space_stays_current() -> None:
    disk = make_disk(1)
    environment = environment_with_datastore(disk)
    disks = environment.vcenter.disks
    async with run_manager(environment, make_controller):
        await environment.wait_for_ready(DatastoreInfo, "d", "Reconciled")
        await environment.wait_for_ready(DatastoreInfo, "other", "Reconciled")
        disks.apply(DiskListing({}, {"datastore-3": "the account lacks Datastore.Browse"}))
        info, condition = await environment.wait_for_ready(DatastoreInfo, "d", "DisksUnreadable")
        assert condition.status == "False"
        assert "the account lacks Datastore.Browse" in condition.message
        assert info.status == replace(
            info.status, freeMB=40 * 1024, disks=None, persistentVolumes=None, orphanedDisks=None
        )
        await environment.wait_for_ready(DatastoreInfo, "other", "Reconciled")
        environment.set_disks(disk)
        await environment.wait_for_ready(
            DatastoreInfo, "d", "Reconciled", lambda status: status.disks == 1
        )


async def test_disks_that_were_never_read() -> None:
    environment = environment_with_datastore()
    disks = environment.vcenter.disks
    disks.loaded = False
    async with run_manager(environment, make_controller):
        disks.problem = Rejected("the catalog is being rebuilt")
        disks._report_readability()
        info, condition = await environment.wait_for_ready(DatastoreInfo, "d", "DisksUnreadable")
        assert "the catalog is being rebuilt" in condition.message
        assert (info.status.capacityMB, info.status.disks) == (102_400, None)
        environment.set_disks()
        await environment.wait_for_ready(DatastoreInfo, "d", "Reconciled")


async def test_missing_ambiguous_and_by_path() -> None:
    environment = environment_with_datastore()
    environment.create(DatastoreInfo, "path", datastore="/dc-1/datastore/nfs-1")
    environment.create(DatastoreInfo, "misspelt", datastore="nsf-1")
    environment.create(DatastoreInfo, "empty")
    async with run_manager(environment, make_controller):
        _, condition = await environment.wait_for_ready(
            DatastoreInfo, "misspelt", "DatastoreNotFound"
        )
        assert 'Did you mean "nfs-1"?' in condition.message
        _, condition = await environment.wait_for_ready(
            DatastoreInfo, "empty", "DatastoreNameMissing"
        )
        assert "Set it to the name of a datastore" in condition.message
        await environment.wait_for_ready(DatastoreInfo, "path", "Reconciled")
        environment.enter("Datastore", "datastore-9", **(DATASTORE_PROPERTIES | {"parent": None}))
        info, condition = await environment.wait_for_ready(DatastoreInfo, "d", "DatastoreAmbiguous")
        assert "/dc-1/datastore/nfs-1" in condition.message
        assert info.status.capacityMB is None
        environment.modify("Datastore", "datastore-3", summary__capacity=200 * GB)
        await environment.wait_for_ready(
            DatastoreInfo, "path", "Reconciled", lambda status: status.capacityMB == 200 * 1024
        )
        environment.leave("Datastore", "datastore-9")
        await environment.wait_for_ready(DatastoreInfo, "d", "Reconciled")
        environment.enter("Datastore", "datastore-8", name="nsf-1", summary__accessible=True)
        environment.set_disks()
        await environment.wait_for_ready(DatastoreInfo, "misspelt", "Reconciled")


async def test_folder_that_is_renamed_breaks_and_fixes_a_path() -> None:
    environment = environment_with_datastore()
    environment.create(DatastoreInfo, "path", datastore="/dc-2/datastore/nfs-1")
    async with run_manager(environment, make_controller):
        _, condition = await environment.wait_for_ready(DatastoreInfo, "path", "DatastoreNotFound")
        assert 'Did you mean "/dc-1/datastore/nfs-1"?' in condition.message
        environment.modify("Datacenter", "datacenter-1", name="dc-2")
        await environment.wait_for_ready(DatastoreInfo, "path", "Reconciled")
