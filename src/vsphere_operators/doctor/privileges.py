"""What the account may do in vCenter, beside what each kind needs."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

from msgspec import Struct

from ..vsphere import privileges
from ..vsphere.faults import VCenterError
from ..vsphere.inventory import Inventory
from ..vsphere.model import Datastore, Folder, ResourcePool, VirtualMachine
from ..vsphere.privileges import Account, EntityRef
from ..vsphere.vm_calls import VmCalls
from .finding import Finding, ok, problem, warning

_ROLE_NAME = "vsphere-operators"
_INFO_KINDS = "HostInfo, VMInfo, FCDInfo, GPUInfo"
# A vCenter may have thousands of datastores; whoever lacks a privilege lacks it on the first ones too.
_MAX_OBJECTS_CHECKED = 20


class RequiredPrivileges(Struct, frozen=True, kw_only=True):
    """Privileges that some kinds need on places of one sort."""

    kinds: str
    description: str
    privileges: tuple[str, ...]
    objects: Sequence[EntityRef]


async def check(hands: VmCalls, inventory: Inventory, parent: str) -> AsyncIterator[Finding]:
    """One line for each set of kinds."""
    try:
        who = await privileges.read_account(hands)
        needs = list(_list_required_privileges(inventory, parent))
        answers = [
            await privileges.find_missing_privileges(hands, who, need.objects, need.privileges)
            for need in needs
        ]
    except VCenterError as error:
        yield warning(
            "privileges",
            f"they cannot be asked for: {error}. The kinds will say what they lack when they need it.",
        )
        return
    for kinds in dict.fromkeys(need.kinds for need in needs):
        own = [
            (need, answer)
            for need, answer in zip(needs, answers, strict=True)
            if need.kinds == kinds
        ]
        for finding in check_missing_privileges(kinds, own, who):
            yield finding


def _list_required_privileges(inventory: Inventory, parent: str) -> Iterator[RequiredPrivileges]:
    """What is needed where; sorts of which there are none need nothing."""
    roots = [each.ref for each in inventory.folders.values() if not each.parent]
    yield RequiredPrivileges(
        kinds=_INFO_KINDS,
        description="the root folder",
        privileges=privileges.READ_PRIVILEGES,
        objects=_objects_with_paths(inventory, "Folder", roots),
    )
    folders: list[Folder] = [each for each in inventory.folders.values() if each.name == parent]
    templates: list[VirtualMachine] = [each for each in inventory.vms.values() if each.is_template]
    pools: list[ResourcePool] = [
        each
        for each in inventory.resource_pools.values()
        if each.parent in inventory.compute_resources
    ]
    stores: list[Datastore] = list(inventory.datastores.values())
    for sort, what, wanted, found in (
        ("Folder", f'the folder "{parent}"', privileges.FOLDER_PRIVILEGES, folders),
        ("VirtualMachine", "templates", privileges.TEMPLATE_PRIVILEGES, templates),
        ("ResourcePool", "resource pools", privileges.RESOURCE_POOL_PRIVILEGES, pools),
        ("Datastore", "datastores", privileges.DATASTORE_PRIVILEGES, stores),
    ):
        if refs := [each.ref for each in found][:_MAX_OBJECTS_CHECKED]:
            yield RequiredPrivileges(
                kinds="VmGroup",
                description=what,
                privileges=wanted,
                objects=_objects_with_paths(inventory, sort, refs),
            )


def _objects_with_paths(inventory: Inventory, sort: str, refs: Sequence[str]) -> list[EntityRef]:
    """With their paths."""
    return [EntityRef(sort, ref, inventory.path(ref) or "/") for ref in refs]


def check_missing_privileges(
    kinds: str,
    answers: Sequence[tuple[RequiredPrivileges, Mapping[str, tuple[str, ...]]]],
    who: Account,
) -> Iterator[Finding]:
    """What is missing everywhere is a problem, what is missing somewhere a warning; with neither all is well."""
    lacking = False
    for need, answer in answers:
        for privilege in need.privileges:
            without = [
                place.path for place in need.objects if privilege in answer.get(place.ref, ())
            ]
            if not without:
                continue
            lacking = True
            everywhere = len(without) == len(need.objects)
            where = f"on {need.description}" if everywhere else f"on {', '.join(without)}"
            words = f'"{who.name}" has not the privilege {privilege} {where}, which {kinds} needs'
            yield (problem if everywhere else warning)(
                "privileges", words, _grant_command(who.name, need.privileges, without)
            )
    if not lacking and answers:
        on = ", ".join(need.description for need, _ in answers)
        yield ok("privileges", f'{kinds}: "{who.name}" has what is needed on {on}')


def _grant_command(user: str, wanted: Sequence[str], paths: Sequence[str]) -> str:
    """The commands that make a role and give it; govc is VMware's own tool for the command line.

    All lines have the same role: it may be there from the line before, and then gets these privileges beside those that it has.
    """
    given = " ".join(shlex.quote(path) for path in paths)
    return (
        f"govc role.create {_ROLE_NAME}; govc role.update -a {_ROLE_NAME} {' '.join(wanted)} && "
        f"govc permissions.set -principal {shlex.quote(user)} -role {_ROLE_NAME} -propagate=true {given}"
    )
