"""GPUInfo on a real API server with a simulated vCenter, under the generated role."""

from __future__ import annotations

import statistics
from datetime import datetime
from pathlib import Path

from kubewright.testing import eventually
from simulator import SimulatedVCenter
from support.info_client import run_vcenter_manager, write_credentials
from support.manager_process import ManagerProcess

from .gpu_cluster import (
    GPUINFOS_PATH,
    MERGE_PATCH_HEADERS,
    NEXT_MAINTENANCE_ANNOTATION,
    NONE_AVAILABLE,
    GpuCluster,
    timestamp_in_hours,
)


async def test_samples_and_every_change_that_affects_a_selection(
    gpu_manager: ManagerProcess, gpu_vcenter: SimulatedVCenter, cluster: GpuCluster, config: Path
) -> None:
    for sample in sorted((config / "samples").glob("topology_v1_gpuinfo*.yaml")):
        cluster.control_plane.kubectl("apply", "-n", cluster.namespace, "-f", str(sample))
    await cluster.create_gpuinfo("plain", 100, False)
    for name in ("gpuinfo-sample", "gpu1", "gpu2", "gpu3", "gpu4"):
        status = await cluster.wait_for_node(name, "worker-3")
        assert (
            status["nodeCPUUsage"],
            status["nodeMemoryUsage"],
            status["availableAcceleratorTime"],
        ) == (3000, 512, 8760)
        assert status["refused"] == {"GPUMissing": 2}
        assert [candidate["node"] for candidate in status["candidates"]] == ["worker-3", "worker-4"]
        assert status["candidates"][0]["gpus"] == ["vm: vGPU grid_a100-10c"]
    table = cluster.control_plane.kubectl("get", "gpu", "-n", cluster.namespace)
    assert table.split("\n")[0].startswith(
        "NAME             DESIRED ACCESS TIME (HRS)   GPU REQUIRED"
    )
    first = await cluster.wait_for_node("plain", "worker-1")
    await cluster.patch_node("worker-1", {"spec": {"unschedulable": True}})
    await cluster.time_selection("plain", "worker-2")
    await cluster.patch_node("worker-1", {"spec": {"unschedulable": None}})
    await cluster.time_selection("plain", "worker-1")
    await cluster.patch_node_status("worker-1", ready="False")
    await cluster.time_selection("plain", "worker-2")
    await cluster.patch_node_status("worker-1", ready="True")
    await cluster.time_selection("plain", "worker-1")
    await gpu_vcenter.set_power("worker-1", on=False)
    await cluster.time_selection("plain", "worker-2")
    await gpu_vcenter.set_power("worker-1", on=True)
    await gpu_vcenter.set_stats("worker-1", overallCpuDemand=1000)
    await cluster.time_selection("plain", "worker-1")
    hosts = [
        entity["name"] for entity in await gpu_vcenter.entities() if entity["type"] == "HostSystem"
    ]
    other = next(host for host in hosts if host != first["suitableHostName"])
    await gpu_vcenter.move_vm("worker-1", other)
    await eventually(lambda: is_on_host(cluster, other), within=60)
    await gpu_vcenter.set_maintenance(other)
    assert (await cluster.time_selection("plain", "worker-2"))["suitableHostName"] != other
    await gpu_vcenter.set_maintenance(other, on=False)
    await cluster.time_selection("plain", "worker-1")
    await cluster.patch_node(
        "worker-1",
        {"metadata": {"annotations": {NEXT_MAINTENANCE_ANNOTATION: "2026-01-01T00:00:00Z"}}},
    )
    await gpu_vcenter.set_attribute(other, NEXT_MAINTENANCE_ANNOTATION, "2000-99-99")
    await eventually(lambda: has_event(cluster, "MaintenanceUnreadable"))
    await cluster.patch_node(
        "worker-1",
        {"metadata": {"annotations": {NEXT_MAINTENANCE_ANNOTATION: timestamp_in_hours(50)}}},
    )
    assert (await cluster.time_selection("plain", "worker-2"))["refused"]["TooLittleTime"] == 1
    await gpu_vcenter.add_gpu("worker-2")
    assert (await cluster.wait_for_node("plain", NONE_AVAILABLE))["refused"] == {
        "TooLittleTime": 1,
        "GPUPresent": 3,
    }
    assert (
        "NodeChosen"
        in cluster.control_plane.kubectl(
            "describe", "gpu", "plain", "-n", cluster.namespace
        ).partition("Events:")[2]
    )
    # Within a second on a quiet machine, and never by the next interval.
    assert statistics.median(cluster.selection_seconds) < 10.0
    print(
        f"{len(cluster.selection_seconds)} selections, "
        f"the slowest after {max(cluster.selection_seconds):.2f} s"
    )


async def is_on_host(cluster: GpuCluster, host: str) -> bool:
    return bool((await cluster.get_status("plain")).get("suitableHostName") == host)


async def has_event(cluster: GpuCluster, reason: str) -> bool:
    events = await cluster.call("GET", "/api/v1/namespaces/default/events")
    return any(event["reason"] == reason for event in events["items"])


