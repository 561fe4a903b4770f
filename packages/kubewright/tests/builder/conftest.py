"""A project with everything, made once and copied for each test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .projects import make_greeter


@pytest.fixture(scope="session")
def made_greeter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_greeter(tmp_path_factory.mktemp("made"))


@pytest.fixture
def greeter(made_greeter: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made_greeter, tmp_path / "greeter"))
