"""Privileges of an account: on the simulator, which grants all, and as vCenter denies them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubewright.log import Log
from simulator import SimulatedVCenter
from vsphere_operators.vsphere import privileges
from vsphere_operators.vsphere.credentials import Credentials, FixedCredentials
from vsphere_operators.vsphere.faults import Denied
from vsphere_operators.vsphere.privileges import Account, EntityRef
from vsphere_operators.vsphere.session import Session
from vsphere_operators.vsphere.transport import SoapClient
from vsphere_operators.vsphere.vm_calls import VmCalls

from .canned_server import (
    LOGIN_RESPONSE,
    SERVICE_CONTENT_RESPONSE,
    ReceivedRequest,
    RecordingMetrics,
    http_response,
    run_canned_server,
    soap_envelope,
)

ROOT_FOLDER = EntityRef("Folder", "group-d1", "/")
PRIVILEGES_RESPONSE = soap_envelope(
    '<HasPrivilegeOnEntitiesResponse xmlns="urn:vim25"><returnval>'
    '<entity type="Folder">group-d1</entity>'
    "<privAvailability><privId>System.Read</privId><isGranted>true</isGranted></privAvailability>"
    "<privAvailability><privId>Folder.Delete</privId><isGranted>false</isGranted>"
    "</privAvailability>"
    "<privAvailability><privId>Folder.Create</privId><isGranted>false</isGranted>"
    "</privAvailability>"
    "</returnval></HasPrivilegeOnEntitiesResponse>"
)
AUTHORIZATION_MANAGER = (
    '<authorizationManager type="AuthorizationManager">AuthorizationManager</authorizationManager>'
)


async def test_simulator_grants_all_privileges(
    simulator: SimulatedVCenter, soap: SoapClient, session: Session
) -> None:
    vm_calls = VmCalls(soap, session)
    account = await privileges.read_account(vm_calls)
    assert account.name == simulator.user
    assert account.session_key in {session["key"] for session in await simulator.sessions()}
    wanted = (*privileges.READ_PRIVILEGES, *privileges.FOLDER_PRIVILEGES)
    assert await privileges.find_missing_privileges(vm_calls, account, [ROOT_FOLDER], wanted) == {
        "group-d1": ()
    }


async def test_missing_privileges_are_returned(
    tmp_path: Path, metrics: RecordingMetrics, log: Log
) -> None:
    requests: list[str] = []

    async def reply(request: ReceivedRequest) -> bytes:
        if "HasPrivilegeOnEntities" in request.body:
            requests.append(request.body)
            return http_response(200, PRIVILEGES_RESPONSE)
        return http_response(
            200,
            LOGIN_RESPONSE
            if "<Login" in request.body
            else SERVICE_CONTENT_RESPONSE.replace("<about>", f"{AUTHORIZATION_MANAGER}<about>"),
        )

    async with run_canned_server(tmp_path, reply) as address:
        soap = SoapClient(address, metrics)
        session = Session(soap, FixedCredentials(Credentials("u", "p")), log)
        missing = await privileges.find_missing_privileges(
            VmCalls(soap, session), Account("the-key", "u"), [ROOT_FOLDER], ("Folder.Create",)
        )
        await soap.close()
    assert missing == {"group-d1": ("Folder.Create", "Folder.Delete")}
    assert ">the-key</sessionId>" in requests[0]
    assert "<privId>Folder.Create</privId>" in requests[0]


async def test_denied_privilege_check_is_raised(
    simulator: SimulatedVCenter, soap: SoapClient, session: Session
) -> None:
    await simulator.fail_calls("HasPrivilegeOnEntities", "NoPermission")
    vm_calls = VmCalls(soap, session)
    account = await privileges.read_account(vm_calls)
    with pytest.raises(Denied):
        await privileges.find_missing_privileges(
            vm_calls, account, [ROOT_FOLDER], privileges.READ_PRIVILEGES
        )
