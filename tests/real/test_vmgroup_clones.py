"""What a clone takes from its template: disks for a storage policy, vApp, CPU topology."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path
from typing import Any

import pytest

from hack.docgen.markdown import fenced_blocks
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.simulator_state import read_simulator_state
from support.tutorial_runner import TutorialRunner
from support.vmgroup_client import TEMPLATE, VmGroupClient, list_group_vms

from .crash_run import run_observed_manager
from .group_lifecycle import OTHER_TEMPLATE
from .vsphere_user import VSphereUser


async def list_vm_details(vcenter: SimulatedVCenter, uid: str) -> list[dict[str, Any]]:
    refs = {vm.ref for vm in await list_group_vms(vcenter, uid)}
    return [vm for vm in await vcenter.vms() if vm["ref"] in refs]


async def test_a_storage_policy_reaches_the_home_and_every_disk(
    installed: ControlPlane, simulator: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    policy = await simulator.create_storage_profile("gold")
    await simulator.create_disk("second-disk")
    await simulator.attach_disk("second-disk", TEMPLATE)
    async with run_observed_manager(installed, simulator, namespace, tmp_path / "m"):
        groups = VmGroupClient(installed, namespace)
        group = await groups.create("web", replicas=2, storagePolicy=policy)
        await groups.wait_for_phase("web", "RUNNING")
        (template,) = [vm for vm in await simulator.vms() if vm["name"] == TEMPLATE]
        assert len(template["diskKeys"]) == 2
        disks = {str(key): policy for key in template["diskKeys"]}
        vms = await list_vm_details(simulator, group["metadata"]["uid"])
        assert [vm["profiles"] for vm in vms] == [{"home": policy, "disks": disks}] * 2
        # A policy that does not exist is an error of the user, which the status reports.
        await groups.create("lost", replicas=1, storagePolicy="no-such-policy")
        status = await groups.wait_for_phase("lost", "ERROR")
        assert "profileId" in status["lastMessage"]


async def test_cloud_init_removes_the_ovf_properties_of_the_template(
    installed: ControlPlane,
    simulator: SimulatedVCenter,
    namespace: str,
    tmp_path: Path,
    pytestconfig: pytest.Config,
) -> None:
    await simulator.set_vapp(TEMPLATE, hostname="ova")
    permissions = str(pytestconfig.rootpath / "config/optional/cloud-init-secrets.yaml")
    await asyncio.to_thread(installed.kubectl, "apply", "-n", namespace, "-f", permissions)
    secret = ("create", "secret", "generic", "boot", "-n", namespace)
    await asyncio.to_thread(installed.kubectl, *secret, "--from-literal=user-data=#cloud-config")
    async with run_observed_manager(installed, simulator, namespace, tmp_path / "m"):
        groups = VmGroupClient(installed, namespace)
        uids = {
            name: (await groups.create(name, replicas=1, **spec))["metadata"]["uid"]
            for name, spec in {
                "init": {"bootstrap": {"cloudInit": {"secretName": "boot"}}},
                "plain": {},
            }.items()
        }
        for name in uids:
            await groups.wait_for_phase(name, "RUNNING")
        (with_init,) = await list_vm_details(simulator, uids["init"])
        (plain,) = await list_vm_details(simulator, uids["plain"])
        assert (with_init["hasVApp"], plain["hasVApp"], plain["vApp"]) == (
            False,
            True,
            {"hostname": "ova"},
        )


async def test_the_documented_user_data_reaches_the_vms(
    installed: ControlPlane,
    simulator: SimulatedVCenter,
    binaries: dict[str, Path],
    tmp_path: Path,
    pytestconfig: pytest.Config,
) -> None:
    """Runs the section about cloud-init of docs/howto/vmgroup.md, in the namespace `default`."""
    root = pytestconfig.rootpath
    blocks = fenced_blocks((root / "docs/howto/vmgroup.md").read_text())
    (manifest,) = [block.text for block in blocks if block.argument == "web.yaml"]
    (commands,) = [block.text for block in blocks if "create secret" in block.text]
    (tmp_path / "web.yaml").write_text(manifest)
    (tmp_path / "config").symlink_to(root / "config")
    runner = TutorialRunner(
        tmp_path,
        {
            "PATH": f"{binaries['kubectl'].parent}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "KUBECONFIG": str(installed.admin_kubeconfig),
            "TUTORIAL_FOLDER_FILE": str(tmp_path / "folder"),
        },
    )
    groups = VmGroupClient(installed, "default")
    try:
        await asyncio.to_thread(runner.run_commands, f"kubectl apply -f web.yaml\n{commands}")
        async with run_observed_manager(installed, simulator, "default", tmp_path / "m"):
            await groups.wait_for_phase("web", "RUNNING")
            uid = (await groups.get("web"))["metadata"]["uid"]
            ref = (await list_group_vms(simulator, uid))[0].ref
            options = await VSphereUser(simulator).call_on(
                lambda vm: {option.key: option.value for option in vm.config.extraConfig}, ref
            )
            assert base64.b64decode(options["guestinfo.userdata"]) == b"#cloud-config"
            await groups.delete("web")
            await groups.wait_until_deleted("web")
    finally:
        # The namespace is not the test's own.
        delete = ("delete", "--ignore-not-found", "-n", "default")
        permissions = str(root / "config/optional/cloud-init-secrets.yaml")
        await asyncio.to_thread(installed.kubectl, *delete, "secret", "web-init")
        await asyncio.to_thread(installed.kubectl, *delete, "-f", permissions)


async def test_only_allowed_templates_can_be_used_by_name_or_path(
    installed: ControlPlane, simulator: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    paths = {entity["name"]: entity["path"] for entity in await simulator.entities()}
    flag = f"-vmgroup-allowed-template={paths[TEMPLATE]}"
    async with run_observed_manager(installed, simulator, namespace, tmp_path / "m", flag):
        groups = VmGroupClient(installed, namespace)
        for name, template in (("by-name", OTHER_TEMPLATE), ("by-path", paths[OTHER_TEMPLATE])):
            await groups.create(name, replicas=1, template=template)
            status = await groups.wait_for_phase(name, "ERROR")
            assert f"not found in {paths[TEMPLATE]}" in status["lastMessage"]
        await groups.create("allowed", replicas=1)
        await groups.wait_for_phase("allowed", "RUNNING")
        assert len((await read_simulator_state(simulator)).marked_vms) == 1


async def test_the_cores_per_socket_of_the_template_fit_the_size(
    installed: ControlPlane, simulator: SimulatedVCenter, namespace: str, tmp_path: Path
) -> None:
    await simulator.set_cpu_topology(TEMPLATE, 4, 4)
    async with run_observed_manager(installed, simulator, namespace, tmp_path / "m"):
        groups = VmGroupClient(installed, namespace)
        # 3 CPUs cannot have the 4 cores per socket of the template: without a value of its own,
        # vCenter rejects the clone.
        uid = (await groups.create("web", cpu=3, replicas=1))["metadata"]["uid"]
        sizes = []
        for cpu in (3, 4, 2):
            await groups.patch_spec("web", cpu=cpu)
            await groups.wait_for_phase("web", "RUNNING")
            (vm,) = await list_vm_details(simulator, uid)
            sizes.append((vm["cpus"], vm["coresPerSocket"]))
        assert sizes == [(3, 1), (4, 4), (2, 1)]
