"""The simulated vCenter as our tests see it; that it is strict, its own Go tests show."""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from simulator import Refused, VCenter

LOGIN = (
    '<Login xmlns="urn:vim25"><_this type="SessionManager">SessionManager</_this>'
    "<userName>user</userName><password>canary</password></Login>"
)
NOW = '<CurrentTime xmlns="urn:vim25"><_this type="ServiceInstance">ServiceInstance</_this></CurrentTime>'


@pytest.fixture
async def vcenter(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[VCenter]:
    binary = pytestconfig.rootpath / ".testenv/bin/vcsim"
    vcenter = VCenter(binary, tmp_path, "--host-name=esxi-dell-e.rainpole.com", "--fcds=2", password="canary")
    try:
        yield await vcenter.start()
    finally:
        await vcenter.stop()


class Soap:
    """Just enough of a client: one connection, one cookie, the certificate verified."""

    def __init__(self, vcenter: VCenter) -> None:
        trust = ssl.create_default_context(cafile=str(vcenter.certificate))
        self.connection, self.cookie = http.client.HTTPSConnection(*vcenter.address, context=trust), ""

    def call(self, body: str) -> str:
        envelope = f'<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body>{body}</Body></Envelope>'
        self.connection.request("POST", "/sdk", envelope, {"Content-Type": "text/xml", "Cookie": self.cookie})
        answer = self.connection.getresponse()
        self.cookie = (answer.getheader("Set-Cookie") or self.cookie).split(";")[0]
        return answer.read().decode()


async def test_a_session_lives_is_counted_and_dies(vcenter: VCenter) -> None:
    soap = Soap(vcenter)
    assert "NotAuthenticatedFault" in soap.call(NOW)
    assert "LoginResponse" in soap.call(LOGIN)
    assert "CurrentTimeResponse" in soap.call(NOW)
    assert (await vcenter.calls())["CurrentTime"] == 2
    assert [session["user"] for session in await vcenter.sessions()] == ["user"]
    assert await vcenter.expire_sessions() == 1
    assert "NotAuthenticatedFault" in soap.call(NOW)
    await vcenter.reset_calls()
    assert await vcenter.calls() == {}
    soap.connection.close()


async def test_calls_fail_when_told_to(vcenter: VCenter) -> None:
    soap = Soap(vcenter)
    soap.call(LOGIN)
    await vcenter.fail("CurrentTime", "NoPermission", fields={"privilegeId": "System.Read"})
    answer = soap.call(NOW)
    assert re.search(r"<faultstring>Permission .* denied", answer)
    assert "System.Read" in answer
    assert "CurrentTimeResponse" in soap.call(NOW)
    soap.connection.close()


async def test_what_there_is_can_be_changed(vcenter: VCenter) -> None:
    names = {entity["name"] for entity in await vcenter.entities() if entity["type"] == "HostSystem"}
    assert "esxi-dell-e.rainpole.com" in names
    await vcenter.rename("esxi-dell-e.rainpole.com", "esxi-dell-f.rainpole.com")
    await vcenter.maintenance("esxi-dell-f.rainpole.com")
    await vcenter.connect_host("esxi-dell-f.rainpole.com", connected=False)
    await vcenter.stats("DC0_C0_H0", overallCpuUsage=17)
    assert await vcenter.create_disk("pvc-a", sizeMB=7, id="7d0a1d4c-0000-4000-8000-000000000001") == "7d0a1d4c-0000-4000-8000-000000000001"
    assert len(await vcenter.disks()) == 3
    assert await vcenter.delete_disk("pvc-a") == 1
    ref = await vcenter.create_vm("new", on=True)
    await vcenter.delete(ref)
    await vcenter.tag("DC0_C0_H0", "zone", "a")
    assert await vcenter.churn() > 3
    assert await vcenter.ledger() == []


async def test_a_refusal_says_why(vcenter: VCenter) -> None:
    with pytest.raises(Refused, match="no HostSystem"):
        await vcenter.maintenance("nowhere")


async def test_the_password_is_nowhere_to_be_seen(vcenter: VCenter) -> None:
    assert "canary" not in command_line(vcenter.process.pid)
    assert "canary" not in vcenter.process.log.read_text()


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


async def test_a_program_that_ends_is_told_with_its_words(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    broken = VCenter(pytestconfig.rootpath / ".testenv/bin/vcsim", tmp_path, "--datastores=0")
    with pytest.raises(AssertionError, match="must be at least 1"):
        await broken.start()
