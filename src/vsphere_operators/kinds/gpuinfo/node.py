"""The facts of one Node, from the Node, its VM, its host and what is planned: pure."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from fnmatch import fnmatchcase

from msgspec import Struct

from kubewright.builtin import Node

from ...vsphere.model import (
    AssignableHardware,
    GraphicsDevice,
    Host,
    PassthroughDevice,
    VirtualMachine,
)
from ...vsphere.scheduled_tasks import PlannedMaintenance
from .maintenance import CalendarEntry, Window, find_next_window, parse_time, window_from_start
from .rules import Load, MatchFailure, NodeFacts, Rejection

NEXT_MAINTENANCE_KEY = "topology.corinternal.com/next-maintenance"
_BLOCKING_TAINTS = {
    "ToBeDeletedByClusterAutoscaler": "the cluster autoscaler is about to remove it",
    "node-role.kubernetes.io/control-plane": "it is of the control plane",
    "node-role.kubernetes.io/master": "it is of the control plane",
}
"""Taints that no Pod of anybody tolerates, and what they tell."""
_UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
"""The taint with which Kubernetes repeats that a Node is cordoned."""
_KUBERNETES_TAINT_PREFIXES = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_GPU_VENDOR_IDS = (0x10DE, 0x1002)
"""NVIDIA and AMD. Intel's is no sign: its network cards are passed through too."""
MIN_SIMULATED_HOURS, MAX_SIMULATED_HOURS = 300, 400


class Simulation(Struct, frozen=True):
    """Hours and GPUs by chance, as the original had them; the same seed gives the same node the same."""

    seed: str

    def simulate_node(self, node: str) -> tuple[int, bool]:
        """Hours from 300 to 400, and a GPU or none."""
        chance = random.Random(f"{self.seed}/{node}")
        return chance.randint(MIN_SIMULATED_HOURS, MAX_SIMULATED_HOURS), chance.random() < 0.5


class NodeContext(Struct, frozen=True):
    """What is known of a Node beside itself."""

    vcenter_name: str = ""
    vm: VirtualMachine | None = None
    blocker: Rejection | None = None
    """Why there is no machine, or none that can be trusted."""
    match_failure: MatchFailure | None = None
    matched_by: str = ""
    host: Host | None = None
    devices: Sequence[PassthroughDevice] = ()
    devices_hidden: bool = False
    """vCenter does not show them to us."""
    assignable_hardware: AssignableHardware = AssignableHardware()
    """What the host can give to VMs."""
    scheduled_maintenance: Sequence[PlannedMaintenance] = ()
    calendar_entries: Sequence[CalendarEntry] = ()
    """Those of the calendar that are about it."""


def build_facts(
    node: Node,
    around: NodeContext,
    resources: Sequence[str],
    simulation: Simulation | None,
    now: datetime,
) -> NodeFacts:
    """All that a choice depends on."""
    vm, host, name = around.vm, around.host, node.metadata.name
    hours, gpu = simulation.simulate_node(name) if simulation else (None, None)
    gpus = (
        ()
        if simulation
        else (*_describe_vm_gpus(around.devices, host), *_describe_node_gpus(node, resources))
    )
    obstacle = find_blocker(node, around)
    if obstacle is None and around.devices_hidden and not gpus and not simulation:
        obstacle = Rejection.DEVICES_HIDDEN
    return NodeFacts(
        name=name,
        blocker=obstacle,
        match_failure=around.match_failure,
        vm_name=vm.name if vm else "",
        matched_by=around.matched_by,
        vcenter_name=around.vcenter_name,
        host_name=host.name if host else "",
        gpus=gpus,
        host_devices=_describe_host_devices(host, around.assignable_hardware),
        cpus=(vm.cpus if vm else None) or 0,
        memory_mb=(vm.memory_mb if vm else None) or 0,
        load=Load(vm.stats.cpu_demand_mhz, vm.stats.guest_memory_mb) if vm else Load(),
        maintenance=None
        if simulation
        else find_next_window(_list_maintenance_windows(node, around, now), now),
        simulated_hours=hours,
        simulated_gpu=gpu,
    )


def find_blocker(node: Node, around: NodeContext) -> Rejection | None:
    """The first reason, in the order of Refusal, that no question can lift."""
    if not is_ready(node):
        return Rejection.NOT_READY
    if not is_schedulable(node):
        return Rejection.UNSCHEDULABLE
    if around.blocker is not None or around.vm is None:
        return around.blocker or Rejection.VM_NOT_FOUND
    return _find_vm_blocker(around.vm, around.host)


def _find_vm_blocker(vm: VirtualMachine, host: Host | None) -> Rejection | None:
    """The same, of its VM and host. A lost host takes its VMs along, so it is looked at first where vCenter has lost the VM."""
    lost = host is None or host.connection != "connected"
    if vm.connection not in ("connected", ""):
        return Rejection.HOST_DISCONNECTED if lost else Rejection.VM_UNAVAILABLE
    if vm.power != "poweredOn":
        return Rejection.POWERED_OFF
    if lost or host is None:
        return Rejection.HOST_DISCONNECTED
    return Rejection.HOST_IN_MAINTENANCE if host.in_maintenance else None


def is_ready(node: Node) -> bool:
    """Whether its kubelet says so."""
    return any(
        condition.type == "Ready" and condition.status == "True"
        for condition in node.status.conditions
    )


def is_schedulable(node: Node) -> bool:
    """Not cordoned, not of the control plane, not tainted by Kubernetes itself; other taints, as on GPU nodes, are to be tolerated."""
    return next(list_unschedulable_reasons(node), None) is None


