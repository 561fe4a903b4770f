"""GPUInfo on the real parts beside brute force: one change after the other, and after each all answers have to be right.

    make gpu-walk                        # 500 changes, some minutes
    make gpu-walk ARGS="--cases 50 --seed 7"

One control plane, one simulated vCenter, one manager, and 14 GPUInfos: seven wishes for hours, with a GPU and without. Each step changes
one thing, as people, kubelets and hosts do; what the answers must be then is computed by `bruteforce.py` alone, which shares no line with
what it judges. What an answer was before counts too, since it stays with its node while no other is much better.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bruteforce
import clusters
from clusters import HOURS, HostCase, Line, NodeCase, VMCase, uuid
from kubewright.testing import eventually
from kubewright.testing.binaries import find_binaries
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter

from .crashsweep import BINARIES, install
from .gpunodes import GPUS, MERGE, NEXT, NONE, Cluster
from .managing import SERVICE_ACCOUNT, SYSTEM
from .vsphere import credentials_in, managing

NAMESPACE = "gpu-walk"
MACHINES = 6
GPU_VMS = {3: "vgpu", 4: "passthrough", 5: "vgpu"}
DEVICES = {"vgpu": "vgpu", "passthrough": "nvidia"}
MEMORY_MB = 8192
WITHIN_SECONDS = 30.0
CALENDAR = f"/api/v1/namespaces/{NAMESPACE}/configmaps/calendar"
Change = Callable[[], Awaitable[str]]


@dataclass
class RealHost(HostCase):
    """A host under the names that the simulator gave it."""

    real_ref: str = ""
    real_name: str = ""

    @property
    def ref(self) -> str:
        return self.real_ref

    @property
    def name(self) -> str:
        return self.real_name


@dataclass
class Walk:
    """All parts, what is known of them, and the answers so far."""

    cluster: Cluster
    vcenter: SimulatedVCenter
    chance: random.Random
    model: clusters.Cluster
    refs: Mapping[int, str]
    """Of the VMs by their numbers; the simulator gave them."""
    before: dict[str, str] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)

    # What may happen

    async def cordon(self) -> str:
        node = self.chance.choice(self.model.nodes)
        node.cordoned = self.chance.random() < 0.2
        await self.cluster.patch_node(node.name, {"spec": {"unschedulable": node.cordoned}})
        return f"{node.name} cordoned {node.cordoned}"

    async def kubelet(self) -> str:
        node = self.chance.choice(self.model.nodes)
        node.ready = self.mostly("True", "False", "Unknown")
        await self.cluster.node_status(node.name, ready=node.ready)
        return f"{node.name} ready {node.ready}"

    async def taint(self) -> str:
        node = self.chance.choice(self.model.nodes)
        node.taint = self.mostly(
            "",
            "nvidia.com/gpu",
            "node.kubernetes.io/unreachable",
            "node-role.kubernetes.io/control-plane",
        )
        await self.cluster.patch_node(
            node.name,
            {
                "spec": {
                    "taints": [{"key": node.taint, "effect": "NoSchedule"}] if node.taint else None
                }
            },
        )
        return f"{node.name} taint {node.taint}"

    async def announce(self) -> str:
        node = self.chance.choice(self.model.nodes)
        node.annotation = self.moment()
        await self.cluster.patch_node(
            node.name, {"metadata": {"annotations": {NEXT: node.annotation or None}}}
        )
        return f"{node.name} annotation {node.annotation}"

    async def plug_in(self) -> str:
        node = self.chance.choice(self.model.nodes)
        node.allocatable = self.chance.choice(
            [{}, {"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "0"}, {"example.com/gpu": "1"}]
        )
        wanted = {
            name: node.allocatable.get(name) for name in ("nvidia.com/gpu", "example.com/gpu")
        }
        await self.cluster.node_status(node.name, ready=node.ready, allocatable=wanted)
        return f"{node.name} allocatable {node.allocatable}"

    async def replace_node(self) -> str:
        """A Node goes, or comes again under another providerID."""
        number = self.chance.randrange(MACHINES)
        old = next((each for each in self.model.nodes if each.name == f"node-{number}"), None)
        if old is not None and len(self.model.nodes) > 3:
            self.model.nodes.remove(old)
            await self.cluster.call("DELETE", f"/api/v1/nodes/{old.name}")
            return f"{old.name} gone"
        if old is not None:
            return await self.cordon()
        own = uuid(number)
        new = node_case(
            number,
            self.mostly(
                f"vsphere://{own}",
                f"vsphere://{clusters.swapped(own)}",
                f"vsphere://{uuid(77)}",
                "",
                "",
            ),
        )
        self.model.nodes.append(new)
        await self.cluster.add_node(new.name, new.provider_id)
        return f"{new.name} comes as {new.provider_id}"

    async def connect(self) -> str:
        host = self.chance.choice(self.model.hosts)
        host.connection = self.mostly("connected", "disconnected", "notResponding")
        await self.vcenter.set_property(host.ref, "runtime.connectionState", host.connection)
        return f"{host.name} {host.connection}"

    async def maintain(self) -> str:
        host = self.chance.choice(self.model.hosts)
        host.maintenance = self.chance.random() < 0.2
        await self.vcenter.set_property(host.ref, "runtime.inMaintenanceMode", host.maintenance)
        return f"{host.name} maintenance {host.maintenance}"

    async def attribute(self) -> str:
        host = self.chance.choice(self.model.hosts)
        host.attribute = self.moment()
        await self.vcenter.set_attribute(host.ref, NEXT, host.attribute)
        return f"{host.name} attribute {host.attribute}"

    async def power(self) -> str:
        vm = self.chance.choice(self.model.vms)
        vm.power = self.mostly("poweredOn", "poweredOff", "suspended")
        await self.vcenter.set_property(self.refs[vm.number], "runtime.powerState", vm.power)
        return f"{vm.name} {vm.power}"

    async def lose(self) -> str:
        vm = self.chance.choice(self.model.vms)
        vm.connection = self.mostly("connected", "inaccessible", "orphaned")
        await self.vcenter.set_property(
            self.refs[vm.number], "runtime.connectionState", vm.connection
        )
        return f"{vm.name} {vm.connection}"

    async def migrate(self) -> str:
        vm, host = self.chance.choice(self.model.vms), self.chance.choice(self.model.hosts)
        vm.host = host.ref
        await self.vcenter.move_vm(self.refs[vm.number], host.ref)
        return f"{vm.name} to {host.name}"

    async def rename(self) -> str:
        vm = self.chance.choice(self.model.vms)
        vm.name = f"node-{self.chance.choice([vm.number, vm.number, 0, 1])}"
        # Not by a call: vCenter lets no two VMs of one folder have one name, and these are in one.
        await self.vcenter.set_property(self.refs[vm.number], "name", vm.name)
        return f"vm {vm.number} is called {vm.name}"

    async def load(self) -> str:
        vm = self.chance.choice(self.model.vms)
        vm.demand, vm.guest_mb = (
            self.chance.randrange(13) * 100,
            self.chance.choice([0, 512, 4096, 9000]),
        )
        await self.vcenter.set_stats(
            self.refs[vm.number], overallCpuDemand=vm.demand, guestMemoryUsage=vm.guest_mb
        )
        return f"{vm.name} load {vm.demand} {vm.guest_mb}"

    async def plan(self) -> str:
        self.model.calendar = [self.line() for _ in range(self.chance.randrange(3))]
        text = "\n".join(line.text for line in self.model.calendar)
        await self.cluster.call("PATCH", CALENDAR, {"data": {"w": text}}, MERGE)
        return f"calendar {text!r}"

    def mostly(self, usual: str, *others: str) -> str:
        """The usual in three of four cases, so that some nodes get through everything."""
        return usual if self.chance.random() < 0.75 else self.chance.choice(others)

    def line(self) -> Line:
        target, globs = self.chance.choice(
            [
                ("node", ["node-1", "node-?", "node-[2-4]"]),
                ("host", [host.name for host in self.model.hosts] + ["*nobody*"]),
            ]
        )
        start: Any = self.chance.randrange(-900, 1300) + 0.25
        return Line(
            target,
            self.chance.choice(globs),
            start,
            self.chance.randrange(1, 20),
            self.chance.choice(["", "", "daily", "weekly"]),
        )

    def moment(self) -> str:
        """Never a whole hour from now, so that the minutes that a walk takes change no answer."""
        hours = self.chance.randrange(-60, 1300) + 0.25
        return self.chance.choice(["", "soon", (clusters.NOW + timedelta(hours=hours)).isoformat()])

    @property
    def changes(self) -> list[Change]:
        people = [
            self.cordon,
            self.kubelet,
            self.taint,
            self.announce,
            self.plug_in,
            self.replace_node,
            self.plan,
        ]
        return [
            *people,
            self.connect,
            self.maintain,
            self.attribute,
            self.power,
            self.lose,
            self.migrate,
            self.rename,
            self.load,
            self.load,
        ]

    # How it must end

    async def step(self) -> str:
        """One change, and all answers after it; returns what was changed."""
        what = await self.chance.choice(self.changes)()
        await self.compare(what)
        return what

    async def compare(self, what: str) -> None:
        """Wait until every answer is the one that brute force finds."""
        questions = {
            f"q-{hours}-{'gpu' if gpu else 'plain'}": (hours, gpu)
            for hours in HOURS
            for gpu in (True, False)
        }
        wanted = {name: self.expected(name, hours, gpu) for name, (hours, gpu) in questions.items()}

        async def wrong() -> dict[str, Any]:
            items = (await self.cluster.call("GET", GPUS.format(namespace=NAMESPACE)))["items"]
            shown = {each["metadata"]["name"]: each.get("status", {}) for each in items}
            return {
                name: (shown[name], right)
                for name, right in wanted.items()
                if not agree(shown[name], right)
            }

        try:
            await eventually(lambda: none_of(wrong), within=WITHIN_SECONDS, every=0.05)
        except AssertionError:
            name, (status, right) = next(iter((await wrong()).items()))
            raise AssertionError(
                f"after: {what}\n{name} says {status}\nand should say {right}\n{self.model}"
            ) from None
        self.before = {name: right.node for name, right in wanted.items()}
        for right in wanted.values():
            self.seen.update(right.refused.keys() or ["nobody"])
            self.seen["chosen"] += bool(right.node)

    def expected(self, name: str, hours: int, gpu: bool) -> bruteforce.Expected:
        return bruteforce.expected(
            replace(self.model, hours=hours, gpu=gpu, present=self.before.get(name, ""))
        )


async def none_of(wrong: Callable[[], Awaitable[dict[str, Any]]]) -> bool:
    return not await wrong()


def agree(status: dict[str, Any], right: bruteforce.Expected) -> bool:
    """Node, host and counts; the numbers of load follow by their own policy."""
    node = status.get("suitableNodeName")
    return node == (right.node or NONE) and status.get("refused", {}) == dict(right.refused)


def node_case(number: int, provider_id: str) -> NodeCase:
    return NodeCase(f"node-{number}", provider_id, "True", False, "", "", {})


async def refs_in(vcenter: SimulatedVCenter) -> dict[int, str]:
    """The references of the VMs, by their numbers."""
    refs = {each["name"]: each["ref"] for each in await vcenter.entities()}
    return {number: refs[f"node-{number}"] for number in range(MACHINES)}


async def model_of(vcenter: SimulatedVCenter, refs: Mapping[int, str]) -> clusters.Cluster:
    """What the simulator has, with a load for each VM that is known."""
    entities = await vcenter.entities()
    found = [(each["ref"], each["name"]) for each in entities if each["type"] == "HostSystem"]
    hosts: list[HostCase] = [
        RealHost("vc", number, "connected", False, "", None, ref, name)
        for number, (ref, name) in enumerate(found)
    ]
    vms = list[VMCase]()
    for number, ref in refs.items():
        kind = DEVICES.get(GPU_VMS.get(number, ""), "none")
        vms.append(
            VMCase(
                "vc",
                number,
                f"node-{number}",
                uuid(number),
                hosts[number % len(hosts)].ref,
                *RUNNING,
                number * 100,
                512,
                kind,
            )
        )
        await vcenter.move_vm(ref, vms[-1].host)
        await vcenter.set_property(ref, "summary.config.memorySizeMB", MEMORY_MB)
        await vcenter.set_stats(ref, overallCpuDemand=number * 100, guestMemoryUsage=512)
    # The first two are matched by name, so that names matter.
    nodes = [
        node_case(number, f"vsphere://{uuid(number)}" if number > 1 else "")
        for number in range(MACHINES)
    ]
    return clusters.Cluster({"vc": "well"}, hosts, vms, nodes, [])


RUNNING = ("poweredOn", "connected", False)


async def walk(plane: ControlPlane, folder: Path, cases: int, seed: int) -> Walk:
    """All of it."""
    # Half an hour ahead, as everything planned is a quarter after the hour: no hour passes while we walk.
    clusters.NOW = bruteforce.NOW = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=30)  # type: ignore[attr-defined]
    nodes = [f"--node=node-{number}={uuid(number)}" for number in range(MACHINES)]
    gpus = [f"--gpu-vm=node-{number}={kind}" for number, kind in GPU_VMS.items()]
    vcenter = SimulatedVCenter(
        BINARIES / "vcsim", folder / "vcsim", "--clusters=1", "--hosts=3", "--vms=0", *nodes, *gpus
    )
    cluster = Cluster(plane, NAMESPACE)
    try:
        await vcenter.start()
        refs = await refs_in(vcenter)
        made = Walk(cluster, vcenter, random.Random(seed), await model_of(vcenter, refs), refs)
        for node in made.model.nodes:
            await cluster.add_node(node.name, node.provider_id)
        await cluster.call(
            "POST",
            f"/api/v1/namespaces/{NAMESPACE}/configmaps",
            {"metadata": {"name": "calendar"}, "data": {"w": ""}},
        )
        for hours in HOURS:
            await cluster.ask(f"q-{hours}-gpu", hours, True)
            await cluster.ask(f"q-{hours}-plain", hours, False)
        kubeconfig = plane.write_service_account_kubeconfig(
            SYSTEM, SERVICE_ACCOUNT, folder / "kubeconfig"
        )
        flags = (
            "--stats-interval=1s",
            "--maintenance-horizon=1000h",
            f"--maintenance-calendar={NAMESPACE}/calendar",
        )
        async with managing(
            folder / "manager.log",
            kubeconfig,
            credentials_in(folder / "creds", vcenter),
            vcenter.certificate,
            *flags,
        ):
            await made.compare("nothing")
            for number in range(cases):
                print(f"{number + 1:4} {await made.step()}", flush=True)
        return made
    finally:
        await vcenter.stop()


def allow_calendar(plane: ControlPlane) -> None:
    """The right to the calendar's namespace, as config/optional gives it."""
    role = (BINARIES.parents[1] / "config/optional/maintenance-calendar.yaml").read_text()
    plane.kubectl(
        "apply", "-f", "-", stdin=role.replace(f"namespace: {SYSTEM}", f"namespace: {NAMESPACE}", 2)
    )


async def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="make gpu-walk",
        description="GPUInfo on the real parts, change by change, beside brute force.",
    )
    parser.add_argument("--cases", type=int, default=500, help="how many changes (500)")
    parser.add_argument(
        "--seed", type=int, default=1, help="the same seed gives the same changes (1)"
    )
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="gpu-walk-"))
    print(f"the manager's log is in {folder}")
    async with ControlPlane(find_binaries(folders=[BINARIES])) as plane:
        install(plane)
        plane.create_namespace(NAMESPACE)
        allow_calendar(plane)
        made = await walk(plane, folder, options.cases, options.seed)
    print(
        f"{options.cases} changes, {options.cases * 2 * len(HOURS)} answers, all as brute force has them; {dict(made.seen.most_common())}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
