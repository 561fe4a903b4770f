"""What the account may do in vCenter, beside what each kind needs."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

from msgspec import Struct

from ..vsphere import privileges
from ..vsphere.faults import VCenterError
from ..vsphere.inventory import Inventory
from ..vsphere.model import Datastore, Folder, Machine, ResourcePool
from ..vsphere.privileges import Account, Place
from ..vsphere.vm_calls import Hands
from .finding import Finding, ok, problem, warning

ROLE = "vsphere-operators"
READERS = "HostInfo, VMInfo, FCDInfo, GPUInfo"
# A vCenter may have thousands of datastores; whoever lacks a privilege lacks it on the first ones too.
MOST_PLACES = 20


class Need(Struct, frozen=True, kw_only=True):
    """Privileges that some kinds need on places of one sort."""

    kinds: str
    what: str
    privileges: tuple[str, ...]
    places: Sequence[Place]


async def check(hands: Hands, inventory: Inventory, parent: str) -> AsyncIterator[Finding]:
    """One line for each set of kinds."""
    try:
        who = await privileges.account(hands)
        needs = list(needs_of(inventory, parent))
        answers = [await privileges.missing(hands, who, need.places, need.privileges) for need in needs]
    except VCenterError as error:
        yield warning("privileges", f"they cannot be asked for: {error}. The kinds will say what they lack when they need it.")
        return
    for kinds in dict.fromkeys(need.kinds for need in needs):
        own = [(need, answer) for need, answer in zip(needs, answers, strict=True) if need.kinds == kinds]
        for finding in judged(kinds, own, who):
            yield finding


def needs_of(inventory: Inventory, parent: str) -> Iterator[Need]:
    """What is needed where; sorts of which there are none need nothing."""
    roots = [each.ref for each in inventory.folders.values() if not each.parent]
    yield Need(kinds=READERS, what="the root folder", privileges=privileges.READ, places=places(inventory, "Folder", roots))
    folders: list[Folder] = [each for each in inventory.folders.values() if each.name == parent]
    templates: list[Machine] = [each for each in inventory.machines.values() if each.is_template]
    pools: list[ResourcePool] = [each for each in inventory.pools.values() if each.parent in inventory.computes]
    stores: list[Datastore] = list(inventory.datastores.values())
    for sort, what, wanted, found in (
        ("Folder", f'the folder "{parent}"', privileges.IN_FOLDER, folders),
        ("VirtualMachine", "templates", privileges.ON_TEMPLATE, templates),
        ("ResourcePool", "resource pools", privileges.ON_POOL, pools),
        ("Datastore", "datastores", privileges.ON_DATASTORE, stores),
    ):
        if refs := [each.ref for each in found][:MOST_PLACES]:
            yield Need(kinds="VmGroup", what=what, privileges=wanted, places=places(inventory, sort, refs))


def places(inventory: Inventory, sort: str, refs: Sequence[str]) -> list[Place]:
    """With their paths."""
    return [Place(sort, ref, inventory.path(ref) or "/") for ref in refs]


def judged(kinds: str, answers: Sequence[tuple[Need, Mapping[str, tuple[str, ...]]]], who: Account) -> Iterator[Finding]:
    """What is missing everywhere is a problem, what is missing somewhere a warning; with neither all is well."""
    lacking = False
    for need, answer in answers:
        for privilege in need.privileges:
            without = [place.path for place in need.places if privilege in answer.get(place.ref, ())]
            if not without:
                continue
            lacking = True
            everywhere = len(without) == len(need.places)
            where = f"on {need.what}" if everywhere else f"on {', '.join(without)}"
            words = f'"{who.name}" has not the privilege {privilege} {where}, which {kinds} needs'
            yield (problem if everywhere else warning)("privileges", words, grant(who.name, need.privileges, without))
    if not lacking and answers:
        on = ", ".join(need.what for need, _ in answers)
        yield ok("privileges", f'{kinds}: "{who.name}" has what is needed on {on}')


def grant(user: str, wanted: Sequence[str], paths: Sequence[str]) -> str:
    """The commands that make a role and give it; govc is VMware's own tool for the command line.

    All lines have the same role: it may be there from the line before, and then gets these privileges beside those that it has.
    """
    given = " ".join(shlex.quote(path) for path in paths)
    return (
        f"govc role.create {ROLE}; govc role.update -a {ROLE} {' '.join(wanted)} && "
        f"govc permissions.set -principal {shlex.quote(user)} -role {ROLE} -propagate=true {given}"
    )
