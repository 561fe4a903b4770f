"""Where a group's VMs go, and the words for each way in which that cannot be told."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from support.inventory_builder import InventoryRow, enter_update, make_inventory
from vsphere_operators.kinds.vmgroup.limits import NamespaceLimits
from vsphere_operators.kinds.vmgroup.model import CloneBlocked
from vsphere_operators.kinds.vmgroup.placement import Placement, PlacementResolver
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.updates import ObjectUpdate

SECOND_CLUSTER: tuple[InventoryRow, ...] = (
    ("ClusterComputeResource", "domain-c2", "C1", "group-h1"),
    ("ResourcePool", "resgroup-9", "Resources", "domain-c2"),
    ("ResourcePool", "resgroup-8", "small", "resgroup-9"),
)
SECOND_DATACENTER: tuple[InventoryRow, ...] = (
    ("Datacenter", "datacenter-2", "DC1", "group-d1"),
    ("Folder", "group-v9", "vm", "datacenter-2"),
)


def make_resolver(where: Inventory, limits: NamespaceLimits | None = None) -> PlacementResolver:
    return PlacementResolver(where, {}, {}, limits or NamespaceLimits())


def resolve_placement(
    where: Inventory, template: str = "t", defaults: Mapping[str, str] | None = None, **asked: str
) -> Placement:
    found = PlacementResolver(where, asked, defaults or {}, NamespaceLimits())
    datacenter = found.find_datacenter()
    return found.find_placement(datacenter, found.find_template(template, datacenter))


def test_without_a_word_it_is_the_only_one_of_each() -> None:
    assert resolve_placement(make_inventory()) == Placement(
        parent_folder="group-v2", resource_pool="resgroup-1"
    )


def test_what_is_asked_goes_before_the_defaults() -> None:
    where = make_inventory(("Folder", "group-v3", "mine", "group-v1"))
    defaults = {"resourcePool": "small", "folder": "vm-operator", "datastore": "fast"}
    assert resolve_placement(where, "t", defaults) == Placement(
        parent_folder="group-v2", resource_pool="resgroup-2", datastore="datastore-1"
    )
    assert resolve_placement(where, "t", defaults, folder="mine") == Placement(
        parent_folder="group-v3", resource_pool="resgroup-2", datastore="datastore-1"
    )


def test_of_several_clusters_it_is_the_one_that_is_named_or_the_templates_own() -> None:
    where = make_inventory(*SECOND_CLUSTER)
    assert resolve_placement(where).resource_pool == "resgroup-1"
    assert resolve_placement(where, cluster="C1").resource_pool == "resgroup-9"
    where.apply([ObjectUpdate("modify", "VirtualMachine", "vm-1", {"runtime.host": None})])
    with pytest.raises(CloneBlocked, match="which resource pool") as caught:
        resolve_placement(where)
    assert caught.value.reason == "ResourcePoolAmbiguous"


def test_a_folder_is_found_by_path_also_where_its_name_is_there_twice() -> None:
    where = make_inventory(
        ("Folder", "group-v3", "a", "group-v1"),
        ("Folder", "group-v4", "x", "group-v3"),
        ("Folder", "group-v5", "x", "group-v2"),
    )
    assert (
        resolve_placement(where, folder="a/x").parent_folder
        == resolve_placement(where, folder="/DC0/vm/a/x").parent_folder
        == "group-v4"
    )
    with pytest.raises(
        CloneBlocked, match='several folders are named "x": /DC0/vm/a/x, /DC0/vm/vm-operator/x'
    ):
        resolve_placement(where, folder="x")


@pytest.mark.parametrize(
    ("rows", "asked", "reason", "words"),
    [
        (
            SECOND_DATACENTER,
            {},
            "DatacenterAmbiguous",
            r"2 datacenters \(DC0, DC1\); name one in spec.placement.datacenter",
        ),
        ((), {"datacenter": "DC9"}, "DatacenterNotFound", 'no datacenter named "DC9"'),
        (
            (),
            {"folder": "nope"},
            "FolderNotFound",
            "the folder /DC0/vm/nope does not exist; create it",
        ),
        ((), {"folder": "../vm-operator"}, "FolderNotFound", "does not exist"),
        (
            SECOND_DATACENTER,
            {"datacenter": "DC1"},
            "FolderNotFound",
            "the folder /DC1/vm/vm-operator does not exist",
        ),
        ((), {"cluster": "*"}, "ClusterNotFound", r'no cluster named "\*"'),
        ((), {"resourcePool": "large"}, "ResourcePoolNotFound", 'no resourcePool named "large"'),
        (
            SECOND_CLUSTER,
            {"resourcePool": "small"},
            "ResourcePoolAmbiguous",
            'several are named "small": ',
        ),
        ((), {"datastore": "slow"}, "DatastoreNotFound", 'no datastore named "slow"'),
    ],
)
def test_what_cannot_be_found_is_said_with_what_to_do(
    rows: tuple[InventoryRow, ...], asked: dict[str, str], reason: str, words: str
) -> None:
    where = make_inventory(*rows)
    found = PlacementResolver(where, asked, {}, NamespaceLimits())
    with pytest.raises(CloneBlocked, match=words) as caught:
        found.find_placement(found.find_datacenter(), where.vms["vm-1"])
    assert caught.value.reason == reason


def test_a_datastore_that_is_not_accessible_is_said() -> None:
    where = make_inventory()
    where.apply([ObjectUpdate("modify", "Datastore", "datastore-1", {"summary.accessible": False})])
    with pytest.raises(CloneBlocked, match='the datastore "fast" is not accessible'):
        resolve_placement(where, datastore="fast")


def test_only_templates_count() -> None:
    where = make_inventory(
        ("VirtualMachine", "vm-2", "t", "group-v1"),
        ("VirtualMachine", "vm-3", "only-a-vm", "group-v1"),
    )
    found = make_resolver(where)
    assert found.find_template("t", found.find_datacenter()).ref == "vm-1"
    with pytest.raises(
        CloneBlocked, match="There is a VM of that name, but it is no template: convert it"
    ):
        found.find_template("only-a-vm", found.find_datacenter())
    where.apply([enter_update("VirtualMachine", "vm-4", "t", "group-v1", config__template=True)])
    with pytest.raises(CloneBlocked, match="/DC0/vm/t, /DC0/vm/vm-operator/t") as caught:
        found.find_template("t", found.find_datacenter())
    assert caught.value.reason == "TemplateAmbiguous"
    assert found.find_template("/DC0/vm/vm-operator/t", found.find_datacenter()).ref == "vm-1"


@pytest.mark.parametrize(
    "hostile", ["../../x", "*", "%2f", "a\nb", "\N{PILE OF POO}", "x" * 300, "/", "//"]
)
def test_hostile_names_are_only_names_that_nobody_has(hostile: str) -> None:
    found = make_resolver(make_inventory())
    with pytest.raises(CloneBlocked) as caught:
        found.find_template(hostile, found.find_datacenter())
    assert caught.value.reason == "TemplateNotFound"


def test_what_a_namespace_may_not_use_is_refused() -> None:
    limits = NamespaceLimits(allowed_placement={"datastore": ("slow",)})
    make_resolver(make_inventory(), limits).check_requested()
    with pytest.raises(CloneBlocked, match='may not use the datastore "fast"'):
        PlacementResolver(make_inventory(), {"datastore": "fast"}, {}, limits).check_requested()


@pytest.mark.parametrize(
    ("field", "name", "near"),
    [
        ("cluster", "c1", "C1"),
        ("resourcePool", "smal", "small"),
        ("datastore", "fats", "fast"),
        ("datacenter", "DC", "DC0"),
    ],
)
def test_names_near_to_one_that_does_not_exist_are_told(field: str, name: str, near: str) -> None:
    where = make_inventory(
        *SECOND_CLUSTER, ("ComputeResource", "domain-s1", "C1.example.com", "group-h1")
    )
    with pytest.raises(CloneBlocked) as caught:
        resolve_placement(where, "t", {field: name})
    assert str(caught.value) == (
        f'vCenter "vc" has no {field} named "{name}" there (near to it: "{near}"); correct spec.placement.{field}, letter case counts'
    )


def test_near_templates_are_told_where_the_namespace_may_use_them() -> None:
    where = make_inventory()
    where.apply(
        [enter_update("VirtualMachine", "vm-4", "golden-image", "group-v1", config__template=True)]
    )
    free, bound = (
        make_resolver(where),
        make_resolver(where, NamespaceLimits(template_folders=("/DC0/vm/vm-operator",))),
    )
    with pytest.raises(CloneBlocked) as caught:
        free.find_template("Golden-Imag", free.find_datacenter())
    assert str(caught.value).endswith('or change spec.template. Near to it: "golden-image"')
    with pytest.raises(CloneBlocked) as caught:
        bound.find_template("golden-imag", bound.find_datacenter())
    assert "golden-image" not in str(caught.value)


def test_near_places_are_those_that_would_do() -> None:
    """A name of another datacenter helps nobody, and one that the namespace may not use is none of its business."""
    elsewhere = ("Datastore", "datastore-9", "fast-9", "group-s9")
    where = make_inventory(
        *SECOND_DATACENTER, ("Folder", "group-s9", "datastore", "datacenter-2"), elsewhere
    )
    assert suggest_datastores(where, "fast-8", {}) == ["fast"]
    assert suggest_datastores(where, "fast-8", {"datastore": ("slow",)}) == []


def suggest_datastores(
    where: Inventory, name: str, places: Mapping[str, tuple[str, ...]]
) -> list[str]:
    found = PlacementResolver(
        where, {"datacenter": "DC0"}, {}, NamespaceLimits(allowed_placement=dict(places))
    )
    return found.suggest_names("datastore", name, found.find_datacenter())
