"""The commands of `kubectl vsphere` that read the page of the manager."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kubewright import Client
from kubewright.builtin import Pod
from kubewright.errors import ConfigError, Forbidden
from kubewright.testing import eventually
from support.fake_environment import FAKE_CONNECTION
from support.fake_node_cluster import FakeNodeCluster, add_three_nodes, bios_uuid_of
from support.topology_cluster import TopologyClient, run_topology
from vsphere_operators.kubectl import manager_pods, page
from vsphere_operators.kubectl.command import Printer, _Commands, _parse_arguments
from vsphere_operators.kubectl.sources import ClusterReader
from vsphere_operators.kubectl.topology_commands import PAGE_VARIABLE
from vsphere_operators.manager_pods import ManagerPod
from vsphere_operators.vsphere.model import Disk
from vsphere_operators.vsphere.updates import Ref

# Stands for kubectl: forwards each connection to the port in TARGET, as port-forward does.
FAKE_KUBECTL = """#!{python}
import asyncio, os, sys

async def copy(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()

async def serve(reader, writer):
    target = await asyncio.open_connection("127.0.0.1", int(os.environ["TARGET"]))
    await asyncio.gather(copy(reader, target[1]), copy(target[0], writer))

async def main():
    if not os.environ.get("TARGET"):
        sys.exit("error: pods is forbidden")
    print(*sys.argv[1:], file=open(os.environ["ARGUMENTS"], "w"))
    print(os.getpid(), file=open(os.environ["ARGUMENTS"] + ".pid", "w"))
    local_port = int(sys.argv[-1].split(":")[0] or 0)
    server = await asyncio.start_server(serve, "127.0.0.1", local_port)
    port = server.sockets[0].getsockname()[1]
    print(f"Forwarding from 127.0.0.1:{{port}} -> 9090", flush=True)
    # kubectl prints a line for each connection; these are more than a pipe holds.
    print("Handling connection for 9090\\n" * 20_000, flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


class Plugin:
    """Runs commands against a fake cluster with one manager Pod."""

    def __init__(self, cluster: FakeNodeCluster, client: TopologyClient, folder: Path) -> None:
        self.cluster, self.client, self.folder = cluster, client, folder
        self.warnings: list[str] = []
        kubectl = folder / "kubectl"
        kubectl.write_text(FAKE_KUBECTL.format(python=sys.executable))
        kubectl.chmod(0o755)
        self.environ = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "TARGET": str(client.server.endpoint.port),
            "ARGUMENTS": str(folder / "arguments"),
        }

    def add_manager_pod(
        self,
        *flags: str,
        phase: str = "Running",
        name: str = "manager-0",
        env: Sequence[dict[str, object]] = (),
    ) -> None:
        labels = {
            "app.kubernetes.io/name": "vsphere-operators",
            "control-plane": "controller-manager",
        }
        containers = [{"name": "manager", "image": "m", "args": list(flags), "env": list(env)}]
        body = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers}}
        path = ManagerPod.definition.path(manager_pods.DEFAULT_NAMESPACE)
        created = self.cluster.api.create(path, body)
        self.cluster.api.update(
            f"{path}/{name}", {**created, "status": {"phase": phase}}, status=True
        )

    def read_forwarded_port(self) -> str:
        """The local port that the last kubectl was started with; "" for a free one."""
        arguments = (self.folder / "arguments").read_text().split()
        return arguments[-1].partition(":")[0] if arguments else ""

    async def run(self, *argv: str) -> str:
        # argparse reads translations from files.
        options: argparse.Namespace = await asyncio.to_thread(_parse_arguments, argv)
        reader = ClusterReader(FAKE_CONNECTION, "default", self.warnings.append)
        await reader.transport.close()
        reader.client = Client(self.cluster.api)
        printer = Printer(options.output, 0, False)
        commands = _Commands(options, reader, self.environ, printer)
        await commands.topology.check_page()
        return await commands.run()


@pytest.fixture
async def plugin(tmp_path: Path) -> AsyncIterator[Plugin]:
    cluster = FakeNodeCluster()
    cluster.enter(
        "Datastore",
        "datastore-1",
        name="nfs-1",
        summary__accessible=True,
        summary__type="NFS",
        summary__capacity=100 * 2**30,
        summary__freeSpace=5 * 2**30,
        summary__uncommitted=50 * 2**30,
    )
    add_three_nodes(cluster)
    cluster.set_disks(
        Disk(id="d-1", name="left", datastore="datastore-1", size_mb=7),
        Disk(
            id="d-2",
            name="larger",
            datastore="datastore-1",
            size_mb=70,
            attached_vm_uuids=(bios_uuid_of(1),),
        ),
        Disk(id="d-3", name="hidden", datastore="datastore-1", attached_vm_uuids=("unseen",)),
    )
    async with run_topology(cluster) as client:
        await client.wait_for("nodes", "node-3", vm="vc-1/vm-3")
        yield Plugin(cluster, client, tmp_path)


