"""The dashboards of hosts, Nodes and datastores, and of VmGroups. They need -inventory-metrics."""

from __future__ import annotations

from .model import JOB_SELECTOR, Dashboard, Panel, Query, Section

_VCENTER = 'vcenter=~"$vcenter"'
_HOST_KEYS = "vcenter, host, host_id"
_DATASTORE_KEYS = "vcenter, datastore, datastore_id"
_NODES = f'max by (vcenter, vm_id, node, host) (vsphere_vm_info{{{_VCENTER},node!=""}})'
_GROUPS = f'max by (vcenter, vm_id, vmgroup) (vsphere_vm_info{{{_VCENTER},vmgroup!=""}})'


def _stat(title: str, description: str, expr: str) -> Panel:
    return Panel(title, description, "short", (Query(expr),), type="stat", width=4, height=4)


def _top(expr: str) -> str:
    return f"topk(20, {expr})"


def _max_by(keys: str, metric: str) -> str:
    return f"max by ({keys}) ({metric}{{{_VCENTER}}})"


def _ratio(keys: str, part: str, whole: str) -> str:
    return f"{_max_by(keys, part)} / {_max_by(keys, whole)}"


def _of_nodes(metric: str) -> str:
    value = _max_by("vcenter, vm_id", metric)
    return f"{value} * on (vcenter, vm_id) group_left (node, host) {_NODES}"


def _sum_of_groups(metric: str) -> str:
    value = _max_by("vcenter, vm_id", metric)
    return f"sum by (vmgroup) ({value} * on (vcenter, vm_id) group_left (vmgroup) {_GROUPS})"


_CLUSTER_MEMORY = (
    f"sum by (vcenter, cluster) ({{part}} * on (vcenter, host_id) group_left (cluster) "
    f'max by (vcenter, host_id, cluster) (vsphere_host_info{{{{{_VCENTER},cluster!=""}}}}))'
)


def _sum_of_clusters(metric: str) -> str:
    return _CLUSTER_MEMORY.format(part=_max_by("vcenter, host_id", metric))


