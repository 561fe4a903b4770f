"""Invalid input of a VmGroup is rejected by the API server, or reported in its status."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kubewright.testing.cluster_access import HttpError
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.manager_process import ready_condition
from support.simulator_state import read_simulator_state
from support.vmgroup_client import PARENT_FOLDER, TEMPLATE, VmGroupClient, group_folder_path

from .crash_injection import CrashInjector
from .crash_run import run_observed_manager, run_simulator
from .group_lifecycle import OTHER_TEMPLATE
from .vsphere_user import VSphereUser

INVALID_SPECS: list[dict[str, Any]] = [
    {"cpu": 5},
    {"cpu": 0},
    {"cpu": -1},
    {"cpu": "two"},
    {"memory": 0},
    {"memory": 9},
    {"replicas": -1},
    {"replicas": 0},
    {"template": ""},
    {"template": None},
    {"cpu": None},
]
MISSING_TEMPLATES = [
    "../../x",
    "../vm-operator-template",
    "/DC0/vm/vm-operator/../../x",
    "*",
    "vm-operator-*",
    "?m-operator-template",
    "[v]m-operator-template",
    "%2f",
    "vm-operator%2ftemplate",
    "two\nlines",
    "emoji 🐮",
    " vm-operator-template",
    "VM-OPERATOR-TEMPLATE",
    "t" * 300,
    "DC0_C0_RP0_VM0",  # a VM that is not a template
]
MAX_NAME_LENGTH = 253


@dataclass(frozen=True)
class GroupHarness:
    """The groups of a namespace, their vCenter, and the calls that the manager operations."""

    client: VmGroupClient
    vcenter: SimulatedVCenter
    injector: CrashInjector


@pytest.fixture
async def harness(
    pytestconfig: pytest.Config, installed: ControlPlane, namespace: str, tmp_path: Path
) -> AsyncIterator[GroupHarness]:
    async with (
        run_simulator(pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim") as vcenter,
        run_observed_manager(installed, vcenter, namespace, tmp_path / "manager") as (_, injector),
    ):
        yield GroupHarness(VmGroupClient(installed, namespace), vcenter, injector)


@pytest.mark.parametrize("wrong", INVALID_SPECS, ids=str)
async def test_an_invalid_spec_is_rejected_by_the_crd(
    installed: ControlPlane, namespace: str, wrong: dict[str, Any]
) -> None:
    with pytest.raises(HttpError, match=f"spec.{next(iter(wrong))}"):
        await VmGroupClient(installed, namespace).create("wrong", **wrong)


async def test_a_missing_template_is_an_error_and_sends_no_call(
    harness: GroupHarness,
) -> None:
    templates_by_name = {
        f"wrong-{number}": template for number, template in enumerate(MISSING_TEMPLATES)
    }
    for name, template in list(templates_by_name.items()):
        if not await is_accepted(harness.client, name, template):
            del templates_by_name[name]
    before = await read_simulator_state(harness.vcenter)
    for name, template in templates_by_name.items():
        status = await harness.client.wait_for_phase(name, "ERROR")
        assert "template" in status["lastMessage"], template
        assert len(status["lastMessage"]) < 1000
    await harness.client.create("right", replicas=1)
    await harness.client.wait_for_phase("right", "RUNNING")
    operations = [
        call.operation
        for call in harness.injector.calls
        if call.operation.endswith("_Task") or call.operation == "CreateFolder"
    ]
    assert sorted(operations) in (
        ["CloneVM_Task", "CreateFolder"],
        ["CloneVM_Task", "CreateFolder", "PowerOnVM_Task"],
    )
    after = await read_simulator_state(harness.vcenter)
    refs_before = {vm.ref for vm in before.vms}
    folders = {vm.folder for vm in after.vms if vm.ref not in refs_before}
    assert folders == {group_folder_path(harness.client.namespace, "right")}


async def is_accepted(groups: VmGroupClient, name: str, template: str) -> bool:
    """Whether the API server accepts this template; if not, it has to name the field."""
    try:
        await groups.create(name, template=template, replicas=1)
    except HttpError as error:
        if error.status != 422 or "spec.template" not in str(error):
            raise
        return False
    return True


async def test_names_that_are_too_long_for_vcenter_are_shortened_and_stay_distinct(
    harness: GroupHarness,
) -> None:
    names = ["n" * (MAX_NAME_LENGTH - 1) + end for end in "ab"]
    for name in names:
        await harness.client.create(name, replicas=1)
    for name in names:
        await harness.client.wait_for_phase(name, "RUNNING")
    vms = (await read_simulator_state(harness.vcenter)).marked_vms
    assert len(vms) == 2
    assert len({vm.folder for vm in vms}) == 2
    assert all(len(vm.name) <= 80 and "-replica-" in vm.name for vm in vms)
    assert all(len(vm.folder.rpartition("/")[2]) <= 80 for vm in vms)
    for name in names:
        await harness.client.delete(name)
        await harness.client.wait_until_deleted(name)
    assert (await read_simulator_state(harness.vcenter)).marked_vms == ()


async def test_a_missing_folder_and_an_ambiguous_template_are_reported_until_fixed(
    harness: GroupHarness,
) -> None:
    user = VSphereUser(harness.vcenter)
    entities = {entity["path"]: entity["ref"] for entity in await harness.vcenter.entities()}
    folder, other = entities[PARENT_FOLDER], entities[f"/DC0/vm/{OTHER_TEMPLATE}"]
    await harness.vcenter.rename(folder, "elsewhere")
    await harness.client.create("web", replicas=1)
    status = await harness.client.wait_for_phase(
        "web", "ERROR", predicate=lambda status: PARENT_FOLDER in status["lastMessage"]
    )
    assert "Create it" in status["lastMessage"]
    assert ready_condition({"status": status})["reason"] == "FolderNotFound"
    # Two templates of one name in two folders: the message lists both paths.
    await user.move_to_folder(other, folder)
    await user.rename(other, TEMPLATE)
    await harness.vcenter.rename(folder, "vm-operator")
    status = await harness.client.wait_for_phase(
        "web", "ERROR", predicate=lambda status: TEMPLATE in status["lastMessage"]
    )
    assert f"/DC0/vm/{TEMPLATE}, {PARENT_FOLDER}/{TEMPLATE}" in status["lastMessage"]
    assert ready_condition({"status": status})["reason"] == "TemplateAmbiguous"
    assert (await read_simulator_state(harness.vcenter)).marked_vms == ()
    await user.rename(other, OTHER_TEMPLATE)
    await harness.client.wait_for_phase("web", "RUNNING")


async def test_the_second_of_two_groups_with_one_folder_name_waits(
    pytestconfig: pytest.Config, installed: ControlPlane, tmp_path: Path
) -> None:
    # `a`/`b-c` and `a-b`/`c` have the same folder name a-b-c.
    namespaces = [f"{tmp_path.name[:20].replace('_', '-').strip('-')}{end}" for end in ("", "-b")]
    for namespace in namespaces:
        installed.create_namespace(namespace)
    try:
        async with (
            run_simulator(
                pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim"
            ) as vcenter,
            run_observed_manager(installed, vcenter, ",".join(namespaces), tmp_path / "manager"),
        ):
            first, second = (
                VmGroupClient(installed, namespaces[0]),
                VmGroupClient(installed, namespaces[1]),
            )
            await first.create("b-c", replicas=1)
            await first.wait_for_phase("b-c", "RUNNING")
            await second.create("c", replicas=1)
            status = await second.wait_for_phase("c", "ERROR")
            assert f'VmGroup "b-c" in namespace "{namespaces[0]}"' in status["lastMessage"]
            assert len((await read_simulator_state(vcenter)).marked_vms) == 1
            await first.delete("b-c")
            await first.wait_until_deleted("b-c")
            await second.wait_for_phase("c", "RUNNING")
            assert len((await read_simulator_state(vcenter)).marked_vms) == 1
    finally:
        for namespace in namespaces:
            installed.remove_namespace(namespace)
