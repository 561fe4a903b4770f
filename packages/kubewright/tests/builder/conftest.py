"""A project with everything: the golden one, which tests/test_golden.py holds against what the commands make."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from goldens import GOLDEN


@pytest.fixture
def greeter(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "greeter", tmp_path / "greeter"))
