"""What keeps a Node from being named, on a real API server and simulated vCenters: each reason made, seen and undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator import SimulatedVCenter

from .gpunodes import NODES, Cluster, soon
from .managing import EVERYWHERE, SYSTEM, ManagerProcess, started
from .vsphere import credentials_in, managing


async def test_vms_and_hosts_that_are_lost_or_unclear(
    gpu_manager: ManagerProcess, gpu_vcenter: SimulatedVCenter, cluster: Cluster
) -> None:
    await cluster.ask("plain", 100, False)
    first = await cluster.answers("plain", "worker-1")
    assert [each["matchedBy"] for each in first["candidates"]] == ["providerID", "name"]
    assert "unmatched" not in first
    await cluster.add_node("stranger", "vsphere://00000000-0000-4000-8000-000000000000")
    found = await cluster.refused("plain", VMNotFound=1, GPUPresent=2)
    assert [(each["node"], each["reason"]) for each in found["unmatched"]["nodes"]] == [
        ("stranger", "VMNotFound")
    ]
    await cluster.call("DELETE", "/api/v1/nodes/stranger")
    await gpu_vcenter.set_property("worker-2", "config.uuid", NODES["worker-1"])
    await cluster.follows("plain", "worker-2")
    found = await cluster.refused("plain", VMAmbiguous=1, GPUPresent=2)
    assert "2 VMs have its uuid" in found["unmatched"]["nodes"][0]["message"]
    await gpu_vcenter.set_property("worker-2", "config.uuid", NODES["worker-2"])
    await cluster.follows("plain", "worker-1")
    await gpu_vcenter.set_property("worker-1", "runtime.connectionState", "inaccessible")
    await cluster.follows("plain", "worker-2")
    await cluster.refused("plain", VMUnavailable=1, GPUPresent=2)
    await gpu_vcenter.set_property("worker-1", "runtime.connectionState", "connected")
    back = await cluster.follows("plain", "worker-1")
    hosts = [each["name"] for each in await gpu_vcenter.entities() if each["type"] == "HostSystem"]
    other = next(host for host in hosts if host != back["candidates"][1]["host"])
    await gpu_vcenter.move_vm("worker-1", other)
    await gpu_vcenter.set_host_connected(other, False)
    assert (await cluster.follows("plain", "worker-2"))["refused"]["HostDisconnected"] >= 1


async def test_devices_that_vcenter_hides_are_no_proof_of_anything(
    gpu_vcenter: SimulatedVCenter,
    log: Path,
    service_account: Path,
    tmp_path: Path,
    cluster: Cluster,
) -> None:
    await gpu_vcenter.fail_calls("RetrievePropertiesEx", "NoPermission", count=0)
    credentials = credentials_in(tmp_path / "vc-creds", gpu_vcenter)
    async with managing(
        log, service_account, credentials, gpu_vcenter.certificate, "--stats-interval=2s"
    ):
        await cluster.ask("plain", 100, False)
        await cluster.refused("plain", DevicesHidden=4)
        await cluster.node_status("worker-1", ready="True", allocatable={"nvidia.com/gpu": "1"})
        await cluster.refused("plain", DevicesHidden=3, GPUPresent=1)
        await gpu_vcenter.clear_rules()
        await gpu_vcenter.add_gpu("worker-2")
        await cluster.refused("plain", DevicesHidden=2, GPUPresent=2)


async def test_two_vcenters_of_which_one_falls_silent(
    gpu_vcenter: SimulatedVCenter,
    pytestconfig: pytest.Config,
    log: Path,
    service_account: Path,
    tmp_path: Path,
    cluster: Cluster,
) -> None:
    uuid = "42030000-0000-4000-8000-0000000000aa"
    flags = ("--clusters=1", "--hosts=1", "--vms=0", f"--node=eastern={uuid}")
    east = SimulatedVCenter(pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "east", *flags)
    await east.start()
    try:
        await east.set_stats("eastern", overallCpuDemand=100, guestMemoryUsage=512)
        await cluster.add_node("eastern", f"vsphere://{uuid}")
        file = vcenters_file(tmp_path, west=gpu_vcenter, east=east)
        given = (
            f"--kubeconfig={service_account}",
            *EVERYWHERE,
            f"--vcenters={file}",
            "--stats-interval=2s",
        )
        async with started(log, *given):
            await cluster.ask("plain", 100, False)
            found = await cluster.answers("plain", "eastern")
            assert [(each["node"], each["vcenter"]) for each in found["candidates"]] == [
                ("eastern", "east"),
                ("worker-1", "west"),
                ("worker-2", "west"),
            ]
            await east.set_power("eastern", on=False)
            await cluster.follows("plain", "worker-1")
            await east.set_power("eastern", on=True)
            await east.set_stats("eastern", overallCpuDemand=100)
            await cluster.follows("plain", "eastern")
            await east.set_outage("reset")
            assert (await cluster.answers("plain", "worker-1", within=60))["refused"][
                "VCenterUnreachable"
            ] >= 1
    finally:
        await east.stop()


def vcenters_file(folder: Path, **vcenters: SimulatedVCenter) -> Path:
    """A file of several vCenters, each with its own credentials."""
    lines, serves = ["vcenters:"], "namespaces: {names: [nobody]}"
    for name, vcenter in vcenters.items():
        credentials = credentials_in(folder / f"creds-{name}", vcenter)
        lines.append(
            f"- {{name: {name}, server: '{vcenter.url}', credentials: {credentials}, ca: {vcenter.certificate}, {serves}}}"
        )
        serves = ""
    file = folder / "vcenters.yaml"
    file.write_text("\n".join(lines))
    return file


async def test_no_node_is_named_before_the_calendar_can_be_read(
    gpu_vcenter: SimulatedVCenter,
    log: Path,
    service_account: Path,
    tmp_path: Path,
    cluster: Cluster,
    config: Path,
) -> None:
    credentials = credentials_in(tmp_path / "vc-creds", gpu_vcenter)
    maps, role = (
        f"/api/v1/namespaces/{SYSTEM}/configmaps",
        str(config / "optional/maintenance-calendar.yaml"),
    )
    flag = f"--maintenance-calendar={SYSTEM}/maintenance"
    try:
        async with managing(log, service_account, credentials, gpu_vcenter.certificate, flag):
            await cluster.ask("plain", 100, False)
            told = (await cluster.ready("plain", "CalendarUnreadable"))["message"]
            assert "configmaps is forbidden" in told
            assert f"If {SYSTEM} is the right namespace" in told
            assert "write that namespace into config/optional/maintenance-calendar.yaml" in told
            assert "suitableNodeName" not in await cluster.status("plain")
            cluster.plane.kubectl("apply", "-f", role)
            await cluster.call(
                "POST",
                maps,
                {
                    "metadata": {"name": "maintenance"},
                    "data": {"w": f"node=worker-1 start={soon(5)} length=4h"},
                },
            )
            assert (await cluster.answers("plain", "worker-2"))["refused"]["TooLittleTime"] == 1
            await cluster.call("DELETE", f"{maps}/maintenance")
            told = (await cluster.ready("plain", "CalendarUnreadable"))["message"]
            assert f"ConfigMap {SYSTEM}/maintenance, does not exist" in told
            assert (await cluster.status("plain"))["suitableNodeName"] == "worker-2"
    finally:
        cluster.plane.kubectl("delete", "--ignore-not-found", "-f", role)


async def test_what_labelling_left_goes_by_itself(
    gpu_vcenter: SimulatedVCenter,
    log: Path,
    service_account: Path,
    tmp_path: Path,
    cluster: Cluster,
    config: Path,
) -> None:
    role = str(config / "optional/label-suitable-nodes.yaml")
    credentials = credentials_in(tmp_path / "vc-creds", gpu_vcenter)
    finalizer = "gpuinfo.topology.corinternal.com/label"
    label = f"gpuinfo.topology.corinternal.com/{cluster.namespace}.plain"
    await cluster.ask("plain", 100, False)
    await cluster.patch_info("plain", {"metadata": {"finalizers": [finalizer]}})
    await cluster.patch_node("worker-1", {"metadata": {"labels": {label: "true"}}})
    try:
        async with managing(log, service_account, credentials, gpu_vcenter.certificate) as manager:
            await cluster.event("FinalizerLeft", cluster.namespace)
            await cluster.event("LabelLeft", "default")
            cluster.plane.kubectl("apply", "-f", role)
            await manager.says("labels and finalizers of -label-suitable-nodes are gone", within=60)
        assert cluster.plane.kubectl("get", "nodes", "-l", label, "-o", "name") == ""
        assert (
            cluster.plane.kubectl(
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
        await cluster.patch_info("plain", {"metadata": {"finalizers": None}})
        cluster.plane.kubectl("delete", "--ignore-not-found", "-f", role)
