"""A project on disk: the table [tool.kubewright] of pyproject.toml, and what its code declares."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace as struct_replace

from ..controller import Controller
from ..errors import ConfigError, KubewrightError
from ..flags import parse_command_line
from ..kind import Object
from ..kubeconfig import Connection, Identity
from ..manager import Manager, Options
from ..permission import Permission
from ..rbac import manager_permissions
from ..selection import declared_kind
from ..webhook import Conversion, Webhook
from .changeset import read_text, read_text_if_exists

# The order matters: a component may change what those before it have added.
COMPONENTS = (
    "aggregate-editors",
    "ha",
    "shards",
    "namespaced",
    "network-policy",
    "prometheus",
    "webhooks",
    "cert-manager",
    "without-webhooks",
)


class ResourceEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One version of a kind, as kubebuilder's PROJECT file lists it."""

    group: str
    version: str
    kind: str
    plural: str
    path: str
    """Where its class is: `package.module:Class`."""
    controller: bool = True
    conversion: bool = False
    """Whether this version is converted to the version of the controller."""
    webhooks: tuple[str, ...] = ()
    external: bool = False
    """Whether Kubernetes or another project declares the kind."""

    @property
    def source_path(self) -> str:
        return f"src/{self.path.partition(':')[0].replace('.', '/')}.py"

    @property
    def class_name(self) -> str:
        return self.path.partition(":")[2]


class MountedSecret(Struct, frozen=True, forbid_unknown_fields=True):
    """A Secret that is mounted into the manager if it exists."""

    name: str
    mount: str


class ManagerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """[tool.kubewright.manager]: what a project adds to the Deployment."""

    args: tuple[str, ...] = ()
    secrets: tuple[MountedSecret, ...] = ()
    resources: dict[str, dict[str, str]] = msgspec.field(
        default_factory=lambda: {
            "requests": {"cpu": "10m", "memory": "128Mi"},
            "limits": {"cpu": "500m", "memory": "256Mi"},
        }
    )


class FeatureEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A flag of the manager that a component and a value of the chart switch on."""

    name: str
    """The name of the component; the value of the chart has the same name in camelCase."""
    flag: str
    description: str = ""
    """The comment of the value."""


PLACEHOLDER_IMAGE = "controller:latest"
"""The image of a new project, which exists in no registry."""


class ProjectConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The table [tool.kubewright]."""

    name: str
    build: str
    settings: str
    domain: str = ""
    namespace: str = ""
    image: str = PLACEHOLDER_IMAGE
    components: tuple[str, ...] = ()
    optional_webhooks: str = ""
    """Flag of the manager that adds its webhooks; if empty, they are always on."""
    optional_editors: tuple[str, ...] = ()
    """Kinds that users with the roles edit and admin may change only with aggregate-editors."""
    optional_features: tuple[FeatureEntry, ...] = ()
    """Features that are off by default, and have permissions of their own."""
    chart_manifests: dict[str, str] = {}
    """Files with objects that the chart contains, by the value below `manifests` that adds them."""
    chart: str = ""
    """Where the project's additions to the Helm chart are: `package.module:CHART`."""
    chart_dashboards: str = ""
    """Folder with dashboards for Grafana (*.json), which the value `dashboards` adds."""
    manager: ManagerConfig = ManagerConfig()
    resources: tuple[ResourceEntry, ...] = ()


@dataclass(frozen=True)
class OperatorParts:
    """What the code of an operator declares."""

    controllers: tuple[Controller[Any], ...] = ()
    webhooks: tuple[Webhook[Any], ...] = ()
    conversions: tuple[Conversion[Any, Any], ...] = ()
    kinds: tuple[type[Object], ...] = ()
    """Every version of every kind that the project declares, also without a controller for it."""
    optional_webhooks: tuple[Webhook[Any], ...] = ()
    """Webhooks that exist only with the flag for them."""
    feature_permissions: Mapping[str, Sequence[Permission]] = field(default_factory=dict)
    """By the name of an optional feature, what the manager needs in addition with its flag."""

    @property
    def has_webhook_server(self) -> bool:
        return bool(self.webhooks or self.conversions)

    @property
    def including_optional_webhooks(self) -> OperatorParts:
        webhooks = (*self.webhooks, *self.optional_webhooks)
        return replace(self, webhooks=webhooks, optional_webhooks=())


