"""A small inventory: a datacenter with a cluster, a folder and a template."""

from __future__ import annotations

from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.updates import ObjectUpdate, Ref, Value

# Type, reference, name, reference of the parent.
InventoryRow = tuple[str, str, str, str]
DEFAULT_ROWS: tuple[InventoryRow, ...] = (
    ("Folder", "group-d1", "Datacenters", ""),
    ("Datacenter", "datacenter-1", "DC0", "group-d1"),
    ("Folder", "group-v1", "vm", "datacenter-1"),
    ("Folder", "group-h1", "host", "datacenter-1"),
    ("Folder", "group-s1", "datastore", "datacenter-1"),
    ("Folder", "group-v2", "vm-operator", "group-v1"),
    ("ClusterComputeResource", "domain-c1", "C0", "group-h1"),
    ("ResourcePool", "resgroup-1", "Resources", "domain-c1"),
    ("ResourcePool", "resgroup-2", "small", "resgroup-1"),
    ("HostSystem", "host-1", "esxi-1", "domain-c1"),
    ("Datastore", "datastore-1", "fast", "group-s1"),
    ("VirtualMachine", "vm-1", "t", "group-v2"),
)


def enter_update(type: str, ref: str, name: str, parent: str, **more: Value) -> ObjectUpdate:
    """`a__b` in the name of a property stands for `a.b`."""
    location: dict[str, Value] = {"parent": Ref("ManagedEntity", parent)} if parent else {}
    return ObjectUpdate(
        "enter",
        type,
        ref,
        {
            "name": name,
            **location,
            **{key.replace("__", "."): value for key, value in more.items()},
        },
    )


def make_inventory(*rows: InventoryRow) -> Inventory:
    """The default rows and these."""
    return fill_inventory(Inventory("vc"), *rows)


def fill_inventory(inventory: Inventory, *rows: InventoryRow) -> Inventory:
    inventory.apply([enter_update(*row) for row in (*DEFAULT_ROWS, *rows)])
    for ref in ("resgroup-1", "resgroup-2"):
        inventory.apply(
            [
                ObjectUpdate(
                    "modify", "ResourcePool", ref, {"owner": Ref("ComputeResource", "domain-c1")}
                )
            ]
        )
    inventory.apply(
        [
            ObjectUpdate(
                "modify",
                "VirtualMachine",
                "vm-1",
                {"config.template": True, "runtime.host": Ref("HostSystem", "host-1")},
            )
        ]
    )
    inventory.apply(
        [
            ObjectUpdate("modify", "Datastore", "datastore-1", {"summary.accessible": True}),
            ObjectUpdate("modify", "HostSystem", "host-1", {"runtime.inMaintenanceMode": False}),
        ]
    )
    return inventory
