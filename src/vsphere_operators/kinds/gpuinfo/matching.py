"""Finds the VM of a Node in all vCenters: by the BIOS uuid in its providerID, else by its name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from uuid import UUID

from msgspec import Struct

from kubewright.builtin import Node

from ...vsphere.model import VirtualMachine
from ...vsphere.vcenter import VCenter
from .rules import MatchFailure, Rejection

_PROVIDER_ID_PATTERN = re.compile(
    r"vsphere://([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})", re.IGNORECASE
)
_MAX_LISTED_PATHS = 3


class Match(Struct, frozen=True):
    """The VM of a Node and how it was found, or why it was not."""

    vcenter: VCenter | None = None
    vm: VirtualMachine | None = None
    matched_by: str = ""
    rejection_for_all: Rejection | None = None
    # Set only if it is certain that no VM, or more than one, matches.
    match_failure: MatchFailure | None = None


def parse_provider_id(provider_id: str) -> tuple[str, ...]:
    """The BIOS uuid in both byte orders; empty if the providerID is not vSphere's."""
    parsed = _PROVIDER_ID_PATTERN.fullmatch(provider_id.strip())
    if parsed is None:
        return ()
    # Some hardware versions show the first three groups of the uuid with their bytes swapped.
    uuid = UUID(parsed[1])
    return str(uuid), str(UUID(bytes_le=uuid.bytes))


def match_node(node: Node, vcenters: Iterable[VCenter]) -> Match:
    """The only VM with the uuid, else with the uuid's bytes swapped, else with the Node's name."""
    searched = list(vcenters)
    for uuid in parse_provider_id(node.spec.providerID):
        by_uuid = [
            (vcenter, vm)
            for vcenter in searched
            for vm in vcenter.inventory.by_bios_uuid(uuid)
            if not vm.is_template
        ]
        if by_uuid:
            return _resolve_match(by_uuid, "providerID")
    # An unreachable vCenter may have the VM with that uuid. A VM of the same name in another
    # vCenter may belong to another cluster, so the name must not decide.
    unreachable = any(not vcenter.loaded or vcenter.problem is not None for vcenter in searched)
    if node.spec.providerID and unreachable:
        return Match(rejection_for_all=Rejection.VCENTER_UNREACHABLE)
    by_name = [
        (vcenter, vm)
        for vcenter in searched
        for vm in vcenter.inventory.by_name(VirtualMachine, node.metadata.name)
        if not vm.is_template
    ]
    if by_name:
        return _resolve_match(by_name, "name")
    if unreachable:
        return Match(rejection_for_all=Rejection.VCENTER_UNREACHABLE)
    provider_id = node.spec.providerID[:80]
    return _build_failure(
        Rejection.VM_NOT_FOUND,
        "No vCenter has a VM with the uuid or the name of the Node, which has "
        + (f"{provider_id} in spec.providerID." if provider_id else "no spec.providerID."),
    )


def _resolve_match(matches: list[tuple[VCenter, VirtualMachine]], matched_by: str) -> Match:
    if len(matches) == 1:
        vcenter, vm = matches[0]
        return Match(vcenter, vm, matched_by)
    paths = sorted(f"{vcenter.name}:{vcenter.inventory.path(vm.ref)}" for vcenter, vm in matches)
    listed, omitted = paths[:_MAX_LISTED_PATHS], len(paths) - _MAX_LISTED_PATHS
    more = f" and {omitted} more" if omitted > 0 else ""
    attribute = "uuid" if matched_by == "providerID" else matched_by
    return _build_failure(
        Rejection.VM_AMBIGUOUS,
        f"{len(paths)} VMs have the {attribute} of the Node: {', '.join(listed)}{more}.",
    )


def _build_failure(reason: Rejection, message: str) -> Match:
    return Match(rejection_for_all=reason, match_failure=MatchFailure(reason, message))
