"""Which privileges each operation needs, and which of them the account lacks.

Why a fixed list?  pyVmomi knows the privilege of a method only if it does not depend on the
    arguments, so not those of CloneVM_Task, ReconfigVM_Task and Destroy_Task. They are from the
    vSphere API reference, for the arguments that vm_calls.py sends.
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
    # The type on the wire: Folder, Datastore...
    type: str
    ref: str
    path: str = ""


class Account(Struct, frozen=True):
    session_key: str
    name: str


async def read_account(vm_calls: VmCalls) -> Account:
    manager = (await vm_calls.soap.get_service_content()).sessionManager
    properties = await vm_calls.read_properties("SessionManager", manager._moId, ["currentSession"])
    session = properties.get("currentSession")
    if not isinstance(session, Mapping):
        raise Rejected("vCenter does not return the current session")
    return Account(to_text(session.get("key")), to_text(session.get("userName")))


async def find_missing_privileges(
    vm_calls: VmCalls,
    account: Account,
    entities: Sequence[EntityRef],
    privileges: Sequence[str],
) -> dict[str, tuple[str, ...]]:
    """The privileges that the account lacks on each entity, by reference."""
    stub = vm_calls.soap.stub
    managed = [getattr(vim, entity.type)(entity.ref, stub) for entity in entities]

    async def check() -> Any:
        manager = (await vm_calls.soap.get_service_content()).authorizationManager
        return await manager.HasPrivilegeOnEntities(managed, account.session_key, list(privileges))

    results = await vm_calls.session.call(check)
    return {
        str(result.entity._moId): tuple(
            sorted(item.privId for item in result.privAvailability or () if not item.isGranted)
        )
        for result in results or ()
    }
