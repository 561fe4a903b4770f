"""The dependency of a project on kubewright-api, which has the types of Kubernetes."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Collection

import tomlkit

from ..project import Project

_NAME = "kubewright-api"
_REQUIREMENTS = "requirements/runtime.in"


def add_api_dependency(project: Project) -> dict[str, str]:
    """The files that list dependencies, with kubewright-api."""
    requirement = f"{_NAME}>={importlib.metadata.version('kubewright')}"
    document = tomlkit.parse(project.read_text("pyproject.toml"))
    dependencies = document["project"]["dependencies"]
    if not _find(dependencies):
        dependencies.append(requirement)
    edited_files = {"pyproject.toml": tomlkit.dumps(document)}
    requirements = project.read_text_if_exists(_REQUIREMENTS)
    # A project that does not list kubewright there installs it in another way.
    if requirements and "kubewright" in requirements and _NAME not in requirements:
        edited_files[_REQUIREMENTS] = f"{requirements.rstrip()}\n{requirement}\n"
    return edited_files


def remove_unused_api_dependency(project: Project, removed: Collection[str]) -> dict[str, str]:
    """The files without kubewright-api, if no module that remains imports kubewright.api."""
    sources = [
        path
        for path in (project.root / "src").rglob("*.py")
        if path.relative_to(project.root).as_posix() not in removed
    ]
    if any("kubewright.api" in path.read_text(encoding="utf-8") for path in sources):
        return {}
    document = tomlkit.parse(project.read_text("pyproject.toml"))
    dependencies = document["project"]["dependencies"]
    unused = _find(dependencies)
    if not unused:
        return {}
    dependencies.remove(unused)
    edited_files = {"pyproject.toml": tomlkit.dumps(document)}
    requirements = project.read_text_if_exists(_REQUIREMENTS) or ""
    remaining = re.sub(rf"^{_NAME}\b.*\n", "", requirements, flags=re.MULTILINE)
    if remaining != requirements:
        edited_files[_REQUIREMENTS] = remaining
    return edited_files


def _find(dependencies: Collection[str]) -> str | None:
    return next((item for item in dependencies if re.match(rf"{_NAME}\b", item)), None)
