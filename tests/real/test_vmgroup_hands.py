"""What people do behind the manager's back: each row of the table in docs/designs/vmgroup.md."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter

from .crashing import Reaper
from .groups import PARENT, Groups, folder_of, is_running, vms_of
from .hands import Hands
from .snapshot import Machine, snapshot
from .stage import simulated, watched

NAME = "web"


@dataclass
class Scene:
    """One group that is running, and who lays hands on it."""

    groups: Groups
    vcenter: SimulatedVCenter
    reaper: Reaper
    uid: str = ""

    @property
    def hands(self) -> Hands:
        return Hands(self.vcenter)

    @property
    def folder(self) -> str:
        return folder_of(self.groups.namespace, NAME)

    async def begin(self, replicas: int) -> list[Machine]:
        """A group of so many; returns its VMs by name."""
        self.uid = (await self.groups.create(NAME, replicas=replicas))["metadata"]["uid"]
        await self.groups.becomes(NAME, "RUNNING")
        return await self.vms()

    async def vms(self) -> list[Machine]:
        return sorted(await vms_of(self.vcenter, self.uid), key=lambda each: each.name)

    async def until(self, check: Callable[[list[Machine]], bool]) -> list[Machine]:
        """The VMs, once they are so and the group says that all is well."""

        async def there() -> list[Machine]:
            vms = await self.vms()
            return vms if check(vms) and is_running(await self.groups.get(NAME)) else []

        try:
            return await eventually(there, within=40, every=0.1)
        except AssertionError as never:
            raise AssertionError(
                f"{never}; {await self.vms()}; {(await self.groups.get(NAME)).get('status')}"
            ) from None

    def sent(self) -> list[str]:
        """Sorts of the calls to vCenter."""
        return [
            each.sort
            for each in self.reaper.calls
            if each.sort.endswith("_Task") or each.sort == "CreateFolder"
        ]


@pytest.fixture
async def scene(
    pytestconfig: pytest.Config, installed: ControlPlane, namespace: str, tmp_path: Path
) -> AsyncIterator[Scene]:
    async with (
        simulated(
            pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path / "vcsim", "--hosts=2"
        ) as vcenter,
        watched(
            installed, vcenter, namespace, tmp_path / "manager", "--disk-refresh-interval=1s"
        ) as (_, reaper),
    ):
        yield Scene(Groups(installed, namespace), vcenter, reaper)


async def test_one_that_is_deleted_comes_again_under_its_name(scene: Scene) -> None:
    first, second = await scene.begin(2)
    await scene.vcenter.delete(first.ref)
    now = await scene.until(
        lambda vms: len(vms) == 2 and first.ref not in {each.ref for each in vms}
    )
    assert [each.name for each in now] == [first.name, second.name]
    assert [each.marks["vsphere-operators.slot"] for each in now] == [
        each.marks["vsphere-operators.slot"] for each in (first, second)
    ]
    assert now[1].ref == second.ref


async def test_one_that_is_off_or_suspended_is_powered_on(scene: Scene) -> None:
    first, second = await scene.begin(2)
    await scene.vcenter.set_power(first.ref, False)
    await scene.hands.suspend(second.ref)
    now = await scene.until(
        lambda vms: (
            all(each.power == "poweredOn" for each in vms)
            and scene.sent().count("PowerOnVM_Task") >= 2
        )
    )
    assert [each.ref for each in now] == [first.ref, second.ref]


async def test_another_size_is_set_back(scene: Scene) -> None:
    (vm,) = await scene.begin(1)
    before = scene.sent()
    await scene.vcenter.set_power(vm.ref, False)
    await eventually(lambda: resized(scene, vm), within=20, every=0.0)
    now = await scene.until(
        lambda vms: [(each.cpus, each.power) for each in vms] == [(1, "poweredOn")]
    )
    assert [each.ref for each in now] == [vm.ref]
    assert "ReconfigVM_Task" in scene.sent()[len(before) :]


async def resized(scene: Scene, vm: Machine) -> bool:
    """Give it two vCPUs before the manager powers it on; who is too late switches it off again."""
    try:
        await scene.hands.resize(vm.ref, 2)
        return True
    except AssertionError:
        await scene.vcenter.set_power(vm.ref, False)
        return False


async def test_one_that_is_renamed_moved_and_migrated_is_left_so(scene: Scene) -> None:
    first, second, third = await scene.begin(3)
    before = scene.sent()
    await scene.hands.rename(first.ref, "my-own-name")
    await scene.hands.move_up(second.ref)
    hosts = {each["ref"] for each in await scene.vcenter.entities() if each["type"] == "HostSystem"}
    other = min(hosts - {await scene.hands.host(third.ref)})
    await scene.hands.migrate(third.ref, other)
    # An edit, so that the group is certainly looked at after all of it.
    await scene.groups.change(NAME, replicas=4)
    now = await scene.until(lambda vms: len(vms) == 4)
    by_ref = {each.ref: each for each in now}
    assert by_ref[first.ref].name == "my-own-name"
    assert by_ref[second.ref].folder == scene.folder.rpartition("/")[0]
    assert await scene.hands.host(third.ref) == other
    assert set(scene.sent()[len(before) :]) <= {"CloneVM_Task", "PowerOnVM_Task"}
    await scene.groups.delete(NAME)
    await scene.groups.gone(NAME)
    assert await scene.vms() == []


async def test_copies_and_strangers_in_the_folder_are_left_alone_and_keep_it(scene: Scene) -> None:
    first, _ = await scene.begin(2)
    copy = await scene.hands.clone(first.ref, "a-copy")
    stranger = await scene.vcenter.create_vm("a-stranger", folder=scene.folder)
    before = {
        each.ref: each
        for each in (await snapshot(scene.vcenter)).vms
        if each.ref in (copy, stranger)
    }
    await scene.groups.change(NAME, replicas=1)
    await scene.until(lambda vms: len(vms) == 2)  # one, and the copy, which has the mark too
    await scene.groups.delete(NAME)
    await scene.groups.gone(NAME)
    after = await snapshot(scene.vcenter)
    assert {each.ref: each for each in after.vms if each.folder == scene.folder} == before
    assert {each.target for each in scene.reaper.calls} & {copy, stranger} == set()


async def test_the_folder_is_made_again_with_what_was_in_it(scene: Scene) -> None:
    before = await scene.begin(2)
    # vCenter deletes no folder with running VMs, and the manager would power them on at once.
    await scene.groups.change(NAME, paused=True)
    await scene.groups.becomes(
        NAME, "RUNNING", where=lambda status: "paused" in status["lastMessage"]
    )
    for vm in before:
        await scene.vcenter.set_power(vm.ref, False)
    await scene.vcenter.delete(scene.folder)
    assert await scene.vms() == []
    await scene.groups.change(NAME, paused=False)
    now = await scene.until(lambda vms: len(vms) == 2)
    assert [each.name for each in now] == [each.name for each in before]
    assert {each.folder for each in now} == {scene.folder}


async def test_a_folder_that_is_renamed_is_known_and_goes_with_its_group(scene: Scene) -> None:
    await scene.begin(1)
    await scene.vcenter.rename(scene.folder, "my-own-folder")
    await scene.groups.change(NAME, replicas=2)
    now = await scene.until(lambda vms: len(vms) == 2)
    assert {each.folder for each in now} == {f"{PARENT}/my-own-folder"}
    await scene.groups.delete(NAME)
    await scene.groups.gone(NAME)
    assert scene.sent().count("CreateFolder") == 1
    assert f"{PARENT}/my-own-folder" not in {
        each["path"] for each in await scene.vcenter.entities()
    }


async def test_one_whose_mark_is_taken_away_is_nobodys_and_replaced(scene: Scene) -> None:
    first, second = await scene.begin(2)
    await scene.hands.unmark(first.ref)
    now = await scene.until(lambda vms: len(vms) == 2)
    assert second.ref in {each.ref for each in now}
    assert first.name not in {each.name for each in now}
    unmarked = next(each for each in (await snapshot(scene.vcenter)).vms if each.ref == first.ref)
    assert (unmarked.name, unmarked.folder, unmarked.power) == (
        first.name,
        scene.folder,
        "poweredOn",
    )
    assert first.ref not in {each.target for each in scene.reaper.calls}


async def test_one_with_somebodys_volume_is_not_destroyed(scene: Scene) -> None:
    vms = await scene.begin(3)
    newest = max(vms, key=lambda each: int(each.marks["vsphere-operators.slot"]))
    disk = await scene.vcenter.create_disk("pvc-of-somebody")
    await scene.vcenter.attach_disk(disk, newest.ref)
    await eventually(lambda: shows_disk(scene, newest), within=20)
    await scene.groups.change(NAME, replicas=1)
    now = await scene.until(lambda vms: len(vms) == 1)
    assert [each.ref for each in now] == [newest.ref]
    await scene.groups.delete(NAME)
    await eventually(lambda: complains_of(scene, "pvc-of-somebody"), within=30)
    assert [each.ref for each in await scene.vms()] == [newest.ref]
    assert "pvc-of-somebody" in {each["name"] for each in await scene.vcenter.disks()}
    await scene.vcenter.attach_disk(disk, "")
    await scene.groups.gone(NAME)
    assert await scene.vms() == []
    assert "pvc-of-somebody" in {each["name"] for each in await scene.vcenter.disks()}


async def shows_disk(scene: Scene, vm: Machine) -> bool:
    """Whether the VM has the device."""
    devices = await scene.hands.do(
        lambda vm: [getattr(each, "vDiskId", None) for each in vm.config.hardware.device], vm.ref
    )
    return any(devices)


async def complains_of(scene: Scene, words: str) -> bool:
    """Whether the group is in error for this."""
    status = (await scene.groups.get(NAME))["status"]
    return status["phase"] == "ERROR" and words in status["lastMessage"]
