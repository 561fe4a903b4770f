"""Projects to try commands on: a fresh one, and the golden one with everything, which tests/test_golden.py compares with what is made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from goldens import GOLDEN
from kubewright.builder.main import main


@pytest.fixture
def greeter(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "greeter", tmp_path / "greeter"))


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fresh") / "greeter"
    assert main(["init", str(root), "--domain", "example.com"]) == 0
    return root


@pytest.fixture
def project(fresh: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(fresh, tmp_path / "greeter"))