HOSTS_AND_NODES = Dashboard(
    "hosts-and-nodes",
    "vSphere operators / Hosts and nodes",
    "ESXi hosts, the Kubernetes Nodes on them, clusters and datastores.",
    (
        Section(
            "Overview",
            (
                _stat("Hosts", "ESXi hosts.", f"count({_max_by(_HOST_KEYS, 'vsphere_host_info')})"),
                _stat(
                    "Disconnected hosts",
                    "Hosts that do not respond to vCenter.",
                    f"sum(1 - {_max_by(_HOST_KEYS, 'vsphere_host_connected')})",
                ),
                _stat(
                    "Hosts in maintenance",
                    "Hosts in maintenance mode.",
                    f"sum({_max_by(_HOST_KEYS, 'vsphere_host_maintenance')})",
                ),
                _stat("Nodes", "Kubernetes Nodes with a VM in vCenter.", f"count({_NODES})"),
                _stat(
                    "Orphaned disks",
                    "First Class Disks without a volume in this cluster and without a VM.",
                    f"sum({_max_by(_DATASTORE_KEYS, 'vsphere_datastore_orphaned_disks')})",
                ),
                _stat(
                    "Objects without metrics",
                    "Objects above -inventory-metrics-limit.",
                    f"sum({_max_by('vcenter, type', 'vsphere_inventory_metrics_omitted_objects')})",
                ),
            ),
        ),
        Section(
            "Hosts",
            (
                Panel(
                    "CPU usage",
                    "The 20 hosts with the highest share of used CPU.",
                    "percentunit",
                    (
                        Query(
                            _top(
                                _ratio(
                                    _HOST_KEYS,
                                    "vsphere_host_cpu_usage_hertz",
                                    "vsphere_host_cpu_capacity_hertz",
                                )
                            ),
                            "{{host}}",
                        ),
                    ),
                ),
                Panel(
                    "Memory usage",
                    "The 20 hosts with the highest share of used memory.",
                    "percentunit",
                    (
                        Query(
                            _top(
                                _ratio(
                                    _HOST_KEYS,
                                    "vsphere_host_memory_usage_bytes",
                                    "vsphere_host_memory_capacity_bytes",
                                )
                            ),
                            "{{host}}",
                        ),
                    ),
                ),
                Panel(
                    "VMs",
                    "The 20 hosts with the most VMs.",
                    "short",
                    (Query(_top(_max_by(_HOST_KEYS, "vsphere_host_vms")), "{{host}}"),),
                ),
                Panel(
                    "Free memory of clusters",
                    "Memory that the hosts of each cluster do not use.",
                    "bytes",
                    (
                        Query(
                            f"{_sum_of_clusters('vsphere_host_memory_capacity_bytes')} - "
                            f"{_sum_of_clusters('vsphere_host_memory_usage_bytes')}",
                            "{{cluster}}",
                        ),
                    ),
                ),
                Panel(
                    "DRS and HA",
                    "1 if DRS or vSphere HA is on.",
                    "short",
                    (
                        Query(
                            _max_by("vcenter, cluster", "vsphere_cluster_drs_enabled"),
                            "DRS {{cluster}}",
                        ),
                        Query(
                            _max_by("vcenter, cluster", "vsphere_cluster_ha_enabled"),
                            "HA {{cluster}}",
                        ),
                    ),
                    type="stat",
                ),
                Panel(
                    "Hosts of clusters",
                    "Number of hosts in each cluster.",
                    "short",
                    (
                        Query(
                            _max_by("vcenter, cluster", "vsphere_cluster_hosts"),
                            "{{cluster}}",
                        ),
                    ),
                    type="stat",
                ),
            ),
        ),
        Section(
            "Nodes",
            (
                Panel(
                    "CPU readiness",
                    "Share of time in which the VM of a Node waits for a physical CPU. Above 10 % "
                    "the host has too little CPU.",
                    "percentunit",
                    (
                        Query(
                            _top(_of_nodes("vsphere_vm_cpu_readiness_ratio")),
                            "{{node}} on {{host}}",
                        ),
                    ),
                ),
                Panel(
                    "Ballooned memory",
                    "Memory that the host reclaimed from the VM of a Node.",
                    "bytes",
                    (
                        Query(
                            _top(_of_nodes("vsphere_vm_memory_ballooned_bytes")),
                            "{{node}} on {{host}}",
                        ),
                    ),
                ),
                Panel(
                    "Swapped memory",
                    "Memory of the VM of a Node that the host swapped to disk.",
                    "bytes",
                    (
                        Query(
                            _top(_of_nodes("vsphere_vm_memory_swapped_bytes")),
                            "{{node}} on {{host}}",
                        ),
                    ),
                ),
                Panel(
                    "CPU of Nodes",
                    "CPU that the VM of a Node uses.",
                    "hertz",
                    (Query(_top(_of_nodes("vsphere_vm_cpu_usage_hertz")), "{{node}} on {{host}}"),),
                    width=12,
                ),
                Panel(
                    "Nodes and their hosts",
                    "On which host each Node runs.",
                    "short",
                    (Query(_NODES),),
                    type="table",
                    width=12,
                ),
            ),
        ),
        Section(
            "Datastores",
            (
                Panel(
                    "Free space",
                    "Share of each datastore that is free.",
                    "percentunit",
                    (
                        Query(
                            _ratio(
                                _DATASTORE_KEYS,
                                "vsphere_datastore_free_bytes",
                                "vsphere_datastore_capacity_bytes",
                            ),
                            "{{datastore}}",
                        ),
                    ),
                ),
                Panel(
                    "Free bytes",
                    "Free space of each datastore.",
                    "bytes",
                    (
                        Query(
                            _max_by(_DATASTORE_KEYS, "vsphere_datastore_free_bytes"),
                            "{{datastore}}",
                        ),
                    ),
                ),
                Panel(
                    "First Class Disks",
                    "Disks on each datastore, and those without a volume and without a VM.",
                    "short",
                    (
                        Query(
                            _max_by(_DATASTORE_KEYS, "vsphere_datastore_first_class_disks"),
                            "{{datastore}}",
                        ),
                        Query(
                            _max_by(_DATASTORE_KEYS, "vsphere_datastore_orphaned_disks"),
                            "{{datastore}} orphaned",
                        ),
                    ),
                ),
            ),
        ),
    ),
    variables={"vcenter": "vsphere_vcenter_up"},
)

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
                            "sum by (reason) (increase(vsphere_vmgroup_vms_created_total[1h]))",
                            "{{reason}}",
                        ),
                    ),
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
                            "count by (vmgroup, host) (max by (vcenter, vm_id, vmgroup, host) "
                            f'(vsphere_vm_info{{{_VCENTER},vmgroup!=""}}))',
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
                    "Tasks started",
                    "Calls that start tasks in vCenter, such as clones.",
                    "reqps",
                    (
                        Query(
                            "sum by (method) (rate(vsphere_vcenter_calls_total"
                            f'{{{_VCENTER},method=~".*_Task"}}[$__rate_interval]))',
                            "{{method}}",
                        ),
                    ),
                    width=12,
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
                    width=12,
                ),
            ),
        ),
    ),
    variables={"vcenter": "vsphere_vcenter_up"},
)

DASHBOARDS = (HOSTS_AND_NODES, VMGROUPS)