async def test_calendar_and_labels_with_their_optional_roles(
    gpu_vcenter: SimulatedVCenter,
    log_file: Path,
    manager_kubeconfig: Path,
    tmp_path: Path,
    cluster: GpuCluster,
    config: Path,
) -> None:
    cluster.control_plane.kubectl("apply", "-f", str(config / "optional/label-suitable-nodes.yaml"))
    cluster.control_plane.kubectl("apply", "-f", str(config / "optional/maintenance-calendar.yaml"))
    credentials = write_credentials(tmp_path / "vc-creds", gpu_vcenter)
    maps = "/api/v1/namespaces/vsphere-operators-system/configmaps"
    text = (
        f"node=worker-1 start={timestamp_in_hours(5)} length=4h\n"
        "node=worker-2 start=never length=4h"
    )
    await cluster.call(
        "POST", maps, {"metadata": {"name": "maintenance"}, "data": {"windows": text}}
    )
    flags = (
        "--label-suitable-nodes",
        "--label-move-interval=1s",
        "--maintenance-calendar=vsphere-operators-system/maintenance",
    )
    label = f"gpuinfo.topology.corinternal.com/{cluster.namespace}.plain"

    async def is_labeled(*names: str) -> bool:
        nodes = await cluster.call("GET", f"/api/v1/nodes?labelSelector={label}")
        return [node["metadata"]["name"] for node in nodes["items"]] == list(names)

    try:
        async with run_vcenter_manager(
            log_file, manager_kubeconfig, credentials, gpu_vcenter.certificate, *flags
        ):
            await cluster.create_gpuinfo("plain", 100, False)
            await cluster.wait_for_node("plain", "worker-2")
            await eventually(lambda: is_labeled("worker-2"))
            await cluster.call(
                "PATCH", f"{maps}/maintenance", {"data": {"windows": ""}}, MERGE_PATCH_HEADERS
            )
            await cluster.time_selection("plain", "worker-1")
            await cluster.call(
                "PATCH", f"{maps}/maintenance", {"data": {"windows": text}}, MERGE_PATCH_HEADERS
            )
            await cluster.time_selection("plain", "worker-2")
            await cluster.call(
                "PATCH", f"{maps}/maintenance", {"data": {"windows": ""}}, MERGE_PATCH_HEADERS
            )
            await cluster.time_selection("plain", "worker-1")
            await eventually(lambda: is_labeled("worker-1"))
            await cluster.call(
                "DELETE", f"{GPUINFOS_PATH.format(namespace=cluster.namespace)}/plain"
            )
            await eventually(is_labeled)
            events = await cluster.call("GET", "/api/v1/namespaces/vsphere-operators-system/events")
            assert any(
                "Ignoring calendar windows line 2" in event["message"] for event in events["items"]
            )
    finally:
        await cluster.call("DELETE", f"{maps}/maintenance")
        cluster.control_plane.kubectl(
            "delete", "--ignore-not-found", "-f", str(config / "optional")
        )


async def test_negative_hours_are_rejected_and_an_empty_spec_is_served(
    gpu_manager: ManagerProcess, cluster: GpuCluster
) -> None:
    await cluster.create_gpuinfo("wrong", -5, True)
    path = GPUINFOS_PATH.format(namespace=cluster.namespace)
    await cluster.call(
        "POST",
        path,
        {
            "apiVersion": "topology.corinternal.com/v1",
            "kind": "GPUInfo",
            "metadata": {"name": "empty"},
        },
    )
    await cluster.wait_for_node("empty", "worker-1")
    assert (await cluster.wait_for_ready("wrong", "NegativeTime"))["status"] == "False"


async def test_first_selection_knows_scheduled_tasks_and_assignable_hardware(
    gpu_vcenter: SimulatedVCenter,
    log_file: Path,
    manager_kubeconfig: Path,
    tmp_path: Path,
    cluster: GpuCluster,
) -> None:
    hosts = [
        entity["name"] for entity in await gpu_vcenter.entities() if entity["type"] == "HostSystem"
    ]
    await gpu_vcenter.move_vm("worker-1", hosts[0])
    for name in ("worker-2", "worker-3", "worker-4"):
        await gpu_vcenter.move_vm(name, hosts[1])
    await gpu_vcenter.set_host_gpus(hosts[1], 2, "direct")
    await gpu_vcenter.schedule_maintenance(
        hosts[0], datetime.fromisoformat(timestamp_in_hours(50)), name="patch day"
    )
    credentials = write_credentials(tmp_path / "vc-creds", gpu_vcenter)
    async with run_vcenter_manager(
        log_file, manager_kubeconfig, credentials, gpu_vcenter.certificate, "--stats-interval=2s"
    ):
        await cluster.create_gpuinfo("short", 10, False)
        await cluster.create_gpuinfo("plain", 100, False)
        short = (await cluster.wait_for_node("short", "worker-1"))["candidates"][0]
        assert (short["maintenanceSource"], short["availableHours"]) == (
            'scheduled task "patch day" of vCenter 127.0.0.1',
            49,
        )
        assert (await cluster.wait_for_node("plain", "worker-2"))["refused"] == {
            "TooLittleTime": 1,
            "GPUPresent": 2,
        }
        conditions = {
            condition["type"]: condition["status"]
            for condition in (await cluster.get_status("plain"))["conditions"]
        }
        assert conditions == {"Ready": "True", "PlansKnown": "True"}
        await eventually(
            lambda: has_host_device(
                cluster, "assignable: 2 x NVIDIA A100-PCIE-40GB, 0 in use, 2 free"
            ),
            within=60,
        )
        await gpu_vcenter.add_gpu("worker-2", "dynamic")
        await gpu_vcenter.set_power("worker-2", on=False)
        await gpu_vcenter.set_power("worker-2", on=True)
        await cluster.create_gpuinfo("gpu", 100, True)
        await cluster.wait_for_node("gpu", "worker-2")
        device = "assignable: 2 x NVIDIA A100-PCIE-40GB, 1 in use, 1 free"
        await eventually(lambda: has_host_device(cluster, device, "gpu"), within=60)


async def has_host_device(cluster: GpuCluster, device: str, name: str = "plain") -> bool:
    candidates = (await cluster.get_status(name)).get("candidates", [])
    return any(device in candidate.get("hostDevices", []) for candidate in candidates)
