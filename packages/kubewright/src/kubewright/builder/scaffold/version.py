"""`kubewright create api` for another version of a kind: its types, its conversion to the version that the controller knows, its sample."""

from __future__ import annotations

from typing import Any

import yaml

from ...errors import ConfigError
from ..changeset import Change, text_in, text_of
from ..compat.baseline import documents_in
from ..names import Resource
from ..project import Listed, Project
from .api import Wish, list_of_controllers, listed, with_resource
from .python_edit import says_not, with_argument, with_import, with_statement
from .template import filled, tree


def hub_of(project: Project, new: Resource) -> Listed | None:
    """The version of the same kind that is there already, and that a controller knows; None for a kind that is new."""
    same = versions_of(project, new)
    hub = next((each for each in same if each.controller and not each.conversion), None)
    if same and hub is None:
        raise ConfigError(f"{new.kind} is there as {same[0].path}, and no controller of ours knows it; who serves it adds versions")
    return hub


def versions_of(project: Project, new: Resource) -> list[Listed]:
    """The versions of the same kind that are there already."""
    return [each for each in project.table.resources if (each.group, each.kind) == (new.group, new.kind)]


def new_version(project: Project, wish: Wish, hub: Listed) -> Change:
    """The files of another version, and the edits of main.py, pyproject.toml and, for another stored version, the old one."""
    new = wish.resource
    refuse_other_names(wish, hub)
    if wish.spec or wish.status:
        raise ConfigError(
            f"another version of {new.kind} begins with the fields of {hub.version}: leave --spec and --status out, and edit its file"
        )
    module = module_of(new)
    files = tree("version", values_of(project, wish, hub)) | sample(project, wish, hub)
    entry = listed(project, wish, module)
    entry = Listed(
        entry.group, entry.version, entry.kind, entry.plural, f"{project.package}.kinds.{module}:{class_of(new)}", conversion=True
    )
    path, text = list_of_controllers(project)
    text = with_import(text, f".kinds.{module}", f"{class_of(new)}Conversion", path)
    text = with_statement(text, project.table.build.partition(":")[2], f"{{0}}.add({class_of(new)}Conversion())", path)
    edits = {"pyproject.toml": with_resource(project, entry), path: text} | (not_stored(project, new) if wish.storage else {})
    return Change(project.root, files | edits, frozenset(edits))


def refuse_other_names(wish: Wish, hub: Listed) -> None:
    """Raise where a version is to be called otherwise than the kind."""
    if wish.resource.plural != hub.plural:
        raise ConfigError(f'all versions of {wish.resource.kind} share the plural "{hub.plural}"')
    if wish.resource.short:
        raise ConfigError(f"all versions of {wish.resource.kind} share their short names: add one in {hub.path.partition(':')[0]}")


def module_of(new: Resource) -> str:
    """The module of another version."""
    return f"{new.module}_{new.version}"


def class_of(new: Resource) -> str:
    """The class of another version."""
    return f"{new.kind}{new.version.capitalize()}"


def values_of(project: Project, wish: Wish, hub: Listed) -> dict[str, str]:
    """What the places in the templates are filled with."""
    new = wish.resource
    path, text, name = source_of(project, hub)
    namespaced = not says_not(text, name, "namespaced", path)
    return {
        "package": project.package,
        "kind": new.kind,
        "class": class_of(new),
        "module": new.module,
        "version": new.version,
        "hub_version": hub.version,
        "sample": new.sample,
        "stored": ", storage=True" if wish.storage else "",
        "namespace_flag": '"-n", namespace, ' if namespaced else "",
        "key_namespace": "namespace" if namespaced else '""',
    }


def sample(project: Project, wish: Wish, hub: Listed) -> dict[str, str]:
    """The hub's sample in the new version; where there is none, one without fields."""
    new = wish.resource
    head = filled(
        "apiVersion: <<api>>\nkind: <<kind>>\nmetadata:\n  name: <<name>>\n",
        {"api": new.api_version, "kind": new.kind, "name": f"{new.module}-{new.version}-sample"},
    )
    spec = spec_in(project, Resource(hub.group, hub.version, hub.kind, hub.plural).sample)
    return {f"config/samples/{new.sample}": head + yaml.safe_dump({"spec": spec}, sort_keys=False)}


def spec_in(project: Project, name: str) -> Any:
    """The spec in a sample, empty where there is none."""
    path = f"config/samples/{name}"
    documents = documents_in(text_of(project.root / path) or "", path)
    first = next((each for each in documents if isinstance(each, dict)), {})
    return first.get("spec") or {}


def source_of(project: Project, listed: Listed) -> tuple[str, str, str]:
    """Path, text and class of a version that is there."""
    path = path_of(listed)
    return path, text_in(project.root / path), listed.path.partition(":")[2]


def path_of(listed: Listed) -> str:
    """The file of a version that is there."""
    return f"src/{listed.path.partition(':')[0].replace('.', '/')}.py"


def not_stored(project: Project, new: Resource) -> dict[str, str]:
    """The file of the version that is stored until now, with `storage=False`."""
    sources = [source_of(project, each) for each in versions_of(project, new)]
    return {
        path: with_argument(text, name, "storage", "False", path)
        for path, text, name in sources
        if not says_not(text, name, "storage", path)
    }