async def test_port_is_forwarded_to_the_manager(plugin: Plugin) -> None:
    plugin.add_manager_pod("-leader-elect", "-ui-bind-address=127.0.0.1:9090")
    text = await plugin.run("datastores", "--context=c", "--kubeconfig=k")
    assert text.splitlines() == [
        "DATASTORE  TYPE  GIB    FREE GIB  FREE  PROVISIONED  VMS  VOLUMES  ORPHANS  STATE",
        "nfs-1      NFS   100.0  5.0       5%    145%         0    0        1        accessible",
    ]
    assert (plugin.folder / "arguments").read_text().split() == [
        "port-forward",
        "--kubeconfig=k",
        "--context=c",
        "--address=127.0.0.1",
        "--namespace=vsphere-operators-system",
        "pod/manager-0",
        ":9090",
    ]


async def test_datastore_with_disks_that_are_not_listed_has_no_counts(plugin: Plugin) -> None:
    plugin.cluster.enter(
        "Datastore", "datastore-2", name="nfs-2", summary__type="NFS", summary__accessible=True
    )
    await plugin.client.wait_for("datastores", "vc-1/datastore-2", name="nfs-2")
    text = await plugin.run("datastores", "-o", "wide", "--page", plugin.client.address)
    header, _, row = (line.split() for line in text.splitlines())
    # The title FREE GIB is split.
    assert header[7:] == ["VMS", "VOLUMES", "ORPHANS", "STATE", "FOREIGN", "HOSTS", "VCENTER", "ID"]
    assert row[6:11] == ["0", "-", "-", "accessible", "-"]
    text = await plugin.run("datastores", "-o", "json", "--page", plugin.client.address)
    _, datastore = json.loads(text)
    assert not {"volumes", "orphanedDisks", "foreignDisks"} & datastore.keys()


async def test_orphaned_disks_are_before_those_that_a_vm_uses(plugin: Plugin) -> None:
    lines = (await plugin.run("orphans", "--page", plugin.client.address)).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["left", "orphaned", "7", "nfs-1", "-"],
        ["larger", "foreign", "70", "nfs-1", "node-1"],
        # The vCenter account does not see the VM that uses this disk.
        ["hidden", "foreign", "-", "nfs-1", "-"],
    ]
    text = await plugin.run("datastores", "-o", "json", "--page", plugin.client.address)
    # As vsphere_datastore_orphaned_disks and vsphere_datastore_foreign_disks count them.
    (datastore,) = json.loads(text)
    assert (datastore["orphanedDisks"], datastore["foreignDisks"]) == (1, 2)


async def test_what_if_accepts_a_name_and_an_id(plugin: Plugin) -> None:
    for name in ("esxi-2", "vc-1/host-2"):
        text = await plugin.run("what-if", "host", name, "--page", plugin.client.address)
        assert "Nodes:      node-2, node-3" in text
    with pytest.raises(ConfigError, match='no host has the name or id "esxi-9"'):
        await plugin.run("what-if", "host", "esxi-9", "--page", plugin.client.address)


async def test_what_if_marks_replicas_and_explains_gaps(plugin: Plugin) -> None:
    for name, node, owner in (
        ("web-0", "node-2", "StatefulSet"),
        ("web-1", "node-3", "StatefulSet"),
        ("proxy-0", "node-2", "DaemonSet"),
    ):
        reference = {"apiVersion": "apps/v1", "kind": owner, "name": "x", "uid": owner}
        path = Pod.definition.path("default")
        created = plugin.cluster.api.create(
            path,
            {
                "metadata": {"name": name, "ownerReferences": [{**reference, "controller": True}]},
                "spec": {"nodeName": node, "containers": [{"name": "main", "image": "i"}]},
            },
        )
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        plugin.cluster.api.update(f"{path}/{name}", {**created, "status": status}, status=True)
    plugin.cluster.add_node(9)
    await plugin.client.wait_for("nodes", "node-9", vm=None)
    await plugin.client.wait_for("nodes", "node-2", pods=2)
    text = await plugin.run("what-if", "host", "esxi-2", "--page", plugin.client.address)
    assert "3, 2 without a ready replica elsewhere, 1 bound to their Node" in text
    assert "1 Node has no known VM (node-9), so it is unknown on which host" in text
    rows = [line.split() for line in text.splitlines() if line.startswith("default ")]
    assert rows == [
        ["default", "proxy-0", "node-2", "DaemonSet", "x", "yes", "per", "node"],
        ["default", "web-0", "node-2", "StatefulSet", "x", "yes", "none"],
        ["default", "web-1", "node-3", "StatefulSet", "x", "yes", "none"],
    ]


