"""`kubewright init`: a whole project in an empty folder."""

from __future__ import annotations

import importlib.metadata
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ...errors import ConfigError
from ..changeset import ChangeSet
from ..names import check_domain, check_project_name, package_name
from .template import render_folder

LICENSES = ("Apache-2.0", "MIT", "none")
# What a folder may have and still be empty: version control, an editor's settings, this very environment.
_IGNORED_ENTRIES = frozenset({".git", ".idea", ".vscode", ".venv", ".DS_Store"})


@dataclass(frozen=True)
class ProjectParameters:
    """What a new project is told."""

    name: str
    domain: str
    owner: str = ""
    license: str = "Apache-2.0"
    year: int = field(default_factory=lambda: datetime.now(UTC).year)


def scaffold_project(root: Path, told: ProjectParameters) -> ChangeSet:
    """Every scaffolded file of a new project; config/ is generated afterwards."""
    check_project_name(told.name)
    check_domain(told.domain)
    _check_folder_is_empty(root)
    values = build_template_values(told)
    files = render_folder("project", values)
    if told.license != "none":
        files["LICENSE"] = render_folder("licenses", values)[told.license]
    return ChangeSet(root, files)


def build_template_values(told: ProjectParameters) -> dict[str, str]:
    """What the places in the templates are filled with."""
    owner = told.owner or f"The authors of {told.name}"
    return {
        "project": told.name,
        "package": package_name(told.name),
        "namespace": f"{told.name}-system",
        "domain": told.domain,
        "owner": owner,
        "year": str(told.year),
        "kubewright_version": importlib.metadata.version("kubewright"),
        "license_lines": _format_license_lines(told, owner),
        "license_label": f' org.opencontainers.image.licenses="{told.license}"'
        if told.license != "none"
        else "",
        "license_words": f"Licence: {told.license}, see [LICENSE](LICENSE)."
        if told.license != "none"
        else "No licence: all rights reserved.",
    }


def _format_license_lines(told: ProjectParameters, owner: str) -> str:
    """What pyproject.toml says of owner and licence."""
    authors = f"authors = [{{ name = {json.dumps(owner)} }}]\n"
    return (
        authors
        if told.license == "none"
        else f'license = "{told.license}"\nlicense-files = ["LICENSE"]\n{authors}'
    )


def _check_folder_is_empty(root: Path) -> None:
    """Raise where the folder has something that is not harmless."""
    if root.exists() and not root.is_dir():
        raise ConfigError(f"{root} is a file; name a folder")
    there = (
        sorted(entry.name for entry in root.iterdir() if entry.name not in _IGNORED_ENTRIES)
        if root.exists()
        else []
    )
    if there:
        some = ", ".join(there[:5]) + (" and more" if len(there) > 5 else "")
        raise ConfigError(
            f"{root} is not empty: it has {some}. A new project needs a folder of its own; nothing was written."
        )
