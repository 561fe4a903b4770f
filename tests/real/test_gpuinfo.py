"""GPUInfo on a real API server with real Nodes in front of a simulated vCenter, under the generated role."""

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


async def test_the_samples_and_everything_that_moves_an_answer(
    gpu_manager: ManagerProcess, gpu_vcenter: SimulatedVCenter, cluster: GpuCluster, config: Path
) -> None:
    for sample in sorted((config / "samples").glob("topology_v1_gpuinfo*.yaml")):
        cluster.control_plane.kubectl("apply", "-n", cluster.namespace, "-f", str(sample))
    await cluster.create_gpuinfo("plain", 100, False)
    for name in ("gpuinfo-sample", "gpu1", "gpu2", "gpu3", "gpu4"):
        found = await cluster.wait_for_node(name, "worker-3")
        assert (
            found["nodeCPUUsage"],
            found["nodeMemoryUsage"],
            found["availableAcceleratorTime"],
        ) == (3000, 512, 8760)
        assert found["refused"] == {"GPUMissing": 2}
        assert [each["node"] for each in found["candidates"]] == ["worker-3", "worker-4"]
        assert found["candidates"][0]["gpus"] == ["vm: vGPU grid_a100-10c"]
    table = cluster.control_plane.kubectl("get", "gpu", "-n", cluster.namespace)
    assert table.split("\n")[0].startswith(
        "NAME             DESIRED ACCESS TIME (HRS)   GPU REQUIRED"
    )
    first = await cluster.wait_for_node("plain", "worker-1")
    await cluster.patch_node("worker-1", {"spec": {"unschedulable": True}})
    await cluster.time_answer("plain", "worker-2")
    await cluster.patch_node("worker-1", {"spec": {"unschedulable": None}})
    await cluster.time_answer("plain", "worker-1")
    await cluster.patch_node_status("worker-1", ready="False")
    await cluster.time_answer("plain", "worker-2")
    await cluster.patch_node_status("worker-1", ready="True")
    await cluster.time_answer("plain", "worker-1")
    await gpu_vcenter.set_power("worker-1", on=False)
    await cluster.time_answer("plain", "worker-2")
    await gpu_vcenter.set_power("worker-1", on=True)
    await gpu_vcenter.set_stats("worker-1", overallCpuDemand=1000)
    await cluster.time_answer("plain", "worker-1")
    hosts = [each["name"] for each in await gpu_vcenter.entities() if each["type"] == "HostSystem"]
    other = next(host for host in hosts if host != first["suitableHostName"])
    await gpu_vcenter.move_vm("worker-1", other)
    await eventually(lambda: is_on_host(cluster, other), within=20)
    await gpu_vcenter.set_maintenance(other)
    assert (await cluster.time_answer("plain", "worker-2"))["suitableHostName"] != other
    await gpu_vcenter.set_maintenance(other, on=False)
    await cluster.time_answer("plain", "worker-1")
    await cluster.patch_node(
        "worker-1",
        {"metadata": {"annotations": {NEXT_MAINTENANCE_ANNOTATION: "2026-01-01T00:00:00Z"}}},
    )
    await gpu_vcenter.set_attribute(other, NEXT_MAINTENANCE_ANNOTATION, "2000-99-99")
    await eventually(lambda: has_event(cluster, "MaintenanceUnreadable"), within=10)
    await cluster.patch_node(
        "worker-1",
        {"metadata": {"annotations": {NEXT_MAINTENANCE_ANNOTATION: timestamp_in_hours(50)}}},
    )
    assert (await cluster.time_answer("plain", "worker-2"))["refused"]["TooLittleTime"] == 1
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
    assert statistics.median(cluster.answer_seconds) < 1.0, "an answer follows within a second"
    print(
        f"{len(cluster.answer_seconds)} answers followed, the slowest after {max(cluster.answer_seconds):.2f} s"
    )


async def is_on_host(cluster: GpuCluster, host: str) -> bool:
    return bool((await cluster.get_status("plain")).get("suitableHostName") == host)


