"""`kubewright create api` for another version of a kind: its types, its conversion to the version that the controller knows, its sample."""

from __future__ import annotations

from typing import Any

import yaml

from ...errors import ConfigError
from ..changeset import ChangeSet, read_text, read_text_if_exists
from ..compat.baseline import parse_documents
from ..names import ResourceNames
from ..project import Project, ResourceEntry
from .api import ApiParameters, add_resource_entry, build_resource_entry, read_build_module
from .python_edit import add_import, add_statement, is_kind_argument_false, set_kind_argument
from .template import fill_template, render_folder


def find_hub(project: Project, new: ResourceNames) -> ResourceEntry | None:
    """The version of the same kind that is there already, and that a controller knows; None for a kind that is new."""
    same = _find_versions(project, new)
    hub = next((each for each in same if each.controller and not each.conversion), None)
    if same and hub is None:
        raise ConfigError(
            f"{new.kind} is there as {same[0].path}, and no controller of ours knows it; who serves it adds versions"
        )
    return hub


def _find_versions(project: Project, new: ResourceNames) -> list[ResourceEntry]:
    """The versions of the same kind that are there already."""
    return [
        each
        for each in project.config.resources
        if (each.group, each.kind) == (new.group, new.kind)
    ]


def scaffold_version(project: Project, wish: ApiParameters, hub: ResourceEntry) -> ChangeSet:
    """The files of another version, and the edits of main.py, pyproject.toml and, for another stored version, the old one."""
    new = wish.resource
    _check_shared_names(wish, hub)
    if wish.spec or wish.status:
        raise ConfigError(
            f"another version of {new.kind} begins with the fields of {hub.version}: leave --spec and --status out, and edit its file"
        )
    module = version_module(new)
    files = render_folder("version", build_template_values(project, wish, hub)) | _build_sample(
        project, wish, hub
    )
    entry = build_resource_entry(project, wish, module)
    entry = ResourceEntry(
        entry.group,
        entry.version,
        entry.kind,
        entry.plural,
        f"{project.package}.kinds.{module}:{_version_class(new)}",
        conversion=True,
    )
    path, text = read_build_module(project)
    text = add_import(text, f".kinds.{module}", f"{_version_class(new)}Conversion", path)
    text = add_statement(
        text,
        project.config.build.partition(":")[2],
        f"{{0}}.add({_version_class(new)}Conversion())",
        path,
    )
    edits = {"pyproject.toml": add_resource_entry(project, entry), path: text} | (
        _unset_storage(project, new) if wish.storage else {}
    )
    return ChangeSet(project.root, files | edits, frozenset(edits))


def _check_shared_names(wish: ApiParameters, hub: ResourceEntry) -> None:
    """Raise where a version is to be called otherwise than the kind."""
    if wish.resource.plural != hub.plural:
        raise ConfigError(f'all versions of {wish.resource.kind} share the plural "{hub.plural}"')
    if wish.resource.short_names:
        raise ConfigError(
            f"all versions of {wish.resource.kind} share their short names: add one in {hub.path.partition(':')[0]}"
        )


def version_module(new: ResourceNames) -> str:
    """The module of another version."""
    return f"{new.module}_{new.version}"


def _version_class(new: ResourceNames) -> str:
    """The class of another version."""
    return f"{new.kind}{new.version.capitalize()}"


def build_template_values(
    project: Project, wish: ApiParameters, hub: ResourceEntry
) -> dict[str, str]:
    """What the places in the templates are filled with."""
    new = wish.resource
    path, text, name = _read_source(project, hub)
    namespaced = not is_kind_argument_false(text, name, "namespaced", path)
    return {
        "package": project.package,
        "kind": new.kind,
        "class": _version_class(new),
        "module": new.module,
        "version": new.version,
        "hub_version": hub.version,
        "sample": new.sample_file,
        "stored": ", storage=True" if wish.storage else "",
        "namespace_flag": '"-n", namespace, ' if namespaced else "",
        "key_namespace": "namespace" if namespaced else '""',
    }


def _build_sample(project: Project, wish: ApiParameters, hub: ResourceEntry) -> dict[str, str]:
    """The hub's sample in the new version; where there is none, one without fields."""
    new = wish.resource
    head = fill_template(
        "apiVersion: <<api>>\nkind: <<kind>>\nmetadata:\n  name: <<name>>\n",
        {"api": new.api_version, "kind": new.kind, "name": f"{new.module}-{new.version}-sample"},
    )
    spec = _read_sample_spec(
        project, ResourceNames(hub.group, hub.version, hub.kind, hub.plural).sample_file
    )
    return {
        f"config/samples/{new.sample_file}": head + yaml.safe_dump({"spec": spec}, sort_keys=False)
    }


def _read_sample_spec(project: Project, name: str) -> Any:
    """The spec in a sample, empty where there is none."""
    path = f"config/samples/{name}"
    documents = parse_documents(read_text_if_exists(project.root / path) or "", path)
    first = next((each for each in documents if isinstance(each, dict)), {})
    return first.get("spec") or {}


def _read_source(project: Project, listed: ResourceEntry) -> tuple[str, str, str]:
    """Path, text and class of a version that is there."""
    path = source_path(listed)
    return path, read_text(project.root / path), listed.path.partition(":")[2]


def source_path(listed: ResourceEntry) -> str:
    """The file of a version that is there."""
    return f"src/{listed.path.partition(':')[0].replace('.', '/')}.py"


def _unset_storage(project: Project, new: ResourceNames) -> dict[str, str]:
    """The file of the version that is stored until now, with `storage=False`."""
    sources = [_read_source(project, each) for each in _find_versions(project, new)]
    return {
        path: set_kind_argument(text, name, "storage", "False", path)
        for path, text, name in sources
        if not is_kind_argument_false(text, name, "storage", path)
    }
