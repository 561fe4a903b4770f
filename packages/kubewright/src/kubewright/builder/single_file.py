"""An operator in one file: finds what the file declares, and installs its CRDs.

The file has either a function `build(manager, flags)`, as a project has, or classes that can be
created without arguments. `Settings` in the file extends the flags of the manager.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from ..client import Client
from ..command import ManagerFlags
from ..controller import Controller
from ..crd import build_crds
from ..errors import ConfigError
from ..kind import Key, Object
from ..kubeconfig import Connection
from ..manager import Manager
from ..selection import declared_kind
from ..transport import Transport
from ..webhook import Conversion, Webhook
from ..webhook.ca_bundle import CustomResourceDefinition

_COMPONENTS = (Controller, Webhook, Conversion)


def load_module(file: Path) -> ModuleType:
    """Import the file as Python runs a script: with its folder first in sys.path."""
    sys.path.insert(0, str(file.resolve().parent))
    specification = importlib.util.spec_from_file_location(file.stem, file)
    if specification is None or specification.loader is None:
        raise ConfigError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(specification)
    # Types are looked up by the name of their module.
    sys.modules[file.stem] = module
    specification.loader.exec_module(module)
    return module


def find_settings(module: ModuleType) -> type[ManagerFlags]:
    settings = getattr(module, "Settings", ManagerFlags)
    if not (isinstance(settings, type) and issubclass(settings, ManagerFlags)):
        raise ConfigError("Settings must be a subclass of kubewright.command.ManagerFlags")
    return settings


def find_build(module: ModuleType) -> Callable[[Manager, Any], None]:
    """The `build` of the module, or one that adds each component of it."""
    if callable(build := getattr(module, "build", None)):
        return build  # type: ignore[no-any-return]
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, _COMPONENTS)
        and value.__module__ == module.__name__
    ]
    if not classes:
        raise ConfigError(
            f"{module.__file__} has no controller: define a class that extends Controller, "
            "or a function build(manager, flags)"
        )

    def add_all(manager: Manager, flags: ManagerFlags) -> None:
        for component in classes:
            try:
                manager.add(component())
            except TypeError as error:
                raise ConfigError(
                    f"{component.__name__} cannot be created without arguments ({error}); "
                    "define a function build(manager, flags) that adds it"
                ) from error

    return add_all


def declared_kinds(manager: Manager) -> list[type[Object]]:
    """The kinds of the manager that have a CRD of their own."""
    kinds = [
        *(kind for entry in manager.controllers for kind in (entry.kind, *entry.versions)),
        *(entry.kind for entry in manager.webhooks),
    ]
    return [
        kind for kind in dict.fromkeys(map(declared_kind, kinds)) if not kind.definition.external
    ]


def install_crds(connection: Connection, kinds: Iterable[type[Object]]) -> list[str]:
    """Apply the CRDs of the kinds; returns their names."""
    return asyncio.run(_install_crds(connection, build_crds(kinds)))


async def _install_crds(connection: Connection, crds: list[dict[str, Any]]) -> list[str]:
    transport = Transport(connection)
    client, names = Client(transport), [crd["metadata"]["name"] for crd in crds]
    try:
        for name, crd in zip(names, crds, strict=True):
            await client.patch(
                CustomResourceDefinition, Key("", name), crd, patch_type="apply", force=True
            )
    finally:
        await transport.close()
    return names
