"""What each namespace may use, in one YAML file: templates, places and amounts for its VmGroups.

    limits:
      - namespaces: ["team-a", "team-a-*"]           # names or globs; the first entry that fits counts
        templateFolders: ["/DC0/vm/vm-operator/team-a"]
        places: {cluster: [C0], datastore: [fast, slow]}
        quota: {vms: 20, cpus: 40, memoryGB: 64}
      - namespaces: ["*"]
        quota: {vms: 5}

A namespace that no entry fits may use everything. In `places` a field that is not named is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from ...vcenters.config import GLOB
from ...yamlfile import FileFormat
from .limits import NamespaceLimits, Quota
from .placement import PLACEMENT_FIELDS

MB_PER_GB = 1024


class QuotaEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """The most that the groups of one namespace may have together."""

    vms: Annotated[int | UnsetType, Meta(description="VMs.")] = UNSET
    cpus: Annotated[int | UnsetType, Meta(description="vCPUs of all VMs.")] = UNSET
    memoryGB: Annotated[int | UnsetType, Meta(description="Memory of all VMs, in GB.")] = UNSET


class LimitsEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of the file."""

    namespaces: Annotated[tuple[str, ...], Meta(description="Names or globs of namespaces.")]
    templateFolders: Annotated[
        tuple[str, ...] | UnsetType,
        Meta(
            description="Full inventory paths; templates are found in these alone. Without it: a bare name in the whole datacenter."
        ),
    ] = UNSET
    places: Annotated[
        dict[str, tuple[str, ...]],
        Meta(
            description="By field of `spec.placement`, the names that may be asked for. A field that is not named is free."
        ),
    ] = {}
    quota: Annotated[
        QuotaEntry, Meta(description="The most that all groups of one namespace may have together.")
    ] = QuotaEntry()

    def _to_limits(self) -> NamespaceLimits:
        """What it means for a group."""
        quota = self.quota
        memory_gb = _unset_to_none(quota.memoryGB)
        return NamespaceLimits(
            template_folders=None if self.templateFolders is UNSET else self.templateFolders,
            allowed_placement=self.places,
            quota=Quota(
                vms=_unset_to_none(quota.vms),
                cpus=_unset_to_none(quota.cpus),
                memory_mb=None if memory_gb is None else memory_gb * MB_PER_GB,
            ),
        )


class LimitsFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    limits: Annotated[
        tuple[LimitsEntry, ...],
        Meta(description="The entries; the first that fits a namespace counts."),
    ]


def _unset_to_none(given: int | UnsetType) -> int | None:
    """A number, None for no limit."""
    return None if given is UNSET else given


def _find_file_errors(file: LimitsFile) -> Iterator[tuple[str, str]]:
    """What is wrong beyond types: the path, and what to do."""
    for index, entry in enumerate(file.limits):
        path = f"$.limits[{index}]"
        if not entry.namespaces:
            yield f"{path}.namespaces", "the list is empty; name a namespace or a glob"
        for place, glob in enumerate(entry.namespaces):
            if not GLOB.fullmatch(glob):
                yield (
                    f"{path}.namespaces[{place}]",
                    f'"{glob}" fits no namespace: use lower-case letters, digits and -, and * ? [..]',
                )
        for folder in entry.templateFolders if entry.templateFolders is not UNSET else ():
            if not folder.startswith("/"):
                yield (
                    f"{path}.templateFolders",
                    f'"{folder}" has to be a full inventory path, such as /DC0/vm/vm-operator',
                )
        for field in entry.places:
            if field not in PLACEMENT_FIELDS:
                yield (
                    f"{path}.places.{field}",
                    f"there is no such place; there are {', '.join(PLACEMENT_FIELDS)}",
                )


LIMITS_FILE_FORMAT = FileFormat(
    flag="-vmgroup-limits",
    description="list of limits",
    root_type=LimitsFile,
    mapping_types={"$": LimitsFile, "$.limits[]": LimitsEntry, "$.limits[].quota": QuotaEntry},
    find_errors=_find_file_errors,
)


def read_limits(file: str) -> Callable[[str], NamespaceLimits]:
    """The limits by namespace; "" is no file, and so no limits."""
    known = (
        [(entry.namespaces, entry._to_limits()) for entry in LIMITS_FILE_FORMAT.read(file).limits]
        if file
        else []
    )

    def of(namespace: str) -> NamespaceLimits:
        fitting = (
            limits for globs, limits in known if any(fnmatchcase(namespace, glob) for glob in globs)
        )
        return next(fitting, NamespaceLimits())

    return of
