"""What a namespace may use: templates, places and amounts. Each check answers "" or, in words, what is in the way and who can mend it.

Names and paths are compared as they are; nothing in them is a pattern, so `*` or `../x` is only a name that nobody has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from ...vcenters.config import GLOB
from ...yamlfile import FileFormat


class QuotaUsage(Struct, frozen=True, kw_only=True):
    """VMs with their vCPUs and memory."""

    vms: int = 0
    cpus: int = 0
    memory_mb: int = 0

    def __add__(self, other: QuotaUsage) -> QuotaUsage:
        return QuotaUsage(
            vms=self.vms + other.vms,
            cpus=self.cpus + other.cpus,
            memory_mb=self.memory_mb + other.memory_mb,
        )


class Quota(Struct, frozen=True, kw_only=True):
    """The most that the groups of a namespace may have together; None is no limit."""

    vms: int | None = None
    cpus: int | None = None
    memory_mb: int | None = None


class NamespaceLimits(Struct, frozen=True, kw_only=True):
    """What the administrator's settings allow a namespace."""

    template_folders: tuple[str, ...] | None = None
    """Inventory paths of folders; None: a path within the datacenter's vm-operator folder, a bare name anywhere in the datacenter."""
    allowed_placement: dict[str, tuple[str, ...]] = {}
    """By field of spec.placement the names that may be asked for; a field that is not here is free."""
    quota: Quota = Quota()


class TemplateCandidate(Struct, frozen=True):
    """A template in the inventory."""

    ref: str
    path: str
    """Full inventory path, such as /DC0/vm/vm-operator/t."""


class TemplateMatch(Struct, frozen=True):
    """A template, or why there is none."""

    template: TemplateCandidate | None
    problem: str = ""


def select_template(
    wanted: str,
    templates: Iterable[TemplateCandidate],
    datacenter_path: str,
    limits: NamespaceLimits,
) -> TemplateMatch:
    """The one template that `spec.template` names: by exact name, or by exact inventory path, within what the namespace may use."""
    by_path = "/" in wanted
    named = [
        each
        for each in templates
        if each.path == wanted or (not by_path and each.path.rpartition("/")[2] == wanted)
    ]
    roots = template_search_folders(by_path, datacenter_path, limits)
    usable = [each for each in named if any(is_within(each.path, root) for root in roots)]
    if len(usable) == 1:
        return TemplateMatch(usable[0])
    where = ", ".join(roots) or "no folder at all"
    if usable:
        paths = ", ".join(sorted(each.path for each in usable))
        return TemplateMatch(
            None,
            f'several templates are named "{wanted}": {paths}; give the full path of one in spec.template',
        )
    return TemplateMatch(
        None, f'no template "{wanted}" in {where}; create it there, or change spec.template'
    )


def template_search_folders(
    by_path: bool, datacenter_path: str, limits: NamespaceLimits
) -> tuple[str, ...]:
    """The folders in which templates count."""
    if limits.template_folders is not None:
        return limits.template_folders
    return (f"{datacenter_path}/vm/vm-operator",) if by_path else (datacenter_path,)


def is_within(path: str, folder: str) -> bool:
    """Whether a path leads into a folder."""
    return path.startswith(f"{folder.rstrip('/')}/")


def find_placement_violation(placement: dict[str, str], limits: NamespaceLimits) -> str:
    """The first part of a placement that the namespace may not use."""
    for field, name in placement.items():
        allowed = limits.allowed_placement.get(field)
        if name and allowed is not None and name not in allowed:
            choice = ", ".join(allowed) or "none"
            cure = f"change spec.placement.{field} or ask the administrator"
            return f'this namespace may not use the {field} "{name}" (allowed: {choice}); {cure}'
    return ""


def find_quota_violation(wanted: QuotaUsage, others: Iterable[QuotaUsage], quota: Quota) -> str:
    """Why a group does not fit beside the other groups of its namespace; `wanted` is all of the group, as its spec asks."""
    total = wanted
    for each in others:
        total += each
    exceeded = "; ".join(_describe_exceeded_quotas(total, wanted, quota))
    return (
        f"the quota of this namespace is exceeded: {exceeded}; lower this group or another, or ask the administrator"
        if exceeded
        else ""
    )


def _describe_exceeded_quotas(total: QuotaUsage, wanted: QuotaUsage, quota: Quota) -> Iterator[str]:
    """What is over, each in words."""
    rows = (
        ("VMs", total.vms, wanted.vms, quota.vms),
        ("vCPUs", total.cpus, wanted.cpus, quota.cpus),
        ("MB of memory", total.memory_mb, wanted.memory_mb, quota.memory_mb),
    )
    for unit, needed, ours, limit in rows:
        if limit is not None and needed > limit:
            yield f"{needed} {unit} are asked for, of these {ours} by this group, and {limit} are allowed"


PLACEMENT_FIELDS = ("datacenter", "cluster", "resourcePool", "folder", "datastore")


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
