"""Where VmGroups go: datacenters, the parent folder, resource pools and templates; and groups that find none. Pure, over the inventory."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from ..kinds.vmgroup.limits import NamespaceLimits
from ..kinds.vmgroup.model import CloneBlocked
from ..kinds.vmgroup.placement import DEFAULT_PARENT_FOLDER, PlacementResolver
from ..vsphere.inventory import Inventory
from ..vsphere.model import Datacenter
from .finding import Finding, ok, warning

SHOWN = 5


class Wanted(Struct, frozen=True, kw_only=True):
    """What one VmGroup asks for."""

    namespace: str
    name: str
    template: str
    asked: Mapping[str, str] = {}
    limits: NamespaceLimits = NamespaceLimits()


def check(inventory: Inventory, defaults: Mapping[str, str], groups: Sequence[Wanted]) -> Iterator[Finding]:
    """All of it."""
    yield about_datacenters(inventory, defaults)
    for datacenter in sorted(inventory.datacenters.values(), key=lambda each: each.name):
        ground = PlacementResolver(inventory, {"datacenter": datacenter.name}, defaults, NamespaceLimits())
        yield about_folder(ground, datacenter)
    yield about_pools(inventory)
    yield about_templates(inventory)
    for group in groups:
        yield from about_group(inventory, defaults, group)


def about_datacenters(inventory: Inventory, defaults: Mapping[str, str]) -> Finding:
    """One is used by itself; of several, one has to be named."""
    names = listed(each.name for each in inventory.datacenters.values())
    try:
        chosen = PlacementResolver(inventory, {}, defaults, NamespaceLimits()).find_datacenter()
    except CloneBlocked as obstacle:
        if not inventory.datacenters:
            return warning(
                "datacenters", "there is none, or this account sees none: VmGroups have nowhere to go", "govc datacenter.create DC0"
            )
        words = f"{obstacle}. HostInfo, VMInfo, FCDInfo and GPUInfo look into all of them; a VmGroup that names none is an error."
        return warning("datacenters", words, patch("VMGROUP", {"placement": {"datacenter": sorted_names(inventory)[0]}}))
    return ok("datacenters", f'{names}; VmGroups go to "{chosen.name}"')


def about_folder(ground: PlacementResolver, datacenter: Datacenter) -> Finding:
    """The folder that groups' folders are made in."""
    try:
        return ok("folder", ground.path_of(ground.find_parent_folder(datacenter)))
    except CloneBlocked as obstacle:
        path = f"{ground.inventory.path(datacenter.ref)}/vm/{ground.effective_placement['folder'] or DEFAULT_PARENT_FOLDER}"
        return warning("folder", f"{obstacle}. Until then VmGroups there are in phase ERROR.", f"govc folder.create {shlex.quote(path)}")


def about_pools(inventory: Inventory) -> Finding:
    """The resource pools that VMs can go to."""
    pools = [each for each in inventory.pools.values() if each.parent]
    if not pools:
        return warning("pools", "there is no resource pool, or this account sees none: no VM can be made")
    clusters = sum(each.is_cluster for each in inventory.computes.values())
    counts = {"resource pools": len(pools), "clusters": clusters, "hosts": len(inventory.hosts), "datastores": len(inventory.datastores)}
    return ok("pools", ", ".join(f"{what}: {count}" for what, count in counts.items()))


def about_templates(inventory: Inventory) -> Finding:
    """What VmGroups can be cloned from."""
    names = {each.name for each in inventory.machines.values() if each.is_template}
    if not names:
        return warning("templates", "there is no template, or this account sees none", "govc vm.markastemplate vm-operator-template")
    return ok("templates", listed(names))


def about_group(inventory: Inventory, defaults: Mapping[str, str], group: Wanted) -> Iterator[Finding]:
    """A line for a group that cannot be served as it is."""
    ground = PlacementResolver(inventory, group.asked, defaults, group.limits)
    try:
        ground.resolve(group.template)
    except CloneBlocked as obstacle:
        yield warning("VmGroup", f"{group.namespace}/{group.name}: {obstacle}", cure(inventory, group, obstacle))


def cure(inventory: Inventory, group: Wanted, obstacle: CloneBlocked) -> str:
    """A patch that mends it, where one does."""
    templates = sorted({each.name for each in inventory.machines.values() if each.is_template})
    if obstacle.reason == "TemplateNotFound" and templates:
        return patch(group.name, {"template": templates[0]}, group.namespace)
    if obstacle.reason == "DatacenterAmbiguous":
        return patch(group.name, {"placement": {"datacenter": sorted_names(inventory)[0]}}, group.namespace)
    return ""


def patch(name: str, spec: Mapping[str, object], namespace: str = "") -> str:
    """The kubectl command that changes a group's spec."""
    where = f"-n {namespace} " if namespace else ""
    return f"kubectl {where}patch vg {name} --type merge -p {shlex.quote(json.dumps({'spec': spec}, separators=(',', ':')))}"


def sorted_names(inventory: Inventory) -> list[str]:
    """The datacenters' names."""
    return sorted(each.name for each in inventory.datacenters.values())


def listed(names: Iterator[str] | set[str]) -> str:
    """The first names, and how many more there are."""
    every = sorted(names)
    more = len(every) - SHOWN
    return ", ".join(every[:SHOWN]) + (f" and {more} more" if more > 0 else "")
