"""An account of the simulated vCenter that has the documented privileges, and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulator import SimulatedVCenter
from vsphere_operators.vsphere.privileges import ROLES, ROOT_ROLE, Role

from .vmgroup_client import PARENT_FOLDER, TEMPLATE

OPERATOR, OPERATOR_PASSWORD = "operator@vsphere.local", "oper-4711"
ACCOUNT_FLAG = f"--account={OPERATOR}:{OPERATOR_PASSWORD}"
# Every role of vCenter has these, so that they cannot be taken away one by one.
SYSTEM_PRIVILEGES = ("System.Anonymous", "System.Read", "System.View")


async def grant_roles(vcenter: SimulatedVCenter, roles: Sequence[Role] = ROLES) -> None:
    """Gives the account each role on its objects, as an administrator does by the docs."""
    entities = await vcenter.entities()
    for role in roles:
        for ref in list_role_objects(role, entities):
            await vcenter.set_permission(
                OPERATOR, role.privilege_names or SYSTEM_PRIVILEGES, ref, propagate=True
            )


def list_role_objects(role: Role, entities: Sequence[Mapping[str, str]]) -> list[str]:
    """The references of the objects that the docs name for a role; "" is the root folder."""
    if role is ROOT_ROLE or role.name == ROOT_ROLE.name:
        return [""]
    refs = [
        entity["ref"]
        for entity in entities
        if entity["type"] == role.entity_type
        and (entity["type"] != "Folder" or entity["path"] == PARENT_FOLDER)
        and (entity["type"] != "VirtualMachine" or entity["name"] == TEMPLATE)
    ]
    assert refs, f"the simulator has no object for {role.name}"
    return refs
