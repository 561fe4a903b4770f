"""Where a group's VMs go: datacenter, parent folder, resource pool and datastore, by names, from the inventory in memory.

What a person asks for goes before the defaults of the vCenter; where neither says anything there must be only one. What cannot be found is
an Obstacle, whose words say what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from ...vsphere.inventory import Inventory
from ...vsphere.lookup import suggest_names
from ...vsphere.model import (
    ComputeResource,
    Datacenter,
    Datastore,
    Entity,
    Folder,
    ResourcePool,
    VirtualMachine,
)
from .limits import (
    PLACEMENT_FIELDS,
    NamespaceLimits,
    TemplateCandidate,
    find_placement_violation,
    is_within,
    select_template,
    template_search_folders,
)
from .model import CloneBlocked

DEFAULT_PARENT_FOLDER = "vm-operator"
EntityT = TypeVar("EntityT", ComputeResource, Datacenter, Datastore, Folder, ResourcePool)
EntityType = type[Datacenter] | type[ComputeResource] | type[ResourcePool] | type[Datastore]
_ENTITY_TYPES: Mapping[str, EntityType] = {
    "datacenter": Datacenter,
    "cluster": ComputeResource,
    "resourcePool": ResourcePool,
    "datastore": Datastore,
}


class Placement(Struct, frozen=True, kw_only=True):
    """References of where clones go."""

    parent_folder: str
    """The folder that the group's own folder is in."""
    resource_pool: str
    datastore: str = ""
    """"" is where the template is."""


