"""What pyproject.toml says of an operator under [tool.kubewright], and the operator itself, loaded but not running."""

from __future__ import annotations

import importlib
import sys
import tomllib
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from ..controller import Controller
from ..errors import ConfigError, KubewrightError
from ..flags import parse_command_line
from ..kind import Object
from ..kubeconfig import Connection, Identity
from ..manager import Manager
from ..webhook import Conversion, Webhook

COMPONENTS = (
    "ha",
    "namespaced",
    "network-policy",
    "prometheus",
    "webhooks",
    "cert-manager",
    "without-webhooks",
)
"""In the order in which they go on top of each other: one may change what those before it have added."""


class ResourceEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A version of a kind, as kubebuilder's PROJECT lists it."""

    group: str
    version: str
    kind: str
    plural: str
    path: str
    """Where its class is, as `package.module:Class`."""
    controller: bool = True
    conversion: bool = False
    """A version that is converted to the one that the controller knows."""
    webhooks: tuple[str, ...] = ()


class MountedSecret(Struct, frozen=True, forbid_unknown_fields=True):
    """A Secret that is mounted into the manager, if it is there."""

    name: str
    mount: str


class ManagerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """What the Deployment has beside the rest."""

    args: tuple[str, ...] = ()
    secrets: tuple[MountedSecret, ...] = ()
    resources: dict[str, dict[str, str]] = field(
        default_factory=lambda: {
            "requests": {"cpu": "10m", "memory": "128Mi"},
            "limits": {"cpu": "500m", "memory": "256Mi"},
        }
    )


class ProjectConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """[tool.kubewright]."""

    name: str
    build: str
    settings: str
    domain: str = ""
    namespace: str = ""
    image: str = "controller:latest"
    components: tuple[str, ...] = ()
    optional_webhooks: str = ""
    """The manager's flag that adds its webhooks; without one they are always on."""
    manager: ManagerConfig = ManagerConfig()
    resources: tuple[ResourceEntry, ...] = ()


@dataclass(frozen=True)
class Declarations:
    """What an operator's code declares."""

    controllers: tuple[Controller[Any], ...] = ()
    webhooks: tuple[Webhook[Any], ...] = ()
    conversions: tuple[Conversion[Any, Any], ...] = ()
    kinds: tuple[type[Object], ...] = ()
    """Every version of every kind, those too that another operator's controllers serve."""
    optional_webhooks: tuple[Webhook[Any], ...] = ()
    """Webhooks that are there only with the flag for them."""

    @property
    def has_webhook_server(self) -> bool:
        """Whether the API server has anything to ask."""
        return bool(self.webhooks or self.conversions)

    @property
    def with_optional_webhooks(self) -> Declarations:
        """The same with the webhooks that are optional."""
        return replace(
            self, webhooks=(*self.webhooks, *self.optional_webhooks), optional_webhooks=()
        )


class Project:
    """Where the operator's parts are."""

    def __init__(self, root: Path, table: ProjectConfig) -> None:
        self.root = root
        self.config = table
        self.name = table.name
        self.namespace = table.namespace or f"{table.name}-system"

    @classmethod
    def read(cls, root: Path) -> Project:
        """From the pyproject.toml of this folder."""
        file = root / "pyproject.toml"
        try:
            table = tomllib.loads(file.read_text(encoding="utf-8"))["tool"]["kubewright"]
        except FileNotFoundError:
            raise ConfigError(
                f"there is no {file}; run this in a kubewright project, or make one with `kubewright init`"
            ) from None
        except KeyError:
            raise ConfigError(
                f"{file} has no [tool.kubewright] table; a kubewright project says there what it is"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: {error}") from None
        missing = [key for key in ("name", "build", "settings") if not table.get(key)]
        if missing:
            raise ConfigError(f"{file}: [tool.kubewright] lacks {', '.join(missing)}")
        return cls(root, _parse_config(table, file))

    @property
    def package(self) -> str:
        """The package that has `build`."""
        return self.config.build.partition(":")[0].partition(".")[0]

    def load_declarations(self) -> Declarations:
        """What `build` adds to a manager, which is then thrown away unstarted, and the kinds that only pyproject.toml lists."""
        manager = self.build_manager()
        served = [
            kind
            for controller in manager.controllers
            for kind in (controller.kind, *controller.versions)
        ]
        listed = [
            self.load_object(each.path) for each in self.config.resources if not each.controller
        ]
        converted = [kind for each in manager.conversions for kind in (each.spoke, each.hub)]
        kinds = tuple(dict.fromkeys([*served, *converted, *listed]))
        found = Declarations(
            tuple(manager.controllers), tuple(manager.webhooks), tuple(manager.conversions), kinds
        )
        return (
            replace(found, optional_webhooks=self._load_optional_webhooks(found))
            if self.config.optional_webhooks
            else found
        )

    def _load_optional_webhooks(self, plain: Declarations) -> tuple[Webhook[Any], ...]:
        """The webhooks that the flag for them adds."""
        flag = self.config.optional_webhooks
        manager = self.build_manager(flag)
        if plain.has_webhook_server or manager.conversions or not manager.webhooks:
            raise ConfigError(
                f"[tool.kubewright] optional_webhooks is {flag}, so {self.config.build} has to add webhooks with it and none without it, "
                "and no conversion, since without one a version could not be read"
            )
        return tuple(manager.webhooks)

    def build_manager(self, *flags: str) -> Manager:
        """A manager as `build` fills it for these flags."""
        manager = Manager(
            Connection(server="https://unused.invalid", identity=Identity(), source="manifests")
        )
        build, settings = (
            self.load_object(self.config.build),
            self.load_object(self.config.settings),
        )
        try:
            build(manager, parse_command_line(settings, flags, {}) if flags else settings())
        except Exception as error:
            raise ConfigError(
                f"{self.config.build} cannot be asked for its controllers: {describe_error(error)}"
            ) from error
        return manager

    def load_object(self, reference: str) -> Any:
        """The object that `package.module:name` names."""
        module, _, name = reference.partition(":")
        sys.path.insert(0, str(self.root / "src"))
        try:
            return getattr(importlib.import_module(module), name)
        except Exception as error:
            raise ConfigError(
                f'[tool.kubewright] names "{reference}", which cannot be loaded: {describe_error(error)}'
            ) from error
        finally:
            sys.path.pop(0)


def describe_error(error: Exception) -> str:
    """What went wrong in a person's code, and in which line of it."""
    if isinstance(error, KubewrightError):
        return str(error)
    if isinstance(error, SyntaxError):
        return f"{error.filename} line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [
        frame
        for frame in frames
        if "/importlib/" not in frame.filename and not frame.filename.startswith("<frozen ")
    ]
    return f"{type(error).__name__}: {error} ({theirs[-1].filename} line {theirs[-1].lineno})"


def _parse_config(table: dict[str, Any], file: Path) -> ProjectConfig:
    """The table with its types checked."""
    try:
        made = msgspec.convert(table, ProjectConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file}: [tool.kubewright]: {error}") from None
    unknown = sorted(set(made.components) - set(COMPONENTS))
    if unknown:
        raise ConfigError(
            f"{file}: [tool.kubewright] has no component {', '.join(unknown)}; there are {', '.join(COMPONENTS)}"
        )
    return made
