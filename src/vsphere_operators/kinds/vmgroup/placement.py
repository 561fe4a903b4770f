"""Where a group's VMs are placed: names in the spec become references in the inventory.

spec.placement has precedence over the defaults of the vCenter. If neither names an object, vCenter
must have exactly one of that type. What cannot be resolved raises CloneBlocked with what to do.

Names and paths are compared as they are. They are not patterns: `*` or `../x` is just a name that
no object has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from ...vsphere.inventory import Inventory
from ...vsphere.lookup import quote, shorten_path, suggest_names
from ...vsphere.model import (
    ComputeResource,
    Datacenter,
    Datastore,
    Entity,
    Folder,
    ResourcePool,
    VirtualMachine,
)
from .limits import PLACEMENT_FIELDS, NamespaceLimits
from .model import CloneBlocked
from .reasons import Reason
from .types import PlacementSpec

DEFAULT_PARENT_FOLDER = "vm-operator"
_EntityT = TypeVar("_EntityT", ComputeResource, Datacenter, Datastore, Folder, ResourcePool)
_EntityType = type[Datacenter] | type[ComputeResource] | type[ResourcePool] | type[Datastore]
# By field: the type, and the reasons if no object or several have the name.
_FIELDS: Mapping[str, tuple[_EntityType, Reason, Reason]] = {
    "datacenter": (Datacenter, Reason.DATACENTER_NOT_FOUND, Reason.DATACENTER_AMBIGUOUS),
    "cluster": (ComputeResource, Reason.CLUSTER_NOT_FOUND, Reason.CLUSTER_AMBIGUOUS),
    "resourcePool": (
        ResourcePool,
        Reason.RESOURCE_POOL_NOT_FOUND,
        Reason.RESOURCE_POOL_AMBIGUOUS,
    ),
    "datastore": (Datastore, Reason.DATASTORE_NOT_FOUND, Reason.DATASTORE_AMBIGUOUS),
}


class Placement(Struct, frozen=True, kw_only=True):
    # The folder that contains the group's own folder.
    parent_folder: str
    resource_pool: str
    # "" is the datastore of the template.
    datastore: str = ""


def placement_names(placement: PlacementSpec | None) -> dict[str, str]:
    """The names by field of spec.placement; "" is not set."""
    return {field: getattr(placement, field, "") for field in PLACEMENT_FIELDS}


class PlacementResolver:
    """Resolves the placement of one group in one vCenter; each method may raise CloneBlocked."""

    def __init__(
        self,
        inventory: Inventory,
        requested: Mapping[str, str],
        defaults: Mapping[str, str],
        limits: NamespaceLimits,
    ) -> None:
        self.inventory = inventory
        self.effective_placement = {
            field: requested.get(field) or defaults.get(field, "") for field in PLACEMENT_FIELDS
        }
        self._limits, self._requested = limits, requested

    def resolve(self, template_name: str) -> tuple[VirtualMachine, Placement]:
        """The template and where its clones are placed."""
        self.check_requested()
        datacenter = self.find_datacenter()
        parent_folder = self.find_parent_folder(datacenter)
        template = self._find_template(template_name, datacenter)
        placement = Placement(
            parent_folder=parent_folder.ref,
            resource_pool=self._find_resource_pool(datacenter, template),
            datastore=self._find_datastore(datacenter),
        )
        self._check_resolved(datacenter, placement, template)
        return template, placement

    def find_compute_refs(self, template_name: str) -> tuple[str, ...]:
        """The compute resources that may have VMs of the group.

        All of the datacenter if the placement cannot be resolved, such as after the template was
        deleted; all of vCenter if the datacenter cannot.
        """
        try:
            _, placement = self.resolve(template_name)
            return (self.inventory.resource_pools[placement.resource_pool].owner,)
        except (CloneBlocked, KeyError):
            refs = tuple(self.inventory.compute_resources)
        try:
            datacenter = self.find_datacenter()
        except CloneBlocked:
            return refs
        return tuple(ref for ref in refs if self._is_in_datacenter(ref, datacenter))

    def check_requested(self) -> None:
        """Reject a name in spec.placement that the namespace may not use."""
        for field, name in self._requested.items():
            if name:
                self._check_allowed(field, [name])

    def _check_resolved(
        self, datacenter: Datacenter, placement: Placement, template: VirtualMachine
    ) -> None:
        """Check what the defaults and the template resolve to as well."""
        inventory = self.inventory
        pool = inventory.resource_pools.get(placement.resource_pool)
        datastores = [placement.datastore] if placement.datastore else template.datastores
        self._check_allowed("datacenter", [datacenter.name])
        self._check_allowed("cluster", [inventory.name_of(pool.owner)] if pool else [])
        self._check_allowed("resourcePool", [pool.name] if pool else [])
        self._check_allowed(
            "folder",
            [
                inventory.name_of(placement.parent_folder),
                inventory.path(placement.parent_folder),
                self._requested.get("folder", ""),
            ],
        )
        self._check_allowed("datastore", [inventory.name_of(ref) for ref in datastores])

    def _check_allowed(self, field: str, names: Sequence[str]) -> None:
        """Raise unless the namespace may use one of these names, which name the same object."""
        allowed = self._limits.allowed_placement.get(field)
        if allowed is None or any(name in allowed for name in names):
            return
        raise CloneBlocked(
            Reason.PLACEMENT_NOT_ALLOWED,
            f"This namespace may not use the {field} {quote(names[0] if names else '(none)')} "
            f"(allowed: {', '.join(allowed) or 'none'}). Change spec.placement.{field}, or ask the "
            "administrator.",
        )

    def find_datacenter(self) -> Datacenter:
        name, datacenters = self.effective_placement["datacenter"], self.inventory.datacenters
        if name:
            return self._require_one(self.inventory.by_name(Datacenter, name), "datacenter", name)
        if len(datacenters) == 1:
            return next(iter(datacenters.values()))
        if not datacenters:
            raise CloneBlocked(
                Reason.DATACENTER_NOT_FOUND,
                f'vCenter "{self.inventory.name}" shows no datacenter to this account. Grant it '
                "the Read-only role on the root folder, with 'Propagate to children'.",
            )
        names = ", ".join(sorted(datacenter.name for datacenter in datacenters.values()))
        raise CloneBlocked(
            Reason.DATACENTER_AMBIGUOUS,
            f'vCenter "{self.inventory.name}" has {len(datacenters)} datacenters ({names}). Select '
            "one in spec.placement.datacenter, or as the default of this vCenter in the file of "
            "-vcenters.",
        )

    def find_parent_folder(self, datacenter: Datacenter) -> Folder:
        """The folder for the groups' folders: by path, or by name if the name is unique.

        The manager never creates it, so that an administrator decides where VMs may be created.
        """
        requested = self.effective_placement["folder"] or DEFAULT_PARENT_FOLDER
        root = f"{self.inventory.path(datacenter.ref)}/vm"
        exact_path = requested if requested.startswith("/") else f"{root}/{requested}"
        same_name = [
            folder
            for folder in self._find_in_datacenter(Folder, requested.rpartition("/")[2], datacenter)
            if self.inventory.path(folder.ref).startswith(f"{root}/")
        ]
        matches = [folder for folder in same_name if self.inventory.path(folder.ref) == exact_path]
        if not matches and "/" not in requested:
            matches = same_name
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise CloneBlocked(
                Reason.FOLDER_AMBIGUOUS,
                f"Several folders are named {quote(requested)}: {self._join_paths(matches)}. Set "
                "spec.placement.folder to a path.",
            )
        raise CloneBlocked(
            Reason.FOLDER_NOT_FOUND,
            f"Folder {shorten_path(exact_path)} does not exist. Create it in vCenter (VMs and "
            "Templates); the group continues automatically.",
        )

    def _find_template(self, requested: str, datacenter: Datacenter) -> VirtualMachine:
        """The template with this name or path, within the folders that the namespace may use."""
        inventory = self.inventory
        same_name = inventory.by_name(VirtualMachine, requested.rpartition("/")[2])
        # An ordinary VM cannot be cloned: any user could copy another user's disks by its name.
        templates = [(inventory.path(vm.ref), vm) for vm in same_name if vm.is_template]
        root = inventory.path(datacenter.ref)
        folders = self._limits.template_folders
        if folders is None:
            folders = (f"{root}/vm/{DEFAULT_PARENT_FOLDER}",) if "/" in requested else (root,)
        usable = [
            (path, vm)
            for path, vm in templates
            if requested in (path, path.rpartition("/")[2])
            and _is_below_any(inventory.path_names(vm.ref), folders)
        ]
        if len(usable) == 1:
            return usable[0][1]
        if usable:
            paths = ", ".join(sorted(path for path, _ in usable))
            raise CloneBlocked(
                Reason.TEMPLATE_AMBIGUOUS,
                f"Several templates are named {quote(requested)}: {paths}. Set spec.template to "
                "the full path of one of them.",
            )
        if same_name and not templates:
            advice = "A VM has that name, but it is not a template: convert it in vCenter"
        elif suggestions := self._suggest_templates(requested, folders):
            advice = f"Did you mean {suggestions}? Change spec.template, or create the template"
        else:
            advice = "Create it there, or change spec.template"
        where = ", ".join(folders) or "any folder (none is allowed)"
        raise CloneBlocked(
            Reason.TEMPLATE_NOT_FOUND,
            f"Template {quote(requested)} not found in {where}. {advice}.",
        )

    def _suggest_templates(self, requested: str, folders: Sequence[str]) -> str:
        inventory = self.inventory
        usable = {
            inventory.path(vm.ref)
            for vm in inventory.vms.values()
            if vm.is_template and _is_below_any(inventory.path_names(vm.ref), folders)
        }
        names = usable if "/" in requested else {path.rpartition("/")[2] for path in usable}
        return _quote_names(suggest_names(requested, names))

    def _find_resource_pool(self, datacenter: Datacenter, template: VirtualMachine) -> str:
        """The named pool; else the root pool of the named, the only, or the template's cluster."""
        pool_name = self.effective_placement["resourcePool"]
        cluster_name = self.effective_placement["cluster"]
        cluster_ref = self._find_cluster(datacenter, cluster_name) if cluster_name else ""
        if pool_name:
            pools = [
                pool
                for pool in self._find_in_datacenter(ResourcePool, pool_name, datacenter)
                if not cluster_ref or pool.owner == cluster_ref
            ]
            return self._require_one(pools, "resourcePool", pool_name, datacenter).ref
        root_pools = {
            pool.parent: pool.ref
            for pool in self.inventory.resource_pools.values()
            if pool.parent in self.inventory.compute_resources
        }
        if cluster_ref:
            root_pool = root_pools.get(cluster_ref, "")
        else:
            in_datacenter = [
                pool_ref
                for owner_ref, pool_ref in root_pools.items()
                if self._is_in_datacenter(owner_ref, datacenter)
            ]
            host = self.inventory.hosts.get(template.host)
            template_cluster = host.parent if host else ""
            root_pool = (
                in_datacenter[0]
                if len(in_datacenter) == 1
                else root_pools.get(template_cluster, "")
            )
        if not root_pool:
            raise CloneBlocked(
                Reason.RESOURCE_POOL_AMBIGUOUS,
                f'Datacenter "{datacenter.name}" has several resource pools, and none is selected. '
                "Set spec.placement.resourcePool or spec.placement.cluster.",
            )
        return root_pool

    def _find_cluster(self, datacenter: Datacenter, name: str) -> str:
        clusters = [
            cluster
            for cluster in self._find_in_datacenter(ComputeResource, name, datacenter)
            if cluster.is_cluster
        ]
        return self._require_one(clusters, "cluster", name, datacenter).ref

    def _find_datastore(self, datacenter: Datacenter) -> str:
        name = self.effective_placement["datastore"]
        if not name:
            return ""
        datastore = self._require_one(
            self._find_in_datacenter(Datastore, name, datacenter), "datastore", name, datacenter
        )
        if datastore.accessible is False:
            raise CloneBlocked(
                Reason.DATASTORE_INACCESSIBLE,
                f"Datastore {quote(name)} is not accessible. Fix it in vCenter, or select another "
                "one in spec.placement.datastore.",
            )
        return datastore.ref

    def _find_in_datacenter(
        self, entity_type: type[_EntityT], name: str, datacenter: Datacenter
    ) -> list[_EntityT]:
        return [
            entity
            for entity in self.inventory.by_name(entity_type, name)
            if self._is_in_datacenter(entity.ref, datacenter)
        ]

    def _is_in_datacenter(self, ref: str, datacenter: Datacenter) -> bool:
        actual = self.inventory.datacenter_of(ref)
        return actual is not None and actual.ref == datacenter.ref

    def _require_one(
        self,
        matches: Sequence[_EntityT],
        field: str,
        name: str,
        datacenter: Datacenter | None = None,
    ) -> _EntityT:
        """The only match; `datacenter` is where it was searched for, None is the whole vCenter."""
        if len(matches) == 1:
            return matches[0]
        entity_type, not_found, ambiguous = _FIELDS[field]
        if matches:
            raise CloneBlocked(
                ambiguous,
                f"Several {field}s are named {quote(name)}: {self._join_paths(matches)}. Rename "
                f"one in vCenter, or select another {field} in spec.placement.{field}.",
            )
        where = (
            f'Datacenter "{datacenter.name}"' if datacenter else f'vCenter "{self.inventory.name}"'
        )
        suggestions = self._suggest_names(entity_type, field, name, datacenter)
        hint = f" Did you mean {suggestions}?" if suggestions else ""
        raise CloneBlocked(
            not_found,
            f"{where} has no {field} named {quote(name)}.{hint} Check spec.placement.{field} "
            "(names are case-sensitive).",
        )

    def _suggest_names(
        self, entity_type: _EntityType, field: str, name: str, datacenter: Datacenter | None
    ) -> str:
        """Similar names of objects in the datacenter that the namespace may use."""
        allowed = self._limits.allowed_placement.get(field)
        names = {
            entity.name
            for entity in self.inventory.all_of(entity_type).values()
            if (datacenter is None or self._is_in_datacenter(entity.ref, datacenter))
            # A standalone host has a compute resource of its own, which is not a cluster.
            and (not isinstance(entity, ComputeResource) or entity.is_cluster)
        }
        return _quote_names(
            suggest_names(name, names if allowed is None else names.intersection(allowed))
        )

    def _join_paths(self, entities: Iterable[Entity]) -> str:
        return ", ".join(sorted(self.inventory.path(entity.ref) for entity in entities))


def build_parent_folder_key(resolver: PlacementResolver) -> str:
    """Identifies the parent folder by vCenter and MoRef: specs can name it in several ways."""
    inventory = resolver.inventory
    # Not by name: two entries of the configuration may be the same vCenter.
    vcenter = inventory.instance_uuid or inventory.name
    try:
        folder = resolver.find_parent_folder(resolver.find_datacenter())
    except CloneBlocked:
        return f"{vcenter}/"
    return f"{vcenter}/{folder.ref}"


def _is_below_any(names: Sequence[str], folders: Iterable[str]) -> bool:
    """Whether a template is in one of the folders, or is itself listed.

    By names, not by paths: a folder of another user may be named `golden/x`.
    """
    allowed_paths = (folder.removeprefix("/").rstrip("/").split("/") for folder in folders)
    return any(list(names[: len(allowed)]) == allowed for allowed in allowed_paths)


def _quote_names(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