def list_unschedulable_reasons(node: Node) -> Iterator[str]:
    """Each reason for which it takes no Pods, in words."""
    if node.spec.unschedulable:
        yield "it is cordoned"
    if node.metadata.deletionTimestamp is not None:
        yield "it is being deleted"
    for taint in node.spec.taints:
        if taint.effect not in ("NoSchedule", "NoExecute") or (
            node.spec.unschedulable and taint.key == _UNSCHEDULABLE_TAINT
        ):
            continue
        if taint.key in _BLOCKING_TAINTS:
            yield _BLOCKING_TAINTS[taint.key]
        elif taint.key.startswith(_KUBERNETES_TAINT_PREFIXES):
            yield f"Kubernetes has tainted it {taint.key}:{taint.effect}"


def _describe_vm_gpus(devices: Iterable[PassthroughDevice], host: Host | None) -> Iterator[str]:
    """The vGPUs and passed-through GPUs of a VM, in words."""
    graphics = {each.pci_id for each in host.graphics} if host else set()
    for device in devices:
        if device.vgpu_profile:
            yield f"vm: vGPU {device.vgpu_profile}"
        elif device.pci_id in graphics or any(
            vendor in _GPU_VENDOR_IDS for vendor in device.vendor_ids
        ):
            yield f"vm: {'passthrough' if device.pci_id else 'dynamic passthrough'} {device.name or device.pci_id}".rstrip()


def _describe_node_gpus(node: Node, resources: Sequence[str]) -> Iterator[str]:
    """The GPU resources that a device plugin has put on the Node, in words."""
    for resource, quantity in sorted(node.status.allocatable.items()):
        if quantity not in ("", "0") and any(fnmatchcase(resource, glob) for glob in resources):
            yield f"node: {resource} {quantity}"


def _describe_host_devices(host: Host | None, hardware: AssignableHardware) -> tuple[str, ...]:
    """The graphics devices of a host in words, the vGPU profiles that it offers, and the hardware that it assigns."""
    if host is None:
        return ()
    profiles = (f"vGPU types: {', '.join(host.vgpu_profiles)}",) if host.vgpu_profiles else ()
    graphics = (
        _describe_graphics_device(each, _count_vms_using(each, host)) for each in host.graphics
    )
    return (*graphics, *profiles, *_describe_assignable_hardware(host, hardware))


def _count_vms_using(device: GraphicsDevice, host: Host) -> int:
    """How many VMs have a graphics device, by either of those who know: the host's graphics, and its assignable hardware."""
    assigned = {
        each.vm
        for each in host.assigned_devices
        if each.pci_id and each.pci_id == device.pci_id.lower()
    }
    return len({*device.vms, *assigned})


def _describe_graphics_device(device: GraphicsDevice, users: int) -> str:
    """One graphics device."""
    use = f"in use by {users} VM{'s' if users > 1 else ''}" if users else "free"
    return f"{device.name} at {device.pci_id}, {device.type}, {device.memory_kb // 2**20} GB, {use}"


def _describe_assignable_hardware(host: Host, hardware: AssignableHardware) -> Iterator[str]:
    """What the host assigns when a VM starts: how much of each sort is free where vCenter tells which devices are taken, else in all."""
    taken = {each.pci_id for each in host.assigned_devices} - {""}
    sorts = dict[tuple[str, str], list[str]]()
    for device in hardware.devices:
        sorts.setdefault((device.name, device.label), []).append(device.pci_id)
    for (name, label), ids in sorts.items():
        used = (
            f", {len(taken.intersection(ids))} in use, {len(set(ids) - taken)} free"
            if all(ids)
            else ""
        )
        yield f"assignable: {len(ids)} x {name}{f' ({label})' if label else ''}{used}"
    yield from (f"assignable group: {group}" for group in hardware.groups)
    if hardware != AssignableHardware() or host.assigned_devices:
        yield f"assigned to VMs: {len(host.assigned_devices)}"


def _list_maintenance_windows(
    node: Node, around: NodeContext, now: datetime
) -> Iterator[Window | None]:
    """What is planned for a Node, from all sources; what cannot be read is left out here, and told by `complaints`."""
    host = around.host
    told = [("Node annotation", node.metadata.annotations.get(NEXT_MAINTENANCE_KEY))]
    if host is not None:
        told.append(
            (f"custom attribute of host {host.name}", host.attributes.get(NEXT_MAINTENANCE_KEY))
        )
    for source, text in told:
        if text:
            try:
                yield window_from_start(parse_time(text), source)
            except ValueError:
                continue
    yield from (
        window_from_start(
            each.starts_at, f'scheduled task "{each.task_name}" of vCenter {around.vcenter_name}'
        )
        for each in around.scheduled_maintenance
    )
    yield from (entry.next_window(now) for entry in around.calendar_entries)


def find_warnings(
    node: Node, host: Host | None, resources: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """What is wrong with what people wrote, as reason and words for an Event on the Node."""
    told = [
        (f"annotation {NEXT_MAINTENANCE_KEY}", node.metadata.annotations.get(NEXT_MAINTENANCE_KEY))
    ]
    if host is not None:
        told.append(
            (
                f"custom attribute {NEXT_MAINTENANCE_KEY} of host {host.name}",
                host.attributes.get(NEXT_MAINTENANCE_KEY),
            )
        )
    for what, text in told:
        try:
            if text:
                parse_time(text)
        except ValueError as error:
            yield (
                "MaintenanceUnreadable",
                f"{what} counts for nothing: {error}. Write such a time, or take it away.",
            )
    for resource, quantity in sorted(node.status.allocatable.items()):
        looks_like_one = "gpu" in resource.lower() and quantity not in ("", "0")
        if looks_like_one and not any(fnmatchcase(resource, glob) for glob in resources):
            words = f"resource {resource} counts as no GPU, since -gpu-resources does not have it. If it is one, add it there."
            yield "UnknownGPUResource", words
