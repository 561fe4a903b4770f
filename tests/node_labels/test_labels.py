"""Label values: valid, unique, and the same for the same inventory."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vsphere_operators.node_labels.labels import build_labels, to_label_value
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.updates import ObjectUpdate, Ref, Value

# As k8s.io/apimachinery/pkg/util/validation checks it.
LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("esxi-1.example.com", "esxi-1.example.com"),
        ("a" * 63, "a" * 63),
        ("München 2", "Munchen-2-"),
        ("Cluster/A (old)", "Cluster-A-old-"),
        ("a" * 64, "a" * 52 + "-"),
        ("-dash", "dash-"),
        ("機房", ""),
    ],
)
def test_valid_names_stay_and_others_get_a_hash(name: str, value: str) -> None:
    mapped = to_label_value(name)
    if name == value:
        assert mapped == name
    else:
        assert mapped.startswith(value)
        assert re.fullmatch("[0-9a-f]{10}", mapped.removeprefix(value))


@given(st.text(min_size=1, max_size=80), st.sampled_from(["", "vc-1/host-1"]))
def test_every_value_is_valid(name: str, shared_id: str) -> None:
    value = to_label_value(name, shared_id)
    assert LABEL_VALUE.fullmatch(value)
    assert 0 < len(value) <= 63


@given(st.sets(st.text(alphabet="a b-_/ä", min_size=1, max_size=6), max_size=40))
def test_different_names_have_different_values(names: set[str]) -> None:
    assert len({to_label_value(name) for name in names}) == len(names)


def make_inventory(name: str, *, cluster: str = "cluster-1", host: str = "esxi-1") -> Inventory:
    inventory = Inventory(name)

    def enter(type: str, ref: str, **properties: Value) -> ObjectUpdate:
        return ObjectUpdate("enter", type, ref, properties)

    inventory.apply(
        [
            enter("Datacenter", "datacenter-1", name=f"dc-{name}"),
            enter("Folder", "group-h1", name="host", parent=Ref("Datacenter", "datacenter-1")),
            enter(
                "ClusterComputeResource",
                "domain-c1",
                name=cluster,
                parent=Ref("Folder", "group-h1"),
            ),
            enter(
                "HostSystem",
                "host-1",
                name=host,
                parent=Ref("ClusterComputeResource", "domain-c1"),
            ),
            enter("ComputeResource", "domain-s1", name="single", parent=Ref("Folder", "group-h1")),
            enter(
                "HostSystem", "host-2", name="single", parent=Ref("ComputeResource", "domain-s1")
            ),
        ]
    )
    return inventory


def test_labels_of_a_host_in_a_cluster_and_of_a_standalone_host() -> None:
    inventory = make_inventory("vc-1")
    assert build_labels(inventory, inventory.hosts["host-1"], [inventory]) == {
        "topology.corinternal.com/host": "esxi-1",
        "topology.corinternal.com/cluster": "cluster-1",
        "topology.corinternal.com/datacenter": "dc-vc-1",
    }
    assert build_labels(inventory, inventory.hosts["host-2"], [inventory]) == {
        "topology.corinternal.com/host": "single",
        "topology.corinternal.com/datacenter": "dc-vc-1",
    }


def test_names_that_two_vcenters_share_get_a_hash_of_the_object() -> None:
    first, second = make_inventory("vc-1"), make_inventory("vc-2", host="esxi-2")
    labels, others = (
        build_labels(inventory, inventory.hosts["host-1"], [first, second])
        for inventory in (first, second)
    )
    assert labels["topology.corinternal.com/host"] == "esxi-1"
    cluster, other = (entry["topology.corinternal.com/cluster"] for entry in (labels, others))
    assert cluster.startswith("cluster-1-")
    assert other.startswith("cluster-1-")
    assert cluster != other
    # The order of the vCenters has no effect.
    assert build_labels(first, first.hosts["host-1"], [second, first]) == labels
