"""The documented privileges of the vCenter account suffice, and each of them is needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane, run_in_new_loop
from simulator import SimulatedVCenter
from support.info_client import InfoClient, write_credentials
from support.manager_process import (
    FREE_PORT_FLAGS,
    SERVICE_ACCOUNT,
    SYSTEM_NAMESPACE,
    ManagerProcess,
    ready_condition,
)
from support.vcenter_account import (
    ACCOUNT_FLAG,
    OPERATOR,
    OPERATOR_PASSWORD,
    SYSTEM_PRIVILEGES,
    grant_roles,
)
from support.vmgroup_client import TEMPLATE, VmGroupClient, group_folder_path, list_group_vms
from vsphere_operators.doctor.finding import Finding
from vsphere_operators.doctor.installation import Installation
from vsphere_operators.doctor.vcenter import check
from vsphere_operators.vcenters.config import VCenterConfig
from vsphere_operators.vsphere.address import Address
from vsphere_operators.vsphere.privileges import ROLES, Privilege, Role

from .gpu_cluster import NODE_UUIDS, GpuCluster

HOST_NAME, DISK_NAME, NODE_NAME = "esxi-dell-e.rainpole.com", "pvc-1", "worker-1"
# Without one of these a group is created, and its deletion fails.
NEEDED_FOR_DELETION = (
    "VirtualMachine.Interact.PowerOff",
    "VirtualMachine.Inventory.Delete",
    "Folder.Delete",
)
REMOVABLE = [
    pytest.param(role, privilege, id=privilege.name)
    for role in ROLES
    for privilege in role.privileges
    if privilege.name not in SYSTEM_PRIVILEGES
]


@pytest.fixture(scope="module")
def simulator(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SimulatedVCenter]:
    """A vCenter in which the template has a disk, a network and a vApp configuration."""
    simulator = SimulatedVCenter(
        pytestconfig.rootpath / ".testenv/bin/vcsim",
        tmp_path_factory.mktemp("vcsim"),
        "--clusters=1",
        "--hosts=1",
        "--vms=0",
        f"--template={TEMPLATE}",
        "--folder=vm-operator",
        ACCOUNT_FLAG,
        f"--host-name={HOST_NAME}",
        f"--fcd={DISK_NAME}",
        f"--node={NODE_NAME}={NODE_UUIDS[NODE_NAME]}",
        f"--gpu-vm={NODE_NAME}=vgpu",
    )

    async def start() -> None:
        await simulator.start()
        await simulator.set_vapp(TEMPLATE, hostname="from-the-ova")
        await simulator.set_stats(NODE_NAME, overallCpuDemand=1000, guestMemoryUsage=512)
        await simulator.create_storage_profile("gold", "gold-id")
        await grant_roles(simulator)

    run_in_new_loop(start())
    yield simulator
    run_in_new_loop(simulator.stop())


@pytest.fixture(scope="module")
def manager(
    installed: ControlPlane, simulator: SimulatedVCenter, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ManagerProcess]:
    """A manager that logs in with the account of the documentation."""
    folder = tmp_path_factory.mktemp("manager")
    kubeconfig = installed.write_service_account_kubeconfig(
        SYSTEM_NAMESPACE, SERVICE_ACCOUNT, folder / "kubeconfig"
    )
    credentials = write_credentials(
        folder / "vc-creds",
        simulator,
        GOVMOMI_USERNAME=OPERATOR,
        GOVMOMI_PASSWORD=OPERATOR_PASSWORD,
    )
    manager = ManagerProcess(
        folder / "manager.log",
        f"--kubeconfig={kubeconfig}",
        f"--vcenter-credentials={credentials}",
        f"--vcenter-ca-file={simulator.certificate}",
        "--zap-log-level=debug",
        *FREE_PORT_FLAGS,
    )
    manager.start()
    yield manager
    run_in_new_loop(manager.kill())


@pytest.fixture
async def groups(
    installed: ControlPlane, manager: ManagerProcess, namespace: str, config: Path
) -> AsyncIterator[VmGroupClient]:
    """VmGroups in a namespace with a Secret for cloud-init; they are deleted afterwards."""
    await manager.wait_for_log("logged in", within=40)
    installed.kubectl(
        "apply", "-n", namespace, "-f", str(config / "optional/cloud-init-secrets.yaml")
    )
    secret = ("secret", "generic", "boot", "--from-literal=user-data=#cloud-config")
    installed.kubectl("-n", namespace, "create", *secret)
    client = VmGroupClient(installed, namespace)
    yield client
    if (group := await client.find("web")) is None:
        return
    if "deletionTimestamp" in group["metadata"]:
        # A change enqueues the group if its deletion waits for the next retry.
        await client.patch_spec("web", cpu=2)
    else:
        await client.delete("web")
    await client.wait_until_deleted("web")


async def create_group(groups: VmGroupClient) -> str:
    """A group that uses every option that needs a privilege; returns its uid."""
    group = await groups.create(
        "web",
        replicas=1,
        storagePolicy="gold-id",
        bootstrap={"cloudInit": {"secretName": "boot"}},
    )
    return str(group["metadata"]["uid"])


async def list_findings(vcenter: SimulatedVCenter) -> list[Finding]:
    """What the doctor reports about the privileges of the account."""
    host, port = vcenter.address
    config = VCenterConfig(
        "lab",
        Address(host, port, ca_file=str(vcenter.certificate)),
        username=OPERATOR,
        password=OPERATOR_PASSWORD,
    )
    return [
        finding
        async for finding in check(config, (), Installation())
        if finding.subject == "privileges"
    ]


async def test_all_kinds_work_with_the_documented_privileges(
    simulator: SimulatedVCenter, groups: VmGroupClient
) -> None:
    plane, namespace = groups.control_plane, groups.namespace
    await simulator.reset_mutating_calls()
    infos, cluster = InfoClient(plane, namespace), GpuCluster(plane, namespace)
    await cluster.add_node(NODE_NAME, f"vsphere://{NODE_UUIDS[NODE_NAME]}")
    try:
        for kind, name in (
            ("HostInfo", HOST_NAME),
            ("VMInfo", NODE_NAME),
            ("FCDInfo", DISK_NAME),
            ("DatastoreInfo", "LocalDS_0"),
            ("ClusterInfo", "DC0_C0"),
        ):
            await infos.create(kind, "x", name)
            await infos.wait_for_status(kind, "x")
        await cluster.create_gpuinfo("gpu", 100, True)
        await cluster.wait_for_node("gpu", NODE_NAME)
    finally:
        await cluster.remove_nodes()
    uid = await create_group(groups)
    await groups.wait_for_phase("web", "RUNNING", within=60)
    await groups.patch_spec("web", replicas=2, cpu=2, memory=2)
    await groups.wait_for_phase(
        "web", "RUNNING", within=90, predicate=lambda status: status["currentReplicas"] == 2
    )
    vms = await list_group_vms(simulator, uid)
    assert [(vm.cpus, vm.memory_mb, vm.power) for vm in vms] == [(2, 2048, "poweredOn")] * 2
    await groups.delete("web")
    await groups.wait_until_deleted("web")
    assert await list_group_vms(simulator, uid) == []
    folder = group_folder_path(namespace, "web")
    assert folder not in {entity["path"] for entity in await simulator.entities()}
    calls = [call for call in await simulator.mutating_calls() if call["user"] == OPERATOR]
    assert {call["method"] for call in calls} >= {
        "CreateFolder",
        "CloneVM_Task",
        "PowerOffVM_Task",
        "ReconfigVM_Task",
        "PowerOnVM_Task",
        "Destroy_Task",
    }
    assert [call for call in calls if call.get("refused")] == []
    findings = await list_findings(simulator)
    assert [finding.level for finding in findings] == ["ok", "ok"]


@pytest.mark.parametrize(("role", "privilege"), REMOVABLE)
async def test_missing_privilege_is_reported_by_the_group_and_the_doctor(
    simulator: SimulatedVCenter, groups: VmGroupClient, role: Role, privilege: Privilege
) -> None:
    remaining = tuple(item for item in role.privileges if item is not privilege)
    deletes = privilege.name in NEEDED_FOR_DELETION
    uid = ""
    if deletes:
        uid = await create_group(groups)
        await groups.wait_for_phase("web", "RUNNING")
    await grant_roles(simulator, [replace(role, privileges=remaining)])
    try:
        if deletes:
            await groups.delete("web")
        else:
            uid = await create_group(groups)
        status = await eventually(partial(find_rejection, groups, privilege.name), within=60)
        assert status["phase"] == "ERROR"
        assert (
            "Grant that privilege to the role of the manager's vCenter account"
            in (status["lastMessage"])
        )
        assert deletes or await list_group_vms(simulator, uid) == []
        (finding,) = [item for item in await list_findings(simulator) if item.level != "ok"]
        assert finding.level == ("warning" if privilege.option else "problem")
        assert f'User "{OPERATOR}" lacks privilege {privilege.name} on ' in finding.message
        assert f"|| govc role.update {role.name} {' '.join(role.privilege_names)} && " in (
            finding.fix
        )
    finally:
        await grant_roles(simulator, [role])


async def find_rejection(groups: VmGroupClient, privilege: str) -> dict[str, str]:
    """The status, once it reports NoPermission with privilege and object; {} before."""
    group = await groups.get("web")
    status = dict(group.get("status", {}))
    is_named = f'the privilege "{privilege}" is missing on ' in status.get("lastMessage", "")
    return status if is_named and ready_condition(group)["reason"] == "NoPermission" else {}
