"""The values of a chart: all that its schema declares, and other valid values of the same types."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kubewright.builder.chart import load_extension
from kubewright.builder.chart.model import Value
from kubewright.builder.chart.values import build_values
from kubewright.builder.project import Project

from .helm import Helm, HelmFailed, Json, Objects

NAMESPACE = "team-a"
IMAGE: Json = {"image.repository": "example.com/operators"}


def read_values(root: Path) -> dict[str, Value]:
    """The values that a project declares, by path."""
    project = Project.read(root)
    values = build_values(project, project.load_declarations(), load_extension(project))
    return {value.path: value for value in values}


def list_leaves(schema: Json, prefix: str = "") -> Iterator[str]:
    """The paths of all values in a schema; those with free content are one value."""
    for name, child in schema["properties"].items():
        if "default" in child:
            yield f"{prefix}{name}"
        else:
            yield from list_leaves(child, f"{prefix}{name}.")


def list_fields(schema: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all fields that the schema of an item of a list declares."""
    for name, child in schema.get("properties", {}).items():
        yield (*path, name)
        yield from list_fields(child, (*path, name))


def render(helm: Helm, chart: Path, values: Mapping[str, Any]) -> Objects:
    """The objects of the chart with values by path."""
    nested: Json = {}
    for path, value in {**IMAGE, **values}.items():
        *parents, name = path.split(".")
        node = nested
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = value
    return helm.template(chart, NAMESPACE, nested)


def find_values_without_effect(
    helm: Helm, chart: Path, values: Mapping[str, Value], paths: Iterable[str]
) -> list[str]:
    """The paths of values that do not change the output."""
    without_effect, rendered = list[str](), dict[str, Objects | None]()
    for path in paths:
        value, context = values[path], dict(values[path].example_context)
        changed = render(helm, chart, context | {path: value.example})
        # Many values have the same context.
        key = json.dumps(context)
        if key not in rendered:
            rendered[key] = _try_render(helm, chart, context)
        unchanged = rendered[key]
        if unchanged is None:
            # The context requires some value.
            unchanged = render(helm, chart, context | {path: change_value(value.example)})
        if changed == unchanged:
            without_effect.append(path)
    return without_effect


def _try_render(helm: Helm, chart: Path, values: Mapping[str, Any]) -> Objects | None:
    try:
        return render(helm, chart, values)
    except HelmFailed:
        return None


def change_value(value: Any) -> Any:
    """Another valid value of the same type."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return f"{value}2"
        case list():
            return [*value, "other"]
        case dict():
            return {key: change_value(item) for key, item in value.items()}
    raise AssertionError(f"no example of the type {type(value)}")
