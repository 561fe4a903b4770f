from __future__ import annotations

import json

from kubewright.builtin import Node
from support.fake_node_cluster import FakeNodeCluster, bios_uuid_of, node_manifest
from vsphere_operators.vcenters.node_matching import (
    MatchFailureCause,
    NodeMatch,
    match_node,
    parse_provider_id,
)


def make_node() -> Node:
    return Node.decode(json.dumps(node_manifest(1)).encode())


def reason_of(match: NodeMatch) -> MatchFailureCause | None:
    return match.failure.reason if match.failure else None


def test_provider_id_in_both_byte_orders() -> None:
    assert parse_provider_id("vsphere://42030011-2233-4455-6677-8899AABBCCDD") == (
        "42030011-2233-4455-6677-8899aabbccdd",
        "11000342-3322-5544-6677-8899aabbccdd",
    )
    assert (
        parse_provider_id("aws:///eu/i-1")
        == parse_provider_id("")
        == parse_provider_id("vsphere://nonsense")
        == ()
    )


def test_vm_is_matched_by_uuid_then_swapped_uuid_then_name_if_only_one_matches() -> None:
    cluster = FakeNodeCluster()
    vcenters = [cluster.vcenter]
    cluster.mark_loaded()
    assert reason_of(match_node(make_node(), vcenters)) is MatchFailureCause.VM_NOT_FOUND
    cluster.add_vm(9, 1, 100, name="node-1")
    assert match_node(make_node(), vcenters).vm == cluster.vcenter.inventory.vms["vm-9"]
    cluster.add_vm(
        8, 1, 100, name="swapped", config__uuid=parse_provider_id(f"vsphere://{bios_uuid_of(1)}")[1]
    )
    assert match_node(make_node(), vcenters).vm == cluster.vcenter.inventory.vms["vm-8"]
    cluster.add_vm(1, 1, 100, name="other")
    assert match_node(make_node(), vcenters).vm == cluster.vcenter.inventory.vms["vm-1"]
    cluster.add_vm(2, 1, 100, config__uuid=bios_uuid_of(1))
    assert reason_of(match_node(make_node(), vcenters)) is MatchFailureCause.VM_AMBIGUOUS
    cluster.modify("VirtualMachine", "vm-2", config__template=True)
    assert match_node(make_node(), vcenters).failure is None


def test_missing_vm_may_be_in_an_unreachable_vcenter() -> None:
    failure = match_node(make_node(), [FakeNodeCluster().vcenter]).failure
    assert failure is not None
    assert failure.reason is MatchFailureCause.VCENTER_UNREACHABLE
    assert not failure.is_certain
    assert failure.message == (
        'vCenter "vc-1", which may have the VM of the Node, is unreachable or not loaded yet.'
    )
