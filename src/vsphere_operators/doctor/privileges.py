"""Checks the vCenter account's privileges against those that each kind needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

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


async def check(
    vm_calls: VmCalls,
    inventory: Inventory,
    parent_name: str,
    parent_refs: Sequence[str],
    *,
    serves_vmgroups: bool,
) -> AsyncIterator[Finding]:
    """The findings for each set of kinds; the parent is the folder in which VmGroups are placed.

    Without VmGroups, what they would lack is a warning.
    """
    try:
        account = await privileges.read_account(vm_calls)
        templates = [vm.ref for vm in inventory.vms.values() if vm.is_template]
        networks = await privileges.read_networks(vm_calls, templates[:_MAX_OBJECTS_CHECKED])
        checked = [
            CheckedRole(
                role=role,
                location=location,
                objects=objects,
                missing=await privileges.find_missing_privileges(
                    vm_calls, account, objects, role.privilege_names
                )
                if objects
                else {},
            )
            for role, location, objects in _list_objects(
                inventory, f'the folder "{parent_name}"', parent_refs, networks
            )
        ]
    except VCenterError as error:
        yield warning(
            "privileges",
            f"Privileges cannot be read: {error}. "
            "A kind that lacks one reports it in its status when it needs it.",
        )
        return
    for kinds in (privileges.INFO_KINDS, privileges.VM_GROUP):
        for finding in _check_missing_privileges(
            kinds, checked, account, in_use=serves_vmgroups or kinds != privileges.VM_GROUP
        ):
            yield finding


def _list_objects(
    inventory: Inventory,
    parent_location: str,
    parent_refs: Sequence[str],
    networks: Sequence[Network],
) -> Iterator[tuple[Role, str, list[EntityRef]]]:
    """The objects of each role; the list is empty if the account sees no object of that type."""
    pools = [
        pool.ref
        for pool in inventory.resource_pools.values()
        if pool.parent in inventory.compute_resources
    ]
    templates = [vm.ref for vm in inventory.vms.values() if vm.is_template]
    roots = [folder.ref for folder in inventory.folders.values() if not folder.parent]
    root, folder = privileges.ROOT_ROLE, privileges.FOLDER_ROLE
    template, pool = privileges.TEMPLATE_ROLE, privileges.RESOURCE_POOL_ROLE
    datastore, network = privileges.DATASTORE_ROLE, privileges.NETWORK_ROLE
    for role, location, refs in (
        (root, root.location, roots),
        (folder, parent_location, parent_refs),
        (template, template.location, templates),
        (pool, pool.location, pools),
        (datastore, datastore.location, list(inventory.datastores)),
    ):
        objects = [
            EntityRef(role.entity_type, ref, inventory.path(ref) or "/")
            for ref in refs[:_MAX_OBJECTS_CHECKED]
        ]
        yield role, _describe_location(location, len(refs)), objects
    yield (
        network,
        _describe_location(network.location, len(networks)),
        [
            EntityRef(item.type, item.ref, f"{inventory.path(item.parent)}/{item.name}")
            for item in networks[:_MAX_OBJECTS_CHECKED]
        ],
    )


def _describe_location(location: str, count: int) -> str:
    if count <= _MAX_OBJECTS_CHECKED:
        return location
    return f"the first {_MAX_OBJECTS_CHECKED} of {count} {location}"


def _check_missing_privileges(
    kinds: str, checked: Sequence[CheckedRole], account: Account, *, in_use: bool = True
) -> Iterator[Finding]:
    complete = True
    locations: list[str] = []
    unchecked: list[str] = []
    for entry in checked:
        required = [item for item in entry.role.privileges if item.kinds == kinds]
        if required:
            (locations if entry.objects else unchecked).append(entry.location)
        for (_, paths), missing in _group_by_paths(entry, required).items():
            complete = False
            yield _missing_privileges_finding(entry, missing, paths, account, in_use=in_use)
    if complete and locations:
        yield ok(
            "privileges",
            f'{kinds}: user "{account.name}" has all required privileges on {", ".join(locations)}',
        )
    if unchecked:
        yield warning(
            "privileges",
            f"{kinds}: privileges on {', '.join(unchecked)} were not checked, because they do not "
            "exist or this account does not see them",
        )


def _group_by_paths(
    entry: CheckedRole, required: Sequence[Privilege]
) -> dict[tuple[str, tuple[str, ...]], list[Privilege]]:
    """The missing privileges by the option that needs them and by the objects that lack them."""
    groups: dict[tuple[str, tuple[str, ...]], list[Privilege]] = {}
    for privilege in required:
        paths = tuple(
            entity.path
            for entity in entry.objects
            if privilege.name in entry.missing.get(entity.ref, ())
        )
        if paths:
            groups.setdefault((privilege.option, paths), []).append(privilege)
    return groups


def _missing_privileges_finding(
    entry: CheckedRole,
    missing: Sequence[Privilege],
    paths: Sequence[str],
    account: Account,
    *,
    in_use: bool,
) -> Finding:
    """A problem, or a warning if some objects have them, or if nothing needs them now."""
    everywhere = len(paths) == len(entry.objects)
    location = entry.location if everywhere else ", ".join(paths)
    first = missing[0]
    needed_by = f"{first.kinds} with {first.option}" if first.option else first.kinds
    if len(missing) == 1:
        lacking, purpose = f"privilege {first.name}", f" to {first.purpose}"
    else:
        lacking = f"{len(missing)} privileges"
        purpose = f": {', '.join(privilege.name for privilege in missing)}"
    message = (
        f'User "{account.name}" lacks {lacking} on {location}, required by {needed_by}{purpose}'
    )
    fix = _grant_command(entry.role, account.name, paths)
    if not in_use:
        return warning(
            "privileges",
            f"{message}. No {first.kinds} exists here, so ignore this if you do not use that kind",
            fix,
        )
    if everywhere and not first.option:
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
