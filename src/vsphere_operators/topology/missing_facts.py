"""What the model does not contain, as sentences: what is missing, why, and what to do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from . import model

_MAX_LISTED_NAMES = 5
_SHARED_VM_ADVICE = "Delete the Nodes that no longer run in it."


def describe_missing_facts(
    vcenters: Iterable[model.VCenter],
    vms: Mapping[str, model.VM],
    nodes: Iterable[model.Node],
    limits: model.Limits,
) -> list[str]:
    sentences = [
        sentence
        for vcenter in sorted(vcenters, key=lambda item: item.id)
        if (sentence := _describe_vcenter(vcenter))
    ]
    sorted_nodes = sorted(nodes, key=lambda node: node.id)
    if unmatched := [node for node in sorted_nodes if not node.vm]:
        sentences.append(_describe_unmatched_nodes(unmatched))
    sentences += _describe_shared_vms(vms, sorted_nodes)
    if limits.omittedVMs:
        sentences.append(
            f"{limits.omittedVMs} VMs are not shown, because the topology has at most "
            f"{limits.vms}. VMs of Nodes and VmGroups are always shown; look up others in vCenter."
        )
    return sentences


def _describe_vcenter(vcenter: model.VCenter) -> str:
    if vcenter.state == "Ready":
        return ""
    if vcenter.state == "Loading":
        return (
            f'vCenter "{vcenter.name}" is not loaded yet, so its hosts, VMs and disks are missing. '
            "Try again in a minute."
        )
    state = (
        "missing"
        if vcenter.accurateUntil is None
        else f"those of {vcenter.accurateUntil:%Y-%m-%dT%H:%M:%SZ}"
    )
    return (
        f'vCenter "{vcenter.name}" is unavailable: {vcenter.message.rstrip(".")}. Its hosts, VMs '
        f"and disks are {state}. Run `manager doctor` to check the connection."
    )


def _describe_unmatched_nodes(nodes: Sequence[model.Node]) -> str:
    first = nodes[0]
    is_one = len(nodes) == 1
    return (
        f"{len(nodes)} {'Node has' if is_one else 'Nodes have'} no known VM "
        f"({_format_names([node.id for node in nodes])}), so it is unknown on which host "
        f"{'its' if is_one else 'their'} Pods run. These are not listed, and do not count as "
        f'replicas elsewhere. Node "{first.id}": {first.message}'
    )


def _describe_shared_vms(vms: Mapping[str, model.VM], nodes: Iterable[model.Node]) -> Iterator[str]:
    names_by_vm = defaultdict[str, list[str]](list)
    for node in nodes:
        if node.vm:
            names_by_vm[node.vm].append(node.id)
    for vm_id, names in sorted(names_by_vm.items()):
        if len(names) > 1:
            vm = vms.get(vm_id)
            yield (
                f"{len(names)} Nodes have the same VM {vm.name if vm else vm_id}: "
                f"{_format_names(names)}. {_SHARED_VM_ADVICE}"
            )


def describe_shared_vm(other_nodes: Iterable[str]) -> str:
    """The message of a Node with a VM that other Nodes have too."""
    names = sorted(other_nodes)
    subject = f"Nodes {_format_names(names)} have" if len(names) > 1 else f"Node {names[0]} has"
    return f"{subject} the same VM. {_SHARED_VM_ADVICE}"


def _format_names(names: Sequence[str]) -> str:
    omitted = len(names) - _MAX_LISTED_NAMES
    more = f" and {omitted} more" if omitted > 0 else ""
    return ", ".join(names[:_MAX_LISTED_NAMES]) + more
