"""What objects say while their vCenter, or a part of it, cannot be asked."""

from __future__ import annotations

import pytest

from kubewright import Key, ObjectMeta
from kubewright.builtin import Namespace
from kubewright.errors import NotSynced
from support.fake_environment import ADDRESS, FakeEnvironment, run_manager
from vsphere_operators.kinds.fcdinfo import FCDInfo, FCDInfoController
from vsphere_operators.kinds.hostinfo import HostInfo, HostInfoController
from vsphere_operators.vcenters.config import NamespaceSelector, VCenterConfig
from vsphere_operators.vcenters.registry import VCenterRegistry
from vsphere_operators.vsphere.faults import CertificateRefused, TimedOut, Unreachable
from vsphere_operators.vsphere.model import Disk
from vsphere_operators.vsphere.stats_throttle import StatsThrottle

DISK = Disk(id="d-1", name="pvc-1", datastore="ds-1", size_mb=10, consumers=("ABC-1",))


def environment_with_hosts() -> FakeEnvironment:
    stage = FakeEnvironment()
    for ref in ("a", "b"):
        hardware = {"summary__hardware__cpuMhz": 1000, "summary__hardware__numCpuCores": 2}
        stage.enter(
            "HostSystem", ref, name=f"esxi-{ref}", runtime__connectionState="connected", **hardware
        )
    stage.mark_loaded()
    return stage


async def test_outage_is_written_once_and_keeps_the_current_status() -> None:
    stage = environment_with_hosts()
    async with run_manager(stage, lambda vcenters, cache: HostInfoController(vcenters)) as vcenters:
        stage.create(HostInfo, "h", hostname="esxi-a")
        await stage.wait_for_ready(HostInfo, "h", "Reconciled")
        for _ in range(2):
            stage.vcenter.clock = lambda: stage.vcenter.inventory_watcher.last_answer_at + 1e6
            stage.vcenter.on_failure(Unreachable("no answer."))
        found, condition = await stage.wait_for_ready(HostInfo, "h", "VCenterUnreachable")
        assert found.status.totalCPU == 2000
        assert (
            f"The status was accurate until {stage.vcenter.accurate_until:%Y-%m-%dT%H:%M:%SZ}"
            in condition.message
        )
        writes = stage.count_status_writes()
        for _ in range(3):
            vcenters.publish_all()
            await stage.client.patch(
                HostInfo, Key("default", "h"), {"metadata": {"labels": {"again": str(writes)}}}
            )
        await stage.client.patch(HostInfo, Key("default", "h"), {"spec": {"hostname": "esxi-b"}})
        # The answer was to another question.
        await stage.wait_for_ready(
            HostInfo,
            "h",
            "VCenterUnreachable",
            lambda status: status.observedGeneration == 2 and status.totalCPU is None,
        )
        assert stage.count_status_writes() == writes + 1
        stage.vcenter.on_answer()
        await stage.wait_for_ready(
            HostInfo, "h", "Reconciled", lambda status: status.inventoryPath == "/esxi-b"
        )


async def test_refused_certificate_has_its_own_reason() -> None:
    stage = FakeEnvironment()
    async with run_manager(stage, lambda vcenters, cache: HostInfoController(vcenters)):
        stage.create(HostInfo, "h", hostname="esxi-a")
        stage.vcenter.on_failure(CertificateRefused("expired"))
        await stage.wait_for_ready(HostInfo, "h", "VCenterCertificateRefused")


async def test_unreadable_disks_are_reported() -> None:
    stage = FakeEnvironment()
    stage.vcenter.on_answer()
    async with run_manager(stage, FCDInfoController):
        stage.vcenter.disks.on_poll_failure(TimedOut("a datastore hangs"))
        stage.create(FCDInfo, "d", pvId="pvc-1")
        _, condition = await stage.wait_for_ready(FCDInfo, "d", "DisksUnreadable")
        assert "a datastore hangs" in condition.message
        stage.set_disks(DISK)
        stage.vcenter.state_changed.emit()
        await stage.wait_for_ready(FCDInfo, "d", "Reconciled")


async def test_vm_that_returns_uses_its_disk_again() -> None:
    stage = FakeEnvironment()
    stage.enter("VirtualMachine", "vm-1", name="db", config__uuid="abc-1")
    stage.set_disks(DISK)
    stage.vcenter.on_answer()
    async with run_manager(stage, FCDInfoController):
        stage.create(FCDInfo, "d", pvId="pvc-1")
        await stage.wait_for_ready(
            FCDInfo, "d", "Reconciled", lambda status: status.attachedTo == "db"
        )
        stage.leave("VirtualMachine", "vm-1")
        await stage.wait_for_ready(
            FCDInfo, "d", "Reconciled", lambda status: status.attachedTo is None
        )
        stage.enter("VirtualMachine", "vm-2", name="db", config__uuid="abc-1")
        await stage.wait_for_ready(
            FCDInfo, "d", "Reconciled", lambda status: status.attachedTo == "db"
        )


async def test_namespace_without_known_labels_is_not_served_yet() -> None:
    stage = environment_with_hosts()
    async with run_manager(stage, lambda vcenters, cache: HostInfoController(vcenters)) as vcenters:
        configs = [
            VCenterConfig("vc-1", ADDRESS),
            VCenterConfig("west", ADDRESS, namespaces=NamespaceSelector(labels={"site": "west"})),
        ]
        labelled = VCenterRegistry(
            {"vc-1": stage.vcenter, "west": stage.vcenter},
            configs,
            vcenters.cache,
            lambda: StatsThrottle(60, 0.05),
        )
        vcenters.cache.store(Namespace)
        with pytest.raises(NotSynced, match="labels"):
            labelled.get_view(HostInfo(metadata=ObjectMeta(name="h", namespace="new")))
