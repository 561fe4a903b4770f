"""External kinds: the built-in kinds of Kubernetes, and those of other operators.

On the command line an external kind is `apps/v1/Deployment` or `v1/Service`. Its class is either in
the modules that `kubewright import` has written to the project, or in kubewright.api.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
from dataclasses import dataclass

from ...definition import KindDefinition
from ...errors import ConfigError
from ...kind import Object
from ..project import Project

_IMPORT_FOLDER = "external"
_API_PACKAGE = "kubewright.api"


@dataclass(frozen=True)
class ExternalKind:
    module: str
    definition: KindDefinition

    @property
    def name(self) -> str:
        return self.definition.type.__name__

    @property
    def is_builtin(self) -> bool:
        return self.module.startswith(f"{_API_PACKAGE}.")

    @property
    def path(self) -> str:
        return f"{self.module}:{self.name}"

    def module_seen_from_kinds(self, project: Project) -> str:
        """The module as the modules of the project's kinds import it."""
        return re.sub(rf"^{project.package}\.", "..", self.module)


def find_external_kind(project: Project, reference: str) -> ExternalKind:
    """The kind of `group/version/Kind`, or `version/Kind` in the core group."""
    match = re.fullmatch(r"(?:([a-z0-9.-]+)/)?(v[0-9a-z]+)/([A-Z][A-Za-z0-9]*)", reference)
    if match is None:
        raise ConfigError(
            f'invalid kind "{reference}": must be GROUP/VERSION/KIND, such as apps/v1/Deployment, '
            "or VERSION/KIND in the core group, such as v1/Service"
        )
    group, version, name = match[1] or "", match[2], match[3]
    module = _find_imported_module(project, f"{group}/{version}", name)
    if module is not None:
        return ExternalKind(module, project.load_object(f"{module}:{name}").definition)
    if importlib.util.find_spec(_API_PACKAGE) is None:
        raise ConfigError("the types of Kubernetes are not installed: pip install kubewright-api")
    module = f"{_API_PACKAGE}.{group.partition('.')[0] or 'core'}_{version}"
    if importlib.util.find_spec(module) is None:
        raise ConfigError(
            f"Kubernetes has no kind {reference}. For a kind of another operator, first run "
            "`kubewright import` with its CRD, which writes its types to "
            f"src/{project.package}/{_IMPORT_FOLDER}"
        )
    kinds = _list_kinds(module)
    if name not in kinds or kinds[name].definition.group != group:
        similar = difflib.get_close_matches(name, kinds, n=1)
        hint = f"; did you mean {similar[0]}?" if similar else ""
        raise ConfigError(f"{module} has no kind {reference}{hint}")
    return ExternalKind(module, kinds[name].definition)


def _find_imported_module(project: Project, api_version: str, name: str) -> str | None:
    """The module that `kubewright import` has written for this kind."""
    folder = project.root / "src" / project.package / _IMPORT_FOLDER
    for file in sorted(folder.glob("*.py")):
        text = file.read_text(encoding="utf-8")
        if f'"{api_version}"' in text and f"class {name}(" in text:
            return f"{project.package}.{_IMPORT_FOLDER}.{file.stem}"
    return None


def _list_kinds(module: str) -> dict[str, type[Object]]:
    values = vars(importlib.import_module(module)).values()
    return {
        value.__name__: value
        for value in values
        if isinstance(value, type) and issubclass(value, Object) and hasattr(value, "definition")
    }
