"""Which VM is a Node? By the bios uuid in its providerID, else by its name; over all vCenters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from uuid import UUID

from msgspec import Struct

from kubewright.builtin import Node

from ...vsphere.inventory import Inventory
from ...vsphere.model import VirtualMachine
from ...vsphere.vcenter import VCenter
from .rules import MatchFailure, Rejection

_PROVIDER_ID_PATTERN = re.compile(
    r"vsphere://([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})", re.IGNORECASE
)
_MAX_LISTED_PATHS = 3


class Match(Struct, frozen=True):
    """The VM of a Node and by what it was found, or why there is none."""

    vcenter: VCenter | None = None
    vm: VirtualMachine | None = None
    matched_by: str = ""
    blocker: Rejection | None = None
    match_failure: MatchFailure | None = None
    """The same in words, where it is certain that there is none, or more than one."""


def parse_provider_id(provider_id: str) -> tuple[str, ...]:
    """The bios uuid, then the same with its first three parts byte by byte the other way round, as some hardware versions show it."""
    found = _PROVIDER_ID_PATTERN.fullmatch(provider_id.strip())
    if found is None:
        return ()
    uuid = UUID(found[1])
    return str(uuid), str(UUID(bytes_le=uuid.bytes))


def match_node(node: Node, vcenters: Iterable[VCenter]) -> Match:
    """The only VM with the uuid, else the only one with its bytes swapped, else the only one of the name. A template is none."""
    known = list(vcenters)
    for uuid in parse_provider_id(node.spec.providerID):
        if found := [
            (each, vm) for each in known for vm in _find_vms_by_uuid(each.inventory, uuid)
        ]:
            return _resolve_match(found, "providerID")
    # Whether a vCenter that cannot be asked has it, nobody can tell; a VM of the same name elsewhere may be another cluster's.
    unheard = any(not each.loaded or each.problem is not None for each in known)
    if node.spec.providerID and unheard:
        return Match(blocker=Rejection.VCENTER_UNREACHABLE)
    if found := [
        (each, vm) for each in known for vm in _find_vms_by_name(each.inventory, node.metadata.name)
    ]:
        return _resolve_match(found, "name")
    return Match(blocker=Rejection.VCENTER_UNREACHABLE) if unheard else _build_not_found_match(node)


def _build_not_found_match(node: Node) -> Match:
    """No vCenter has it."""
    has = (
        f"{node.spec.providerID[:80]} in spec.providerID"
        if node.spec.providerID
        else "no spec.providerID"
    )
    words = f"no vCenter has a VM with its uuid or its name; the Node has {has}"
    return Match(
        blocker=Rejection.VM_NOT_FOUND, match_failure=MatchFailure(Rejection.VM_NOT_FOUND, words)
    )


def _resolve_match(found: list[tuple[VCenter, VirtualMachine]], by: str) -> Match:
    """The only one."""
    if len(found) > 1:
        places = sorted(f"{vcenter.name}:{vcenter.inventory.path(vm.ref)}" for vcenter, vm in found)
        more = (
            f" and {len(places) - _MAX_LISTED_PATHS} more"
            if len(places) > _MAX_LISTED_PATHS
            else ""
        )
        words = f"{len(places)} VMs have its {'uuid' if by == 'providerID' else by}: {', '.join(places[:_MAX_LISTED_PATHS])}{more}"
        return Match(
            blocker=Rejection.VM_AMBIGUOUS,
            match_failure=MatchFailure(Rejection.VM_AMBIGUOUS, words),
        )
    vcenter, machine = found[0]
    return Match(vcenter, machine, by)


def _find_vms_by_uuid(inventory: Inventory, uuid: str) -> list[VirtualMachine]:
    """The VMs with this bios uuid."""
    return _exclude_templates(inventory, inventory.relations.by_bios_uuid.get(uuid))


def _find_vms_by_name(inventory: Inventory, name: str) -> list[VirtualMachine]:
    """The VMs of this name."""
    return _exclude_templates(inventory, inventory.relations.by_name[VirtualMachine].get(name))


def _exclude_templates(inventory: Inventory, refs: Iterable[str]) -> list[VirtualMachine]:
    """Those that can run."""
    return [vm for ref in sorted(refs) if not (vm := inventory.vms[ref]).is_template]
