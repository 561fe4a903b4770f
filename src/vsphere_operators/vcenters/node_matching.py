"""Finds the VM of a Node in all vCenters: by the BIOS uuid in its providerID, else by its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from kubewright.builtin import Node

from ..vsphere.model import VirtualMachine
from ..vsphere.vcenter import VCenter

_PROVIDER_ID_PATTERN = re.compile(
    r"vsphere://([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})", re.IGNORECASE
)
_MAX_LISTED_PATHS = 3
_MAX_LISTED_VCENTERS = 3


class MatchFailureCause(StrEnum):
    """Why a Node has no VM; GPUInfo shows these values as reasons of rejections."""

    VCENTER_UNREACHABLE = "VCenterUnreachable"
    VM_NOT_FOUND = "VMNotFound"
    VM_AMBIGUOUS = "VMAmbiguous"


class MatchFailure(Struct, frozen=True, gc=False):
    """Why a Node could not be matched to exactly one VM."""

    reason: MatchFailureCause
    message: str

    @property
    def is_certain(self) -> bool:
        """False while a vCenter that may have the VM cannot be read."""
        return self.reason is not MatchFailureCause.VCENTER_UNREACHABLE


class NodeMatch(Struct, frozen=True):
    """The VM of a Node and how it was found, or why it was not."""

    vcenter: VCenter | None = None
    vm: VirtualMachine | None = None
    matched_by: str = ""
    failure: MatchFailure | None = None


def parse_provider_id(provider_id: str) -> tuple[str, ...]:
    """The BIOS uuid in both byte orders; empty if the providerID is not vSphere's."""
    parsed = _PROVIDER_ID_PATTERN.fullmatch(provider_id.strip())
    if parsed is None:
        return ()
    # Some hardware versions show the first three groups of the uuid with their bytes swapped.
    uuid = UUID(parsed[1])
    return str(uuid), str(UUID(bytes_le=uuid.bytes))


def match_node(node: Node, vcenters: Iterable[VCenter]) -> NodeMatch:
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
    unavailable = [
        vcenter for vcenter in searched if not vcenter.loaded or vcenter.problem is not None
    ]
    if node.spec.providerID and unavailable:
        return _build_unreachable_failure(unavailable)
    by_name = [
        (vcenter, vm)
        for vcenter in searched
        for vm in vcenter.inventory.by_name(VirtualMachine, node.metadata.name)
        if not vm.is_template
    ]
    if by_name:
        return _resolve_match(by_name, "name")
    if unavailable:
        return _build_unreachable_failure(unavailable)
    provider_id = node.spec.providerID[:80]
    return _build_failure(
        MatchFailureCause.VM_NOT_FOUND,
        "No vCenter has a VM with the uuid or the name of the Node, which has "
        + (f"{provider_id} in spec.providerID." if provider_id else "no spec.providerID."),
    )


def _resolve_match(matches: list[tuple[VCenter, VirtualMachine]], matched_by: str) -> NodeMatch:
    if len(matches) == 1:
        vcenter, vm = matches[0]
        return NodeMatch(vcenter, vm, matched_by)
    paths = sorted(f"{vcenter.name}:{vcenter.inventory.path(vm.ref)}" for vcenter, vm in matches)
    listed, omitted = paths[:_MAX_LISTED_PATHS], len(paths) - _MAX_LISTED_PATHS
    more = f" and {omitted} more" if omitted > 0 else ""
    attribute = "uuid" if matched_by == "providerID" else matched_by
    return _build_failure(
        MatchFailureCause.VM_AMBIGUOUS,
        f"{len(paths)} VMs have the {attribute} of the Node: {', '.join(listed)}{more}.",
    )


def _build_unreachable_failure(unavailable: Sequence[VCenter]) -> NodeMatch:
    names = sorted(f'"{vcenter.name}"' for vcenter in unavailable)
    listed, omitted = names[:_MAX_LISTED_VCENTERS], len(names) - _MAX_LISTED_VCENTERS
    more = f" and {omitted} more" if omitted > 0 else ""
    verb = "is" if len(names) == 1 else "are"
    return _build_failure(
        MatchFailureCause.VCENTER_UNREACHABLE,
        f"vCenter {', '.join(listed)}{more}, which may have the VM of the Node, {verb} unreachable "
        "or not loaded yet.",
    )


def _build_failure(reason: MatchFailureCause, message: str) -> NodeMatch:
    return NodeMatch(failure=MatchFailure(reason, message))
