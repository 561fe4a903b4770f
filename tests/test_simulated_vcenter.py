"""The simulated vCenter as tests use it; its own Go tests show that it is strict."""

from __future__ import annotations

import asyncio
import http.client
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyVmomi import vim

from kubewright.testing import eventually
from simulator import ControlError, SimulatedVCenter
from support.pyvmomi_session import PyVmomiSession

LOGIN_BODY = (
    '<Login xmlns="urn:vim25"><_this type="SessionManager">SessionManager</_this>'
    "<userName>user</userName><password>canary</password></Login>"
)
CURRENT_TIME_BODY = (
    '<CurrentTime xmlns="urn:vim25">'
    '<_this type="ServiceInstance">ServiceInstance</_this></CurrentTime>'
)


@pytest.fixture
async def vcenter(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    binary = pytestconfig.rootpath / ".testenv/bin/vcsim"
    flags = (
        "--host-name=esxi-dell-e.rainpole.com",
        "--fcds=2",
        "--folder=vm-operator",
        "--template=template",
    )
    vcenter = SimulatedVCenter(binary, tmp_path, *flags, password="canary")
    try:
        yield await vcenter.start()
    finally:
        await vcenter.stop()


class SoapClient:
    """A minimal client: one connection, one cookie, a verified certificate."""

    def __init__(self, vcenter: SimulatedVCenter) -> None:
        trust = ssl.create_default_context(cafile=str(vcenter.certificate))
        self.connection, self.cookie = (
            http.client.HTTPSConnection(*vcenter.address, context=trust),
            "",
        )

    def call(self, body: str) -> str:
        envelope = (
            '<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/">'
            f"<Body>{body}</Body></Envelope>"
        )
        self.connection.request(
            "POST", "/sdk", envelope, {"Content-Type": "text/xml", "Cookie": self.cookie}
        )
        response = self.connection.getresponse()
        self.cookie = (response.getheader("Set-Cookie") or self.cookie).split(";")[0]
        return response.read().decode()


async def test_session_is_counted_and_can_be_ended(vcenter: SimulatedVCenter) -> None:
    soap = SoapClient(vcenter)
    assert "NotAuthenticatedFault" in soap.call(CURRENT_TIME_BODY)
    assert "LoginResponse" in soap.call(LOGIN_BODY)
    assert "CurrentTimeResponse" in soap.call(CURRENT_TIME_BODY)
    assert (await vcenter.call_counts())["CurrentTime"] == 2
    assert [session["user"] for session in await vcenter.sessions()] == ["user"]
    assert await vcenter.expire_sessions() == 1
    assert "NotAuthenticatedFault" in soap.call(CURRENT_TIME_BODY)
    await vcenter.reset_call_counts()
    assert await vcenter.call_counts() == {}
    soap.connection.close()


async def test_calls_can_fail(vcenter: SimulatedVCenter) -> None:
    soap = SoapClient(vcenter)
    soap.call(LOGIN_BODY)
    await vcenter.fail_calls("CurrentTime", "NoPermission", fields={"privilegeId": "System.Read"})
    answer = soap.call(CURRENT_TIME_BODY)
    assert re.search(r"<faultstring>Permission .* denied", answer)
    assert "System.Read" in answer
    assert "CurrentTimeResponse" in soap.call(CURRENT_TIME_BODY)
    soap.connection.close()


async def test_inventory_can_be_changed(vcenter: SimulatedVCenter) -> None:
    names = {
        entity["name"] for entity in await vcenter.entities() if entity["type"] == "HostSystem"
    }
    assert "esxi-dell-e.rainpole.com" in names
    await vcenter.rename("esxi-dell-e.rainpole.com", "esxi-dell-f.rainpole.com")
    await vcenter.set_maintenance("esxi-dell-f.rainpole.com")
    await vcenter.set_host_connected("esxi-dell-f.rainpole.com", connected=False)
    await vcenter.set_stats("DC0_C0_H0", overallCpuUsage=17)
    assert (
        await vcenter.create_disk("pvc-a", sizeMB=7, id="7d0a1d4c-0000-4000-8000-000000000001")
        == "7d0a1d4c-0000-4000-8000-000000000001"
    )
    assert len(await vcenter.disks()) == 3
    assert await vcenter.delete_disk("pvc-a") == 1
    ref = await vcenter.create_vm("new", on=True)
    await vcenter.delete(ref)
    await vcenter.set_tag("DC0_C0_H0", "zone", "a")
    assert await vcenter.churn_stats() > 3
    assert await vcenter.mutating_calls() == []


class TemplateCloner:
    """Clones the template into the folder with pyVmomi's own client."""

    def __init__(self, session: PyVmomiSession) -> None:
        self.folder = find_child(session.content.rootFolder.childEntity[0].vmFolder, "vm-operator")
        self.template = find_child(session.content.rootFolder.childEntity[0].vmFolder, "template")
        self.pool = next(
            compute.resourcePool
            for compute in session.content.rootFolder.childEntity[0].hostFolder.childEntity
        )

    def start_clone(self, name: str, owner: str) -> Any:
        config = vim.vm.ConfigSpec(
            numCPUs=2,
            extraConfig=[vim.option.OptionValue(key="vsphere-operators.uid", value=owner)],
        )
        spec = vim.vm.CloneSpec(
            powerOn=True,
            template=False,
            config=config,
            location=vim.vm.RelocateSpec(pool=self.pool),
        )
        return self.template.CloneVM_Task(self.folder, name, spec)


def find_child(folder: Any, name: str) -> Any:
    return next(child for child in folder.childEntity if child.name == name)


async def test_census_counts_clones_from_their_call_on(vcenter: SimulatedVCenter) -> None:
    async with PyVmomiSession(vcenter) as session:
        cloner = await asyncio.to_thread(TemplateCloner, session)
        await vcenter.hold_calls("CloneVM_Task", "task", count=2)
        tasks = [await asyncio.to_thread(cloner.start_clone, "replica", "uid-1") for _ in range(2)]
        await eventually(lambda: vcenter.held_calls())
        census = await vcenter.vm_census()
        assert [(clone["name"], clone["folder"]) for clone in census["clones"]] == [
            ("replica", "/DC0/vm/vm-operator")
        ] * 2
        assert census["folders"]["/DC0/vm/vm-operator"] == {"now": 2, "peak": 2}
        await eventually(lambda: release_held_clones(vcenter, 2))
        await eventually(
            lambda: asyncio.to_thread(lambda: all(task.info.completeTime for task in tasks))
        )
        errors = await asyncio.to_thread(
            lambda: [type(task.info.error) for task in tasks if task.info.error]
        )
    assert errors == [vim.fault.DuplicateName]
    census = await vcenter.vm_census()
    (replica,) = (vm for vm in census["vms"] if vm["folder"] == "/DC0/vm/vm-operator")
    assert (replica["name"], replica["power"], replica["cpus"]) == ("replica", "poweredOn", 2)
    assert replica["marks"] == {"vsphere-operators.uid": "uid-1"}
    assert (census["owners"]["uid-1"], census["clones"]) == ({"now": 1, "peak": 2}, [])
    await vcenter.reset_census_peaks()
    assert (await vcenter.vm_census())["owners"]["uid-1"] == {"now": 1, "peak": 1}
    entries = [
        (call["sequence"], call["method"], call["name"], call["newName"])
        for call in await vcenter.mutating_calls()
    ]
    assert entries == [
        (1, "CloneVM_Task", "template", "replica"),
        (2, "CloneVM_Task", "template", "replica"),
    ]


async def release_held_clones(vcenter: SimulatedVCenter, count: int) -> bool:
    return (
        len(await vcenter.held_calls()) == count
        and await vcenter.release_calls("CloneVM_Task") == count
    )


async def test_response_can_be_lost_and_call_held(vcenter: SimulatedVCenter) -> None:
    soap = SoapClient(vcenter)
    soap.call(LOGIN_BODY)
    await vcenter.drop_responses("CurrentTime")
    with pytest.raises(http.client.RemoteDisconnected):
        soap.call(CURRENT_TIME_BODY)
    assert (await vcenter.call_counts())["CurrentTime"] == 1
    soap.connection.close()
    await vcenter.hold_calls("CurrentTime", "answer")
    late = asyncio.create_task(asyncio.to_thread(soap.call, CURRENT_TIME_BODY))
    await eventually(lambda: vcenter.held_calls())
    (held,) = await vcenter.held_calls()
    assert (held["method"], held["where"], late.done()) == ("CurrentTime", "answer", False)
    assert await vcenter.release_calls(id=held["id"]) == 1
    assert "CurrentTimeResponse" in await late
    soap.connection.close()


async def test_disk_is_deleted_with_its_vm_unless_it_is_kept(vcenter: SimulatedVCenter) -> None:
    ref = await vcenter.create_vm("node")
    for name, keep in (("pvc-lost", False), ("pvc-kept", True)):
        await vcenter.create_disk(name, keep=keep)
        await vcenter.attach_disk(name, ref)
    async with PyVmomiSession(vcenter) as session:
        node = await session.read_one(
            vim.VirtualMachine, "node", ["config.hardware.device", "config.uuid"]
        )
    disks = {disk["name"]: disk for disk in await vcenter.disks()}
    attached = {
        device.vDiskId.id
        for device in node["config.hardware.device"]
        if isinstance(device, vim.vm.device.VirtualDisk)
    }
    assert attached == {disks["pvc-lost"]["id"], disks["pvc-kept"]["id"]}
    assert disks["pvc-lost"]["consumers"] == [node["config.uuid"]]
    await vcenter.delete(ref)
    consumers = {disk["name"]: disk["consumers"] for disk in await vcenter.disks()}
    assert "pvc-lost" not in consumers
    assert consumers["pvc-kept"] == []


async def test_rejected_request_has_a_reason(vcenter: SimulatedVCenter) -> None:
    with pytest.raises(ControlError, match="no HostSystem"):
        await vcenter.set_maintenance("nowhere")


async def test_password_is_neither_in_the_command_line_nor_in_the_log(
    vcenter: SimulatedVCenter,
) -> None:
    assert "canary" not in read_command_line(vcenter.process.pid)
    assert "canary" not in vcenter.process.log.read_text()


def read_command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


async def test_failed_start_shows_the_log(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    broken = SimulatedVCenter(
        pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path, "--datastores=0"
    )
    with pytest.raises(AssertionError, match="must be at least 1"):
        await broken.start()
