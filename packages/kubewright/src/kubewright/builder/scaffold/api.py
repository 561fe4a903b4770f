"""Scaffolds `create api` for a new kind: its types and controller, a test and a sample."""

from __future__ import annotations

from dataclasses import dataclass, replace

import tomlkit

from ...errors import ConfigError
from ...plural import pluralize
from ...yaml_text import dump_yaml
from ..changeset import ChangeSet
from ..names import ResourceNames
from ..project import Project, ResourceEntry
from .children import render_children
from .dependencies import add_api_dependency
from .external_kinds import ExternalKind
from .fields import EXAMPLE, Fields
from .format import LINE_LENGTH
from .imports import Imports, format_imports, merge_imports
from .python_edit import add_import, add_statement
from .template import render_folder, render_part

# `kubectl get` adds these columns: more than three others would wrap in a terminal of 80 columns.
_STANDARD_COLUMNS = ("Name", "Ready", "Reason", "Age")
_MAX_COLUMNS = 3


@dataclass(frozen=True)
class ApiParameters:
    resource: ResourceNames
    fields: Fields = Fields()
    description: str = ""
    controller: bool = True
    storage: bool = False
    owned_kinds: tuple[ExternalKind, ...] = ()


def scaffold_api(project: Project, parameters: ApiParameters) -> ChangeSet:
    """The files of a new kind, and the edits of main.py and pyproject.toml."""
    resource = parameters.resource
    values = _build_template_values(project, parameters)
    files = render_folder("api", values)
    entry = ResourceEntry(
        resource.group,
        resource.version,
        resource.kind,
        resource.plural,
        f"{project.package}.kinds.{resource.module}:{resource.kind}",
        parameters.controller,
    )
    edited_files: dict[str, str] = {}
    if parameters.owned_kinds:
        files |= render_folder("owner", values)
    if any(kind.is_builtin for kind in parameters.owned_kinds):
        edited_files = add_api_dependency(project)
        project = replace(project, unwritten_files=edited_files)
    edited_files["pyproject.toml"] = add_resource_entry(project, entry)
    if parameters.controller:
        edited_files |= add_to_manager(project, resource.module, f"{resource.kind}Controller")
    else:
        files = {path: text for path, text in files.items() if not path.startswith("tests/")}
    return ChangeSet(project.root, files | edited_files, frozenset(edited_files))


def check_resource_is_new(
    project: Project, group: str, version: str, kind: str, plural: str
) -> None:
    for entry in project.config.resources:
        if entry.kind.lower() == kind.lower() and entry.group != group:
            raise ConfigError(
                f"a kind {entry.kind} already exists in group {entry.group or 'core'}; "
                "the names of kinds must be unique in a project"
            )
        if (entry.kind, entry.version) == (kind, version):
            raise ConfigError(
                f"{kind} {group}/{version} already exists: {entry.path}. "
                "To add another version: --version v2"
            )
        if (entry.plural, entry.group) == (plural, group) and entry.kind != kind:
            raise ConfigError(
                f'{entry.kind} already has the plural "{entry.plural}"; '
                "choose another with --plural"
            )


def _build_template_values(project: Project, parameters: ApiParameters) -> dict[str, str]:
    resource, fields, name = parameters.resource, parameters.fields, parameters.resource.module
    # Without fields on the command line, the kind gets examples that a user can rename.
    is_example = not fields.all
    if is_example:
        fields = EXAMPLE
    spec_lines = [field.format_spec_line() for field in fields.spec]
    status_lines = [field.format_status_line() for field in fields.status]
    if is_example:
        spec_lines.insert(0, "    # An example: rename it, or remove it.")
        status_lines.insert(0, "    # An example: a copy of spec.foo.")
    columns = _format_columns(fields)
    values = {
        "package": project.package,
        "kind": resource.kind,
        "module": name,
        "object_name": name,
        "api_version": resource.api_version,
        "sample": resource.sample_file,
        "content": "its types and its controller" if parameters.controller else "its types",
        "object_types": "".join(type_.format_class() for type_ in fields.types),
        "spec_fields": _format_fields(spec_lines),
        "status_fields": _format_fields(status_lines),
        "kind_arguments": _format_kind_arguments(resource, columns),
        "description": format_description(parameters.description),
        "status_arguments": "echo=spec.foo" if is_example else "",
        "set_status": f"        {name}.status.echo = {name}.spec.foo\n" if is_example else "",
        "sample_spec": dump_yaml({"spec": fields.build_spec_example()}),
        "namespace_flag": '"-n", namespace, ' if resource.namespaced else "",
        "key_namespace": "namespace" if resource.namespaced else '""',
        "controller": "",
    }
    imports = fields.imports
    imports["kubewright"] |= {"Resource", "Spec", "Status", "kind"}
    if columns:
        imports["kubewright"].add("Column")
    if parameters.controller:
        imports["kubewright"] |= {"Controller", "Done"}
        template = "status.py"
        if parameters.owned_kinds:
            child_imports, values = render_children(project, parameters.owned_kinds, fields, values)
            _check_names(parameters, child_imports)
            imports, template = merge_imports(imports, child_imports), "children.py"
        values["controller"] = render_part(f"controller/{template}", values) or ""
    return {**values, "imports": format_imports(imports)}


def _check_names(parameters: ApiParameters, imports: Imports) -> None:
    """Raise if a class of the kind has the name of one that the children need."""
    imported = {name for names in imports.values() for name in names}
    own = {parameters.resource.kind, *(type_.name for type_ in parameters.fields.types)}
    if taken := sorted(own & imported):
        raise ConfigError(
            f'"{taken[0]}" is also the name of a type that the children need; choose another, '
            f"such as My{taken[0]}"
        )


def format_description(text: str) -> str:
    """The body of the class of a kind: its docstring, which is its description in the CRD."""
    if text:
        return f'"""{text}"""'
    return "# A docstring here is the description of the kind in `kubectl explain`.\n    pass"


def _format_fields(lines: list[str]) -> str:
    return "".join(["\n", *(f"\n{line}" for line in lines)]) if lines else ""


def _format_columns(fields: Fields) -> list[str]:
    """Printer columns for the first fields with one value."""
    paths = {
        f"{field.name[0].upper()}{field.name[1:]}": f".{part}.{field.name}"
        for part, part_fields in (("spec", fields.spec), ("status", fields.status))
        for field in part_fields
        if field.type.can_be_column
    }
    names = [name for name in paths if name not in _STANDARD_COLUMNS]
    return [f'Column("{name}", "{paths[name]}")' for name in names[:_MAX_COLUMNS]]


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
    if entry.external:
        table.add("external", True)
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
