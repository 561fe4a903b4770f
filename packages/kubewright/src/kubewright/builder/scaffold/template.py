"""Templates: files with `<<name>>` where a value goes, in folders that are the project's own.

A template has no branches: it reads as the file that it becomes. In paths a place is `{name}`, since no system of files likes `<`;
`.tmpl` is cut off a file's name.
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
_ROOT_PATH = PurePosixPath()


def fill_template(
    text: str, values: Mapping[str, str], place: re.Pattern[str] = _PLACEHOLDER
) -> str:
    """The text with every place filled; a place without a value is a mistake of ours and raises KeyError."""
    return place.sub(lambda found: values[found[1]], text)


def render_folder(folder: str, values: Mapping[str, str]) -> dict[str, str]:
    """Every file of a folder of templates, by the path that it gets in the project."""
    root = resources.files(__package__) / "templates" / folder
    return {
        fill_template(path, values, _PATH_PLACEHOLDER): fill_template(text, values)
        for path, text in _walk_templates(root)
    }


def _walk_templates(
    folder: Traversable, above: PurePosixPath = _ROOT_PATH
) -> Iterator[tuple[str, str]]:
    """Paths and texts of all templates below a folder, in the order of their names."""
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            yield from _walk_templates(entry, above / entry.name)
        elif entry.name.endswith(_TEMPLATE_SUFFIX):
            yield (
                str(above / entry.name.removesuffix(_TEMPLATE_SUFFIX)),
                entry.read_text(encoding="utf-8"),
            )
