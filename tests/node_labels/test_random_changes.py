"""Random changes of VMs, hosts and Nodes: the labels always end as brute force computes them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from kubewright import Key
from kubewright.builtin import Node
from support.fake_node_cluster import FakeNodeCluster
from support.fake_time import fake_time_without_io
from vsphere_operators.node_labels.labels import HOST_LABEL, to_label_value
from vsphere_operators.vsphere.updates import Ref

from .test_controller import run_labeler

COUNT = 6
NAMES = ("esxi-a", "esxi-b", "esxi c", "münchen", "x" * 70)
# Longer than a VM has to be missing.
SETTLE_SECONDS = 61.0


class RandomCluster(FakeNodeCluster):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        # Names of hosts, hosts of VMs, and Nodes, by number.
        self.hosts: dict[int, str] = {}
        self.vms: dict[int, int] = {}
        self.nodes: set[int] = set()
        for number in range(COUNT):
            self.change_host(number)
            self.change_vm(number)
        self.mark_loaded()

    def change_host(self, number: int) -> None:
        """Add or rename a host, or remove one without VMs."""
        if number in self.hosts and number not in self.vms.values() and self.random.random() < 0.3:
            del self.hosts[number]
            self.leave("HostSystem", f"host-{number}")
            return
        name = self.random.choice(NAMES)
        if number in self.hosts:
            self.modify("HostSystem", f"host-{number}", name=name)
        else:
            self.add_host(number, name=name)
        self.hosts[number] = name

    def change_vm(self, number: int) -> None:
        """Add or move a VM, or remove it."""
        if number in self.vms and self.random.random() < 0.2:
            del self.vms[number]
            self.leave("VirtualMachine", f"vm-{number}")
            return
        host = self.random.choice(list(self.hosts))
        if number in self.vms:
            ref = Ref("HostSystem", f"host-{host}")
            self.modify("VirtualMachine", f"vm-{number}", runtime__host=ref)
        else:
            self.add_vm(number, host, 100, name=f"vm {number}")
        self.vms[number] = host

    async def change_node(self, number: int) -> None:
        """Add or remove a Node."""
        if number in self.nodes:
            self.nodes.discard(number)
            await self.client.delete(Node, Key("", f"node-{number}"))
        else:
            self.nodes.add(number)
            self.add_node(number)

    def expect_labels(self) -> dict[str, str | None]:
        counts = Counter(self.hosts.values())
        labels: dict[str, str | None] = {}
        for number in self.nodes:
            host = self.vms.get(number)
            labels[f"node-{number}"] = None
            if host is not None:
                name = self.hosts[host]
                shared_id = f"vc-1/host-{host}" if counts[name] > 1 else ""
                labels[f"node-{number}"] = to_label_value(name, shared_id)
        return labels

    async def read_labels(self) -> dict[str, str | None]:
        nodes = await self.client.list(Node)
        return {node.metadata.name: node.metadata.labels.get(HOST_LABEL) for node in nodes}


@fake_time_without_io
@pytest.mark.parametrize("seed", range(10))
async def test_labels_are_right_after_random_changes(seed: int) -> None:
    cluster = RandomCluster(seed)
    async with run_labeler(cluster):
        for _ in range(20):
            for _ in range(cluster.random.randint(1, 8)):
                number = cluster.random.randrange(COUNT)
                match cluster.random.choice(("host", "vm", "vm", "node")):
                    case "host":
                        cluster.change_host(number)
                    case "vm":
                        cluster.change_vm(number)
                    case _:
                        await cluster.change_node(number)
                await asyncio.sleep(cluster.random.choice((0, 0, 0.05, 5)))
            await asyncio.sleep(SETTLE_SECONDS)
            assert await cluster.read_labels() == cluster.expect_labels()
            writes = len(cluster.api.writes())
            await asyncio.sleep(SETTLE_SECONDS)
            assert len(cluster.api.writes()) == writes
