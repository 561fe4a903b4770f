"""Finds a datastore or a cluster by its name or by its inventory path.

vSphere allows one name several times, in different datacenters. A path such as
/dc-1/datastore/nfs-1 selects one of these objects. A text that begins with a slash is a path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from .faults import Ambiguous, NotFound
from .inventory import Inventory
from .lookup import quote, shorten_path, suggest_names
from .model import ComputeResource, Datastore

_EntityT = TypeVar("_EntityT", ComputeResource, Datastore)

# A name of 80 characters, the most that vCenter allows, with a few folders above it.
MAX_NAME_OR_PATH_LENGTH = 1024
_MAX_NAME_LENGTH = 80
_MAX_LISTED_PATHS = 10


def possible_names(name_or_path: str) -> list[str]:
    """The names that the object of this name or path may have.

    A name may contain a slash, so that each part of a path from a slash to its end is possible.
    """
    if not name_or_path.startswith("/"):
        return [name_or_path]
    end = name_or_path[-_MAX_NAME_LENGTH - 1 :]
    slashes = [index for index, character in enumerate(end) if character == "/"]
    return [name_or_path, *(end[index + 1 :] for index in slashes)]


def find_datastore(inventory: Inventory, name_or_path: str) -> Datastore:
    names = [datastore.name for datastore in inventory.datastores.values()]
    return _find(inventory, Datastore, "datastore", name_or_path, names)


def find_cluster(inventory: Inventory, name_or_path: str) -> ComputeResource:
    names = [compute.name for compute in inventory.compute_resources.values() if compute.is_cluster]
    return _find(inventory, ComputeResource, "cluster", name_or_path, names)


def _find(
    inventory: Inventory,
    entity_type: type[_EntityT],
    label: str,
    name_or_path: str,
    names: Sequence[str],
) -> _EntityT:
    is_path = name_or_path.startswith("/")
    matches = [
        entity
        for name in possible_names(name_or_path)
        for entity in inventory.by_name(entity_type, name)
        if name == name_or_path or inventory.path(entity.ref) == name_or_path
    ]
    if len(matches) == 1:
        return matches[0]
    vcenter = f'vCenter "{inventory.name}"'
    if matches:
        paths = sorted(inventory.path(entity.ref) for entity in matches)
        omitted = len(paths) - _MAX_LISTED_PATHS
        more = f" and {omitted} more" if omitted > 0 else ""
        raise Ambiguous(
            f"{vcenter} has {len(paths)} {label}s named {quote(name_or_path)}: "
            f"{', '.join(paths[:_MAX_LISTED_PATHS])}{more}. Set spec.{label} to one of these paths."
        )
    suggestions = suggest_names(name_or_path.rpartition("/")[2] if is_path else name_or_path, names)
    if is_path:
        suggestions = [
            inventory.path(entity.ref)
            for name in suggestions
            for entity in inventory.by_name(entity_type, name)
        ][:3]
    similar = ", ".join(f'"{shorten_path(name)}"' for name in suggestions)
    raise NotFound(
        f"{vcenter} has no {label} {'with the path' if is_path else 'named'} "
        f"{quote(name_or_path)}. {f'Did you mean {similar}? ' if similar else ''}"
        "Check the spelling (names are case-sensitive), or grant the vCenter account System.Read "
        f"on the {label}. The status is updated as soon as vCenter has the {label}."
    )
