"""What an account may do, asked of vCenter itself; and what each sort of work needs.

Why is there a list?  pyVmomi knows the privilege of a method only where one does for all its arguments. Of CloneVM_Task, ReconfigVM_Task
and Destroy_Task it knows none; theirs are from the vSphere API reference, by what `hands.py` sends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from pyVmomi import vim

from .faults import Rejected
from .properties import to_text
from .vm_calls import VmCalls

READ_PRIVILEGES = ("System.Read",)
FOLDER_PRIVILEGES = (
    "Folder.Create",
    "Folder.Delete",
    "VirtualMachine.Inventory.CreateFromExisting",
    "VirtualMachine.Inventory.Delete",
    "VirtualMachine.Config.CPUCount",
    "VirtualMachine.Config.Memory",
    "VirtualMachine.Config.AdvancedConfig",
    "VirtualMachine.Interact.PowerOn",
    "VirtualMachine.Interact.PowerOff",
)
TEMPLATE_PRIVILEGES = ("VirtualMachine.Provisioning.DeployTemplate",)
RESOURCE_POOL_PRIVILEGES = ("Resource.AssignVMToPool",)
DATASTORE_PRIVILEGES = ("Datastore.AllocateSpace",)


class EntityRef(Struct, frozen=True):
    """Something in the inventory that privileges are held on."""

    type: str
    """As on the wire: Folder, Datastore..."""
    ref: str
    path: str = ""


class Account(Struct, frozen=True):
    """Who is logged in."""

    session_key: str
    name: str


async def read_account(hands: VmCalls) -> Account:
    """Who we are to vCenter."""
    content = await hands.soap.get_service_content()
    found = (
        await hands.read_properties(
            "SessionManager", content.sessionManager._moId, ["currentSession"]
        )
    ).get("currentSession")
    if not isinstance(found, Mapping):
        raise Rejected("vCenter does not tell who is logged in")
    return Account(to_text(found.get("key")), to_text(found.get("userName")))


async def find_missing_privileges(
    hands: VmCalls, who: Account, places: Sequence[EntityRef], privileges: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """By reference, which of these privileges this account has not on each of the places."""
    stub = hands.soap.stub
    entities = [_MANAGED_TYPES[place.type](place.ref, stub) for place in places]

    async def ask() -> Any:
        manager = (await hands.soap.get_service_content()).authorizationManager
        return await manager.HasPrivilegeOnEntities(entities, who.session_key, list(privileges))

    answer = await hands.session.call(ask)
    return {
        str(each.entity._moId): tuple(
            sorted(found.privId for found in each.privAvailability or () if not found.isGranted)
        )
        for each in answer or ()
    }


_MANAGED_TYPES: dict[str, Any] = {
    "Folder": vim.Folder,
    "VirtualMachine": vim.VirtualMachine,
    "ResourcePool": vim.ResourcePool,
    "Datastore": vim.Datastore,
}
