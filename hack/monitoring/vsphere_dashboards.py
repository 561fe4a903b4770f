"""The dashboard of hosts, Nodes and datastores. It needs -inventory-metrics."""

from __future__ import annotations

from .model import Dashboard, Panel, Query, Section
from .promql import HOST_KEYS, VCENTER, max_by

_CLUSTER_KEYS = "vcenter, cluster, cluster_id"
_DATASTORE_KEYS = "vcenter, datastore, datastore_id"
_NODES = f'max by (vcenter, vm_id, node, host) (vsphere_vm_info{{{VCENTER},node!=""}})'


def _stat(title: str, description: str, expr: str) -> Panel:
    return Panel(title, description, "short", (Query(expr),), type="stat", width=4, height=4)


def _top(expr: str) -> str:
    return f"topk(20, {expr})"


def _ratio(keys: str, part: str, whole: str) -> str:
    return f"{max_by(keys, part)} / {max_by(keys, whole)}"


def _of_nodes(metric: str) -> str:
    value = max_by("vcenter, vm_id", metric)
    return f"{value} * on (vcenter, vm_id) group_left (node, host) {_NODES}"


_CLUSTER_MEMORY = (
    f"sum by ({_CLUSTER_KEYS}) ({{part}} * on (vcenter, host_id) group_left (cluster, cluster_id) "
    f"max by ({_CLUSTER_KEYS}, host_id) "
    f'(vsphere_host_info{{{{{VCENTER},cluster_id!=""}}}}))'
)


def _sum_of_clusters(metric: str) -> str:
    return _CLUSTER_MEMORY.format(part=max_by("vcenter, host_id", metric))


HOSTS_AND_NODES = Dashboard(
    "hosts-and-nodes",
    "vSphere operators / Hosts and nodes",
    "ESXi hosts, the Kubernetes Nodes on them, clusters and datastores.",
    (
        Section(
            "Overview",
            (
                _stat("Hosts", "ESXi hosts.", f"count({max_by(HOST_KEYS, 'vsphere_host_info')})"),
                _stat(
                    "Disconnected hosts",
                    "Hosts that do not respond to vCenter.",
                    f"sum(1 - {max_by(HOST_KEYS, 'vsphere_host_connected')})",
                ),
                Panel(
                    "Hosts in maintenance",
                    "Hosts in maintenance mode, and hosts that a task puts into it.",
                    "short",
                    (
                        Query(f"sum({max_by(HOST_KEYS, 'vsphere_host_maintenance')})", "in"),
                        Query(
                            f"sum({max_by(HOST_KEYS, 'vsphere_host_entering_maintenance')})",
                            "entering",
                        ),
                    ),
                    type="stat",
                    width=4,
                    height=4,
                ),
                _stat("Nodes", "Kubernetes Nodes with a VM in vCenter.", f"count({_NODES})"),
                _stat(
                    "Orphaned disks",
                    "First Class Disks without a volume in this cluster and without a VM.",
                    f"sum({max_by(_DATASTORE_KEYS, 'vsphere_datastore_orphaned_disks')})",
                ),
                _stat(
                    "Objects without metrics",
                    "Objects above -inventory-metrics-limit.",
                    f"sum({max_by('vcenter, type', 'vsphere_inventory_metrics_omitted_objects')})",
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
                                    HOST_KEYS,
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
                                    HOST_KEYS,
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
                    (Query(_top(max_by(HOST_KEYS, "vsphere_host_vms")), "{{host}}"),),
                ),
                Panel(
                    "Free memory of clusters",
                    "Memory that the hosts of each cluster do not use.",
                    "bytes",
                    (
                        Query(
                            f"{_sum_of_clusters('vsphere_host_memory_capacity_bytes')} - "
                            f"{_sum_of_clusters('vsphere_host_memory_usage_bytes')}",
                            "{{cluster}} ({{cluster_id}})",
                        ),
                    ),
                ),
                Panel(
                    "DRS and HA",
                    "1 if DRS or vSphere HA is on.",
                    "short",
                    (
                        Query(
                            max_by(_CLUSTER_KEYS, "vsphere_cluster_drs_enabled"),
                            "DRS {{cluster}} ({{cluster_id}})",
                        ),
                        Query(
                            max_by(_CLUSTER_KEYS, "vsphere_cluster_ha_enabled"),
                            "HA {{cluster}} ({{cluster_id}})",
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
                            max_by(_CLUSTER_KEYS, "vsphere_cluster_hosts"),
                            "{{cluster}} ({{cluster_id}})",
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
                            max_by(_DATASTORE_KEYS, "vsphere_datastore_free_bytes"),
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
                            max_by(_DATASTORE_KEYS, "vsphere_datastore_first_class_disks"),
                            "{{datastore}}",
                        ),
                        Query(
                            max_by(_DATASTORE_KEYS, "vsphere_datastore_orphaned_disks"),
                            "{{datastore}} orphaned",
                        ),
                    ),
                ),
            ),
        ),
    ),
    variables={"vcenter": "vsphere_vcenter_up"},
)

DASHBOARDS = (HOSTS_AND_NODES,)
