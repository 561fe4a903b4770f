"""What changes in the replayed vCenter during a measurement: quickStats, and the hosts of VMs.

How does a vCenter send quickStats?  Each host reports itself and its VMs every 20 s, and the hosts
    do not report at the same moment. So the hosts are spread over the interval, and each report
    changes one host and its VMs.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import NoReturn

from . import values
from .inventory import ManagedObject, ReplayedInventory

STATS_INTERVAL_SECONDS = 20.0
_TICK_SECONDS = 0.02
_DRIFT_MHZ, _DRIFT_MB, _JUMP_SHARE = 120, 64, 0.02


@dataclass(frozen=True)
class Move:
    """A vMotion. `time` is of the monotonic clock, which all processes of a machine share."""

    time: float
    vm: str
    new_host: str


class Churn:
    def __init__(self, inventory: ReplayedInventory, seed: int = 2) -> None:
        self._inventory, self._rng = inventory, random.Random(seed)
        self.changes_stats, self.moves_per_second = False, 0.0
        self.moves: list[Move] = []
        self.stats_changes = 0
        self._hosts = inventory.of_type("HostSystem")
        self._clusters: dict[bytes, list[str]] = defaultdict(list)
        for host in self._hosts:
            self._clusters[host.properties["parent"]].append(host.ref)
        self._rng.shuffle(self._hosts)
        self._vms_by_host: dict[str, list[ManagedObject]] = defaultdict(list)
        self._host_of_vm: dict[str, str] = {}
        self._running_vms: list[ManagedObject] = []
        for vm in inventory.of_type("VirtualMachine"):
            host_ref = _text(vm.properties["runtime.host"])
            self._host_of_vm[vm.ref] = host_ref
            if b">poweredOn<" in vm.properties["runtime.powerState"]:
                self._vms_by_host[host_ref].append(vm)
                self._running_vms.append(vm)

    async def run(self) -> NoReturn:
        reported, moved, last = 0.0, 0.0, time.monotonic()
        next_host = 0
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = time.monotonic()
            elapsed, last = now - last, now
            if self.changes_stats:
                reported += len(self._hosts) * elapsed / STATS_INTERVAL_SECONDS
                while reported >= 1:
                    reported -= 1
                    self._report(self._hosts[next_host % len(self._hosts)])
                    next_host += 1
            moved += self.moves_per_second * elapsed
            while moved >= 1:
                moved -= 1
                self._move_one()

    def _report(self, host: ManagedObject) -> None:
        """New quickStats of one host and of the VMs on it."""
        random_number, drift = self._rng.random, self._drift
        jumps = random_number() < _JUMP_SHARE
        self._inventory.change(
            host.ref,
            {
                path: values.integer(drift(host, path, step * (40 if jumps else 1)))
                for path, step in (
                    ("summary.quickStats.overallCpuUsage", 600),
                    ("summary.quickStats.overallMemoryUsage", 900),
                )
            },
        )
        for vm in self._vms_by_host[host.ref]:
            size = 10 if random_number() < _JUMP_SHARE else 1
            self._inventory.change(
                vm.ref,
                {
                    path: values.integer(drift(vm, path, step * size))
                    for path, step in (
                        ("summary.quickStats.overallCpuUsage", _DRIFT_MHZ),
                        ("summary.quickStats.overallCpuDemand", _DRIFT_MHZ),
                        ("summary.quickStats.guestMemoryUsage", _DRIFT_MB),
                    )
                },
            )
            self.stats_changes += 1
        self.stats_changes += 1

    def _drift(self, obj: ManagedObject, path: str, step: int) -> int:
        """A number that differs from the last one by 1 to `step`, at random."""
        before = int(_text(obj.properties[path]))
        change = 1 + int(self._rng.random() * step)
        return before + change if before <= step or self._rng.random() < 0.5 else before - change

    def _move_one(self) -> None:
        vm = self._rng.choice(self._running_vms)
        old = self._host_of_vm[vm.ref]
        cluster = self._clusters[self._inventory.objects[old].properties["parent"]]
        self.move(vm.ref, self._rng.choice([ref for ref in cluster if ref != old]))

    def move(self, vm_ref: str, new_host: str) -> None:
        vm, old = self._inventory.objects[vm_ref], self._host_of_vm[vm_ref]
        self._vms_by_host[old].remove(vm)
        self._vms_by_host[new_host].append(vm)
        self._host_of_vm[vm_ref] = new_host
        self.moves.append(Move(time.monotonic(), vm_ref, new_host))
        self._inventory.change(vm_ref, {"runtime.host": values.reference("HostSystem", new_host)})


def _text(value: bytes) -> str:
    """The text of an element."""
    return value[value.index(b">") + 1 : value.rindex(b"</")].decode()
