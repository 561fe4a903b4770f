"""500 Nodes and 1,000 GPUInfos in one process: what one change of a Node costs, and how long the loop stands still.

    python -m bench.gpu_scale [--nodes 500] [--objects 1000]

Everything but the network is real: the Nodes come through the cache, the VMs through the inventory, the answers through the engine to an
API server in memory. CPU is that of this process from the change until nothing is left to do.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kinds.nodestage import VGPU, NodeStage, choosing
from kubewright.testing import eventually
from vsphere_operators.kinds.gpuinfo import GPUInfo, GPUInfoController
from vsphere_operators.maintenance import entries_of
from vsphere_operators.vcenter.updates import ObjectUpdate

LIMIT_CPU_MS, LIMIT_STALL_MS = 50.0, 250.0


Cost = tuple[float, float, int]
"""CPU in ms of taking it in, CPU in ms of all that followed, statuses written."""


class Stall:
    """The longest time that the loop did not come round."""

    def __init__(self) -> None:
        self.longest_ms = 0.0

    async def run(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.001)
            self.longest_ms = max(self.longest_ms, (time.monotonic() - began) * 1000 - 1)


def fill(stage: NodeStage, nodes: int, objects: int, chance: random.Random) -> None:
    """Nodes with all sorts of load, half of them with a GPU; questions that all differ."""
    for number in range(max(1, nodes // 10)):
        stage.host(number)
    for number in range(nodes):
        stage.vm(number, number % max(1, nodes // 10), chance.randint(50, 8000), devices=(VGPU,) if number % 2 else ())
        stage.node(number)
    for number in range(objects):
        stage.create(GPUInfo, f"gpu-{number}", desAccTime=number, gpuRequired=number % 2 == 0)


async def quiet(stage: NodeStage) -> None:
    """Until no status is written for a while."""
    before = -1
    while before != stage.writes():
        before = stage.writes()
        await asyncio.sleep(0.1)


async def changes(stage: NodeStage, controller: GPUInfoController, count: int, chance: random.Random, big: bool) -> list[Cost]:
    """What changes of one node's load cost, each."""
    answers = {asked.told.name for asked in controller.questions.asked.values() if asked.told}
    costs = []
    for _ in range(count):
        name = chance.choice(sorted(answers)) if big else chance.choice(sorted(set(controller.nodes.ranking.facts) - answers))
        number = int(name.removeprefix("node-"))
        writes, cpu = stage.writes(), time.process_time()
        stage.demand(number, 9000 if big else chance.randint(4000, 8000))
        taken_in = (time.process_time() - cpu) * 1000
        await (quiet(stage) if big else asyncio.sleep(0))
        costs.append((taken_in, (time.process_time() - cpu) * 1000, stage.writes() - writes))
    return costs


async def wave(stage: NodeStage, nodes: int, chance: random.Random) -> float:
    """New load of all VMs in one batch, as vCenter sends it every 20 s: CPU in ms of taking it in."""
    updates = [
        ObjectUpdate("modify", "VirtualMachine", f"vm-{number}", {"summary.quickStats.overallCpuDemand": chance.randint(4000, 8000)})
        for number in range(nodes)
    ]
    cpu = time.process_time()
    stage.vcenter.inventory.apply(updates)
    return (time.process_time() - cpu) * 1000


async def run(nodes: int, objects: int) -> int:
    chance, stage, stall = random.Random(5), NodeStage(), Stall()
    fill(stage, nodes, objects, chance)
    stage.load()
    began = time.monotonic()
    async with choosing(stage) as controller:
        watch = asyncio.create_task(stall.run())
        lines = "\n".join(
            f"node=node-{number} start={stage.clock().replace(year=2027).isoformat()} length=4h" for number in range(0, nodes, 7)
        )
        controller.nodes.plan(entries_of({"w": lines})[0])
        await eventually(lambda: len(controller.questions.asked) == objects, within=60)
        await quiet(stage)
        print(f"{nodes} Nodes, {objects} GPUInfos: all answered after {time.monotonic() - began:.1f} s, stall {stall.longest_ms:.0f} ms")
        stall.longest_ms = 0.0
        small = await changes(stage, controller, 100, chance, big=False)
        small_stall, stall.longest_ms = stall.longest_ms, 0.0
        large = await changes(stage, controller, 5, chance, big=True)
        large_stall, stall.longest_ms = stall.longest_ms, 0.0
        taken = await wave(stage, nodes, chance)
        await quiet(stage)
        watch.cancel()
    cpu = statistics.median(cost for _, cost, _ in small)
    print(f"a node that is nobody's answer: CPU median {cpu:.2f} ms, worst {max(small)[1]:.1f} ms, written {sum(c[2] for c in small)}")
    for taken_in, cost, writes in large:
        each = cost / writes if writes else 0.0
        print(f"a node that is an answer: CPU {taken_in:.1f} ms to take it in; {writes} statuses written, {each:.2f} ms each")
    print(f"the longest stall meanwhile: {max(small_stall, large_stall):.0f} ms")
    print(f"all {nodes} VMs at once: CPU {taken:.0f} ms, stall with the reconciles that follow {stall.longest_ms:.0f} ms")
    kept = max(max(small)[1], max(large)[0]) <= LIMIT_CPU_MS and max(small_stall, large_stall, stall.longest_ms) <= LIMIT_STALL_MS
    print("kept" if kept else "NOT KEPT", f"(limits: {LIMIT_CPU_MS:.0f} ms of CPU, {LIMIT_STALL_MS:.0f} ms of stall)")
    return 0 if kept else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_scale", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--objects", type=int, default=1000)
    options = parser.parse_args()
    return asyncio.run(run(options.nodes, options.objects))


if __name__ == "__main__":
    raise SystemExit(main())
