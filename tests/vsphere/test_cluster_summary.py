"""When the sums of a cluster are computed again, and which changes are reported."""

from __future__ import annotations

import asyncio

import pytest

from vsphere_operators.vsphere.cluster_summary import ClusterSummaries, ClusterSummary
from vsphere_operators.vsphere.inventory import Change, Inventory
from vsphere_operators.vsphere.model import ComputeResource, Host
from vsphere_operators.vsphere.updates import ObjectUpdate, Ref


class Recorder:
    """An inventory with summaries, and the changes that these reported."""

    def __init__(self) -> None:
        self.inventory = Inventory("lab")
        self.changes: list[Change[ClusterSummary]] = []
        self.summaries = ClusterSummaries(self.inventory, self.changes.append)
        self.inventory.connect(self.summaries.on_host_change, Host, include_related=False)
        self.inventory.connect(self.summaries.on_cluster_change, ComputeResource)

    async def apply(self, *updates: ObjectUpdate) -> list[Change[ClusterSummary]]:
        """The changes that a batch of updates caused."""
        self.changes.clear()
        self.inventory.apply(updates)
        # The sums are computed in the next turn of the event loop.
        await asyncio.sleep(0)
        return list(self.changes)


def enter_cluster(ref: str, kind: str = "ClusterComputeResource") -> ObjectUpdate:
    return ObjectUpdate("enter", kind, ref, {"name": f"name of {ref}"})


def enter_host(number: int, cluster: str, usage: int = 100) -> ObjectUpdate:
    return ObjectUpdate(
        "enter",
        "HostSystem",
        f"host-{number}",
        {
            "name": f"esxi-{number}",
            "parent": Ref("ClusterComputeResource", cluster),
            "runtime.connectionState": "connected",
            "runtime.inMaintenanceMode": False,
            "summary.hardware.cpuMhz": 1000,
            "summary.hardware.numCpuCores": 4,
            "summary.quickStats.overallCpuUsage": usage,
        },
    )


def set_usage(number: int, usage: int) -> ObjectUpdate:
    return ObjectUpdate(
        "modify", "HostSystem", f"host-{number}", {"summary.quickStats.overallCpuUsage": usage}
    )


@pytest.mark.looptime
async def test_batch_of_updates_is_one_change_per_cluster() -> None:
    recorder = Recorder()
    changes = await recorder.apply(
        enter_cluster("domain-c1"),
        enter_cluster("domain-c2"),
        *(enter_host(number, "domain-c1") for number in range(50)),
        enter_host(99, "domain-c2"),
    )
    assert {change.new.ref: change.new.hosts for change in changes if change.new} == {
        "domain-c1": 50,
        "domain-c2": 1,
    }
    assert len(changes) == 2
    # A large vCenter reports new stats all the time, so they are collected.
    assert await recorder.apply(*(set_usage(number, 200) for number in range(25))) == []
    await asyncio.sleep(1)
    assert await recorder.apply(*(set_usage(number, 200) for number in range(25, 50))) == []
    await asyncio.sleep(1.1)
    (change,) = recorder.changes
    assert change.new is not None
    assert change.new.stats.cpu_usage_mhz == 50 * 200
    # Anything else does not wait.
    assert await recorder.apply(set_usage(1, 300)) == []
    (change,) = await recorder.apply(enter_host(50, "domain-c1"))
    assert change.new is not None
    assert change.new.stats.cpu_usage_mhz == 49 * 200 + 300 + 100
    await asyncio.sleep(3)
    assert recorder.changes == [change]


@pytest.mark.looptime
async def test_host_before_its_cluster_and_unchanged_sums() -> None:
    recorder = Recorder()
    assert await recorder.apply(enter_host(1, "domain-c1")) == []
    (change,) = await recorder.apply(enter_cluster("domain-c1"))
    assert change.new is not None
    assert (change.new.hosts, change.new.cpu_mhz) == (1, 4000)
    await recorder.apply(enter_host(2, "domain-c1", usage=100))
    # One host has as much more as the other has less.
    assert await recorder.apply(set_usage(1, 150), set_usage(2, 50)) == []
    await asyncio.sleep(3)
    assert recorder.changes == []


async def test_standalone_host_has_no_summary() -> None:
    recorder = Recorder()
    changes = await recorder.apply(
        enter_cluster("domain-s1", "ComputeResource"), enter_host(1, "domain-s1")
    )
    assert (changes, recorder.summaries.by_ref) == ([], {})


async def test_removed_cluster_is_reported_and_forgotten() -> None:
    recorder = Recorder()
    await recorder.apply(enter_cluster("domain-c1"), enter_host(1, "domain-c1"))
    (change,) = await recorder.apply(
        ObjectUpdate("leave", "HostSystem", "host-1"),
        ObjectUpdate("leave", "ClusterComputeResource", "domain-c1"),
    )
    assert change.old is not None
    assert (change.old.ref, change.new) == ("domain-c1", None)
    assert recorder.summaries.by_ref == {}


async def test_reader_never_gets_an_outdated_sum() -> None:
    recorder = Recorder()
    await recorder.apply(enter_cluster("domain-c1"), enter_host(1, "domain-c1"))
    recorder.inventory.apply([enter_host(2, "domain-c1")])
    cluster = recorder.inventory.compute_resources["domain-c1"]
    assert recorder.summaries.get(cluster).hosts == 2
