"""The checks before a VM is adopted or given back, and what is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, cast

import pytest
from msgspec.structs import replace

from kubewright import Client
from kubewright.testing.fake import FakeApi
from vsphere_operators.kinds.vmgroup.api_reader import ApiReader
from vsphere_operators.kinds.vmgroup.group_memory import GroupMemory
from vsphere_operators.kinds.vmgroup.model import Adopt, UndoAdoption
from vsphere_operators.kinds.vmgroup.owner_change import ChangeNotConfirmed, OwnerChange
from vsphere_operators.kinds.vmgroup.ownership import (
    FolderClaim,
    OwnershipMark,
    VmOrigin,
    instance_uuid_of,
    mark_from_extra_config,
    mark_to_extra_config,
)
from vsphere_operators.kinds.vmgroup.step import GroupInput
from vsphere_operators.kinds.vmgroup.types import ADOPT_ANNOTATION, VmGroup
from vsphere_operators.vsphere.faults import Rejected, Unreachable
from vsphere_operators.vsphere.model import VirtualMachine
from vsphere_operators.vsphere.updates import Ref, Value
from vsphere_operators.vsphere.vm_calls import CurrentVm, VmCalls, VmConfig

from .replica_builder import DESIRED, make_record, make_vm
from .simulation_model import GROUP_ID, VCENTER_ID

NAME = f"{GROUP_ID.name}-replica-abcdefgh"
OLD_UUID = "00000001-0000-4000-8000-000000000000"
NEW_UUID = instance_uuid_of(GROUP_ID.uid, NAME)
VM = VirtualMachine(
    ref="vm-7", name=NAME, parent="group-v9", instance_uuid=OLD_UUID, connection="connected"
)
RECORD = make_record(0, name=NAME, instance_uuid=NEW_UUID, state="Cloning", adopted_from=OLD_UUID)
ADOPT = Adopt(RECORD, VM)
UNDO = UndoAdoption(make_vm(0, replica_name=NAME, ref="vm-7", adopted_from=OLD_UUID))
ADOPTED_MARK = OwnershipMark(
    group_id=GROUP_ID,
    replica_name=NAME,
    sequence_number=0,
    fingerprint="f1",
    origin=VmOrigin(instance_uuid=OLD_UUID),
)


class FakeVmCalls:
    """vCenter with one VM."""

    def __init__(self) -> None:
        self.properties: dict[str, Value] = {
            "name": NAME,
            "parent": Ref("Folder", "group-v9"),
            "config.template": False,
            "config.changeVersion": "7",
        }
        self.vm = CurrentVm(OLD_UUID, "[d] a/a.vmx", VmConfig())
        self.sent: list[tuple[str, str, dict[str, str], str]] = []
        self.error: BaseException | None = None

    async def read_properties(self, type_name: str, ref: str, paths: list[str]) -> dict[str, Value]:
        return {path: self.properties[path] for path in paths}

    async def read_vm(self, ref: str) -> CurrentVm:
        return self.vm

    async def set_identity(
        self, ref: str, instance_uuid: str, extra_config: Mapping[str, str], change_version: str
    ) -> str:
        self.sent.append((ref, instance_uuid, dict(extra_config), change_version))
        if self.error is not None:
            raise self.error
        return "task-1"


class Harness:
    def __init__(self) -> None:
        self.api, self.calls, self.now = FakeApi(), FakeVmCalls(), 100.0
        self.memory = GroupMemory(lambda: self.now)
        self.stored: dict[str, Any] = {
            "apiVersion": VmGroup.definition.api_version,
            "kind": "VmGroup",
            "metadata": {
                "name": GROUP_ID.name,
                "namespace": GROUP_ID.namespace,
                "uid": GROUP_ID.uid,
                "annotations": {},
            },
            "spec": {"cpu": 1, "memory": 1, "replicas": 1, "template": "t"},
            "status": {
                "replicas": [
                    {
                        "name": NAME,
                        "slot": 0,
                        "instanceUUID": NEW_UUID,
                        "fingerprint": "f1",
                        "template": "",
                        "adoptedFrom": OLD_UUID,
                    }
                ]
            },
        }

    def change(self, action: Adopt | UndoAdoption) -> OwnerChange:
        path = VmGroup.definition.path(GROUP_ID.namespace, GROUP_ID.name)
        self.api.objects[path] = json.loads(json.dumps(self.stored))
        claim = FolderClaim(group_id=GROUP_ID, folder_key="f", created_at="")
        group = GroupInput(
            group_id=GROUP_ID,
            desired=DESIRED,
            generation=1,
            records=(RECORD,),
            log=lambda line: None,
            record_event=lambda *event: None,
            vcenter=VCENTER_ID,
            loaded_at=0.0,
            folder_claim=claim,
            may_exist=lambda group_id: True,
            list_other_groups=lambda: (),
        )
        vm_calls = cast("VmCalls", self.calls)
        return OwnerChange(vm_calls, ApiReader(Client(self.api)), self.memory, group, action)


@pytest.fixture
def harness() -> Harness:
    return Harness()


async def test_uuid_and_mark_are_sent_together_for_the_version_that_was_read(
    harness: Harness,
) -> None:
    change = harness.change(ADOPT)
    assert await change.send(await change.check()) == "task-1"
    ((ref, uuid, extra_config, version),) = harness.calls.sent
    assert (ref, uuid, version) == ("vm-7", NEW_UUID, "7")
    assert mark_from_extra_config(extra_config) == ADOPTED_MARK
    assert harness.memory.owner_changes == {}


@pytest.mark.parametrize(
    "edit",
    [
        lambda stored: stored["metadata"].update(uid="uid-9"),
        lambda stored: stored["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"),
        lambda stored: stored["metadata"]["annotations"].update({ADOPT_ANNOTATION: "undo"}),
        lambda stored: stored["spec"].update(paused=True),
        lambda stored: stored["status"].update(replicas=[]),
        lambda stored: stored["status"]["replicas"][0].update(leaving=True),
        lambda stored: stored["status"]["replicas"][0].update(adoptedFrom=""),
    ],
)
async def test_the_api_server_must_confirm_the_record(harness: Harness, edit: Any) -> None:
    edit(harness.stored)
    with pytest.raises(ChangeNotConfirmed):
        await harness.change(ADOPT).check()


@pytest.mark.parametrize(
    "properties",
    [
        {"name": "renamed"},
        {"parent": Ref("Folder", "group-v1")},
        {"config.template": True},
    ],
)
async def test_a_vm_that_has_changed_is_not_adopted(
    harness: Harness, properties: dict[str, Value]
) -> None:
    harness.calls.properties |= properties
    with pytest.raises(ChangeNotConfirmed):
        await harness.change(ADOPT).check()


async def test_a_vm_that_another_group_has_marked_is_not_adopted(harness: Harness) -> None:
    other = replace(GROUP_ID, name="other", uid="uid-9")
    mark = replace(ADOPTED_MARK, group_id=other, origin=None)
    uuid = instance_uuid_of(other.uid, NAME)
    harness.calls.vm = CurrentVm(uuid, "", VmConfig(mark_to_extra_config(mark)))
    with pytest.raises(ChangeNotConfirmed):
        await harness.change(ADOPT).check()


async def test_a_deleted_group_is_remembered_as_the_previous_owner(harness: Harness) -> None:
    deleted = replace(GROUP_ID, uid="uid-before")
    uuid = instance_uuid_of(deleted.uid, NAME)
    previous = replace(ADOPTED_MARK, group_id=deleted, origin=None)
    harness.calls.vm = CurrentVm(uuid, "", VmConfig(mark_to_extra_config(previous)))
    change = harness.change(Adopt(replace(RECORD, adopted_from=uuid), VM))
    await change.send(await change.check())
    mark = mark_from_extra_config(harness.calls.sent[0][2])
    assert mark is not None
    assert mark.origin == VmOrigin(instance_uuid=uuid, owner_uid="uid-before")


async def test_undo_sends_what_was_before(harness: Harness) -> None:
    harness.stored["metadata"]["annotations"][ADOPT_ANNOTATION] = "undo"
    harness.calls.vm = CurrentVm(NEW_UUID, "", VmConfig(mark_to_extra_config(ADOPTED_MARK)))
    change = harness.change(UNDO)
    await change.send(await change.check())
    ((_, uuid, extra_config, _),) = harness.calls.sent
    assert uuid == OLD_UUID
    assert extra_config == dict.fromkeys(mark_to_extra_config(ADOPTED_MARK), "")


@pytest.mark.parametrize(
    ("annotation", "mark"),
    [
        ("", ADOPTED_MARK),
        ("undo", replace(ADOPTED_MARK, origin=None)),
        ("undo", replace(ADOPTED_MARK, group_id=replace(GROUP_ID, uid="uid-9"))),
    ],
)
async def test_only_an_adopted_vm_is_given_back_on_request(
    harness: Harness, annotation: str, mark: OwnershipMark
) -> None:
    harness.stored["metadata"]["annotations"][ADOPT_ANNOTATION] = annotation
    uuid = instance_uuid_of(mark.group_id.uid, NAME)
    harness.calls.vm = CurrentVm(uuid, "", VmConfig(mark_to_extra_config(mark)))
    with pytest.raises(ChangeNotConfirmed):
        await harness.change(UNDO).check()


@pytest.mark.parametrize("error", [Unreachable("no response"), asyncio.CancelledError()])
async def test_a_change_without_a_response_may_begin_for_ten_seconds(
    harness: Harness, error: BaseException
) -> None:
    harness.calls.error = error
    change = harness.change(ADOPT)
    with pytest.raises(type(error)):
        await change.send(await change.check())
    assert harness.memory.is_owner_change_pending(VM)
    harness.now += 9.9
    assert harness.memory.is_owner_change_pending(VM)
    harness.now += 0.2
    assert not harness.memory.is_owner_change_pending(VM)


async def test_a_rejected_change_cannot_begin(harness: Harness) -> None:
    harness.calls.error = Rejected("changed", fault="ConcurrentAccess")
    change = harness.change(ADOPT)
    with pytest.raises(Rejected):
        await change.send(await change.check())
    assert not harness.memory.is_owner_change_pending(VM)
