"""The facts of one Node, from the Node, its VM, its host and what is planned: pure."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from fnmatch import fnmatchcase

from msgspec import Struct

from kubewright.builtin import Node

from ...vsphere.model import AssignableHardware, GraphicsDevice, Host, Machine, PassedDevice
from ...vsphere.scheduled_tasks import Planned
from .maintenance import Entry, Window, earliest, moment_of, without_end
from .rules import Load, NodeFacts, Refusal, Unmatched

NEXT_MAINTENANCE = "topology.corinternal.com/next-maintenance"
NEVER_TOLERATED = {
    "ToBeDeletedByClusterAutoscaler": "the cluster autoscaler is about to remove it",
    "node-role.kubernetes.io/control-plane": "it is of the control plane",
    "node-role.kubernetes.io/master": "it is of the control plane",
}
"""Taints that no Pod of anybody tolerates, and what they tell."""
CORDON = "node.kubernetes.io/unschedulable"
"""The taint with which Kubernetes repeats that a Node is cordoned."""
KUBERNETES_OWN = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
GPU_VENDORS = (0x10DE, 0x1002)
"""NVIDIA and AMD. Intel's is no sign: its network cards are passed through too."""
FEWEST_HOURS, MOST_HOURS = 300, 400


class Simulation(Struct, frozen=True):
    """Hours and GPUs by chance, as the original had them; the same seed gives the same node the same."""

    seed: str

    def of(self, node: str) -> tuple[int, bool]:
        """Hours from 300 to 400, and a GPU or none."""
        chance = random.Random(f"{self.seed}/{node}")
        return chance.randint(FEWEST_HOURS, MOST_HOURS), chance.random() < 0.5


class Surroundings(Struct, frozen=True):
    """What is known of a Node beside itself."""

    vcenter: str = ""
    machine: Machine | None = None
    obstacle: Refusal | None = None
    """Why there is no machine, or none that can be trusted."""
    unmatched: Unmatched | None = None
    matched_by: str = ""
    host: Host | None = None
    devices: Sequence[PassedDevice] = ()
    devices_hidden: bool = False
    """vCenter does not show them to us."""
    hardware: AssignableHardware = AssignableHardware()
    """What the host can give to VMs."""
    planned: Sequence[Planned] = ()
    entries: Sequence[Entry] = ()
    """Those of the calendar that are about it."""


def facts_of(node: Node, around: Surroundings, resources: Sequence[str], simulation: Simulation | None, now: datetime) -> NodeFacts:
    """All that a choice depends on."""
    vm, host, name = around.machine, around.host, node.metadata.name
    hours, gpu = simulation.of(name) if simulation else (None, None)
    gpus = () if simulation else (*gpus_of_vm(around.devices, host), *gpus_of_node(node, resources))
    obstacle = obstacle_of(node, around)
    if obstacle is None and around.devices_hidden and not gpus and not simulation:
        obstacle = Refusal.DEVICES_HIDDEN
    return NodeFacts(
        name=name,
        obstacle=obstacle,
        unmatched=around.unmatched,
        vm=vm.name if vm else "",
        matched_by=around.matched_by,
        vcenter=around.vcenter,
        host=host.name if host else "",
        gpus=gpus,
        host_devices=devices_of(host, around.hardware),
        cpus=(vm.cpus if vm else None) or 0,
        memory_mb=(vm.memory_mb if vm else None) or 0,
        load=Load(vm.stats.cpu_demand_mhz, vm.stats.guest_memory_mb) if vm else Load(),
        maintenance=None if simulation else earliest(windows_of(node, around, now), now),
        simulated_hours=hours,
        simulated_gpu=gpu,
    )


def obstacle_of(node: Node, around: Surroundings) -> Refusal | None:
    """The first reason, in the order of Refusal, that no question can lift."""
    if not is_ready(node):
        return Refusal.NOT_READY
    if not is_schedulable(node):
        return Refusal.UNSCHEDULABLE
    if around.obstacle is not None or around.machine is None:
        return around.obstacle or Refusal.VM_NOT_FOUND
    return obstacle_of_vm(around.machine, around.host)


def obstacle_of_vm(vm: Machine, host: Host | None) -> Refusal | None:
    """The same, of its VM and host. A lost host takes its VMs along, so it is looked at first where vCenter has lost the VM."""
    lost = host is None or host.connection != "connected"
    if vm.connection not in ("connected", ""):
        return Refusal.HOST_DISCONNECTED if lost else Refusal.VM_UNAVAILABLE
    if vm.power != "poweredOn":
        return Refusal.POWERED_OFF
    if lost or host is None:
        return Refusal.HOST_DISCONNECTED
    return Refusal.HOST_IN_MAINTENANCE if host.in_maintenance else None


def is_ready(node: Node) -> bool:
    """Whether its kubelet says so."""
    return any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)


def is_schedulable(node: Node) -> bool:
    """Not cordoned, not of the control plane, not tainted by Kubernetes itself; other taints, as on GPU nodes, are to be tolerated."""
    return next(closures(node), None) is None


