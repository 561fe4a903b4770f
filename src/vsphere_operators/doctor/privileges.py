"""Checks the vCenter account's privileges against those that each kind needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from msgspec import Struct

from ..vsphere import privileges
from ..vsphere.faults import Denied, VCenterError
from ..vsphere.inventory import Inventory
from ..vsphere.privileges import Account, EntityRef, Network, Privilege, Role
from ..vsphere.vm_calls import VmCalls
from .finding import Finding, ok, problem, warning

# A vCenter may have thousands of datastores. An account that lacks a privilege usually lacks it
# on the first ones too.
_MAX_OBJECTS_CHECKED = 20


class CheckedRole(Struct, frozen=True, kw_only=True):
    """A role, the objects on which the account needs it, and what it lacks there."""

    role: Role
    location: str
    objects: Sequence[EntityRef]
    # By reference of the object.
    missing: Mapping[str, Sequence[str]] = {}


async def check(vm_calls: VmCalls, inventory: Inventory, parent: str) -> AsyncIterator[Finding]:
    """The findings for each set of kinds; `parent` is the name of the VmGroups' parent folder."""
    try:
        account = await privileges.read_account(vm_calls)
        templates = _limit(vm.ref for vm in inventory.vms.values() if vm.is_template)
        networks = await privileges.read_networks(vm_calls, templates)
        checked = [
            CheckedRole(
                role=role,
                location=location,
                objects=objects,
                missing=await privileges.find_missing_privileges(
                    vm_calls, account, objects, role.privilege_names
                ),
            )
            for role, location, objects in _list_objects(inventory, parent, templates, networks)
            if objects
        ]
    except VCenterError as error:
        yield warning(
            "privileges",
            f"Privileges cannot be read: {error}. "
            "A kind that lacks one reports it in its status when it needs it.",
        )
        return
    for kinds in (privileges.INFO_KINDS, privileges.VM_GROUP):
        for finding in _check_missing_privileges(kinds, checked, account):
            yield finding


def _list_objects(
    inventory: Inventory, parent: str, templates: Sequence[str], networks: Sequence[Network]
) -> Iterator[tuple[Role, str, list[EntityRef]]]:
    """The objects of each role; the list is empty if the inventory has no object of that type."""
    folders = inventory.folders.values()
    pools = (
        pool.ref
        for pool in inventory.resource_pools.values()
        if pool.parent in inventory.compute_resources
    )
    root, folder = privileges.ROOT_ROLE, privileges.FOLDER_ROLE
    template, pool = privileges.TEMPLATE_ROLE, privileges.RESOURCE_POOL_ROLE
    datastore, network = privileges.DATASTORE_ROLE, privileges.NETWORK_ROLE
    for role, location, refs in (
        (root, root.location, (item.ref for item in folders if not item.parent)),
        (folder, f'the folder "{parent}"', (item.ref for item in folders if item.name == parent)),
        (template, template.location, templates),
        (pool, pool.location, pools),
        (datastore, datastore.location, inventory.datastores),
    ):
        objects = [
            EntityRef(role.entity_type, ref, inventory.path(ref) or "/") for ref in _limit(refs)
        ]
        yield role, location, objects
    yield (
        network,
        network.location,
        [
            EntityRef(item.type, item.ref, f"{inventory.path(item.parent)}/{item.name}")
            for item in networks[:_MAX_OBJECTS_CHECKED]
        ],
    )


def _limit(refs: Iterable[str]) -> list[str]:
    return list(islice(refs, _MAX_OBJECTS_CHECKED))


def _check_missing_privileges(
    kinds: str, checked: Sequence[CheckedRole], account: Account
) -> Iterator[Finding]:
    complete = True
    locations = []
    for entry in checked:
        required = [item for item in entry.role.privileges if item.kinds == kinds]
        if required:
            locations.append(entry.location)
        for privilege in required:
            paths = [
                entity.path
                for entity in entry.objects
                if privilege.name in entry.missing.get(entity.ref, ())
            ]
            if paths:
                complete = False
                yield _missing_privilege_finding(entry, privilege, paths, account)
    if complete and locations:
        yield ok(
            "privileges",
            f'{kinds}: user "{account.name}" has all required privileges on {", ".join(locations)}',
        )


def _missing_privilege_finding(
    entry: CheckedRole, privilege: Privilege, paths: Sequence[str], account: Account
) -> Finding:
    """A problem, or a warning if some objects have it or only an option needs it."""
    everywhere = len(paths) == len(entry.objects)
    location = entry.location if everywhere else ", ".join(paths)
    needed_by = (
        f"{privilege.kinds} with {privilege.option}" if privilege.option else privilege.kinds
    )
    message = (
        f'User "{account.name}" lacks privilege {privilege.name} on {location}, '
        f"required by {needed_by} to {privilege.purpose}"
    )
    fix = _grant_command(entry.role, account.name, paths)
    if everywhere and not privilege.option:
        return problem("privileges", message, fix)
    return warning("privileges", message, fix)


def unreadable_inventory_finding(error: Denied, user: str) -> Finding:
    """VCenter returns nothing to the user, so no other privilege can be checked."""
    return problem("privileges", str(error), _grant_command(privileges.ROOT_ROLE, user, ["/"]))


def _grant_command(role: Role, user: str, paths: Sequence[str]) -> str:
    # The role may exist, from the installation or an earlier fix.
    return (
        f"{privileges.format_role_command('create', role)} || "
        f"{privileges.format_role_command('update', role)} && "
        f"{privileges.format_permission_command(role, user, paths)}"
        "   # replaces the role that the user has on these objects"
    )
