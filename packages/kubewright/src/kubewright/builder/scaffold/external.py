"""Scaffolds `create api --external`: a controller of an external kind."""

from __future__ import annotations

from dataclasses import replace

from ..changeset import ChangeSet
from ..project import Project, ResourceEntry
from .api import add_resource_entry, add_to_manager
from .dependencies import add_api_dependency
from .external_kinds import ExternalKind
from .imports import format_imports, merge_imports
from .template import render_folder


def scaffold_external(project: Project, kind: ExternalKind) -> ChangeSet:
    """The controller and its test, and the edits of main.py and pyproject.toml."""
    definition, module = kind.definition, kind.name.lower()
    values = {
        "package": project.package,
        "kind": kind.name,
        "module": module,
        "object_name": module,
        "api_version": definition.api_version,
    }
    own_names = {"kubewright": {"Controller", "Done"}}
    test_names = {"kubewright": {"Done", "ObjectMeta"}}
    kind_import = {kind.module_seen_from_kinds(project): {kind.name}}
    imports = {
        "src": format_imports(merge_imports(own_names, kind_import)),
        "tests": format_imports(merge_imports(test_names, {kind.module: {kind.name}})),
    }
    files = {
        path: text
        for part in imports
        for path, text in render_folder("external", {**values, "imports": imports[part]}).items()
        if path.startswith(part)
    }
    entry = ResourceEntry(
        definition.group,
        definition.version,
        kind.name,
        definition.plural,
        kind.path,
        external=True,
    )
    edited_files: dict[str, str] = {}
    if kind.is_builtin:
        edited_files = add_api_dependency(project)
        project = replace(project, unwritten_files=edited_files)
    edited_files["pyproject.toml"] = add_resource_entry(project, entry)
    edited_files |= add_to_manager(project, module, f"{kind.name}Controller")
    return ChangeSet(project.root, files | edited_files, frozenset(edited_files))
