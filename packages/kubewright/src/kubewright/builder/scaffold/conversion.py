"""`kubewright create webhook --conversion`: other versions of a kind, each with the way to the version that its controller knows.

kubebuilder's words: the version that the controller knows is the hub, `--version`; each other one is a spoke, `--spoke`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from ...errors import ConfigError
from ..changeset import ChangeSet
from ..names import ResourceNames, check_version
from ..project import Project, ResourceEntry
from ..sandbox import chain_changes
from .api import ApiParameters
from .version import find_hub, scaffold_version, source_path


def parse_spokes(
    project: Project, listed: ResourceEntry, version: str | None, spokes: Sequence[str]
) -> tuple[str, ...]:
    """The versions that the command names; without a `--spoke`, a `--version` that is not the hub's is the one."""
    hub = _find_hub_entry(project, listed)
    named = tuple(
        dict.fromkeys(check_version(each.strip()) for text in spokes for each in text.split(","))
    )
    if version is None or check_version(version) == hub.version:
        return named
    if named:
        check_hub_version(hub, version)
    return (version,)


def check_hub_version(hub: ResourceEntry, version: str | None) -> None:
    """Raise for a version that is not the one that the controller knows."""
    if version not in (None, hub.version):
        raise ConfigError(
            f"the controller of {hub.kind} knows {hub.version}, and every other version is converted to that one, for webhooks too: "
            f"leave --version {version} out"
        )


def add_versions(
    project: Project, listed: ResourceEntry, spokes: Sequence[str], first: ChangeSet
) -> ChangeSet:
    """A change, and behind it the files and edits of each version."""
    for spoke in spokes:
        _check_spoke_is_new(project, listed, spoke)
    return reduce(
        lambda change, spoke: chain_changes(
            change, lambda root: _scaffold_version_in(root, listed, spoke)
        ),
        spokes,
        first,
    )


def _scaffold_version_in(root: Path, listed: ResourceEntry, version: str) -> ChangeSet:
    """Another version, in a copy of the project."""
    project = Project.read(root)
    return scaffold_version(
        project,
        ApiParameters(ResourceNames(listed.group, version, listed.kind, listed.plural)),
        _find_hub_entry(project, listed),
    )


def _find_hub_entry(project: Project, listed: ResourceEntry) -> ResourceEntry:
    """The version of a kind that its controller knows."""
    return (
        find_hub(project, ResourceNames(listed.group, listed.version, listed.kind, listed.plural))
        or listed
    )


def _check_spoke_is_new(project: Project, listed: ResourceEntry, version: str) -> None:
    """Raise for a version that is there: the hub needs no conversion, and another has one."""
    for old in project.config.resources:
        if (old.group, old.kind, old.version) != (listed.group, listed.kind, version):
            continue
        if old.conversion:
            raise ConfigError(
                f"{old.kind} {version} has its conversion already: edit to_hub and from_hub in {source_path(old)}"
            )
        raise ConfigError(
            f"{old.kind} {version}, in {source_path(old)}, is the version that its controller knows. "
            "A conversion leads to it from another one, such as --spoke v2"
        )
