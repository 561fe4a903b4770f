"""Scaffolds `create api` for a new kind: its types and controller, a test and a sample."""

from __future__ import annotations

from dataclasses import dataclass

import tomlkit

from ...errors import ConfigError
from ...plural import pluralize
from ...yaml_text import dump_yaml
from ..changeset import ChangeSet
from ..names import ResourceNames
from ..project import Project, ResourceEntry
from .fields import SPEC_EXAMPLE, STATUS_EXAMPLE, Field
from .format import LINE_LENGTH
from .python_edit import add_import, add_statement
from .template import render_folder

# `kubectl get` adds Name, Ready, Reason and Age: more would wrap in a terminal of 80 columns.
_MAX_COLUMNS = 3


@dataclass(frozen=True)
class ApiParameters:
    resource: ResourceNames
    spec: tuple[Field, ...] = ()
    status: tuple[Field, ...] = ()
    controller: bool = True
    storage: bool = False


def scaffold_api(project: Project, parameters: ApiParameters) -> ChangeSet:
    """The files of a new kind, and the edits of main.py and pyproject.toml."""
    resource = parameters.resource
    files = render_folder("api", _build_template_values(project, parameters))
    entry = ResourceEntry(
        resource.group,
        resource.version,
        resource.kind,
        resource.plural,
        f"{project.package}.kinds.{resource.module}:{resource.kind}",
        parameters.controller,
    )
    edited_files = {"pyproject.toml": add_resource_entry(project, entry)}
    if parameters.controller:
        edited_files |= add_to_manager(project, resource.module, f"{resource.kind}Controller")
    else:
        files = _without_controller(files, entry.source_path)
    return ChangeSet(project.root, files | edited_files, frozenset(edited_files))


def check_resource_is_new(project: Project, resource: ResourceNames) -> None:
    for entry in project.config.resources:
        if entry.kind.lower() == resource.kind.lower() and entry.group != resource.group:
            raise ConfigError(
                f"a kind {entry.kind} already exists in group {entry.group}; "
                "the names of kinds must be unique in a project"
            )
        if (entry.kind, entry.version) == (resource.kind, resource.version):
            raise ConfigError(
                f"{resource.kind} {resource.api_version} already exists: {entry.path}. "
                "To add another version: --version v2"
            )
        if (entry.plural, entry.group) == (resource.plural, resource.group) and (
            entry.kind != resource.kind
        ):
            raise ConfigError(
                f'{entry.kind} already has the plural "{entry.plural}"; '
                "choose another with --plural"
            )


def _build_template_values(project: Project, parameters: ApiParameters) -> dict[str, str]:
    resource = parameters.resource
    # Without fields on the command line, the kind gets examples that a user can rename.
    is_example = not parameters.spec and not parameters.status
    spec, status = parameters.spec, parameters.status
    if is_example:
        spec, status = SPEC_EXAMPLE, STATUS_EXAMPLE
    columns = _format_columns(spec, status)
    has_fields = bool(spec or status)
    imports = [
        *(["Column"] if columns else []),
        "Controller",
        *(["Doc"] if has_fields else []),
        *("Done", "Resource", "Spec", "Status", "kind"),
    ]
    sample_spec = {"spec": {field.name: field.example for field in spec}}
    return {
        "package": project.package,
        "kind": resource.kind,
        "module": resource.module,
        "object_name": resource.module,
        "api_version": resource.api_version,
        "sample": resource.sample_file,
        "typing": "from typing import Annotated\n\n" if has_fields else "",
        "imports": ", ".join(imports),
        "spec_fields": _format_fields([field.format_spec_line() for field in spec]),
        "status_fields": _format_fields([field.format_status_line() for field in status]),
        "kind_arguments": _format_kind_arguments(resource, columns),
        "status_arguments": "echo=spec.foo" if is_example else "",
        "example": ", ".join(f"{field.name}={_format_literal(field.example)}" for field in spec),
        "sample_spec": dump_yaml(sample_spec),
        "namespace_flag": '"-n", namespace, ' if resource.namespaced else "",
        "key_namespace": "namespace" if resource.namespaced else '""',
    }


def _format_fields(lines: list[str]) -> str:
    return "".join(["\n", *(f"\n{line}" for line in lines)]) if lines else ""


def _format_literal(value: object) -> str:
    """The value as ruff formats it: with double quotes, unlike repr()."""
    if isinstance(value, list):
        return f"[{', '.join(map(_format_literal, value))}]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _format_columns(spec: tuple[Field, ...], status: tuple[Field, ...]) -> list[str]:
    """Printer columns for the first fields; a column cannot show a list."""
    fields = [
        (part, field)
        for part, fields in (("spec", spec), ("status", status))
        for field in fields
        if field.type != "list[str]"
    ]
    return [
        f'Column("{field.name[0].upper()}{field.name[1:]}", ".{part}.{field.name}")'
        for part, field in fields[:_MAX_COLUMNS]
    ]


def _format_kind_arguments(resource: ResourceNames, columns: list[str]) -> str:
    arguments = [f'"{resource.api_version}"']
    if resource.plural != pluralize(resource.kind):
        arguments.append(f'plural="{resource.plural}"')
    if resource.short_names:
        names = ", ".join(f'"{name}"' for name in resource.short_names)
        comma = "," if len(resource.short_names) == 1 else ""
        arguments.append(f"short=({names}{comma})")
    if not resource.namespaced:
        arguments.append("namespaced=False")
    if columns:
        arguments.append(f"columns=[{', '.join(columns)}]")
    line = ", ".join(arguments)
    if len(f"@kind({line})") <= LINE_LENGTH:
        return line
    if columns and len(f"    {arguments[-1]},") > LINE_LENGTH:
        lines = "".join(f"        {column},\n" for column in columns)
        arguments[-1] = f"columns=[\n{lines}    ]"
    return "".join(["\n", *(f"    {argument},\n" for argument in arguments)])


def add_resource_entry(project: Project, entry: ResourceEntry) -> str:
    """pyproject.toml with one more kind; tomlkit keeps comments and layout."""
    document = tomlkit.parse(project.read_text("pyproject.toml"))
    table = tomlkit.table()
    for key in ("group", "version", "kind", "plural", "path"):
        table.add(key, getattr(entry, key))
    if not entry.controller:
        table.add("controller", False)
    if entry.conversion:
        table.add("conversion", True)
    table.add(tomlkit.nl())
    config = document["tool"]["kubewright"]
    if "resources" not in config:
        config.add("resources", tomlkit.aot())
    config["resources"].append(table)
    return tomlkit.dumps(document)


def add_to_manager(project: Project, module: str, class_name: str) -> dict[str, str]:
    """The file that has `build`, with a statement that adds the class to the manager."""
    path = f"src/{project.config.build.partition(':')[0].replace('.', '/')}.py"
    text = project.read_text_if_exists(path)
    if text is None:
        raise ConfigError(
            f'[tool.kubewright] build = "{project.config.build}" refers to {path}, '
            "which does not exist"
        )
    text = add_import(text, f".kinds.{module}", class_name, path)
    return {path: add_statement(text, project.build_function, f"{{0}}.add({class_name}())", path)}


def _without_controller(files: dict[str, str], path: str) -> dict[str, str]:
    """The same files for a kind that another operator serves: only its types and its sample."""
    # Cut out of the same template, so that the types of both cannot differ.
    types = files[path].partition("\n\ndef status_of")[0].rstrip("\n") + "\n"
    types = types.replace("Controller, ", "").replace("Done, ", "")
    samples = {name: text for name, text in files.items() if name.startswith("config/")}
    return {path: types} | samples
