"""Where a group's VMs are placed, and the message for each reason why that cannot be resolved."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from support.inventory_builder import (
    InventoryRow,
    enter_update,
    fill_inventory,
    make_inventory,
)
from vsphere_operators.kinds.vmgroup.limits import NamespaceLimits
from vsphere_operators.kinds.vmgroup.model import CloneBlocked
from vsphere_operators.kinds.vmgroup.placement import (
    Placement,
    PlacementResolver,
    build_parent_folder_key,
)
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
# In addition to /DC0/vm/vm-operator/t.
TEMPLATES: tuple[InventoryRow, ...] = (
    ("VirtualMachine", "vm-2", "u", "group-v3"),  # /DC0/vm/elsewhere/u
    ("VirtualMachine", "vm-3", "twice", "group-v2"),  # /DC0/vm/vm-operator/twice
    ("VirtualMachine", "vm-4", "twice", "group-v3"),  # /DC0/vm/elsewhere/twice
    ("VirtualMachine", "vm-5", "far", "group-v10"),  # /DC1/vm/vm-operator/far
    ("VirtualMachine", "vm-6", "near", "group-v4"),  # /DC0/vm/vm-operator-2/near
)


def make_resolver(inventory: Inventory, limits: NamespaceLimits | None = None) -> PlacementResolver:
    return PlacementResolver(inventory, {}, {}, limits or NamespaceLimits())


def resolve_placement(
    inventory: Inventory,
    template: str = "t",
    defaults: Mapping[str, str] | None = None,
    **requested: str,
) -> Placement:
    resolver = PlacementResolver(inventory, requested, defaults or {}, NamespaceLimits())
    return resolver.resolve(template)[1]


def find_template(
    inventory: Inventory, template: str, limits: NamespaceLimits | None = None
) -> str:
    """The reference of a template in DC0."""
    resolver = PlacementResolver(inventory, {"datacenter": "DC0"}, {}, limits or NamespaceLimits())
    return resolver.resolve(template)[0].ref


def make_template_inventory() -> Inventory:
    inventory = make_inventory(
        *SECOND_DATACENTER,
        ("Folder", "group-v3", "elsewhere", "group-v1"),
        ("Folder", "group-v4", "vm-operator-2", "group-v1"),
        ("Folder", "group-v10", "vm-operator", "group-v9"),
    )
    inventory.apply([enter_update(*row, config__template=True) for row in TEMPLATES])
    return inventory


def test_the_only_object_of_each_type_is_the_default() -> None:
    assert resolve_placement(make_inventory()) == Placement(
        parent_folder="group-v2", resource_pool="resgroup-1"
    )


def test_the_spec_has_precedence_over_the_defaults() -> None:
    inventory = make_inventory(("Folder", "group-v3", "mine", "group-v1"))
    defaults = {"resourcePool": "small", "folder": "vm-operator", "datastore": "fast"}
    assert resolve_placement(inventory, "t", defaults) == Placement(
        parent_folder="group-v2", resource_pool="resgroup-2", datastore="datastore-1"
    )
    assert resolve_placement(inventory, "t", defaults, folder="mine") == Placement(
        parent_folder="group-v3", resource_pool="resgroup-2", datastore="datastore-1"
    )


def test_of_several_clusters_the_named_one_or_that_of_the_template_is_used() -> None:
    inventory = make_inventory(*SECOND_CLUSTER)
    assert resolve_placement(inventory).resource_pool == "resgroup-1"
    assert resolve_placement(inventory, cluster="C1").resource_pool == "resgroup-9"
    # Without a host, the cluster of the template is unknown.
    inventory.apply([ObjectUpdate("modify", "VirtualMachine", "vm-1", {"runtime.host": None})])
    with pytest.raises(CloneBlocked, match="has several resource pools") as raised:
        resolve_placement(inventory)
    assert raised.value.reason == "ResourcePoolAmbiguous"


def test_a_folder_is_found_by_path_if_its_name_is_not_unique() -> None:
    inventory = make_inventory(
        ("Folder", "group-v3", "a", "group-v1"),
        ("Folder", "group-v4", "x", "group-v3"),
        ("Folder", "group-v5", "x", "group-v2"),
    )
    assert (
        resolve_placement(inventory, folder="a/x").parent_folder
        == resolve_placement(inventory, folder="/DC0/vm/a/x").parent_folder
        == "group-v4"
    )
    with pytest.raises(
        CloneBlocked, match='Several folders are named "x": /DC0/vm/a/x, /DC0/vm/vm-operator/x'
    ):
        resolve_placement(inventory, folder="x")


@pytest.mark.parametrize(
    ("rows", "requested", "reason", "message"),
    [
        (
            SECOND_DATACENTER,
            {},
            "DatacenterAmbiguous",
            r"2 datacenters \(DC0, DC1\). Select one in spec.placement.datacenter",
        ),
        ((), {"datacenter": "DC9"}, "DatacenterNotFound", 'no datacenter named "DC9"'),
        (
            (),
            {"folder": "nope"},
            "FolderNotFound",
            "Folder /DC0/vm/nope does not exist. Create it",
        ),
        ((), {"folder": "../vm-operator"}, "FolderNotFound", "does not exist"),
        (
            SECOND_DATACENTER,
            {"datacenter": "DC1"},
            "FolderNotFound",
            "Folder /DC1/vm/vm-operator does not exist",
        ),
        ((), {"cluster": "*"}, "ClusterNotFound", r'no cluster named "\*"'),
        ((), {"resourcePool": "large"}, "ResourcePoolNotFound", 'no resourcePool named "large"'),
        (
            SECOND_CLUSTER,
            {"resourcePool": "small"},
            "ResourcePoolAmbiguous",
            'Several resourcePools are named "small": .* Rename one in vCenter, or select another',
        ),
        ((), {"datastore": "slow"}, "DatastoreNotFound", 'no datastore named "slow"'),
    ],
)
def test_a_name_that_cannot_be_resolved_is_reported_with_what_to_do(
    rows: tuple[InventoryRow, ...], requested: dict[str, str], reason: str, message: str
) -> None:
    with pytest.raises(CloneBlocked, match=message) as raised:
        PlacementResolver(make_inventory(*rows), requested, {}, NamespaceLimits()).resolve("t")
    assert raised.value.reason == reason


def test_an_account_that_sees_no_datacenter_is_reported() -> None:
    with pytest.raises(CloneBlocked, match="shows no datacenter to this account") as raised:
        make_resolver(Inventory("vc")).find_datacenter()
    assert raised.value.reason == "DatacenterNotFound"


def test_an_inaccessible_datastore_is_reported() -> None:
    inventory = make_inventory()
    inventory.apply(
        [ObjectUpdate("modify", "Datastore", "datastore-1", {"summary.accessible": False})]
    )
    with pytest.raises(CloneBlocked, match='Datastore "fast" is not accessible'):
        resolve_placement(inventory, datastore="fast")


@pytest.mark.parametrize(
    ("wanted", "ref"),
    [
        ("t", "vm-1"),
        ("u", "vm-2"),
        ("/DC0/vm/vm-operator/t", "vm-1"),
        ("/DC0/vm/vm-operator/twice", "vm-3"),
        ("/DC0/vm/elsewhere/u", ""),
        ("/DC0/vm/vm-operator-2/near", ""),
        ("far", ""),
        ("T", ""),
        ("*", ""),
        ("../../x", ""),
        ("vm-operator/t", ""),
        ("%2f", ""),
        ("", ""),
        ("t\n", ""),
    ],
)
def test_a_template_is_found_by_name_in_the_datacenter_or_by_path_in_the_operators_folder(
    wanted: str, ref: str
) -> None:
    inventory = make_template_inventory()
    if ref:
        assert find_template(inventory, wanted) == ref
        return
    with pytest.raises(CloneBlocked) as raised:
        find_template(inventory, wanted)
    assert raised.value.reason == "TemplateNotFound"


def test_all_templates_of_an_ambiguous_name_are_listed() -> None:
    with pytest.raises(CloneBlocked, match="full path") as raised:
        find_template(make_template_inventory(), "twice")
    assert "/DC0/vm/elsewhere/twice, /DC0/vm/vm-operator/twice" in str(raised.value)
    assert raised.value.reason == "TemplateAmbiguous"


def test_allowed_template_folders_apply_to_names_and_paths() -> None:
    inventory = make_template_inventory()
    limits = NamespaceLimits(template_folders=("/DC0/vm/elsewhere",))
    assert find_template(inventory, "twice", limits) == "vm-4"
    assert find_template(inventory, "/DC0/vm/elsewhere/u", limits) == "vm-2"
    with pytest.raises(CloneBlocked) as raised:
        find_template(inventory, "t", limits)
    assert raised.value.reason == "TemplateNotFound"
    with pytest.raises(CloneBlocked) as raised:
        find_template(inventory, "missing", limits)
    assert str(raised.value) == (
        'Template "missing" not found in /DC0/vm/elsewhere. Create it there, or change '
        "spec.template."
    )
    with pytest.raises(CloneBlocked, match="none is allowed"):
        find_template(inventory, "t", NamespaceLimits(template_folders=()))


@pytest.mark.parametrize("requested", ["u", "/DC0/vm/elsewhere/u", "t", "/DC0/vm/vm-operator/t"])
def test_a_single_template_can_be_allowed(requested: str) -> None:
    inventory = make_template_inventory()
    limits = NamespaceLimits(template_folders=("/DC0/vm/elsewhere/twice",))
    for allowed in ("twice", "/DC0/vm/elsewhere/twice"):
        assert find_template(inventory, allowed, limits) == "vm-4"
    with pytest.raises(CloneBlocked) as raised:
        find_template(inventory, requested, limits)
    assert raised.value.reason == "TemplateNotFound"


@pytest.mark.parametrize("requested", ["foreign", "/DC0/vm/elsewhere/x/foreign"])
def test_a_folder_with_a_slash_in_its_name_is_not_below_an_allowed_one(requested: str) -> None:
    inventory = make_template_inventory()
    inventory.apply(
        [
            enter_update("Folder", "group-v7", "elsewhere%2fx", "group-v1"),
            enter_update("VirtualMachine", "vm-7", "foreign", "group-v7", config__template=True),
        ]
    )
    assert inventory.path("vm-7") == "/DC0/vm/elsewhere/x/foreign"
    limits = NamespaceLimits(template_folders=("/DC0/vm/elsewhere/",))
    assert find_template(inventory, "u", limits) == "vm-2"
    with pytest.raises(CloneBlocked) as raised:
        find_template(inventory, requested, limits)
    assert raised.value.reason == "TemplateNotFound"


def test_a_vm_that_is_not_a_template_is_not_cloned() -> None:
    inventory = make_inventory(
        ("VirtualMachine", "vm-2", "t", "group-v1"),
        ("VirtualMachine", "vm-3", "only-a-vm", "group-v1"),
    )
    assert find_template(inventory, "t") == "vm-1"
    with pytest.raises(
        CloneBlocked, match="A VM has that name, but it is not a template: convert it"
    ):
        find_template(inventory, "only-a-vm")
    inventory.apply(
        [enter_update("VirtualMachine", "vm-4", "t", "group-v1", config__template=True)]
    )
    with pytest.raises(CloneBlocked, match="/DC0/vm/t, /DC0/vm/vm-operator/t") as raised:
        find_template(inventory, "t")
    assert raised.value.reason == "TemplateAmbiguous"
    assert find_template(inventory, "/DC0/vm/vm-operator/t") == "vm-1"


@pytest.mark.parametrize(
    "name", ["../../x", "*", "%2f", "a\nb", "\N{PILE OF POO}", "x" * 300, "/", "//"]
)
def test_hostile_names_are_names_that_do_not_exist(name: str) -> None:
    with pytest.raises(CloneBlocked) as raised:
        find_template(make_inventory(), name)
    assert raised.value.reason == "TemplateNotFound"


def test_a_placement_that_the_namespace_may_not_use_is_rejected() -> None:
    limits = NamespaceLimits(allowed_placement={"resourcePool": ("small",), "datastore": ()})
    inventory = make_inventory()
    make_resolver(inventory, limits).check_requested()
    allowed = {"cluster": "any", "resourcePool": "small", "datastore": ""}
    PlacementResolver(inventory, allowed, {}, limits).check_requested()
    for requested, message in (
        ({"resourcePool": "large"}, r'may not use the resourcePool "large" \(allowed: small\)'),
        ({"datastore": "fast"}, r'may not use the datastore "fast" \(allowed: none\)'),
    ):
        with pytest.raises(CloneBlocked, match=message) as raised:
            PlacementResolver(inventory, requested, {}, limits).check_requested()
        assert raised.value.reason == "PlacementNotAllowed"


def test_a_default_that_the_namespace_may_not_use_is_rejected() -> None:
    limits = NamespaceLimits(allowed_placement={"resourcePool": ("small",)})
    with pytest.raises(CloneBlocked, match='may not use the resourcePool "Resources"'):
        make_resolver(make_inventory(), limits).resolve("t")


@pytest.mark.parametrize(
    ("field", "name", "where", "suggestion"),
    [
        ("cluster", "c1", 'Datacenter "DC0"', "C1"),
        ("resourcePool", "smal", 'Datacenter "DC0"', "small"),
        ("datastore", "fats", 'Datacenter "DC0"', "fast"),
        ("datacenter", "DC", 'vCenter "vc"', "DC0"),
    ],
)
def test_similar_names_are_suggested(field: str, name: str, where: str, suggestion: str) -> None:
    inventory = make_inventory(
        *SECOND_CLUSTER, ("ComputeResource", "domain-s1", "C1.example.com", "group-h1")
    )
    with pytest.raises(CloneBlocked) as raised:
        resolve_placement(inventory, "t", {field: name})
    assert str(raised.value) == (
        f'{where} has no {field} named "{name}". Did you mean "{suggestion}"? Check '
        f"spec.placement.{field} (names are case-sensitive)."
    )


def test_only_templates_that_the_namespace_may_use_are_suggested() -> None:
    inventory = make_inventory()
    inventory.apply(
        [enter_update("VirtualMachine", "vm-4", "golden-image", "group-v1", config__template=True)]
    )
    with pytest.raises(CloneBlocked, match=r'Did you mean "golden-image"\?'):
        find_template(inventory, "Golden-Imag")
    limits = NamespaceLimits(template_folders=("/DC0/vm/vm-operator",))
    with pytest.raises(CloneBlocked) as raised:
        find_template(inventory, "golden-imag", limits)
    assert "golden-image" not in str(raised.value)


def test_only_objects_that_the_group_can_use_are_suggested() -> None:
    inventory = make_inventory(
        *SECOND_DATACENTER,
        ("Folder", "group-s9", "datastore", "datacenter-2"),
        ("Datastore", "datastore-9", "fast-9", "group-s9"),
    )
    requested = {"datacenter": "DC0", "datastore": "fast-8"}
    with pytest.raises(CloneBlocked, match=r'Did you mean "fast"\? '):
        resolve_placement(inventory, datacenter="DC0", datastore="fast-8")
    limits = NamespaceLimits(allowed_placement={"datastore": ("fast-8",)})
    with pytest.raises(CloneBlocked) as raised:
        PlacementResolver(inventory, requested, {}, limits).resolve("t")
    assert raised.value.reason == "DatastoreNotFound"
    assert "Did you mean" not in str(raised.value)


def test_without_a_placement_any_host_of_the_datacenter_may_have_a_vm() -> None:
    inventory = make_inventory(
        *SECOND_CLUSTER,
        *SECOND_DATACENTER,
        ("Folder", "group-h9", "host", "datacenter-2"),
        ("ClusterComputeResource", "domain-c9", "C9", "group-h9"),
    )

    def find(template: str, **placement: str) -> set[str]:
        resolver = PlacementResolver(inventory, placement, {}, NamespaceLimits())
        return set(resolver.find_compute_refs(template))

    assert find("t", datacenter="DC0", cluster="C0") == {"domain-c1"}
    # Its template was deleted.
    assert find("gone", datacenter="DC0") == {"domain-c1", "domain-c2"}
    assert find("gone") == {"domain-c1", "domain-c2", "domain-c9"}


def test_a_vcenter_with_two_entries_has_one_key_for_a_folder() -> None:
    def build_key(name: str, instance_uuid: str) -> str:
        inventory = fill_inventory(Inventory(name))
        inventory.instance_uuid = instance_uuid
        return build_parent_folder_key(make_resolver(inventory))

    assert build_key("10.0.0.5", "A") == build_key("vc.corp.local", "A") == "A/group-v2"
    assert build_key("vc.corp.local", "B") == "B/group-v2"
