"""Scaffolds `init`: a whole project in an empty folder."""

from __future__ import annotations

import importlib.metadata
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ...errors import ConfigError
from ..changeset import ChangeSet
from ..names import package_name
from .template import render_folder

LICENSES = ("Apache-2.0", "MIT", "none")
# Version control, the settings of editors, and the virtual environment that runs this command.
_IGNORED_ENTRIES = frozenset({".git", ".idea", ".vscode", ".venv", ".DS_Store"})


@dataclass(frozen=True)
class ProjectParameters:
    name: str
    domain: str
    owner: str = ""
    license: str = "Apache-2.0"
    year: int | None = None
    """Of the copyright; the current year if None."""


def scaffold_project(root: Path, parameters: ProjectParameters) -> ChangeSet:
    """Every file of a new project but those of config/, which are generated from it."""
    _check_folder_is_empty(root)
    values = _build_template_values(parameters)
    files = render_folder("project", values)
    if parameters.license != "none":
        files["LICENSE"] = render_folder("licenses", values)[parameters.license]
    return ChangeSet(root, files)


def _build_template_values(parameters: ProjectParameters) -> dict[str, str]:
    name, license_ = parameters.name, parameters.license
    owner = parameters.owner or f"The authors of {name}"
    license_lines, license_label = f"authors = [{{ name = {json.dumps(owner)} }}]\n", ""
    license_note = "No license: all rights reserved."
    if license_ != "none":
        license_lines = f'license = "{license_}"\nlicense-files = ["LICENSE"]\n{license_lines}'
        license_label = f' org.opencontainers.image.licenses="{license_}"'
        license_note = f"License: {license_}, see [LICENSE](LICENSE)."
    return {
        "project": name,
        "package": package_name(name),
        "namespace": f"{name}-system",
        "domain": parameters.domain,
        "owner": owner,
        "year": str(parameters.year or datetime.now(UTC).year),
        "kubewright_version": importlib.metadata.version("kubewright"),
        "license_lines": license_lines,
        "license_label": license_label,
        "license_note": license_note,
    }


def _check_folder_is_empty(root: Path) -> None:
    if not root.exists():
        return
    if not root.is_dir():
        raise ConfigError(f"{root} is a file; name a folder")
    entries = sorted(item.name for item in root.iterdir() if item.name not in _IGNORED_ENTRIES)
    if entries:
        listed = ", ".join(entries[:5]) + (" and more" if len(entries) > 5 else "")
        raise ConfigError(
            f"{root} is not empty: it contains {listed}. "
            "A new project needs its own folder; nothing was written"
        )
