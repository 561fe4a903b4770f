"""Removes what `create` wrote: the files of a kind, and its lines in main.py and pyproject.toml.

config/ follows from these, so it is generated again afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import tomlkit

from ...errors import ConfigError
from ...yaml_text import parse_documents
from ..changeset import ChangeSet, read_text
from ..names import ResourceNames
from ..project import Project, ResourceEntry
from .dependencies import remove_unused_api_dependency
from .python_edit import (
    is_kind_argument_false,
    remove_added,
    remove_import,
    remove_kind_argument,
)

_SAMPLES_FOLDER = "config/samples"


def find_versions(project: Project, group: str, kind: str) -> list[ResourceEntry]:
    """The versions of a kind; the group may be empty, because kinds have unique names."""
    entries = [entry for entry in project.config.resources if entry.kind == kind]
    if not entries or (group and entries[0].group != group):
        kinds = ", ".join(sorted({entry.kind for entry in project.config.resources})) or "none"
        raise ConfigError(f'this project has no kind "{kind}"; its kinds: {kinds}')
    return entries


def remove_kind(project: Project, versions: Sequence[ResourceEntry]) -> ChangeSet:
    """Remove all versions of a kind, and its webhook."""
    change = ChangeSet(project.root, {})
    for entry in versions:
        if entry.webhooks:
            change = _merge(change, remove_webhook(project, entry))
        project = Project.read(project.root, change.files)
        change = _merge(change, _remove_entry(project, entry))
        project = Project.read(project.root, change.files)
    edited_files = remove_unused_api_dependency(project, change.removed)
    return _merge(change, ChangeSet(project.root, edited_files, frozenset(edited_files)))


def remove_version(project: Project, versions: Sequence[ResourceEntry], version: str) -> ChangeSet:
    """Remove one version of several; if objects are stored in it, the hub is stored again."""
    entry = next((item for item in versions if item.version == version), None)
    kind, names = versions[0].kind, ", ".join(item.version for item in versions)
    if entry is None:
        raise ConfigError(f"{kind} has no version {version}; its versions: {names}")
    if len(versions) == 1:
        return remove_kind(project, versions)
    if not entry.conversion:
        others = [item.version for item in versions if item is not entry]
        raise ConfigError(
            f"the controller of {kind} uses {version}, and the other versions "
            f"({', '.join(others)}) are converted to it. Delete those first, or the whole kind "
            "without --version"
        )
    change = _remove_entry(project, entry)
    hub = next(item for item in versions if not item.conversion)
    path, text = entry.source_path, project.read_text(entry.source_path)
    if is_kind_argument_false(text, entry.class_name, "storage", path):
        return change
    hub_text = project.read_text(hub.source_path)
    hub_text = remove_kind_argument(hub_text, hub.class_name, "storage", hub.source_path)
    return replace(
        change,
        files={**change.files, hub.source_path: hub_text},
        edited_paths=change.edited_paths | {hub.source_path},
    )


def remove_webhook(project: Project, entry: ResourceEntry) -> ChangeSet:
    """Remove the webhook of a kind: its class, its test and its lines."""
    if not entry.webhooks:
        raise ConfigError(f"{entry.kind} has no webhook")
    module = f"{entry.kind.lower()}_webhook"
    edited_files = _remove_from_manager(project, module, f"{entry.kind}Webhook")
    document = tomlkit.parse(project.read_text("pyproject.toml"))
    for table in document["tool"]["kubewright"]["resources"]:
        if (table["kind"], table["version"]) == (entry.kind, entry.version):
            del table["webhooks"]
    edited_files["pyproject.toml"] = tomlkit.dumps(document)
    files = (f"src/{project.package}/kinds/{module}.py", f"tests/kinds/test_{module}.py")
    return _build_change(project, edited_files, files)


def find_other_samples(project: Project, versions: Sequence[ResourceEntry]) -> list[str]:
    """Samples of these versions that have another file name than the one that `create` gave."""
    api_versions = {(f"{entry.group}/{entry.version}", entry.kind) for entry in versions}
    own = {_sample_path(entry) for entry in versions}
    return [
        f"{_SAMPLES_FOLDER}/{path.name}"
        for path in sorted((project.root / _SAMPLES_FOLDER).glob("*.yaml"))
        if f"{_SAMPLES_FOLDER}/{path.name}" not in own
        for document in parse_documents(read_text(path), path.name)
        if isinstance(document, dict)
        and (document.get("apiVersion"), document.get("kind")) in api_versions
    ]


def _remove_entry(project: Project, entry: ResourceEntry) -> ChangeSet:
    """Remove one version: its module, its test, its sample, its entry and its lines."""
    module = entry.path.partition(":")[0].rpartition(".")[2]
    # The class of an external kind is elsewhere; only its controller is here.
    module = entry.kind.lower() if entry.external else module
    source = f"src/{project.package}/kinds/{module}.py" if entry.external else entry.source_path
    edited_files = {"pyproject.toml": _remove_from_pyproject(project, entry)}
    if entry.controller:
        suffix = "Conversion" if entry.conversion else "Controller"
        edited_files |= _remove_from_manager(project, module, f"{entry.class_name}{suffix}")
    files = (source, f"tests/kinds/test_{module}.py", _sample_path(entry))
    return _build_change(project, edited_files, files)


def _sample_path(entry: ResourceEntry) -> str:
    names = ResourceNames(entry.group, entry.version, entry.kind, entry.plural)
    return f"{_SAMPLES_FOLDER}/{names.sample_file}"


def _remove_from_manager(project: Project, module: str, class_name: str) -> dict[str, str]:
    path = f"src/{project.config.build.partition(':')[0].replace('.', '/')}.py"
    text = project.read_text(path)
    edited = remove_added(text, project.build_function, class_name, path)
    edited = remove_import(edited, f".kinds.{module}", class_name, path)
    return {path: edited} if edited != text else {}


def _remove_from_pyproject(project: Project, entry: ResourceEntry) -> str:
    document = tomlkit.parse(project.read_text("pyproject.toml"))
    config = document["tool"]["kubewright"]
    entries = config["resources"]
    for index, table in enumerate(entries):
        if (table["kind"], table["version"]) == (entry.kind, entry.version):
            del entries[index]
            break
    remaining = {table["kind"] for table in entries}
    if not remaining:
        del config["resources"]
    if entry.kind in config.get("optional_editors", ()) and entry.kind not in remaining:
        config["optional_editors"].remove(entry.kind)
    return tomlkit.dumps(document)


def _build_change(
    project: Project, edited_files: dict[str, str], files: Sequence[str]
) -> ChangeSet:
    existing = tuple(path for path in files if (project.root / path).exists())
    return ChangeSet(project.root, edited_files, frozenset(edited_files), existing)


def _merge(first: ChangeSet, second: ChangeSet) -> ChangeSet:
    return replace(
        second,
        files={**first.files, **second.files},
        edited_paths=first.edited_paths | second.edited_paths,
        removed=(*first.removed, *second.removed),
    )
