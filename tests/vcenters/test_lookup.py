"""The status of objects while their vCenter, or a part of it, is unavailable."""

from __future__ import annotations

import pytest

from kubewright import Cache, Key, ObjectMeta
from kubewright.builtin import Namespace
from kubewright.errors import NotSynced
from kubewright.log import Log
from support.fake_environment import ADDRESS, FakeEnvironment, run_manager
from vsphere_operators.kinds.fcdinfo import FCDInfo, FCDInfoController
from vsphere_operators.kinds.hostinfo import HostInfo, HostInfoController
from vsphere_operators.vcenters.config import NamespaceSelector, VCenterConfig
from vsphere_operators.vcenters.registry import VCenterRegistry
from vsphere_operators.vsphere.disk_catalog import DiskListing
from vsphere_operators.vsphere.faults import CertificateRefused, TimedOut, Unreachable
from vsphere_operators.vsphere.model import Disk

DISK = Disk(id="d-1", name="pvc-1", datastore="ds-1", size_mb=10, attached_vm_uuids=("ABC-1",))


def environment_with_hosts() -> FakeEnvironment:
    environment = FakeEnvironment()
    for ref in ("a", "b"):
        hardware = {"summary__hardware__cpuMhz": 1000, "summary__hardware__numCpuCores": 2}
        environment.enter(
            "HostSystem", ref, name=f"esxi-{ref}", runtime__connectionState="connected", **hardware
        )
    environment.mark_loaded()
    return environment


async def test_outage_is_written_once_and_keeps_the_current_status() -> None:
    environment = environment_with_hosts()
    async with run_manager(
        environment, lambda vcenters, cache: HostInfoController(vcenters)
    ) as vcenters:
        environment.create(HostInfo, "h", hostname="esxi-a")
        await environment.wait_for_ready(HostInfo, "h", "Reconciled")
        for _ in range(2):
            environment.vcenter.clock = lambda: (
                environment.vcenter.inventory_watcher.last_response_at + 1e6
            )
            environment.vcenter.on_failure(Unreachable("no answer."))
        info, condition = await environment.wait_for_ready(HostInfo, "h", "VCenterUnreachable")
        assert info.status.totalCPU == 2000
        assert (
            f"The status was accurate until {environment.vcenter.accurate_until:%Y-%m-%dT%H:%M:%SZ}"
            in condition.message
        )
        writes = environment.count_status_writes()
        for _ in range(3):
            vcenters.notify_all()
            await environment.client.patch(
                HostInfo, Key("default", "h"), {"metadata": {"labels": {"again": str(writes)}}}
            )
        await environment.client.patch(
            HostInfo, Key("default", "h"), {"spec": {"hostname": "esxi-b"}}
        )
        # The status belonged to another spec.
        await environment.wait_for_ready(
            HostInfo,
            "h",
            "VCenterUnreachable",
            lambda status: status.observedGeneration == 2 and status.totalCPU is None,
        )
        assert environment.count_status_writes() == writes + 1
        environment.vcenter.on_response()
        await environment.wait_for_ready(
            HostInfo, "h", "Reconciled", lambda status: status.inventoryPath == "/esxi-b"
        )


async def test_refused_certificate_has_its_own_reason() -> None:
    environment = FakeEnvironment()
    async with run_manager(environment, lambda vcenters, cache: HostInfoController(vcenters)):
        environment.create(HostInfo, "h", hostname="esxi-a")
        environment.vcenter.on_failure(CertificateRefused("expired"))
        await environment.wait_for_ready(HostInfo, "h", "VCenterCertificateRefused")


async def test_unreadable_disks_are_reported() -> None:
    environment = FakeEnvironment()
    environment.vcenter.on_response()
    async with run_manager(environment, FCDInfoController):
        environment.vcenter.disks.problem = TimedOut("a datastore hangs")
        environment.create(FCDInfo, "d", pvId="pvc-1")
        _, condition = await environment.wait_for_ready(FCDInfo, "d", "DisksUnreadable")
        assert "a datastore hangs" in condition.message
        environment.set_disks(DISK)
        environment.vcenter.state_changed.emit()
        await environment.wait_for_ready(FCDInfo, "d", "Reconciled")


async def test_a_disk_of_a_hanging_datastore_is_unreadable_after_several_polls() -> None:
    environment = FakeEnvironment()
    disks, now = environment.vcenter.disks, 0.0
    disks.clock = lambda: now
    listing = DiskListing({DISK.id: DISK}, {"ds-1": "no response in time"}, {"ds-1"})
    environment.vcenter.on_response()
    async with run_manager(environment, FCDInfoController) as vcenters:
        disks.apply(listing)
        environment.create(FCDInfo, "d", pvId="pvc-1")
        await environment.wait_for_ready(FCDInfo, "d", "Reconciled")
        now = 10 * disks.poll_schedule.interval_seconds
        disks.apply(listing)
        vcenters.notify_all()
        info, condition = await environment.wait_for_ready(FCDInfo, "d", "DisksUnreadable")
        assert "from datastore ds-1 (no response in time)" in condition.message
        assert info.status.sizeMB == 10
        environment.set_disks(DISK)
        vcenters.notify_all()
        await environment.wait_for_ready(FCDInfo, "d", "Reconciled")


async def test_vm_that_returns_uses_its_disk_again() -> None:
    environment = FakeEnvironment()
    environment.enter("VirtualMachine", "vm-1", name="db", config__uuid="abc-1")
    environment.set_disks(DISK)
    environment.vcenter.on_response()
    async with run_manager(environment, FCDInfoController):
        environment.create(FCDInfo, "d", pvId="pvc-1")
        await environment.wait_for_ready(
            FCDInfo, "d", "Reconciled", lambda status: status.attachedTo == "db"
        )
        environment.leave("VirtualMachine", "vm-1")
        await environment.wait_for_ready(
            FCDInfo, "d", "Reconciled", lambda status: status.attachedTo is None
        )
        environment.enter("VirtualMachine", "vm-2", name="db", config__uuid="abc-1")
        await environment.wait_for_ready(
            FCDInfo, "d", "Reconciled", lambda status: status.attachedTo == "db"
        )


async def test_namespace_without_known_labels_is_not_served_yet() -> None:
    environment = environment_with_hosts()
    cache = Cache(Log("test"))
    async with run_manager(environment, lambda vcenters, _: HostInfoController(vcenters)):
        configs = [
            VCenterConfig("vc-1", ADDRESS),
            VCenterConfig("west", ADDRESS, namespaces=NamespaceSelector(labels={"site": "west"})),
        ]
        labeled = VCenterRegistry(
            {"vc-1": environment.vcenter, "west": environment.vcenter},
            configs,
            cache,
            60,
            0.05,
        )
        cache.store(Namespace)
        with pytest.raises(NotSynced, match="labels"):
            labeled.lookup_for(HostInfo(metadata=ObjectMeta(name="h", namespace="new")))
