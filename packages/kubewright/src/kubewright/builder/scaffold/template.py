"""Templates: files with `<<name>>` where a value goes, in folders that mirror the project.

A template has no branches: it reads like the file that it becomes. In paths a placeholder is
`{name}`, because `<` is not valid in file names everywhere; the suffix `.tmpl` is removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

_PLACEHOLDER = re.compile(r"<<([a-z_]+)>>")
_PATH_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_TEMPLATE_SUFFIX = ".tmpl"


def render_folder(folder: str, values: Mapping[str, str]) -> dict[str, str]:
    """The files of a folder of templates, by their path in the project."""
    return {
        _PATH_PLACEHOLDER.sub(lambda match: values[match[1]], path): _fill_in(text, values)
        for path, text in _walk_templates(_templates() / folder, PurePosixPath())
    }


def has_template(path: str) -> bool:
    return (_templates() / f"{path}{_TEMPLATE_SUFFIX}").is_file()


def render_part(path: str, values: Mapping[str, str]) -> str | None:
    """A part of a file; None if there is no template of this name."""
    template = _templates() / f"{path}{_TEMPLATE_SUFFIX}"
    return _fill_in(template.read_text(encoding="utf-8"), values) if template.is_file() else None


def _templates() -> Traversable:
    return resources.files(__package__) / "templates"


def _fill_in(text: str, values: Mapping[str, str]) -> str:
    # A placeholder without a value is a bug in a template: KeyError.
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def _walk_templates(folder: Traversable, path: PurePosixPath) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _walk_templates(entry, path / entry.name)
        elif entry.name.endswith(_TEMPLATE_SUFFIX):
            name = entry.name.removesuffix(_TEMPLATE_SUFFIX)
            yield str(path / name), entry.read_text(encoding="utf-8")
