"""Which privileges the account needs on which objects, and which of them it lacks.

`ROLES` is the only list: `manager doctor` checks it, docs/reference/privileges.md is generated from
it, and tests run all calls with an account that has these privileges and no others.

Why a fixed list?  pyVmomi knows the privilege of a method only if it does not depend on the
    arguments, so not those of CloneVM_Task, ReconfigVM_Task and Destroy_Task. They are from the
    vSphere API reference ("Required privileges", and "Reconfigure privilege" of each field of a
    ConfigSpec) and from "Required Privileges for Common Tasks" in vSphere Security, for the
    arguments that vm_calls.py sends.
Why one role for each type of object?  A permission on an object replaces the one that the object
    would inherit, so each role has all privileges that are needed there, and no more.
Where are tags?  Permissions on the inventory do not apply to tags. They need a global permission,
    which the vSphere Client can set, but neither the vSphere API nor govc.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from pyVmomi import VmomiSupport, vim

from .converters import to_name, to_ref, to_text
from .faults import Rejected
from .property_collector import (
    build_filter_spec,
    build_property_spec,
    build_traversal_spec,
    retrieve_selected,
)
from .updates import Ref
from .vm_calls import VmCalls

INFO_KINDS = "HostInfo, VMInfo, FCDInfo, DatastoreInfo, ClusterInfo, GPUInfo"
VM_GROUP = "VmGroup"
_CONFIG = "VirtualMachine.Config."


class Privilege(Struct, frozen=True):
    name: str
    purpose: str
    kinds: str = VM_GROUP
    # The field of the spec that needs it; "" if every object of these kinds does.
    option: str = ""


class Role(Struct, frozen=True, kw_only=True):
    """All privileges that are needed on objects of one type."""

    name: str
    # The type on the wire.
    entity_type: str
    # The objects, for messages and the docs.
    location: str
    # What to replace in a command.
    placeholder: str
    privileges: tuple[Privilege, ...]

    @property
    def privilege_names(self) -> tuple[str, ...]:
        return tuple(privilege.name for privilege in self.privileges)


ROOT_ROLE = Role(
    name="vsphere-operators-reader",
    entity_type="Folder",
    location="the root folder",
    placeholder="/",
    privileges=(
        Privilege("System.Anonymous", "log in", INFO_KINDS),
        Privilege(
            "System.Read", "read hosts, clusters, VMs, datastores, disks and tasks", INFO_KINDS
        ),
        Privilege("System.View", "list objects and wait for changes", INFO_KINDS),
        Privilege(
            "StorageProfile.View", "use a storage policy for a clone", option="spec.storagePolicy"
        ),
    ),
)
FOLDER_ROLE = Role(
    name="vsphere-operators-folder",
    entity_type="Folder",
    location="the parent folder of VmGroups",
    placeholder="/DATACENTER/vm/vm-operator",
    privileges=(
        Privilege("Folder.Create", "create the folder of a group"),
        Privilege("Folder.Delete", "delete the folder of a group"),
        Privilege("VirtualMachine.Inventory.CreateFromExisting", "clone into the folder"),
        Privilege("VirtualMachine.Inventory.Delete", "delete a replica with its disks"),
        Privilege(f"{_CONFIG}AddNewDisk", "clone the disks of the template"),
        Privilege(f"{_CONFIG}CPUCount", "set the number of CPUs"),
        Privilege(f"{_CONFIG}Memory", "set the memory"),
        Privilege(f"{_CONFIG}AdvancedConfig", "mark a replica as owned, in its extraConfig"),
        Privilege(f"{_CONFIG}Settings", "set the instance UUID of a replica"),
        Privilege(
            "VApp.ApplicationConfig",
            "remove the vApp configuration of a template from an OVA",
            option="spec.bootstrap.cloudInit",
        ),
        Privilege("VirtualMachine.Interact.PowerOn", "power on, and resume a suspended VM"),
        Privilege("VirtualMachine.Interact.PowerOff", "power off before a resize or a deletion"),
    ),
)
TEMPLATE_ROLE = Role(
    name="vsphere-operators-template",
    entity_type="VirtualMachine",
    location="templates",
    placeholder="/DATACENTER/vm/TEMPLATE",
    privileges=(Privilege("VirtualMachine.Provisioning.DeployTemplate", "clone the template"),),
)
RESOURCE_POOL_ROLE = Role(
    name="vsphere-operators-pool",
    entity_type="ResourcePool",
    location="resource pools",
    placeholder="/DATACENTER/host/CLUSTER/Resources",
    privileges=(Privilege("Resource.AssignVMToPool", "place a clone in the resource pool"),),
)
DATASTORE_ROLE = Role(
    name="vsphere-operators-datastore",
    entity_type="Datastore",
    location="datastores",
    placeholder="/DATACENTER/datastore/DATASTORE",
    privileges=(Privilege("Datastore.AllocateSpace", "store the files of a clone"),),
)
NETWORK_ROLE = Role(
    name="vsphere-operators-network",
    entity_type="Network",
    location="networks of the templates",
    placeholder="/DATACENTER/network/NETWORK",
    privileges=(Privilege("Network.Assign", "connect a clone to the networks of its template"),),
)
ROLES = (
    ROOT_ROLE,
    FOLDER_ROLE,
    TEMPLATE_ROLE,
    RESOURCE_POOL_ROLE,
    DATASTORE_ROLE,
    NETWORK_ROLE,
)


def format_role_command(verb: Literal["create", "update"], role: Role) -> str:
    """The command of govc after which the role has exactly these privileges."""
    return f"govc role.{verb} {role.name} {' '.join(role.privilege_names)}"


def format_permission_command(role: Role, user: str, paths: Iterable[str]) -> str:
    objects = " ".join(shlex.quote(path) for path in paths)
    return (
        f"govc permissions.set -principal {shlex.quote(user)} -role {role.name} "
        f"-propagate=true {objects}"
    )


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
    properties = await vm_calls.read_properties("SessionManager", manager.value, ["currentSession"])
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
    managed = [
        # By the name on the wire: a distributed port group is vim.dvs.DistributedVirtualPortgroup.
        VmomiSupport.GuessWsdlType(entity.type)(entity.ref, stub)
        for entity in entities
    ]

    async def check() -> Any:
        ref = (await vm_calls.soap.get_service_content()).authorizationManager
        if ref is None:
            raise vm_calls.soap.not_vsphere_error("HasPrivilegeOnEntities")
        manager: Any = vim.AuthorizationManager(ref.value, stub)
        return await manager.HasPrivilegeOnEntities(managed, account.session_key, list(privileges))

    results = await vm_calls.session.call(check)
    return {
        str(result.entity._moId): tuple(
            sorted(item.privId for item in result.privAvailability or () if not item.isGranted)
        )
        for result in results or ()
    }


class Network(Struct, frozen=True):
    """A network. The inventory has none, since only their privileges matter."""

    type: str
    ref: str
    name: str
    # The reference of its folder.
    parent: str


async def read_networks(vm_calls: VmCalls, vms: Sequence[str]) -> list[Network]:
    """The networks that the VMs with these references are connected to."""
    if not vms:
        return []
    spec = build_filter_spec(
        [
            build_traversal_spec(Ref("VirtualMachine", ref), "VirtualMachine", "network")
            for ref in vms
        ],
        [build_property_spec("Network", ["name", "parent"])],
        # A template may have been deleted meanwhile.
        report_missing=True,
    )
    updates = await vm_calls.session.call(lambda: retrieve_selected(vm_calls.soap, spec))
    # Once for each VM that is connected to it.
    networks = {
        update.ref: Network(
            update.type,
            update.ref,
            to_name(update.changes.get("name")),
            to_ref(update.changes.get("parent")),
        )
        for update in updates
    }
    return [networks[ref] for ref in sorted(networks)]