def closures(node: Node) -> Iterator[str]:
    """Each reason for which it takes no Pods, in words."""
    if node.spec.unschedulable:
        yield "it is cordoned"
    if node.metadata.deletionTimestamp is not None:
        yield "it is being deleted"
    for taint in node.spec.taints:
        if taint.effect not in ("NoSchedule", "NoExecute") or (node.spec.unschedulable and taint.key == CORDON):
            continue
        if taint.key in NEVER_TOLERATED:
            yield NEVER_TOLERATED[taint.key]
        elif taint.key.startswith(KUBERNETES_OWN):
            yield f"Kubernetes has tainted it {taint.key}:{taint.effect}"


def gpus_of_vm(devices: Iterable[PassedDevice], host: Host | None) -> Iterator[str]:
    """The vGPUs and passed-through GPUs of a VM, in words."""
    graphics = {each.pci_id for each in host.graphics} if host else set()
    for device in devices:
        if device.vgpu:
            yield f"vm: vGPU {device.vgpu}"
        elif device.pci_id in graphics or any(vendor in GPU_VENDORS for vendor in device.vendors):
            yield f"vm: {'passthrough' if device.pci_id else 'dynamic passthrough'} {device.name or device.pci_id}".rstrip()


def gpus_of_node(node: Node, resources: Sequence[str]) -> Iterator[str]:
    """The GPU resources that a device plugin has put on the Node, in words."""
    for resource, quantity in sorted(node.status.allocatable.items()):
        if quantity not in ("", "0") and any(fnmatchcase(resource, glob) for glob in resources):
            yield f"node: {resource} {quantity}"


def devices_of(host: Host | None, hardware: AssignableHardware) -> tuple[str, ...]:
    """The graphics devices of a host in words, the vGPU profiles that it offers, and the hardware that it assigns."""
    if host is None:
        return ()
    profiles = (f"vGPU types: {', '.join(host.vgpu_types)}",) if host.vgpu_types else ()
    graphics = (in_words(each, users_of(each, host)) for each in host.graphics)
    return (*graphics, *profiles, *hardware_in_words(host, hardware))


def users_of(device: GraphicsDevice, host: Host) -> int:
    """How many VMs have a graphics device, by either of those who know: the host's graphics, and its assignable hardware."""
    assigned = {each.vm for each in host.assigned if each.pci_id and each.pci_id == device.pci_id.lower()}
    return len({*device.vms, *assigned})


def in_words(device: GraphicsDevice, users: int) -> str:
    """One graphics device."""
    use = f"in use by {users} VM{'s' if users > 1 else ''}" if users else "free"
    return f"{device.name} at {device.pci_id}, {device.type}, {device.memory_kb // 2**20} GB, {use}"


def hardware_in_words(host: Host, hardware: AssignableHardware) -> Iterator[str]:
    """What the host assigns when a VM starts: how much of each sort is free where vCenter tells which devices are taken, else in all."""
    taken = {each.pci_id for each in host.assigned} - {""}
    sorts = dict[tuple[str, str], list[str]]()
    for device in hardware.devices:
        sorts.setdefault((device.name, device.label), []).append(device.pci_id)
    for (name, label), ids in sorts.items():
        used = f", {len(taken.intersection(ids))} in use, {len(set(ids) - taken)} free" if all(ids) else ""
        yield f"assignable: {len(ids)} x {name}{f' ({label})' if label else ''}{used}"
    yield from (f"assignable group: {group}" for group in hardware.groups)
    if hardware != AssignableHardware() or host.assigned:
        yield f"assigned to VMs: {len(host.assigned)}"


def windows_of(node: Node, around: Surroundings, now: datetime) -> Iterator[Window | None]:
    """What is planned for a Node, from all sources; what cannot be read is left out here, and told by `complaints`."""
    host = around.host
    told = [("Node annotation", node.metadata.annotations.get(NEXT_MAINTENANCE))]
    if host is not None:
        told.append((f"custom attribute of host {host.name}", host.attributes.get(NEXT_MAINTENANCE)))
    for source, text in told:
        if text:
            try:
                yield without_end(moment_of(text), source)
            except ValueError:
                continue
    yield from (without_end(each.at, f'scheduled task "{each.task}" of vCenter {around.vcenter}') for each in around.planned)
    yield from (entry.next(now) for entry in around.entries)


def complaints(node: Node, host: Host | None, resources: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What is wrong with what people wrote, as reason and words for an Event on the Node."""
    told = [(f"annotation {NEXT_MAINTENANCE}", node.metadata.annotations.get(NEXT_MAINTENANCE))]
    if host is not None:
        told.append((f"custom attribute {NEXT_MAINTENANCE} of host {host.name}", host.attributes.get(NEXT_MAINTENANCE)))
    for what, text in told:
        try:
            if text:
                moment_of(text)
        except ValueError as error:
            yield "MaintenanceUnreadable", f"{what} counts for nothing: {error}. Write such a time, or take it away."
    for resource, quantity in sorted(node.status.allocatable.items()):
        looks_like_one = "gpu" in resource.lower() and quantity not in ("", "0")
        if looks_like_one and not any(fnmatchcase(resource, glob) for glob in resources):
            words = f"resource {resource} counts as no GPU, since -gpu-resources does not have it. If it is one, add it there."
            yield "UnknownGPUResource", words