async def test_events_show_the_moves_of_nodes(plugin: Plugin) -> None:
    address = plugin.client.address
    assert await plugin.run("events", "--page", address) == "No events."
    (complete,) = plugin.warnings
    assert complete.startswith("Complete since 20")
    assert complete.endswith("Z (the manager keeps at most 2000 changes in memory).")
    plugin.cluster.add_vm(50, 1, 5, name="other")
    plugin.cluster.modify("VirtualMachine", "vm-1", runtime__host=Ref("HostSystem", "host-2"))
    await plugin.client.wait_for("vms", "vc-1/vm-1", host="vc-1/host-2")
    lines = (await plugin.run("events", "--page", address)).splitlines()
    assert len(lines) == 2
    assert lines[1].split()[1:] == ["VM", "node-1", "Moved", "from", "esxi-1", "to", "esxi-2"]
    assert "other" in await plugin.run("events", "--all", "--page", address)
    with pytest.raises(ConfigError, match="only the manager has seen them"):
        await plugin.run("events", "--vcenter")


async def test_tree_reads_the_page_and_keeps_its_keys(plugin: Plugin) -> None:
    plugin.add_manager_pod("--ui-bind-address=127.0.0.1:9090")
    text = await plugin.run("tree", "-o", "json")
    for key in ('"kind": "VM"', '"name": "node-1"', '"inside"', '"tone": "good"'):
        assert key in text
    assert plugin.warnings == []


async def test_tree_works_without_a_page(plugin: Plugin) -> None:
    plugin.add_manager_pod("-leader-elect")
    plugin.add_manager_pod("-ui-bind-address=127.0.0.1:9090", phase="Pending", name="manager-1")
    assert '"inside"' in await plugin.run("tree", "-o", "json")
    plugin.add_manager_pod("-ui-bind-address=127.0.0.1:9090", name="manager-2")
    del plugin.environ["TARGET"]
    assert '"inside"' in await plugin.run("tree", "-o", "json")
    assert "pods is forbidden" in plugin.warnings[-1]


