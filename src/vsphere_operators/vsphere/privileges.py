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
from .properties import text
from .vm_calls import Hands

READ = ("System.Read",)
IN_FOLDER = (
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
ON_TEMPLATE = ("VirtualMachine.Provisioning.DeployTemplate",)
ON_POOL = ("Resource.AssignVMToPool",)
ON_DATASTORE = ("Datastore.AllocateSpace",)


class Place(Struct, frozen=True):
    """Something in the inventory that privileges are held on."""

    type: str
    """As on the wire: Folder, Datastore..."""
    ref: str
    path: str = ""


class Account(Struct, frozen=True):
    """Who is logged in."""

    session: str
    name: str


async def account(hands: Hands) -> Account:
    """Who we are to vCenter."""
    content = await hands.soap.content()
    found = (await hands.read("SessionManager", content.sessionManager._moId, ["currentSession"])).get("currentSession")
    if not isinstance(found, Mapping):
        raise Rejected("vCenter does not tell who is logged in")
    return Account(text(found.get("key")), text(found.get("userName")))


async def missing(hands: Hands, who: Account, places: Sequence[Place], privileges: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """By reference, which of these privileges this account has not on each of the places."""
    stub = hands.soap.stub
    entities = [TYPES[place.type](place.ref, stub) for place in places]

    async def ask() -> Any:
        manager = (await hands.soap.content()).authorizationManager
        return await manager.HasPrivilegeOnEntities(entities, who.session, list(privileges))

    answer = await hands.session.call(ask)
    return {
        str(each.entity._moId): tuple(sorted(found.privId for found in each.privAvailability or () if not found.isGranted))
        for each in answer or ()
    }


TYPES: dict[str, Any] = {
    "Folder": vim.Folder,
    "VirtualMachine": vim.VirtualMachine,
    "ResourcePool": vim.ResourcePool,
    "Datastore": vim.Datastore,
}
