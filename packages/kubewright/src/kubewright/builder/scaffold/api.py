"""`kubewright create api`: a kind in one file, with its test, its sample and its line in the list of controllers."""

from __future__ import annotations

from dataclasses import dataclass

import tomlkit
import yaml

from ...errors import ConfigError
from ...kind import pluralize
from ..changeset import ChangeSet, read_text, read_text_if_exists
from ..names import ResourceNames
from ..project import Project, ResourceEntry
from .fields import SPEC_EXAMPLE, STATUS_EXAMPLE, Field
from .format import LINE_LENGTH
from .python_edit import add_import, add_statement
from .template import render_folder

_MAX_COLUMNS = 3


@dataclass(frozen=True)
class ApiParameters:
    """What `create api` is told."""

    resource: ResourceNames
    spec: tuple[Field, ...] = ()
    status: tuple[Field, ...] = ()
    controller: bool = True
    storage: bool = False


def scaffold_api(project: Project, wish: ApiParameters) -> ChangeSet:
    """The files of a new kind, and the edits of main.py and pyproject.toml."""
    check_resource_is_new(project, wish.resource)
    files = render_folder("api", build_template_values(project, wish))
    edits = {
        "pyproject.toml": add_resource_entry(
            project, build_resource_entry(project, wish, wish.resource.module)
        )
    }
    if wish.controller:
        path, text = read_build_module(project)
        text = add_import(
            text, f".kinds.{wish.resource.module}", f"{wish.resource.kind}Controller", path
        )
        function = project.config.build.partition(":")[2]
        edits[path] = add_statement(
            text, function, f"{{0}}.add({wish.resource.kind}Controller())", path
        )
    else:
        files = _without_controller(files, project, wish.resource)
    return ChangeSet(project.root, files | edits, frozenset(edits))


def check_resource_is_new(project: Project, new: ResourceNames) -> None:
    """Raise for a kind that is there; another version of it is another command's work."""
    for old in project.config.resources:
        if old.kind.lower() == new.kind.lower() and old.group != new.group:
            raise ConfigError(
                f"there is a kind {old.kind} in group {old.group} already; a project has one kind of a name"
            )
        if (old.kind, old.version) == (new.kind, new.version):
            raise ConfigError(
                f"there is a {new.kind} {new.api_version} already: {old.path}. Another version of it: --version v2"
            )
        if old.plural == new.plural and old.group == new.group and old.kind != new.kind:
            raise ConfigError(
                f'{old.kind} has the plural "{old.plural}" already; give another with --plural'
            )


def build_template_values(project: Project, wish: ApiParameters) -> dict[str, str]:
    """What the places in the templates are filled with."""
    new = wish.resource
    plain = not wish.spec and not wish.status
    spec, status = (SPEC_EXAMPLE, STATUS_EXAMPLE) if plain else (wish.spec, wish.status)
    columns = _format_columns(spec, status)
    return {
        "package": project.package,
        "kind": new.kind,
        "module": new.module,
        "argument": new.module,
        "api_version": new.api_version,
        "sample": new.sample_file,
        "typing": "from typing import Annotated\n\n" if spec or status else "",
        "imports": _format_imports(fields=bool(spec or status), columns=bool(columns)),
        "spec_fields": _format_fields([field.render_spec_line() for field in spec]),
        "status_fields": _format_fields([field.render_status_line() for field in status]),
        "declaration": _format_kind_arguments(wish, columns),
        "answer": "echo=spec.foo" if plain else "",
        "example": ", ".join(f"{field.name}={_format_literal(field.example)}" for field in spec),
        "sample_spec": yaml.safe_dump(
            {"spec": {field.name: field.example for field in spec}}, sort_keys=False
        ),
        "namespace_flag": '"-n", namespace, ' if new.namespaced else "",
        "key_namespace": "namespace" if new.namespaced else '""',
    }


