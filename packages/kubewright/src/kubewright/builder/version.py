"""`kubewright create api` for another version of a kind: its types, its conversion to the version that the controller knows, its sample."""

from __future__ import annotations

import yaml

from ..errors import ConfigError
from .api import Wish, list_of_controllers, listed, with_resource
from .change import Change
from .edit import with_argument, with_import, with_statement
from .names import Resource
from .project import Listed, Project
from .template import filled, tree


def hub_of(project: Project, new: Resource) -> Listed | None:
    """The version of the same kind that is there already, and that a controller knows; None for a kind that is new."""
    same = [each for each in project.table.resources if (each.group, each.kind) == (new.group, new.kind)]
    return next((each for each in same if each.controller and not each.conversion), None) if same else None


def new_version(project: Project, wish: Wish, hub: Listed) -> Change:
    """The files of another version, and the edits of main.py, pyproject.toml and, for another stored version, the old one."""
    new = wish.resource
    if wish.spec or wish.status:
        raise ConfigError(
            f"another version of {new.kind} begins with the fields of {hub.version}: leave --spec and --status out, and edit its file"
        )
    if new.plural != hub.plural:
        raise ConfigError(f'all versions of {new.kind} share the plural "{hub.plural}"')
    module = f"{new.module}_{new.version}"
    files = tree("version", values_of(project, wish, hub)) | sample(project, wish, hub)
    entry = listed(project, wish, module)
    entry = Listed(
        entry.group, entry.version, entry.kind, entry.plural, f"{project.package}.kinds.{module}:{class_of(new)}", conversion=True
    )
    path, text = list_of_controllers(project)
    text = with_import(text, f".kinds.{module}", f"{class_of(new)}Conversion", path)
    text = with_statement(text, project.table.build.partition(":")[2], f"{{0}}.add({class_of(new)}Conversion())", path)
    edits = {"pyproject.toml": with_resource(project, entry), path: text} | (not_stored(project, hub) if wish.storage else {})
    return Change(project.root, files | edits, frozenset(edits))


def class_of(new: Resource) -> str:
    """The class of another version."""
    return f"{new.kind}{new.version.capitalize()}"


def values_of(project: Project, wish: Wish, hub: Listed) -> dict[str, str]:
    """What the places in the templates are filled with."""
    new = wish.resource
    scope = [] if new.namespaced else ["namespaced=False"]
    arguments = [
        f'"{new.api_version}"',
        f'name="{new.kind}"',
        f'plural="{new.plural}"',
        *scope,
        *([] if wish.storage else ["storage=False"]),
    ]
    return {
        "package": project.package,
        "kind": new.kind,
        "class": class_of(new),
        "module": new.module,
        "version": new.version,
        "hub_version": hub.version,
        "sample": new.sample,
        "declaration": ", ".join(arguments),
        "namespace_flag": '"-n", namespace, ' if new.namespaced else "",
        "key_namespace": "namespace" if new.namespaced else '""',
    }


def sample(project: Project, wish: Wish, hub: Listed) -> dict[str, str]:
    """The hub's sample in the new version; where there is none, one without fields."""
    new = wish.resource
    old = project.root / "config/samples" / f"{hub.group.split('.')[0]}_{hub.version}_{hub.kind.lower()}.yaml"
    found = yaml.safe_load(old.read_text()) if old.is_file() else {"spec": {}}
    head = filled(
        "apiVersion: <<api>>\nkind: <<kind>>\nmetadata:\n  name: <<name>>\n",
        {"api": new.api_version, "kind": new.kind, "name": f"{new.module}-{new.version}-sample"},
    )
    return {f"config/samples/{new.sample}": head + yaml.safe_dump({"spec": found.get("spec") or {}}, sort_keys=False)}


def not_stored(project: Project, hub: Listed) -> dict[str, str]:
    """The old version's file with `storage=False`."""
    module, _, name = hub.path.partition(":")
    path = f"src/{module.replace('.', '/')}.py"
    return {path: with_argument((project.root / path).read_text(), name, "kind", "storage=False", path)}
