"""Privileges of an account: the simulator's own account has all, and another one lacks some.

tests/real/test_privileges.py takes each privilege of the table away from the manager's account.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kubewright.log import Log
from simulator import SimulatedVCenter
from support.vcenter_account import ACCOUNT_FLAG, OPERATOR, OPERATOR_PASSWORD
from vsphere_operators.doctor.installation import Installation
from vsphere_operators.doctor.vcenter import check
from vsphere_operators.vcenters.config import VCenterConfig
from vsphere_operators.vsphere import privileges
from vsphere_operators.vsphere.credentials import Credentials, FixedCredentials
from vsphere_operators.vsphere.faults import Denied
from vsphere_operators.vsphere.privileges import Account, EntityRef, Network
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
    simulator_address,
    soap_envelope,
)
from .conftest import SimulatorFactory

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
    wanted = [name for role in privileges.ROLES for name in role.privilege_names]
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
            vm_calls, account, [ROOT_FOLDER], privileges.ROOT_ROLE.privilege_names
        )


async def test_networks_of_vms_are_read_with_their_folder(
    simulator: SimulatedVCenter, soap: SoapClient, session: Session
) -> None:
    entities = await simulator.entities()
    vms = [entity["ref"] for entity in entities if entity["type"] == "VirtualMachine"]
    (network,) = [entity for entity in entities if entity["type"] == "Network"]
    (folder,) = [entity for entity in entities if entity["path"] == "/DC0/network"]
    assert len(vms) > 1
    expected = Network("Network", network["ref"], network["name"], folder["ref"])
    vm_calls = VmCalls(soap, session)
    assert await privileges.read_networks(vm_calls, [*vms, "vm-deleted"]) == [expected]
    assert await privileges.read_networks(vm_calls, []) == []


async def test_distributed_port_group_is_checked_by_its_type_on_the_wire(
    soap: SoapClient, session: Session
) -> None:
    vm_calls = VmCalls(soap, session)
    account = await privileges.read_account(vm_calls)
    port_group = EntityRef("DistributedVirtualPortgroup", "dvportgroup-1")
    names = privileges.NETWORK_ROLE.privilege_names
    assert await privileges.find_missing_privileges(vm_calls, account, [port_group], names) == {
        "dvportgroup-1": ()
    }


def test_every_privilege_is_in_one_role() -> None:
    names = [name for role in privileges.ROLES for name in role.privilege_names]
    assert len(names) == len(set(names))
    assert set(names) >= {
        "VirtualMachine.Config.AddNewDisk",
        "VirtualMachine.Config.Settings",
        "Network.Assign",
        "StorageProfile.View",
        "VApp.ApplicationConfig",
    }


def test_commands_quote_users_and_paths() -> None:
    role = privileges.DATASTORE_ROLE
    assert privileges.format_role_command("create", role) == (
        "govc role.create vsphere-operators-datastore Datastore.AllocateSpace"
    )
    assert privileges.format_permission_command(role, "EXAMPLE\\ann", ["/DC0/datastore/b c"]) == (
        "govc permissions.set -principal 'EXAMPLE\\ann' -role vsphere-operators-datastore "
        "-propagate=true '/DC0/datastore/b c'"
    )


async def test_account_that_sees_nothing_is_a_problem_with_the_role_to_grant(
    start_simulator: SimulatorFactory,
) -> None:
    vcenter = await start_simulator(ACCOUNT_FLAG)
    await vcenter.set_permission(OPERATOR, ())
    config = VCenterConfig(
        "lab",
        simulator_address(vcenter),
        username=OPERATOR,
        password=OPERATOR_PASSWORD,
    )
    findings = [finding async for finding in check(config, (), Installation())]
    (finding,) = [finding for finding in findings if finding.level == "problem"]
    assert 'the privilege "System.View" is missing on Folder group-d1' in finding.message
    assert "govc role.create vsphere-operators-reader System.Anonymous System.Read" in finding.fix
    assert f"-principal {OPERATOR} -role vsphere-operators-reader -propagate=true /" in finding.fix
