"""Datastores and clusters by name and by inventory path."""

from __future__ import annotations

import pytest

from vsphere_operators.vsphere.faults import Ambiguous, NotFound
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.path_lookup import find_cluster, find_datastore, possible_names
from vsphere_operators.vsphere.updates import ObjectUpdate, Ref


def make_inventory() -> Inventory:
    """Two datacenters, each with a datastore nfs-1 and a cluster c-1; the second has a/b too."""
    inventory = Inventory("lab")
    updates = [ObjectUpdate("enter", "Folder", "root", {"name": "Datacenters"})]
    for number in (1, 2):
        parent = Ref("Datacenter", f"dc-{number}")
        updates += (
            ObjectUpdate(
                "enter",
                "Datacenter",
                f"dc-{number}",
                {"name": f"DC{number}", "parent": Ref("Folder", "root")},
            ),
            ObjectUpdate("enter", "Folder", f"s-{number}", {"name": "datastore", "parent": parent}),
            ObjectUpdate("enter", "Folder", f"h-{number}", {"name": "host", "parent": parent}),
            ObjectUpdate(
                "enter",
                "Datastore",
                f"datastore-{number}",
                {"name": "nfs-1", "parent": Ref("Folder", f"s-{number}")},
            ),
            ObjectUpdate(
                "enter",
                "ClusterComputeResource",
                f"domain-c{number}",
                {"name": "c-1", "parent": Ref("Folder", f"h-{number}")},
            ),
        )
    # vCenter sends a slash in a name as %2f.
    updates.append(
        ObjectUpdate(
            "enter", "Datastore", "datastore-9", {"name": "a%2fb", "parent": Ref("Folder", "s-2")}
        )
    )
    inventory.apply(updates)
    return inventory


def test_path_selects_one_of_two_objects_of_a_name() -> None:
    inventory = make_inventory()
    assert find_datastore(inventory, "/DC1/datastore/nfs-1").ref == "datastore-1"
    assert find_datastore(inventory, "/DC2/datastore/nfs-1").ref == "datastore-2"
    assert find_cluster(inventory, "/DC2/host/c-1").ref == "domain-c2"


def test_name_of_two_objects_is_ambiguous() -> None:
    with pytest.raises(Ambiguous) as caught:
        find_datastore(make_inventory(), "nfs-1")
    assert str(caught.value) == (
        'vCenter "lab" has 2 datastores named "nfs-1": /DC1/datastore/nfs-1, '
        "/DC2/datastore/nfs-1. Set spec.datastore to one of these paths."
    )
    with pytest.raises(Ambiguous, match=r"Set spec\.cluster to one of these paths"):
        find_cluster(make_inventory(), "c-1")


def test_name_with_a_slash_is_found_by_name_and_by_path() -> None:
    inventory = make_inventory()
    assert find_datastore(inventory, "a/b").ref == "datastore-9"
    assert find_datastore(inventory, "/DC2/datastore/a/b").ref == "datastore-9"


@pytest.mark.parametrize("path", ["/DC3/datastore/nfs-1", "/nfs-1", "/DC1/datastore/nfs-1/", "/"])
def test_path_has_to_be_complete(path: str) -> None:
    with pytest.raises(NotFound, match="has no datastore with the path"):
        find_datastore(make_inventory(), path)


def test_missing_objects_have_suggestions() -> None:
    inventory = make_inventory()
    with pytest.raises(NotFound, match=r'no cluster named "c-11"\. Did you mean "c-1"\?'):
        find_cluster(inventory, "c-11")
    with pytest.raises(NotFound) as caught:
        find_datastore(inventory, "/DC1/datastore/nfs-11")
    assert 'Did you mean "/DC1/datastore/nfs-1", "/DC2/datastore/nfs-1"?' in str(caught.value)
    with pytest.raises(NotFound) as caught:
        find_datastore(inventory, "zzz")
    assert "Did you mean" not in str(caught.value)


def test_possible_names() -> None:
    assert possible_names("nfs-1") == ["nfs-1"]
    assert possible_names("a/b") == ["a/b"]
    assert possible_names("/DC2/a/b") == ["/DC2/a/b", "DC2/a/b", "a/b", "b"]


def test_path_of_slashes_has_few_possible_names() -> None:
    names = possible_names("/" * 1024)
    assert len(names) <= 82
    assert max(map(len, names[1:])) <= 80