def _format_imports(*, fields: bool, columns: bool) -> str:
    """What the kind's module takes from kubewright."""
    names = (
        ["Column"] * columns
        + ["Controller"]
        + ["Doc"] * fields
        + ["Done", "Resource", "Spec", "Status", "kind"]
    )
    return ", ".join(names)


def _format_fields(lines: list[str]) -> str:
    """Fields below a docstring."""
    return "".join(["\n", *(f"\n{line}" for line in lines)]) if lines else ""


def _format_literal(value: object) -> str:
    """A value as our formatter writes it."""
    return (
        f'"{value}"'
        if isinstance(value, str)
        else "[" + ", ".join(map(_format_literal, value)) + "]"
        if isinstance(value, list)
        else repr(value)
    )


def _format_columns(spec: tuple[Field, ...], status: tuple[Field, ...]) -> list[str]:
    """Columns for the first fields that a column can show."""
    shown = [
        (part, field)
        for part, fields in (("spec", spec), ("status", status))
        for field in fields
        if field.type != "list[str]"
    ]
    return [
        f'Column("{field.name[0].upper()}{field.name[1:]}", ".{part}.{field.name}")'
        for part, field in shown[:_MAX_COLUMNS]
    ]


def _format_kind_arguments(wish: ApiParameters, columns: list[str]) -> str:
    """The arguments of @kind, in one line where they fit."""
    new = wish.resource
    arguments = [f'"{new.api_version}"']
    if new.plural != pluralize(new.kind):
        arguments.append(f'plural="{new.plural}"')
    if new.short_names:
        arguments.append(
            "short=("
            + ", ".join(f'"{each}"' for each in new.short_names)
            + ("," if len(new.short_names) == 1 else "")
            + ")"
        )
    if not new.namespaced:
        arguments.append("namespaced=False")
    if columns:
        arguments.append(f"columns=[{', '.join(columns)}]")
    line = ", ".join(arguments)
    if len(f"@kind({line})") <= LINE_LENGTH:
        return line
    return "".join(["\n", *(f"    {each},\n" for each in arguments)])


def build_resource_entry(project: Project, wish: ApiParameters, module: str) -> ResourceEntry:
    """The kind's entry in pyproject.toml."""
    new = wish.resource
    path = f"{project.package}.kinds.{module}:{new.kind}"
    return ResourceEntry(new.group, new.version, new.kind, new.plural, path, wish.controller)


def add_resource_entry(project: Project, new: ResourceEntry) -> str:
    """pyproject.toml with one more kind; all else in it stays as it is."""
    document = tomlkit.parse(read_text(project.root / "pyproject.toml"))
    entry = tomlkit.table()
    for key in ("group", "version", "kind", "plural", "path"):
        entry.add(key, getattr(new, key))
    if not new.controller:
        entry.add("controller", False)
    if new.conversion:
        entry.add("conversion", True)
    entry.add(tomlkit.nl())
    ours = document["tool"]["kubewright"]
    if "resources" in ours:
        ours["resources"].append(entry)
    else:
        several = tomlkit.aot()
        several.append(entry)
        ours.add("resources", several)
    return tomlkit.dumps(document)


def read_build_module(project: Project) -> tuple[str, str]:
    """The file that has `build`, and its text."""
    module = project.config.build.partition(":")[0]
    path = f"src/{module.replace('.', '/')}.py"
    text = read_text_if_exists(project.root / path)
    if text is None:
        raise ConfigError(
            f'[tool.kubewright] build = "{project.config.build}" leads to {path}, which is not there'
        )
    return path, text


def _without_controller(
    files: dict[str, str], project: Project, new: ResourceNames
) -> dict[str, str]:
    """The same files for a kind that another operator's controller serves: no function, no controller, no test of them."""
    path = f"src/{project.package}/kinds/{new.module}.py"
    types = files[path].partition("\n\ndef status_of")[0].rstrip("\n") + "\n"
    types = types.replace("Controller, ", "").replace("Done, ", "")
    return {path: types} | {
        each: text for each, text in files.items() if each.startswith("config/")
    }
