"""Random vMotions on a simulated vCenter: are the labels of Nodes right, and how soon?

    make node-moves                       # 1,000 moves, 10 a second, and 20 kills; 4 minutes
    make node-moves ARGS="--moves 100 --kills 2 --seed 7"

A watch on the Nodes, as the scheduler has one, records when a label names the present host of the
VM. If a VM moves again before that, the earlier move counts until then, too. Writes are those in
the audit log of the API server.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kubewright import Client
from kubewright.builtin import Node
from kubewright.kubeconfig import load_config
from kubewright.testing import eventually
from kubewright.testing.binaries import find_binaries
from kubewright.testing.controlplane import ControlPlane
from kubewright.transport import Transport
from simulator import SimulatedVCenter
from support.info_client import write_credentials
from support.manager_process import (
    FREE_PORT_FLAGS,
    SERVICE_ACCOUNT,
    SYSTEM_NAMESPACE,
    ManagerProcess,
    list_mutations,
)
from vsphere_operators.node_labels.labels import HOST_LABEL

from .crash_sweep import BINARIES, ROOT, install_manifests
from .gpu_cluster import GpuCluster

NODE_COUNT = 20
MOVES_PER_SECOND = 10.0
P99_LIMIT_SECONDS = 2.0
WRONG_LIMIT_SECONDS = 5.0
REST_SECONDS = 10.0
NODES = {
    f"worker-{number}": f"42030000-0000-4000-8000-{number:012d}"
    for number in range(1, NODE_COUNT + 1)
}
VCENTER_FLAGS = (
    "--clusters=2",
    "--hosts=5",
    "--vms=0",
    *(f"--node={name}={uuid}" for name, uuid in NODES.items()),
)


@dataclass
class LabelWatch:
    """The host label of each Node, and how long it took to follow each move."""

    client: Client
    labels: dict[str, str] = field(default_factory=dict)
    # The present host of each VM.
    hosts: dict[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    # When the moves were made that the label does not show yet.
    _pending: dict[str, list[float]] = field(default_factory=dict)

    async def run(self) -> None:
        version = ""
        while True:
            with suppress(TimeoutError):
                async for event in self.client.watch(
                    Node, version, send_initial_events=not version
                ):
                    version = event.resource_version
                    if isinstance(event.object, Node):
                        self._on_node(event.object)

    def on_move(self, vm: str, host: str) -> None:
        self.hosts[vm] = host
        if self.labels.get(vm) == host:
            # The watch was faster than the response to the move.
            self.seconds.append(0.0)
        else:
            self._pending.setdefault(vm, []).append(time.monotonic())

    def _on_node(self, node: Node) -> None:
        name = node.metadata.name
        self.labels[name] = label = node.metadata.labels.get(HOST_LABEL, "")
        if label == self.hosts.get(name):
            now = time.monotonic()
            self.seconds += (now - moved_at for moved_at in self._pending.pop(name, ()))

    def list_wrong(self) -> dict[str, tuple[str, str]]:
        """The Nodes with a wrong label: their label and their host."""
        return {
            name: (self.labels.get(name, ""), host)
            for name, host in self.hosts.items()
            if self.labels.get(name) != host
        }

    @property
    def p99_seconds(self) -> float:
        return statistics.quantiles(self.seconds, n=100)[98]


@dataclass
class NodeMoves:
    plane: ControlPlane
    vcenter: SimulatedVCenter
    manager: ManagerProcess
    watch: LabelWatch
    random: random.Random

    @property
    def write_count(self) -> int:
        """Writes of Nodes by the manager that runs now."""
        return sum(
            event["objectRef"]["resource"] == "nodes"
            for event in list_mutations(self.plane, self.manager)
        )

    async def start(self) -> None:
        """Spread the VMs over the hosts, and wait for the first labels and conditions."""
        hosts = await self._list_hosts()
        for number, vm in enumerate(NODES):
            await self.vcenter.move_vm(vm, hosts[number % len(hosts)])
            self.watch.on_move(vm, hosts[number % len(hosts)])
        await self.restart_manager()
        await self.wait_until_right(within=30)
        # Labels and a condition for each Node. The audit log is written after the response.
        await eventually(lambda: self.write_count >= 2 * NODE_COUNT, within=30)
        self.watch.seconds.clear()

    async def _list_hosts(self) -> list[str]:
        return [
            entity["name"]
            for entity in await self.vcenter.entities()
            if entity["type"] == "HostSystem"
        ]

    async def restart_manager(self) -> float:
        """Returns the seconds until its workers start."""
        await asyncio.to_thread(self.manager.log.unlink, missing_ok=True)
        began = time.monotonic()
        self.manager.start()
        await self.manager.wait_for_log('"controller":"nodelabels"', within=60)
        return time.monotonic() - began

    async def move(self, count: int) -> None:
        """Move random VMs at a fixed rate."""
        hosts, began = await self._list_hosts(), time.monotonic()
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / MOVES_PER_SECOND - time.monotonic()))
            vm = self.random.choice(list(NODES))
            host = self.random.choice([name for name in hosts if name != self.watch.hosts[vm]])
            await self.vcenter.move_vm(vm, host)
            self.watch.on_move(vm, host)

    async def wait_until_right(self, *, within: float = 60.0) -> None:
        try:
            await eventually(lambda: not self.watch.list_wrong(), within=within)
        except AssertionError:
            raise AssertionError(
                f"wrong labels after {within:g} s: {self.watch.list_wrong()}\n"
                f"{self.manager.read_log_tail()}"
            ) from None

    async def kill_and_return(self) -> float:
        """Kill the manager at a random moment of a stream of moves, and start it again.

        Returns the seconds from the start of its workers until every label is right.
        """
        moves = asyncio.create_task(self.move(40))
        await asyncio.sleep(self.random.uniform(0.0, 3.0))
        await self.manager.kill()
        await self.restart_manager()
        await moves
        began = time.monotonic()
        await self.wait_until_right()
        return time.monotonic() - began


@asynccontextmanager
async def run_node_moves(
    plane: ControlPlane, vcenter: SimulatedVCenter, folder: Path, seed: int
) -> AsyncIterator[NodeMoves]:
    """Nodes on the VMs of the vCenter, and a manager with -label-nodes and its role."""
    role = str(ROOT / "config/components/label-nodes/role.yaml")
    plane.kubectl("apply", "-f", role)
    cluster = GpuCluster(plane, "")
    kubeconfig = plane.write_service_account_kubeconfig(
        SYSTEM_NAMESPACE, SERVICE_ACCOUNT, folder / "kubeconfig"
    )
    manager = ManagerProcess(
        folder / "manager.log",
        f"--kubeconfig={kubeconfig}",
        *FREE_PORT_FLAGS,
        f"--vcenter-credentials={write_credentials(folder / 'vc-creds', vcenter)}",
        f"--vcenter-ca-file={vcenter.certificate}",
        "--label-nodes",
    )
    transport = Transport(
        await asyncio.to_thread(
            load_config, str(plane.admin_kubeconfig), environ={}, home=Path("/")
        )
    )
    watch = LabelWatch(Client(transport))
    watching = asyncio.create_task(watch.run())
    try:
        for name, uuid in NODES.items():
            await cluster.add_node(name, f"vsphere://{uuid}")
        moves = NodeMoves(plane, vcenter, manager, watch, random.Random(seed))
        await moves.start()
        yield moves
    finally:
        await manager.kill()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await transport.close()
        await cluster.remove_nodes()
        plane.kubectl("delete", "-f", role)


async def run_and_report(options: argparse.Namespace, folder: Path) -> bool:
    vcenter = SimulatedVCenter(BINARIES / "vcsim", folder / "vcsim", *VCENTER_FLAGS)
    binaries = await asyncio.to_thread(find_binaries, folders=[BINARIES])
    async with ControlPlane(binaries, audit=True) as plane:
        await asyncio.to_thread(install_manifests, plane)
        try:
            await vcenter.start()
            async with run_node_moves(plane, vcenter, folder, options.seed) as moves:
                return await measure(moves, options.moves, options.kills)
        finally:
            await vcenter.stop()


async def measure(moves: NodeMoves, count: int, kills: int) -> bool:
    """Print the figures; returns whether all limits hold."""
    before = moves.write_count
    await moves.move(count)
    await moves.wait_until_right()
    await asyncio.sleep(1.0)
    after, watch = moves.write_count, moves.watch
    await asyncio.sleep(REST_SECONDS)
    at_rest = moves.write_count - after
    writes, slowest = after - before, max(watch.seconds)
    median = statistics.median(watch.seconds)
    print(
        f"{count} moves of {NODE_COUNT} VMs: label right after {median:.3f} s (median), "
        f"{watch.p99_seconds:.3f} s (p99), {slowest:.3f} s (slowest); "
        f"{writes} writes of Nodes, {at_rest} in {REST_SECONDS:g} s at rest",
        flush=True,
    )
    good = watch.p99_seconds <= P99_LIMIT_SECONDS and slowest <= WRONG_LIMIT_SECONDS
    good = good and writes <= count and at_rest == 0
    for number in range(1, kills + 1):
        seconds = await moves.kill_and_return()
        print(f"kill {number}: all labels right {seconds:.2f} s after the last move", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make node-moves", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--moves", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return 0 if asyncio.run(run_and_report(options, Path(folder))) else 1


if __name__ == "__main__":
    raise SystemExit(main())
