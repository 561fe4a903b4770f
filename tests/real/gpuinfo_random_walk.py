"""Random changes on a real API server with a simulated vCenter; GPUInfo against brute force.

    make gpu-random-test                        # 500 changes, some minutes
    make gpu-random-test ARGS="--cases 50 --seed 7"

There are 14 GPUInfos: seven values of hours, with a GPU and without. Each step changes one thing,
as users, kubelets and hosts do. `gpuinfo_brute_force.py`, which shares no code with the
application, computes the expected selections. The previous selection counts too, because a node is
kept while no other is better by the margin.
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

from kubewright.testing import eventually
from kubewright.testing.binaries import find_binaries
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support import cluster_cases, gpuinfo_brute_force
from support.cluster_cases import (
    REQUIRED_HOURS,
    CalendarLine,
    HostCase,
    NodeCase,
    VirtualMachineCase,
    vm_uuid,
)
from support.info_client import run_vcenter_manager, write_credentials
from support.manager_process import SERVICE_ACCOUNT, SYSTEM_NAMESPACE

from .crash_sweep import BINARIES, install_manifests
from .gpu_cluster import (
    GPUINFOS_PATH,
    MERGE_PATCH_HEADERS,
    NEXT_MAINTENANCE_ANNOTATION,
    NONE_AVAILABLE,
    GpuCluster,
)

NAMESPACE = "gpu-random-test"
VM_COUNT = 6
GPU_VMS = {3: "vgpu", 4: "passthrough", 5: "vgpu"}
DEVICE_CASES = {"vgpu": "vgpu", "passthrough": "nvidia"}
MEMORY_MB = 8192
TIMEOUT_SECONDS = 30.0
CALENDAR_PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps/calendar"
Change = Callable[[], Awaitable[str]]


@dataclass
class SimulatedHost(HostCase):
    """A host with the names that the simulator gave it."""

    host_ref: str = ""
    host_name: str = ""

    @property
    def ref(self) -> str:
        return self.host_ref

    @property
    def name(self) -> str:
        return self.host_name


@dataclass
class RandomWalk:
    """The cluster, the model of its state, and the selections so far."""

    cluster: GpuCluster
    vcenter: SimulatedVCenter
    rng: random.Random
    model: cluster_cases.ClusterCase
    # By the number of the VM.
    vm_refs: Mapping[int, str]
    previous_nodes: dict[str, str] = field(default_factory=dict)
    outcome_counts: Counter[str] = field(default_factory=Counter)

    # The changes

    async def cordon_node(self) -> str:
        node = self.rng.choice(self.model.nodes)
        node.cordoned = self.rng.random() < 0.2
        await self.cluster.patch_node(node.name, {"spec": {"unschedulable": node.cordoned}})
        return f"{node.name} cordoned {node.cordoned}"

    async def set_node_ready(self) -> str:
        node = self.rng.choice(self.model.nodes)
        node.ready = self.choose_mostly("True", "False", "Unknown")
        await self.cluster.patch_node_status(node.name, ready=node.ready)
        return f"{node.name} ready {node.ready}"

    async def taint_node(self) -> str:
        node = self.rng.choice(self.model.nodes)
        node.taint = self.choose_mostly(
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

    async def annotate_node(self) -> str:
        node = self.rng.choice(self.model.nodes)
        node.annotation = self.random_timestamp()
        await self.cluster.patch_node(
            node.name,
            {"metadata": {"annotations": {NEXT_MAINTENANCE_ANNOTATION: node.annotation or None}}},
        )
        return f"{node.name} annotation {node.annotation}"

    async def set_node_allocatable(self) -> str:
        node = self.rng.choice(self.model.nodes)
        node.allocatable = self.rng.choice(
            [{}, {"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "0"}, {"example.com/gpu": "1"}]
        )
        quantities = {
            name: node.allocatable.get(name) for name in ("nvidia.com/gpu", "example.com/gpu")
        }
        await self.cluster.patch_node_status(node.name, ready=node.ready, allocatable=quantities)
        return f"{node.name} allocatable {node.allocatable}"

    async def replace_node(self) -> str:
        """Delete a Node, or add one with another providerID."""
        number = self.rng.randrange(VM_COUNT)
        old = next((node for node in self.model.nodes if node.name == f"node-{number}"), None)
        if old is not None and len(self.model.nodes) > 3:
            self.model.nodes.remove(old)
            await self.cluster.call("DELETE", f"/api/v1/nodes/{old.name}")
            return f"{old.name} deleted"
        if old is not None:
            return await self.cordon_node()
        uuid = vm_uuid(number)
        new = make_node_case(
            number,
            self.choose_mostly(
                f"vsphere://{uuid}",
                f"vsphere://{cluster_cases.swap_uuid_bytes(uuid)}",
                f"vsphere://{vm_uuid(77)}",
                "",
                "",
            ),
        )
        self.model.nodes.append(new)
        await self.cluster.add_node(new.name, new.provider_id)
        return f"{new.name} added as {new.provider_id}"

    async def set_host_connection(self) -> str:
        host = self.rng.choice(self.model.hosts)
        host.connection = self.choose_mostly("connected", "disconnected", "notResponding")
        await self.vcenter.set_property(host.ref, "runtime.connectionState", host.connection)
        return f"{host.name} {host.connection}"

    async def set_host_maintenance(self) -> str:
        host = self.rng.choice(self.model.hosts)
        host.maintenance = self.rng.random() < 0.2
        await self.vcenter.set_property(host.ref, "runtime.inMaintenanceMode", host.maintenance)
        return f"{host.name} maintenance {host.maintenance}"

    async def set_host_attribute(self) -> str:
        host = self.rng.choice(self.model.hosts)
        host.attribute = self.random_timestamp()
        await self.vcenter.set_attribute(host.ref, NEXT_MAINTENANCE_ANNOTATION, host.attribute)
        return f"{host.name} attribute {host.attribute}"

    async def set_vm_power(self) -> str:
        vm = self.rng.choice(self.model.vms)
        vm.power = self.choose_mostly("poweredOn", "poweredOff", "suspended")
        await self.vcenter.set_property(self.vm_refs[vm.number], "runtime.powerState", vm.power)
        return f"{vm.name} {vm.power}"

    async def set_vm_connection(self) -> str:
        vm = self.rng.choice(self.model.vms)
        vm.connection = self.choose_mostly("connected", "inaccessible", "orphaned")
        await self.vcenter.set_property(
            self.vm_refs[vm.number], "runtime.connectionState", vm.connection
        )
        return f"{vm.name} {vm.connection}"

    async def migrate_vm(self) -> str:
        vm, host = self.rng.choice(self.model.vms), self.rng.choice(self.model.hosts)
        vm.host = host.ref
        await self.vcenter.move_vm(self.vm_refs[vm.number], host.ref)
        return f"{vm.name} to {host.name}"

    async def rename_vm(self) -> str:
        vm = self.rng.choice(self.model.vms)
        vm.name = f"node-{self.rng.choice([vm.number, vm.number, 0, 1])}"
        # Not by a call: vCenter rejects two VMs of one name in a folder, and these share one.
        await self.vcenter.set_property(self.vm_refs[vm.number], "name", vm.name)
        return f"vm {vm.number} renamed {vm.name}"

    async def set_vm_load(self) -> str:
        vm = self.rng.choice(self.model.vms)
        vm.cpu_demand_mhz, vm.guest_memory_mb = (
            self.rng.randrange(13) * 100,
            self.rng.choice([0, 512, 4096, 9000]),
        )
        await self.vcenter.set_stats(
            self.vm_refs[vm.number],
            overallCpuDemand=vm.cpu_demand_mhz,
            guestMemoryUsage=vm.guest_memory_mb,
        )
        return f"{vm.name} load {vm.cpu_demand_mhz} {vm.guest_memory_mb}"

    async def write_calendar(self) -> str:
        self.model.calendar = [self.random_calendar_line() for _ in range(self.rng.randrange(3))]
        text = "\n".join(line.text for line in self.model.calendar)
        await self.cluster.call("PATCH", CALENDAR_PATH, {"data": {"w": text}}, MERGE_PATCH_HEADERS)
        return f"calendar {text!r}"

    def choose_mostly(self, usual: str, *others: str) -> str:
        """The usual value in three of four cases, so that some nodes match."""
        return usual if self.rng.random() < 0.75 else self.rng.choice(others)

    def random_calendar_line(self) -> CalendarLine:
        target, globs = self.rng.choice(
            [
                ("node", ["node-1", "node-?", "node-[2-4]"]),
                ("host", [host.name for host in self.model.hosts] + ["*no-host*"]),
            ]
        )
        start: Any = self.rng.randrange(-900, 1300) + 0.25
        return CalendarLine(
            target,
            self.rng.choice(globs),
            start,
            self.rng.randrange(1, 20),
            self.rng.choice(["", "", "daily", "weekly"]),
        )

    def random_timestamp(self) -> str:
        """Never a whole hour from now, so that the duration of the run changes no selection."""
        hours = self.rng.randrange(-60, 1300) + 0.25
        return self.rng.choice(
            ["", "soon", (cluster_cases.NOW + timedelta(hours=hours)).isoformat()]
        )

    @property
    def possible_changes(self) -> list[Change]:
        by_users = [
            self.cordon_node,
            self.set_node_ready,
            self.taint_node,
            self.annotate_node,
            self.set_node_allocatable,
            self.replace_node,
            self.write_calendar,
        ]
        return [
            *by_users,
            self.set_host_connection,
            self.set_host_maintenance,
            self.set_host_attribute,
            self.set_vm_power,
            self.set_vm_connection,
            self.migrate_vm,
            self.rename_vm,
            self.set_vm_load,
            self.set_vm_load,
        ]

    # The check after each change

    async def run_step(self) -> str:
        """Make a change and check all selections; returns a description of the change."""
        change = await self.rng.choice(self.possible_changes)()
        await self.check_selections(change)
        return change

    async def check_selections(self, change: str) -> None:
        """Wait until every selection is the expected one."""
        requirements = {
            f"q-{hours}-{'gpu' if gpu else 'plain'}": (hours, gpu)
            for hours in REQUIRED_HOURS
            for gpu in (True, False)
        }
        expected = {
            name: self.compute_expected(name, hours, gpu)
            for name, (hours, gpu) in requirements.items()
        }

        async def find_differences() -> dict[str, Any]:
            items = (await self.cluster.call("GET", GPUINFOS_PATH.format(namespace=NAMESPACE)))[
                "items"
            ]
            statuses = {item["metadata"]["name"]: item.get("status", {}) for item in items}
            return {
                name: (statuses[name], selection)
                for name, selection in expected.items()
                if not is_expected(statuses[name], selection)
            }

        try:
            await eventually(
                lambda: has_no_differences(find_differences), within=TIMEOUT_SECONDS, every=0.05
            )
        except AssertionError:
            name, (status, selection) = next(iter((await find_differences()).items()))
            raise AssertionError(
                f"after: {change}\n{name} has {status}\nexpected {selection}\n{self.model}"
            ) from None
        self.previous_nodes = {name: selection.node for name, selection in expected.items()}
        for selection in expected.values():
            self.outcome_counts.update(selection.rejection_counts.keys() or ["none"])
            self.outcome_counts["chosen"] += bool(selection.node)

    def compute_expected(
        self, name: str, hours: int, gpu: bool
    ) -> gpuinfo_brute_force.ExpectedSelection:
        return gpuinfo_brute_force.compute_expected(
            replace(
                self.model,
                required_hours=hours,
                gpu_required=gpu,
                current_node=self.previous_nodes.get(name, ""),
            )
        )


async def has_no_differences(
    find_differences: Callable[[], Awaitable[dict[str, Any]]],
) -> bool:
    return not await find_differences()


def is_expected(status: dict[str, Any], selection: gpuinfo_brute_force.ExpectedSelection) -> bool:
    # Not the load: small changes of it are written only once per interval.
    node = status.get("suitableNodeName")
    return node == (selection.node or NONE_AVAILABLE) and status.get("refused", {}) == dict(
        selection.rejection_counts
    )


def make_node_case(number: int, provider_id: str) -> NodeCase:
    return NodeCase(f"node-{number}", provider_id, "True", False, "", "", {})


async def find_vm_refs(vcenter: SimulatedVCenter) -> dict[int, str]:
    refs = {entity["name"]: entity["ref"] for entity in await vcenter.entities()}
    return {number: refs[f"node-{number}"] for number in range(VM_COUNT)}


async def build_model(
    vcenter: SimulatedVCenter, refs: Mapping[int, str]
) -> cluster_cases.ClusterCase:
    """The state of the simulator, after each VM was given a known load."""
    entities = await vcenter.entities()
    host_names = [
        (entity["ref"], entity["name"]) for entity in entities if entity["type"] == "HostSystem"
    ]
    hosts: list[HostCase] = [
        SimulatedHost("vc", number, "connected", False, "", None, ref, name)
        for number, (ref, name) in enumerate(host_names)
    ]
    vms = list[VirtualMachineCase]()
    for number, ref in refs.items():
        kind = DEVICE_CASES.get(GPU_VMS.get(number, ""), "none")
        vms.append(
            VirtualMachineCase(
                "vc",
                number,
                f"node-{number}",
                vm_uuid(number),
                hosts[number % len(hosts)].ref,
                *RUNNING_VM_FIELDS,
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
        make_node_case(number, f"vsphere://{vm_uuid(number)}" if number > 1 else "")
        for number in range(VM_COUNT)
    ]
    return cluster_cases.ClusterCase({"vc": "well"}, hosts, vms, nodes, [])


RUNNING_VM_FIELDS = ("poweredOn", "connected", False)


async def run_walk(plane: ControlPlane, folder: Path, cases: int, seed: int) -> RandomWalk:
    # Half an hour ahead, while all plans are a quarter past the hour: the hours do not change
    # during the run.
    now = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=30)
    cluster_cases.NOW = gpuinfo_brute_force.NOW = now  # type: ignore[attr-defined]
    nodes = [f"--node=node-{number}={vm_uuid(number)}" for number in range(VM_COUNT)]
    gpus = [f"--gpu-vm=node-{number}={kind}" for number, kind in GPU_VMS.items()]
    vcenter = SimulatedVCenter(
        BINARIES / "vcsim", folder / "vcsim", "--clusters=1", "--hosts=3", "--vms=0", *nodes, *gpus
    )
    cluster = GpuCluster(plane, NAMESPACE)
    try:
        await vcenter.start()
        refs = await find_vm_refs(vcenter)
        walk = RandomWalk(
            cluster, vcenter, random.Random(seed), await build_model(vcenter, refs), refs
        )
        for node in walk.model.nodes:
            await cluster.add_node(node.name, node.provider_id)
        await cluster.call(
            "POST",
            f"/api/v1/namespaces/{NAMESPACE}/configmaps",
            {"metadata": {"name": "calendar"}, "data": {"w": ""}},
        )
        for hours in REQUIRED_HOURS:
            await cluster.create_gpuinfo(f"q-{hours}-gpu", hours, True)
            await cluster.create_gpuinfo(f"q-{hours}-plain", hours, False)
        kubeconfig = plane.write_service_account_kubeconfig(
            SYSTEM_NAMESPACE, SERVICE_ACCOUNT, folder / "kubeconfig"
        )
        flags = (
            "--stats-interval=1s",
            "--maintenance-horizon=1000h",
            f"--maintenance-calendar={NAMESPACE}/calendar",
        )
        async with run_vcenter_manager(
            folder / "manager.log",
            kubeconfig,
            write_credentials(folder / "creds", vcenter),
            vcenter.certificate,
            *flags,
        ):
            await walk.check_selections("nothing")
            for number in range(cases):
                print(f"{number + 1:4} {await walk.run_step()}", flush=True)
        return walk
    finally:
        await vcenter.stop()


def grant_calendar_access(plane: ControlPlane) -> None:
    """Apply the role of config/optional in the namespace of the calendar."""
    role = (BINARIES.parents[1] / "config/optional/maintenance-calendar.yaml").read_text()
    plane.kubectl(
        "apply",
        "-f",
        "-",
        stdin=role.replace(f"namespace: {SYSTEM_NAMESPACE}", f"namespace: {NAMESPACE}", 2),
    )


async def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make gpu-random-test",
        description="Check GPUInfo against brute force after random changes.",
    )
    parser.add_argument("--cases", type=int, default=500, help="number of changes (500)")
    parser.add_argument(
        "--seed", type=int, default=1, help="the same seed gives the same changes (1)"
    )
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="gpu-random-test-"))
    print(f"the manager's log is in {folder}")
    async with ControlPlane(find_binaries(folders=[BINARIES])) as plane:
        install_manifests(plane)
        plane.create_namespace(NAMESPACE)
        grant_calendar_access(plane)
        walk = await run_walk(plane, folder, options.cases, options.seed)
    print(
        f"{options.cases} changes, {options.cases * 2 * len(REQUIRED_HOURS)} selections, all as "
        f"expected; {dict(walk.outcome_counts.most_common())}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
