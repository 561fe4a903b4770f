"""What people may type into a VmGroup: refused by the API server, or answered with words; no call leaves the group's own folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.http import HttpError
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
    "DC0_C0_RP0_VM0",  # a VM, and no template
]
MAX_NAME_LENGTH = 253


@dataclass(frozen=True)
class GroupHarness:
    """The group's namespace, its vCenter, and what was sent."""

    client: VmGroupClient
    vcenter: SimulatedVCenter
    injector: CrashInjector


@pytest.fixture
async def harness(
    pytestconfig: pytest.Config, installed: ControlPlane, namespace: str, tmp_path: Path
) -> AsyncIterator[GroupHarness]:
    async with (
        run_simulator(pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim") as vcenter,
        run_observed_manager(installed, vcenter, namespace, tmp_path / "manager") as (_, reaper),
    ):
        yield GroupHarness(VmGroupClient(installed, namespace), vcenter, reaper)


@pytest.mark.parametrize("wrong", INVALID_SPECS, ids=str)
async def test_what_cannot_be_is_refused_by_the_crd(
    installed: ControlPlane, namespace: str, wrong: dict[str, Any]
) -> None:
    with pytest.raises(HttpError, match=f"spec.{next(iter(wrong))}"):
        await VmGroupClient(installed, namespace).create("wrong", **wrong)


async def test_a_template_that_nobody_has_is_an_error_with_words_and_sends_nothing(
    harness: GroupHarness,
) -> None:
    asked = {f"wrong-{number}": template for number, template in enumerate(MISSING_TEMPLATES)}
    for name, template in list(asked.items()):
        if not await is_accepted(harness.client, name, template):
            del asked[name]
    before = await read_simulator_state(harness.vcenter)
    for name, template in asked.items():
        status = await harness.client.wait_for_phase(name, "ERROR")
        assert "template" in status["lastMessage"], template
        assert len(status["lastMessage"]) < 1000
    await harness.client.create("right", replicas=1)
    await harness.client.wait_for_phase("right", "RUNNING")
    sent = [
        call.operation
        for call in harness.injector.calls
        if call.operation.endswith("_Task") or call.operation == "CreateFolder"
    ]
    assert sorted(sent) in (
        ["CloneVM_Task", "CreateFolder"],
        ["CloneVM_Task", "CreateFolder", "PowerOnVM_Task"],
    )
    after = await read_simulator_state(harness.vcenter)
    known = {vm.ref for vm in before.vms}
    folders = {vm.folder for vm in after.vms if vm.ref not in known}
    assert folders == {group_folder_path(harness.client.namespace, "right")}


async def is_accepted(groups: VmGroupClient, name: str, template: str) -> bool:
    """Whether the API server takes a group with this template; if it does not, it has to say which field is wrong."""
    try:
        await groups.create(name, template=template, replicas=1)
    except HttpError as refused:
        if refused.status != 422 or "spec.template" not in str(refused):
            raise
        return False
    return True


async def test_names_that_are_too_long_for_vcenter_are_cut_and_stay_apart(
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


async def test_what_is_missing_or_there_twice_is_named_and_its_end_is_noticed(
    harness: GroupHarness,
) -> None:
    hands = VSphereUser(harness.vcenter)
    entities = {entity["path"]: entity["ref"] for entity in await harness.vcenter.entities()}
    folder, other = entities[PARENT_FOLDER], entities[f"/DC0/vm/{OTHER_TEMPLATE}"]
    await harness.vcenter.rename(folder, "elsewhere")
    await harness.client.create("web", replicas=1)
    status = await harness.client.wait_for_phase(
        "web", "ERROR", predicate=lambda status: PARENT_FOLDER in status["lastMessage"]
    )
    assert "Create it" in status["lastMessage"]
    assert ready_condition({"status": status})["reason"] == "FolderNotFound"
    # Two templates of one name, in two folders: both paths are told, and either may be named.
    await hands.move_to_folder(other, folder)
    await hands.rename(other, TEMPLATE)
    await harness.vcenter.rename(folder, "vm-operator")
    status = await harness.client.wait_for_phase(
        "web", "ERROR", predicate=lambda status: TEMPLATE in status["lastMessage"]
    )
    assert f"/DC0/vm/{TEMPLATE}, {PARENT_FOLDER}/{TEMPLATE}" in status["lastMessage"]
    assert ready_condition({"status": status})["reason"] == "TemplateAmbiguous"
    assert (await read_simulator_state(harness.vcenter)).marked_vms == ()
    await hands.rename(other, OTHER_TEMPLATE)
    await harness.client.wait_for_phase("web", "RUNNING")


async def test_two_groups_that_share_a_folder_name_are_told_apart(
    pytestconfig: pytest.Config, installed: ControlPlane, tmp_path: Path
) -> None:
    # `a`/`b-c` and `a-b`/`c`: both want the folder a-b-c.
    spaces = [f"{tmp_path.name[:20].replace('_', '-').strip('-')}{end}" for end in ("", "-b")]
    for namespace in spaces:
        installed.create_namespace(namespace)
    try:
        async with (
            run_simulator(
                pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim"
            ) as vcenter,
            run_observed_manager(installed, vcenter, ",".join(spaces), tmp_path / "manager"),
        ):
            first, second = VmGroupClient(installed, spaces[0]), VmGroupClient(installed, spaces[1])
            await first.create("b-c", replicas=1)
            await first.wait_for_phase("b-c", "RUNNING")
            await second.create("c", replicas=1)
            status = await second.wait_for_phase("c", "ERROR")
            assert f'VmGroup "b-c" in namespace "{spaces[0]}"' in status["lastMessage"]
            assert len((await read_simulator_state(vcenter)).marked_vms) == 1
            await first.delete("b-c")
            await first.wait_until_deleted("b-c")
            await second.wait_for_phase("c", "RUNNING")
            assert len((await read_simulator_state(vcenter)).marked_vms) == 1
    finally:
        for namespace in spaces:
            installed.remove_namespace(namespace)
