"""The dashboard of VmGroups. Some of its panels need -inventory-metrics."""

from __future__ import annotations

from .model import JOB_SELECTOR, Dashboard, Panel, Query, Section
from .promql import HOST_KEYS, VCENTER, max_by

_GROUPS = f'max by (vcenter, vm_id, vmgroup) (vsphere_vm_info{{{VCENTER},vmgroup!=""}})'


def _sum_of_groups(metric: str) -> str:
    value = max_by("vcenter, vm_id", metric)
    return f"sum by (vmgroup) ({value} * on (vcenter, vm_id) group_left (vmgroup) {_GROUPS})"


def _increase(metric: str, keys: str) -> str:
    return f"sum by ({keys}) (increase({metric}{{{VCENTER}}}[1h]))"


VMGROUPS = Dashboard(
    "vmgroups",
    "vSphere operators / VmGroups",
    "VmGroups by phase, their replicas and the work in vCenter that they cause.",
    (
        Section(
            "Groups",
            (
                Panel(
                    "Groups by phase",
                    "VmGroups in each phase.",
                    "short",
                    (Query("max by (phase) (vsphere_vmgroups)", "{{phase}}"),),
                    width=12,
                ),
                Panel(
                    "Reconciles",
                    "Reconciles of VmGroups by result.",
                    "ops",
                    (
                        Query(
                            "sum by (result) (rate(controller_runtime_reconcile_total"
                            f'{{{JOB_SELECTOR},controller="vmgroup"}}[$__rate_interval]))',
                            "{{result}}",
                        ),
                    ),
                    width=12,
                ),
            ),
        ),
        Section(
            "Replicas",
            (
                Panel(
                    "VMs created",
                    "VMs that the manager created in the last hour, by reason.",
                    "short",
                    (
                        Query(
                            _increase("vsphere_vmgroup_vms_created_total", "reason"),
                            "{{reason}}",
                        ),
                    ),
                ),
                Panel(
                    "VMs destroyed",
                    "VMs that the manager destroyed in the last hour, by reason.",
                    "short",
                    (
                        Query(
                            _increase("vsphere_vmgroup_vms_destroyed_total", "reason"),
                            "{{reason}}",
                        ),
                    ),
                ),
                Panel(
                    "Failed clones",
                    "Clones that failed in the last hour. They are retried.",
                    "short",
                    (Query(_increase("vsphere_vmgroup_clone_failures_total", "vcenter")),),
                ),
                Panel(
                    "Replicas",
                    "VMs of each group.",
                    "short",
                    (Query(f"count by (vmgroup) ({_GROUPS})", "{{vmgroup}}"),),
                ),
                Panel(
                    "Powered on",
                    "Replicas of each group that are powered on.",
                    "short",
                    (Query(_sum_of_groups("vsphere_vm_powered_on"), "{{vmgroup}}"),),
                ),
                Panel(
                    "Virtual CPUs",
                    "Virtual CPUs of each group.",
                    "short",
                    (Query(_sum_of_groups("vsphere_vm_cpus"), "{{vmgroup}}"),),
                ),
                Panel(
                    "Configured memory",
                    "Memory of the VMs of each group.",
                    "bytes",
                    (Query(_sum_of_groups("vsphere_vm_memory_size_bytes"), "{{vmgroup}}"),),
                ),
                Panel(
                    "CPU usage",
                    "CPU that the VMs of each group use.",
                    "hertz",
                    (Query(_sum_of_groups("vsphere_vm_cpu_usage_hertz"), "{{vmgroup}}"),),
                ),
                Panel(
                    "Replicas by host",
                    "How the replicas are spread over hosts.",
                    "short",
                    (
                        Query(
                            f"count by (vmgroup, {HOST_KEYS}) "
                            f"(max by (vm_id, vmgroup, {HOST_KEYS}) "
                            f'(vsphere_vm_info{{{VCENTER},vmgroup!=""}}))',
                            "{{vmgroup}} on {{host}}",
                        ),
                    ),
                ),
            ),
        ),
        Section(
            "Work in vCenter",
            (
                Panel(
                    "Duration of clones",
                    "How long successful clones of the last hour took: the median, and the "
                    "slowest in 100.",
                    "s",
                    tuple(
                        Query(
                            f"histogram_quantile({quantile}, sum by (vcenter, le) (increase("
                            f"vsphere_vmgroup_clone_duration_seconds_bucket{{{VCENTER}}}[1h])))",
                            f"{name} {{{{vcenter}}}}",
                        )
                        for quantile, name in ((0.5, "median"), (0.99, "99 %"))
                    ),
                ),
                Panel(
                    "Tasks started",
                    "Calls that start tasks in vCenter, such as clones.",
                    "reqps",
                    (
                        Query(
                            "sum by (method) (rate(vsphere_vcenter_calls_total"
                            f'{{{VCENTER},method=~".*_Task"}}[$__rate_interval]))',
                            "{{method}}",
                        ),
                    ),
                ),
                Panel(
                    "Queue",
                    "VmGroups that wait for a worker.",
                    "short",
                    (
                        Query(
                            f'sum(workqueue_depth{{{JOB_SELECTOR},controller="vmgroup"}})',
                            "waiting",
                        ),
                    ),
                ),
            ),
        ),
    ),
    variables={"vcenter": "vsphere_vcenter_up"},
)

DASHBOARDS = (VMGROUPS,)