@dataclass(frozen=True)
class Project:
    """A project's folder and configuration."""

    root: Path
    config: ProjectConfig
    unwritten_files: Mapping[str, str] = field(default_factory=dict)
    """Files that a command has generated but not written yet: they replace those on disk."""

    @classmethod
    def read(cls, root: Path, unwritten_files: Mapping[str, str] | None = None) -> Project:
        """The project of the pyproject.toml in this folder."""
        # Not with read_text(): a missing file here means that this is not a project.
        file, unwritten_files = root / "pyproject.toml", unwritten_files or {}
        try:
            text = unwritten_files.get("pyproject.toml") or file.read_text(encoding="utf-8")
            table = tomllib.loads(text)["tool"]["kubewright"]
        except FileNotFoundError:
            raise ConfigError(
                f"{file} does not exist; run this in a kubewright project, "
                "or create one with `kubewright init`"
            ) from None
        except KeyError:
            raise ConfigError(
                f"{file} has no [tool.kubewright] table, so this is not a kubewright project"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: {error}") from None
        missing = [key for key in ("name", "build", "settings") if not table.get(key)]
        if missing:
            raise ConfigError(f"{file}: [tool.kubewright] lacks {', '.join(missing)}")
        return cls(root, _parse_config(table, file), unwritten_files)

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def namespace(self) -> str:
        return self.config.namespace or f"{self.name}-system"

    @property
    def package(self) -> str:
        return self.config.build.partition(":")[0].partition(".")[0]

    @property
    def build_function(self) -> str:
        return self.config.build.partition(":")[2]

    def read_text(self, path: str) -> str:
        text = self.unwritten_files.get(path)
        return read_text(self.root / path) if text is None else text

    def read_text_if_exists(self, path: str) -> str | None:
        text = self.unwritten_files.get(path)
        return read_text_if_exists(self.root / path) if text is None else text

    def load_declarations(self) -> OperatorParts:
        """What `build` adds to a manager, and the kinds that only pyproject.toml lists."""
        manager = self._build_manager()
        kinds = [
            *(
                declared_kind(kind)
                for entry in manager.controllers
                for kind in (entry.kind, *entry.versions)
            ),
            *(kind for entry in manager.conversions for kind in (entry.spoke, entry.hub)),
            *(
                self.load_object(entry.path)
                for entry in self.config.resources
                if not entry.controller
            ),
        ]
        declarations = OperatorParts(
            tuple(manager.controllers),
            tuple(manager.webhooks),
            tuple(manager.conversions),
            tuple(kind for kind in dict.fromkeys(kinds) if not kind.definition.external),
        )
        declarations = replace(
            declarations,
            feature_permissions={
                feature.name: _find_added_permissions(manager, self._build_manager(feature.flag))
                for feature in self.config.optional_features
            },
        )
        flag = self.config.optional_webhooks
        if not flag:
            return declarations
        manager = self._build_manager(flag)
        if declarations.has_webhook_server or manager.conversions or not manager.webhooks:
            raise ConfigError(
                f"[tool.kubewright] optional_webhooks is {flag}: {self.config.build} must add "
                "webhooks with this flag and none without it. It must not add a conversion: "
                "without one, objects of that version could not be read"
            )
        return replace(declarations, optional_webhooks=tuple(manager.webhooks))

    def _build_manager(self, *flags: str) -> Manager:
        """The manager as `build` fills it; it is never started, so the address is not used."""
        connection = Connection(
            server="https://unused.invalid", identity=Identity(), source="manifests"
        )
        # As in the Deployment: a feature may warn of metrics that any client can read.
        manager = Manager(connection, Options(metrics_secure=True))
        build, settings = (
            self.load_object(self.config.build),
            self.load_object(self.config.settings),
        )
        try:
            build(manager, parse_command_line(settings, flags, {}) if flags else settings())
        except Exception as error:
            raise ConfigError(f"{self.config.build} failed: {_locate_error(error)}") from error
        return manager

    def load_object(self, reference: str) -> Any:
        """The object that `package.module:name` refers to."""
        module, _, name = reference.partition(":")
        # First on the path: an installed version of the project must not be loaded instead.
        # Modules outside of src, such as tools of the repository, are not part of the operator.
        sys.path[:0] = [str(self.root / "src"), str(self.root)]
        try:
            return getattr(importlib.import_module(module), name)
        except Exception as error:
            raise ConfigError(
                f'"{reference}" of [tool.kubewright] cannot be loaded: {_locate_error(error)}'
            ) from error
        finally:
            del sys.path[:2]


def _find_added_permissions(without: Manager, with_feature: Manager) -> list[Permission]:
    base, extended = (
        {
            struct_replace(permission, verbs=(verb,))
            for permission in manager_permissions(manager.controllers, manager.webhooks)
            for verb in permission.verbs
        }
        for manager in (without, with_feature)
    )
    return list(extended - base)


def _locate_error(error: Exception) -> str:
    """What went wrong in the project's code, and in which line of it."""
    if isinstance(error, KubewrightError):
        return str(error)
    if isinstance(error, SyntaxError):
        return f"{error.filename} line {error.lineno}: {error.msg}"
    # The frames of Python's import machinery are above every import; they explain nothing.
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "/importlib/" not in frame.filename and not frame.filename.startswith("<frozen ")
    ]
    return f"{type(error).__name__}: {error} ({frames[-1].filename} line {frames[-1].lineno})"


def _parse_config(table: dict[str, Any], file: Path) -> ProjectConfig:
    try:
        config = msgspec.convert(table, ProjectConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file}: [tool.kubewright]: {error}") from None
    features = [feature.name for feature in config.optional_features]
    for name in features:
        if not re.fullmatch("[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
            reason = "must be lower-case letters and digits, with hyphens between them"
        elif name in COMPONENTS or features.count(name) > 1:
            reason = "another component has this name"
        else:
            continue
        raise ConfigError(f'{file}: [tool.kubewright] optional_features: name "{name}": {reason}')
    available = (*COMPONENTS, *features)
    if unknown := sorted(set(config.components) - set(available)):
        raise ConfigError(
            f"{file}: [tool.kubewright] components: unknown {', '.join(unknown)}; "
            f"must be one of {', '.join(available)}"
        )
    # A kind of another project gets no roles for its users.
    kinds = sorted({entry.kind for entry in config.resources if not entry.external})
    if unknown := sorted(set(config.optional_editors) - set(kinds)):
        raise ConfigError(
            f"{file}: [tool.kubewright] optional_editors: unknown {', '.join(unknown)}; "
            f"must be one of {', '.join(kinds)}"
        )
    return config
