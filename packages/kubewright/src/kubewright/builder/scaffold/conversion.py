"""`kubewright create webhook --conversion`: other versions of a kind, each with the way to the version that its controller knows.

kubebuilder's words: the version that the controller knows is the hub, `--version`; each other one is a spoke, `--spoke`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from ...errors import ConfigError
from ..changeset import Change
from ..names import Resource, checked_version
from ..project import Listed, Project
from ..sandbox import also
from .api import Wish
from .version import hub_of, new_version, path_of


def spokes_said(project: Project, listed: Listed, version: str | None, spokes: Sequence[str]) -> tuple[str, ...]:
    """The versions that the command names; without a `--spoke`, a `--version` that is not the hub's is the one."""
    hub = known(project, listed)
    named = tuple(dict.fromkeys(checked_version(each.strip()) for text in spokes for each in text.split(",")))
    if version is None or checked_version(version) == hub.version:
        return named
    if named:
        refuse_other_version(hub, version)
    return (version,)


def refuse_other_version(hub: Listed, version: str | None) -> None:
    """Raise for a version that is not the one that the controller knows."""
    if version not in (None, hub.version):
        raise ConfigError(
            f"the controller of {hub.kind} knows {hub.version}, and every other version is converted to that one, for webhooks too: "
            f"leave --version {version} out"
        )


def with_versions(project: Project, listed: Listed, spokes: Sequence[str], first: Change) -> Change:
    """A change, and behind it the files and edits of each version."""
    for spoke in spokes:
        refuse_there(project, listed, spoke)
    return reduce(lambda change, spoke: also(change, lambda root: version_in(root, listed, spoke)), spokes, first)


def version_in(root: Path, listed: Listed, version: str) -> Change:
    """Another version, in a copy of the project."""
    project = Project.read(root)
    return new_version(project, Wish(Resource(listed.group, version, listed.kind, listed.plural)), known(project, listed))


def known(project: Project, listed: Listed) -> Listed:
    """The version of a kind that its controller knows."""
    return hub_of(project, Resource(listed.group, listed.version, listed.kind, listed.plural)) or listed


def refuse_there(project: Project, listed: Listed, version: str) -> None:
    """Raise for a version that is there: the hub needs no conversion, and another has one."""
    for old in project.table.resources:
        if (old.group, old.kind, old.version) != (listed.group, listed.kind, version):
            continue
        if old.conversion:
            raise ConfigError(f"{old.kind} {version} has its conversion already: edit to_hub and from_hub in {path_of(old)}")
        raise ConfigError(
            f"{old.kind} {version}, in {path_of(old)}, is the version that its controller knows. "
            "A conversion leads to it from another one, such as --spoke v2"
        )
