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

from .crashing import Reaper
from .groups import PARENT, TEMPLATE, Groups, folder_of
from .hands import Hands
from .life import OTHER_TEMPLATE
from .managing import ready_of
from .snapshot import snapshot
from .stage import simulated, watched

REFUSED: list[dict[str, Any]] = [
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
NOBODY_HAS = [
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
LONGEST_NAME = 253


@dataclass(frozen=True)
class Scene:
    """The group's namespace, its vCenter, and what was sent."""

    groups: Groups
    vcenter: SimulatedVCenter
    reaper: Reaper


@pytest.fixture
async def scene(
    pytestconfig: pytest.Config, installed: ControlPlane, namespace: str, tmp_path: Path
) -> AsyncIterator[Scene]:
    async with (
        simulated(pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim") as vcenter,
        watched(installed, vcenter, namespace, tmp_path / "manager") as (_, reaper),
    ):
        yield Scene(Groups(installed, namespace), vcenter, reaper)


@pytest.mark.parametrize("wrong", REFUSED, ids=str)
async def test_what_cannot_be_is_refused_by_the_crd(
    installed: ControlPlane, namespace: str, wrong: dict[str, Any]
) -> None:
    with pytest.raises(HttpError, match=f"spec.{next(iter(wrong))}"):
        await Groups(installed, namespace).create("wrong", **wrong)


async def test_a_template_that_nobody_has_is_an_error_with_words_and_sends_nothing(
    scene: Scene,
) -> None:
    asked = {f"wrong-{number}": template for number, template in enumerate(NOBODY_HAS)}
    for name, template in list(asked.items()):
        if not await is_taken(scene.groups, name, template):
            del asked[name]
    before = await snapshot(scene.vcenter)
    for name, template in asked.items():
        status = await scene.groups.becomes(name, "ERROR")
        assert "template" in status["lastMessage"], template
        assert len(status["lastMessage"]) < 1000
    await scene.groups.create("right", replicas=1)
    await scene.groups.becomes("right", "RUNNING")
    sent = [
        each.sort
        for each in scene.reaper.calls
        if each.sort.endswith("_Task") or each.sort == "CreateFolder"
    ]
    assert sorted(sent) in (
        ["CloneVM_Task", "CreateFolder"],
        ["CloneVM_Task", "CreateFolder", "PowerOnVM_Task"],
    )
    after = await snapshot(scene.vcenter)
    known = {each.ref for each in before.vms}
    folders = {each.folder for each in after.vms if each.ref not in known}
    assert folders == {folder_of(scene.groups.namespace, "right")}


async def is_taken(groups: Groups, name: str, template: str) -> bool:
    """Whether the API server takes a group with this template; if it does not, it has to say which field is wrong."""
    try:
        await groups.create(name, template=template, replicas=1)
    except HttpError as refused:
        if refused.status != 422 or "spec.template" not in str(refused):
            raise
        return False
    return True


async def test_names_that_are_too_long_for_vcenter_are_cut_and_stay_apart(scene: Scene) -> None:
    names = ["n" * (LONGEST_NAME - 1) + end for end in "ab"]
    for name in names:
        await scene.groups.create(name, replicas=1)
    for name in names:
        await scene.groups.becomes(name, "RUNNING")
    vms = (await snapshot(scene.vcenter)).marked
    assert len(vms) == 2
    assert len({each.folder for each in vms}) == 2
    assert all(len(each.name) <= 80 and "-replica-" in each.name for each in vms)
    assert all(len(each.folder.rpartition("/")[2]) <= 80 for each in vms)
    for name in names:
        await scene.groups.delete(name)
        await scene.groups.gone(name)
    assert (await snapshot(scene.vcenter)).marked == ()


async def test_what_is_missing_or_there_twice_is_named_and_its_end_is_noticed(scene: Scene) -> None:
    hands = Hands(scene.vcenter)
    entities = {each["path"]: each["ref"] for each in await scene.vcenter.entities()}
    folder, other = entities[PARENT], entities[f"/DC0/vm/{OTHER_TEMPLATE}"]
    await scene.vcenter.rename(folder, "elsewhere")
    await scene.groups.create("web", replicas=1)
    status = await scene.groups.becomes(
        "web", "ERROR", where=lambda status: PARENT in status["lastMessage"]
    )
    assert "create it" in status["lastMessage"]
    assert ready_of({"status": status})["reason"] == "FolderNotFound"
    # Two templates of one name, in two folders: both paths are told, and either may be named.
    await hands.move_into(other, folder)
    await hands.rename(other, TEMPLATE)
    await scene.vcenter.rename(folder, "vm-operator")
    status = await scene.groups.becomes(
        "web", "ERROR", where=lambda status: TEMPLATE in status["lastMessage"]
    )
    assert f"/DC0/vm/{TEMPLATE}, {PARENT}/{TEMPLATE}" in status["lastMessage"]
    assert ready_of({"status": status})["reason"] == "TemplateAmbiguous"
    assert (await snapshot(scene.vcenter)).marked == ()
    await hands.rename(other, OTHER_TEMPLATE)
    await scene.groups.becomes("web", "RUNNING")


async def test_two_groups_that_share_a_folder_name_are_told_apart(
    pytestconfig: pytest.Config, installed: ControlPlane, tmp_path: Path
) -> None:
    # `a`/`b-c` and `a-b`/`c`: both want the folder a-b-c.
    spaces = [f"{tmp_path.name[:20].replace('_', '-').strip('-')}{end}" for end in ("", "-b")]
    for each in spaces:
        installed.create_namespace(each)
    try:
        async with (
            simulated(pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim") as vcenter,
            watched(installed, vcenter, ",".join(spaces), tmp_path / "manager"),
        ):
            first, second = Groups(installed, spaces[0]), Groups(installed, spaces[1])
            await first.create("b-c", replicas=1)
            await first.becomes("b-c", "RUNNING")
            await second.create("c", replicas=1)
            status = await second.becomes("c", "ERROR")
            assert f'VmGroup "b-c" in namespace "{spaces[0]}"' in status["lastMessage"]
            assert len((await snapshot(vcenter)).marked) == 1
            await first.delete("b-c")
            await first.gone("b-c")
            await second.becomes("c", "RUNNING")
            assert len((await snapshot(vcenter)).marked) == 1
    finally:
        for each in spaces:
            installed.remove_namespace(each)
