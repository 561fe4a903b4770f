"""Rejections of Nodes on a real API server with simulated vCenters: each is caused and undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator import SimulatedVCenter
from support.info_client import run_vcenter_manager, write_credentials
from support.manager_process import FREE_PORT_FLAGS, SYSTEM_NAMESPACE, ManagerProcess, run_manager

from .gpu_cluster import NODE_UUIDS, GpuCluster, timestamp_in_hours


async def test_missing_ambiguous_and_disconnected_vms_and_hosts(
    gpu_manager: ManagerProcess, gpu_vcenter: SimulatedVCenter, cluster: GpuCluster
) -> None:
    await cluster.create_gpuinfo("plain", 100, False)
    first = await cluster.wait_for_node("plain", "worker-1")
    assert [candidate["matchedBy"] for candidate in first["candidates"]] == ["providerID", "name"]
    assert "unmatched" not in first
    await cluster.add_node("stranger", "vsphere://00000000-0000-4000-8000-000000000000")
    status = await cluster.wait_for_rejections("plain", VMNotFound=1, GPUPresent=2)
    assert [(node["node"], node["reason"]) for node in status["unmatched"]["nodes"]] == [
        ("stranger", "VMNotFound")
    ]
    await cluster.call("DELETE", "/api/v1/nodes/stranger")
    await gpu_vcenter.set_property("worker-2", "config.uuid", NODE_UUIDS["worker-1"])
    await cluster.time_selection("plain", "worker-2")
    status = await cluster.wait_for_rejections("plain", VMAmbiguous=1, GPUPresent=2)
    assert "2 VMs have the uuid of the Node" in status["unmatched"]["nodes"][0]["message"]
    await gpu_vcenter.set_property("worker-2", "config.uuid", NODE_UUIDS["worker-2"])
    await cluster.time_selection("plain", "worker-1")
    await gpu_vcenter.set_property("worker-1", "runtime.connectionState", "inaccessible")
    await cluster.time_selection("plain", "worker-2")
    await cluster.wait_for_rejections("plain", VMUnavailable=1, GPUPresent=2)
    await gpu_vcenter.set_property("worker-1", "runtime.connectionState", "connected")
    recovered = await cluster.time_selection("plain", "worker-1")
    hosts = [
        entity["name"] for entity in await gpu_vcenter.entities() if entity["type"] == "HostSystem"
    ]
    other = next(host for host in hosts if host != recovered["candidates"][1]["host"])
    await gpu_vcenter.move_vm("worker-1", other)
    await gpu_vcenter.set_host_connected(other, False)
    assert (await cluster.time_selection("plain", "worker-2"))["refused"]["HostDisconnected"] >= 1


async def test_hidden_devices_reject_a_node(
    gpu_vcenter: SimulatedVCenter,
    log_file: Path,
    manager_kubeconfig: Path,
    tmp_path: Path,
    cluster: GpuCluster,
) -> None:
    await gpu_vcenter.fail_calls("RetrievePropertiesEx", "NoPermission", count=0)
    credentials = write_credentials(tmp_path / "vc-creds", gpu_vcenter)
    async with run_vcenter_manager(
        log_file, manager_kubeconfig, credentials, gpu_vcenter.certificate, "--stats-interval=2s"
    ):
        await cluster.create_gpuinfo("plain", 100, False)
        await cluster.wait_for_rejections("plain", DevicesHidden=4)
        await cluster.patch_node_status(
            "worker-1", ready="True", allocatable={"nvidia.com/gpu": "1"}
        )
        await cluster.wait_for_rejections("plain", DevicesHidden=3, GPUPresent=1)
        await gpu_vcenter.clear_rules()
        await gpu_vcenter.add_gpu("worker-2")
        await cluster.wait_for_rejections("plain", DevicesHidden=2, GPUPresent=2)


async def test_outage_of_one_of_two_vcenters(
    gpu_vcenter: SimulatedVCenter,
    pytestconfig: pytest.Config,
    log_file: Path,
    manager_kubeconfig: Path,
    tmp_path: Path,
    cluster: GpuCluster,
) -> None:
    uuid = "42030000-0000-4000-8000-0000000000aa"
    flags = ("--clusters=1", "--hosts=1", "--vms=0", f"--node=eastern={uuid}")
    east = SimulatedVCenter(pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "east", *flags)
    await east.start()
    try:
        await east.set_stats("eastern", overallCpuDemand=100, guestMemoryUsage=512)
        await cluster.add_node("eastern", f"vsphere://{uuid}")
        file = write_vcenters_file(tmp_path, west=gpu_vcenter, east=east)
        manager_flags = (
            f"--kubeconfig={manager_kubeconfig}",
            *FREE_PORT_FLAGS,
            f"--vcenters={file}",
            "--stats-interval=2s",
        )
        async with run_manager(log_file, *manager_flags):
            await cluster.create_gpuinfo("plain", 100, False)
            status = await cluster.wait_for_node("plain", "eastern")
            assert [(node["node"], node["vcenter"]) for node in status["candidates"]] == [
                ("eastern", "east"),
                ("worker-1", "west"),
                ("worker-2", "west"),
            ]
            await east.set_power("eastern", on=False)
            await cluster.time_selection("plain", "worker-1")
            await east.set_power("eastern", on=True)
            await east.set_stats("eastern", overallCpuDemand=100)
            await cluster.time_selection("plain", "eastern")
            await east.set_outage("reset")
            assert (await cluster.wait_for_node("plain", "worker-1", within=60))["refused"][
                "VCenterUnreachable"
            ] >= 1
    finally:
        await east.stop()


def write_vcenters_file(folder: Path, **vcenters: SimulatedVCenter) -> Path:
    """Write a file of several vCenters, each with its own credentials."""
    lines, namespaces = ["vcenters:"], "namespaces: {names: [other]}"
    for name, vcenter in vcenters.items():
        credentials = write_credentials(folder / f"creds-{name}", vcenter)
        lines.append(
            f"- {{name: {name}, server: '{vcenter.url}', credentials: {credentials}, "
            f"ca: {vcenter.certificate}, {namespaces}}}"
        )
        namespaces = ""
    file = folder / "vcenters.yaml"
    file.write_text("\n".join(lines))
    return file


async def test_no_node_is_selected_before_the_calendar_can_be_read(
    gpu_vcenter: SimulatedVCenter,
    log_file: Path,
    manager_kubeconfig: Path,
    tmp_path: Path,
    cluster: GpuCluster,
    config: Path,
) -> None:
    credentials = write_credentials(tmp_path / "vc-creds", gpu_vcenter)
    maps, role = (
        f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps",
        str(config / "optional/maintenance-calendar.yaml"),
    )
    flag = f"--maintenance-calendar={SYSTEM_NAMESPACE}/maintenance"
    try:
        async with run_vcenter_manager(
            log_file, manager_kubeconfig, credentials, gpu_vcenter.certificate, flag
        ):
            await cluster.create_gpuinfo("plain", 100, False)
            message = (await cluster.wait_for_ready("plain", "CalendarUnreadable"))["message"]
            assert 'configmaps "maintenance" is forbidden' in message
            assert f"If {SYSTEM_NAMESPACE} is the right namespace" in message
            assert "write that namespace into config/optional/maintenance-calendar.yaml" in message
            assert "suitableNodeName" not in await cluster.get_status("plain")
            cluster.control_plane.kubectl("apply", "-f", role)
            await cluster.call(
                "POST",
                maps,
                {
                    "metadata": {"name": "maintenance"},
                    "data": {"w": f"node=worker-1 start={timestamp_in_hours(5)} length=4h"},
                },
            )
            assert (await cluster.wait_for_node("plain", "worker-2"))["refused"][
                "TooLittleTime"
            ] == 1
            await cluster.call("DELETE", f"{maps}/maintenance")
            message = (await cluster.wait_for_ready("plain", "CalendarUnreadable"))["message"]
            assert f"ConfigMap {SYSTEM_NAMESPACE}/maintenance, does not exist" in message
            assert (await cluster.get_status("plain"))["suitableNodeName"] == "worker-2"
    finally:
        cluster.control_plane.kubectl("delete", "--ignore-not-found", "-f", role)


async def test_labels_and_finalizers_are_removed_when_labeling_is_off(
    gpu_vcenter: SimulatedVCenter,
    log_file: Path,
    manager_kubeconfig: Path,
    tmp_path: Path,
    cluster: GpuCluster,
    config: Path,
) -> None:
    role = str(config / "optional/label-suitable-nodes.yaml")
    credentials = write_credentials(tmp_path / "vc-creds", gpu_vcenter)
    finalizer = "gpuinfo.topology.corinternal.com/label"
    label = f"gpuinfo.topology.corinternal.com/{cluster.namespace}.plain"
    await cluster.create_gpuinfo("plain", 100, False)
    await cluster.patch_gpuinfo("plain", {"metadata": {"finalizers": [finalizer]}})
    await cluster.patch_node("worker-1", {"metadata": {"labels": {label: "true"}}})
    try:
        async with run_vcenter_manager(
            log_file, manager_kubeconfig, credentials, gpu_vcenter.certificate
        ) as manager:
            await cluster.wait_for_event("FinalizerLeft", cluster.namespace)
            await cluster.wait_for_event("LabelLeft", "default")
            cluster.control_plane.kubectl("apply", "-f", role)
            await manager.wait_for_log(
                "labels and finalizers of -label-suitable-nodes are gone", within=60
            )
        assert cluster.control_plane.kubectl("get", "nodes", "-l", label, "-o", "name") == ""
        assert (
            cluster.control_plane.kubectl(
                "get",
                "gpu",
                "plain",
                "-n",
                cluster.namespace,
                "-o",
                "jsonpath={.metadata.finalizers}",
            )
            == ""
        )
    finally:
        await cluster.patch_gpuinfo("plain", {"metadata": {"finalizers": None}})
        cluster.control_plane.kubectl("delete", "--ignore-not-found", "-f", role)
