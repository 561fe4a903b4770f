"""The versions that kubernetes/<minor>/go.mod pin, and the version that a binary prints."""

from __future__ import annotations

import hashlib
import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from kubewright.errors import ConfigError

from ..version import NEWEST_KUBERNETES, OLDEST_KUBERNETES

KUBERNETES_VARIABLE = "KUBEWRIGHT_KUBERNETES"
PINNED_KUBERNETES = (OLDEST_KUBERNETES, NEWEST_KUBERNETES)
_ETCD_MODULE, _KUBERNETES_MODULE = "go.etcd.io/etcd/server/v3", "k8s.io/kubernetes"
_KUBECTL_VERSION_ARGUMENTS = ("version", "--client")
_VERSION_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Pins:
    """The versions that a go.mod pins."""

    go_mod: bytes
    go_sum: bytes

    def _module_version(self, module: str) -> str:
        match = re.search(rf"^\s+{re.escape(module)} v(\S+)", self.go_mod.decode(), re.MULTILINE)
        if not match:
            raise ConfigError(f"go.mod does not require the module {module}. Reinstall kubewright.")
        return match[1]

    def binary_version(self, name: str) -> str:
        """The version of one binary, without the `v`."""
        return self._module_version(_ETCD_MODULE if name == "etcd" else _KUBERNETES_MODULE)

    def minor_version(self, name: str) -> str:
        return format_minor(self.binary_version(name))

    @property
    def go_version(self) -> str:
        """The oldest Go that can build the module."""
        match = re.search(r"^go (\S+)", self.go_mod.decode(), re.MULTILINE)
        return match[1] if match else "1.26"

    @property
    def digest(self) -> str:
        """The name of the cache folder: differs by pins, operating system and processor."""
        system = f"{platform.system()}-{platform.machine()}".encode()
        return hashlib.sha256(b"\0".join((self.go_mod, self.go_sum, system))).hexdigest()[:16]

    @property
    def linker_flags(self) -> str:
        # Without these variables the API server would report the version v0.0.0.
        version = self._module_version(_KUBERNETES_MODULE)
        major, minor, _ = version.split(".", 2)
        stamps = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
        variables = (f"-X k8s.io/component-base/version.{key}={stamps[key]}" for key in stamps)
        return " ".join(["-s -w", *variables])


def load_pins(minor: str = NEWEST_KUBERNETES) -> Pins:
    if minor not in PINNED_KUBERNETES:
        raise ConfigError(
            f'{KUBERNETES_VARIABLE}: Invalid value: "{minor}": must be '
            f"{' or '.join(PINNED_KUBERNETES)}"
        )
    folder = files(__package__) / "kubernetes" / minor
    return Pins((folder / "go.mod").read_bytes(), (folder / "go.sum").read_bytes())


def select_pins(environ: Mapping[str, str]) -> Pins:
    """The pins of the Kubernetes version that the environment selects, by default the newest."""
    return load_pins(environ.get(KUBERNETES_VARIABLE) or NEWEST_KUBERNETES)


def parse_version(version: str) -> tuple[int, ...]:
    """The numbers of a version, for comparisons: "go1.26.8" gives (1, 26, 8)."""
    match = re.search(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def format_minor(version: str) -> str:
    """The first two numbers of a version: "v1.36.3" gives "1.36"."""
    return ".".join(map(str, parse_version(version)[:2]))


def read_version(name: str, binary: Path) -> str:
    """The version that the binary prints, without the `v`; "" if it prints none."""
    try:
        process = subprocess.run(
            [binary, *(_KUBECTL_VERSION_ARGUMENTS if name == "kubectl" else ("--version",))],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    # kubectl and kube-apiserver print "... v1.36.3", etcd prints "etcd Version: 3.6.1".
    versions = (word.removeprefix("v") for word in process.stdout.split())
    return next((text for text in versions if text[:1].isdigit() and parse_version(text)[1:]), "")
