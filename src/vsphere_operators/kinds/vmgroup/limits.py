"""What the administrator allows a namespace: templates, placement and quota, read from a YAML file.

    limits:
      - namespaces: ["team-a", "team-a-*"]      # names or globs; the first matching entry applies
        templateFolders: ["/DC0/vm/vm-operator/team-a"]
        places: {cluster: [C0], datastore: [fast, slow]}
        quota: {vms: 20, cpus: 40, memoryGB: 64}
      - namespaces: ["*"]
        quota: {vms: 5}

A namespace without a matching entry is not limited. In `places`, a field that is not listed is not
limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from ...vcenters.config import PlacementDefaults, find_glob_error
from ...yamlfile import FileFormat
from .model import Quota

MB_PER_GB = 1024
# The fields of spec.placement.
PLACEMENT_FIELDS = PlacementDefaults.__struct_fields__


class NamespaceLimits(Struct, frozen=True, kw_only=True):
    """What the administrator allows one namespace."""

    # Inventory paths of templates, or of the folders in which they are found. None: a template that
    # is given by path has to be in the datacenter's vm-operator folder, one that is given by name
    # can be anywhere in the datacenter.
    template_folders: tuple[str, ...] | None = None
    # The allowed names by field of spec.placement; a field that is not here is not limited.
    allowed_placement: dict[str, tuple[str, ...]] = {}
    quota: Quota = Quota()


class QuotaEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """The most that the groups of one namespace may use together."""

    vms: Annotated[int | UnsetType, Meta(description="Number of VMs.")] = UNSET
    cpus: Annotated[int | UnsetType, Meta(description="Number of vCPUs of all VMs.")] = UNSET
    memoryGB: Annotated[int | UnsetType, Meta(description="Memory of all VMs, in GB.")] = UNSET


class LimitsEntry(Struct, frozen=True, forbid_unknown_fields=True):
    namespaces: Annotated[tuple[str, ...], Meta(description="Names or globs of namespaces.")]
    templateFolders: Annotated[
        tuple[str, ...] | UnsetType,
        Meta(
            description="Full inventory paths; only templates in these folders can be used. "
            "If unset, -vmgroup-allowed-template applies; without that flag, a template that is "
            "given by name can be anywhere in the datacenter."
        ),
    ] = UNSET
    # `allowed_placement` in the code; the key keeps the name that existing files have.
    places: Annotated[
        dict[str, tuple[str, ...]],
        Meta(
            description="The allowed names by field of `spec.placement`. "
            "A field that is not listed is not limited."
        ),
    ] = {}
    quota: Annotated[
        QuotaEntry,
        Meta(description="The most that all groups of one namespace may use together."),
    ] = QuotaEntry()

    def _to_limits(self) -> NamespaceLimits:
        memory_gb = _unset_to_none(self.quota.memoryGB)
        return NamespaceLimits(
            template_folders=None if self.templateFolders is UNSET else self.templateFolders,
            allowed_placement=self.places,
            quota=Quota(
                vms=_unset_to_none(self.quota.vms),
                cpus=_unset_to_none(self.quota.cpus),
                memory_mb=None if memory_gb is None else memory_gb * MB_PER_GB,
            ),
        )


class LimitsFile(Struct, frozen=True, forbid_unknown_fields=True):
    limits: Annotated[
        tuple[LimitsEntry, ...],
        Meta(description="The entries; the first that matches a namespace applies."),
    ]


def _unset_to_none(value: int | UnsetType) -> int | None:
    return None if value is UNSET else value


def _find_file_errors(file: LimitsFile) -> Iterator[tuple[str, str]]:
    """What the types do not check: the path in the file and the message."""
    for index, entry in enumerate(file.limits):
        path = f"$.limits[{index}]"
        if not entry.namespaces:
            yield f"{path}.namespaces", "the list is empty; add a namespace or a glob"
        for position, glob in enumerate(entry.namespaces):
            if error := find_glob_error(glob):
                yield f"{path}.namespaces[{position}]", error
        for folder in entry.templateFolders if entry.templateFolders is not UNSET else ():
            if error := find_template_path_error(folder):
                yield f"{path}.templateFolders", f'"{folder}" {error}'
        for field in entry.places:
            if field not in PLACEMENT_FIELDS:
                yield (
                    f"{path}.places.{field}",
                    f"unknown field; use one of {', '.join(PLACEMENT_FIELDS)}",
                )


LIMITS_FILE_FORMAT = FileFormat(
    flag="-vmgroup-limits",
    description="list of limits",
    root_type=LimitsFile,
    mapping_types={"$": LimitsFile, "$.limits[]": LimitsEntry, "$.limits[].quota": QuotaEntry},
    find_errors=_find_file_errors,
)


def find_template_path_error(path: str) -> str:
    """Why this cannot be the path of a template or folder, "" if it can."""
    if path.startswith("/") and path.strip("/"):
        return ""
    return "must be a full inventory path, such as /DC0/vm/vm-operator"


def read_limits(
    file: str, allowed_templates: tuple[str, ...] = ()
) -> Callable[[str], NamespaceLimits]:
    """The limits by namespace; without a file ("") only the templates are limited, if at all.

    `allowed_templates` are for namespaces without templates of their own in the file.
    """
    default = NamespaceLimits(template_folders=allowed_templates or None)
    entries = (
        [(entry.namespaces, entry._to_limits()) for entry in LIMITS_FILE_FORMAT.read(file).limits]
        if file
        else []
    )

    # Every reconcile calls this; the cache matches the globs once per namespace.
    @lru_cache(maxsize=1024)
    def limits_for(namespace: str) -> NamespaceLimits:
        for globs, limits in entries:
            if any(fnmatchcase(namespace, glob) for glob in globs):
                if limits.template_folders is None:
                    return replace(limits, template_folders=default.template_folders)
                return limits
        return default

    return limits_for