class PlacementResolver:
    """One vCenter seen with the wishes of one group: each question is answered or raises Obstacle."""

    def __init__(
        self,
        inventory: Inventory,
        asked: Mapping[str, str],
        defaults: Mapping[str, str],
        limits: NamespaceLimits,
    ) -> None:
        self.inventory, self.limits = inventory, limits
        self.requested_placement = asked
        self.effective_placement = {
            field: asked.get(field) or defaults.get(field, "") for field in PLACEMENT_FIELDS
        }

    def check_requested(self) -> None:
        """Refuse what the administrator does not allow this namespace."""
        if words := find_placement_violation(dict(self.requested_placement), self.limits):
            raise CloneBlocked("PlacementNotAllowed", words)

    def _check_resolved(
        self, datacenter: Datacenter, site: Placement, template: VirtualMachine
    ) -> None:
        """Refuse also what nobody asked for by name, but what it comes to."""
        inventory = self.inventory
        pool = inventory.resource_pools.get(site.resource_pool)
        stores = [site.datastore] if site.datastore else list(template.datastores)
        found = {
            "datacenter": [datacenter.name],
            "cluster": [inventory.name_of(pool.owner)] if pool else [],
            "resourcePool": [pool.name] if pool else [],
            "folder": [
                inventory.name_of(site.parent_folder),
                inventory.path(site.parent_folder),
                self.requested_placement.get("folder", ""),
            ],
            "datastore": [inventory.name_of(each) for each in stores],
        }
        for field, names in found.items():
            allowed = self.limits.allowed_placement.get(field)
            if allowed is not None and not any(name in allowed for name in names):
                raise CloneBlocked(
                    "PlacementNotAllowed",
                    find_placement_violation({field: names[0] if names else "(none)"}, self.limits),
                )

    def resolve(self, template: str) -> tuple[VirtualMachine, Placement]:
        """What is cloned, and where to; the first thing that is in the way is raised."""
        self.check_requested()
        datacenter = self.find_datacenter()
        self.find_parent_folder(datacenter)
        source = self.find_template(template, datacenter)
        site = self.find_placement(datacenter, source)
        self._check_resolved(datacenter, site, source)
        return source, site

    def find_datacenter(self) -> Datacenter:
        """The one that is named, or the only one."""
        name, all_of_them = self.effective_placement["datacenter"], self.inventory.datacenters
        if name:
            return self._require_one(self.inventory.by_name(Datacenter, name), "datacenter", name)
        if len(all_of_them) == 1:
            return next(iter(all_of_them.values()))
        names = ", ".join(sorted(each.name for each in all_of_them.values())) or "none"
        cure = "name one in spec.placement.datacenter, or as the default of this vCenter in the file of -vcenters"
        raise CloneBlocked(
            "DatacenterAmbiguous",
            f'vCenter "{self.inventory.name}" has {len(all_of_them)} datacenters ({names}); {cure}',
        )

    def find_parent_folder(self, datacenter: Datacenter) -> Folder:
        """The folder for the groups' folders: by path, or by name where only one has it. Nobody but the administrator makes it."""
        wanted = self.effective_placement["folder"] or DEFAULT_PARENT_FOLDER
        root = f"{self.inventory.path(datacenter.ref)}/vm"
        exact = wanted if wanted.startswith("/") else f"{root}/{wanted}"
        same = [
            each
            for each in self._find_in_datacenter(Folder, wanted.rpartition("/")[2], datacenter)
            if self.path_of(each).startswith(f"{root}/")
        ]
        found = [each for each in same if self.path_of(each) == exact] or (
            [] if "/" in wanted else same
        )
        if len(found) == 1:
            return found[0]
        if found:
            raise CloneBlocked(
                "FolderAmbiguous",
                f'several folders are named "{wanted}": {self._join_paths(found)}; give a path in spec.placement.folder',
            )
        raise CloneBlocked(
            "FolderNotFound",
            f"the folder {exact} does not exist; create it in vCenter (VMs and Templates), it is found by itself",
        )

    def find_template(self, wanted: str, datacenter: Datacenter) -> VirtualMachine:
        """What is cloned: a template. A VM is none, or anybody could have a copy of anybody's disks by its name."""
        inventory = self.inventory
        named = inventory.by_name(VirtualMachine, wanted.rpartition("/")[2])
        templates = [
            TemplateCandidate(each.ref, inventory.path(each.ref))
            for each in named
            if each.is_template
        ]
        choice = select_template(wanted, templates, inventory.path(datacenter.ref), self.limits)
        if choice.template is not None:
            return inventory.vms[choice.template.ref]
        if len(templates) < len(named) and not templates:
            raise CloneBlocked(
                "TemplateNotFound",
                f"{choice.problem}. There is a VM of that name, but it is no template: convert it in vCenter",
            )
        if choice.problem.startswith("several"):
            raise CloneBlocked("TemplateAmbiguous", choice.problem)
        near = ", ".join(f'"{each}"' for each in self._suggest_templates(wanted, datacenter))
        raise CloneBlocked(
            "TemplateNotFound", ". Near to it: ".join(filter(None, (choice.problem, near)))
        )

    def _suggest_templates(self, wanted: str, datacenter: Datacenter) -> list[str]:
        """Names near to that of a template that does not exist; only of those that the namespace may use."""
        inventory, by_path = self.inventory, "/" in wanted
        roots = template_search_folders(by_path, inventory.path(datacenter.ref), self.limits)
        paths = [inventory.path(each.ref) for each in inventory.vms.values() if each.is_template]
        usable = {path for path in paths if any(is_within(path, root) for root in roots)}
        return suggest_names(
            wanted, usable if by_path else {path.rpartition("/")[2] for path in usable}
        )

    def find_placement(self, datacenter: Datacenter, template: VirtualMachine) -> Placement:
        """All of it."""
        return Placement(
            parent_folder=self.find_parent_folder(datacenter).ref,
            resource_pool=self.find_resource_pool(datacenter, template),
            datastore=self.find_datastore(datacenter),
        )

    def find_resource_pool(self, datacenter: Datacenter, template: VirtualMachine) -> str:
        """The pool that is named, else the root pool of the cluster that is named, of the only one, or of the template's own."""
        name, cluster = (
            self.effective_placement["resourcePool"],
            self.effective_placement["cluster"],
        )
        owner = self.find_cluster(datacenter, cluster) if cluster else ""
        if name:
            pools = [
                each
                for each in self._find_in_datacenter(ResourcePool, name, datacenter)
                if not owner or each.owner == owner
            ]
            return self._require_one(pools, "resourcePool", name, datacenter).ref
        roots = {
            each.parent: each.ref
            for each in self.inventory.resource_pools.values()
            if each.parent in self.inventory.compute_resources
        }
        if owner:
            return roots.get(owner, "") or self._raise_pool_ambiguous(datacenter)
        local = [ref for parent, ref in roots.items() if self._is_in_datacenter(parent, datacenter)]
        if len(local) == 1:
            return local[0]
        host = self.inventory.hosts.get(template.host)
        return roots.get(host.parent if host else "", "") or self._raise_pool_ambiguous(datacenter)

    def find_cluster(self, datacenter: Datacenter, name: str) -> str:
        """The cluster of that name."""
        clusters = [
            each
            for each in self._find_in_datacenter(ComputeResource, name, datacenter)
            if each.is_cluster
        ]
        return self._require_one(clusters, "cluster", name, datacenter).ref

    def _raise_pool_ambiguous(self, datacenter: Datacenter) -> str:
        """Nothing says which pool is meant."""
        cure = "name one in spec.placement.resourcePool or a cluster in spec.placement.cluster"
        raise CloneBlocked(
            "ResourcePoolAmbiguous",
            f'which resource pool of datacenter "{datacenter.name}" is meant cannot be told; {cure}',
        )

    def find_datastore(self, datacenter: Datacenter) -> str:
        """The datastore that is named; "" where none is."""
        name = self.effective_placement["datastore"]
        if not name:
            return ""
        found = self._require_one(
            self._find_in_datacenter(Datastore, name, datacenter), "datastore", name, datacenter
        )
        if not found.accessible:
            raise CloneBlocked(
                "DatastoreInaccessible",
                f'the datastore "{name}" is not accessible; mend it, or name another in spec.placement',
            )
        return found.ref

    def _find_in_datacenter(
        self, kind: type[EntityT], name: str, datacenter: Datacenter
    ) -> list[EntityT]:
        """All of a sort and a name in a datacenter."""
        return [
            entity
            for entity in self.inventory.by_name(kind, name)
            if self._is_in_datacenter(entity.ref, datacenter)
        ]

    def _is_in_datacenter(self, ref: str, datacenter: Datacenter) -> bool:
        """Whether something is in a datacenter."""
        found = self.inventory.datacenter_of(ref)
        return found is not None and found.ref == datacenter.ref

    def _require_one(
        self, found: Sequence[EntityT], field: str, name: str, datacenter: Datacenter | None = None
    ) -> EntityT:
        """The only one of a name; `datacenter` is where it was looked for."""
        if len(found) == 1:
            return found[0]
        title = f"{field[0].upper()}{field[1:]}"
        if found:
            words = f'several are named "{name}": {self._join_paths(found)}; name another in spec.placement.{field}'
            raise CloneBlocked(f"{title}Ambiguous", words)
        near = ", ".join(f'"{each}"' for each in self.suggest_names(field, name, datacenter))
        words = f'vCenter "{self.inventory.name}" has no {field} named "{name}" there{f" (near to it: {near})" if near else ""}'
        raise CloneBlocked(
            f"{title}NotFound", f"{words}; correct spec.placement.{field}, letter case counts"
        )

    def suggest_names(self, field: str, name: str, datacenter: Datacenter | None) -> list[str]:
        """Names near to one that does not exist, of those that would do: in the datacenter, and what the namespace may use."""
        allowed, table = (
            self.limits.allowed_placement.get(field),
            self.inventory.all_of(_ENTITY_TYPES[field]).values(),
        )
        there = [
            each
            for each in table
            if datacenter is None or self._is_in_datacenter(each.ref, datacenter)
        ]
        # A host outside clusters has a compute resource of its own, which is no cluster.
        names = {
            each.name for each in there if not isinstance(each, ComputeResource) or each.is_cluster
        }
        return suggest_names(name, names if allowed is None else names.intersection(allowed))

    def path_of(self, entity: Entity) -> str:
        """Where it is."""
        return self.inventory.path(entity.ref)

    def _join_paths(self, entities: Iterable[Entity]) -> str:
        """Where they are."""
        return ", ".join(sorted(map(self.path_of, entities)))
