"""What `top` prints about its source."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kubewright import Client
from kubewright.testing.fake import FakeApi
from support.fake_environment import FAKE_CONNECTION
from support.fake_node_cluster import FakeNodeCluster
from vsphere_operators.kubectl.row_sources import choose_source
from vsphere_operators.kubectl.rows import HostRow, Rows, VmRow
from vsphere_operators.kubectl.sources import ClusterReader
from vsphere_operators.vsphere.vcenter import VCenter

ROWS = Rows(hosts=[HostRow(name=f"esxi-{n}") for n in range(3)], vms=[VmRow(name="vm")])


def make_reader(api: FakeApi, namespace: str) -> ClusterReader:
    reader = ClusterReader(FAKE_CONNECTION, namespace, lambda _: None)
    reader.client = Client(api)
    return reader


@asynccontextmanager
async def open_nothing() -> AsyncIterator[list[VCenter]]:
    yield []


async def serve_nothing() -> Rows | None:
    """The manager has no page."""
    return None


@pytest.mark.parametrize(
    ("namespace", "hosts", "vms"),
    [
        (
            "",
            "3 hosts have a HostInfo in all namespaces. Use --vcenter to see all.",
            "1 VM is named by a VMInfo, a VmGroup or a GPUInfo in all namespaces. "
            "Use --vcenter to see all.",
        ),
        (
            "team-a",
            "3 hosts have a HostInfo in namespace team-a. Use -A or --vcenter to see more.",
            "1 VM is named by a VMInfo, a VmGroup or a GPUInfo in namespace team-a. "
            "Use -A or --vcenter to see more.",
        ),
    ],
)
async def test_rows_from_objects_leave_out_what_has_no_object(
    namespace: str, hosts: str, vms: str
) -> None:
    reader = make_reader(FakeApi(), namespace)
    source = choose_source(reader, open_nothing, serve_nothing, use_vcenter=False)
    assert (await source.read()).hosts == []
    assert (source.describe(ROWS, "hosts"), source.describe(ROWS, "vms")) == (hosts, vms)
    await reader.transport.close()


async def test_rows_from_vcenter_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeNodeCluster()
    cluster.add_host(1)
    cluster.add_vm(1, 1, 500)

    @asynccontextmanager
    async def open_vcenters() -> AsyncIterator[list[VCenter]]:
        yield [cluster.vcenter]

    async def poll() -> None:
        """The fake vCenter has no disks."""

    monkeypatch.setattr(cluster.vcenter.disks, "poll", poll)
    reader = make_reader(FakeApi(), "")
    source = choose_source(reader, open_vcenters, serve_nothing, use_vcenter=True)
    rows = await source.read()
    name = cluster.vcenter.name
    assert [row.name for row in rows.hosts] == ["esxi-1"]
    assert source.describe(rows, "hosts") == f"1 host of vCenter {name} that the account can see."
    assert source.describe(rows, "vms") == (
        f"1 VM of vCenter {name} that the account can see, without templates."
    )
    await reader.transport.close()


async def test_rows_of_the_manager_are_preferred_to_objects() -> None:
    async def serve() -> Rows | None:
        return ROWS

    reader = make_reader(FakeApi(), "team-a")
    source = choose_source(reader, open_nothing, serve, use_vcenter=False)
    assert await source.read() is ROWS
    assert source.describe(ROWS, "hosts") == "3 hosts that the manager knows."
    assert source.describe(ROWS, "vms") == "1 VM that the manager knows, without templates."
    await reader.transport.close()
