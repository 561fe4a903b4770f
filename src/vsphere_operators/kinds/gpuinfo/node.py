"""The facts of one Node, from the Node, its VM, its host and planned maintenance; pure."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from fnmatch import fnmatchcase

from msgspec import Struct

from kubewright.builtin import Node

from ...vcenters.node_matching import MatchFailure, NodeMatch
from ...vsphere.model import AssignableHardware, Host, PassthroughDevice, VirtualMachine
from ...vsphere.scheduled_tasks import MaintenanceTask
from .maintenance_windows import (
    Calendar,
    CalendarEntry,
    Window,
    find_next_window,
    parse_time,
    window_from_start,
)
from .rules import NodeFacts, Rejection, VmUsage
from .types import Reason

NEXT_MAINTENANCE_KEY = "topology.corinternal.com/next-maintenance"
# Taints that the Pods of a job do not tolerate, and what they mean.
_BLOCKING_TAINTS = {
    "ToBeDeletedByClusterAutoscaler": "the cluster autoscaler is about to remove it",
    "node-role.kubernetes.io/control-plane": "it is a control plane node",
    "node-role.kubernetes.io/master": "it is a control plane node",
}
# Kubernetes adds this taint to a cordoned Node; the cordon is already reported.
_UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
_KUBERNETES_TAINT_PREFIXES = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
# PCI vendor ids of NVIDIA and AMD. Intel's is not listed: its network cards are passed through too.
_GPU_VENDOR_IDS = (0x10DE, 0x1002)
# As in the original operator.
_MIN_SIMULATED_HOURS, _MAX_SIMULATED_HOURS = 300, 400


class Simulation(Struct, frozen=True):
    """Random hours and GPUs, as in the original operator, but the same for the same seed."""

    seed: str

    def simulate_node(self, node: str) -> tuple[int, bool]:
        """Hours until maintenance, and whether the node has a GPU."""
        numbers = random.Random(f"{self.seed}/{node}")
        return numbers.randint(_MIN_SIMULATED_HOURS, _MAX_SIMULATED_HOURS), numbers.random() < 0.5


class NodeContext(Struct, frozen=True):
    """What vCenter and the calendar know about a Node."""

    vcenter_name: str = ""
    vm: VirtualMachine | None = None
    # Why there is no VM, or none with a known state.
    rejection_for_all: Rejection | None = None
    match_failure: MatchFailure | None = None
    matched_by: str = ""
    host: Host | None = None
    devices: Sequence[PassthroughDevice] = ()
    # The vCenter account may not see the devices of the VM.
    devices_unreadable: bool = False
    assignable_hardware: AssignableHardware = AssignableHardware()
    maintenance_tasks: Sequence[MaintenanceTask] = ()
    calendar_entries: Sequence[CalendarEntry] = ()


def build_node_context(
    name: str, match: NodeMatch, calendar: Calendar, *, needs_devices: bool
) -> NodeContext:
    """The context of the Node of this name, as far as the vCenter of its VM has read it."""
    vcenter, vm = match.vcenter, match.vm
    if vcenter is None or vm is None:
        failure = match.failure
        return NodeContext(
            rejection_for_all=Rejection(failure.reason.value) if failure else None,
            match_failure=failure if failure is not None and failure.is_certain else None,
            calendar_entries=calendar.find_entries(host="", node=name),
        )
    host, devices = vcenter.inventory.hosts.get(vm.host), vcenter.passthrough_devices.get(vm.ref)
    rejection_for_all = None
    if not vcenter.loaded or vcenter.problem is not None:
        # Before DEVICES_UNREAD, for which a selection waits: another node may be selected.
        rejection_for_all = Rejection.VCENTER_UNREACHABLE
    elif devices is None and needs_devices:
        rejection_for_all = Rejection.DEVICES_UNREAD
    return NodeContext(
        vcenter_name=vcenter.name,
        vm=vm,
        rejection_for_all=rejection_for_all,
        matched_by=match.matched_by,
        host=host,
        devices=devices or (),
        devices_unreadable=vm.ref in vcenter.passthrough_devices.unreadable,
        assignable_hardware=vcenter.assignable_hardware.get(vm.host)
        if vm.host
        else AssignableHardware(),
        maintenance_tasks=vcenter.scheduled_tasks.get(vm.host) if vm.host else (),
        calendar_entries=calendar.find_entries(host=host.name if host else "", node=name),
    )


def build_facts(
    node: Node,
    context: NodeContext,
    gpu_resource_globs: Sequence[str],
    simulation: Simulation | None,
    now: datetime,
) -> NodeFacts:
    vm, host, name = context.vm, context.host, node.metadata.name
    rejection_for_all = _find_rejection_for_all(node, context)
    gpus: tuple[str, ...] = ()
    hours, has_simulated_gpu, next_window = None, None, None
    if simulation:
        hours, has_simulated_gpu = simulation.simulate_node(name)
    else:
        gpus = (
            *_describe_vm_gpus(context.devices, host),
            *(
                f"node: {resource} {quantity}"
                for resource, quantity in sorted(node.status.allocatable.items())
                if quantity not in ("", "0") and _matches_glob(resource, gpu_resource_globs)
            ),
        )
        next_window = find_next_window(_list_maintenance_windows(node, context, now), now)
        if rejection_for_all is None and context.devices_unreadable and not gpus:
            rejection_for_all = Rejection.DEVICES_HIDDEN
    return NodeFacts(
        name=name,
        rejection_for_all=rejection_for_all,
        match_failure=context.match_failure,
        vm_name=vm.name if vm else "",
        matched_by=context.matched_by,
        vcenter_name=context.vcenter_name,
        host_name=host.name if host else "",
        gpus=gpus,
        host_devices=tuple(_describe_host_devices(host, context.assignable_hardware))
        if host
        else (),
        cpus=(vm.cpus if vm else None) or 0,
        memory_mb=(vm.memory_mb if vm else None) or 0,
        usage=VmUsage(vm.stats.cpu_demand_mhz, vm.stats.guest_memory_mb) if vm else VmUsage(),
        next_window=next_window,
        simulated_hours=hours,
        simulated_gpu=has_simulated_gpu,
    )


def _find_rejection_for_all(node: Node, context: NodeContext) -> Rejection | None:
    """The first rejection, in the order of Rejection, that applies to every requirement."""
    if not is_ready(node):
        return Rejection.NOT_READY
    if not is_schedulable(node):
        return Rejection.UNSCHEDULABLE
    vm, host = context.vm, context.host
    if context.rejection_for_all is not None or vm is None:
        return context.rejection_for_all or Rejection.VM_NOT_FOUND
    is_host_connected = host is not None and host.connection == "connected"
    if vm.connection not in ("connected", ""):
        # A disconnected host takes its VMs with it; then the host is the cause.
        return Rejection.VM_UNAVAILABLE if is_host_connected else Rejection.HOST_DISCONNECTED
    if vm.power != "poweredOn":
        return Rejection.POWERED_OFF
    if host is None or not is_host_connected:
        return Rejection.HOST_DISCONNECTED
    return Rejection.HOST_IN_MAINTENANCE if host.in_maintenance else None


def is_ready(node: Node) -> bool:
    return any(
        condition.type == "Ready" and condition.status == "True"
        for condition in node.status.conditions
    )


def is_schedulable(node: Node) -> bool:
    return next(list_unschedulable_reasons(node), None) is None


def list_unschedulable_reasons(node: Node) -> Iterator[str]:
    """Why a Node takes no Pods. Other taints do not count: jobs on GPU nodes tolerate them."""
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
    graphics_ids = {device.pci_id for device in host.graphics} if host else set()
    for device in devices:
        if device.vgpu_profile:
            yield f"vm: vGPU {device.vgpu_profile}"
        elif device.pci_id in graphics_ids or any(
            vendor in _GPU_VENDOR_IDS for vendor in device.vendor_ids
        ):
            mode = "passthrough" if device.pci_id else "dynamic passthrough"
            yield f"vm: {mode} {device.name or device.pci_id}".rstrip()


def _matches_glob(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _describe_host_devices(host: Host, hardware: AssignableHardware) -> Iterator[str]:
    """The graphics devices of a host, its vGPU profiles, and the hardware that it can assign."""
    for device in host.graphics:
        # vCenter reports users of a device in two places, and either may be incomplete.
        users = set(device.vms) | {
            assigned.vm
            for assigned in host.assigned_devices
            if assigned.pci_id and assigned.pci_id == device.pci_id.lower()
        }
        usage = f"in use by {len(users)} VM{'s' if len(users) > 1 else ''}" if users else "free"
        gigabytes = device.memory_kb // 2**20
        yield f"{device.name} at {device.pci_id}, {device.type}, {gigabytes} GB, {usage}"
    if host.vgpu_profiles:
        yield f"vGPU types: {', '.join(host.vgpu_profiles)}"
    assigned_ids = {device.pci_id for device in host.assigned_devices} - {""}
    ids_by_type = dict[tuple[str, str], list[str]]()
    for assignable in hardware.devices:
        ids_by_type.setdefault((assignable.name, assignable.label), []).append(assignable.pci_id)
    for (name, label), ids in ids_by_type.items():
        usage = ""
        # vCenter does not report the PCI id of every assignable device.
        if all(ids):
            used, free = len(assigned_ids.intersection(ids)), len(set(ids) - assigned_ids)
            usage = f", {used} in use, {free} free"
        yield f"assignable: {len(ids)} x {name}{f' ({label})' if label else ''}{usage}"
    yield from (f"assignable group: {group}" for group in hardware.groups)
    if hardware != AssignableHardware() or host.assigned_devices:
        yield f"assigned to VMs: {len(host.assigned_devices)}"


def _read_maintenance_texts(node: Node, host: Host | None) -> Iterator[tuple[str, str]]:
    """The source and the text of each maintenance start that a person wrote, valid or not."""
    if text := node.metadata.annotations.get(NEXT_MAINTENANCE_KEY):
        yield "Node annotation", text
    if host is not None and (text := host.attributes.get(NEXT_MAINTENANCE_KEY)):
        yield f"custom attribute of host {host.name}", text


def _list_maintenance_windows(
    node: Node, context: NodeContext, now: datetime
) -> Iterator[Window | None]:
    for source, text in _read_maintenance_texts(node, context.host):
        try:
            yield window_from_start(parse_time(text), source)
        except ValueError:
            # find_warnings reports it.
            continue
    for task in context.maintenance_tasks:
        source = f'scheduled task "{task.task_name}" of vCenter {context.vcenter_name}'
        yield window_from_start(task.starts_at, source)
    for entry in context.calendar_entries:
        yield entry.next_window(now)


def find_warnings(
    node: Node, host: Host | None, gpu_resource_globs: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Reason and message of each Warning Event that the Node should have."""
    for source, text in _read_maintenance_texts(node, host):
        try:
            parse_time(text)
        except ValueError as error:
            yield (
                Reason.MAINTENANCE_UNREADABLE,
                f"Ignoring {NEXT_MAINTENANCE_KEY} ({source}): {error}. Correct or remove it.",
            )
    for resource, quantity in sorted(node.status.allocatable.items()):
        if (
            "gpu" in resource.lower()
            and quantity not in ("", "0")
            and not _matches_glob(resource, gpu_resource_globs)
        ):
            yield (
                Reason.UNKNOWN_GPU_RESOURCE,
                f"Resource {resource} is not counted as a GPU because -gpu-resources does not "
                "list it. If it is a GPU, add it there.",
            )
