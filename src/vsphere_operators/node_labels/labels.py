"""The labels of a Node: host, cluster and datacenter of its VM, as valid label values.

How is a name mapped?  A valid label value is used as it is. Otherwise accents are removed, each
    other run of invalid characters becomes a hyphen, and a hash of the name is appended, so that
    two names never get the same value.
What if two hosts have the same name, or two clusters, or two datacenters?  Then each of them has a
    hash of its vCenter and its reference, which a rename does not change.
What if a vCenter is not read yet, which may have the same name?  An object keeps the value that a
    Node has already, so a restart during an outage changes no label.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Collection

from ..vsphere.inventory import Inventory
from ..vsphere.model import ComputeResource, Datacenter, Entity, Host

HOST_LABEL = "topology.corinternal.com/host"
_CLUSTER_LABEL = "topology.corinternal.com/cluster"
_DATACENTER_LABEL = "topology.corinternal.com/datacenter"
_LABELS = (HOST_LABEL, _CLUSTER_LABEL, _DATACENTER_LABEL)
_MAX_LENGTH = 63
_HASH_LENGTH = 10
_VALID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_INVALID_RUN = re.compile(r"[^A-Za-z0-9._-]+")


def build_labels(
    inventory: Inventory,
    host: Host,
    inventories: Collection[Inventory],
    is_in_use: Callable[[str, str], bool] = lambda label, value: False,
) -> dict[str, str]:
    """The labels of a Node on this host; `inventories` are those of all vCenters.

    `is_in_use` shows whether a Node has a label with a value; pass it while an inventory is not
    loaded. A standalone host has no cluster, so its Nodes have no such label.
    """
    cluster = inventory.compute_resources.get(host.parent)
    if cluster is not None and not cluster.is_cluster:
        cluster = None
    places: tuple[tuple[str, type[Entity], Entity | None], ...] = (
        (HOST_LABEL, Host, host),
        (_CLUSTER_LABEL, ComputeResource, cluster),
        (_DATACENTER_LABEL, Datacenter, inventory.datacenter_of(host.ref)),
    )
    labels = {}
    for label, entity_type, entity in places:
        if entity is None or not entity.name:
            continue
        count = sum(len(other.by_name(entity_type, entity.name)) for other in inventories)
        shared_value = to_label_value(entity.name, f"{inventory.name}/{entity.ref}")
        is_shared = count > 1 or is_in_use(label, shared_value)
        labels[label] = shared_value if is_shared else to_label_value(entity.name)
    return labels


def to_label_value(name: str, shared_id: str = "") -> str:
    """`shared_id` identifies the object if another one has the same name."""
    if not shared_id and len(name) <= _MAX_LENGTH and _VALID.fullmatch(name):
        return name
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    text = _INVALID_RUN.sub("-", plain)[: _MAX_LENGTH - _HASH_LENGTH - 1].strip("._-")
    digest = hashlib.sha256((shared_id or name).encode()).hexdigest()[:_HASH_LENGTH]
    return f"{text}-{digest}" if text else digest


def read_labels(labels: dict[str, str]) -> dict[str, str]:
    """Those of `labels` that belong to -label-nodes."""
    return {label: labels[label] for label in _LABELS if label in labels}
