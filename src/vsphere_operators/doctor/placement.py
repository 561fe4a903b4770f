"""Checks where VmGroups are placed: datacenters, parent folder, resource pools and templates.

Pure functions of the inventory; a VmGroup that cannot be placed is a finding of its own.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from ..kinds.vmgroup.limits import NamespaceLimits
from ..kinds.vmgroup.model import CloneBlocked
from ..kinds.vmgroup.placement import DEFAULT_PARENT_FOLDER, PlacementResolver
from ..kinds.vmgroup.reasons import Reason
from ..kinds.vmgroup.types import VmGroup
from ..vsphere.inventory import Inventory
from ..vsphere.model import Datacenter, VirtualMachine
from .finding import Finding, ok, warning

_MAX_NAMES_SHOWN = 5


class VmGroupRequest(Struct, frozen=True, kw_only=True):
    """The fields of a VmGroup that decide its placement."""

    namespace: str
    name: str
    template: str
    placement: Mapping[str, str] = {}
    limits: NamespaceLimits = NamespaceLimits()
    is_deleted: bool = False
    """Whether it is being deleted: nothing is placed any more, but its VMs are destroyed."""
    group: VmGroup | None = None
    """The whole object, if it was read from a cluster."""


def check(
    inventory: Inventory, defaults: Mapping[str, str], groups: Sequence[VmGroupRequest]
) -> Iterator[Finding]:
    yield _check_datacenters(inventory, defaults)
    for datacenter in sorted(inventory.datacenters.values(), key=lambda entity: entity.name):
        resolver = PlacementResolver(
            inventory, {"datacenter": datacenter.name}, defaults, NamespaceLimits()
        )
        yield _check_parent_folder(resolver, datacenter)
    yield _check_resource_pools(inventory)
    yield _check_templates(inventory)
    for group in groups:
        if group.is_deleted:
            continue
        resolver = PlacementResolver(inventory, group.placement, defaults, group.limits)
        try:
            resolver.resolve(group.template)
        except CloneBlocked as error:
            yield warning(
                "VmGroup",
                f"{group.namespace}/{group.name}: {error}",
                _suggest_fix(resolver, group, error),
            )


def find_parent_folders(inventory: Inventory, defaults: Mapping[str, str]) -> list[str]:
    """The references of the folders in which VmGroups are placed by default."""
    refs = []
    for datacenter in inventory.datacenters.values():
        resolver = PlacementResolver(inventory, {}, defaults, NamespaceLimits())
        with suppress(CloneBlocked):
            refs.append(resolver.find_parent_folder(datacenter).ref)
    return refs


def _check_datacenters(inventory: Inventory, defaults: Mapping[str, str]) -> Finding:
    try:
        datacenter = PlacementResolver(inventory, {}, defaults, NamespaceLimits()).find_datacenter()
    except CloneBlocked as error:
        if not inventory.datacenters:
            return warning(
                "datacenters",
                "No datacenter exists, or this account sees none: VmGroups cannot be placed",
                "govc datacenter.create DC0",
            )
        return warning(
            "datacenters",
            f"{_without_full_stop(error)}. All other kinds read all datacenters; a VmGroup has to "
            "name one.",
            _patch_command(
                "VMGROUP",
                {"placement": {"datacenter": _datacenter_names(inventory)[0]}},
                "NAMESPACE",
            ),
        )
    names = _join_names(_datacenter_names(inventory))
    return ok("datacenters", f'{names}; VmGroups are placed in "{datacenter.name}"')


def _check_parent_folder(resolver: PlacementResolver, datacenter: Datacenter) -> Finding:
    try:
        return ok("folder", resolver.inventory.path(resolver.find_parent_folder(datacenter).ref))
    except CloneBlocked as error:
        folder = resolver.effective_placement["folder"] or DEFAULT_PARENT_FOLDER
        path = f"{resolver.inventory.path(datacenter.ref)}/vm/{folder}"
        # A folder that is ambiguous exists already.
        is_missing = error.reason == Reason.FOLDER_NOT_FOUND
        return warning(
            "folder",
            f"{_without_full_stop(error)}. Until then, VmGroups in this datacenter are in phase "
            "ERROR; other kinds do not need it.",
            f"govc folder.create {shlex.quote(path)}" if is_missing else "",
        )


def _check_resource_pools(inventory: Inventory) -> Finding:
    pools = [pool for pool in inventory.resource_pools.values() if pool.parent]
    if not pools:
        return warning(
            "pools", "No resource pool exists, or this account sees none: no VM can be created"
        )
    counts = {
        "resource pools": len(pools),
        "clusters": sum(compute.is_cluster for compute in inventory.compute_resources.values()),
        "hosts": len(inventory.hosts),
        "datastores": len(inventory.datastores),
    }
    return ok("pools", ", ".join(f"{noun}: {count}" for noun, count in counts.items()))


def _check_templates(inventory: Inventory) -> Finding:
    names = _template_names(inventory)
    if not names:
        return warning(
            "templates",
            "No template exists, or this account sees none: VmGroups cannot create VMs",
            "govc vm.markastemplate VM   # VM: the name or path of a powered-off VM to clone",
        )
    return ok("templates", _join_names(names))


def _suggest_fix(resolver: PlacementResolver, group: VmGroupRequest, error: CloneBlocked) -> str:
    """The command that fixes it, "" if none is known."""
    if error.reason == Reason.TEMPLATE_NOT_FOUND:
        return _suggest_template(resolver, group)
    if error.reason == Reason.DATACENTER_AMBIGUOUS:
        datacenter = _datacenter_names(resolver.inventory)[0]
        return _patch_command(
            group.name, {"placement": {"datacenter": datacenter}}, group.namespace
        )
    return ""


def _suggest_template(resolver: PlacementResolver, group: VmGroupRequest) -> str:
    inventory = resolver.inventory
    same_name = inventory.by_name(VirtualMachine, group.template.rpartition("/")[2])
    if len(same_name) == 1 and not same_name[0].is_template:
        path = shlex.quote(inventory.path(same_name[0].ref))
        return f"govc vm.markastemplate {path}   # it must be powered off"
    usable = []
    for name in _template_names(inventory):
        with suppress(CloneBlocked):
            resolver.resolve(name)
            usable.append(name)
    if not usable:
        return ""
    # With several, the user has to choose: the group creates VMs at once.
    only = len(usable) == 1
    patch = _patch_command(
        group.name, {"template": usable[0] if only else "TEMPLATE"}, group.namespace
    )
    return patch if only else f"{patch}   # TEMPLATE: {_join_names(usable)}"


def _patch_command(name: str, spec: Mapping[str, object], namespace: str) -> str:
    patch = shlex.quote(json.dumps({"spec": spec}, separators=(",", ":")))
    return f"kubectl -n {namespace} patch vg {name} --type merge -p {patch}"


def _datacenter_names(inventory: Inventory) -> list[str]:
    return sorted(datacenter.name for datacenter in inventory.datacenters.values())


def _template_names(inventory: Inventory) -> list[str]:
    return sorted({vm.name for vm in inventory.vms.values() if vm.is_template})


def _join_names(names: Iterable[str]) -> str:
    ordered = list(names)
    more = len(ordered) - _MAX_NAMES_SHOWN
    return ", ".join(ordered[:_MAX_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _without_full_stop(error: Exception) -> str:
    return str(error).removesuffix(".")