async def has_event(cluster: GpuCluster, reason: str) -> bool:
    events = await cluster.call("GET", "/api/v1/namespaces/default/events")
    return any(event["reason"] == reason for event in events["items"])


async def test_a_calendar_and_labels_with_the_rights_that_are_given_for_them(
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
    text = f"node=worker-1 start={timestamp_in_hours(5)} length=4h\nnode=worker-2 start=never length=4h"
    await cluster.call(
        "POST", maps, {"metadata": {"name": "maintenance"}, "data": {"windows": text}}
    )
    flags = (
        "--label-suitable-nodes",
        "--maintenance-calendar=vsphere-operators-system/maintenance",
    )
    label = f"gpuinfo.topology.corinternal.com/{cluster.namespace}.plain"

    async def labelled(*names: str) -> bool:
        return cluster.control_plane.kubectl("get", "nodes", "-l", label, "-o", "name").split() == [
            f"node/{name}" for name in names
        ]

    try:
        async with run_vcenter_manager(
            log_file, manager_kubeconfig, credentials, gpu_vcenter.certificate, *flags
        ):
            await cluster.create_gpuinfo("plain", 100, False)
            await cluster.wait_for_node("plain", "worker-2")
            await eventually(lambda: labelled("worker-2"))
            await cluster.call(
                "PATCH", f"{maps}/maintenance", {"data": {"windows": ""}}, MERGE_PATCH_HEADERS
            )
            await cluster.time_answer("plain", "worker-1")
            await cluster.call(
                "PATCH", f"{maps}/maintenance", {"data": {"windows": text}}, MERGE_PATCH_HEADERS
            )
            await cluster.time_answer("plain", "worker-2")
            await cluster.call(
                "PATCH", f"{maps}/maintenance", {"data": {"windows": ""}}, MERGE_PATCH_HEADERS
            )
            await cluster.time_answer("plain", "worker-1")
            await eventually(lambda: labelled("worker-1"))
            await cluster.call(
                "DELETE", f"{GPUINFOS_PATH.format(namespace=cluster.namespace)}/plain"
            )
            await eventually(labelled)
            events = await cluster.call("GET", "/api/v1/namespaces/vsphere-operators-system/events")
            assert any(
                "calendar windows line 2 cannot be used" in event["message"]
                for event in events["items"]
            )
    finally:
        await cluster.call("DELETE", f"{maps}/maintenance")
        cluster.control_plane.kubectl(
            "delete", "--ignore-not-found", "-f", str(config / "optional")
        )


async def test_negative_hours_are_refused_in_words_and_an_empty_spec_is_answered(
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


async def test_scheduled_tasks_and_assignable_hardware_are_in_the_first_answer(
    gpu_vcenter: SimulatedVCenter,
    log_file: Path,
    manager_kubeconfig: Path,
    tmp_path: Path,
    cluster: GpuCluster,
) -> None:
    hosts = [each["name"] for each in await gpu_vcenter.entities() if each["type"] == "HostSystem"]
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
            each["type"]: each["status"]
            for each in (await cluster.get_status("plain"))["conditions"]
        }
        assert conditions == {"Ready": "True", "PlansKnown": "True"}
        await eventually(
            lambda: has_host_device(
                cluster, "assignable: 2 x NVIDIA A100-PCIE-40GB, 0 in use, 2 free"
            ),
            within=20,
        )
        await gpu_vcenter.add_gpu("worker-2", "dynamic")
        await gpu_vcenter.set_power("worker-2", on=False)
        await gpu_vcenter.set_power("worker-2", on=True)
        await cluster.create_gpuinfo("gpu", 100, True)
        await cluster.wait_for_node("gpu", "worker-2")
        wanted = "assignable: 2 x NVIDIA A100-PCIE-40GB, 1 in use, 1 free"
        await eventually(lambda: has_host_device(cluster, wanted, "gpu"), within=20)


async def has_host_device(cluster: GpuCluster, words: str, name: str = "plain") -> bool:
    candidates = (await cluster.get_status(name)).get("candidates", [])
    return any(words in each.get("hostDevices", []) for each in candidates)
