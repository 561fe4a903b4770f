"""Golden projects: what the builder writes, committed, so that a review sees every change of it; each is a working project.

`make golden` writes them anew.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from goldens import GOLDEN, MAKERS, files_of


@pytest.mark.parametrize("name", MAKERS)
def test_the_builder_writes_what_is_committed(name: str, tmp_path: Path) -> None:
    made, committed = files_of(MAKERS[name](tmp_path)), files_of(GOLDEN / name)
    assert made.keys() == committed.keys(), "run `make golden` and look at the difference"
    stale = [path for path in made if made[path] != committed[path]]
    assert stale == [], "run `make golden` and look at the difference"


@pytest.mark.parametrize("name", MAKERS)
def test_a_golden_projects_own_tests_pass_on_the_real_api_server(name: str, tmp_path: Path, binaries: dict[str, Path]) -> None:
    root = Path(shutil.copytree(GOLDEN / name, tmp_path / name))
    done = make(root, "test", binaries)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_a_golden_project_with_everything_passes_its_own_checks(tmp_path: Path, binaries: dict[str, Path]) -> None:
    root = Path(shutil.copytree(GOLDEN / "greeter", tmp_path / "greeter"))
    done = make(root, "check", binaries)
    assert done.returncode == 0, done.stdout + done.stderr


def make(root: Path, target: str, binaries: dict[str, Path]) -> subprocess.CompletedProcess[str]:
    """Run make as a person would, but with this environment in the place of one that would have to be downloaded."""
    venv = Path(sys.prefix)
    paths = [str(root / "src"), *(entry for entry in sys.path if entry.endswith("src"))]
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]),
        "KUBEBUILDER_ASSETS": str(binaries["etcd"].parent),
        "MYPY_CACHE_DIR": str(root / ".mypy_cache"),
    }
    command = ["make", f"VENV={venv}", "-o", f"{venv}/ready", target]
    return subprocess.run(command, cwd=root, env=environ, capture_output=True, text=True, timeout=300)
