from __future__ import annotations

from pathlib import Path

import pytest

from kubewright.testing import binaries, go_module
from kubewright.testing.envtest import ARCHIVED_BINARIES
from kubewright.version import NEWEST_KUBERNETES

VERSION = f"{NEWEST_KUBERNETES}.2"


@pytest.fixture
def no_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the package kubewright-testenv, which a developer may have installed."""
    for module in (binaries, go_module):
        monkeypatch.setattr(module, "installed_folder", lambda: None)


@pytest.fixture
def tool_module(tmp_path: Path) -> Path:
    folder = tmp_path / "tool"
    folder.mkdir()
    (folder / "go.mod").write_text("module tool\n\ngo 1.25.0\n")
    (folder / "main.go").write_text("package main\n")
    return folder


@pytest.fixture
def testenv(tmp_path: Path, tool_module: Path) -> Path:
    """A folder as `make testenv` leaves it: links into the cache."""
    folder = tmp_path / "testenv"
    folder.mkdir()
    cache = tmp_path / "cache"
    for name in ARCHIVED_BINARIES:
        version = "3.6.5" if name == "etcd" else f"v{VERSION}"
        link_program(folder, cache / "digest" / name, f"#!/bin/sh\necho version {version}\n")
    module = cache / "modules" / f"tool-{go_module._digest_sources(tool_module, '')[:16]}"
    link_program(folder, module / "tool", "#!/bin/sh\n")
    return folder


def link_program(folder: Path, program: Path, text: str) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(text)
    program.chmod(0o755)
    (folder / program.name).symlink_to(program)
