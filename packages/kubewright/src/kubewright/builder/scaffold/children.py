"""Scaffolds `create api --owns`: functions that build the children, and a controller for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import ConfigError
from ..project import Project
from .external_kinds import ExternalKind, find_external_kind
from .fields import Fields
from .format import LINE_LENGTH
from .imports import Imports, format_imports, merge_imports, split_imports
from .required_fields import MissingFields, find_missing_fields
from .template import has_template, render_part

# Fields of a spec that a child uses if they exist, their types, and what it has otherwise.
_SPEC_FIELDS = {
    "image": (("str",), '"registry.k8s.io/pause:3.10"'),
    "port": (("int", "int32", "int64"), "80"),
    "replicas": (("int", "int32", "int64"), "1"),
    "schedule": (("str",), '"0 * * * *"'),
}
_API_PREFIX = "kubewright.api."


def parse_owned_kinds(
    project: Project, texts: Sequence[str], *, namespaced: bool
) -> tuple[ExternalKind, ...]:
    """The kinds of --owns, each with a name of its own."""
    references = [part.strip() for text in texts for part in text.split(",")]
    kinds = tuple(find_external_kind(project, reference) for reference in references)
    names = [kind.name for kind in kinds]
    if len(set(names)) < len(names):
        raise ConfigError("--owns names a kind twice")
    if not namespaced and any(kind.definition.namespaced for kind in kinds):
        raise ConfigError(
            "--owns does not work with --cluster-scoped: only your code can choose the namespace "
            "of the children. Create the kind without --owns, then declare `self.owns(...)` and "
            "call `self.apply(...)` with a namespace in each child"
        )
    return kinds


def render_children(
    project: Project, kinds: Sequence[ExternalKind], fields: Fields, values: Mapping[str, str]
) -> tuple[Imports, dict[str, str]]:
    """The imports of the module, and the values of the templates for a kind with children."""
    obj = values["object_name"]
    values = {**values, **_build_spec_values(fields, obj)}
    imports: dict[str, set[str]] = {"kubewright": {"Waiting"}}
    functions, missing = [], find_incomplete_children(kinds)
    for kind in kinds:
        function_imports, function = split_imports(_render_function(kind, values))
        imports = merge_imports(
            imports, function_imports, {kind.module_seen_from_kinds(project): {kind.name}}
        )
        functions.append(f"{function.rstrip()}\n\n\n")
    calls = [f"build_{kind.name.lower()}({obj})" for kind in kinds]
    return imports, {
        **values,
        "child_functions": "".join(functions),
        "owns": _format_owns(kinds),
        "build_calls": ", ".join(calls),
        "child_count": str(len(kinds)),
        "child_imports": format_imports(merge_imports(*({k.module: {k.name}} for k in kinds))),
        "get_calls": "\n".join(_format_get_call(kind) for kind in kinds),
        "pytest_import": "import pytest\n" if missing else "",
        "skip_test": _format_skip(missing),
    }


def find_incomplete_children(kinds: Sequence[ExternalKind]) -> list[MissingFields]:
    """The children that the API server rejects until the user has set some of their fields."""
    generic = (kind for kind in kinds if not has_template(_template_of(kind)))
    return [missing for kind in generic if (missing := find_missing_fields(kind)) is not None]


def _format_skip(missing: Sequence[MissingFields]) -> str:
    if not missing:
        return ""
    names = ", ".join(child.function for child in missing)
    line = f'@pytest.mark.skip("{names}: set the required fields, then remove this line")\n'
    if len(line) <= LINE_LENGTH:
        return line
    return f'@pytest.mark.skip(\n    "{names}: set the required fields, then remove this line"\n)\n'


def _template_of(kind: ExternalKind) -> str:
    return f"children/{kind.module.removeprefix(_API_PREFIX)}_{kind.name.lower()}.py"


def _render_function(kind: ExternalKind, values: Mapping[str, str]) -> str:
    part = render_part(_template_of(kind), values)
    if part is not None:
        return part
    missing = find_missing_fields(kind)
    values = {
        **values,
        "child": kind.name,
        "child_function": kind.name.lower(),
        "missing_fields": str(missing or ""),
    }
    is_incomplete = missing is not None and not missing.can_be_built
    return render_part(f"children/{'incomplete' if is_incomplete else 'generic'}.py", values) or ""


def _build_spec_values(fields: Fields, obj: str) -> dict[str, str]:
    types = {field.name: field.type.name for field in fields.spec if not field.nullable}
    return {
        name: f"{obj}.spec.{name}" if types.get(name) in allowed else default
        for name, (allowed, default) in _SPEC_FIELDS.items()
    }


def _format_owns(kinds: Sequence[ExternalKind]) -> str:
    lines = []
    for is_namespaced, option in ((True, ""), (False, ", cross_namespace=True")):
        names = [kind.name for kind in kinds if kind.definition.namespaced == is_namespaced]
        if names:
            lines.append(f"        self.owns({', '.join(names)}{option})")
    return "\n".join(lines)


def _format_get_call(kind: ExternalKind) -> str:
    namespace = "namespace" if kind.definition.namespaced else '""'
    return f"            await client.get({kind.name}, Key({namespace}, SAMPLE.metadata.name)),"