@contextmanager
def serve_nothing(*, accepts: bool) -> Iterator[str]:
    """The address of a port that refuses connections, or of a process that is suspended."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        if not accepts:
            server.close()
        yield address


@pytest.mark.parametrize("accepts", [False, True], ids=["ended", "suspended"])
async def test_objects_replace_a_page_that_does_not_answer(plugin: Plugin, accepts: bool) -> None:
    with serve_nothing(accepts=accepts) as address:
        plugin.environ[PAGE_VARIABLE] = address
        async with asyncio.timeout(60):
            assert "No resources found" in await plugin.run("top", "hosts")
        assert plugin.warnings == [
            f"The page at {address} (KUBECTL_VSPHERE_PAGE) does not answer: the objects are shown "
            "instead. To see all, use --vcenter; run `manager doctor` to see why.",
            "0 hosts have a HostInfo in namespace default. Use -A or --vcenter to see more.",
        ]
        for command, message in (
            (("what-if", "host", "a"), "(KUBECTL_VSPHERE_PAGE) does not answer. Check the"),
            (("events",), "(KUBECTL_VSPHERE_PAGE) does not answer. Only the"),
            (("tree", "--page", address), "(--page) does not answer. Check the address, or"),
        ):
            with pytest.raises(ConfigError, match=re.escape(message)):
                await plugin.run(*command)


async def test_open_with_an_address_forwards_nothing(
    plugin: Plugin, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[str]()

    def find_no_browser(url: str) -> bool:
        opened.append(url)
        return False

    monkeypatch.setattr("webbrowser.open", find_no_browser)
    address = plugin.client.address
    assert await plugin.run("open", "--page", address) == ""
    assert capsys.readouterr().out == f"The page is at {address}/\n"
    assert opened == [f"{address}/"]
    assert plugin.warnings == ["No browser was found. Open the address in one yourself."]
    await plugin.run("open", "--page", address, "--no-browser")
    assert len(opened) == 1


async def test_missing_page_is_explained(plugin: Plugin) -> None:
    with pytest.raises(ConfigError, match="no manager with a page was found"):
        await plugin.run("datastores")
    plugin.add_manager_pod("-ui-bind-address=:9443")
    with pytest.raises(ConfigError, match="needs a token"):
        await plugin.run("datastores")


VARIABLE = "UI_BIND_ADDRESS"


@pytest.mark.parametrize(
    ("flags", "env", "port"),
    [
        (("-ui-bind-address=127.0.0.1:1", "--ui-bind-address", "localhost:8090"), "", 8090),
        (("-ui-bind-address", "[::1]:8091", "-leader-elect"), "", 8091),
        ((), "127.0.0.1:8092", 8092),
        (("--ui-bind-address=127.0.0.1:8093",), "0", 8093),
    ],
)
async def test_port_of_the_page_is_read_as_the_manager_does(
    plugin: Plugin, flags: tuple[str, ...], env: str, port: int
) -> None:
    plugin.add_manager_pod(*flags, env=[{"name": VARIABLE, "value": env}])
    await plugin.run("datastores")
    assert (plugin.folder / "arguments").read_text().split()[-1] == f":{port}"


@pytest.mark.parametrize(
    ("flags", "env", "message"),
    [
        (("-ui-bind-address=127.0.0.1:9090", "-ui-bind-address=0"), {}, "no manager with a page"),
        (("-ui-bind-address=",), {"value": "127.0.0.1:9090"}, "no manager with a page"),
        (("-ui-bind-address=127.0.0.2:9090",), {}, "Set -ui-bind-address=127.0.0.1:9090"),
        (("-ui-bind-address=10.0.0.7:9443",), {}, "not reached by `kubectl port-forward`"),
        (("-ui-bind-address=127.0.0.1:0",), {}, "is chosen when the manager starts"),
        (("-ui-bind-address=$(ADDRESS)",), {}, "refers to another object"),
        (("-ui-bind-address=9090",), {}, "invalid listen address"),
        ((), {"valueFrom": {"configMapKeyRef": {"key": "a"}}}, "refers to another object"),
    ],
)
async def test_page_that_cannot_be_reached_is_explained(
    plugin: Plugin, flags: tuple[str, ...], env: dict[str, object], message: str
) -> None:
    plugin.add_manager_pod(*flags, env=[{"name": VARIABLE, **env}])
    with pytest.raises(ConfigError, match=re.escape(message)):
        await plugin.run("datastores")
    # `tree` has another source.
    assert '"inside"' in await plugin.run("tree", "-o", "json")
    assert message.startswith("no manager") or message in plugin.warnings[-1]
    # During a rollout, a Pod with a page is used.
    plugin.add_manager_pod("-ui-bind-address=127.0.0.1:9090", name="manager-1")
    assert "nfs-1" in await plugin.run("datastores")


async def test_missing_permission_to_list_pods_is_explained(plugin: Plugin) -> None:
    path = ManagerPod.definition.path(manager_pods.DEFAULT_NAMESPACE)
    plugin.cluster.api.fail_next("GET", path, Forbidden("pods is forbidden"), times=2)
    with pytest.raises(ConfigError, match=r"pods is forbidden.*permission to list pods"):
        await plugin.run("datastores")
    assert '"inside"' in await plugin.run("tree", "-o", "json")
    assert "permission to list pods" in plugin.warnings[-1]


async def test_open_prints_the_address_and_ends_the_port_forward(
    plugin: Plugin, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin.add_manager_pod("-ui-bind-address=127.0.0.1:9090")
    task = asyncio.create_task(plugin.run("open", "--no-browser"))
    output: Any = ""

    def is_printed() -> bool:
        nonlocal output
        output += capsys.readouterr().out
        return "Ctrl-C" in output

    await eventually(is_printed)
    address = output.split()[4]
    assert address.startswith("http://127.0.0.1:")
    assert await page.read_page(address, "/topology/changes", dict)
    # The manager is replaced, and kubectl loses its Pod: the page is at the same address again.
    process_file = plugin.folder / "arguments.pid"
    os.kill(int(process_file.read_text()), signal.SIGTERM)

    async def is_forwarded_again() -> bool:
        try:
            await page.read_page(address, "/topology/changes", dict)
        except ConfigError:
            return False
        return True

    await eventually(lambda: plugin.read_forwarded_port() == address.split(":")[2].strip("/"))
    await eventually(is_forwarded_again, within=60)
    task.cancel()
    assert await task == ""


async def test_port_forward_that_ends_just_after_the_timeout_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class EndingProcess:
        """Its end becomes known between the timeout and the kill."""

        has_ended = False

        def terminate(self) -> None: ...

        def kill(self) -> None:
            raise ProcessLookupError

        async def wait(self) -> int:
            if not self.has_ended:
                self.has_ended = True
                await asyncio.Event().wait()
            return 0

    monkeypatch.setattr(page, "_STOP_TIMEOUT_SECONDS", 0.001)
    process: Any = EndingProcess()
    await page._stop(process)
    assert process.has_ended
