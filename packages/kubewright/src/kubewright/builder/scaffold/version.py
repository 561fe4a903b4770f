"""Scaffolds another version of a kind: its types, its conversion, a test and a sample.

In kubebuilder's terms the version that the controller uses is the hub, and each other version is a
spoke that is converted to the hub and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...errors import ConfigError
from ...yaml_text import dump_yaml, parse_documents
from ..changeset import ChangeSet
from ..names import ResourceNames, check_version
from ..project import Project, ResourceEntry
from .api import ApiParameters, add_resource_entry, add_to_manager, format_description
from .python_edit import is_kind_argument_false, read_docstring, set_kind_argument
from .template import render_folder


def find_hub(project: Project, group: str, kind: str) -> ResourceEntry | None:
    """The existing version that a controller uses; None for a new kind."""
    versions = _find_versions(project, group, kind)
    if versions and versions[0].external:
        raise ConfigError(f"{kind} is declared by another project, which also adds its versions")
    hub = next((entry for entry in versions if entry.controller and not entry.conversion), None)
    if versions and hub is None:
        raise ConfigError(
            f"{kind} exists as {versions[0].path}, but no controller of this project serves it: "
            "add versions in the project that serves it"
        )
    return hub


def _find_versions(project: Project, group: str, kind: str) -> list[ResourceEntry]:
    return [
        entry for entry in project.config.resources if (entry.group, entry.kind) == (group, kind)
    ]


def parse_spokes(
    project: Project, entry: ResourceEntry, version: str | None, spokes: Sequence[str]
) -> tuple[str, ...]:
    """The versions to add: those of --spoke, or else a --version that is not the hub's."""
    hub = find_hub(project, entry.group, entry.kind) or entry
    names = (name.strip() for text in spokes for name in text.split(","))
    versions = tuple(dict.fromkeys(check_version(name) for name in names))
    if version is None or check_version(version) == hub.version:
        return versions
    if versions:
        check_hub_version(hub, version)
    return (version,)


def check_hub_version(hub: ResourceEntry, version: str | None) -> None:
    if version not in (None, hub.version):
        raise ConfigError(
            f"the controller of {hub.kind} uses {hub.version}, and every other version is "
            f"converted to it, for webhooks too: omit --version {version}"
        )


def scaffold_conversions(
    project: Project, entry: ResourceEntry, spokes: Sequence[str], change: ChangeSet
) -> ChangeSet:
    """The change, followed by the files and edits of each spoke."""
    for spoke in spokes:
        _check_spoke_is_new(project, entry, spoke)
    for spoke in spokes:
        # Each version edits main.py and pyproject.toml as the one before it left them.
        project = Project.read(project.root, change.files)
        hub = find_hub(project, entry.group, entry.kind) or entry
        resource = ResourceNames(entry.group, spoke, entry.kind, entry.plural)
        version = scaffold_version(project, ApiParameters(resource), hub)
        change = replace(
            change,
            files={**change.files, **version.files},
            edited_paths=change.edited_paths | version.edited_paths,
        )
    return change


def _check_spoke_is_new(project: Project, entry: ResourceEntry, version: str) -> None:
    for existing in _find_versions(project, entry.group, entry.kind):
        if existing.version != version:
            continue
        if existing.conversion:
            raise ConfigError(
                f"{existing.kind} {version} already has a conversion: "
                f"edit to_hub and from_hub in {existing.source_path}"
            )
        raise ConfigError(
            f"{existing.kind} {version}, in {existing.source_path}, is the version of the "
            "controller. Name another version to convert from, such as --spoke v2"
        )


def scaffold_version(project: Project, parameters: ApiParameters, hub: ResourceEntry) -> ChangeSet:
    """The files of another version, and the edits of main.py and pyproject.toml.

    If the new version becomes the stored one, the file of the old stored version is edited, too.
    """
    _check_parameters(parameters, hub)
    resource = parameters.resource
    module, class_name = version_module(resource), f"{resource.kind}{resource.version.capitalize()}"
    hub_text = project.read_text(hub.source_path)
    namespaced = not is_kind_argument_false(hub_text, hub.class_name, "namespaced", hub.source_path)
    files = render_folder(
        "version",
        {
            "package": project.package,
            "kind": resource.kind,
            "class": class_name,
            "module": resource.module,
            "version": resource.version,
            "hub_version": hub.version,
            "sample": resource.sample_file,
            "description": format_description(
                parameters.description or read_docstring(hub_text, hub.class_name, hub.source_path)
            ),
            "stored": ", storage=True" if parameters.storage else "",
            "namespace_flag": '"-n", namespace, ' if namespaced else "",
            "key_namespace": "namespace" if namespaced else '""',
        },
    )
    files[f"config/samples/{resource.sample_file}"] = _render_sample(project, resource, hub)
    entry = ResourceEntry(
        resource.group,
        resource.version,
        resource.kind,
        resource.plural,
        f"{project.package}.kinds.{module}:{class_name}",
        conversion=True,
    )
    edited_files = add_to_manager(project, module, f"{class_name}Conversion")
    edited_files["pyproject.toml"] = add_resource_entry(project, entry)
    if parameters.storage:
        edited_files |= _unset_storage(project, resource)
    return ChangeSet(project.root, files | edited_files, frozenset(edited_files))


def _check_parameters(parameters: ApiParameters, hub: ResourceEntry) -> None:
    kind = hub.kind
    if parameters.resource.plural != hub.plural:
        raise ConfigError(f'all versions of {kind} share the plural "{hub.plural}"')
    if parameters.resource.short_names:
        raise ConfigError(
            f"all versions of {kind} share their short names: add the name in {hub.source_path}"
        )
    if parameters.owned_kinds:
        raise ConfigError(
            f"all versions of {kind} share the controller in {hub.source_path}: omit --owns"
        )
    if parameters.fields.all:
        raise ConfigError(
            f"another version of {kind} starts with the fields of {hub.version}: "
            "omit --spec, --status and --type, and edit its file"
        )


def version_module(resource: ResourceNames) -> str:
    return f"{resource.module}_{resource.version}"


def _render_sample(project: Project, resource: ResourceNames, hub: ResourceEntry) -> str:
    """The sample of the hub in the new version."""
    hub_names = ResourceNames(hub.group, hub.version, hub.kind, hub.plural)
    path = f"config/samples/{hub_names.sample_file}"
    documents = parse_documents(project.read_text_if_exists(path) or "", path)
    hub_sample = next((document for document in documents if isinstance(document, dict)), {})
    sample = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": f"{resource.module}-{resource.version}-sample"},
        "spec": hub_sample.get("spec") or {},
    }
    return dump_yaml(sample)


def _unset_storage(project: Project, resource: ResourceNames) -> dict[str, str]:
    """The file of the version that is stored until now, with `storage=False`."""
    edited_files: dict[str, str] = {}
    for entry in _find_versions(project, resource.group, resource.kind):
        path, name = entry.source_path, entry.class_name
        text = project.read_text(path)
        if not is_kind_argument_false(text, name, "storage", path):
            edited_files[path] = set_kind_argument(text, name, "storage", "False", path)
    return edited_files
