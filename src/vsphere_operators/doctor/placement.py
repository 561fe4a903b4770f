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

_MAX_NAMES_SHOWN = 5


class VmGroupRequest(Struct, frozen=True, kw_only=True):
    """What one VmGroup asks for."""

    namespace: str
    name: str
    template: str
    placement: Mapping[str, str] = {}
    limits: NamespaceLimits = NamespaceLimits()


def check(
    inventory: Inventory, defaults: Mapping[str, str], groups: Sequence[VmGroupRequest]
) -> Iterator[Finding]:
    """All of it."""
    yield _check_datacenters(inventory, defaults)
    for datacenter in sorted(inventory.datacenters.values(), key=lambda each: each.name):
        ground = PlacementResolver(
            inventory, {"datacenter": datacenter.name}, defaults, NamespaceLimits()
        )
        yield _check_parent_folder(ground, datacenter)
    yield _check_resource_pools(inventory)
    yield _check_templates(inventory)
    for group in groups:
        yield from _check_vmgroup(inventory, defaults, group)


def _check_datacenters(inventory: Inventory, defaults: Mapping[str, str]) -> Finding:
    """One is used by itself; of several, one has to be named."""
    names = _join_names(each.name for each in inventory.datacenters.values())
    try:
        chosen = PlacementResolver(inventory, {}, defaults, NamespaceLimits()).find_datacenter()
    except CloneBlocked as obstacle:
        if not inventory.datacenters:
            return warning(
                "datacenters",
                "there is none, or this account sees none: VmGroups have nowhere to go",
                "govc datacenter.create DC0",
            )
        words = f"{obstacle}. HostInfo, VMInfo, FCDInfo and GPUInfo look into all of them; a VmGroup that names none is an error."
        return warning(
            "datacenters",
            words,
            _patch_command(
                "VMGROUP", {"placement": {"datacenter": _datacenter_names(inventory)[0]}}
            ),
        )
    return ok("datacenters", f'{names}; VmGroups go to "{chosen.name}"')


def _check_parent_folder(ground: PlacementResolver, datacenter: Datacenter) -> Finding:
    """The folder that groups' folders are made in."""
    try:
        return ok("folder", ground.path_of(ground.find_parent_folder(datacenter)))
    except CloneBlocked as obstacle:
        path = f"{ground.inventory.path(datacenter.ref)}/vm/{ground.effective_placement['folder'] or DEFAULT_PARENT_FOLDER}"
        return warning(
            "folder",
            f"{obstacle}. Until then VmGroups there are in phase ERROR.",
            f"govc folder.create {shlex.quote(path)}",
        )


def _check_resource_pools(inventory: Inventory) -> Finding:
    """The resource pools that VMs can go to."""
    pools = [each for each in inventory.resource_pools.values() if each.parent]
    if not pools:
        return warning(
            "pools", "there is no resource pool, or this account sees none: no VM can be made"
        )
    clusters = sum(each.is_cluster for each in inventory.compute_resources.values())
    counts = {
        "resource pools": len(pools),
        "clusters": clusters,
        "hosts": len(inventory.hosts),
        "datastores": len(inventory.datastores),
    }
    return ok("pools", ", ".join(f"{what}: {count}" for what, count in counts.items()))


def _check_templates(inventory: Inventory) -> Finding:
    """What VmGroups can be cloned from."""
    names = {each.name for each in inventory.vms.values() if each.is_template}
    if not names:
        return warning(
            "templates",
            "there is no template, or this account sees none",
            "govc vm.markastemplate vm-operator-template",
        )
    return ok("templates", _join_names(names))


def _check_vmgroup(
    inventory: Inventory, defaults: Mapping[str, str], group: VmGroupRequest
) -> Iterator[Finding]:
    """A line for a group that cannot be served as it is."""
    ground = PlacementResolver(inventory, group.placement, defaults, group.limits)
    try:
        ground.resolve(group.template)
    except CloneBlocked as obstacle:
        yield warning(
            "VmGroup",
            f"{group.namespace}/{group.name}: {obstacle}",
            _suggest_fix(inventory, group, obstacle),
        )


def _suggest_fix(inventory: Inventory, group: VmGroupRequest, obstacle: CloneBlocked) -> str:
    """A patch that mends it, where one does."""
    templates = sorted({each.name for each in inventory.vms.values() if each.is_template})
    if obstacle.reason == "TemplateNotFound" and templates:
        return _patch_command(group.name, {"template": templates[0]}, group.namespace)
    if obstacle.reason == "DatacenterAmbiguous":
        return _patch_command(
            group.name,
            {"placement": {"datacenter": _datacenter_names(inventory)[0]}},
            group.namespace,
        )
    return ""


def _patch_command(name: str, spec: Mapping[str, object], namespace: str = "") -> str:
    """The kubectl command that changes a group's spec."""
    where = f"-n {namespace} " if namespace else ""
    return f"kubectl {where}patch vg {name} --type merge -p {shlex.quote(json.dumps({'spec': spec}, separators=(',', ':')))}"


def _datacenter_names(inventory: Inventory) -> list[str]:
    """The datacenters' names."""
    return sorted(each.name for each in inventory.datacenters.values())


def _join_names(names: Iterator[str] | set[str]) -> str:
    """The first names, and how many more there are."""
    every = sorted(names)
    more = len(every) - _MAX_NAMES_SHOWN
    return ", ".join(every[:_MAX_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
