"""Checks the vCenter account's privileges against those that each kind needs."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

from msgspec import Struct

from ..vsphere import privileges
from ..vsphere.faults import VCenterError
from ..vsphere.inventory import Inventory
from ..vsphere.privileges import Account, EntityRef
from ..vsphere.vm_calls import VmCalls
from .finding import Finding, ok, problem, warning

_ROLE_NAME = "vsphere-operators"
_INFO_KINDS = "HostInfo, VMInfo, FCDInfo, GPUInfo"
# A vCenter may have thousands of datastores. An account that lacks a privilege usually lacks it
# on the first ones too.
_MAX_OBJECTS_CHECKED = 20


class RequiredPrivileges(Struct, frozen=True, kw_only=True):
    """Privileges that some kinds need on objects of one type."""

    kinds: str
    description: str
    privileges: tuple[str, ...]
    objects: Sequence[EntityRef]


async def check(vm_calls: VmCalls, inventory: Inventory, parent: str) -> AsyncIterator[Finding]:
    """The findings for each set of kinds; `parent` is the name of the VmGroups' parent folder."""
    try:
        account = await privileges.read_account(vm_calls)
        required = list(_list_required_privileges(inventory, parent))
        missing = [
            await privileges.find_missing_privileges(
                vm_calls, account, need.objects, need.privileges
            )
            for need in required
        ]
    except VCenterError as error:
        yield warning(
            "privileges",
            f"Privileges cannot be read: {error}. "
            "A kind that lacks one reports it in its status when it needs it.",
        )
        return
    for kinds in dict.fromkeys(need.kinds for need in required):
        of_these_kinds = [
            pair for pair in zip(required, missing, strict=True) if pair[0].kinds == kinds
        ]
        for finding in _check_missing_privileges(kinds, of_these_kinds, account):
            yield finding


def _list_required_privileges(inventory: Inventory, parent: str) -> Iterator[RequiredPrivileges]:
    """What is needed where; object types that the inventory lacks are left out."""
    roots = [folder.ref for folder in inventory.folders.values() if not folder.parent]
    yield RequiredPrivileges(
        kinds=_INFO_KINDS,
        description="the root folder",
        privileges=privileges.READ_PRIVILEGES,
        objects=_entity_refs(inventory, "Folder", roots),
    )
    folders = [folder.ref for folder in inventory.folders.values() if folder.name == parent]
    templates = [vm.ref for vm in inventory.vms.values() if vm.is_template]
    pools = [
        pool.ref
        for pool in inventory.resource_pools.values()
        if pool.parent in inventory.compute_resources
    ]
    datastores = list(inventory.datastores)
    for entity_type, description, names, refs in (
        ("Folder", f'the folder "{parent}"', privileges.FOLDER_PRIVILEGES, folders),
        ("VirtualMachine", "templates", privileges.TEMPLATE_PRIVILEGES, templates),
        ("ResourcePool", "resource pools", privileges.RESOURCE_POOL_PRIVILEGES, pools),
        ("Datastore", "datastores", privileges.DATASTORE_PRIVILEGES, datastores),
    ):
        if refs:
            yield RequiredPrivileges(
                kinds="VmGroup",
                description=description,
                privileges=names,
                objects=_entity_refs(inventory, entity_type, refs[:_MAX_OBJECTS_CHECKED]),
            )


def _entity_refs(inventory: Inventory, entity_type: str, refs: Sequence[str]) -> list[EntityRef]:
    return [EntityRef(entity_type, ref, inventory.path(ref) or "/") for ref in refs]


def _check_missing_privileges(
    kinds: str,
    missing: Sequence[tuple[RequiredPrivileges, Mapping[str, tuple[str, ...]]]],
    account: Account,
) -> Iterator[Finding]:
    """A privilege that is missing on all objects is a problem, on some of them a warning."""
    complete = True
    for need, missing_by_ref in missing:
        for privilege in need.privileges:
            paths = [
                entity.path
                for entity in need.objects
                if privilege in missing_by_ref.get(entity.ref, ())
            ]
            if not paths:
                continue
            complete = False
            everywhere = len(paths) == len(need.objects)
            location = need.description if everywhere else ", ".join(paths)
            message = (
                f'User "{account.name}" lacks privilege {privilege} on {location}, '
                f"required by {kinds}"
            )
            fix = _grant_command(account.name, need.privileges, paths)
            if everywhere:
                yield problem("privileges", message, fix)
            else:
                yield warning("privileges", message, fix)
    if complete and missing:
        objects = ", ".join(need.description for need, _ in missing)
        yield ok(
            "privileges",
            f'{kinds}: user "{account.name}" has all required privileges on {objects}',
        )


def _grant_command(user: str, names: Sequence[str], paths: Sequence[str]) -> str:
    # All fixes use the same role: `role.create` fails if an earlier fix created it, and
    # `role.update -a` adds these privileges to those that it has. govc is VMware's own CLI.
    objects = " ".join(shlex.quote(path) for path in paths)
    return (
        f"govc role.create {_ROLE_NAME}; "
        f"govc role.update -a {_ROLE_NAME} {' '.join(names)} && "
        f"govc permissions.set -principal {shlex.quote(user)} -role {_ROLE_NAME} "
        f"-propagate=true {objects}"
    )
