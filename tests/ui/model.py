"""A synthetic topology of any size, in the format of docs/designs/topology.md."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

Json = dict[str, Any]
HOSTS_PER_CLUSTER = 16
GIGABYTE = 1024**3
HOSTILE_NAMES = (
    "<img src=x onerror=\"document.title='broken'\">",
    "invoice\u202egpj.exe",
    "\U0001f680" * 80,
    "\u0627\u0644\u0639\u0642\u062f\u0629-1",
)


def build_model(hosts: int = 14, vms: int = 96, seed: int = 18) -> Json:
    """The same model for the same arguments. Host 3 is hot, host 5 enters maintenance."""
    choice = random.Random(seed)
    clusters = max(2, -(-hosts // HOSTS_PER_CLUSTER))
    model: Json = {
        "apiVersion": "topology.corinternal.com/v1",
        "kind": "Topology",
        "time": _time(0),
        "manager": {"version": "0.1.0", "identity": "manager-0", "isLeader": True},
        "vcenters": [{"id": "vc-1", "name": "vc-1", "state": "Ready", "message": ""}],
        "datacenters": [
            {"id": f"vc-1/datacenter-{i}", "name": f"dc-{i}", "vcenter": "vc-1"} for i in (1, 2)
        ],
        "clusters": [
            {
                "id": f"vc-1/domain-c{i}",
                "name": f"cluster-{i}",
                "datacenter": f"vc-1/datacenter-{1 + i % 2}",
                "drsEnabled": True,
                "haEnabled": i % 3 != 1,
                "infos": [_info("ClusterInfo", "clusterinfoes", f"cluster-{i}")],
            }
            for i in range(clusters)
        ],
        "limits": {"vms": 20000, "omittedVMs": 0},
        "pressureLimits": {
            "CPUReady": {"warmPercent": 5, "hotPercent": 10},
            "MemoryBallooning": {"warmPercent": 2, "hotPercent": 5},
            "MemorySwapping": {"warmPercent": 5, "hotPercent": 10},
        },
    }
    model["hosts"] = [_host(i, clusters, choice) for i in range(hosts)]
    model["datastores"] = [_datastore(i, model, choice) for i in range(max(4, hosts // 8))]
    model["vms"] = [_vm(i, model, choice) for i in range(vms)]
    model["nodes"] = [_node(vm, choice) for vm in model["vms"] if "node" in vm]
    model["nodes"].append({"id": "edge-1", "ready": True, "unschedulable": False, "pods": 4})
    model["disks"] = [_disk(i, model, choice) for i in range(max(12, vms // 4))]
    model["vmGroups"] = _groups(model)
    model["gpuInfos"] = _gpu_infos(model)
    return model


def _time(seconds_ago: float) -> str:
    moment = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _host(index: int, clusters: int, choice: random.Random) -> Json:
    load = 0.95 if index == 3 else choice.uniform(0.15, 0.7)
    host: Json = {
        "id": f"vc-1/host-{index}",
        "name": f"esxi-{index}",
        "datacenter": f"vc-1/datacenter-{1 + index % clusters % 2}",
        "cluster": f"vc-1/domain-c{index % clusters}",
        "connection": "connected",
        "maintenance": "entering" if index == 5 else "",
        "cpuMHz": 83200,
        "cpuUsageMHz": int(83200 * load),
        "memoryMB": 524288,
        "memoryUsageMB": int(524288 * choice.uniform(0.3, 0.72)),
        "pressure": [],
    }
    if index == 3:
        host["pressure"] = [
            {
                "type": "CPUReady",
                "message": 'VM "db-3" on host "esxi-3" waited for a CPU 14% of the time. '
                "The limit is 10%.",
            }
        ]
    if index == 3 or index % 5 == 0:
        host["infos"] = [_info("HostInfo", "hostinfoes", host["name"])]
    return host


def _info(kind: str, plural: str, name: str) -> Json:
    return {"kind": kind, "plural": plural, "namespace": "default", "name": name}


def _datastore(index: int, model: Json, choice: random.Random) -> Json:
    capacity = 8 * 1024 * GIGABYTE
    free = int(capacity * (0.06 if index == 1 else choice.uniform(0.2, 0.7)))
    datacenter = f"vc-1/datacenter-{1 + index % 2}"
    return {
        "id": f"vc-1/datastore-{index}",
        "name": f"{'nfs' if index % 2 else 'vmfs'}-{index}",
        "type": "NFS" if index % 2 else "VMFS",
        "accessible": True,
        "datacenter": datacenter,
        "capacityBytes": capacity,
        "freeBytes": free,
        "uncommittedBytes": int(capacity * choice.uniform(0.1, 0.9)),
        "hosts": [host["id"] for host in model["hosts"] if host["datacenter"] == datacenter],
        "infos": [_info("DatastoreInfo", "datastoreinfoes", f"datastore-{index}")],
    }


def _vm(index: int, model: Json, choice: random.Random) -> Json:
    host = model["hosts"][index % len(model["hosts"])]
    datastores = [d for d in model["datastores"] if d["datacenter"] == host["datacenter"]]
    memory = choice.choice((16384, 32768, 65536, 65536, 98304))
    is_hot = host["name"] == "esxi-3"
    vm: Json = {
        "id": f"vc-1/vm-{index}",
        "name": f"node-{index}" if index % 2 == 0 else f"db-{index}",
        "host": host["id"],
        "power": "poweredOn" if index % 17 else "poweredOff",
        "cpus": memory // 4096,
        "memoryMB": memory,
        "cpuUsageMHz": choice.randint(100, 9000),
        "cpuReadinessPercent": choice.choice((6, 14)) if is_hot else choice.randint(0, 4),
        "guestMemoryMB": int(memory * choice.uniform(0.1, 0.8)),
        # Warm, but not hot.
        "balloonedMemoryMB": memory * 3 // 100 if index % 41 == 7 else 0,
        "swappedMemoryMB": 0,
        "ipAddress": f"10.{index // 60000}.{index // 250 % 250}.{index % 250 + 1}",
        "isTemplate": False,
        "datastores": [choice.choice(datastores)["id"]] if datastores else [],
    }
    if index % 2 == 0:
        vm["node"] = vm["name"]
        vm["infos"] = [_info("VMInfo", "vminfoes", vm["name"])]
    if index in (11, 25):
        vm["vmGroup"] = "default/web"
        vm["name"] = f"web-{0 if index == 11 else 1}"
    return vm


def _node(vm: Json, choice: random.Random) -> Json:
    node: Json = {
        "id": vm["node"],
        "vm": vm["id"],
        "ready": vm["power"] == "poweredOn",
        "unschedulable": False,
        "pods": choice.randint(3, 9),
    }
    if vm["id"] == "vc-1/vm-4":
        node["maintenanceStart"] = _time(-2 * 86400)
    return node


def _disk(index: int, model: Json, choice: random.Random) -> Json:
    datastore = model["datastores"][index % len(model["datastores"])]
    disk: Json = {
        "id": f"vc-1/6000C29{index:05}",
        "name": f"pvc-{index}",
        "datastore": datastore["id"],
        "sizeMB": choice.choice((5120, 20480, 102400)),
    }
    if index % 7 != 6:
        disk["persistentVolume"] = f"pvc-{index}"
        disk["claim"] = f"default/data-{index}"
        disk["vm"] = model["vms"][(index * 2) % len(model["vms"])]["id"]
    return disk


def _groups(model: Json) -> list[Json]:
    members = [vm for vm in model["vms"] if vm.get("vmGroup") == "default/web"]
    return [
        {
            "id": "default/cache",
            "vcenter": "vc-1",
            "template": "ubuntu-24.04",
            "replicas": 2,
            "readyReplicas": 2,
            "phase": "RUNNING",
            "ready": True,
            "message": "All 2 replicas are ready.",
            "members": [{"name": f"cache-{i}", "state": "Ready"} for i in range(2)],
            "tasks": [],
        },
        {
            "id": "default/web",
            "vcenter": "vc-1",
            "template": "ubuntu-24.04",
            "replicas": 4,
            "readyReplicas": 2,
            "phase": "SCALING",
            "ready": False,
            "message": "2/4 replicas ready; cloning 2",
            "members": [
                *({"vm": vm["id"], "name": vm["name"], "state": "Ready"} for vm in members),
                {"name": "web-2", "state": "Cloning"},
                {"name": "web-3", "state": "Cloning"},
            ],
            "tasks": [
                {"name": "clone", "vm": "web-2", "percent": 40},
                {"name": "clone", "vm": "web-3", "percent": 15},
            ],
        },
    ]


def _gpu_infos(model: Json) -> list[Json]:
    names = [node["id"] for node in model["nodes"] if node.get("vm")]
    return [
        {
            "id": "default/train",
            "ready": True,
            "node": names[3],
            "message": f'Selected node "{names[3]}": 2 of {len(names)} nodes match.',
            "candidates": [
                {
                    "node": name,
                    "gpus": ["nvidia-a100"],
                    "availableHours": 240,
                    "cpuDemandMHz": 2100 + 900 * i,
                }
                for i, name in enumerate(names[3:5])
            ],
            "rejections": [
                {
                    "node": name,
                    "reason": "GPUMissing" if i % 3 else "MaintenanceTooSoon",
                    "message": "The host has no GPU."
                    if i % 3
                    else "Maintenance begins in 46 hours; 72 are required.",
                }
                for i, name in enumerate(names[:3] + names[5:20])
            ],
            "omittedRejections": max(0, len(names) - 20),
        },
        {
            "id": "research/long-job",
            "ready": False,
            "message": "No node is available for 2000 hours.",
            "candidates": [],
            "rejections": [
                {"node": name, "reason": "TooShort", "message": "Available for 240 hours."}
                for name in names[:10]
            ],
        },
    ]


def build_changes(model: Json) -> Json:
    """The newest first."""
    rows = [
        ("VM", "vc-1/vm-4", "node-4", "Moved", "from esxi-2 to esxi-4", 70),
        ("Host", "vc-1/host-5", "esxi-5", "EnteredMaintenance", "", 240),
        ("VmGroup", "default/web", "default/web", "Scaled", "from 2 to 4 replicas", 300),
        ("VM", "vc-1/vm-17", "db-17", "PoweredOff", "", 900),
        ("Node", "node-8", "node-8", "Ready", "", 1500),
        ("VM", "vc-1/vm-999999", "old-1", "Removed", "", 2200),
    ]
    changes = [
        {
            "time": _time(age),
            "kind": kind,
            "id": object_id,
            "name": name,
            "type": change,
            "message": message,
        }
        for kind, object_id, name, change, message, age in rows
    ]
    return {"since": _time(3600), "limit": 2000, "changes": changes}


def pods_of(model: Json, node: str) -> list[Json]:
    number = next((item.get("pods", 0) for item in model["nodes"] if item["id"] == node), 0)
    return [
        {
            "namespace": "default" if i % 3 else "kube-system",
            "name": f"{'web' if i else 'ledger'}-{node}-{i}",
            "node": node,
            "phase": "Running",
            "ready": True,
            "controller": ("StatefulSet ledger", "DaemonSet proxy")[i]
            if i < 2
            else "ReplicaSet web",
        }
        for i in range(number)
    ]


def find_pods(model: Json, text: str, limit: int = 50) -> Json:
    pods = [pod for node in model["nodes"] for pod in pods_of(model, node["id"])]
    matching = [pod for pod in pods if text.lower() in f"{pod['namespace']}/{pod['name']}"]
    return {
        "search": text,
        "omittedPods": max(0, len(matching) - limit),
        "problems": [],
        "pods": matching[:limit],
    }


def what_stops(model: Json, host_id: str) -> Json | None:
    host = next((item for item in model["hosts"] if item["id"] == host_id), None)
    if host is None:
        return None
    vms = [vm for vm in model["vms"] if vm.get("host") == host_id and vm["power"] == "poweredOn"]
    nodes = [vm["node"] for vm in vms if "node" in vm]
    disks = [disk for disk in model["disks"] if disk.get("vm") in {vm["id"] for vm in vms}]
    datastores = {item["id"]: item["name"] for item in model["datastores"]}
    pods = [
        {
            "namespace": pod["namespace"],
            "name": pod["name"],
            "node": node,
            "controller": pod["controller"],
            "ready": pod["ready"],
            **(
                {"isBoundToNode": True}
                if pod["controller"].startswith("DaemonSet")
                else {"hasReadyReplicaElsewhere": pod["controller"] != "StatefulSet ledger"}
            ),
        }
        for node in nodes
        for pod in pods_of(model, node)
    ]
    return {
        "host": {"id": host_id, "name": host["name"]},
        "time": _time(0),
        "vms": [
            {
                "id": vm["id"],
                "name": vm["name"],
                **({"node": vm["node"]} if "node" in vm else {}),
            }
            for vm in vms
        ],
        "stoppedVMs": sum(vm.get("host") == host_id for vm in model["vms"]) - len(vms),
        "nodes": nodes,
        "pods": pods,
        "problems": [
            'Node "edge-1" has no known VM: its Pods may run on this host. Set its providerID.'
        ],
        "podDisruptionBudgets": [
            {"namespace": "default", "name": "web", "disruptionsAllowed": 0, "podsOnHost": 2}
        ],
        "volumes": [
            {
                "persistentVolume": disk["persistentVolume"],
                "claim": disk["claim"],
                "disk": disk["id"],
                "datastore": datastores[disk["datastore"]],
            }
            for disk in disks
        ],
        "vmGroups": [
            {"id": "default/web", "replicasOnHost": 1, "replicas": 4}
            for vm in vms
            if vm.get("vmGroup") == "default/web"
        ],
    }
