"""What pyproject.toml says of an operator under [tool.kubewright], and the operator itself, loaded but not running."""

from __future__ import annotations

import importlib
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..controller import Controller
from ..errors import ConfigError
from ..kubeconfig import Connection, Identity
from ..manager import Manager


@dataclass(frozen=True)
class Project:
    """Where the operator's parts are."""

    root: Path
    name: str
    namespace: str
    build: str
    settings: str

    @classmethod
    def read(cls, root: Path) -> Project:
        """From the pyproject.toml of this folder."""
        file = root / "pyproject.toml"
        try:
            table = tomllib.loads(file.read_text())["tool"]["kubewright"]
        except FileNotFoundError:
            raise ConfigError(f"there is no {file}; run this in the folder of a kubewright project") from None
        except KeyError:
            raise ConfigError(f"{file} has no [tool.kubewright] table; a kubewright project says there what it is") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{file}: {error}") from None
        missing = [key for key in ("name", "build", "settings") if not table.get(key)]
        if missing:
            raise ConfigError(f"{file}: [tool.kubewright] lacks {', '.join(missing)}")
        return cls(root, table["name"], table.get("namespace", f"{table['name']}-system"), table["build"], table["settings"])

    def controllers(self) -> list[Controller[Any]]:
        """The controllers as `build` adds them to a manager, which is then thrown away unstarted."""
        manager = Manager(Connection(server="https://unused.invalid", identity=Identity(), source="manifests"))
        self.load(self.build)(manager, self.load(self.settings)())
        return manager.controllers

    def load(self, reference: str) -> Any:
        """The object that `package.module:name` names."""
        module, _, name = reference.partition(":")
        sys.path.insert(0, str(self.root / "src"))
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f'[tool.kubewright] names "{reference}", which cannot be loaded: {error}') from error
        finally:
            sys.path.pop(0)
